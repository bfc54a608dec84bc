//! Files of queries and relevance judgements.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::lines::json_fault;

/// query id -> document id -> grade; 0 is judged and not relevant.
pub type Qrels = BTreeMap<String, BTreeMap<String, u32>>;

/// A query to search for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Its identifier in the judgements.
    pub id: String,
    /// What to search for.
    pub text: String,
}

/// What is wrong with a file of queries or judgements.
#[derive(Debug, thiserror::Error)]
pub enum JudgementError {
    /// The file cannot be read.
    #[error("{path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line does not have the form of the file.
    #[error("{path}: line {line}: {reason}", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What was expected and what was found.
        reason: String,
    },
    /// The file says nothing.
    #[error("{path}: holds no {what}", path = path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// `queries` or `judgements`.
        what: &'static str,
    },
}

/// Reads judgements in one of three forms, recognised by the first line:
/// BEIR (`query-id⇥corpus-id⇥score`, with or without that header), TREC (`qid 0 docid grade`, also with another second
/// column) and `qid⇥docid`, where every document named is relevant. Negative grades count as 0.
pub fn read_qrels(path: &Path) -> Result<Qrels, JudgementError> {
    let text = read(path)?;
    let mut qrels = Qrels::new();
    let mut columns = None;
    for (number, line) in lines(&text) {
        let wrong = |reason: String| JudgementError::Line { path: path.to_owned(), line: number, reason };
        let mut fields: Vec<&str> = line.split('\t').map(str::trim).collect();
        if fields.len() == 1 {
            fields = line.split_whitespace().collect();
        }
        if columns.is_none() && fields.first().is_some_and(|field| *field == "query-id") {
            continue;
        }
        let expected = *columns.get_or_insert(fields.len());
        if fields.len() != expected {
            return Err(wrong(format!("expected {expected} columns as before, found {}", fields.len())));
        }
        let (query, document, grade) = match fields.as_slice() {
            [query, document] => (query, document, "1"),
            [query, document, grade] | [query, _, document, grade] => (query, document, *grade),
            _ => return Err(wrong(format!("expected 2, 3 or 4 columns, found {}", fields.len()))),
        };
        let grade: i64 =
            grade.parse().map_err(|_| wrong(format!("expected a whole number as grade, found {grade:?}")))?;
        let grade =
            u32::try_from(grade.max(0)).map_err(|_| wrong(format!("the grade {grade} is too large")))?;
        let judged = qrels.entry((*query).to_owned()).or_default();
        if judged.insert((*document).to_owned(), grade).is_some_and(|before| before != grade) {
            return Err(wrong(format!("{document:?} was judged differently for {query:?} before")));
        }
    }
    if qrels.is_empty() {
        return Err(JudgementError::Empty { path: path.to_owned(), what: "judgements" });
    }
    Ok(qrels)
}

/// Reads queries as JSONL (`_id` or `id`, `text` or `query` or `question`) or as `qid⇥text`, recognised by the first
/// character of each line.
pub fn read_queries(path: &Path) -> Result<Vec<Query>, JudgementError> {
    let text = read(path)?;
    let mut queries = Vec::new();
    let mut seen = HashSet::new();
    for (number, line) in lines(&text) {
        let wrong = |reason: &str| JudgementError::Line {
            path: path.to_owned(),
            line: number,
            reason: reason.to_owned(),
        };
        let query = if line.starts_with('{') {
            let value: Value = serde_json::from_str(line).map_err(|error| wrong(&json_fault(&error)))?;
            let id = match ["_id", "id", "qid"].iter().find_map(|name| value.get(name)) {
                Some(Value::String(id)) => id.clone(),
                Some(Value::Number(id)) => id.to_string(),
                _ => return Err(wrong("expected `_id`, `id` or `qid`, a string or a number")),
            };
            let text = ["text", "query", "question"].iter().find_map(|name| value.get(name)?.as_str());
            Query {
                id,
                text: text.ok_or_else(|| wrong("expected `text`, `query` or `question`"))?.to_owned(),
            }
        } else {
            let (id, text) =
                line.split_once('\t').ok_or_else(|| wrong("expected `qid⇥text` or a JSON object"))?;
            Query { id: id.trim().to_owned(), text: text.to_owned() }
        };
        if query.id.is_empty() || query.text.trim().is_empty() {
            return Err(wrong("the query has no identifier or no text"));
        }
        if !seen.insert(query.id.clone()) {
            return Err(wrong(&format!("the query {:?} occurs twice", query.id)));
        }
        queries.push(query);
    }
    if queries.is_empty() {
        return Err(JudgementError::Empty { path: path.to_owned(), what: "queries" });
    }
    Ok(queries)
}

fn read(path: &Path) -> Result<String, JudgementError> {
    std::fs::read_to_string(path).map_err(|source| JudgementError::Read { path: path.to_owned(), source })
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let text = text.trim_start_matches('\u{feff}');
    text.lines().enumerate().map(|(i, line)| (i + 1, line)).filter(|(_, line)| !line.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn the_three_forms_of_judgements_say_the_same() {
        let forms = [
            "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t1\nq2\td 3\t1\n",
            "q1\t0\td1\t1\nq1\t0\td2\t1\nq2\t0\td 3\t1\n",
            "q1\td1\r\nq1\td2\r\n\r\nq2\td 3\r\n",
        ];
        for form in forms {
            let qrels = read_qrels(file(form).path()).unwrap();
            assert_eq!(qrels["q1"], BTreeMap::from([("d1".to_owned(), 1), ("d2".to_owned(), 1)]));
            assert_eq!(qrels["q2"]["d 3"], 1);
        }
        assert_eq!(read_qrels(file("q 0 d -1\nq 0 e 2").path()).unwrap()["q"]["d"], 0);
    }

    #[test]
    fn faults_name_their_line() {
        for (content, expected) in [
            ("q\td\t1\nq\te\n", "line 2: expected 3 columns"),
            ("q\td\tx\n", "line 1: expected a whole number"),
            ("q\td\t1\nq\td\t0\n", "line 2: \"d\" was judged differently"),
            ("", "holds no judgements"),
        ] {
            let error = read_qrels(file(content).path()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        for (content, expected) in [
            ("{\"_id\": \"1\"}", "line 1: expected `text`"),
            ("1\ta\n1\tb", "line 2: the query \"1\" occurs twice"),
            ("1 a", "line 1: expected `qid⇥text`"),
        ] {
            let error = read_queries(file(content).path()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn queries_come_as_json_or_as_columns() {
        let expected = [Query { id: "7".to_owned(), text: "a b".to_owned() }];
        assert_eq!(read_queries(file("{\"_id\": \"7\", \"text\": \"a b\"}").path()).unwrap(), expected);
        assert_eq!(read_queries(file("7\ta b\n").path()).unwrap(), expected);
    }
}

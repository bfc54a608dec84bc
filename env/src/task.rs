//! A question for the agent, with everything needed to judge and to explain it.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use drgym_search::lines;
use serde::{Deserialize, Serialize};

/// One question, one line of a tasks file (JSONL).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Unique within a file.
    pub id: String,
    /// The question as the agent reads it.
    pub question: String,
    /// Accepted answers, the preferred one first, aliases after it. Never empty.
    pub answers: Vec<String>,
    /// Identifiers of the documents that hold the answer, in the order in which they are needed.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// What sort of question this is, for tables: `one_hop`, `two_hop`, …
    #[serde(default)]
    pub kind: String,
    /// The group of phrasings that the wording comes from, so that unseen wordings can be reported apart.
    #[serde(default)]
    pub phrasing: String,
    /// Every entity that the question or its answer path touches; splits are disjoint by these.
    #[serde(default)]
    pub entities: Vec<String>,
    /// How an expert finds the answer; empty where nobody knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expert: Vec<ExpertStep>,
    /// Who made the task, and of what.
    #[serde(default)]
    pub provenance: TaskProvenance,
    /// Fields of other formats, kept.
    #[serde(default, flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// One search of the expert: what to ask, and what must be seen before going on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpertStep {
    /// The query to send.
    pub query: String,
    /// Text that the observation must contain, as [`is_shown_in`](Self::is_shown_in) says, for the expert to go on;
    /// without it the expert gives up.
    pub finding: String,
}

impl ExpertStep {
    /// Whether a text shows the finding: letter by letter, white space folded on both sides, as whole words and whole
    /// numbers (`6` stands neither in `2016` nor in `6,500` or `0.6`). An empty finding is never shown.
    pub fn is_shown_in(&self, text: &str) -> bool {
        let (text, finding) = (fold_whitespace(text), fold_whitespace(&self.finding));
        if finding.is_empty() {
            return false;
        }
        // Overlapping places count too, so that a place that is cut from a word does not hide a whole one behind it.
        let places = text.char_indices().filter(|(at, _)| text[*at..].starts_with(&finding));
        places.map(|(at, _)| at).any(|at| {
            let end = at + finding.len();
            !goes_on(text[..at].chars().rev(), finding.chars())
                && !goes_on(text[end..].chars(), finding.chars().rev())
        })
    }
}

/// Whether the word or number at the edge of a text goes on outside it; both run away from the edge.
fn goes_on(mut outside: impl Iterator<Item = char>, mut inside: impl Iterator<Item = char>) -> bool {
    let (Some(edge), Some(next)) = (inside.next(), outside.next()) else { return false };
    match next {
        '.' | ',' if edge.is_ascii_digit() => outside.next().is_some_and(|beyond| beyond.is_ascii_digit()),
        _ => edge.is_alphanumeric() && next.is_alphanumeric(),
    }
}

/// Every run of white space as one space, since observations keep line breaks that a finding does not know.
fn fold_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Who made a task, and of what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskProvenance {
    /// Name and version of the generator, for instance `factbook-rules/2`.
    #[serde(default)]
    pub generator: String,
    /// Hash of the corpus or index that the evidence refers to.
    #[serde(default)]
    pub corpus: String,
    /// Seed of the generator.
    #[serde(default)]
    pub seed: u64,
}

/// Why a tasks file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TaskFileError {
    /// The file cannot be opened or read.
    #[error("cannot read the tasks file {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is not a task.
    #[error("{path}:{line}: not a task: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line number from 1.
        line: usize,
        /// What was expected and found.
        reason: String,
    },
    /// The file holds no task.
    #[error("the tasks file {path} holds no task")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a tasks file: JSONL, one [`Task`] a line, blank lines skipped; ids must be unique, answers present.
pub fn read_tasks(path: &Path) -> Result<Vec<Task>, TaskFileError> {
    let io = |source| TaskFileError::Io { path: path.to_owned(), source };
    let reader = std::io::BufReader::new(std::fs::File::open(path).map_err(io)?);
    let mut tasks: Vec<Task> = Vec::new();
    let mut seen = std::collections::HashMap::new();
    for (index, line) in reader.split(b'\n').enumerate() {
        let line = line.map_err(io)?;
        let malformed = |reason| TaskFileError::Malformed { path: path.to_owned(), line: index + 1, reason };
        let line = lines::text(index + 1, &line).map_err(malformed)?;
        if line.trim().is_empty() {
            continue;
        }
        let task: Task = serde_json::from_str(line).map_err(|error| malformed(lines::json_fault(&error)))?;
        if task.id.trim().is_empty() {
            return Err(malformed("the id is empty".into()));
        }
        if task.question.trim().is_empty() {
            return Err(malformed("the question is empty".into()));
        }
        if task.answers.iter().all(|answer| answer.trim().is_empty()) {
            return Err(malformed("there is no answer".into()));
        }
        if let Some(first) = seen.insert(task.id.clone(), index + 1) {
            return Err(malformed(format!("the id {:?} stands in line {first} already", task.id)));
        }
        tasks.push(task);
    }
    if tasks.is_empty() {
        return Err(TaskFileError::Empty { path: path.to_owned() });
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_passed_over_and_faults_name_line_and_column() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.jsonl");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read_tasks(&path).map_err(|error| error.to_string())
        };
        let task = br#"{"id":"1","question":"q?","answers":["a"]}"#;
        assert_eq!(read(&[b"\xef\xbb\xbf", &task[..], b"\r\n\n"].concat()).unwrap().len(), 1);
        for (second, said) in [
            (&b"{\"id\":\"\xff\"}"[..], ":2: not a task: not UTF-8: byte 7 of the line does not decode"),
            (br#"{"id":"2","question":"q?","answers":[}"#, ":2: not a task: expected value at column 38"),
            (br#"{"id":" ","question":"q?","answers":["a"]}"#, ":2: not a task: the id is empty"),
        ] {
            let error = read(&[&task[..], b"\n", second].concat()).unwrap_err();
            assert!(error.ends_with(said), "{error}");
        }
    }

    #[test]
    fn findings_are_shown_as_whole_words_and_numbers() {
        let shown = |finding: &str, text: &str| {
            ExpertStep { query: "q".into(), finding: finding.into() }.is_shown_in(text)
        };
        for (finding, text) in [
            ("6", "total: 6 (2016)"),
            ("6", "2016: 6."),
            ("6", "6, of which 2"),
            ("5,199 m", "Mount Kenya 5,199\nm"),
            ("Kenyan", "noun: Kenyan(s)"),
            ("85.5%", "85.5% (2023 est.)"),
            (".ke", "code: .ke"),
            ("Guinea", "Equatorial Guinea"),
            ("aba", "xababa aba"),
            ("Côte", "la Côte d'Ivoire"),
        ] {
            assert!(shown(finding, text), "{finding} in {text}");
        }
        for (finding, text) in [
            ("6", "in 2016"),
            ("6", "6,500"),
            ("6", "1.6"),
            ("5%", "85%"),
            ("199 m", "5,199 m"),
            ("Niger", "Nigeria"),
            ("Oman", "Romania, the woman"),
            ("nairobi", "Nairobi"),
            ("Côt", "Côte"),
            ("", "x"),
        ] {
            assert!(!shown(finding, text), "{finding} in {text}");
        }
    }
}

//! Benchmarks: question sets in their own file formats, read into tasks.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use drgym_env::Task;
use drgym_env::task::{TaskFileError, read_tasks};
use drgym_search::lines;
use serde_json::{Map, Value};

/// A set of questions with a name, a file format and terms of use.
pub trait Benchmark: Send + Sync {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// What it measures, in a sentence.
    fn description(&self) -> &'static str;

    /// Licence, and where to get it.
    fn licence(&self) -> &'static str;

    /// Reads the set's own file.
    fn load(&self, path: &Path) -> Result<Vec<Task>, BenchmarkError>;
}

/// Why a benchmark could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BenchmarkError {
    /// No benchmark has this name.
    #[error("there is no benchmark {name:?}; known are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// The tasks file is not usable.
    #[error(transparent)]
    Tasks(#[from] TaskFileError),
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A record does not have the form of this benchmark.
    #[error("{path}:{line}: not a record of the benchmark {benchmark}: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line number from 1.
        line: usize,
        /// Name of the benchmark.
        benchmark: &'static str,
        /// What was expected and found.
        reason: String,
    },
    /// The file holds no record.
    #[error("{path} holds no question")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// All benchmarks.
pub fn all() -> Vec<Box<dyn Benchmark>> {
    vec![Box::new(Tasks), Box::new(PlainQa)]
}

/// The benchmark of a name.
pub fn by_name(name: &str) -> Result<Box<dyn Benchmark>, BenchmarkError> {
    let known: Vec<&str> = all().iter().map(|benchmark| benchmark.name()).collect();
    all()
        .into_iter()
        .find(|benchmark| benchmark.name() == name)
        .ok_or_else(|| BenchmarkError::Unknown { name: name.to_owned(), known: known.join(", ") })
}

/// Tasks as `drgym synth` writes them.
struct Tasks;

impl Benchmark for Tasks {
    fn name(&self) -> &'static str {
        "tasks"
    }

    fn description(&self) -> &'static str {
        "tasks made by drgym synth, reported by kind and by group of phrasings"
    }

    fn licence(&self) -> &'static str {
        "that of the corpus the tasks were made from"
    }

    fn load(&self, path: &Path) -> Result<Vec<Task>, BenchmarkError> {
        Ok(read_tasks(path)?)
    }
}

/// JSONL with `id`, `question` and `answers` (a list) or `answer` (a string or a list); other fields are kept.
struct PlainQa;

impl Benchmark for PlainQa {
    fn name(&self) -> &'static str {
        "qa"
    }

    fn description(&self) -> &'static str {
        "questions with reference answers in JSONL: id, question, answers"
    }

    fn licence(&self) -> &'static str {
        "that of the file"
    }

    fn load(&self, path: &Path) -> Result<Vec<Task>, BenchmarkError> {
        let io = |source| BenchmarkError::Io { path: path.to_owned(), source };
        let reader = std::io::BufReader::new(std::fs::File::open(path).map_err(io)?);
        let mut tasks = Vec::new();
        let mut seen: HashMap<String, usize> = HashMap::new();
        for (index, line) in reader.split(b'\n').enumerate() {
            let line = line.map_err(io)?;
            let malformed = |reason: String| BenchmarkError::Malformed {
                path: path.to_owned(),
                line: index + 1,
                benchmark: self.name(),
                reason,
            };
            let line = lines::text(index + 1, &line).map_err(malformed)?;
            if line.trim().is_empty() {
                continue;
            }
            let record: Map<String, Value> =
                serde_json::from_str(line).map_err(|error| malformed(lines::json_fault(&error)))?;
            let task = plain_task(record).map_err(malformed)?;
            if let Some(first) = seen.insert(task.id.clone(), index + 1) {
                return Err(malformed(format!("the id {:?} stands in line {first} already", task.id)));
            }
            tasks.push(task);
        }
        if tasks.is_empty() {
            return Err(BenchmarkError::Empty { path: path.to_owned() });
        }
        Ok(tasks)
    }
}

fn plain_task(mut record: Map<String, Value>) -> Result<Task, String> {
    let id = match record.remove("id").or_else(|| record.remove("_id")) {
        Some(Value::String(id)) if !id.is_empty() => id,
        Some(Value::Number(id)) => id.to_string(),
        Some(other) => return Err(format!("id is {other}, expected a string or a number")),
        None => return Err(missing("id", &record)),
    };
    let question = match record.remove("question") {
        Some(Value::String(question)) if !question.trim().is_empty() => question,
        Some(other) => return Err(format!("question is {other}, expected a text")),
        None => return Err(missing("question", &record)),
    };
    let answers = match record.remove("answers").or_else(|| record.remove("answer")) {
        Some(Value::Array(answers)) => answers.iter().map(answer_text).collect::<Result<Vec<_>, _>>()?,
        Some(single) => vec![answer_text(&single)?],
        None => return Err(missing("answers", &record)),
    };
    if answers.iter().all(|answer| answer.trim().is_empty()) {
        return Err("answers is empty".into());
    }
    let text = |record: &mut Map<String, Value>, key: &str| match record.remove(key) {
        Some(Value::String(text)) => text,
        Some(other) => {
            record.insert(key.to_owned(), other);
            String::new()
        }
        None => String::new(),
    };
    let kind = text(&mut record, "type");
    let evidence = match record.remove("gold") {
        Some(Value::Array(gold)) => gold.iter().filter_map(|id| id.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    };
    Ok(Task {
        id,
        question,
        answers,
        evidence,
        kind,
        phrasing: String::new(),
        entities: Vec::new(),
        expert: Vec::new(),
        provenance: drgym_env::TaskProvenance::default(),
        extra: record,
    })
}

/// An answer may be written as a number or a truth value.
fn answer_text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(true) => Ok("yes".into()),
        Value::Bool(false) => Ok("no".into()),
        other => Err(format!("an answer is {other}, expected a text or a number")),
    }
}

fn missing(field: &str, record: &Map<String, Value>) -> String {
    let fields: Vec<&str> = record.keys().map(String::as_str).collect();
    format!("the field {field:?} is missing; found are {}", fields.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(name: &str, content: &str) -> Result<Vec<Task>, BenchmarkError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.jsonl");
        std::fs::write(&path, content).unwrap();
        by_name(name).unwrap().load(&path)
    }

    #[test]
    fn plain_questions_accept_the_usual_spellings() {
        let tasks = load(
            "qa",
            "{\"id\":\"a\",\"question\":\"q?\",\"answers\":[\"x\",5],\"type\":\"bridge\",\"gold\":[\"d1\"],\"hops\":2}\n\n\
             {\"_id\":7,\"question\":\"r?\",\"answer\":true}\n",
        )
        .unwrap();
        assert_eq!(tasks[0].answers, ["x", "5"]);
        assert_eq!(
            (tasks[0].kind.as_str(), tasks[0].evidence.as_slice()),
            ("bridge", ["d1".to_owned()].as_slice())
        );
        assert_eq!(tasks[0].extra["hops"], 2);
        assert_eq!((tasks[1].id.as_str(), tasks[1].answers[0].as_str()), ("7", "yes"));
    }

    #[test]
    fn malformed_records_name_file_line_and_field() {
        for (content, expected) in [
            ("{\"id\":\"a\",\"answers\":[\"x\"]}", "\"question\" is missing; found are answers"),
            ("{\"id\":\"a\",\"question\":\"q\"}", "\"answers\" is missing"),
            ("{\"id\":\"a\",\"question\":\"q\",\"answers\":[]}", "answers is empty"),
            ("{\"id\":\"a\",\"question\":\"q\",\"answers\":[{}]}", "expected a text or a number"),
            ("{\"id\":[],\"question\":\"q\",\"answers\":[1]}", "id is []"),
            ("not json", "data.jsonl:1"),
            ("", "holds no question"),
            (
                "{\"id\":\"a\",\"question\":\"q\",\"answer\":1}\n{\"id\":\"a\",\"question\":\"q\",\"answer\":1}",
                "stands in line 1 already",
            ),
        ] {
            let error = load("qa", content).unwrap_err().to_string();
            assert!(error.contains(expected), "{content:?}: {error}");
        }
    }

    #[test]
    fn an_unknown_benchmark_names_the_known_ones() {
        let error = by_name("gaja").err().unwrap().to_string();
        assert!(error.contains("tasks, qa"), "{error}");
    }

    #[test]
    fn real_question_sets_load() {
        let root =
            std::env::var_os("DRGYM_DATA").map_or_else(|| PathBuf::from("../../shared/data"), PathBuf::from);
        if !root.is_dir() {
            println!("skipped: needs DRGYM_DATA");
            return;
        }
        for (file, count) in
            [("qa/nq_open.dev.jsonl", 3610), ("qa/bamboogle.jsonl", 125), ("wiki/questions.test.jsonl", 600)]
        {
            assert_eq!(by_name("qa").unwrap().load(&root.join(file)).unwrap().len(), count, "{file}");
        }
    }
}

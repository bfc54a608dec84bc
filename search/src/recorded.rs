//! Answers of a live engine, kept and given again.
//!
//! A recording is a JSONL file, one answered request a line, keyed by the blake3 of the request. Answers and facts
//! about requests (not found, bad request) are kept; failures of the engine are not, so they are tried again.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::backend::{Page, PageRequest, Provenance, SearchBackend, SearchError, SearchResponse};
use crate::lines::json_fault;

/// Why a recording cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be opened, read or repaired.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line other than a torn last one is not a recorded answer.
    #[error("{path}: line {line}: not a recorded answer: {reason}", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What was expected and what was found.
        reason: String,
    },
}

/// A backend that records another one, or replays a recording without it.
///
/// While recording, a request that is already in the file is answered from it: what the agent saw is what a replay
/// will show. A replay gives the same bytes every time, with the provenance [`Provenance::Recorded`].
pub struct Recorded {
    path: PathBuf,
    state: Arc<State>,
    /// The engine to ask for what is not recorded; none when replaying.
    engine: Option<Arc<dyn SearchBackend>>,
    /// blake3 of the recording, in hex, when replaying.
    hash: String,
}

struct State {
    answers: Mutex<HashMap<String, Answer>>,
    file: Option<Mutex<File>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Search { query: String, k: usize },
    Fetch(PageRequest),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Search(SearchResponse),
    Fetch(Page),
    NotFound { what: String, value: String },
    BadRequest(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    request: Request,
    answer: Answer,
}

impl Recorded {
    /// Records what `engine` answers, going on with the file if there is one. A last line that a crash tore is cut off.
    pub fn record(path: &Path, engine: Arc<dyn SearchBackend>) -> Result<Self, RecordingError> {
        let io = |source| RecordingError::Io { path: path.to_owned(), source };
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(io)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let whole = whole_lines(&bytes);
        file.set_len(whole.len() as u64).map_err(io)?;
        let answers = Mutex::new(parse(whole, path)?);
        let state = Arc::new(State { answers, file: Some(Mutex::new(file)) });
        Ok(Self { path: path.to_owned(), state, engine: Some(engine), hash: String::new() })
    }

    /// Answers from a recording only; anything else is [`SearchError::NotRecorded`]. A torn last line is ignored.
    pub fn replay(path: &Path) -> Result<Self, RecordingError> {
        let bytes =
            std::fs::read(path).map_err(|source| RecordingError::Io { path: path.to_owned(), source })?;
        let whole = whole_lines(&bytes);
        let hash = blake3::hash(whole).to_hex().to_string();
        let state = Arc::new(State { answers: Mutex::new(parse(whole, path)?), file: None });
        Ok(Self { path: path.to_owned(), state, engine: None, hash })
    }

    /// Number of requests that are recorded.
    pub fn len(&self) -> usize {
        self.state.answers.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    async fn answer(&self, request: Request) -> Result<Answer, SearchError> {
        let key = key(&request)?;
        let known = self.state.answers.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(answer) = known {
            return Ok(answer);
        }
        let Some(engine) = &self.engine else {
            let request = match request {
                Request::Search { query, k } => format!("the search for {query:?} with k = {k}"),
                Request::Fetch(PageRequest::Url(url)) => format!("the fetch of the url {url:?}"),
                Request::Fetch(PageRequest::DocId(doc_id)) => format!("the fetch of the doc_id {doc_id:?}"),
            };
            return Err(SearchError::NotRecorded { recording: self.path.display().to_string(), request });
        };
        let asked = match &request {
            Request::Search { query, k } => engine.search(query, *k).await.map(Answer::Search),
            Request::Fetch(page) => engine.fetch(page).await.map(Answer::Fetch),
        };
        let answer = match asked {
            Ok(answer) => answer,
            Err(SearchError::NotFound { what, value }) => Answer::NotFound { what: what.to_owned(), value },
            Err(SearchError::BadRequest(reason)) => Answer::BadRequest(reason),
            Err(failure) => return Err(failure),
        };
        let state = Arc::clone(&self.state);
        tokio::task::spawn_blocking(move || state.keep(key, request, answer))
            .await
            .map_err(|error| SearchError::Internal(format!("the answer was not recorded: {error}")))?
            .map_err(|error| SearchError::Internal(format!("cannot write the recording: {error}")))
    }
}

impl State {
    /// Writes an answer and remembers it; if another caller was faster, its answer stands.
    fn keep(&self, key: String, request: Request, answer: Answer) -> std::io::Result<Answer> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = answers.get(&key) {
            return Ok(first.clone());
        }
        if let Some(file) = &self.file {
            let mut line = serde_json::to_vec(&Line { key: key.clone(), request, answer: answer.clone() })?;
            line.push(b'\n');
            // One write for the whole line: a crash tears at most the last one.
            file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)?;
        }
        answers.insert(key, answer.clone());
        Ok(answer)
    }
}

#[async_trait]
impl SearchBackend for Recorded {
    async fn search(&self, query: &str, k: usize) -> Result<SearchResponse, SearchError> {
        match self.answer(Request::Search { query: query.to_owned(), k }).await? {
            Answer::Search(mut response) => {
                if let Some(provenance) = self.provenance() {
                    response.provenance = provenance;
                }
                Ok(response)
            }
            other => Err(refusal(other)),
        }
    }

    async fn fetch(&self, request: &PageRequest) -> Result<Page, SearchError> {
        match self.answer(Request::Fetch(request.clone())).await? {
            Answer::Fetch(mut page) => {
                if let Some(provenance) = self.provenance() {
                    page.provenance = provenance;
                }
                Ok(page)
            }
            other => Err(refusal(other)),
        }
    }

    fn name(&self) -> String {
        match &self.engine {
            Some(engine) => format!("record:{}", engine.name()),
            None => format!("replay:{}", self.path.display()),
        }
    }

    fn provenance(&self) -> Option<Provenance> {
        self.engine.is_none().then(|| Provenance::Recorded { hash: self.hash.clone() })
    }
}

fn refusal(answer: Answer) -> SearchError {
    match answer {
        Answer::NotFound { what, value } => {
            SearchError::NotFound { what: if what == "doc_id" { "doc_id" } else { "url" }, value }
        }
        Answer::BadRequest(reason) => SearchError::BadRequest(reason),
        Answer::Search(_) | Answer::Fetch(_) => {
            SearchError::Internal("the recording holds an answer to another kind of request".to_owned())
        }
    }
}

fn key(request: &Request) -> Result<String, SearchError> {
    let bytes = serde_json::to_vec(request).map_err(|error| SearchError::Internal(error.to_string()))?;
    Ok(blake3::hash(&bytes).to_hex().to_string())
}

fn whole_lines(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)]
}

fn parse(bytes: &[u8], path: &Path) -> Result<HashMap<String, Answer>, RecordingError> {
    let mut answers = HashMap::new();
    for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty())
    {
        let wrong = |reason: String| RecordingError::Line { path: path.to_owned(), line: number + 1, reason };
        let line: Line = serde_json::from_slice(line).map_err(|error| wrong(json_fault(&error)))?;
        let expected = key(&line.request).map_err(|error| wrong(error.to_string()))?;
        if line.key != expected {
            return Err(wrong(format!("its key is {}, its request has {expected}", line.key)));
        }
        // The first answer stands, as it did while recording.
        answers.entry(line.key).or_insert(line.answer);
    }
    Ok(answers)
}

//! Every call of a model, written down, and played back.
//!
//! ```text
//! ObservedClient ─▶ ReplyCache? ─▶ inner ChatClient ─▶ CallObserver: CallLog (JSONL), Ledger (counters), …
//! ```

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::chat::{ChatClient, ChatError, ChatReply, ChatRequest, request_hash};

/// One call, as observers see it.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// [`request_hash`] of the model and the request.
    pub hash: &'a str,
    /// The model asked.
    pub model: &'a str,
    /// What was asked.
    pub request: &'a ChatRequest,
    /// What came of it.
    pub outcome: Result<&'a ChatReply, &'a ChatError>,
    /// Whether the reply came out of a cache, at no cost.
    pub cached: bool,
}

/// Someone who must see every call. An error makes the call fail: what must be recorded is recorded.
pub trait CallObserver: Send + Sync {
    /// Takes note of one call; must not block for long.
    fn observe(&self, call: &Call<'_>) -> io::Result<()>;
}

/// Replies that need not be asked for again.
pub trait ReplyCache: Send + Sync {
    /// The reply to a request of this hash, if there is one.
    fn get(&self, hash: &str) -> Option<ChatReply>;

    /// Keeps a reply.
    fn put(&self, hash: &str, reply: &ChatReply);
}

/// A cache that lives as long as the program.
#[derive(Default)]
pub struct MemoryCache(Mutex<HashMap<String, ChatReply>>);

impl ReplyCache for MemoryCache {
    fn get(&self, hash: &str) -> Option<ChatReply> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(hash).cloned()
    }

    fn put(&self, hash: &str, reply: &ChatReply) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(hash.to_owned(), reply.clone());
    }
}

/// A client whose calls are observed, and cached where that changes nothing: at temperature 0.
pub struct ObservedClient {
    inner: Arc<dyn ChatClient>,
    cache: Option<Arc<dyn ReplyCache>>,
    observers: Vec<Arc<dyn CallObserver>>,
}

impl ObservedClient {
    /// Wraps a client, without cache or observers.
    pub fn new(inner: Arc<dyn ChatClient>) -> Self {
        Self { inner, cache: None, observers: Vec::new() }
    }

    /// Looks here before asking. Requests above temperature 0 are always asked: each is a new sample.
    #[must_use]
    pub fn with_cache(mut self, cache: Arc<dyn ReplyCache>) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Adds an observer.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn CallObserver>) -> Self {
        self.observers.push(observer);
        self
    }
}

#[async_trait]
impl ChatClient for ObservedClient {
    async fn complete(&self, request: &ChatRequest) -> Result<ChatReply, ChatError> {
        let model = self.inner.model();
        let hash = request_hash(&model, request);
        let cache = self.cache.as_ref().filter(|_| request.temperature == 0.0);
        let known = cache.and_then(|cache| cache.get(&hash));
        let cached = known.is_some();
        let outcome = match known {
            Some(reply) => Ok(reply),
            None => self.inner.complete(request).await,
        };
        let call = Call { hash: &hash, model: &model, request, outcome: outcome.as_ref(), cached };
        for observer in &self.observers {
            observer
                .observe(&call)
                .map_err(|error| ChatError::Unrecorded { model: model.clone(), reason: error.to_string() })?;
        }
        if let (Some(cache), Ok(reply), false) = (cache, &outcome, cached) {
            cache.put(&hash, reply);
        }
        outcome
    }

    fn model(&self) -> String {
        self.inner.model()
    }

    fn server(&self) -> String {
        self.inner.server()
    }

    fn offers_json_schema(&self) -> bool {
        self.inner.offers_json_schema()
    }
}

/// One line of a call log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// [`request_hash`] of the model and the request.
    pub hash: String,
    /// The model asked.
    pub model: String,
    /// What was asked.
    pub request: ChatRequest,
    /// The reply, absent where the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<ChatReply>,
    /// Why the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether the reply came out of a cache.
    #[serde(default)]
    pub cached: bool,
}

/// A JSONL file to which every call is appended, one [`CallRecord`] a line.
///
/// A line is one small write into the system's page cache, short enough to be made inside an asynchronous task.
pub struct CallLog {
    file: Mutex<File>,
}

impl CallLog {
    /// Opens a log for appending, makes it if need be. A last line that a crash cut short is removed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let whole = end_of_last_line(&mut file)?;
        file.set_len(whole)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file: Mutex::new(file) })
    }
}

impl CallObserver for CallLog {
    fn observe(&self, call: &Call<'_>) -> io::Result<()> {
        let record = CallRecord {
            hash: call.hash.to_owned(),
            model: call.model.to_owned(),
            request: call.request.clone(),
            reply: call.outcome.ok().cloned(),
            error: call.outcome.err().map(ToString::to_string),
            cached: call.cached,
        };
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    }
}

/// Offset after the last line end, found from the back; 0 in a file without one.
fn end_of_last_line(file: &mut File) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut block = [0; 4096];
    while end > 0 {
        let length = end.min(block.len() as u64);
        file.seek(SeekFrom::Start(end - length))?;
        let bytes = &mut block[..length as usize];
        file.read_exact(bytes)?;
        if let Some(position) = bytes.iter().rposition(|byte| *byte == b'\n') {
            return Ok(end - length + position as u64 + 1);
        }
        end -= length;
    }
    Ok(0)
}

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be opened or read.
    #[error("cannot read the recording {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is not a call record.
    #[error("{path}:{line}: not a recorded call: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line number from 1.
        line: usize,
        /// What was expected and found.
        reason: String,
    },
}

/// Answers from a [`CallLog`] and never asks anybody.
///
/// Several replies to one request come back in the order in which they were recorded; the last one is then repeated
/// for requests at temperature 0 and an error above it. Failed calls are not replayed.
pub struct ReplayClient {
    path: PathBuf,
    model: String,
    json_schema: bool,
    replies: Mutex<HashMap<String, VecDeque<ChatReply>>>,
}

impl ReplayClient {
    /// Reads a recording of one model. `json_schema` must be as it was when the recording was made, since it changes
    /// the requests. A last line without a line end, which a crash leaves, is ignored with a warning.
    pub fn open(path: &Path, model: &str, json_schema: bool) -> Result<Self, ReplayError> {
        let io = |source| ReplayError::Io { path: path.to_owned(), source };
        let mut reader = BufReader::new(File::open(path).map_err(io)?);
        let mut replies: HashMap<String, VecDeque<ChatReply>> = HashMap::new();
        let mut text = String::new();
        let mut line = 0;
        loop {
            text.clear();
            line += 1;
            if reader.read_line(&mut text).map_err(io)? == 0 {
                break;
            }
            if !text.ends_with('\n') {
                tracing::warn!(path = %path.display(), line, "the last line of the recording was cut short");
                break;
            }
            let record: CallRecord = serde_json::from_str(&text).map_err(|error| ReplayError::Malformed {
                path: path.to_owned(),
                line,
                reason: error.to_string(),
            })?;
            if let Some(reply) = record.reply.filter(|_| record.model == model && !record.cached) {
                replies.entry(record.hash).or_default().push_back(reply);
            }
        }
        Ok(Self { path: path.to_owned(), model: model.to_owned(), json_schema, replies: Mutex::new(replies) })
    }
}

#[async_trait]
impl ChatClient for ReplayClient {
    async fn complete(&self, request: &ChatRequest) -> Result<ChatReply, ChatError> {
        let hash = request_hash(&self.model, request);
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = replies.get_mut(&hash).and_then(|queue| {
            if request.temperature == 0.0 && queue.len() == 1 {
                queue.front().cloned()
            } else {
                queue.pop_front()
            }
        });
        reply.ok_or_else(|| ChatError::NotRecorded {
            recording: self.path.display().to_string(),
            model: self.model.clone(),
            hash,
        })
    }

    fn model(&self) -> String {
        self.model.clone()
    }

    fn server(&self) -> String {
        format!("{} recorded in {}", self.model, self.path.display())
    }

    fn offers_json_schema(&self) -> bool {
        self.json_schema
    }
}

//! The contract between an agent and whatever search engine answers it.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Where a response came from, so that a trace can be traced back to frozen data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Provenance {
    /// A frozen index; the blake3 hash of its manifest, in hex.
    Index {
        /// Hash of the index manifest.
        hash: String,
    },
    /// A replayed recording; the blake3 hash of the recording, in hex.
    Recorded {
        /// Hash of the recording.
        hash: String,
    },
    /// A live engine, whose answers cannot be repeated.
    Live {
        /// The engine's name, for instance `serper`.
        engine: String,
        /// Seconds since the Unix epoch.
        at: u64,
    },
}

/// One document found by a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchHit {
    /// Identifier of the document in its corpus.
    pub doc_id: String,
    /// Address for [`SearchBackend::fetch`].
    pub url: String,
    /// Empty where unknown.
    pub title: String,
    /// The passage that matched: the best chunk of the document, or the engine's snippet.
    pub text: String,
    /// Similarity, higher is better; `None` where the engine does not tell.
    pub score: Option<f32>,
}

/// The answer to a search, best hit first, each document at most once.
///
/// An index orders hits by (score descending, `doc_id` ascending): the same index and query give the same bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchResponse {
    /// At most `k` hits.
    pub hits: Vec<SearchHit>,
    /// What answered.
    pub provenance: Provenance,
}

/// What to fetch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageRequest {
    /// By address, compared exactly after trailing newlines are removed.
    Url(String),
    /// By identifier.
    DocId(String),
}

/// The full text of one document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// Identifier of the document in its corpus.
    pub doc_id: String,
    /// Address of the document.
    pub url: String,
    /// Empty where unknown.
    pub title: String,
    /// Full plain text.
    pub text: String,
    /// What answered.
    pub provenance: Provenance,
}

/// Why a search or fetch gave no answer.
///
/// Only [`NotFound`](Self::NotFound) and [`BadRequest`](Self::BadRequest) are facts about the request that an
/// agent may be told; the others are failures of the infrastructure and are never shown to a policy.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The corpus has no such document.
    #[error("no document has the {what} {value:?}")]
    NotFound {
        /// `url` or `doc_id`.
        what: &'static str,
        /// What was asked for.
        value: String,
    },
    /// The request itself is impossible, as is seen before it is sent anywhere: an empty query, or no documents asked for.
    #[error("bad search request: {0}")]
    BadRequest(String),
    /// The engine refused the credentials.
    #[error("{engine} refused the request ({status}); is {variable} set to a valid key?")]
    Unauthorized {
        /// The engine's name.
        engine: String,
        /// HTTP status.
        status: u16,
        /// Environment variable that holds the key.
        variable: String,
    },
    /// The engine refused a request in which nothing is wrong as far as can be told here, for instance one above a limit
    /// of the server. No fact about the request: an engine that refuses every one would count as the agent's fault.
    #[error("{engine} refused the request ({status}): {reason}")]
    Refused {
        /// The engine's name or address.
        engine: String,
        /// HTTP status.
        status: u16,
        /// The engine's own words, without the key.
        reason: String,
    },
    /// The engine answered that it is overloaded, timed out, or could not be reached.
    #[error("{engine} is unavailable: {reason}")]
    Unavailable {
        /// The engine's name or address.
        engine: String,
        /// What was seen.
        reason: String,
    },
    /// The engine answered something that does not follow its protocol.
    #[error("{engine} sent a malformed answer: {reason}")]
    Protocol {
        /// The engine's name or address.
        engine: String,
        /// What was expected and what was found.
        reason: String,
    },
    /// Replay was asked for something that was never recorded.
    #[error("the recording {recording} holds no answer to {request}")]
    NotRecorded {
        /// Path of the recording.
        recording: String,
        /// The request in words.
        request: String,
    },
    /// The index is not as it was written.
    #[error("{0}")]
    Damaged(String),
    /// A fault inside our own engine.
    #[error("search engine fault: {0}")]
    Internal(String),
}

impl SearchError {
    /// Whether this is a fact about the request that the agent may be told, and not a failure of the engine.
    pub fn is_about_request(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::BadRequest(_))
    }
}

/// A search engine as an agent sees it.
#[async_trait]
pub trait SearchBackend: Send + Sync {
    /// The `k` best documents for `query`, best first. Fewer when the corpus is smaller.
    async fn search(&self, query: &str, k: usize) -> Result<SearchResponse, SearchError>;

    /// The full text of one document.
    async fn fetch(&self, request: &PageRequest) -> Result<Page, SearchError>;

    /// A short name for logs and results, for instance `local:runs/factbook`.
    fn name(&self) -> String;

    /// What a response of this backend would carry, if that is known beforehand (a frozen index or a recording).
    fn provenance(&self) -> Option<Provenance> {
        None
    }
}

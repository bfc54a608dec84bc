//! What is searched: documents, and the chunks they are cut into for encoding.

use serde::{Deserialize, Serialize};

/// One document of a corpus, the unit that search ranks, fetch returns and metrics count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Unique within a corpus, never empty.
    pub doc_id: String,
    /// Address by which `fetch` finds the document; unique within a corpus, never empty.
    pub url: String,
    /// Empty where the corpus has no titles.
    #[serde(default)]
    pub title: String,
    /// Plain text without markup.
    pub text: String,
    /// Fields of the source that have no place above, kept as they were read (language, date, dump, …).
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// A piece of a document short enough for the encoder.
///
/// A search ranks chunks and collapses them to documents by their best chunk before `k` is applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// The document this is a piece of.
    pub doc_id: String,
    /// Position within the document, from 0.
    pub chunk_id: u32,
    /// The words of the piece, without the title.
    pub text: String,
}

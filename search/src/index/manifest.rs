use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::chunk::Chunking;
use crate::corpus::CorpusFormat;
use crate::encoder::EncoderIdentity;

/// The newest format that this program reads, and the one that it writes.
pub const FORMAT_VERSION: u32 = 1;

/// What `manifest.json` calls itself.
pub(super) const FORMAT_NAME: &str = "drgym-index";

/// How the vectors are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IndexKind {
    /// Exactly, by comparing with every vector.
    Flat,
}

/// What an index was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusInfo {
    /// How the corpus was read.
    pub format: CorpusFormat,
    /// Only so many documents were taken.
    pub limit: Option<usize>,
    /// blake3, in hex, of all documents as they were read: two corpora with the same hash hold the same documents.
    pub content: String,
}

/// A file of the folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileInfo {
    /// Name within the folder.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// blake3 of the content, in hex.
    pub blake3: String,
}

/// `manifest.json`. Holds nothing that depends on the time or the machine: the same corpus, encoder and settings
/// give the same manifest, and so the same index hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Always `drgym-index`.
    pub format: String,
    /// See [`FORMAT_VERSION`].
    pub version: u32,
    /// How the vectors are searched, by inner product.
    pub kind: IndexKind,
    /// Documents in the index.
    pub documents: u64,
    /// Vectors in the index.
    pub chunks: u64,
    /// How documents were cut.
    pub chunking: Chunking,
    /// The encoder that made the vectors and must encode the queries.
    pub encoder: EncoderIdentity,
    /// What the index was made from.
    pub corpus: CorpusInfo,
    /// Every other file but the hint on where the encoder lies.
    pub files: Vec<FileInfo>,
}

/// What can be told about an index without opening its vectors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IndexInfo {
    /// The folder.
    pub path: PathBuf,
    /// blake3 of the manifest, in hex: the name of this index in traces and responses.
    pub hash: String,
    /// Bytes of all files.
    pub bytes: u64,
    /// The manifest.
    pub manifest: Manifest,
}

//! Index folders: a frozen corpus with the vectors to search it by.
//!
//! | file | content |
//! |---|---|
//! | `manifest.json` | what the index is, and size and blake3 of every file below; its own blake3 is the index's hash |
//! | `manifest.blake3` | that hash, in hex |
//! | `encoder.json` | where the encoder lay on the machine that built the index; a hint, not part of the hash |
//! | `documents.jsonl` | the documents, one JSON object a line, in the order of the corpus |
//! | `documents.offsets` | where each line starts, and the end: `u64` × (documents + 1) |
//! | `documents.ids`, `documents.urls` | (`u64` start of blake3 of the key, `u32` document), sorted: hash tables |
//! | `documents.rank` | each document's place when sorted by `doc_id`: `u32` × documents |
//! | `chunks.table` | (`u32` document, `u32` first byte, `u32` end byte in its text) × chunks, in order |
//! | `vectors.f32` | `f32` × dimension × chunks |
//!
//! All numbers are little-endian. A folder is written under another name beside its place and renamed when it is
//! whole, so a reader never sees half an index; it is never changed afterwards.

mod build;
mod documents;
mod error;
mod flat;
mod folder;
mod manifest;

pub use build::{BuildRequest, BuildSummary, Progress, build, build_with_encoder};
pub use documents::DocumentStore;
pub use error::IndexError;
pub use flat::{FlatIndex, RankedChunk};
pub use folder::{Corruption, encoder_hint, info, verify};
pub use manifest::{CorpusInfo, FORMAT_VERSION, FileInfo, IndexInfo, IndexKind, Manifest};

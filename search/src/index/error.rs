use std::path::PathBuf;

use crate::artefact::ArtefactError;
use crate::corpus::CorpusError;
use crate::encoder::{EncoderError, EncoderIdentity};

/// Why an index cannot be built or opened.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The folder has no manifest.
    #[error("{path}: not an index: it has no manifest.json", path = path.display())]
    NotAnIndex {
        /// The folder.
        path: PathBuf,
    },
    /// The manifest cannot be understood.
    #[error("{path}: not an index manifest of drgym: {reason}", path = path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },
    /// The index was written by a newer program.
    #[error("{path}: index format {found}, this program knows formats up to {known}; use a newer drgym", path = path.display())]
    NewerVersion {
        /// The folder.
        path: PathBuf,
        /// The version in the manifest.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// A file is shorter or longer than the manifest says, or missing.
    #[error("{path}: expected {expected} bytes, found {found}; the index is damaged, build it anew", path = path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Bytes according to the manifest.
        expected: u64,
        /// Bytes on disk, or `no file`.
        found: String,
    },
    /// A file contradicts itself or another file.
    #[error("{path}: {reason}; the index is damaged, `drgym index verify` tells more", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },
    /// The folder cannot be written or brought to its place.
    #[error(transparent)]
    Artefact(#[from] ArtefactError),
    /// The encoder is not the one that the index was built with.
    #[error(
        "the index {path} was built with the encoder {} (fingerprint {}), not with {} (fingerprint {})",
        expected.name, expected.fingerprint, found.name, found.fingerprint, path = path.display()
    )]
    WrongEncoder {
        /// The index.
        path: PathBuf,
        /// The encoder in the manifest.
        expected: Box<EncoderIdentity>,
        /// The encoder at hand.
        found: Box<EncoderIdentity>,
    },
    /// The encoder of an index is not where it is looked for.
    #[error("the index {path} needs the encoder {encoder}, which is not in {}; name its folder", tried.join(", "), path = path.display())]
    EncoderNotFound {
        /// The index.
        path: PathBuf,
        /// Name of the encoder in the manifest.
        encoder: String,
        /// Where it was looked for.
        tried: Vec<String>,
    },
    /// There is something at the place where the index should go.
    #[error("{path} exists already; choose another place, or replace an index with --overwrite", path = path.display())]
    Exists {
        /// The place.
        path: PathBuf,
    },
    /// Overwriting was allowed, but what is there is no index, or holds files besides.
    #[error(
        "{path} exists and is not an index, or holds other files besides, so it is not overwritten",
        path = path.display()
    )]
    NotOverwritten {
        /// The place.
        path: PathBuf,
    },
    /// The corpus holds no document.
    #[error("the corpus holds no document, so there is nothing to index")]
    EmptyCorpus,
    /// The corpus is larger than the format can hold.
    #[error("{what} does not fit the index format, which allows {limit}")]
    TooLarge {
        /// What is too large.
        what: String,
        /// What the format allows.
        limit: u64,
    },
    /// Reading or writing failed.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The corpus is faulty.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// The encoder failed.
    #[error(transparent)]
    Encoder(#[from] EncoderError),
}

//! Why a model could not be imported.

use std::path::PathBuf;

use crate::model::ModelError;

/// Why a model could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file is no whole GGUF file.
    #[error("{path}, byte {offset}: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: usize,
        /// What was expected and found.
        reason: String,
    },
    /// A metadata key is missing or of another type.
    #[error("{path}: metadata key {key}: {reason}")]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What was expected and found.
        reason: String,
    },
    /// The model asks for something that cannot be imported.
    #[error("{path}: {what} {found:?} cannot be imported; supported: {supported}")]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What is not supported.
        what: String,
        /// What it is here.
        found: String,
        /// What would be supported.
        supported: String,
    },
    /// Something lies in the place already.
    #[error(
        "{path} exists already{}", if *.asked {
            " and holds something else than (or besides) an imported model, so it is not replaced"
        } else {
            ""
        }
    )]
    NotOverwritten {
        /// The place.
        path: PathBuf,
        /// Whether replacing an earlier import was asked for.
        asked: bool,
    },
    /// The tensors do not make up the model, or the folder cannot be written.
    #[error(transparent)]
    Model(#[from] ModelError),
}

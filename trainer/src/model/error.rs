//! Why a model could not be read, written or run.

use std::path::{Path, PathBuf};

/// Why a model could not be read, written or run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried: `read`, `write`, `rename`, …
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder cannot be made or brought to its place.
    #[error(transparent)]
    Artefact(#[from] drgym_search::artefact::ArtefactError),
    /// A field of config.json is missing or of the wrong type, or the file is no JSON object.
    #[error("{path}: {field}: {reason}")]
    Config {
        /// The file.
        path: PathBuf,
        /// The field, `.` for the whole file.
        field: String,
        /// What was expected and found.
        reason: String,
    },
    /// The model asks for something that this program does not compute.
    #[error("{path}: {field} = {found} is not supported; supported: {supported}")]
    Unsupported {
        /// The file that asks for it.
        path: PathBuf,
        /// The field.
        field: String,
        /// Its value.
        found: String,
        /// What would be supported.
        supported: String,
    },
    /// A file of weights is broken.
    #[error("{path} is not a whole safetensors file: {reason}")]
    BrokenWeights {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The folder holds no weights.
    #[error("{path} holds neither model.safetensors nor model.safetensors.index.json")]
    NoWeights {
        /// The folder.
        path: PathBuf,
    },
    /// The tensors found are not those that the configuration asks for.
    #[error("{path}: the weights do not fit config.json: {}", .mismatch.describe())]
    TensorMismatch {
        /// The folder or file.
        path: PathBuf,
        /// Every difference.
        mismatch: Box<TensorMismatch>,
    },
    /// An adapter does not fit the model.
    #[error("the adapter does not fit the model: {reason}")]
    Adapter {
        /// What was expected and found.
        reason: String,
    },
    /// A choice of the caller cannot be carried out on this model.
    #[error("{0}")]
    Request(String),
    /// libtorch refused an operation.
    #[error("libtorch failed: {0}")]
    Torch(#[from] tch::TchError),
    /// The work on the model thread panicked; the message is libtorch's or ours.
    #[error("the model thread failed: {0}")]
    Panicked(String),
    /// The model thread has ended.
    #[error("the model thread has ended")]
    ThreadGone,
}

/// How found tensors differ from expected ones.
#[derive(Debug, Default)]
pub struct TensorMismatch {
    /// Names that are expected and absent.
    pub missing: Vec<String>,
    /// Names that are present and unknown.
    pub surplus: Vec<String>,
    /// `(name, expected shape, found shape)`.
    pub misshapen: Vec<(String, Vec<i64>, Vec<i64>)>,
    /// `(name, element type)` of types that are no floating-point numbers.
    pub mistyped: Vec<(String, String)>,
}

impl TensorMismatch {
    /// Whether there is no difference.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty()
            && self.surplus.is_empty()
            && self.misshapen.is_empty()
            && self.mistyped.is_empty()
    }

    /// One line that names at most eight tensors of a sort.
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        if !self.missing.is_empty() {
            parts.push(format!("{} missing ({})", self.missing.len(), shorten(&self.missing)));
        }
        if !self.surplus.is_empty() {
            parts.push(format!("{} surplus ({})", self.surplus.len(), shorten(&self.surplus)));
        }
        if !self.misshapen.is_empty() {
            let lines: Vec<String> = self
                .misshapen
                .iter()
                .map(|(name, expected, found)| format!("{name}: expected {expected:?}, found {found:?}"))
                .collect();
            parts.push(format!("{} of another shape ({})", lines.len(), shorten(&lines)));
        }
        if !self.mistyped.is_empty() {
            let lines: Vec<String> =
                self.mistyped.iter().map(|(name, found)| format!("{name}: found {found}")).collect();
            parts.push(format!("{} not f32, f16 or bf16 ({})", lines.len(), shorten(&lines)));
        }
        parts.join("; ")
    }
}

fn shorten(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown}, … {} more", names.len() - SHOWN) } else { shown }
}

/// Makes the closure that turns an I/O error into a [`ModelError`].
pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ModelError {
    let path = path.to_owned();
    move |source| ModelError::Io { action, path, source }
}

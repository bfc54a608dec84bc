use std::path::PathBuf;

/// Why an encoder cannot be loaded or a text cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncoderError {
    /// The folder is not there.
    #[error("no encoder at {path}: expected a folder with config.json, model.safetensors and tokenizer.json", path = path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// A file of the folder cannot be read.
    #[error("{path}: cannot read: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of the folder does not hold what it should.
    #[error("{path}: {reason}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },
    /// The model needs something that this encoder does not do.
    #[error("{path}: {what} is {found}, supported: {supported}", path = path.display())]
    Unsupported {
        /// The file that says so.
        path: PathBuf,
        /// The setting.
        what: &'static str,
        /// Its value.
        found: String,
        /// Which values would do.
        supported: &'static str,
    },
    /// A weight is missing or has another shape than the configuration says.
    #[error("{path}: weight {name}: expected shape {expected:?}, found {found}", path = path.display())]
    Weight {
        /// The weight file.
        path: PathBuf,
        /// The tensor's name.
        name: String,
        /// The shape that config.json asks for.
        expected: Vec<usize>,
        /// The shape in the file, or `none`.
        found: String,
    },
    /// The tokenizer failed on a text.
    #[error("cannot tokenize: {0}")]
    Tokenize(String),
    /// The forward pass failed.
    #[error("cannot encode: {0}")]
    Compute(#[from] candle_core::Error),
    /// The worker threads could not be started.
    #[error("cannot start encoder threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// The vector has no direction: it is zero or not finite.
    #[error("the vector of text {position} is zero or not finite")]
    Degenerate {
        /// Position of the text in the call, from 0.
        position: usize,
    },
}

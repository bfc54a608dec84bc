//! Encoders: texts to vectors whose inner product says how well they match.

mod bert;
mod error;
mod settings;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use bert::BertEncoder;
pub use error::EncoderError;
pub use settings::{EncoderOptions, Pooling, missing_prefixes};

/// What an index remembers of the encoder that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncoderIdentity {
    /// A name for people, for instance the folder's name.
    pub name: String,
    /// blake3, in hex, of everything that decides a vector: weights, tokenizer and settings.
    pub fingerprint: String,
    /// Components of a vector.
    pub dimension: usize,
    /// See [`Encoder::max_tokens`].
    pub max_tokens: usize,
    /// What overrode the encoder's folder; needed to load it so again.
    #[serde(default, skip_serializing_if = "EncoderOptions::overrides_nothing")]
    pub overrides: EncoderOptions,
}

/// Turns texts into vectors of unit length.
///
/// Both methods are pure: the same text gives the same vector, whatever else is encoded at the same time.
/// They compute and block; call them from a thread that may block.
pub trait Encoder: Send + Sync {
    /// Name, fingerprint and sizes.
    fn identity(&self) -> &EncoderIdentity;

    /// Components of a vector.
    fn dimension(&self) -> usize {
        self.identity().dimension
    }

    /// Tokens of a document's text that reach its vector; what follows them is cut off. Special tokens and the
    /// passage prefix are not counted.
    fn max_tokens(&self) -> usize {
        self.identity().max_tokens
    }

    /// The vector of one query, encoded alone.
    fn encode_query(&self, query: &str) -> Result<Vec<f32>, EncoderError>;

    /// The vectors of documents or chunks, row after row, shape `[texts.len(), dimension]`.
    fn encode_documents(&self, texts: &[&str]) -> Result<Vec<f32>, EncoderError>;

    /// The byte range of every token of a text, in order, without special tokens or truncation.
    fn token_ranges(&self, text: &str) -> Result<Vec<Range<usize>>, EncoderError>;
}

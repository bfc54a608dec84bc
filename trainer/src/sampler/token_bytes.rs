//! The bytes that each token stands for, whatever characters they cut apart.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokenizers::Tokenizer;

/// Why the bytes of tokens are not known.
#[derive(Debug, thiserror::Error)]
pub enum TokenBytesError {
    /// The tokenizer cannot be read.
    #[error("cannot read the tokenizer {path}: {reason}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The tokenizer writes bytes in a way that we do not know.
    #[error("the tokenizer {path} decodes by {found}; expected ByteLevel, or ByteFallback with Replace")]
    UnknownDecoder {
        /// The file.
        path: PathBuf,
        /// The types of its decoders.
        found: String,
    },
}

/// Bytes by token id. Ids without a token have no bytes.
#[derive(Clone, Debug)]
pub struct TokenBytes {
    bytes: Vec<Vec<u8>>,
    special: HashMap<String, u32>,
}

impl TokenBytes {
    /// Bytes by token id, without special tokens.
    pub fn new(bytes: Vec<Vec<u8>>) -> Self {
        Self { bytes, special: HashMap::new() }
    }

    /// Reads a tokenizer.json: byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM2) or SentencePiece with byte fallback
    /// (Llama 2). A special token stands for its own text.
    pub fn from_file(path: &Path) -> Result<Self, TokenBytesError> {
        let unreadable = |reason: String| TokenBytesError::Unreadable { path: path.to_owned(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        let json: Value =
            serde_json::from_str(&text).map_err(|error| unreadable(format!("not JSON: {error}")))?;
        let tokenizer: Tokenizer = text.parse().map_err(|error| unreadable(format!("{error}")))?;
        let mut decoders = Vec::new();
        decoder_types(&json["decoder"], &mut decoders);
        let has = |name: &str| decoders.iter().any(|decoder| decoder == name);
        let decode: fn(&str) -> Vec<u8> = if has("ByteLevel") {
            byte_level
        } else if has("ByteFallback") && has("Replace") {
            sentence_piece
        } else {
            return Err(TokenBytesError::UnknownDecoder {
                path: path.to_owned(),
                found: format!("{decoders:?}"),
            });
        };
        let added = tokenizer.get_added_tokens_decoder();
        let vocabulary = tokenizer.get_vocab(true);
        let size = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
        let mut bytes = vec![Vec::new(); size];
        for (token, id) in vocabulary {
            bytes[id as usize] = match added.get(&id) {
                Some(added) => added.content.clone().into_bytes(),
                None => decode(&token),
            };
        }
        let special =
            added.iter().filter(|(_, token)| token.special).map(|(&id, token)| (token.content.clone(), id));
        Ok(Self { bytes, special: special.collect() })
    }

    /// The bytes of a token; empty for an id that is no token.
    pub fn get(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// The id of a special token by its text.
    pub fn special(&self, text: &str) -> Option<u32> {
        self.special.get(text).copied()
    }
}

fn decoder_types(decoder: &Value, found: &mut Vec<String>) {
    if let Some(name) = decoder["type"].as_str() {
        found.push(name.to_owned());
    }
    for inner in decoder["decoders"].as_array().into_iter().flatten() {
        decoder_types(inner, found);
    }
}

/// GPT-2's alphabet: printable characters of Latin-1 stand for their own byte, the other bytes, in order, for the
/// characters from U+0100.
fn byte_level(token: &str) -> Vec<u8> {
    let plain = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut bytes = Vec::with_capacity(token.len());
    for character in token.chars() {
        let code = u32::from(character);
        let byte = if plain(code) {
            Some(code)
        } else {
            code.checked_sub(0x100)
                .and_then(|place| (0..=255).filter(|&byte| !plain(byte)).nth(place as usize))
        };
        match byte.and_then(|byte| u8::try_from(byte).ok()) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(character.to_string().bytes()),
        }
    }
    bytes
}

/// `▁` for a space, `<0xNN>` for a single byte.
fn sentence_piece(token: &str) -> Vec<u8> {
    let single = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    match single.filter(|digits| digits.len() == 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        Some(byte) => vec![byte],
        None => token.replace('▁', " ").into_bytes(),
    }
}

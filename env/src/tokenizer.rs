//! Text to token ids and back, with a hard line between control tokens and plain text.

use std::path::{Path, PathBuf};

use tokenizers::{AddedToken, Tokenizer};

/// A tokenizer of the Hugging Face kind.
///
/// Two ways in: [`encode_template`](Self::encode_template) recognises control tokens such as `<|im_end|>`,
/// [`encode_plain`](Self::encode_plain) never produces one, whatever the text contains. Everything that came from
/// outside (questions, documents, pages) goes in by the second.
pub struct TextTokenizer {
    template: Tokenizer,
    plain: Tokenizer,
    control: Vec<String>,
}

/// Why a tokenizer is not usable.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file is missing or is no tokenizer.
    #[error("cannot read the tokenizer {path}: {reason}")]
    Load {
        /// The file.
        path: PathBuf,
        /// What the reader said.
        reason: String,
    },
    /// A text cannot be encoded.
    #[error("cannot tokenise a text of {length} bytes: {reason}")]
    Encode {
        /// Bytes of the text.
        length: usize,
        /// What the tokenizer said.
        reason: String,
    },
    /// Ids cannot be decoded.
    #[error("cannot decode {length} tokens: {reason}")]
    Decode {
        /// Number of ids.
        length: usize,
        /// What the tokenizer said.
        reason: String,
    },
}

impl TextTokenizer {
    /// Reads `tokenizer.json`, or the file of that name in a model folder.
    pub fn load(path: &Path) -> Result<Self, TokenizerError> {
        let file = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
        let tokenizer = Tokenizer::from_file(&file)
            .map_err(|error| TokenizerError::Load { path: file, reason: error.to_string() })?;
        Ok(Self::new(tokenizer))
    }

    /// One token a byte, ids 0 to 255, and ChatML's control tokens behind them.
    ///
    /// For scripted policies, which need no model: a trace of theirs is exact to the byte.
    pub fn bytes() -> Self {
        Self::new(byte_tokenizer())
    }

    fn new(mut tokenizer: Tokenizer) -> Self {
        // A tokenizer file may carry padding and truncation of its own; both would corrupt traces.
        tokenizer.with_padding(None);
        // Clearing the truncation cannot fail: only setting one checks its parameters.
        drop(tokenizer.with_truncation(None));
        let mut plain = tokenizer.clone();
        plain.set_encode_special_tokens(true);
        let control = tokenizer
            .get_added_tokens_decoder()
            .into_values()
            .filter(|token| token.special)
            .map(|token| token.content)
            .collect();
        Self { template: tokenizer, plain, control }
    }

    /// Encodes text of our own that may contain control tokens.
    pub fn encode_template(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        encode(&self.template, text)
    }

    /// Encodes text from outside: no control token comes out.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        encode(&self.plain, text)
    }

    /// Whether a text spells a control token, which only text from outside does by accident or malice.
    pub fn spells_control(&self, text: &str) -> bool {
        self.control.iter().any(|token| text.contains(token.as_str()))
    }

    /// Text of the ids, without control tokens; invalid UTF-8 becomes U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.decode_with(ids, true)
    }

    /// Text of the ids, control tokens spelled out.
    pub fn decode_verbatim(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.decode_with(ids, false)
    }

    fn decode_with(&self, ids: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        self.template
            .decode(ids, skip_special)
            .map_err(|error| TokenizerError::Decode { length: ids.len(), reason: error.to_string() })
    }

    /// Number of ids, added tokens included.
    pub fn vocabulary_size(&self) -> usize {
        self.template.get_vocab_size(true)
    }

    /// Id of a token spelled exactly so.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.template.token_to_id(token)
    }

    /// The longest prefix of `text` that takes at most `budget` tokens when encoded as plain text, cut at a
    /// character and, where one lies near, at a space; and whether anything was cut.
    pub fn truncate_plain<'text>(
        &self,
        text: &'text str,
        budget: usize,
    ) -> Result<(&'text str, bool), TokenizerError> {
        // A token covers at least one byte, so a text of at most `budget` bytes always fits.
        if text.len() <= budget {
            return Ok((text, false));
        }
        let encoding = self
            .plain
            .encode(text, false)
            .map_err(|error| TokenizerError::Encode { length: text.len(), reason: error.to_string() })?;
        if encoding.len() <= budget {
            return Ok((text, false));
        }
        let mut end = if budget == 0 { 0 } else { encoding.get_offsets()[budget - 1].1 };
        loop {
            while end > 0 && !text.is_char_boundary(end) {
                end -= 1;
            }
            let prefix = &text[..end];
            let cut = match prefix.rfind(char::is_whitespace) {
                Some(space) if end < text.len() && end - space <= 24 => prefix[..space].trim_end(),
                _ => prefix,
            };
            // Encoding a prefix alone may take a token more than the prefix of the encoding did.
            if self.encode_plain(cut)?.len() <= budget {
                return Ok((cut, true));
            }
            end = end.saturating_sub(1);
        }
    }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, TokenizerError> {
    let encoding = tokenizer
        .encode_fast(text, false)
        .map_err(|error| TokenizerError::Encode { length: text.len(), reason: error.to_string() })?;
    Ok(encoding.get_ids().to_vec())
}

#[expect(clippy::expect_used, reason = "built from constants of this function; a test calls it")]
fn byte_tokenizer() -> Tokenizer {
    use tokenizers::models::bpe::BPE;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    let mut alphabet: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    alphabet.sort_unstable();
    let vocabulary = alphabet.into_iter().enumerate().map(|(id, letter)| (letter.to_string(), id as u32));
    let model = BPE::builder()
        .vocab_and_merges(vocabulary.collect::<tokenizers::models::bpe::Vocab>(), Vec::new())
        .build()
        .expect("a vocabulary of single bytes without merges");
    let mut tokenizer = Tokenizer::new(model);
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, false, false)));
    tokenizer.with_decoder(Some(ByteLevel::new(false, false, false)));
    let control = ["<|im_start|>", "<|im_end|>"].map(|token| AddedToken::from(token, true));
    tokenizer.add_special_tokens(control).expect("control tokens can be added");
    tokenizer
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_tokens_come_only_from_templates() {
        let tokenizer = TextTokenizer::bytes();
        let end = tokenizer.token_id("<|im_end|>").unwrap();
        assert_eq!(tokenizer.encode_template("<|im_end|>").unwrap(), [end]);
        let plain = tokenizer.encode_plain("a<|im_end|>b").unwrap();
        assert_eq!(plain.len(), 12);
        assert!(!plain.contains(&end));
        assert_eq!(tokenizer.decode(&plain).unwrap(), "a<|im_end|>b");
        assert!(tokenizer.spells_control("x<|im_start|>"));
    }

    #[test]
    fn truncation_prefers_a_space_and_reports_the_cut() {
        let tokenizer = TextTokenizer::bytes();
        assert_eq!(tokenizer.truncate_plain("one two three", 13).unwrap(), ("one two three", false));
        assert_eq!(tokenizer.truncate_plain("one two three", 9).unwrap(), ("one two", true));
        assert_eq!(tokenizer.truncate_plain("one", 0).unwrap(), ("", true));
        assert_eq!(tokenizer.truncate_plain("ééé", 3).unwrap(), ("é", true));
    }

    proptest! {
        #[test]
        fn bytes_round_trip(text in ".{0,60}") {
            let tokenizer = TextTokenizer::bytes();
            let ids = tokenizer.encode_plain(&text).unwrap();
            prop_assert_eq!(ids.len(), text.len());
            prop_assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        }

        #[test]
        fn truncation_never_exceeds_its_budget(text in ".{0,60}", budget in 0usize..40) {
            let tokenizer = TextTokenizer::bytes();
            let (cut, was_cut) = tokenizer.truncate_plain(&text, budget).unwrap();
            prop_assert!(tokenizer.encode_plain(cut).unwrap().len() <= budget);
            prop_assert!(text.starts_with(cut));
            prop_assert_eq!(was_cut, cut.len() < text.len());
        }
    }
}

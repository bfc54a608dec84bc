//! Cutting documents into pieces that an encoder can read whole.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::document::Document;
use crate::encoder::{Encoder, EncoderError};

/// How a document is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chunking {
    /// One vector, from as much of the document's beginning as the encoder reads (DeepResearchGym's own way).
    None,
    /// Pieces of at most this many tokens.
    Tokens(usize),
}

impl fmt::Display for Chunking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Tokens(tokens) => write!(f, "{tokens}"),
        }
    }
}

impl FromStr for Chunking {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse::<usize>() {
            Ok(tokens) if tokens >= 8 => Ok(Self::Tokens(tokens)),
            _ if text == "none" => Ok(Self::None),
            _ => Err(format!("a chunking of {text:?}, expected `none` or a number of tokens from 8 up")),
        }
    }
}

/// The title may take at most one of this many parts of what the encoder reads.
const TITLE_SHARE: usize = 4;

/// A piece of a document, ready for the encoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Byte range of the piece in the document's text.
    pub(crate) range: Range<usize>,
    /// What is encoded: `title⏎piece`, or the piece alone where there is no title.
    pub(crate) encoded: String,
}

/// Cuts one document.
///
/// With [`Chunking::Tokens`] every character of the text but white space between pieces is in exactly one piece,
/// and every piece is read whole by the encoder: pieces are shorter than asked for where the title takes room, and a
/// title that would take more than a quarter of the encoder's tokens is itself cut.
pub(crate) fn pieces(
    document: &Document,
    chunking: Chunking,
    encoder: &dyn Encoder,
) -> Result<Vec<Piece>, EncoderError> {
    let text = &document.text;
    let title = document.title.trim();
    let tokens = match chunking {
        Chunking::None => {
            return Ok(vec![Piece { range: 0..text.len(), encoded: with_title(title, text) }]);
        }
        Chunking::Tokens(tokens) => tokens.max(1),
    };
    let title_tokens = encoder.token_ranges(title)?;
    let allowed = title_tokens.len().min(encoder.max_tokens() / TITLE_SHARE);
    let title = match title_tokens.get(..allowed).and_then(<[_]>::last) {
        Some(last) if allowed < title_tokens.len() => &title[..floor_boundary(title, last.end)],
        Some(_) => title,
        None => "",
    };
    let room = encoder.max_tokens().saturating_sub(allowed).clamp(1, tokens);
    let ranges = cut(text, &encoder.token_ranges(text)?, room);
    let piece = |range: Range<usize>| Piece { encoded: with_title(title, &text[range.clone()]), range };
    Ok(ranges.into_iter().map(piece).collect())
}

fn with_title(title: &str, text: &str) -> String {
    if title.is_empty() { text.to_owned() } else { format!("{title}\n{text}") }
}

/// Byte ranges of at most `room` tokens each. A cut falls on white space where the piece has any, else between two
/// tokens. A text without tokens is one piece.
fn cut(text: &str, tokens: &[Range<usize>], room: usize) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut first = 0;
    // Byte at which the next piece starts, before trimming.
    let mut start = 0;
    while tokens.len() - first > room {
        let boundary = |i: usize| has_space(text, tokens[i - 1].end, tokens[i].start);
        let separable = |i: usize| tokens[i].start >= tokens[i - 1].end && tokens[i].start > start;
        let end = (first + 1..=first + room)
            .rev()
            .find(|&i| boundary(i))
            // Tokens of one character, for instance the bytes of a symbol, may share its range: never cut there.
            .or_else(|| (first + 1..=first + room).rev().find(|&i| separable(i)));
        let Some(end) = end else { break };
        let byte = floor_boundary(text, tokens[end].start);
        pieces.push(trim(text, start..byte));
        (first, start) = (end, byte);
    }
    pieces.push(trim(text, start..text.len()));
    pieces
}

fn has_space(text: &str, from: usize, to: usize) -> bool {
    text.get(from..to).is_some_and(|gap| gap.contains(char::is_whitespace))
}

fn floor_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

fn trim(text: &str, range: Range<usize>) -> Range<usize> {
    let piece = &text[range.clone()];
    let start = range.start + (piece.len() - piece.trim_start().len());
    start..start + piece.trim().len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tokens as WordPiece makes them: up to three characters of a word.
    fn tokens(text: &str) -> Vec<Range<usize>> {
        let mut tokens = Vec::new();
        let mut length = 3;
        for (at, c) in text.char_indices() {
            let end = at + c.len_utf8();
            if c.is_whitespace() {
                length = 3;
            } else if length == 3 {
                tokens.push(at..end);
                length = 1;
            } else if let Some(last) = tokens.last_mut() {
                last.end = end;
                length += 1;
            }
        }
        tokens
    }

    #[test]
    fn cuts_fall_between_words() {
        let text = "aaa bbbccc ddd  eee fffggghhhiii";
        let pieces: Vec<&str> = cut(text, &tokens(text), 3).into_iter().map(|range| &text[range]).collect();
        // `fffggghhhiii` has four tokens and no white space, so it is cut inside.
        assert_eq!(pieces, ["aaa bbbccc", "ddd  eee", "fffggghhh", "iii"]);
    }

    #[test]
    fn a_short_text_or_one_without_tokens_is_one_piece() {
        assert_eq!(cut("a b", &[0..1, 2..3], 2), vec![Range { start: 0, end: 3 }]);
        assert_eq!(cut(" \u{feff} x", &[], 2), vec![Range { start: 1, end: 6 }]);
    }

    proptest! {
        #[test]
        fn pieces_hold_every_word_once_and_keep_to_the_limit(text in "[a-cé東 \n]{0,120}", room in 1usize..9) {
            let pieces = cut(&text, &tokens(&text), room);
            let joined: String = pieces.iter().map(|range| &text[range.clone()]).collect();
            let strip = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(strip(&joined), strip(&text));
            for range in pieces {
                prop_assert!(tokens(&text[range]).len() <= room);
            }
        }
    }

    #[test]
    fn chunking_parses_what_it_prints() {
        for chunking in [Chunking::None, Chunking::Tokens(128)] {
            assert_eq!(chunking.to_string().parse(), Ok(chunking));
        }
        assert!("7".parse::<Chunking>().is_err());
        assert!("some".parse::<Chunking>().is_err());
    }
}

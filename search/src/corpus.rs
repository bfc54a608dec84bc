//! Corpus readers: files in, [`Document`]s out, one at a time.
//!
//! A reader is an iterator, so a corpus never has to fit into memory; only 32 bytes a document are kept, to find
//! identifiers and addresses that occur twice. The first thing wrong with a corpus is an error that names the file
//! and the line: a corpus is a scientific artefact, and a document skipped in silence would change results.

mod error;
pub mod factbook;
pub mod jsonl;
pub mod markup;
mod unique;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use error::CorpusError;

use crate::document::Document;

/// How the files of a corpus are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CorpusFormat {
    /// One JSON object a line; see [`jsonl`].
    Jsonl,
    /// A folder of the CIA World Factbook as JSON; see [`factbook`].
    Factbook,
}

impl CorpusFormat {
    /// Every format, by the name that the command line uses.
    pub const ALL: [(&'static str, Self); 2] = [("jsonl", Self::Jsonl), ("factbook", Self::Factbook)];
}

impl fmt::Display for CorpusFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jsonl => "jsonl",
            Self::Factbook => "factbook",
        })
    }
}

impl FromStr for CorpusFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, format)| *format)
            .ok_or_else(|| format!("unknown corpus format {name:?}, expected `jsonl` or `factbook`"))
    }
}

/// A stream of documents, which ends after the first error.
pub type Documents = Box<dyn Iterator<Item = Result<Document, CorpusError>> + Send>;

/// Opens a corpus of one or more files or folders, read in the order given.
///
/// Identifiers and addresses are checked to be unique over the whole corpus.
pub fn read(format: CorpusFormat, paths: &[PathBuf]) -> Result<Documents, CorpusError> {
    if paths.is_empty() {
        return Err(CorpusError::NoPath);
    }
    match format {
        CorpusFormat::Jsonl => Ok(Box::new(jsonl::JsonlReader::open(paths)?)),
        CorpusFormat::Factbook => {
            let mut documents = Vec::new();
            let mut seen = unique::UniqueKeys::default();
            for path in paths {
                for entity in factbook::read_entities(path)? {
                    for document in entity.documents() {
                        if !seen.insert(&document.doc_id, &document.url).is_new() {
                            return Err(CorpusError::Factbook {
                                path: path.join(&entity.region).join(format!("{}.json", entity.code)),
                                at: document.doc_id,
                                reason: "this document occurs twice in the corpus".to_owned(),
                            });
                        }
                        documents.push(Ok(document));
                    }
                }
            }
            Ok(Box::new(documents.into_iter()))
        }
    }
}

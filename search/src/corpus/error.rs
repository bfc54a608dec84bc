use std::path::PathBuf;

use crate::lines;

/// What is wrong with a corpus, and where.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// No file or folder was named.
    #[error("no corpus path was given")]
    NoPath,
    /// A file or folder cannot be opened or listed.
    #[error("{path}: cannot open: {source}", path = path.display())]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder holds nothing that the format can read.
    #[error("{path}: holds no corpus file, expected {expected}", path = path.display())]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
        /// Which files would have been read.
        expected: &'static str,
    },
    /// Reading or unpacking failed half-way, for instance in a truncated archive.
    #[error("{path}: line {line}: cannot read on: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The line that could not be read, from 1.
        line: u64,
        /// What the system or the decompressor said.
        source: std::io::Error,
    },
    /// A line is not UTF-8.
    #[error("{path}: line {line}: not UTF-8: the byte at offset {offset} of the line does not decode", path = path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// First byte of the line that does not decode, from 0.
        offset: usize,
    },
    /// A line is not a JSON object.
    #[error("{path}: line {line}: expected a JSON object: {}", lines::json_fault(source), path = path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// A record lacks a field that every document needs.
    #[error("{path}: line {line}: the record has no {expected}", path = path.display())]
    MissingField {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The names under which the field is looked for.
        expected: &'static str,
    },
    /// A field has a type that it must not have.
    #[error("{path}: line {line}: the field {field:?} is {found}, expected {expected}", path = path.display())]
    WrongType {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The field.
        field: &'static str,
        /// What may stand there.
        expected: &'static str,
        /// What stands there.
        found: &'static str,
    },
    /// A field that must say something is empty or white space.
    #[error("{path}: line {line}: the field {field:?} is empty", path = path.display())]
    EmptyField {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The field.
        field: &'static str,
    },
    /// Two documents share an identifier or an address.
    #[error("{path}: line {line}: the {what} {value:?} occurred before in this corpus", path = path.display())]
    Duplicate {
        /// The file of the second occurrence.
        path: PathBuf,
        /// The line of the second occurrence, from 1.
        line: u64,
        /// `doc_id` or `url`.
        what: &'static str,
        /// What occurs twice.
        value: String,
    },
    /// A file of the World Factbook does not have the shape that is known.
    #[error("{path}: {at}: {reason}", path = path.display())]
    Factbook {
        /// The file.
        path: PathBuf,
        /// Section and field, or `file`.
        at: String,
        /// What was expected and what was found.
        reason: String,
    },
}

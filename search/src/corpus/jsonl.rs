//! One JSON object a line, plain or packed (`.gz`, `.zst`).
//!
//! | part of a document | taken from the first of these fields | if there is none |
//! |---|---|---|
//! | `doc_id` | `id`, `_id`, `doc_id`, `docid`, `ClueWeb22-ID` (a string or an integer) | error |
//! | `url` | `url`, `URL` | `doc:<doc_id>` |
//! | `title` | `title` | empty |
//! | `text` | `text`, `contents`, `content`, `Clean-Text` | error |
//!
//! Passages of one page often share its address. The first keeps it; each later one gets `<url>#<doc_id>`, and the
//! address of the page is kept as `page_url` in `extra`.
//!
//! `contents` in the form of Search-R1's Wikipedia (`"Title"⏎text`) is taken apart if there is no `title`. All other
//! fields are kept in `extra`. Empty lines are skipped; anything else that is not a document is an error.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::error::CorpusError;
use super::unique::{Novelty, UniqueKeys};
use crate::document::Document;

const ID_FIELDS: [&str; 5] = ["id", "_id", "doc_id", "docid", "ClueWeb22-ID"];
const URL_FIELDS: [&str; 2] = ["url", "URL"];
const TEXT_FIELDS: [&str; 4] = ["text", "contents", "content", "Clean-Text"];
const ENDINGS: [&str; 3] = [".jsonl", ".ndjson", ".json"];

/// Where the address of the page goes if an earlier document has taken it.
const PAGE_URL: &str = "page_url";

/// Reads the documents of a list of files, in order.
pub struct JsonlReader {
    files: VecDeque<PathBuf>,
    current: Option<Lines>,
    seen: UniqueKeys,
    failed: bool,
}

impl JsonlReader {
    /// Lists the files. A folder stands for all files below it that end in `.jsonl`, `.ndjson` or `.json`, packed or
    /// not, in the order of their paths; files whose name starts with a dot are left out.
    pub fn open(paths: &[PathBuf]) -> Result<Self, CorpusError> {
        let mut files = VecDeque::new();
        for path in paths {
            if path.is_dir() {
                let mut below = Vec::new();
                list(path, &mut below)?;
                if below.is_empty() {
                    let expected = "files ending in .jsonl, .ndjson or .json, each possibly with .gz or .zst";
                    return Err(CorpusError::EmptyFolder { path: path.clone(), expected });
                }
                below.sort_unstable();
                files.extend(below);
            } else {
                fs::metadata(path).map_err(|source| CorpusError::Open { path: path.clone(), source })?;
                files.push_back(path.clone());
            }
        }
        Ok(Self { files, current: None, seen: UniqueKeys::default(), failed: false })
    }

    fn next_document(&mut self) -> Result<Option<Document>, CorpusError> {
        loop {
            if self.current.is_none() {
                let Some(path) = self.files.pop_front() else { return Ok(None) };
                self.current = Some(Lines::open(path)?);
            }
            let Some(lines) = self.current.as_mut() else { continue };
            let Some(line) = lines.next_line()? else {
                self.current = None;
                continue;
            };
            let mut document = parse(&line, &lines.path, lines.number)?;
            let (what, value) = match self.seen.insert(&document.doc_id, &document.url) {
                Novelty::New => return Ok(Some(document)),
                Novelty::DuplicateDocId => ("doc_id", document.doc_id),
                Novelty::DuplicateUrl => {
                    let own = format!("{}#{}", document.url, document.doc_id);
                    if self.seen.insert_url(&own) {
                        let page = std::mem::replace(&mut document.url, own);
                        document.extra.insert(PAGE_URL.to_owned(), Value::String(page));
                        return Ok(Some(document));
                    }
                    ("url", own)
                }
            };
            return Err(CorpusError::Duplicate { path: lines.path.clone(), line: lines.number, what, value });
        }
    }
}

impl Iterator for JsonlReader {
    type Item = Result<Document, CorpusError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.next_document().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

fn list(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), CorpusError> {
    let open = |source| CorpusError::Open { path: dir.to_owned(), source };
    for entry in fs::read_dir(dir).map_err(open)? {
        let path = entry.map_err(open)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let unpacked = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
        if path.is_dir() {
            list(&path, files)?;
        } else if ENDINGS.iter().any(|ending| unpacked.ends_with(ending)) {
            files.push(path);
        }
    }
    Ok(())
}

/// The lines of one file with their numbers.
pub(crate) struct Lines {
    pub(crate) path: PathBuf,
    /// Number of the line read last, from 1.
    pub(crate) number: u64,
    input: Box<dyn BufRead + Send>,
}

impl Lines {
    /// Opens a file, unpacking it if its name ends in `.gz` or `.zst`.
    pub(crate) fn open(path: PathBuf) -> Result<Self, CorpusError> {
        let open = |source| CorpusError::Open { path: path.clone(), source };
        let file = File::open(&path).map_err(open)?;
        let input: Box<dyn BufRead + Send> = match path.extension().and_then(|ending| ending.to_str()) {
            // A packed file may be a chain of members: ClueWeb22 packs every record on its own.
            Some("gz") => Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(BufReader::new(file)))),
            Some("zst") => Box::new(BufReader::new(zstd::stream::read::Decoder::new(file).map_err(open)?)),
            _ => Box::new(BufReader::with_capacity(1 << 16, file)),
        };
        Ok(Self { path, number: 0, input })
    }

    /// The next line that is not blank, without its end.
    pub(crate) fn next_line(&mut self) -> Result<Option<String>, CorpusError> {
        loop {
            let mut bytes = Vec::new();
            self.number += 1;
            let read = self.input.read_until(b'\n', &mut bytes).map_err(|source| CorpusError::Read {
                path: self.path.clone(),
                line: self.number,
                source,
            })?;
            if read == 0 {
                return Ok(None);
            }
            let line = String::from_utf8(bytes).map_err(|error| CorpusError::NotUtf8 {
                path: self.path.clone(),
                line: self.number,
                offset: error.utf8_error().valid_up_to(),
            })?;
            let line = if self.number == 1 { line.trim_start_matches('\u{feff}') } else { &line };
            let line = line.trim_end_matches(['\n', '\r']);
            if !line.trim().is_empty() {
                return Ok(Some(line.to_owned()));
            }
        }
    }
}

fn parse(line: &str, path: &Path, number: u64) -> Result<Document, CorpusError> {
    let at = || (path.to_owned(), number);
    let mut record: Map<String, Value> = serde_json::from_str(line).map_err(|source| {
        let (path, line) = at();
        CorpusError::NotJson { path, line, source }
    })?;
    let mut take =
        |names: &[&'static str], expected: &'static str| -> Result<Option<(&'static str, String)>, _> {
            for &field in names {
                // Removal must keep the order of the other fields: they are written out again as they were read.
                let found = match record.shift_remove(field) {
                    None | Some(Value::Null) => continue,
                    Some(Value::String(value)) => return Ok(Some((field, value))),
                    Some(Value::Number(value)) if names == ID_FIELDS && !value.is_f64() => {
                        return Ok(Some((field, value.to_string())));
                    }
                    Some(other) => kind(&other),
                };
                let (path, line) = at();
                return Err(CorpusError::WrongType { path, line, field, expected, found });
            }
            Ok(None)
        };
    let missing = |expected| {
        let (path, line) = at();
        CorpusError::MissingField { path, line, expected }
    };
    let some = |(field, value): (&'static str, String)| {
        let (path, line) = at();
        if value.trim().is_empty() { Err(CorpusError::EmptyField { path, line, field }) } else { Ok(value) }
    };

    let id = take(&ID_FIELDS, "a string or an integer")?
        .ok_or_else(|| missing("identifier (`id`, `_id`, `doc_id`, `docid` or `ClueWeb22-ID`)"))?;
    let doc_id = some(id)?;
    let url = take(&URL_FIELDS, "a string")?.map(some).transpose()?;
    let title = take(&["title"], "a string")?.map(|(_, title)| title);
    let text = take(&TEXT_FIELDS, "a string")?
        .ok_or_else(|| missing("text (`text`, `contents`, `content` or `Clean-Text`)"))?;
    let field = text.0;
    let text = some(text)?;
    let (title, text) = match title {
        Some(title) => (title, text),
        None => quoted_title(field, &text).unwrap_or((String::new(), text)),
    };
    let url =
        url.map_or_else(|| format!("doc:{doc_id}"), |url| url.trim_end_matches(['\n', '\r']).to_owned());
    Ok(Document { doc_id, url, title, text, extra: record })
}

/// Title and text of Search-R1's `"Title"⏎text`.
fn quoted_title(field: &str, text: &str) -> Option<(String, String)> {
    let (first, rest) = text.split_once('\n')?;
    let title = first.trim().strip_prefix('"')?.strip_suffix('"')?;
    (field == "contents" && !rest.trim().is_empty()).then(|| (title.to_owned(), rest.to_owned()))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

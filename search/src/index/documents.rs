//! Documents by number, by identifier and by address, without reading the others.

use memmap2::Mmap;

use super::error::IndexError;
use super::folder::{DOCUMENTS, IDS, OFFSETS, URLS, map};
use super::manifest::IndexInfo;
use crate::document::Document;

/// Bytes of a hash table's entry: `u64` hash, `u32` document.
pub(super) const ENTRY: usize = 12;

/// The documents of an index, on disk.
pub struct DocumentStore {
    path: std::path::PathBuf,
    records: Mmap,
    offsets: Mmap,
    ids: Mmap,
    urls: Mmap,
    count: usize,
}

impl DocumentStore {
    pub(super) fn open(info: &IndexInfo) -> Result<Self, IndexError> {
        let store = Self {
            path: info.path.clone(),
            records: map(info, DOCUMENTS)?,
            offsets: map(info, OFFSETS)?,
            ids: map(info, IDS)?,
            urls: map(info, URLS)?,
            count: info.manifest.documents as usize,
        };
        for (name, mapped, expected) in [
            (OFFSETS, &store.offsets, (store.count + 1) * 8),
            (IDS, &store.ids, store.count * ENTRY),
            (URLS, &store.urls, store.count * ENTRY),
        ] {
            if mapped.len() != expected {
                let reason =
                    format!("{} documents need {expected} bytes, found {}", store.count, mapped.len());
                return Err(store.damaged(name, reason));
            }
        }
        Ok(store)
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no document; an index always has some.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The document of that number, from 0.
    pub fn get(&self, number: usize) -> Result<Document, IndexError> {
        let end = |number| u64_at(&self.offsets, number).map(|at| at as usize);
        let line = match (end(number), end(number + 1)) {
            (Some(start), Some(end)) => self.records.get(start..end),
            _ => None,
        };
        let Some(line) = line else {
            return Err(self.damaged(OFFSETS, format!("document {number} lies outside {DOCUMENTS}")));
        };
        serde_json::from_slice(line)
            .map_err(|error| self.damaged(DOCUMENTS, format!("document {number} is not a document: {error}")))
    }

    /// The document of that identifier.
    pub fn by_doc_id(&self, doc_id: &str) -> Result<Option<(usize, Document)>, IndexError> {
        self.look_up(&self.ids, doc_id, |document| &document.doc_id)
    }

    /// The document of that address, compared exactly.
    pub fn by_url(&self, url: &str) -> Result<Option<(usize, Document)>, IndexError> {
        self.look_up(&self.urls, url, |document| &document.url)
    }

    fn look_up(
        &self,
        table: &[u8],
        key: &str,
        key_of: impl Fn(&Document) -> &String,
    ) -> Result<Option<(usize, Document)>, IndexError> {
        let (entries, _) = table.as_chunks::<ENTRY>();
        let wanted = key_hash(key);
        let first = entries.partition_point(|entry| entry_hash(entry) < wanted);
        for entry in entries[first..].iter().take_while(|entry| entry_hash(entry) == wanted) {
            let number = u32::from_le_bytes([entry[8], entry[9], entry[10], entry[11]]) as usize;
            let document = self.get(number)?;
            if key_of(&document) == key {
                return Ok(Some((number, document)));
            }
        }
        Ok(None)
    }

    fn damaged(&self, name: &str, reason: String) -> IndexError {
        IndexError::Damaged { path: self.path.join(name), reason }
    }
}

/// The hash by which the tables are sorted.
pub(super) fn key_hash(key: &str) -> u64 {
    let hash = blake3::hash(key.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(first)
}

fn entry_hash(entry: &[u8; ENTRY]) -> u64 {
    let mut hash = [0; 8];
    hash.copy_from_slice(&entry[..8]);
    u64::from_le_bytes(hash)
}

pub(super) fn u64_at(bytes: &[u8], position: usize) -> Option<u64> {
    bytes.as_chunks::<8>().0.get(position).map(|bytes| u64::from_le_bytes(*bytes))
}

//! Exact search: the query is compared with every vector.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;
use rayon::prelude::*;

use super::documents::DocumentStore;
use super::error::IndexError;
use super::folder::{CHUNKS, RANK, VECTORS, info, map};
use super::manifest::IndexInfo;
use crate::encoder::EncoderIdentity;
use crate::kernels;

/// Bytes of an entry of the chunk table.
pub(super) const CHUNK_ENTRY: usize = 12;

/// Chunks that one task compares. The ranking does not depend on it.
const TASK: usize = 8192;

/// A document found, represented by its best chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankedChunk {
    /// Number of the document in the index.
    pub document: usize,
    /// Number of the chunk in the index.
    pub chunk: usize,
    /// Position of the chunk within its document, from 0.
    pub chunk_id: u32,
    /// Inner product with the query.
    pub score: f32,
}

/// An open index, searched exactly.
pub struct FlatIndex {
    info: IndexInfo,
    documents: DocumentStore,
    /// Place of each document when sorted by `doc_id`: ties are broken without reading a document.
    rank: Vec<u32>,
    chunks: Mmap,
    vectors: Mmap,
    row: usize,
}

impl FlatIndex {
    /// Opens an index folder: reads the manifest, checks the sizes of all files and maps them. The content is checked
    /// by [`verify`](super::verify).
    pub fn open(dir: &Path) -> Result<Self, IndexError> {
        let info = info(dir)?;
        let documents = DocumentStore::open(&info)?;
        let chunks = map(&info, CHUNKS)?;
        let vectors = map(&info, VECTORS)?;
        let rank = map(&info, RANK)?;
        let row = info.manifest.encoder.dimension * size_of::<f32>();
        let count = info.manifest.chunks as usize;
        for (name, mapped, expected) in [
            (CHUNKS, &chunks, count * CHUNK_ENTRY),
            (VECTORS, &vectors, count * row),
            (RANK, &rank, documents.len() * 4),
        ] {
            if mapped.len() != expected || expected == 0 {
                let reason =
                    format!("expected {expected} bytes by the manifest's counts, found {}", mapped.len());
                return Err(IndexError::Damaged { path: dir.join(name), reason });
            }
        }
        let rank = rank.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let index = Self { info, documents, rank, chunks, vectors, row };
        index.check_chunks()?;
        Ok(index)
    }

    /// The chunks of a document must be neighbours and in order: collapsing relies on it.
    fn check_chunks(&self) -> Result<(), IndexError> {
        let mut expected = 0;
        for chunk in 0..self.chunk_count() {
            let document = self.document_of(chunk);
            if document == expected {
                expected += 1;
            } else if document + 1 != expected {
                let reason =
                    format!("chunk {chunk} belongs to document {document}, expected {expected} at most");
                return Err(IndexError::Damaged { path: self.info.path.join(CHUNKS), reason });
            }
        }
        if expected != self.documents.len() {
            let reason = format!("{} documents have no chunk", self.documents.len().abs_diff(expected));
            return Err(IndexError::Damaged { path: self.info.path.join(CHUNKS), reason });
        }
        Ok(())
    }

    /// Path, hash and manifest.
    pub fn info(&self) -> &IndexInfo {
        &self.info
    }

    /// The documents.
    pub fn documents(&self) -> &DocumentStore {
        &self.documents
    }

    /// Number of chunks.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len() / CHUNK_ENTRY
    }

    /// Fails unless the encoder is the one that the index was built with.
    pub fn check_encoder(&self, encoder: &EncoderIdentity) -> Result<(), IndexError> {
        let expected = &self.info.manifest.encoder;
        if (&expected.fingerprint, expected.dimension) == (&encoder.fingerprint, encoder.dimension) {
            return Ok(());
        }
        Err(IndexError::WrongEncoder {
            path: self.info.path.clone(),
            expected: Box::new(expected.clone()),
            found: Box::new(encoder.clone()),
        })
    }

    /// The byte range of a chunk in its document's text.
    pub fn chunk_range(&self, chunk: usize) -> Range<usize> {
        let (_, start, end) = self.chunk_entry(chunk);
        start as usize..end as usize
    }

    /// The `k` best documents by their best chunk, in the order (score descending, `doc_id` ascending).
    ///
    /// `query` has the dimension of the index. Runs on the current rayon pool; the result does not depend on it.
    pub fn search(&self, query: &[f32], k: usize) -> Vec<RankedChunk> {
        if k == 0 || size_of_val(query) != self.row {
            return Vec::new();
        }
        let tasks = self.chunk_count().div_ceil(TASK);
        let mut best: Vec<Candidate> = (0..tasks)
            .into_par_iter()
            .flat_map_iter(|task| {
                // A document belongs to the task in which its first chunk lies.
                let start = self.document_start(task * TASK);
                let end = self.document_start((task + 1) * TASK);
                self.best_of(query, start..end, k)
            })
            .collect();
        best.sort_unstable_by(|a, b| b.cmp(a));
        best.truncate(k);
        best.into_iter().map(|candidate| candidate.found).collect()
    }

    fn best_of(&self, query: &[f32], chunks: Range<usize>, k: usize) -> Vec<Candidate> {
        let mut kept: BinaryHeap<std::cmp::Reverse<Candidate>> = BinaryHeap::new();
        let mut keep = |found: RankedChunk| {
            let candidate = Candidate { found, rank: self.rank[found.document] };
            if kept.len() < k {
                kept.push(std::cmp::Reverse(candidate));
            } else if kept.peek().is_some_and(|worst| candidate > worst.0) {
                kept.pop();
                kept.push(std::cmp::Reverse(candidate));
            }
        };
        let mut current: Option<RankedChunk> = None;
        let mut chunk_id = 0;
        for chunk in chunks {
            // The sum turns -0.0 into 0.0, which must tie with it.
            let score = kernels::dot(query, &self.vectors[chunk * self.row..][..self.row]) + 0.0;
            // A positive NaN comes first in the ranking, where it is noticed.
            let score = if score.is_nan() { f32::NAN.copysign(1.0) } else { score };
            let document = self.document_of(chunk);
            match &mut current {
                Some(best) if best.document == document => {
                    chunk_id += 1;
                    if score.total_cmp(&best.score) == Ordering::Greater {
                        *best = RankedChunk { document, chunk, chunk_id, score };
                    }
                }
                _ => {
                    chunk_id = 0;
                    if let Some(best) = current.replace(RankedChunk { document, chunk, chunk_id, score }) {
                        keep(best);
                    }
                }
            }
        }
        if let Some(best) = current {
            keep(best);
        }
        kept.into_iter().map(|candidate| candidate.0).collect()
    }

    /// The first chunk at or after `chunk` that starts a document, or the end.
    fn document_start(&self, chunk: usize) -> usize {
        let count = self.chunk_count();
        (chunk..count)
            .find(|&chunk| chunk == 0 || self.document_of(chunk) != self.document_of(chunk - 1))
            .unwrap_or(count)
    }

    fn document_of(&self, chunk: usize) -> usize {
        self.chunk_entry(chunk).0 as usize
    }

    fn chunk_entry(&self, chunk: usize) -> (u32, u32, u32) {
        let words = self.chunks[chunk * CHUNK_ENTRY..][..CHUNK_ENTRY].as_chunks::<4>().0;
        let word = |i: usize| u32::from_le_bytes(words[i]);
        (word(0), word(1), word(2))
    }
}

/// Greater is better.
struct Candidate {
    found: RankedChunk,
    rank: u32,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.found.score.total_cmp(&other.found.score).then(other.rank.cmp(&self.rank))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

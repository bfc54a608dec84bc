//! Building an index folder from a corpus.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Serialize;

use super::documents::key_hash;
use super::error::IndexError;
use super::folder::{
    CHUNKS, DOCUMENTS, ENCODER_HINT, EncoderHint, FILES, IDS, MANIFEST, MANIFEST_HASH, OFFSETS, RANK, URLS,
    VECTORS, info,
};
use super::manifest::{CorpusInfo, FORMAT_NAME, FORMAT_VERSION, FileInfo, IndexKind, Manifest};
use crate::artefact::{FolderInProgress, holds_only};
use crate::chunk::{Chunking, Piece, pieces};
use crate::corpus::{self, CorpusFormat};
use crate::document::Document;
use crate::encoder::{BertEncoder, Encoder, EncoderOptions};

/// Documents that are cut and encoded together; more of them keep all workers busy, fewer use less memory.
const BLOCK: usize = 512;

/// What to build.
#[derive(Clone, Debug)]
pub struct BuildRequest {
    /// Files and folders of the corpus.
    pub corpus: Vec<PathBuf>,
    /// How to read them.
    pub format: CorpusFormat,
    /// Folder of the encoder.
    pub encoder: PathBuf,
    /// Settings that override what the encoder's folder says.
    pub encoder_options: EncoderOptions,
    /// How to cut documents.
    pub chunking: Chunking,
    /// The folder to write.
    pub out: PathBuf,
    /// Replace an index that is already there, once the new one is whole.
    pub overwrite: bool,
    /// Take only the first so many documents.
    pub limit: Option<usize>,
}

/// How far a build has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Documents encoded so far.
    pub documents: u64,
    /// Chunks encoded so far.
    pub chunks: u64,
}

/// What was built.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BuildSummary {
    /// The index's hash.
    pub hash: String,
    /// Documents in the index.
    pub documents: u64,
    /// Vectors in the index.
    pub chunks: u64,
    /// Seconds from start to end, the loading of the encoder not counted.
    pub seconds: f64,
}

/// Loads the encoder and builds the index. `progress` is called after every block of documents.
pub fn build(request: &BuildRequest, progress: &dyn Fn(Progress)) -> Result<BuildSummary, IndexError> {
    check_target(request)?;
    let encoder = BertEncoder::load(&request.encoder, &request.encoder_options)?;
    build_with_encoder(request, &encoder, progress)
}

/// Builds the index with an encoder that is already loaded; `request.encoder` is only noted down as the place where
/// to find it.
pub fn build_with_encoder(
    request: &BuildRequest,
    encoder: &dyn Encoder,
    progress: &dyn Fn(Progress),
) -> Result<BuildSummary, IndexError> {
    check_target(request)?;
    let started = std::time::Instant::now();
    let folder = FolderInProgress::new(&request.out)?;
    let mut writer = Writer::create(folder.path())?;
    let documents = corpus::read(request.format, &request.corpus)?;
    let mut block = Vec::with_capacity(BLOCK);
    for document in documents.take(request.limit.unwrap_or(usize::MAX)) {
        block.push(document?);
        if block.len() == BLOCK {
            writer.add(&block, request.chunking, encoder)?;
            block.clear();
            progress(writer.progress());
        }
    }
    if !block.is_empty() {
        writer.add(&block, request.chunking, encoder)?;
        progress(writer.progress());
    }
    let written = writer.finish(request, encoder)?;

    // Something may have come there while the index was built.
    check_target(request)?;
    if request.overwrite {
        folder.replace()?;
    } else {
        folder.place()?;
    }
    Ok(BuildSummary { seconds: started.elapsed().as_secs_f64(), ..written })
}

fn check_target(request: &BuildRequest) -> Result<(), IndexError> {
    let path = &request.out;
    // An empty folder holds nothing that could be lost.
    if fs::symlink_metadata(path).is_err() || holds_only(path, |_| false) {
        return Ok(());
    }
    if !request.overwrite {
        return Err(IndexError::Exists { path: path.clone() });
    }
    let known = |name: &str| FILES.contains(&name) || [MANIFEST, MANIFEST_HASH, ENCODER_HINT].contains(&name);
    match info(path) {
        // What cannot be recognised as an index is somebody else's and is spared, and so is what lies in an index.
        Ok(_) if holds_only(path, known) => Ok(()),
        // Its files are not known here.
        Err(IndexError::NewerVersion { .. }) => Ok(()),
        _ => Err(IndexError::NotOverwritten { path: path.clone() }),
    }
}

/// A file being written, with its hash.
struct HashedFile {
    path: PathBuf,
    name: &'static str,
    output: BufWriter<File>,
    hasher: blake3::Hasher,
    size: u64,
}

impl HashedFile {
    fn create(dir: &Path, name: &'static str) -> Result<Self, IndexError> {
        let path = dir.join(name);
        let file = File::create_new(&path).map_err(|source| IndexError::Io { path: path.clone(), source })?;
        let output = BufWriter::with_capacity(1 << 18, file);
        Ok(Self { path, name, output, hasher: blake3::Hasher::new(), size: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        self.output.write_all(bytes).map_err(|source| IndexError::Io { path: self.path.clone(), source })
    }

    fn finish(mut self) -> Result<FileInfo, IndexError> {
        let io = |source| IndexError::Io { path: self.path.clone(), source };
        self.output.flush().map_err(io)?;
        self.output.get_ref().sync_all().map_err(io)?;
        let blake3 = self.hasher.finalize().to_hex().to_string();
        Ok(FileInfo { name: self.name.to_owned(), size: self.size, blake3 })
    }
}

struct Writer {
    dir: PathBuf,
    documents: HashedFile,
    offsets: HashedFile,
    chunks: HashedFile,
    vectors: HashedFile,
    doc_ids: Vec<String>,
    id_table: Vec<(u64, u32)>,
    url_table: Vec<(u64, u32)>,
    chunk_count: u64,
}

impl Writer {
    fn create(dir: &Path) -> Result<Self, IndexError> {
        let mut offsets = HashedFile::create(dir, OFFSETS)?;
        offsets.write(&0u64.to_le_bytes())?;
        Ok(Self {
            dir: dir.to_owned(),
            documents: HashedFile::create(dir, DOCUMENTS)?,
            offsets,
            chunks: HashedFile::create(dir, CHUNKS)?,
            vectors: HashedFile::create(dir, VECTORS)?,
            doc_ids: Vec::new(),
            id_table: Vec::new(),
            url_table: Vec::new(),
            chunk_count: 0,
        })
    }

    fn progress(&self) -> Progress {
        Progress { documents: self.doc_ids.len() as u64, chunks: self.chunk_count }
    }

    fn add(
        &mut self,
        block: &[Document],
        chunking: Chunking,
        encoder: &dyn Encoder,
    ) -> Result<(), IndexError> {
        let cut: Vec<Vec<Piece>> =
            block.par_iter().map(|document| pieces(document, chunking, encoder)).collect::<Result<_, _>>()?;
        let texts: Vec<&str> = cut.iter().flatten().map(|piece| piece.encoded.as_str()).collect();
        let vectors = encoder.encode_documents(&texts)?;
        let bytes: Vec<u8> = vectors.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.vectors.write(&bytes)?;
        self.chunk_count += texts.len() as u64;

        for (document, pieces) in block.iter().zip(&cut) {
            let too_large = |what: String| IndexError::TooLarge { what, limit: u64::from(u32::MAX) };
            let number = u32::try_from(self.doc_ids.len())
                .ok()
                .filter(|&number| number < u32::MAX)
                .ok_or_else(|| too_large("the number of documents".to_owned()))?;
            let small = |at: usize| {
                let what = || {
                    format!("the text of document {:?} with {} bytes", document.doc_id, document.text.len())
                };
                u32::try_from(at).map_err(|_| too_large(what()))
            };
            for piece in pieces {
                for word in [number, small(piece.range.start)?, small(piece.range.end)?] {
                    self.chunks.write(&word.to_le_bytes())?;
                }
            }
            let mut line = serde_json::to_vec(document).map_err(|error| IndexError::Io {
                path: self.documents.path.clone(),
                source: error.into(),
            })?;
            line.push(b'\n');
            self.documents.write(&line)?;
            self.offsets.write(&self.documents.size.to_le_bytes())?;
            self.id_table.push((key_hash(&document.doc_id), number));
            self.url_table.push((key_hash(&document.url), number));
            self.doc_ids.push(document.doc_id.clone());
        }
        Ok(())
    }

    fn finish(mut self, request: &BuildRequest, encoder: &dyn Encoder) -> Result<BuildSummary, IndexError> {
        if self.doc_ids.is_empty() {
            return Err(IndexError::EmptyCorpus);
        }
        let mut ids = HashedFile::create(&self.dir, IDS)?;
        let mut urls = HashedFile::create(&self.dir, URLS)?;
        for (file, table) in [(&mut ids, &mut self.id_table), (&mut urls, &mut self.url_table)] {
            table.sort_unstable();
            for (hash, number) in table {
                file.write(&hash.to_le_bytes())?;
                file.write(&number.to_le_bytes())?;
            }
        }
        let mut order: Vec<u32> = (0..self.doc_ids.len() as u32).collect();
        order.sort_unstable_by_key(|&number| &self.doc_ids[number as usize]);
        let mut ranks = vec![0u32; order.len()];
        for (rank, number) in order.into_iter().enumerate() {
            ranks[number as usize] = rank as u32;
        }
        let mut rank = HashedFile::create(&self.dir, RANK)?;
        for place in &ranks {
            rank.write(&place.to_le_bytes())?;
        }

        let content = self.documents.hasher.finalize().to_hex().to_string();
        let files = [self.documents, self.offsets, ids, urls, rank, self.chunks, self.vectors]
            .into_iter()
            .map(HashedFile::finish)
            .collect::<Result<Vec<FileInfo>, IndexError>>()?;
        debug_assert!(files.iter().map(|file| file.name.as_str()).eq(FILES));
        let manifest = Manifest {
            format: FORMAT_NAME.to_owned(),
            version: FORMAT_VERSION,
            kind: IndexKind::Flat,
            documents: self.doc_ids.len() as u64,
            chunks: self.chunk_count,
            chunking: request.chunking,
            encoder: encoder.identity().clone(),
            corpus: CorpusInfo { format: request.format, limit: request.limit, content },
            files,
        };
        let json = |value: Result<Vec<u8>, serde_json::Error>| {
            value.map_err(|error| IndexError::Io { path: self.dir.join(MANIFEST), source: error.into() })
        };
        let mut bytes = json(serde_json::to_vec_pretty(&manifest))?;
        bytes.push(b'\n');
        let hash = blake3::hash(&bytes).to_hex().to_string();
        let place = request.encoder.canonicalize().unwrap_or_else(|_| request.encoder.clone());
        for (name, content) in [
            (MANIFEST, bytes),
            (MANIFEST_HASH, format!("{hash}\n").into_bytes()),
            (ENCODER_HINT, json(serde_json::to_vec(&EncoderHint::new(place)))?),
        ] {
            let mut file = HashedFile::create(&self.dir, name)?;
            file.write(&content)?;
            file.finish()?;
        }
        Ok(BuildSummary { hash, documents: manifest.documents, chunks: manifest.chunks, seconds: 0.0 })
    }
}

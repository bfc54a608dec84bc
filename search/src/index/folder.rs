//! Opening, describing and checking an index folder.
#![expect(unsafe_code, reason = "mapping a file into memory is unsafe: nobody may change it meanwhile")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use serde::{Deserialize, Serialize};

use super::error::IndexError;
use super::manifest::{FORMAT_NAME, FORMAT_VERSION, IndexInfo, Manifest};

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const MANIFEST_HASH: &str = "manifest.blake3";
pub(super) const ENCODER_HINT: &str = "encoder.json";
pub(super) const DOCUMENTS: &str = "documents.jsonl";
pub(super) const OFFSETS: &str = "documents.offsets";
pub(super) const IDS: &str = "documents.ids";
pub(super) const URLS: &str = "documents.urls";
pub(super) const RANK: &str = "documents.rank";
pub(super) const CHUNKS: &str = "chunks.table";
pub(super) const VECTORS: &str = "vectors.f32";
/// Every file that the manifest lists, in its order.
pub(super) const FILES: [&str; 7] = [DOCUMENTS, OFFSETS, IDS, URLS, RANK, CHUNKS, VECTORS];

/// Where the encoder lay when the index was built.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct EncoderHint {
    pub(super) path: PathBuf,
    /// blake3 of the path, so that a damaged hint is noticed.
    pub(super) blake3: String,
}

impl EncoderHint {
    pub(super) fn new(path: PathBuf) -> Self {
        let blake3 = blake3::hash(path.to_string_lossy().as_bytes()).to_hex().to_string();
        Self { path, blake3 }
    }
}

/// A file of an index that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Corruption {
    /// Name within the folder.
    pub file: String,
    /// What was expected and what was found.
    pub reason: String,
}

/// Reads and checks the manifest of an index.
pub fn info(dir: &Path) -> Result<IndexInfo, IndexError> {
    let path = dir.join(MANIFEST);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(IndexError::NotAnIndex { path: dir.to_owned() });
        }
        Err(source) => return Err(IndexError::Io { path, source }),
    };
    let wrong = |reason: String| IndexError::Manifest { path: path.clone(), reason };
    // The name and the version first: a newer manifest may have fields that this program does not know.
    let value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    if value["format"] != FORMAT_NAME {
        return Err(wrong(format!("`format` is {}, expected {FORMAT_NAME:?}", value["format"])));
    }
    let Some(version) = value["version"].as_u64() else {
        return Err(wrong(format!("`version` is {}, expected a number", value["version"])));
    };
    if version > u64::from(FORMAT_VERSION) {
        let found = u32::try_from(version).unwrap_or(u32::MAX);
        return Err(IndexError::NewerVersion { path: dir.to_owned(), found, known: FORMAT_VERSION });
    }
    let manifest: Manifest = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    let names: Vec<&str> = manifest.files.iter().map(|file| file.name.as_str()).collect();
    if names != FILES {
        return Err(wrong(format!("lists the files {names:?}, expected {FILES:?}")));
    }
    let hash = blake3::hash(&bytes).to_hex().to_string();
    // Cheap, and traces of runs bear this hash. A copy that was published without the file is taken at its word.
    match fs::read_to_string(dir.join(MANIFEST_HASH)) {
        Ok(told) if told.trim_end() != hash => {
            return Err(wrong(format!(
                "its blake3 {hash} is not the one in {MANIFEST_HASH}; the index is damaged"
            )));
        }
        _ => {}
    }
    let bytes = manifest.files.iter().map(|file| file.size).sum::<u64>() + bytes.len() as u64;
    Ok(IndexInfo { path: dir.to_owned(), hash, bytes, manifest })
}

/// Compares every byte of an index with what was written; an empty list means that all is well.
///
/// Fails only where the folder is not an index at all or cannot be read.
pub fn verify(dir: &Path) -> Result<Vec<Corruption>, IndexError> {
    let mut found = Vec::new();
    let mut corrupt = |file: &str, reason: String| found.push(Corruption { file: file.to_owned(), reason });

    let manifest_path = dir.join(MANIFEST);
    if !manifest_path.is_file() {
        return Err(IndexError::NotAnIndex { path: dir.to_owned() });
    }
    let bytes = fs::read(&manifest_path).map_err(|source| IndexError::Io { path: manifest_path, source })?;
    let hash = blake3::hash(&bytes).to_hex().to_string();
    match fs::read(dir.join(MANIFEST_HASH)) {
        Ok(told) if told == format!("{hash}\n").as_bytes() => {}
        Ok(_) => corrupt(MANIFEST, format!("its blake3 {hash} is not the one in {MANIFEST_HASH}")),
        Err(error) => corrupt(MANIFEST_HASH, error.to_string()),
    }
    match fs::read(dir.join(ENCODER_HINT)) {
        Ok(bytes) => match serde_json::from_slice::<EncoderHint>(&bytes) {
            Ok(hint) => {
                // Written again it must be the same bytes: white space and keys count as well.
                let again = EncoderHint::new(hint.path);
                if serde_json::to_vec(&again).ok() != Some(bytes) {
                    corrupt(ENCODER_HINT, "is not what was written".to_owned());
                }
            }
            Err(error) => corrupt(ENCODER_HINT, error.to_string()),
        },
        // The hint may be removed, for instance before an index is published.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => corrupt(ENCODER_HINT, error.to_string()),
    }
    match info(dir) {
        Ok(info) => {
            for file in &info.manifest.files {
                match hash_file(&dir.join(&file.name)) {
                    Ok((_, size)) if size != file.size => {
                        corrupt(&file.name, format!("expected {} bytes, found {size}", file.size));
                    }
                    Ok((hash, _)) if hash != file.blake3 => {
                        corrupt(&file.name, format!("expected blake3 {}, found {hash}", file.blake3));
                    }
                    Ok(_) => {}
                    Err(error) => corrupt(&file.name, error.to_string()),
                }
            }
        }
        Err(error) => corrupt(MANIFEST, error.to_string()),
    }
    Ok(found)
}

/// Where the encoder lay on the machine that built the index, if the index still says so.
pub fn encoder_hint(dir: &Path) -> Option<PathBuf> {
    let bytes = fs::read(dir.join(ENCODER_HINT)).ok()?;
    serde_json::from_slice::<EncoderHint>(&bytes).ok().map(|hint| hint.path)
}

/// blake3 in hex and size of a file.
pub(super) fn hash_file(path: &Path) -> std::io::Result<(String, u64)> {
    let mut hasher = blake3::Hasher::new();
    let size = std::io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok((hasher.finalize().to_hex().to_string(), size))
}

/// Maps a file of the index whose size has been told by the manifest.
pub(super) fn map(info: &IndexInfo, name: &str) -> Result<Mmap, IndexError> {
    let path = info.path.join(name);
    let expected = info.manifest.files.iter().find(|file| file.name == name).map_or(0, |file| file.size);
    let size = |found| IndexError::Size { path: path.clone(), expected, found };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(size("no file".to_owned())),
        Err(source) => return Err(IndexError::Io { path, source }),
    };
    let found = file.metadata().map_err(|source| IndexError::Io { path: path.clone(), source })?.len();
    if found != expected {
        return Err(size(found.to_string()));
    }
    // SAFETY: an index folder is written under another name, renamed when it is whole, and replaced as a whole, never
    // changed in place, so the mapped bytes stay as they are as long as nobody edits the file by hand.
    unsafe { Mmap::map(&file) }.map_err(|source| IndexError::Io { path, source })
}

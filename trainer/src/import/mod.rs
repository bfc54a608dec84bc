//! Import of models in foreign formats into Hugging Face folders.
//!
//! ```text
//! model.gguf ─▶ gguf (header, tensors) ─▶ dequantise ─▶ llama (names, q/k order) ─┐
//!                                     └─▶ tokenizer (tokens, merges, template)  ─┴▶ folder
//! ```

pub mod dequantise;
mod error;
pub mod gguf;
mod llama;
mod tokenizer;

use std::collections::BTreeMap;
use std::path::Path;

use drgym_search::artefact::{FolderInProgress, holds_only};
use serde_json::json;
use tch::Kind;

pub use error::ImportError;

use crate::model::ModelError;
use crate::model::folder::write_json;
use crate::model::weights_file::write_safetensors;
use gguf::GgufFile;

/// How to import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// What the weights are stored as: `Float` keeps every dequantised value exactly, `BFloat16` halves the size.
    pub kind: Kind,
    /// Replace an earlier import that lies in the place already.
    pub overwrite: bool,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self { kind: Kind::Float, overwrite: false }
    }
}

/// Says what a folder was imported from, with the hash of every other file in it.
const MANIFEST: &str = "import.json";

/// What was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportReport {
    /// The model's own name, if the file gives one.
    pub name: Option<String>,
    /// Numbers in all tensors.
    pub parameters: usize,
    /// Tensors by the type in which they were stored.
    pub stored_types: BTreeMap<String, usize>,
    /// Size of the vocabulary.
    pub vocab_size: usize,
    /// blake3 of the GGUF file, in hex.
    pub source_hash: String,
}

/// Imports a GGUF file of the architecture `llama` into a new folder: weights, config.json, generation_config.json,
/// tokenizer.json, tokenizer_config.json and import.json (what it was made from, and the hash of each file).
///
/// The folder appears whole or not at all. It must not exist already, or with [`ImportOptions::overwrite`] hold an earlier
/// import and nothing else.
pub fn import_gguf(path: &Path, out: &Path, options: ImportOptions) -> Result<ImportReport, ImportError> {
    check_target(out, options)?;
    let file = GgufFile::open(path)?;
    let config = llama::config(&file)?;
    let tensors = llama::tensors(&file, &config)?;
    let tokenizer = tokenizer::tokenizer_files(&file, &config)?;
    let mut stored_types = BTreeMap::new();
    for tensor in file.tensors() {
        *stored_types.entry(tensor.stored.name().to_owned()).or_insert(0) += 1;
    }
    let report = ImportReport {
        name: file.optional_text("general.name")?.map(str::to_owned),
        parameters: tensors.iter().map(|(_, tensor)| tensor.numel()).sum(),
        stored_types,
        vocab_size: config.vocab_size,
        source_hash: file.hash(),
    };
    let write = |part: &Path| {
        let named = tensors.iter().map(|(name, tensor)| (name.clone(), tensor));
        write_safetensors(&part.join("model.safetensors"), named, options.kind)?;
        let mut raw = config.raw.clone();
        let stored = if options.kind == Kind::BFloat16 { "bfloat16" } else { "float32" };
        raw.insert("torch_dtype".into(), json!(stored));
        write_json(&part.join("config.json"), &serde_json::Value::Object(raw))?;
        write_json(&part.join("generation_config.json"), &tokenizer.generation_config)?;
        write_json(&part.join("tokenizer.json"), &tokenizer.tokenizer)?;
        write_json(&part.join("tokenizer_config.json"), &tokenizer.tokenizer_config)?;
        let mut files = serde_json::Map::new();
        for name in [
            "model.safetensors",
            "config.json",
            "generation_config.json",
            "tokenizer.json",
            "tokenizer_config.json",
        ] {
            files.insert(name.into(), json!(hash_file(&part.join(name))?));
        }
        let manifest = json!({
            "format": "drgym-import",
            "format_version": 1,
            "made_from": {
                "file": path.file_name().map(|name| name.to_string_lossy()),
                "blake3": report.source_hash,
            },
            "files": files,
        });
        write_json(&part.join(MANIFEST), &manifest)
    };
    let folder = FolderInProgress::new(out).map_err(ModelError::from)?;
    write(folder.path())?;
    // Something may have come there in the meantime.
    check_target(out, options)?;
    folder.replace().map_err(ModelError::from)?;
    Ok(report)
}

/// Spares whatever is not an earlier import, and what lies beside one.
fn check_target(out: &Path, options: ImportOptions) -> Result<(), ImportError> {
    if !out.exists() {
        return Ok(());
    }
    let listed: Option<serde_json::Value> =
        std::fs::read(out.join(MANIFEST)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let known = |name: &str| {
        let files = listed.as_ref().filter(|_| options.overwrite).map(|listed| &listed["files"]);
        files.is_some_and(|files| name == MANIFEST || files.get(name).is_some())
    };
    if holds_only(out, known) {
        return Ok(());
    }
    Err(ImportError::NotOverwritten { path: out.to_owned(), asked: options.overwrite })
}

fn hash_file(path: &Path) -> Result<String, crate::model::ModelError> {
    let map = crate::model::weights_file::map_file(path)?;
    Ok(blake3::hash(&map).to_hex().to_string())
}

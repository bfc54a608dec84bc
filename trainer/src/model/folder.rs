//! Model folders in the Hugging Face layout: loading and saving.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use drgym_search::artefact::FolderInProgress;
use serde_json::{Value, json};
use tch::Kind;

use super::config::token_ids;
use super::decoder::check_shapes;
use super::error::{TensorMismatch, io_error};
use super::weights_file::{WeightsFiles, kind_of, write_safetensors};
use super::{Decoder, LoadOptions, ModelConfig, ModelError};

/// Files that belong to the tokenizer and go along when a model is saved.
const COMPANIONS: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
];

/// A model folder, without its weights.
#[derive(Clone, Debug)]
pub struct ModelFolder {
    /// The folder.
    pub dir: PathBuf,
    /// Its config.json.
    pub config: ModelConfig,
    /// Tokens that end generation: those of generation_config.json and of config.json.
    pub eos_token_ids: Vec<u32>,
}

impl ModelFolder {
    /// Reads config.json and, if there is one, generation_config.json.
    pub fn open(dir: &Path) -> Result<Self, ModelError> {
        let config = ModelConfig::read(&dir.join("config.json"))?;
        let mut eos_token_ids = config.eos_token_ids.clone();
        let path = dir.join("generation_config.json");
        if path.exists() {
            let text = std::fs::read_to_string(&path).map_err(io_error("read", &path))?;
            let wrong = |field: &str, reason: String| ModelError::Config {
                path: path.clone(),
                field: field.into(),
                reason,
            };
            let value: Value =
                serde_json::from_str(&text).map_err(|error| wrong(".", format!("not JSON: {error}")))?;
            let ids = token_ids(value.get("eos_token_id"))
                .ok_or_else(|| wrong("eos_token_id", "expected a token id or a list of them".into()))?;
            eos_token_ids.extend(ids);
        }
        eos_token_ids.sort_unstable();
        eos_token_ids.dedup();
        Ok(Self { dir: dir.to_owned(), config, eos_token_ids })
    }

    /// The tokenizer's file.
    pub fn tokenizer_path(&self) -> PathBuf {
        self.dir.join("tokenizer.json")
    }
}

impl Decoder {
    /// Loads a folder: config.json and model.safetensors, or shards and their index. f16 and bf16 weights are
    /// widened to f32.
    ///
    /// A head that is stored although it is tied, and the rotary buffers of old exports, are passed over; any other
    /// tensor that is missing, surplus, of another shape or not a floating-point number is an error that names it.
    pub fn load(dir: &Path, options: LoadOptions) -> Result<Self, ModelError> {
        let config = ModelConfig::read(&dir.join("config.json"))?;
        let files = WeightsFiles::open_folder(dir)?;
        let mut found = Vec::new();
        let mut mistyped = Vec::new();
        for (name, shape, dtype) in files.describe()? {
            let redundant =
                name.ends_with(".rotary_emb.inv_freq") || (config.tied_head && name == "lm_head.weight");
            if redundant {
                continue;
            }
            if kind_of(dtype).is_none() {
                mistyped.push((name.clone(), format!("{dtype:?}")));
            }
            found.push((name, shape));
        }
        check_shapes(&config, dir, found.iter().map(|(name, shape)| (name.as_str(), shape.clone())))?;
        if !mistyped.is_empty() {
            let mismatch = Box::new(TensorMismatch { mistyped, ..TensorMismatch::default() });
            return Err(ModelError::TensorMismatch { path: dir.to_owned(), mismatch });
        }
        let mut decoder = Self::build(config, options, |name| files.read(name))?;
        decoder.source = Some(dir.to_owned());
        Ok(decoder)
    }

    /// Saves the f32 masters; see [`save_as`](Self::save_as).
    pub fn save(&self, dir: &Path) -> Result<(), ModelError> {
        self.save_as(dir, Kind::Float)
    }

    /// Saves a folder that Hugging Face's transformers loads: weights in the kind given (Float or BFloat16),
    /// config.json, generation_config.json and the tokenizer's files of the folder that the model came from.
    ///
    /// The folder is written under a temporary name beside its place and renamed; where something lies already it
    /// is left alone and an error returned. An attached adapter must be merged or taken off first.
    pub fn save_as(&self, dir: &Path, kind: Kind) -> Result<(), ModelError> {
        if self.lora.is_some() {
            return Err(ModelError::Request(
                "an adapter is attached: merge it or take it off before saving the base model".into(),
            ));
        }
        write_folder(dir, |part| {
            let tensors = self.parameters.iter().map(|(name, tensor)| (name.to_owned(), tensor));
            write_safetensors(&part.join("model.safetensors"), tensors, kind)?;
            let mut config = self.config.raw.clone();
            let name = if kind == Kind::BFloat16 { "bfloat16" } else { "float32" };
            let field = if config.contains_key("dtype") { "dtype" } else { "torch_dtype" };
            config.insert(field.into(), json!(name));
            write_json(&part.join("config.json"), &Value::Object(config))?;
            let generation = part.join("generation_config.json");
            let original = self.source.as_ref().map(|source| source.join("generation_config.json"));
            match original.filter(|path| path.exists()) {
                Some(path) => copy_file(&path, &generation)?,
                None => write_json(&generation, &generation_config(&self.config))?,
            }
            if let Some(source) = &self.source {
                for name in COMPANIONS {
                    let path = source.join(name);
                    if path.exists() {
                        copy_file(&path, &part.join(name))?;
                    }
                }
            }
            Ok(())
        })
    }
}

fn generation_config(config: &ModelConfig) -> Value {
    let mut fields = serde_json::Map::new();
    fields.insert("_from_model_config".into(), json!(true));
    for field in ["bos_token_id", "eos_token_id", "pad_token_id"] {
        if let Some(value) = config.raw.get(field).filter(|value| !value.is_null()) {
            fields.insert(field.into(), value.clone());
        }
    }
    Value::Object(fields)
}

/// Writes a folder that appears when it is whole. `dir` must not exist, or be empty.
pub(crate) fn write_folder(
    dir: &Path,
    write: impl FnOnce(&Path) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let occupied = std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
    if occupied || dir.is_file() {
        return Err(ModelError::Request(format!("{} exists already; choose another place", dir.display())));
    }
    let folder = FolderInProgress::new(dir)?;
    write(folder.path())?;
    Ok(folder.place()?)
}

/// Writes indented JSON and syncs the file.
pub(crate) fn write_json(path: &Path, value: &Value) -> Result<(), ModelError> {
    let text = format!("{value:#}\n");
    write_text(path, &text)
}

/// Writes text and syncs the file.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), ModelError> {
    let mut file = File::create(path).map_err(io_error("create", path))?;
    file.write_all(text.as_bytes()).map_err(io_error("write", path))?;
    file.sync_all().map_err(io_error("sync", path))
}

fn copy_file(from: &Path, to: &Path) -> Result<(), ModelError> {
    std::fs::copy(from, to).map_err(io_error("copy", from))?;
    File::open(to).and_then(|file| file.sync_all()).map_err(io_error("sync", to))
}

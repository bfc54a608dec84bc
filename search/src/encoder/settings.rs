//! What a sentence-transformers folder says about its model.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::EncoderError;

/// How token vectors become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// The mean over all tokens, special ones included.
    Mean,
    /// The vector of the first token.
    Cls,
}

/// Settings that override what the folder says. The default overrides nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncoderOptions {
    /// Needed where the folder has no `modules.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<Pooling>,
    /// Put before every query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_prefix: Option<String>,
    /// Put before every document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passage_prefix: Option<String>,
    /// Longest sequence in tokens, special ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sequence: Option<usize>,
    /// Worker threads; all cores when `None`. Does not change any vector.
    #[serde(skip)]
    pub threads: Option<usize>,
}

impl EncoderOptions {
    /// Whether an encoder loaded so is what its folder says.
    pub fn overrides_nothing(&self) -> bool {
        *self == Self { threads: self.threads, ..Self::default() }
    }

    /// The settings that decide vectors, without those that only decide speed.
    pub(super) fn overrides(&self) -> Self {
        Self { threads: None, ..self.clone() }
    }
}

/// `config.json` of a BERT.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct ModelConfig {
    pub(super) model_type: String,
    pub(super) hidden_size: usize,
    pub(super) intermediate_size: usize,
    pub(super) num_hidden_layers: usize,
    pub(super) num_attention_heads: usize,
    pub(super) vocab_size: usize,
    pub(super) max_position_embeddings: usize,
    pub(super) type_vocab_size: usize,
    pub(super) layer_norm_eps: f32,
    pub(super) hidden_act: String,
    #[serde(default = "absolute")]
    pub(super) position_embedding_type: String,
}

fn absolute() -> String {
    "absolute".to_owned()
}

/// Everything beside weights and architecture that decides a vector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Settings {
    pub(super) pooling: Pooling,
    pub(super) query_prefix: String,
    pub(super) passage_prefix: String,
    pub(super) max_sequence: usize,
}

#[derive(Deserialize)]
struct Module {
    path: String,
    r#type: String,
}

#[derive(Deserialize)]
struct SequenceLength {
    max_seq_length: Option<usize>,
}

impl ModelConfig {
    pub(super) fn read(dir: &Path) -> Result<Self, EncoderError> {
        let path = dir.join("config.json");
        let config: Self = read_json(&path)?;
        let unsupported = |what, found: &str, supported| {
            Err(EncoderError::Unsupported { path: path.clone(), what, found: found.to_owned(), supported })
        };
        if config.model_type != "bert" {
            return unsupported("model_type", &config.model_type, "bert");
        }
        if config.hidden_act != "gelu" {
            return unsupported("hidden_act", &config.hidden_act, "gelu");
        }
        if config.position_embedding_type != "absolute" {
            return unsupported("position_embedding_type", &config.position_embedding_type, "absolute");
        }
        let heads = config.num_attention_heads;
        if heads == 0 || !config.hidden_size.is_multiple_of(heads) || config.hidden_size == 0 {
            let reason =
                format!("hidden_size {} is not a multiple of {heads} attention heads", config.hidden_size);
            return Err(EncoderError::Malformed { path, reason });
        }
        Ok(config)
    }
}

impl Settings {
    pub(super) fn read(
        dir: &Path,
        config: &ModelConfig,
        options: &EncoderOptions,
    ) -> Result<Self, EncoderError> {
        let pooling = match options.pooling {
            Some(pooling) => pooling,
            None => read_pooling(dir)?,
        };
        let lengths = dir.join("sentence_bert_config.json");
        let told =
            if lengths.is_file() { read_json::<SequenceLength>(&lengths)?.max_seq_length } else { None };
        let longest = config.max_position_embeddings;
        let max_sequence = options.max_sequence.or(told).unwrap_or(longest);
        if max_sequence > longest || max_sequence < 4 {
            let reason = format!("a longest sequence of {max_sequence} tokens is outside 4..={longest}");
            return Err(EncoderError::Malformed { path: dir.join("config.json"), reason });
        }
        let (query_prefix, passage_prefix) = prefixes(dir, options)?;
        Ok(Self { pooling, query_prefix, passage_prefix, max_sequence })
    }
}

/// What is put before queries and before documents: as given, else as the folder says, else nothing.
fn prefixes(dir: &Path, options: &EncoderOptions) -> Result<(String, String), EncoderError> {
    let prompts = dir.join("config_sentence_transformers.json");
    let prompts: Value = if prompts.is_file() { read_json(&prompts)? } else { Value::Null };
    let prompt = |given: &Option<String>, names: &[&str]| {
        given.clone().unwrap_or_else(|| {
            let told = names.iter().find_map(|name| prompts["prompts"][name].as_str());
            told.unwrap_or_default().to_owned()
        })
    };
    Ok((prompt(&options.query_prefix, &["query"]), prompt(&options.passage_prefix, &["document", "passage"])))
}

/// A word to whoever loads an E5 without its prefixes, or `None`.
///
/// The models of that family were trained with `query: ` and `passage: ` and rank worse without them, but not all
/// folders say so. That it is one of them is only guessed from the name of the folder, so nothing is changed. A prefix
/// that is given counts as meant, also an empty one.
pub fn missing_prefixes(dir: &Path, options: &EncoderOptions) -> Result<Option<String>, EncoderError> {
    let (query, passage) = prefixes(dir, options)?;
    let lacks = (options.query_prefix.is_none() && query.is_empty())
        || (options.passage_prefix.is_none() && passage.is_empty());
    if !lacks || !is_named_e5(dir) {
        return Ok(None);
    }
    Ok(Some(format!(
        "{} looks like an E5 model by its name, but its folder names no prefixes; such models are trained with the query \
         prefix \"query: \" and the passage prefix \"passage: \"",
        dir.display()
    )))
}

/// Whether `e5` is a word of the folder's name, or of the model's where the folder is a snapshot in a Hugging Face cache
/// (`models--OWNER--NAME/snapshots/REVISION`).
fn is_named_e5(dir: &Path) -> bool {
    let places = [Some(dir.to_owned()), dir.canonicalize().ok()];
    places.into_iter().flatten().any(|place| {
        let name = |place: &Path| place.file_name().map(|name| name.to_string_lossy().to_lowercase());
        let own = name(&place);
        let model = place.ancestors().nth(2).and_then(name).filter(|name| name.starts_with("models--"));
        [own, model]
            .into_iter()
            .flatten()
            .any(|name| name.split(|c: char| !c.is_alphanumeric()).any(|word| word == "e5"))
    })
}

fn read_pooling(dir: &Path) -> Result<Pooling, EncoderError> {
    let path = dir.join("modules.json");
    if !path.is_file() {
        let reason = "not there, so the pooling is unknown; name one (mean or cls)".to_owned();
        return Err(EncoderError::Malformed { path, reason });
    }
    let modules: Vec<Module> = read_json(&path)?;
    let mut pooling = None;
    for module in modules {
        match module.r#type.rsplit('.').next().unwrap_or_default() {
            "Transformer" | "Normalize" => {}
            "Pooling" => pooling = Some(dir.join(module.path).join("config.json")),
            _ => {
                let supported = "Transformer, Pooling, Normalize";
                return Err(EncoderError::Unsupported {
                    path,
                    what: "a module",
                    found: module.r#type,
                    supported,
                });
            }
        }
    }
    let Some(path) = pooling else {
        return Err(EncoderError::Malformed { path, reason: "names no Pooling module".to_owned() });
    };
    let flags: Value = read_json(&path)?;
    let on: Vec<&str> = flags
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, value)| name.starts_with("pooling_mode") && **value == Value::Bool(true))
        .map(|(name, _)| name.as_str())
        .collect();
    match on.as_slice() {
        ["pooling_mode_mean_tokens"] => Ok(Pooling::Mean),
        ["pooling_mode_cls_token"] => Ok(Pooling::Cls),
        _ => Err(EncoderError::Unsupported {
            path,
            what: "the pooling",
            found: format!("{on:?}"),
            supported: "pooling_mode_mean_tokens or pooling_mode_cls_token alone",
        }),
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, EncoderError> {
    let bytes = read(path)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| EncoderError::Malformed { path: path.to_owned(), reason: error.to_string() })
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, EncoderError> {
    std::fs::read(path).map_err(|source| EncoderError::Read { path: PathBuf::from(path), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(root: &Path, name: &str, prompts: Option<&str>) -> PathBuf {
        let dir = root.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        if let Some(prompts) = prompts {
            let text = format!("{{\"prompts\": {prompts}}}");
            std::fs::write(dir.join("config_sentence_transformers.json"), text).unwrap();
        }
        dir
    }

    #[test]
    fn an_e5_without_prefixes_is_told_of_and_nothing_else_is() {
        let root = tempfile::tempdir().unwrap();
        let told = |dir: &Path, options: &EncoderOptions| missing_prefixes(dir, options).unwrap().is_some();
        let none = EncoderOptions::default();
        for name in ["e5-small-v2", "multilingual-E5-base", "models--intfloat--e5-base/snapshots/abc"] {
            assert!(told(&folder(root.path(), name, None), &none), "{name}");
        }
        for name in ["all-minilm-l6-v2", "ace5", "models--BAAI--bge-small/snapshots/abc"] {
            assert!(!told(&folder(root.path(), name, None), &none), "{name}");
        }
        let bare = folder(root.path(), "bare-e5", Some("{}"));
        let half = EncoderOptions { query_prefix: Some("query: ".to_owned()), ..none.clone() };
        assert!(told(&bare, &none) && told(&bare, &half));
        let meant = EncoderOptions { passage_prefix: Some(String::new()), ..half };
        assert!(!told(&bare, &meant));
        let full = folder(root.path(), "full-e5", Some(r#"{"query": "query: ", "passage": "passage: "}"#));
        assert!(!told(&full, &none));
        assert_eq!(prefixes(&full, &none).unwrap(), ("query: ".to_owned(), "passage: ".to_owned()));
    }
}

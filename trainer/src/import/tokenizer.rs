//! Tokenizer files from GGUF metadata: byte-level BPE with the pre-tokenizers that Llama models use.

use serde_json::{Map, Value, json};

use super::ImportError;
use super::gguf::GgufFile;
use crate::model::ModelConfig;

/// Contents of the files beside the weights.
pub(super) struct TokenizerFiles {
    pub(super) tokenizer: Value,
    pub(super) tokenizer_config: Value,
    pub(super) generation_config: Value,
}

/// GGUF's token types.
const CONTROL: i128 = 3;
const USER_DEFINED: i128 = 4;

/// Makes tokenizer.json, tokenizer_config.json and generation_config.json.
pub(super) fn tokenizer_files(file: &GgufFile, config: &ModelConfig) -> Result<TokenizerFiles, ImportError> {
    let model = file.text("tokenizer.ggml.model")?;
    if model != "gpt2" {
        return Err(file.unsupported("tokenizer", model, "gpt2 (byte-level BPE)"));
    }
    let tokens = file.texts("tokenizer.ggml.tokens")?;
    if tokens.len() != config.vocab_size {
        let reason = format!(
            "expected {} tokens, one a row of the embedding, found {}",
            config.vocab_size,
            tokens.len()
        );
        return Err(file.wrong("tokenizer.ggml.tokens", &reason));
    }
    let mut vocabulary = Map::new();
    for (id, token) in tokens.iter().enumerate() {
        if let Some(other) = vocabulary.insert((*token).to_owned(), json!(id)) {
            return Err(
                file.wrong("tokenizer.ggml.tokens", &format!("{token:?} has the ids {other} and {id}"))
            );
        }
    }
    let types = file.integers("tokenizer.ggml.token_type")?;
    let added: Vec<(usize, &str, bool)> = types
        .iter()
        .zip(&tokens)
        .enumerate()
        .filter(|(_, (kind, _))| [CONTROL, USER_DEFINED].contains(kind))
        .map(|(id, (kind, token))| (id, *token, *kind == CONTROL))
        .collect();
    let merges = file.texts("tokenizer.ggml.merges")?;
    for (line, merge) in merges.iter().enumerate() {
        let whole = merge
            .split_once(' ')
            .is_some_and(|(left, right)| [left, right].iter().all(|part| vocabulary.contains_key(*part)));
        if !whole {
            let reason = format!("merge {line}, {merge:?}: expected two tokens of the vocabulary");
            return Err(file.wrong("tokenizer.ggml.merges", &reason));
        }
    }
    let special = SpecialTokens::read(file, &tokens)?;
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added.iter().map(|(id, token, special)| added_token(*id, token, *special)).collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": pre_tokenizer(file)?,
        "post_processor": post_processor(file, &special)?,
        "decoder": byte_level(true),
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": file.optional_text("tokenizer.ggml.pre")? == Some("llama-bpe"),
            "vocab": vocabulary,
            "merges": merges,
        },
    });
    let mut tokenizer_config = Map::new();
    tokenizer_config.insert("add_prefix_space".into(), json!(false));
    let decoder: Map<String, Value> = added
        .iter()
        .map(|(id, token, special)| {
            let mut entry = added_token(*id, token, *special);
            if let Some(entry) = entry.as_object_mut() {
                entry.shift_remove("id");
            }
            (id.to_string(), entry)
        })
        .collect();
    tokenizer_config.insert("added_tokens_decoder".into(), Value::Object(decoder));
    for (field, token) in [
        ("bos_token", &special.bos),
        ("eos_token", &special.eos),
        ("pad_token", &special.pad),
        ("unk_token", &special.unknown),
    ] {
        if let Some((_, token)) = token {
            tokenizer_config.insert(field.into(), json!(token));
        }
    }
    if let Some(template) = file.optional_text("tokenizer.chat_template")? {
        tokenizer_config.insert("chat_template".into(), json!(template));
    }
    tokenizer_config.insert("clean_up_tokenization_spaces".into(), json!(false));
    tokenizer_config.insert("model_max_length".into(), json!(config.context_length));
    tokenizer_config.insert("tokenizer_class".into(), json!("PreTrainedTokenizerFast"));
    Ok(TokenizerFiles {
        tokenizer,
        tokenizer_config: Value::Object(tokenizer_config),
        generation_config: special.generation_config(),
    })
}

fn added_token(id: usize, token: &str, special: bool) -> Value {
    json!({
        "id": id,
        "content": token,
        "single_word": false,
        "lstrip": false,
        "rstrip": false,
        "normalized": false,
        "special": special,
    })
}

fn byte_level(use_regex: bool) -> Value {
    json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex })
}

/// How text is cut before BPE, by the name that llama.cpp gave it.
fn pre_tokenizer(file: &GgufFile) -> Result<Value, ImportError> {
    match file.text("tokenizer.ggml.pre")? {
        // Digits one by one, then GPT-2's expression.
        "smollm" => Ok(json!({
            "type": "Sequence",
            "pretokenizers": [{ "type": "Digits", "individual_digits": true }, byte_level(true)],
        })),
        "gpt-2" => Ok(byte_level(true)),
        // Llama 3's expression, digits in groups of up to three.
        "llama-bpe" => Ok(json!({
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": { "Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| \
                                           ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
                    "behavior": "Isolated",
                    "invert": false,
                },
                byte_level(false),
            ],
        })),
        other => Err(file.unsupported("pre-tokenizer", other, "smollm, gpt-2, llama-bpe")),
    }
}

/// Puts the first token before every text where the model asks for it.
fn post_processor(file: &GgufFile, special: &SpecialTokens) -> Result<Value, ImportError> {
    let wanted = file.flag("tokenizer.ggml.add_bos_token")?;
    let Some((id, token)) = special.bos.as_ref().filter(|_| wanted) else { return Ok(Value::Null) };
    let first = json!({ "SpecialToken": { "id": token, "type_id": 0 } });
    let text = |name: &str, kind: u32| json!({ "Sequence": { "id": name, "type_id": kind } });
    let mut table = Map::new();
    table.insert(token.clone(), json!({ "id": token, "ids": [id], "tokens": [token] }));
    Ok(json!({
        "type": "TemplateProcessing",
        "single": [first, text("A", 0)],
        "pair": [first, text("A", 0), text("B", 1)],
        "special_tokens": table,
    }))
}

/// The tokens with a role, as `(id, text)`.
struct SpecialTokens {
    bos: Option<(usize, String)>,
    eos: Option<(usize, String)>,
    pad: Option<(usize, String)>,
    unknown: Option<(usize, String)>,
    end_of_turn: Option<(usize, String)>,
}

impl SpecialTokens {
    fn read(file: &GgufFile, tokens: &[&str]) -> Result<Self, ImportError> {
        let read = |role: &str| {
            let key = format!("tokenizer.ggml.{role}_token_id");
            let Some(id) = file.optional_count(&key)? else { return Ok(None) };
            match tokens.get(id) {
                Some(token) => Ok(Some((id, (*token).to_owned()))),
                None => Err(file.wrong(&key, &format!("{id} is no token: there are {}", tokens.len()))),
            }
        };
        Ok(Self {
            bos: read("bos")?,
            eos: read("eos")?,
            pad: read("padding")?,
            unknown: read("unknown")?,
            end_of_turn: read("eot")?,
        })
    }

    fn generation_config(&self) -> Value {
        let mut fields = Map::new();
        fields.insert("_from_model_config".into(), json!(true));
        if let Some((id, _)) = &self.bos {
            fields.insert("bos_token_id".into(), json!(id));
        }
        let mut ends: Vec<usize> =
            [&self.eos, &self.end_of_turn].into_iter().flatten().map(|(id, _)| *id).collect();
        ends.dedup();
        match ends[..] {
            [] => {}
            [single] => drop(fields.insert("eos_token_id".into(), json!(single))),
            _ => drop(fields.insert("eos_token_id".into(), json!(ends))),
        }
        if let Some((id, _)) = &self.pad {
            fields.insert("pad_token_id".into(), json!(id));
        }
        Value::Object(fields)
    }
}

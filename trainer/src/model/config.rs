//! The shape of a model, from a Hugging Face config.json.

use std::path::Path;

use serde_json::{Map, Value};

use super::ModelError;
use super::error::io_error;

/// Which published architecture a model follows; they differ in a few details only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// No biases unless `attention_bias` or `mlp_bias` say so.
    Llama,
    /// Biases on the query, key and value projections.
    Qwen2,
    /// Root-mean-square norms on each head's queries and keys.
    Qwen3,
}

/// How rotary frequencies are stretched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Llama 3.1's: low frequencies divided by `factor`, a smooth transition between two wavelengths.
    Llama3 {
        /// What long wavelengths are multiplied by.
        factor: f64,
        /// Wavelengths beyond `original_context / low` are stretched in full.
        low_frequency_factor: f64,
        /// Wavelengths below `original_context / high` are left alone.
        high_frequency_factor: f64,
        /// Context of the model before stretching, in tokens.
        original_context: f64,
    },
}

/// The shape of a decoder. [`raw`](Self::raw) keeps the whole file, so that saving loses nothing.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of config.json that stands for itself")]
pub struct ModelConfig {
    /// The architecture.
    pub family: Family,
    /// Tokens known.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the gated feed-forward network.
    pub intermediate_size: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Added to the mean square in every norm.
    pub rms_norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// How they are stretched.
    pub rope_scaling: RopeScaling,
    /// Most tokens that a sequence may hold.
    pub context_length: usize,
    /// Whether the output head is the embedding.
    pub tied_head: bool,
    /// Whether query, key and value projections have biases.
    pub qkv_bias: bool,
    /// Whether the attention's output projection has a bias.
    pub output_bias: bool,
    /// Whether the feed-forward projections have biases.
    pub mlp_bias: bool,
    /// Tokens that end generation, from config.json.
    pub eos_token_ids: Vec<u32>,
    /// The file as it was read.
    pub raw: Map<String, Value>,
}

impl ModelConfig {
    /// Reads `config.json`.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let text = std::fs::read_to_string(path).map_err(io_error("read", path))?;
        let value: Value = serde_json::from_str(&text).map_err(|error| ModelError::Config {
            path: path.to_owned(),
            field: ".".into(),
            reason: format!("not JSON: {error}"),
        })?;
        Self::from_json(path, value)
    }

    /// Takes the content of a `config.json`; `path` is for error messages.
    pub fn from_json(path: &Path, value: Value) -> Result<Self, ModelError> {
        let Value::Object(raw) = value else {
            return Err(ModelError::Config {
                path: path.to_owned(),
                field: ".".into(),
                reason: "expected a JSON object".into(),
            });
        };
        let fields = Fields { path, raw: &raw };
        let family = match fields.text("model_type")? {
            "llama" => Family::Llama,
            "qwen2" => Family::Qwen2,
            "qwen3" => Family::Qwen3,
            other => return Err(fields.unsupported("model_type", other, "llama, qwen2, qwen3")),
        };
        match raw.get("hidden_act").and_then(Value::as_str) {
            None | Some("silu") => {}
            Some(other) => return Err(fields.unsupported("hidden_act", other, "silu")),
        }
        if fields.flag("use_sliding_window", false)? {
            return Err(fields.unsupported("use_sliding_window", "true", "false"));
        }
        let hidden_size = fields.count("hidden_size")?;
        let heads = fields.count("num_attention_heads")?;
        let kv_heads = fields.optional_count("num_key_value_heads")?.unwrap_or(heads);
        let head_dim = match fields.optional_count("head_dim")? {
            Some(head_dim) => head_dim,
            None if family == Family::Qwen3 => 128,
            None if hidden_size % heads == 0 => hidden_size / heads,
            None => {
                return Err(fields.wrong(
                    "hidden_size",
                    format!("{hidden_size} is no multiple of num_attention_heads = {heads}, and head_dim is absent"),
                ));
            }
        };
        if heads % kv_heads != 0 {
            let reason = format!("{kv_heads} does not divide num_attention_heads = {heads}");
            return Err(fields.wrong("num_key_value_heads", reason));
        }
        if head_dim % 2 != 0 {
            return Err(
                fields.wrong("head_dim", format!("{head_dim} is odd; rotary positions need an even one"))
            );
        }
        let (rope_theta, rope_scaling) = fields.rope()?;
        let attention_bias = fields.flag("attention_bias", false)?;
        Ok(Self {
            family,
            vocab_size: fields.count("vocab_size")?,
            hidden_size,
            intermediate_size: fields.count("intermediate_size")?,
            layers: fields.count("num_hidden_layers")?,
            heads,
            kv_heads,
            head_dim,
            rms_norm_eps: fields.number("rms_norm_eps", 1e-6)?,
            rope_theta,
            rope_scaling,
            context_length: fields.count("max_position_embeddings")?,
            tied_head: fields.flag("tie_word_embeddings", false)?,
            qkv_bias: family == Family::Qwen2 || attention_bias,
            output_bias: family != Family::Qwen2 && attention_bias,
            mlp_bias: family == Family::Llama && fields.flag("mlp_bias", false)?,
            eos_token_ids: token_ids(raw.get("eos_token_id")).ok_or_else(|| {
                fields.wrong("eos_token_id", "expected a token id or a list of them".into())
            })?,
            raw,
        })
    }

    /// Name and shape of every tensor, in the order of the forward pass; matrices are `[out, in]`.
    pub fn tensor_shapes(&self) -> Vec<(String, Vec<i64>)> {
        let hidden = self.hidden_size as i64;
        let inner = self.intermediate_size as i64;
        let query = (self.heads * self.head_dim) as i64;
        let key = (self.kv_heads * self.head_dim) as i64;
        let mut shapes = vec![("model.embed_tokens.weight".to_owned(), vec![self.vocab_size as i64, hidden])];
        for layer in 0..self.layers {
            let mut add = |name: &str, shape: Vec<i64>| {
                shapes.push((format!("model.layers.{layer}.{name}"), shape));
            };
            add("input_layernorm.weight", vec![hidden]);
            for (name, width) in [("q", query), ("k", key), ("v", key)] {
                add(&format!("self_attn.{name}_proj.weight"), vec![width, hidden]);
                if self.qkv_bias {
                    add(&format!("self_attn.{name}_proj.bias"), vec![width]);
                }
            }
            if self.family == Family::Qwen3 {
                add("self_attn.q_norm.weight", vec![self.head_dim as i64]);
                add("self_attn.k_norm.weight", vec![self.head_dim as i64]);
            }
            add("self_attn.o_proj.weight", vec![hidden, query]);
            if self.output_bias {
                add("self_attn.o_proj.bias", vec![hidden]);
            }
            add("post_attention_layernorm.weight", vec![hidden]);
            for (name, shape) in
                [("gate", [inner, hidden]), ("up", [inner, hidden]), ("down", [hidden, inner])]
            {
                add(&format!("mlp.{name}_proj.weight"), shape.to_vec());
                if self.mlp_bias {
                    add(&format!("mlp.{name}_proj.bias"), vec![shape[0]]);
                }
            }
        }
        shapes.push(("model.norm.weight".to_owned(), vec![hidden]));
        if !self.tied_head {
            shapes.push(("lm_head.weight".to_owned(), vec![self.vocab_size as i64, hidden]));
        }
        shapes
    }
}

/// The ids in a field that holds one id, a list of ids or nothing; none if it holds something else.
pub(crate) fn token_ids(value: Option<&Value>) -> Option<Vec<u32>> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(values)) => values.iter().map(id).collect(),
        Some(single) => Some(vec![id(single)?]),
    }
}

/// Typed access to the fields of a config.json.
struct Fields<'a> {
    path: &'a Path,
    raw: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    fn wrong(&self, field: &str, reason: String) -> ModelError {
        ModelError::Config { path: self.path.to_owned(), field: field.into(), reason }
    }

    fn unsupported(&self, field: &str, found: &str, supported: &str) -> ModelError {
        ModelError::Unsupported {
            path: self.path.to_owned(),
            field: field.into(),
            found: found.into(),
            supported: supported.into(),
        }
    }

    fn text(&self, field: &str) -> Result<&'a str, ModelError> {
        match self.raw.get(field) {
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(self.wrong(field, format!("expected a string, found {other}"))),
            None => Err(self.wrong(field, "is missing".into())),
        }
    }

    fn optional_count(&self, field: &str) -> Result<Option<usize>, ModelError> {
        match self.raw.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64().and_then(|count| usize::try_from(count).ok()) {
                Some(count) if count > 0 && count <= 1 << 31 => Ok(Some(count)),
                _ => Err(self.wrong(field, format!("expected a whole number from 1 to 2^31, found {value}"))),
            },
        }
    }

    fn count(&self, field: &str) -> Result<usize, ModelError> {
        self.optional_count(field)?.ok_or_else(|| self.wrong(field, "is missing".into()))
    }

    fn number(&self, field: &str, default: f64) -> Result<f64, ModelError> {
        positive(self.raw.get(field), default).map_err(|reason| self.wrong(field, reason))
    }

    fn flag(&self, field: &str, default: bool) -> Result<bool, ModelError> {
        match self.raw.get(field) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.wrong(field, format!("expected true or false, found {other}"))),
        }
    }

    /// Base and scaling: `rope_theta` and `rope_scaling` (transformers 4) or `rope_parameters` (transformers 5).
    fn rope(&self) -> Result<(f64, RopeScaling), ModelError> {
        let mut theta = self.number("rope_theta", 10_000.0)?;
        for field in ["rope_scaling", "rope_parameters"] {
            let table = match self.raw.get(field) {
                None | Some(Value::Null) => continue,
                Some(Value::Object(table)) => table,
                Some(other) => {
                    return Err(self.wrong(field, format!("expected an object or null, found {other}")));
                }
            };
            let number = |key: &str, default: f64| {
                positive(table.get(key), default)
                    .map_err(|reason| self.wrong(&format!("{field}.{key}"), reason))
            };
            theta = number("rope_theta", theta)?;
            let kind = table.get("rope_type").or_else(|| table.get("type")).and_then(Value::as_str);
            match kind {
                None | Some("default") => {}
                Some("llama3") => {
                    let needed = |key: &str| {
                        let value = number(key, f64::NAN)?;
                        if value.is_nan() {
                            return Err(self.wrong(&format!("{field}.{key}"), "is missing".into()));
                        }
                        Ok(value)
                    };
                    return Ok((
                        theta,
                        RopeScaling::Llama3 {
                            factor: needed("factor")?,
                            low_frequency_factor: needed("low_freq_factor")?,
                            high_frequency_factor: needed("high_freq_factor")?,
                            original_context: needed("original_max_position_embeddings")?,
                        },
                    ));
                }
                Some(other) => {
                    return Err(self.unsupported(&format!("{field}.rope_type"), other, "default, llama3"));
                }
            }
        }
        Ok((theta, RopeScaling::None))
    }
}

fn positive(value: Option<&Value>, default: f64) -> Result<f64, String> {
    match value {
        None | Some(Value::Null) => Ok(default),
        Some(value) => match value.as_f64() {
            Some(number) if number > 0.0 && number.is_finite() => Ok(number),
            _ => Err(format!("expected a positive number, found {value}")),
        },
    }
}

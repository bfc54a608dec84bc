use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};

use crate::encoder::error::EncoderError;
use crate::encoder::settings::ModelConfig;

/// A linear layer, `x · weight + bias`; `weight` has the shape `[in, out]`.
pub(super) struct Linear {
    pub(super) weight: Tensor,
    pub(super) bias: Vec<f32>,
}

pub(super) struct Norm {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
}

pub(super) struct Layer {
    /// Query, key and value side by side, `[hidden, 3 * hidden]`: one product instead of three.
    pub(super) qkv: Linear,
    pub(super) attention_out: Linear,
    pub(super) attention_norm: Norm,
    pub(super) intermediate: Linear,
    pub(super) output: Linear,
    pub(super) output_norm: Norm,
}

pub(super) struct Weights {
    hidden: usize,
    words: Vec<f32>,
    /// Position and token type 0, added once and for all.
    positions: Vec<f32>,
    pub(super) embedding_norm: Norm,
    pub(super) layers: Vec<Layer>,
}

impl Weights {
    pub(super) fn from_safetensors(
        bytes: &[u8],
        path: &Path,
        config: &ModelConfig,
    ) -> Result<Self, EncoderError> {
        let tensors = candle_core::safetensors::load_buffer(bytes, &Device::Cpu)
            .map_err(|error| EncoderError::Malformed { path: path.to_owned(), reason: error.to_string() })?;
        let prefix =
            if tensors.contains_key("bert.embeddings.word_embeddings.weight") { "bert." } else { "" };
        let file = File { tensors, path, prefix };
        let hidden = config.hidden_size;
        let wide = config.intermediate_size;

        let embeddings = "embeddings";
        let words =
            file.flat(&format!("{embeddings}.word_embeddings.weight"), &[config.vocab_size, hidden])?;
        let shape = [config.max_position_embeddings, hidden];
        let mut positions = file.flat(&format!("{embeddings}.position_embeddings.weight"), &shape)?;
        let types = file
            .flat(&format!("{embeddings}.token_type_embeddings.weight"), &[config.type_vocab_size, hidden])?;
        for row in positions.chunks_exact_mut(hidden) {
            for (x, t) in row.iter_mut().zip(&types) {
                *x += t;
            }
        }
        let layers = (0..config.num_hidden_layers)
            .map(|number| {
                let name = |part: &str| format!("encoder.layer.{number}.{part}");
                let part = |part: &str| file.linear(&name(&format!("attention.self.{part}")), hidden, hidden);
                let (query, key, value) = (part("query")?, part("key")?, part("value")?);
                let weight = Tensor::cat(&[&query.weight, &key.weight, &value.weight], 1)?.contiguous()?;
                Ok(Layer {
                    qkv: Linear { weight, bias: [query.bias, key.bias, value.bias].concat() },
                    attention_out: file.linear(&name("attention.output.dense"), hidden, hidden)?,
                    attention_norm: file.norm(&name("attention.output.LayerNorm"), hidden)?,
                    intermediate: file.linear(&name("intermediate.dense"), hidden, wide)?,
                    output: file.linear(&name("output.dense"), wide, hidden)?,
                    output_norm: file.norm(&name("output.LayerNorm"), hidden)?,
                })
            })
            .collect::<Result<Vec<_>, EncoderError>>()?;
        let embedding_norm = file.norm(&format!("{embeddings}.LayerNorm"), hidden)?;
        Ok(Self { hidden, words, positions, embedding_norm, layers })
    }

    /// Appends the embedding of one token; both arguments are in range by the checks at loading.
    pub(super) fn embed(&self, id: u32, position: usize, out: &mut Vec<f32>) {
        let word = &self.words[id as usize * self.hidden..][..self.hidden];
        let place = &self.positions[position * self.hidden..][..self.hidden];
        out.extend(word.iter().zip(place).map(|(a, b)| a + b));
    }
}

struct File<'a> {
    tensors: HashMap<String, Tensor>,
    path: &'a Path,
    prefix: &'static str,
}

impl File<'_> {
    fn tensor(&self, name: &str, expected: &[usize]) -> Result<Tensor, EncoderError> {
        let name = format!("{}{name}", self.prefix);
        let found = self.tensors.get(&name).filter(|tensor| tensor.dims() == expected).ok_or_else(|| {
            let found =
                self.tensors.get(&name).map_or("none".to_owned(), |tensor| format!("{:?}", tensor.dims()));
            EncoderError::Weight { path: self.path.to_owned(), name, expected: expected.to_vec(), found }
        })?;
        Ok(found.to_dtype(DType::F32)?)
    }

    fn flat(&self, name: &str, expected: &[usize]) -> Result<Vec<f32>, EncoderError> {
        Ok(self.tensor(name, expected)?.flatten_all()?.to_vec1()?)
    }

    fn linear(&self, name: &str, input: usize, output: usize) -> Result<Linear, EncoderError> {
        let weight = self.tensor(&format!("{name}.weight"), &[output, input])?.t()?.contiguous()?;
        Ok(Linear { weight, bias: self.flat(&format!("{name}.bias"), &[output])? })
    }

    fn norm(&self, name: &str, width: usize) -> Result<Norm, EncoderError> {
        let weight = self.flat(&format!("{name}.weight"), &[width])?;
        Ok(Norm { weight, bias: self.flat(&format!("{name}.bias"), &[width])? })
    }
}

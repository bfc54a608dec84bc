//! The forward pass for training: right-padded batches, no cache, differentiable.
//!
//! Shapes: `b` sequences, `t` tokens, width `h`. Padding at the right needs no mask of its own: causal attention
//! never looks right, and the caller ignores what padded positions give.

use std::f64::consts::TAU;

use tch::{Kind, Tensor};

use super::config::{ModelConfig, RopeScaling};
use super::decoder::{Decoder, LoadOptions};

impl Decoder {
    /// Embeds token ids: `[b, t]` (Int64) → `[b, t, h]` in the compute kind.
    pub fn embed(&self, ids: &Tensor) -> Tensor {
        let weight = self.parameters.expect("model.embed_tokens.weight");
        Tensor::embedding(weight, ids, -1, false, false).to_kind(self.options.compute)
    }

    /// Runs one layer on whole sequences that start at position 0: `[b, t, h]` → `[b, t, h]`.
    ///
    /// Layers are called one by one so that a trainer can keep only their inputs and recompute the rest.
    pub fn layer(&self, index: usize, hidden: &Tensor) -> Tensor {
        let prefix = format!("model.layers.{index}");
        let normed = self.norm(&format!("{prefix}.input_layernorm.weight"), hidden);
        let hidden = hidden + self.attention(&prefix, &normed);
        let normed = self.norm(&format!("{prefix}.post_attention_layernorm.weight"), &hidden);
        let gate = self.linear(&format!("{prefix}.mlp.gate_proj"), &normed).silu();
        let inner = gate * self.linear(&format!("{prefix}.mlp.up_proj"), &normed);
        hidden + self.linear(&format!("{prefix}.mlp.down_proj"), &inner)
    }

    /// The norm after the last layer, of any leading shape: `[…, h]` → `[…, h]`.
    pub fn final_norm(&self, hidden: &Tensor) -> Tensor {
        self.norm("model.norm.weight", hidden)
    }

    /// Embedding, all layers and the final norm: `[b, t]` → `[b, t, h]`.
    pub fn hidden_states(&self, ids: &Tensor) -> Tensor {
        let mut hidden = self.embed(ids);
        for index in 0..self.config.layers {
            hidden = self.layer(index, &hidden);
        }
        self.final_norm(&hidden)
    }

    /// Scores of the next token at the rows given, after the final norm: `[n, h]` → `[n, vocabulary]`, f32.
    ///
    /// The vocabulary makes this the largest tensor of a training step: call it on the rows that need it only.
    pub fn logits(&self, rows: &Tensor) -> Tensor {
        let name = if self.config.tied_head { "model.embed_tokens.weight" } else { "lm_head.weight" };
        rows.linear(&self.in_compute(name), None::<&Tensor>).to_kind(Kind::Float)
    }

    /// Applies a projection by module name (`model.layers.3.self_attn.q_proj`), with its adapter if one is attached.
    pub fn linear(&self, module: &str, input: &Tensor) -> Tensor {
        let weight = self.in_compute(&format!("{module}.weight"));
        let bias_name = format!("{module}.bias");
        let bias = self.parameters.get(&bias_name).map(|_| self.in_compute(&bias_name));
        let output = input.linear(&weight, bias.as_ref());
        match self.lora.as_ref().and_then(|lora| lora.pair(module).map(|pair| lora.apply(pair, input))) {
            Some(low_rank) => output + low_rank.to_kind(self.options.compute),
            None => output,
        }
    }

    /// Causal self-attention: `[b, t, h]` → `[b, t, h]`.
    fn attention(&self, prefix: &str, input: &Tensor) -> Tensor {
        let config = &self.config;
        let (heads, kv_heads, head_dim) =
            (config.heads as i64, config.kv_heads as i64, config.head_dim as i64);
        let (batch, time) = (input.size()[0], input.size()[1]);
        let project = |name: &str, heads: i64| {
            let output = self.linear(&format!("{prefix}.self_attn.{name}_proj"), input);
            output.reshape([batch, time, heads, head_dim])
        };
        let (mut query, mut key) = (project("q", heads), project("k", kv_heads));
        if config.family == super::Family::Qwen3 {
            query = self.norm(&format!("{prefix}.self_attn.q_norm.weight"), &query);
            key = self.norm(&format!("{prefix}.self_attn.k_norm.weight"), &key);
        }
        // [1, t, 1, head_dim / 2], to match [b, t, heads, head_dim / 2]
        let (cos, sin) = self.rotary.borrow_mut().first(time);
        let (cos, sin) = (cos.view([1, time, 1, -1]), sin.view([1, time, 1, -1]));
        let query = rotate(&query, &cos, &sin).transpose(1, 2);
        let key = rotate(&key, &cos, &sin).transpose(1, 2);
        let value = project("v", kv_heads).transpose(1, 2);
        // The fused kernel wants as many key as query heads; head i reads key head i / (heads / kv_heads).
        let spread = |tensor: Tensor| {
            if heads == kv_heads {
                return tensor;
            }
            tensor
                .unsqueeze(2)
                .expand([batch, kv_heads, heads / kv_heads, time, head_dim], false)
                .reshape([batch, heads, time, head_dim])
        };
        let (key, value) = (spread(key), spread(value));
        let mixed = Tensor::scaled_dot_product_attention(
            &query,
            &key,
            &value,
            None::<&Tensor>,
            0.0,
            true,
            None,
            false,
        );
        let mixed = mixed.transpose(1, 2).reshape([batch, time, heads * head_dim]);
        self.linear(&format!("{prefix}.self_attn.o_proj"), &mixed)
    }

    fn norm(&self, name: &str, input: &Tensor) -> Tensor {
        rms_norm(input, self.parameters.expect(name), self.config.rms_norm_eps)
    }

    /// A master parameter in the compute kind; differentiable where the master is.
    fn in_compute(&self, name: &str) -> Tensor {
        self.parameters.expect(name).to_kind(self.options.compute)
    }
}

/// Root-mean-square norm over the last dimension, computed in f32 whatever the kind of the input (Zhang and
/// Sennrich, 2019): `x / sqrt(mean(x²) + eps) · weight`. The result has the input's kind.
pub(super) fn rms_norm(input: &Tensor, weight: &Tensor, eps: f64) -> Tensor {
    let kind = input.kind();
    let wide = input.to_kind(Kind::Float);
    let scale = (wide.square().mean_dim(&[-1i64][..], true, None) + eps).rsqrt();
    (wide * scale).to_kind(kind) * weight.to_kind(kind)
}

/// Rotates pairs `(i, i + head_dim/2)` by their position's angle (Su et al., 2021, in the half-split layout of
/// Hugging Face): `[…, head_dim]` with `cos` and `sin` that broadcast to `[…, head_dim / 2]`.
pub(super) fn rotate(input: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    let half = input.size().last().copied().unwrap_or(0) / 2;
    let (low, high) = (input.narrow(-1, 0, half), input.narrow(-1, half, half));
    Tensor::cat(&[&low * cos - &high * sin, &high * cos + &low * sin], -1)
}

/// Cosines and sines of the rotary angles, computed as far as they were needed so far.
#[derive(Debug)]
pub(super) struct RotaryTable {
    /// Angle by which each pair turns from one position to the next, `[head_dim / 2]`.
    frequencies: Vec<f32>,
    options: LoadOptions,
    /// `[positions, head_dim / 2]` in the compute kind.
    cos: Tensor,
    sin: Tensor,
    positions: i64,
}

impl RotaryTable {
    pub(super) fn new(config: &ModelConfig, options: LoadOptions) -> Self {
        let empty = || Tensor::zeros([0, (config.head_dim / 2) as i64], (options.compute, options.device));
        Self { frequencies: frequencies(config), options, cos: empty(), sin: empty(), positions: 0 }
    }

    /// The tables for positions `0..count`, each `[count, head_dim / 2]`.
    pub(super) fn first(&mut self, count: i64) -> (Tensor, Tensor) {
        self.grow(count);
        (self.cos.narrow(0, 0, count), self.sin.narrow(0, 0, count))
    }

    /// The tables for the positions given, all below `bound`: `[n]` → `[n, head_dim / 2]` each.
    pub(super) fn at(&mut self, positions: &Tensor, bound: i64) -> (Tensor, Tensor) {
        self.grow(bound);
        (self.cos.index_select(0, positions), self.sin.index_select(0, positions))
    }

    fn grow(&mut self, count: i64) {
        if count <= self.positions {
            return;
        }
        let _guard = tch::no_grad_guard();
        let count = (count as u64).next_power_of_two().max(256) as i64;
        let place = (Kind::Float, self.options.device);
        let frequencies = Tensor::from_slice(&self.frequencies).to_device(self.options.device);
        let angles = Tensor::arange(count, place).unsqueeze(1) * frequencies.unsqueeze(0);
        self.cos = angles.cos().to_kind(self.options.compute);
        self.sin = angles.sin().to_kind(self.options.compute);
        self.positions = count;
    }
}

/// `theta^(-2i / head_dim)` for `i` in `0..head_dim/2`, stretched as the configuration says, in f32 as the models
/// were trained with.
fn frequencies(config: &ModelConfig) -> Vec<f32> {
    let dim = config.head_dim;
    (0..dim / 2)
        .map(|pair| {
            let exponent = (2 * pair) as f32 / dim as f32;
            let frequency = 1.0 / (config.rope_theta as f32).powf(exponent);
            match config.rope_scaling {
                RopeScaling::None => frequency,
                RopeScaling::Llama3 {
                    factor,
                    low_frequency_factor: low,
                    high_frequency_factor: high,
                    original_context,
                } => {
                    let wavelength = TAU / f64::from(frequency);
                    if wavelength < original_context / high {
                        frequency
                    } else if wavelength > original_context / low {
                        (f64::from(frequency) / factor) as f32
                    } else {
                        let smooth = (original_context / wavelength - low) / (high - low);
                        let frequency = f64::from(frequency);
                        ((1.0 - smooth) * frequency / factor + smooth * frequency) as f32
                    }
                }
            }
        })
        .collect()
}

//! The forward pass for sampling: packed tokens, a key/value cache, no gradients.

use tch::{Kind, Tensor};

use super::config::Family;
use super::decoder::Decoder;
use super::forward::rotate;

/// Where keys and values of earlier tokens are kept. The layout is the sampler's own affair.
pub trait KeyValueCache {
    /// Stores the new tokens' keys and values, then lets each new token attend to itself and to all tokens before it
    /// in its sequence.
    ///
    /// `query` is `[n, heads, head_dim]`, `key` and `value` are `[n, kv_heads, head_dim]`, rotated already; the result
    /// is `[n, heads * head_dim]`. They may be strided, with the last dimension dense.
    fn attend(&mut self, layer: usize, query: &Tensor, key: &Tensor, value: &Tensor) -> Tensor;
}

/// Weights as the sampler reads them: in the compute kind, `q, k, v` in one matrix and `gate, up` in another, so that a
/// step has fewer and larger products. In f32 an adapter is merged; in bf16 it stands beside the matrix, as in training,
/// since rounding would swallow most of what a young adapter adds.
///
/// In f32 without an adapter they *are* the master parameters: those lie side by side in one storage, of which both
/// are views, so nothing is copied and nothing can go stale. Otherwise they are copies, which
/// [`Decoder::refresh_compute_copies`] drops after the masters changed.
#[derive(Debug)]
pub struct ComputeCopies {
    embedding: Tensor,
    layers: Vec<LayerCopies>,
    final_norm: Tensor,
    head: Tensor,
}

#[derive(Debug)]
struct LayerCopies {
    input_norm: Tensor,
    qkv: Projection,
    head_norms: Option<(Tensor, Tensor)>,
    output: Projection,
    mlp_norm: Tensor,
    gate_up: Projection,
    down: Projection,
}

/// One or more linear maps of the same input as one.
#[derive(Debug)]
struct Projection {
    /// `[out, in]`.
    weight: Tensor,
    /// `[out]`.
    bias: Option<Tensor>,
    low_rank: Vec<LowRank>,
}

/// An adapter that is not merged.
#[derive(Debug)]
struct LowRank {
    /// Its rows of the output.
    start: i64,
    /// `[rank, in]` and, scaled, `[rows, rank]`, f32.
    down: Tensor,
    up: Tensor,
}

impl Decoder {
    /// To be called after the masters or the adapter changed: the next sampling step reads the new values.
    pub fn refresh_compute_copies(&mut self) {
        self.copies = None;
    }

    /// Runs tokens of any number of sequences, packed one after another, after what the cache holds.
    ///
    /// `ids` and `positions` are `[n]`, Int64, on the device; positions lie below `bound`. The result is `[n, hidden]`,
    /// after the final norm.
    pub fn forward_cached(
        &mut self,
        ids: &Tensor,
        positions: &Tensor,
        bound: i64,
        cache: &mut dyn KeyValueCache,
    ) -> Tensor {
        let _guard = tch::no_grad_guard();
        if self.copies.is_none() {
            self.copies = Some(self.make_copies());
        }
        let Some(copies) = &self.copies else { unreachable!("made above") };
        let config = &self.config;
        let eps = config.rms_norm_eps;
        let (heads, kv_heads) = (config.heads as i64, config.kv_heads as i64);
        let head_dim = config.head_dim as i64;
        let inner = config.intermediate_size as i64;
        let count = ids.size()[0];
        let (cos, sin) = self.rotary.borrow_mut().at(positions, bound);
        let (cos, sin) = (cos.unsqueeze(1), sin.unsqueeze(1));

        let mut hidden = copies.embedding.index_select(0, ids);
        for (index, layer) in copies.layers.iter().enumerate() {
            let normed = norm(&hidden, &layer.input_norm, eps);
            let qkv = layer.qkv.apply(&normed).contiguous();
            let qkv = qkv.view([count, heads + 2 * kv_heads, head_dim]);
            let value = qkv.narrow(1, heads + kv_heads, kv_heads);
            let rotated = match &layer.head_norms {
                None => rotate(&qkv.narrow(1, 0, heads + kv_heads), &cos, &sin),
                Some((query_norm, key_norm)) => {
                    let query = norm(&qkv.narrow(1, 0, heads), query_norm, eps);
                    let key = norm(&qkv.narrow(1, heads, kv_heads), key_norm, eps);
                    rotate(&Tensor::cat(&[query, key], 1), &cos, &sin)
                }
            };
            let (query, key) = (rotated.narrow(1, 0, heads), rotated.narrow(1, heads, kv_heads));
            let mixed = cache.attend(index, &query, &key, &value);
            let _ = hidden.g_add_(&layer.output.apply(&mixed));

            let normed = norm(&hidden, &layer.mlp_norm, eps);
            let transposed = count <= SMALL && layer.gate_up.is_plain() && layer.down.is_plain();
            let out = if transposed {
                let gate_up = layer.gate_up.apply_transposed(&normed.tr());
                let mut gated = gate_up.narrow(0, 0, inner).silu_();
                let _ = gated.g_mul_(&gate_up.narrow(0, inner, inner));
                layer.down.apply_transposed(&gated).tr()
            } else {
                let gate_up = layer.gate_up.apply(&normed);
                let mut gated = gate_up.narrow(1, 0, inner).silu_();
                let _ = gated.g_mul_(&gate_up.narrow(1, inner, inner));
                layer.down.apply(&gated)
            };
            let _ = hidden.g_add_(&out);
        }
        norm(&hidden, &copies.final_norm, eps)
    }

    /// Scores of the next token from what [`forward_cached`](Self::forward_cached) gave: `[n, hidden]` →
    /// `[n, vocabulary]`, f32, no gradients.
    pub fn logits_cached(&self, hidden: &Tensor) -> Tensor {
        let _guard = tch::no_grad_guard();
        match &self.copies {
            // The head is the largest matrix of all, so here it tells most: for 8 rows half of the time.
            Some(copies) if hidden.size()[0] <= SMALL => {
                copies.head.matmul(&hidden.tr()).tr().to_kind(Kind::Float)
            }
            Some(copies) => hidden.linear(&copies.head, None::<&Tensor>).to_kind(Kind::Float),
            None => self.logits(hidden),
        }
    }

    fn make_copies(&self) -> ComputeCopies {
        let layers =
            (0..self.config.layers).map(|index| self.copy_layer(&format!("model.layers.{index}"))).collect();
        let embedding = self.cast("model.embed_tokens.weight");
        let head =
            if self.config.tied_head { embedding.shallow_clone() } else { self.cast("lm_head.weight") };
        ComputeCopies { embedding, layers, final_norm: self.cast("model.norm.weight"), head }
    }

    fn copy_layer(&self, prefix: &str) -> LayerCopies {
        let attention = |name: &str| format!("{prefix}.self_attn.{name}");
        let mlp = |name: &str| format!("{prefix}.mlp.{name}");
        let qkv = ["q_proj", "k_proj", "v_proj"].map(attention);
        let gate_up = ["gate_proj", "up_proj"].map(mlp);
        let head_norms = (self.config.family == Family::Qwen3)
            .then(|| (self.cast(&attention("q_norm.weight")), self.cast(&attention("k_norm.weight"))));
        LayerCopies {
            input_norm: self.cast(&format!("{prefix}.input_layernorm.weight")),
            qkv: self.projection(&qkv),
            head_norms,
            output: self.projection(&[attention("o_proj")]),
            mlp_norm: self.cast(&format!("{prefix}.post_attention_layernorm.weight")),
            gate_up: self.projection(&gate_up),
            down: self.projection(&[mlp("down_proj")]),
        }
    }

    fn cast(&self, name: &str) -> Tensor {
        self.parameters.expect(name).detach().to_kind(self.options.compute)
    }

    /// The maps of modules that share one storage as one.
    fn projection(&self, modules: &[String]) -> Projection {
        let names =
            |what: &str| -> Vec<String> { modules.iter().map(|module| format!("{module}.{what}")).collect() };
        let biases = names("bias");
        let bias =
            self.parameters.get(&biases[0]).map(|_| self.fused_view(&biases).to_kind(self.options.compute));
        let weights = names("weight");
        let adapters: Vec<_> = modules
            .iter()
            .map(|module| self.lora.as_ref().and_then(|lora| Some((lora, lora.pair(module)?))))
            .collect();
        if adapters.iter().all(Option::is_none) {
            let weight = self.fused_view(&weights).to_kind(self.options.compute);
            return Projection { weight, bias, low_rank: Vec::new() };
        }
        if self.options.compute == Kind::Float {
            let parts: Vec<Tensor> = weights
                .iter()
                .zip(&adapters)
                .map(|(name, adapter)| {
                    let base = self.parameters.expect(name).detach();
                    match adapter {
                        Some((lora, pair)) => base + lora.delta_of(pair),
                        None => base,
                    }
                })
                .collect();
            return Projection { weight: Tensor::cat(&parts, 0), bias, low_rank: Vec::new() };
        }
        let mut low_rank = Vec::new();
        let mut start = 0;
        for (name, adapter) in weights.iter().zip(&adapters) {
            if let Some((lora, pair)) = adapter {
                let (down, up) = (pair.a.detach(), pair.b.detach() * lora.scale());
                low_rank.push(LowRank { start, down, up });
            }
            start += self.parameters.expect(name).size()[0];
        }
        Projection { weight: self.fused_view(&weights).to_kind(self.options.compute), bias, low_rank }
    }

    /// One tensor over the storage that these parameters share, in this order along dimension 0.
    fn fused_view(&self, names: &[String]) -> Tensor {
        let first = self.parameters.expect(&names[0]).detach();
        let mut size = first.size();
        size[0] = names.iter().map(|name| self.parameters.expect(name).size()[0]).sum();
        first.as_strided(&size, first.stride(), None)
    }
}

/// Up to so many tokens, products are computed as `W Xᵀ`: the library then repacks the few tokens instead of the whole
/// matrix, which takes a tenth to a quarter of the time off.
const SMALL: i64 = 64;

impl Projection {
    /// Without adapters beside the matrix.
    fn is_plain(&self) -> bool {
        self.low_rank.is_empty()
    }

    /// `[n, in]` → `[n, out]`, which may be stored the other way round.
    fn apply(&self, input: &Tensor) -> Tensor {
        let output = if input.size()[0] <= SMALL {
            self.apply_transposed(&input.tr()).tr()
        } else {
            input.linear(&self.weight, self.bias.as_ref())
        };
        if !self.is_plain() {
            let wide = input.to_kind(Kind::Float);
            for part in &self.low_rank {
                let added = wide.linear(&part.down, None::<&Tensor>).linear(&part.up, None::<&Tensor>);
                let mut rows = output.narrow(1, part.start, part.up.size()[0]);
                let _ = rows.g_add_(&added.to_kind(output.kind()));
            }
        }
        output
    }

    /// `[in, n]` → `[out, n]`, without the adapters.
    fn apply_transposed(&self, input: &Tensor) -> Tensor {
        match &self.bias {
            None => self.weight.matmul(input),
            Some(bias) => self.weight.matmul(input) + bias.unsqueeze(1),
        }
    }
}

/// [`rms_norm`](super::forward::rms_norm) with fewer passes over the input, for want of gradients.
fn norm(input: &Tensor, weight: &Tensor, eps: f64) -> Tensor {
    let width = input.size().last().copied().unwrap_or(1) as f64;
    let wide = input.to_kind(Kind::Float);
    let mut scale = wide.norm_scalaropt_dim(2, &[-1i64][..], true).square_();
    let _ = scale.g_mul_scalar_(1.0 / width);
    let _ = scale.g_add_scalar_(eps);
    let mut output = (wide * scale.rsqrt_()).to_kind(input.kind());
    let _ = output.g_mul_(weight);
    output
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    /// An adapter that rounding would swallow: ±1 in bf16 has steps of 2⁻⁷, and half a step is more than 0.001.
    #[test]
    fn a_small_adapter_is_not_rounded_away() {
        let place = (Kind::Float, Device::Cpu);
        let signs: Vec<f32> = (0..64).map(|index| if index % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let weight = Tensor::from_slice(&signs).unsqueeze(0).repeat([4, 1]).to_kind(Kind::BFloat16);
        let part =
            LowRank { start: 1, down: Tensor::ones([1, 64], place), up: Tensor::full([2, 1], 0.001, place) };
        let projection = Projection { weight, bias: None, low_rank: vec![part] };
        for count in [3, SMALL + 1] {
            let input = Tensor::ones([count, 64], (Kind::BFloat16, Device::Cpu));
            let output = projection.apply(&input).to_kind(Kind::Float);
            let row = Vec::<f32>::try_from(output.get(count - 1)).unwrap();
            assert!(row[0] == 0.0 && row[3] == 0.0, "{row:?}");
            assert!((row[1] - 0.064).abs() < 4e-4 && (row[2] - 0.064).abs() < 4e-4, "{row:?}");
        }
    }
}

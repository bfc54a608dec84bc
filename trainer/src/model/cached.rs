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

/// Weights as the sampler reads them: in the compute kind, adapter merged, `q, k, v` in one matrix and `gate, up` in
/// another, so that a step has fewer and larger products.
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
    qkv: Tensor,
    qkv_bias: Option<Tensor>,
    head_norms: Option<(Tensor, Tensor)>,
    output: Tensor,
    output_bias: Option<Tensor>,
    mlp_norm: Tensor,
    gate_up: Tensor,
    gate_up_bias: Option<Tensor>,
    down: Tensor,
    down_bias: Option<Tensor>,
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
            let qkv = apply(&layer.qkv, layer.qkv_bias.as_ref(), &normed);
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
            let out = apply_strided(&layer.output, layer.output_bias.as_ref(), &mixed);
            let _ = hidden.g_add_(&out);

            let normed = norm(&hidden, &layer.mlp_norm, eps);
            let out = if count <= SMALL {
                let gate_up = apply_transposed(&layer.gate_up, layer.gate_up_bias.as_ref(), &normed.tr());
                let mut gated = gate_up.narrow(0, 0, inner).silu_();
                let _ = gated.g_mul_(&gate_up.narrow(0, inner, inner));
                apply_transposed(&layer.down, layer.down_bias.as_ref(), &gated).tr()
            } else {
                let gate_up = normed.linear(&layer.gate_up, layer.gate_up_bias.as_ref());
                let mut gated = gate_up.narrow(1, 0, inner).silu_();
                let _ = gated.g_mul_(&gate_up.narrow(1, inner, inner));
                gated.linear(&layer.down, layer.down_bias.as_ref())
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
            qkv: self.fused_weight(&qkv),
            qkv_bias: self.fused_bias(&qkv),
            head_norms,
            output: self.fused_weight(&[attention("o_proj")]),
            output_bias: self.fused_bias(&[attention("o_proj")]),
            mlp_norm: self.cast(&format!("{prefix}.post_attention_layernorm.weight")),
            gate_up: self.fused_weight(&gate_up),
            gate_up_bias: self.fused_bias(&gate_up),
            down: self.fused_weight(&[mlp("down_proj")]),
            down_bias: self.fused_bias(&[mlp("down_proj")]),
        }
    }

    fn cast(&self, name: &str) -> Tensor {
        self.parameters.expect(name).detach().to_kind(self.options.compute)
    }

    /// The matrices of modules that share one storage as one matrix, adapter added.
    fn fused_weight(&self, modules: &[String]) -> Tensor {
        let names: Vec<String> = modules.iter().map(|module| format!("{module}.weight")).collect();
        let adapted =
            self.lora.as_ref().is_some_and(|lora| modules.iter().any(|module| lora.pair(module).is_some()));
        if !adapted {
            return self.fused_view(&names).to_kind(self.options.compute);
        }
        let parts: Vec<Tensor> = modules
            .iter()
            .zip(&names)
            .map(|(module, name)| {
                let base = self.parameters.expect(name).detach();
                match self.lora.as_ref().and_then(|lora| lora.pair(module).map(|pair| lora.delta_of(pair))) {
                    Some(delta) => base + delta,
                    None => base,
                }
            })
            .collect();
        Tensor::cat(&parts, 0).to_kind(self.options.compute)
    }

    fn fused_bias(&self, modules: &[String]) -> Option<Tensor> {
        let names: Vec<String> = modules.iter().map(|module| format!("{module}.bias")).collect();
        self.parameters.get(&names[0])?;
        Some(self.fused_view(&names).to_kind(self.options.compute))
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

/// A projection of `[n, in]` to `[n, out]`.
fn apply(weight: &Tensor, bias: Option<&Tensor>, input: &Tensor) -> Tensor {
    apply_strided(weight, bias, input).contiguous()
}

/// [`apply`] whose result may be stored the other way round.
fn apply_strided(weight: &Tensor, bias: Option<&Tensor>, input: &Tensor) -> Tensor {
    if input.size()[0] <= SMALL {
        apply_transposed(weight, bias, &input.tr()).tr()
    } else {
        input.linear(weight, bias)
    }
}

/// A projection of `[in, n]` to `[out, n]`.
fn apply_transposed(weight: &Tensor, bias: Option<&Tensor>, input: &Tensor) -> Tensor {
    match bias {
        None => weight.matmul(input),
        Some(bias) => weight.matmul(input) + bias.unsqueeze(1),
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

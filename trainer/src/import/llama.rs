//! The architecture `llama` in GGUF: configuration, names and the order of query and key rows.

use serde_json::json;
use tch::{Device, Kind, Tensor};

use super::ImportError;
use super::gguf::GgufFile;
use crate::model::{ModelConfig, ModelError};

/// config.json from the metadata.
pub(super) fn config(file: &GgufFile) -> Result<ModelConfig, ImportError> {
    let architecture = file.text("general.architecture")?;
    if architecture != "llama" {
        return Err(file.unsupported("architecture", architecture, "llama"));
    }
    if let Some(scaling) = file.optional_text("llama.rope.scaling.type")?.filter(|scaling| *scaling != "none")
    {
        return Err(file.unsupported("rope scaling", scaling, "none"));
    }
    if file.optional_count("llama.expert_count")?.is_some_and(|experts| experts > 0) {
        return Err(file.unsupported("a mixture of experts", "llama.expert_count", "dense models"));
    }
    let embedding = file
        .tensors()
        .iter()
        .find(|tensor| tensor.name == "token_embd.weight")
        .ok_or_else(|| file.unsupported("a model without", "token_embd.weight", "whole models"))?;
    let hidden_size = file.count("llama.embedding_length")?;
    let heads = file.count("llama.attention.head_count")?;
    let default_head_dim = hidden_size.checked_div(heads).unwrap_or(0);
    let head_dim = file.optional_count("llama.attention.key_length")?.unwrap_or(default_head_dim);
    let rotated = file.optional_count("llama.rope.dimension_count")?.unwrap_or(head_dim);
    if rotated != head_dim {
        return Err(file.unsupported(
            "rope over a part of the head",
            &rotated.to_string(),
            &head_dim.to_string(),
        ));
    }
    let tied = !file.tensors().iter().any(|tensor| tensor.name == "output.weight");
    let epsilon = file
        .optional_number("llama.attention.layer_norm_rms_epsilon")?
        .ok_or_else(|| file.wrong("llama.attention.layer_norm_rms_epsilon", "is missing"))?;
    let raw = json!({
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": false,
        "attention_dropout": 0.0,
        "bos_token_id": file.optional_count("tokenizer.ggml.bos_token_id")?,
        "eos_token_id": file.optional_count("tokenizer.ggml.eos_token_id")?,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "hidden_size": hidden_size,
        "initializer_range": 1.0 / (hidden_size.max(1) as f64).sqrt(),
        "intermediate_size": file.count("llama.feed_forward_length")?,
        "max_position_embeddings": file.count("llama.context_length")?,
        "mlp_bias": false,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": file.count("llama.block_count")?,
        "num_key_value_heads": file.optional_count("llama.attention.head_count_kv")?.unwrap_or(heads),
        "pad_token_id": file.optional_count("tokenizer.ggml.padding_token_id")?,
        "pretraining_tp": 1,
        "rms_norm_eps": shortest(epsilon),
        "rope_scaling": null,
        "rope_theta": shortest(file.optional_number("llama.rope.freq_base")?.unwrap_or(10_000.0)),
        "tie_word_embeddings": tied,
        "use_cache": true,
        "vocab_size": embedding.shape[0],
    });
    Ok(ModelConfig::from_json(file.path(), raw)?)
}

/// The decimal number that was meant: GGUF keeps these as f32, and 1e-5 should not become 9.999999747378752e-6.
fn shortest(number: f64) -> f64 {
    (number as f32).to_string().parse().unwrap_or(number)
}

/// Every tensor under its Hugging Face name, f32, in the order of the forward pass.
pub(super) fn tensors(file: &GgufFile, config: &ModelConfig) -> Result<Vec<(String, Tensor)>, ImportError> {
    if let Some(extra) = file.tensors().iter().find(|tensor| tensor.name == "rope_freqs.weight") {
        return Err(file.unsupported("stretched rotary frequencies in", &extra.name, "none"));
    }
    let mut named = std::collections::HashMap::new();
    for entry in file.tensors() {
        let Some(name) = hugging_face_name(&entry.name) else {
            return Err(file.unsupported("tensor", &entry.name, "those of llama models without biases"));
        };
        named.insert(name, entry);
    }
    let found = named
        .iter()
        .map(|(name, entry)| (name.as_str(), entry.shape.iter().map(|&size| size as i64).collect()));
    crate::model::check_shapes(config, file.path(), found)?;
    let mut tensors = Vec::with_capacity(named.len());
    for (name, shape) in config.tensor_shapes() {
        let Some(entry) = named.get(&name) else { continue };
        let values = file.read(entry);
        let tensor = Tensor::f_from_slice(&values)
            .and_then(|flat| flat.f_reshape(&shape))
            .map_err(ModelError::from)?;
        let tensor = if name.ends_with("q_proj.weight") {
            unpermute(&tensor, config.heads as i64)?
        } else if name.ends_with("k_proj.weight") {
            unpermute(&tensor, config.kv_heads as i64)?
        } else {
            tensor
        };
        debug_assert_eq!((tensor.kind(), tensor.device()), (Kind::Float, Device::Cpu));
        tensors.push((name, tensor));
    }
    Ok(tensors)
}

fn hugging_face_name(name: &str) -> Option<String> {
    match name {
        "token_embd.weight" => return Some("model.embed_tokens.weight".into()),
        "output_norm.weight" => return Some("model.norm.weight".into()),
        "output.weight" => return Some("lm_head.weight".into()),
        _ => {}
    }
    let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
    let layer: usize = layer.parse().ok()?;
    let part = match part {
        "attn_norm.weight" => "input_layernorm.weight",
        "attn_q.weight" => "self_attn.q_proj.weight",
        "attn_k.weight" => "self_attn.k_proj.weight",
        "attn_v.weight" => "self_attn.v_proj.weight",
        "attn_output.weight" => "self_attn.o_proj.weight",
        "ffn_norm.weight" => "post_attention_layernorm.weight",
        "ffn_gate.weight" => "mlp.gate_proj.weight",
        "ffn_up.weight" => "mlp.up_proj.weight",
        "ffn_down.weight" => "mlp.down_proj.weight",
        _ => return None,
    };
    Some(format!("model.layers.{layer}.{part}"))
}

/// Undoes the row order of GGUF. Its rotary pairs are neighbours `(2i, 2i + 1)`, Hugging Face's are `(i, i + d/2)`:
/// `[heads, d/2, 2, in]` → `[heads, 2, d/2, in]`.
fn unpermute(weight: &Tensor, heads: i64) -> Result<Tensor, ModelError> {
    let size = weight.size();
    let half = size[0] / heads / 2;
    Ok(weight.f_view([heads, half, 2, size[1]])?.f_transpose(1, 2)?.f_reshape(&size)?)
}

//! Loading and saving model folders, whole and broken.

use std::path::Path;

use drgym_trainer::device::device;
use drgym_trainer::model::{Decoder, LoadOptions, ModelError};
use serde_json::{Value, json};
use tch::{Kind, Tensor};

use super::model_support::{data, difference, tensors, tiny};

/// A copy of a tiny model in a folder that may be broken.
fn copy_of(family: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["config.json", "generation_config.json", "model.safetensors"] {
        std::fs::copy(data("model").join(family).join(name), dir.path().join(name)).expect("copied");
    }
    dir
}

fn load(dir: &Path) -> Result<Decoder, ModelError> {
    Decoder::load(dir, LoadOptions::default())
}

fn message(dir: &Path) -> String {
    load(dir).expect_err("the folder is broken").to_string().replace(&dir.display().to_string(), "DIR")
}

fn edit_config(dir: &Path, edit: impl FnOnce(&mut serde_json::Map<String, Value>)) {
    let path = dir.join("config.json");
    let text = std::fs::read_to_string(&path).expect("it is there");
    let mut value: Value = serde_json::from_str(&text).expect("it is JSON");
    edit(value.as_object_mut().expect("it is an object"));
    std::fs::write(path, value.to_string()).expect("written");
}

/// Writes safetensors by hand: header and data.
fn write_raw(path: &Path, tensors: &[(&str, &str, &[usize], Vec<u8>)]) {
    let mut header = serde_json::Map::new();
    let mut bytes = Vec::new();
    for (name, dtype, shape, data) in tensors {
        let start = bytes.len();
        bytes.extend_from_slice(data);
        header.insert(
            (*name).into(),
            json!({"dtype": dtype, "shape": shape, "data_offsets": [start, bytes.len()]}),
        );
    }
    let header = Value::Object(header).to_string();
    let mut whole = (header.len() as u64).to_le_bytes().to_vec();
    whole.extend_from_slice(header.as_bytes());
    whole.extend_from_slice(&bytes);
    std::fs::write(path, whole).expect("written");
}

#[test]
fn a_saved_model_is_the_same_model() {
    for family in ["llama", "qwen2"] {
        let original = tiny(family);
        let dir = tempfile::tempdir().expect("a folder");
        let place = dir.path().join("deep/saved");
        original.save(&place).expect("saved");
        let again = load(&place).expect("loaded");
        assert_eq!(original.parameters().len(), again.parameters().len());
        for ((name, left), (other, right)) in original.parameters().iter().zip(again.parameters().iter()) {
            assert_eq!(name, other);
            assert_eq!(difference(left, right), 0.0, "{name}");
        }
        assert_eq!(original.config(), again.config());
        // A tied head is stored once, and nothing temporary is left.
        let stored = tensors(&place.join("model.safetensors"));
        assert_eq!(stored.contains_key("lm_head.weight"), family == "llama");
        let left: Vec<_> = std::fs::read_dir(dir.path().join("deep")).expect("listed").collect();
        assert_eq!(left.len(), 1);
        let header = std::fs::read(place.join("model.safetensors")).expect("read");
        assert!(String::from_utf8_lossy(&header[..300]).contains(r#""__metadata__":{"format":"pt"}"#));
    }
}

#[test]
fn saving_takes_the_tokenizer_along_and_never_overwrites() {
    let dir = copy_of("llama");
    std::fs::write(dir.path().join("tokenizer.json"), "{}").expect("written");
    std::fs::write(dir.path().join("unrelated.txt"), "x").expect("written");
    let decoder = load(dir.path()).expect("loaded");
    let place = dir.path().join("saved");
    decoder.save_as(&place, Kind::BFloat16).expect("saved");
    assert!(place.join("tokenizer.json").exists());
    assert!(!place.join("unrelated.txt").exists());
    let halved = load(&place).expect("loaded");
    let name = "model.norm.weight";
    let [wide, narrow] = [&decoder, &halved].map(|model| model.parameters().get(name).expect("there").copy());
    assert_eq!(difference(&wide.to_kind(Kind::BFloat16).to_kind(Kind::Float), &narrow), 0.0);
    let error = decoder.save(&place).expect_err("it is occupied").to_string();
    assert!(error.ends_with("exists already; choose another place"), "{error}");
    assert!(load(&place).is_ok());
}

#[test]
fn shards_are_read_through_their_index() {
    let dir = copy_of("llama");
    let all = tensors(&dir.path().join("model.safetensors"));
    std::fs::remove_file(dir.path().join("model.safetensors")).expect("removed");
    let mut map = serde_json::Map::new();
    let mut names: Vec<&String> = all.keys().collect();
    names.sort();
    for (shard, part) in names.chunks(names.len() / 2 + 1).enumerate() {
        let file = format!("model-{shard}.safetensors");
        let entries: Vec<(&str, Vec<usize>, Vec<u8>)> = part
            .iter()
            .map(|name| {
                let tensor: &Tensor = &all[*name];
                let mut bytes = vec![0u8; tensor.numel() * 4];
                tensor.copy_data_u8(&mut bytes, tensor.numel());
                (name.as_str(), tensor.size().iter().map(|&size| size as usize).collect(), bytes)
            })
            .collect();
        let entries: Vec<_> =
            entries.iter().map(|(name, shape, bytes)| (*name, "F32", &shape[..], bytes.clone())).collect();
        write_raw(&dir.path().join(&file), &entries);
        for name in part {
            map.insert((*name).clone(), json!(file));
        }
    }
    let index = dir.path().join("model.safetensors.index.json");
    std::fs::write(&index, json!({"metadata": {}, "weight_map": map}).to_string()).expect("written");
    let sharded = load(dir.path()).expect("loaded");
    let whole = tiny("llama");
    for ((name, left), (_, right)) in whole.parameters().iter().zip(sharded.parameters().iter()) {
        assert_eq!(difference(left, right), 0.0, "{name}");
    }
    std::fs::write(&index, json!({"weight_map": {"a": "../elsewhere.safetensors"}}).to_string())
        .expect("written");
    let expected =
        "DIR/model.safetensors.index.json: weight_map: a: \"../elsewhere.safetensors\" is no plain file name";
    assert_eq!(message(dir.path()), expected);
}

#[test]
fn missing_surplus_and_misshapen_tensors_are_named() {
    let dir = copy_of("llama");
    edit_config(dir.path(), |config| {
        config.insert("num_hidden_layers".into(), json!(1));
        config.insert("vocab_size".into(), json!(50));
        config.insert("attention_bias".into(), json!(true));
    });
    let message = message(dir.path());
    for part in [
        "4 missing (model.layers.0.self_attn.q_proj.bias, ",
        "9 surplus (model.layers.1.input_layernorm.weight, ",
        "2 of another shape (model.embed_tokens.weight: expected [50, 16], found [48, 16], lm_head.weight: ",
    ] {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

#[test]
fn broken_weights_are_errors_that_say_where() {
    let dir = copy_of("llama");
    let weights = dir.path().join("model.safetensors");
    let whole = std::fs::read(&weights).expect("read");
    // Truncated in the header, in the data, to nothing; a flipped length.
    for cut in [4, 100, whole.len() - 1] {
        std::fs::write(&weights, &whole[..cut]).expect("written");
        let message = message(dir.path());
        assert!(message.starts_with("DIR/model.safetensors is not a whole safetensors file: "), "{message}");
        assert!(message.ends_with(&format!("(the file has {cut} bytes)")), "{message}");
    }
    let mut flipped = whole.clone();
    flipped[7] = 0x40;
    std::fs::write(&weights, &flipped).expect("written");
    assert!(message(dir.path()).contains("is not a whole safetensors file"));
    std::fs::remove_file(&weights).expect("removed");
    assert_eq!(message(dir.path()), "DIR holds neither model.safetensors nor model.safetensors.index.json");
}

#[test]
fn weights_that_are_no_floating_point_numbers_are_named() {
    let dir = copy_of("llama");
    let all = tensors(&dir.path().join("model.safetensors"));
    let entries: Vec<(String, Vec<usize>)> = all
        .iter()
        .map(|(name, tensor)| (name.clone(), tensor.size().iter().map(|&size| size as usize).collect()))
        .collect();
    let raw: Vec<_> = entries
        .iter()
        .map(|(name, shape)| {
            let numbers: usize = shape.iter().product();
            if name == "model.norm.weight" {
                (name.as_str(), "I32", &shape[..], vec![0; 4 * numbers])
            } else {
                (name.as_str(), "F16", &shape[..], vec![0; 2 * numbers])
            }
        })
        .collect();
    write_raw(&dir.path().join("model.safetensors"), &raw);
    let message = message(dir.path());
    assert!(message.ends_with("1 not f32, f16 or bf16 (model.norm.weight: found I32)"), "{message}");
}

#[test]
fn configs_that_lack_or_ask_too_much_are_errors_that_name_the_field() {
    type Edit = fn(&mut serde_json::Map<String, Value>);
    let cases: [(Edit, &str); 9] = [
        (|config| drop(config.remove("hidden_size")), "DIR/config.json: hidden_size: is missing"),
        (|config| drop(config.remove("model_type")), "DIR/config.json: model_type: is missing"),
        (
            |config| drop(config.insert("vocab_size".into(), json!("many"))),
            "DIR/config.json: vocab_size: expected a whole number from 1 to 2^31, found \"many\"",
        ),
        (
            |config| drop(config.insert("model_type".into(), json!("mamba"))),
            "DIR/config.json: model_type = mamba is not supported; supported: llama, qwen2, qwen3",
        ),
        (
            |config| drop(config.insert("num_key_value_heads".into(), json!(3))),
            "DIR/config.json: num_key_value_heads: 3 does not divide num_attention_heads = 4",
        ),
        (
            |config| drop(config.insert("hidden_act".into(), json!("gelu"))),
            "DIR/config.json: hidden_act = gelu is not supported; supported: silu",
        ),
        (
            |config| drop(config.insert("rope_scaling".into(), json!({"rope_type": "yarn", "factor": 2.0}))),
            "DIR/config.json: rope_scaling.rope_type = yarn is not supported; supported: default, llama3",
        ),
        (
            |config| {
                drop(config.insert("rope_scaling".into(), json!({"rope_type": "llama3", "factor": 2.0})));
            },
            "DIR/config.json: rope_scaling.low_freq_factor: is missing",
        ),
        (
            |config| drop(config.insert("eos_token_id".into(), json!("end"))),
            "DIR/config.json: eos_token_id: expected a token id or a list of them",
        ),
    ];
    for (edit, expected) in cases {
        let dir = copy_of("llama");
        edit_config(dir.path(), edit);
        assert_eq!(message(dir.path()), expected);
    }
    let dir = copy_of("llama");
    std::fs::write(dir.path().join("config.json"), "[1]").expect("written");
    assert_eq!(message(dir.path()), "DIR/config.json: .: expected a JSON object");
    std::fs::write(dir.path().join("config.json"), "{").expect("written");
    assert!(message(dir.path()).starts_with("DIR/config.json: .: not JSON: "));
    std::fs::remove_file(dir.path().join("config.json")).expect("removed");
    assert!(message(dir.path()).starts_with("cannot read DIR/config.json: "));
}

#[test]
fn device_names_are_read_and_refused() {
    assert_eq!(device("cpu").expect("there is always one"), tch::Device::Cpu);
    for name in ["gpu", "cuda:", "cuda:x", "cuda:-1", "CPU"] {
        let error = device(name).expect_err("it is no name").to_string();
        assert_eq!(error, format!("unknown device {name:?}: expected cpu, cuda or cuda:N"));
    }
    // No machine has so many; without CUDA the library is what is missing.
    let error = device("cuda:4096").expect_err("there is no such device").to_string();
    assert!(error.starts_with("device \"cuda:4096\" "), "{error}");
}

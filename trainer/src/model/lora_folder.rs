//! Adapters in PEFT's layout: adapter_config.json and adapter_model.safetensors.

use std::path::Path;

use serde_json::{Value, json};
use tch::Kind;

use super::error::{TensorMismatch, io_error};
use super::folder::{write_folder, write_json};
use super::weights_file::{WeightsFiles, write_safetensors};
use super::{Lora, LoraConfig, LoraPair, ModelError};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";

impl Lora {
    /// Saves a folder that PEFT loads; `base` is what it is told of the base model (a path or a name). The folder is
    /// written under a temporary name and renamed; it must not exist.
    pub fn save(&self, dir: &Path, base: &str) -> Result<(), ModelError> {
        write_folder(dir, |part| {
            let tensors = self.entries.iter().flat_map(|(module, pair)| {
                [
                    (format!("base_model.model.{module}.lora_A.weight"), &pair.a),
                    (format!("base_model.model.{module}.lora_B.weight"), &pair.b),
                ]
            });
            write_safetensors(&part.join(WEIGHTS), tensors, Kind::Float)?;
            let config = json!({
                "base_model_name_or_path": base,
                "bias": "none",
                "fan_in_fan_out": false,
                "inference_mode": true,
                "init_lora_weights": true,
                "lora_alpha": self.config.alpha,
                "lora_dropout": 0.0,
                "modules_to_save": null,
                "peft_type": "LORA",
                "r": self.config.rank,
                "target_modules": self.config.targets,
                "task_type": "CAUSAL_LM",
                "use_dora": false,
                "use_rslora": false,
            });
            write_json(&part.join(CONFIG), &config)
        })
    }

    /// Loads a PEFT folder. Whether it fits a model is checked when it is attached.
    pub fn load(dir: &Path) -> Result<Self, ModelError> {
        let path = dir.join(CONFIG);
        let config = read_config(&path)?;
        let weights = dir.join(WEIGHTS);
        let files = WeightsFiles::open(vec![weights.clone()])?;
        let mut entries: Vec<(String, LoraPair)> = Vec::new();
        let mut mismatch = TensorMismatch::default();
        for (name, _, _) in files.describe()? {
            let module = name.strip_prefix("base_model.model.").and_then(|rest| {
                rest.strip_suffix(".lora_A.weight").or_else(|| rest.strip_suffix(".lora_B.weight"))
            });
            let Some(module) = module else {
                mismatch.surplus.push(name);
                continue;
            };
            if entries.iter().any(|(known, _)| known == module) {
                continue;
            }
            let [a, b] = ["A", "B"].map(|factor| format!("base_model.model.{module}.lora_{factor}.weight"));
            match (files.read(&a), files.read(&b)) {
                (Ok(a), Ok(b)) => entries.push((
                    module.to_owned(),
                    LoraPair { a: a.to_kind(Kind::Float), b: b.to_kind(Kind::Float) },
                )),
                (Err(ModelError::TensorMismatch { .. }), _) => mismatch.missing.push(a),
                (_, Err(ModelError::TensorMismatch { .. })) => mismatch.missing.push(b),
                (Err(error), _) | (_, Err(error)) => return Err(error),
            }
        }
        if !mismatch.is_empty() {
            return Err(ModelError::TensorMismatch { path: weights, mismatch: Box::new(mismatch) });
        }
        entries.sort_by_key(|(module, _)| order_of(module));
        Self::from_entries(config, entries)
    }
}

/// Layer number, then place within the layer, so that a loaded adapter has the order of a fresh one.
fn order_of(module: &str) -> (usize, usize, String) {
    const PLACES: [&str; 7] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
    let mut parts = module.split('.');
    let layer = parts.find_map(|part| part.parse().ok()).unwrap_or(usize::MAX);
    let last = module.rsplit('.').next().unwrap_or_default();
    let place = PLACES.iter().position(|place| *place == last).unwrap_or(PLACES.len());
    (layer, place, module.to_owned())
}

fn read_config(path: &Path) -> Result<LoraConfig, ModelError> {
    let wrong = |field: &str, reason: String| ModelError::Config {
        path: path.to_owned(),
        field: field.into(),
        reason,
    };
    let text = std::fs::read_to_string(path).map_err(io_error("read", path))?;
    let value: Value =
        serde_json::from_str(&text).map_err(|error| wrong(".", format!("not JSON: {error}")))?;
    // What would change the arithmetic and is not computed here.
    let demanded = [
        ("peft_type", json!("LORA")),
        ("bias", json!("none")),
        ("use_dora", json!(false)),
        ("use_rslora", json!(false)),
        ("fan_in_fan_out", json!(false)),
        ("modules_to_save", Value::Null),
        ("layers_to_transform", Value::Null),
        ("rank_pattern", json!({})),
        ("alpha_pattern", json!({})),
    ];
    for (field, expected) in demanded {
        let found = value.get(field).unwrap_or(&Value::Null);
        if !found.is_null() && *found != expected {
            return Err(ModelError::Unsupported {
                path: path.to_owned(),
                field: field.into(),
                found: found.to_string(),
                supported: expected.to_string(),
            });
        }
    }
    if value.get("peft_type").is_none() {
        return Err(wrong("peft_type", "is missing".into()));
    }
    let rank = value
        .get("r")
        .and_then(Value::as_u64)
        .filter(|&rank| rank > 0)
        .ok_or_else(|| wrong("r", "expected a whole number above 0".into()))?;
    let alpha = value
        .get("lora_alpha")
        .and_then(Value::as_f64)
        .ok_or_else(|| wrong("lora_alpha", "expected a number".into()))?;
    let targets = value
        .get("target_modules")
        .and_then(Value::as_array)
        .and_then(|targets| targets.iter().map(|target| target.as_str().map(str::to_owned)).collect())
        .ok_or_else(|| wrong("target_modules", "expected a list of module names".into()))?;
    Ok(LoraConfig { rank: rank as usize, alpha, targets })
}

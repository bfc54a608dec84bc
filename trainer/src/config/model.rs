//! Which model is trained, and how.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problems::Problems;

/// Which model is trained, which part of it, and how it is computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelOptions {
    /// Hugging Face folder of the model to start from.
    pub path: PathBuf,
    /// Number format of the forward and backward pass; the master weights and the optimiser are always f32.
    #[serde(default)]
    pub dtype: Dtype,
    /// `all`, `upper:N` (the last N layers and the final norm) or `lora`.
    #[serde(default)]
    pub trainable: TrainablePart,
    /// The adapter that is trained when `trainable = "lora"`.
    #[serde(default)]
    pub lora: LoraOptions,
    /// Keep only the input of each layer and compute it again in the backward pass: less memory, about 17 % more
    /// time. The gradient is the same.
    #[serde(default)]
    pub activation_checkpointing: bool,
    /// `cpu`, `cuda` or `cuda:N`.
    #[serde(default = "default_device")]
    pub device: String,
    /// Threads of libtorch on the CPU; 0 takes all cores.
    #[serde(default)]
    pub threads: usize,
    /// Most memory for the keys and values of the sampler, in GiB. Episodes that do not fit together are drawn in parts.
    #[serde(default = "default_cache")]
    pub cache_gib: f64,
}

/// Default of [`ModelOptions::cache_gib`].
pub fn default_cache() -> f64 {
    4.0
}

fn default_device() -> String {
    "cpu".into()
}

/// Number format of the forward and backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// Single precision.
    #[default]
    F32,
    /// bfloat16 with f32 master weights; softmax and loss in f32.
    Bf16,
}

/// Which parameters are trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TrainablePart {
    /// Every parameter.
    #[default]
    All,
    /// The last so many layers and the final norm.
    Upper(usize),
    /// A low-rank adapter.
    Lora,
}

impl JsonSchema for TrainablePart {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TrainablePart".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^(all|lora|upper:[1-9][0-9]*)$" })
    }
}

impl TryFrom<String> for TrainablePart {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "all" => Ok(Self::All),
            "lora" => Ok(Self::Lora),
            other => other
                .strip_prefix("upper:")
                .and_then(|count| count.parse().ok())
                .filter(|&count| count > 0)
                .map(Self::Upper)
                .ok_or_else(|| format!("expected all, lora or upper:N with N at least 1, found {other:?}")),
        }
    }
}

impl From<TrainablePart> for String {
    fn from(part: TrainablePart) -> Self {
        match part {
            TrainablePart::All => "all".into(),
            TrainablePart::Lora => "lora".into(),
            TrainablePart::Upper(count) => format!("upper:{count}"),
        }
    }
}

/// A low-rank adapter (LoRA, arXiv 2106.09685).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoraOptions {
    /// Rank of the two factors.
    pub rank: usize,
    /// The product is scaled by `alpha / rank`.
    pub alpha: f64,
    /// Names of the linear maps that are adapted.
    pub targets: Vec<String>,
}

impl Default for LoraOptions {
    fn default() -> Self {
        let targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
        Self { rank: 16, alpha: 32.0, targets: targets.map(String::from).to_vec() }
    }
}

/// With far more threads than cores libtorch hardly moves.
pub const MOST_THREADS: usize = 512;

impl ModelOptions {
    /// [`cache_gib`](Self::cache_gib) in bytes.
    pub fn cache_bytes(&self) -> usize {
        (self.cache_gib * f64::from(1_u32 << 30)) as usize
    }

    pub(super) fn check(&self, problems: &mut Problems) {
        problems.require(
            !self.path.as_os_str().is_empty(),
            "model.path",
            "must name the folder of a model",
            self.path.display(),
        );
        let known = self.device == "cpu"
            || self.device == "cuda"
            || self.device.strip_prefix("cuda:").is_some_and(|number| number.parse::<usize>().is_ok());
        problems.require(
            self.cache_gib.is_finite() && self.cache_gib > 0.0,
            "model.cache_gib",
            "must be above 0",
            self.cache_gib,
        );
        problems.require(
            self.threads <= MOST_THREADS,
            "model.threads",
            &format!("must be at most {MOST_THREADS}"),
            self.threads,
        );
        problems.require(known, "model.device", "must be cpu, cuda or cuda:N", &self.device);
        if self.trainable == TrainablePart::Lora {
            problems.require(self.lora.rank > 0, "model.lora.rank", "must be at least 1", self.lora.rank);
            problems.require(
                self.lora.alpha.is_finite() && self.lora.alpha > 0.0,
                "model.lora.alpha",
                "must be above 0",
                self.lora.alpha,
            );
            problems.require(
                !self.lora.targets.is_empty(),
                "model.lora.targets",
                "must name at least one linear map",
                "an empty list",
            );
        }
    }
}

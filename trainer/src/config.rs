//! The training sections of a configuration file.
//!
//! Every section knows its defaults, its JSON schema and its problems: [`SftConfig::validate`] and
//! [`GrpoConfig::validate`] report all of them at once, each with the path of the field.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::algorithm::advantage::{AdvantageOptions, Singleton};
use crate::algorithm::aggregate::Aggregation;
use crate::algorithm::loss::ClipOptions;
use crate::batch::Packing;
use crate::optimizer::AdamWOptions;
use crate::schedule::{Schedule, learning_rate_factor};

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

/// AdamW and its learning rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OptimizerConfig {
    /// Peak learning rate.
    pub learning_rate: f64,
    /// What happens to it after the warm-up.
    #[serde(default)]
    pub schedule: Schedule,
    /// Updates in which it rises from 0 to the peak.
    #[serde(default)]
    pub warmup_updates: u64,
    /// Share of the peak at which `linear` and `cosine` end.
    #[serde(default)]
    pub final_fraction: f64,
    /// Decay of the first moment.
    #[serde(default = "default_beta1")]
    pub beta1: f64,
    /// Decay of the second moment.
    #[serde(default = "default_beta2")]
    pub beta2: f64,
    /// ε of the denominator.
    #[serde(default = "default_epsilon")]
    pub epsilon: f64,
    /// Decoupled weight decay.
    #[serde(default)]
    pub weight_decay: f64,
    /// Leave norms and biases undecayed.
    #[serde(default = "yes")]
    pub decay_matrices_only: bool,
    /// Largest global norm of the gradient; 0 does not clip.
    #[serde(default = "one")]
    pub max_gradient_norm: f64,
}

fn default_beta1() -> f64 {
    0.9
}

fn default_beta2() -> f64 {
    0.999
}

fn default_epsilon() -> f64 {
    1e-8
}

fn yes() -> bool {
    true
}

fn one() -> f64 {
    1.0
}

impl OptimizerConfig {
    /// Defaults with this peak learning rate.
    pub fn with_learning_rate(learning_rate: f64) -> Self {
        Self {
            learning_rate,
            schedule: Schedule::Constant,
            warmup_updates: 0,
            final_fraction: 0.0,
            beta1: default_beta1(),
            beta2: default_beta2(),
            epsilon: default_epsilon(),
            weight_decay: 0.0,
            decay_matrices_only: true,
            max_gradient_norm: 1.0,
        }
    }

    /// The constants of the optimiser.
    pub fn adamw(&self) -> AdamWOptions {
        AdamWOptions {
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            decay_matrices_only: self.decay_matrices_only,
            max_gradient_norm: (self.max_gradient_norm > 0.0).then_some(self.max_gradient_norm),
        }
    }

    /// The learning rate of update `update` (from 0) of `updates`.
    pub fn learning_rate_at(&self, update: u64, updates: u64) -> f64 {
        self.learning_rate
            * learning_rate_factor(self.schedule, update, updates, self.warmup_updates, self.final_fraction)
    }
}

/// How sequences are packed into micro-batches. The gradient does not depend on it, time and memory do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MicroBatchConfig {
    /// Most tokens of a micro-batch, padding included.
    pub tokens: usize,
    /// Largest share of padding in a micro-batch.
    pub padding: f64,
    /// Rows of logits that are held at once, each of the size of the vocabulary.
    pub logit_rows: usize,
}

impl Default for MicroBatchConfig {
    fn default() -> Self {
        Self { tokens: 2048, padding: 0.2, logit_rows: 512 }
    }
}

impl MicroBatchConfig {
    /// The part that concerns packing.
    pub fn packing(&self) -> Packing {
        Packing { tokens: self.tokens, padding: self.padding }
    }
}

/// Which checkpoints are written and kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    /// Steps between two checkpoints; the last step always writes one. 0 writes only that.
    pub every: u64,
    /// The newest so many are kept, and the best one besides.
    pub keep_last: usize,
    /// Beside an adapter, write the merged weights too, so that the folder can be loaded without the base model.
    pub merge_adapter: bool,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every: 10, keep_last: 2, merge_adapter: true }
    }
}

/// Supervised fine-tuning on expert traces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SftConfig {
    /// The model.
    pub model: ModelOptions,
    /// The optimiser; one update a batch.
    #[serde(default = "default_sft_optimizer")]
    pub optimizer: OptimizerConfig,
    /// Passes over the examples, each in an order of its own.
    #[serde(default = "default_epochs")]
    pub epochs: u64,
    /// Examples of an update. The last batch of a pass may be smaller.
    #[serde(default = "default_sft_batch")]
    pub batch_size: usize,
    /// How token losses become one number.
    #[serde(default)]
    pub aggregation: Aggregation,
    /// How sequences are packed.
    #[serde(default)]
    pub micro_batch: MicroBatchConfig,
    /// Which checkpoints are written and kept.
    #[serde(default)]
    pub checkpoint: CheckpointConfig,
    /// The run stops after so many updates in a row whose gradient was not finite.
    #[serde(default = "default_skipped_in_row")]
    pub max_skipped_in_row: u64,
}

fn default_sft_optimizer() -> OptimizerConfig {
    OptimizerConfig::with_learning_rate(2e-4)
}

fn default_epochs() -> u64 {
    1
}

fn default_sft_batch() -> usize {
    8
}

fn default_skipped_in_row() -> u64 {
    3
}

/// Where the log-probabilities under the policy that drew the tokens come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OldLogprobs {
    /// As the sampler reported them. Differs from the trainer's by the rounding of another order of operations.
    Sampler,
    /// Computed again by the trainer before the first update of the step.
    #[default]
    Recompute,
}

/// When a run is stopped because it goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GuardConfig {
    /// Stop when the mean divergence from the reference (or, without one, from the policy that drew the tokens)
    /// in nats a token exceeds this; 0 is no limit.
    pub max_kl: f64,
    /// Stop when the mean entropy in nats a token falls below this; 0 is no limit.
    pub min_entropy: f64,
    /// Stop when the mean entropy in nats a token rises above this; 0 is no limit.
    pub max_entropy: f64,
    /// Stop when more than this share of a step's episodes have no reward because a judge, a search or the policy
    /// failed.
    pub max_failed_fraction: f64,
    /// Stop after so many updates in a row whose gradient was not finite.
    pub max_skipped_in_row: u64,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self {
            max_kl: 0.0,
            min_entropy: 0.0,
            max_entropy: 0.0,
            max_failed_fraction: 0.25,
            max_skipped_in_row: default_skipped_in_row(),
        }
    }
}

/// Evaluation on the development tasks while training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationConfig {
    /// Steps between two evaluations; the last step always evaluates. 0 never evaluates.
    pub every: u64,
    /// Evaluate before the first step too.
    pub at_start: bool,
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        Self { every: 5, at_start: true }
    }
}

/// Reinforcement learning with group-relative advantages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrpoConfig {
    /// The model.
    pub model: ModelOptions,
    /// The optimiser.
    #[serde(default = "default_grpo_optimizer")]
    pub optimizer: OptimizerConfig,
    /// Steps: each draws tasks, runs their episodes and updates the policy on them.
    pub steps: u64,
    /// Tasks of a step.
    #[serde(default = "default_prompts")]
    pub prompts_per_step: usize,
    /// Episodes of a task, between which rewards are compared.
    #[serde(default = "default_group")]
    pub group_size: u32,
    /// Temperature of the episodes that are learnt from. Log-probabilities are those at this temperature.
    #[serde(default = "default_temperature")]
    pub temperature: f32,
    /// Updates that the episodes of a step are divided among, by task.
    #[serde(default = "default_one_u64")]
    pub mini_batches: u64,
    /// Passes over the episodes of a step.
    #[serde(default = "default_one_u64")]
    pub ppo_epochs: u64,
    /// The ratio is clipped below at 1 minus this.
    #[serde(default = "default_clip")]
    pub clip_low: f64,
    /// The ratio is clipped above at 1 plus this.
    #[serde(default = "default_clip")]
    pub clip_high: f64,
    /// For negative advantages the loss is at most this times the advantage; 0 is no bound.
    #[serde(default = "default_dual_clip")]
    pub dual_clip: f64,
    /// Weight of the divergence from the start model; 0 needs no reference model.
    #[serde(default)]
    pub kl_coefficient: f64,
    /// Weight of the entropy that is rewarded.
    #[serde(default)]
    pub entropy_coefficient: f64,
    /// Divide advantages by the standard deviation of their group; `false` is Dr. GRPO.
    #[serde(default = "yes")]
    pub normalize_by_std: bool,
    /// What becomes of a group of which a single episode was scored.
    #[serde(default)]
    pub singleton: Singleton,
    /// Groups whose rewards differ by at most this teach nothing and are left out.
    #[serde(default = "default_spread")]
    pub spread_tolerance: f64,
    /// How token losses become one number.
    #[serde(default)]
    pub aggregation: Aggregation,
    /// Where the log-probabilities under the policy that drew the tokens come from.
    #[serde(default)]
    pub old_logprobs: OldLogprobs,
    /// How sequences are packed.
    #[serde(default)]
    pub micro_batch: MicroBatchConfig,
    /// Evaluation on the development tasks.
    #[serde(default)]
    pub evaluation: EvaluationConfig,
    /// Which checkpoints are written and kept.
    #[serde(default)]
    pub checkpoint: CheckpointConfig,
    /// When the run is stopped.
    #[serde(default)]
    pub guard: GuardConfig,
    /// Episodes of each step whose text goes to TensorBoard.
    #[serde(default = "default_shown")]
    pub shown_episodes: usize,
}

fn default_grpo_optimizer() -> OptimizerConfig {
    OptimizerConfig { warmup_updates: 2, ..OptimizerConfig::with_learning_rate(1e-4) }
}

fn default_prompts() -> usize {
    8
}

fn default_group() -> u32 {
    6
}

fn default_temperature() -> f32 {
    1.0
}

fn default_one_u64() -> u64 {
    1
}

fn default_clip() -> f64 {
    0.2
}

fn default_dual_clip() -> f64 {
    3.0
}

fn default_spread() -> f64 {
    1e-9
}

fn default_shown() -> usize {
    2
}

impl GrpoConfig {
    /// The constants of the clipped loss.
    pub fn clip(&self) -> ClipOptions {
        let dual_clip = (self.dual_clip > 0.0).then_some(self.dual_clip);
        ClipOptions { low: self.clip_low, high: self.clip_high, dual_clip }
    }

    /// The constants of the advantage.
    pub fn advantage(&self) -> AdvantageOptions {
        AdvantageOptions {
            normalize_by_std: self.normalize_by_std,
            spread_tolerance: self.spread_tolerance,
            singleton: self.singleton,
            ..AdvantageOptions::default()
        }
    }

    /// Optimiser updates that each step makes at most.
    pub fn updates_per_step(&self) -> u64 {
        self.mini_batches * self.ppo_epochs
    }

    /// Every problem, as `path: what is wrong`; empty when the configuration can run.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Problems::default();
        self.model.check(&mut problems);
        self.optimizer.check(&mut problems);
        self.micro_batch.check(&mut problems);
        self.checkpoint.check(&mut problems);
        problems.require(self.steps > 0, "steps", "must be at least 1", self.steps);
        problems.require(
            self.prompts_per_step > 0,
            "prompts_per_step",
            "must be at least 1",
            self.prompts_per_step,
        );
        problems.require(
            self.group_size >= 2,
            "group_size",
            "must be at least 2, since advantages compare the episodes of a task",
            self.group_size,
        );
        problems.require(
            self.temperature.is_finite() && self.temperature > 0.0,
            "temperature",
            "must be above 0, since a greedy group has no spread",
            self.temperature,
        );
        problems.require(
            self.mini_batches >= 1 && self.mini_batches <= self.prompts_per_step as u64,
            "mini_batches",
            "must lie between 1 and prompts_per_step",
            self.mini_batches,
        );
        problems.require(self.ppo_epochs >= 1, "ppo_epochs", "must be at least 1", self.ppo_epochs);
        problems.require(
            self.clip_low > 0.0 && self.clip_low < 1.0,
            "clip_low",
            "must lie between 0 and 1",
            self.clip_low,
        );
        problems.require(
            self.clip_high > 0.0 && self.clip_high.is_finite(),
            "clip_high",
            "must be above 0",
            self.clip_high,
        );
        problems.require(
            self.dual_clip == 0.0 || (self.dual_clip > 1.0 && self.dual_clip.is_finite()),
            "dual_clip",
            "must be 0 (off) or above 1",
            self.dual_clip,
        );
        for (path, value) in [
            ("kl_coefficient", self.kl_coefficient),
            ("entropy_coefficient", self.entropy_coefficient),
            ("spread_tolerance", self.spread_tolerance),
            ("guard.max_kl", self.guard.max_kl),
            ("guard.min_entropy", self.guard.min_entropy),
            ("guard.max_entropy", self.guard.max_entropy),
        ] {
            problems.require(value.is_finite() && value >= 0.0, path, "must not be negative", value);
        }
        problems.require(
            (0.0..=1.0).contains(&self.guard.max_failed_fraction),
            "guard.max_failed_fraction",
            "must lie between 0 and 1",
            self.guard.max_failed_fraction,
        );
        problems.require(
            self.guard.max_skipped_in_row > 0,
            "guard.max_skipped_in_row",
            "must be at least 1",
            self.guard.max_skipped_in_row,
        );
        problems.found
    }
}

impl SftConfig {
    /// Every problem, as `path: what is wrong`; empty when the configuration can run.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Problems::default();
        self.model.check(&mut problems);
        self.optimizer.check(&mut problems);
        self.micro_batch.check(&mut problems);
        self.checkpoint.check(&mut problems);
        problems.require(self.epochs > 0, "epochs", "must be at least 1", self.epochs);
        problems.require(self.batch_size > 0, "batch_size", "must be at least 1", self.batch_size);
        problems.require(
            self.max_skipped_in_row > 0,
            "max_skipped_in_row",
            "must be at least 1",
            self.max_skipped_in_row,
        );
        problems.found
    }
}

impl ModelOptions {
    fn check(&self, problems: &mut Problems) {
        problems.require(
            !self.path.as_os_str().is_empty(),
            "model.path",
            "must name the folder of a model",
            self.path.display(),
        );
        let known = self.device == "cpu"
            || self.device == "cuda"
            || self.device.strip_prefix("cuda:").is_some_and(|number| number.parse::<usize>().is_ok());
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

impl OptimizerConfig {
    fn check(&self, problems: &mut Problems) {
        problems.require(
            self.learning_rate.is_finite() && self.learning_rate > 0.0,
            "optimizer.learning_rate",
            "must be above 0",
            self.learning_rate,
        );
        for (path, value) in [("optimizer.beta1", self.beta1), ("optimizer.beta2", self.beta2)] {
            problems.require((0.0..1.0).contains(&value), path, "must be at least 0 and below 1", value);
        }
        problems.require(
            self.epsilon.is_finite() && self.epsilon > 0.0,
            "optimizer.epsilon",
            "must be above 0",
            self.epsilon,
        );
        for (path, value) in [
            ("optimizer.weight_decay", self.weight_decay),
            ("optimizer.max_gradient_norm", self.max_gradient_norm),
        ] {
            problems.require(value.is_finite() && value >= 0.0, path, "must not be negative", value);
        }
        problems.require(
            (0.0..=1.0).contains(&self.final_fraction),
            "optimizer.final_fraction",
            "must lie between 0 and 1",
            self.final_fraction,
        );
    }
}

impl MicroBatchConfig {
    fn check(&self, problems: &mut Problems) {
        problems.require(self.tokens > 0, "micro_batch.tokens", "must be at least 1", self.tokens);
        problems.require(
            (0.0..=1.0).contains(&self.padding),
            "micro_batch.padding",
            "must lie between 0 and 1",
            self.padding,
        );
        problems.require(
            self.logit_rows > 0,
            "micro_batch.logit_rows",
            "must be at least 1",
            self.logit_rows,
        );
    }
}

impl CheckpointConfig {
    fn check(&self, problems: &mut Problems) {
        problems.require(self.keep_last > 0, "checkpoint.keep_last", "must be at least 1", self.keep_last);
    }
}

#[derive(Default)]
struct Problems {
    found: Vec<String>,
}

impl Problems {
    fn require(&mut self, holds: bool, path: &str, rule: &str, value: impl std::fmt::Display) {
        if !holds {
            self.found.push(format!("{path}: {rule}, found {value}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_documented_ones_and_are_valid() {
        let sft: SftConfig = toml::from_str("[model]\npath = \"m\"").unwrap();
        assert_eq!(sft.validate(), Vec::<String>::new());
        assert_eq!((sft.epochs, sft.batch_size, sft.optimizer.learning_rate), (1, 8, 2e-4));
        let grpo: GrpoConfig =
            toml::from_str("steps = 10\n[model]\npath = \"m\"\ntrainable = \"upper:15\"").unwrap();
        assert_eq!(grpo.validate(), Vec::<String>::new());
        assert_eq!(grpo.model.trainable, TrainablePart::Upper(15));
        assert_eq!(grpo.clip(), ClipOptions::default());
        assert_eq!(grpo.advantage(), AdvantageOptions::default());
        assert_eq!(grpo.optimizer.adamw(), AdamWOptions::default());
        let again: GrpoConfig = toml::from_str(&toml::to_string(&grpo).unwrap()).unwrap();
        assert_eq!(again, grpo);
    }

    #[test]
    fn every_problem_is_reported_with_its_path() {
        let text = "steps = 0\ngroup_size = 1\nclip_low = 1.5\n[model]\npath = \"m\"\ndevice = \"tpu\"\n\
                    [optimizer]\nlearning_rate = -1.0\n";
        let problems = toml::from_str::<GrpoConfig>(text).unwrap().validate();
        let paths: Vec<&str> = problems.iter().filter_map(|problem| problem.split(':').next()).collect();
        assert_eq!(paths, ["model.device", "optimizer.learning_rate", "steps", "group_size", "clip_low"]);
    }

    #[test]
    fn unknown_fields_and_parts_are_refused() {
        assert!(toml::from_str::<SftConfig>("epoch = 1\n[model]\npath = \"m\"").is_err());
        for part in ["upper:0", "upper:", "lower:3", "everything"] {
            let text = format!("[model]\npath = \"m\"\ntrainable = \"{part}\"");
            assert!(toml::from_str::<SftConfig>(&text).is_err(), "{part}");
        }
    }

    #[test]
    fn the_schema_names_every_field() {
        let schema = serde_json::to_string(&schemars::schema_for!(GrpoConfig)).unwrap();
        for field in ["prompts_per_step", "max_failed_fraction", "upper:[1-9]", "warmup_updates"] {
            assert!(schema.contains(field), "{field}");
        }
    }
}

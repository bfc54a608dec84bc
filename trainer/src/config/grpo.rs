//! The section of reinforcement learning.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problems::Problems;
use super::{CheckpointConfig, MicroBatchConfig, ModelOptions, OptimizerConfig, default_skipped_in_row, yes};
use crate::algorithm::advantage::{AdvantageOptions, Singleton};
use crate::algorithm::aggregate::Aggregation;
use crate::algorithm::loss::ClipOptions;

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
    /// Stop when the surprisal of the tokens drawn, an estimate of the policy's entropy in nats a token, falls below
    /// this; 0 is no limit.
    pub min_entropy: f64,
    /// Stop when it rises above this; 0 is no limit.
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

/// Evaluation on the development tasks while training. An episode that failed outside the policy counts as not right
/// when the best checkpoint is chosen.
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
    /// Divide advantages by the standard deviation of their group; `false` does not, as Dr. GRPO.
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
        let diverges = self.kl_coefficient > 0.0
            || self.updates_per_step() > 1
            || self.old_logprobs == OldLogprobs::Sampler;
        problems.require(
            self.guard.max_kl == 0.0 || diverges,
            "guard.max_kl",
            "needs kl_coefficient above 0 or several updates a step: before a single update the policy is the one that \
             drew the tokens",
            self.guard.max_kl,
        );
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

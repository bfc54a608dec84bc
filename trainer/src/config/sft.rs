//! The section of supervised fine-tuning.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problems::Problems;
use super::{CheckpointConfig, MicroBatchConfig, ModelOptions, OptimizerConfig, default_skipped_in_row};
use crate::algorithm::aggregate::Aggregation;

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

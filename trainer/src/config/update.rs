//! What both ways of training share: micro-batches and checkpoints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problems::Problems;
use crate::batch::Packing;

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

impl MicroBatchConfig {
    pub(super) fn check(&self, problems: &mut Problems) {
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

impl CheckpointConfig {
    pub(super) fn check(&self, problems: &mut Problems) {
        problems.require(self.keep_last > 0, "checkpoint.keep_last", "must be at least 1", self.keep_last);
    }
}

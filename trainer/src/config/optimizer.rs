//! The optimiser's section.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problems::Problems;
use super::yes;
use crate::optimizer::AdamWOptions;
use crate::schedule::{Schedule, learning_rate_factor};

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

impl OptimizerConfig {
    pub(super) fn check(&self, problems: &mut Problems) {
        problems.require(
            self.learning_rate > 0.0 && self.learning_rate <= 1.0,
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

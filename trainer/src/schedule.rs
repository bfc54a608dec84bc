//! The learning rate as a function of the optimiser step.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens to the learning rate after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// It stays.
    #[default]
    Constant,
    /// It falls on a straight line to `final_fraction` of the peak.
    Linear,
    /// It falls on half a cosine to `final_fraction` of the peak.
    Cosine,
}

/// The factor by which the peak learning rate is multiplied in update `update` (from 0) of `updates`.
///
/// In the warm-up, update `u` of `warmup` uses `(u + 1) / warmup`, so the first update is not wasted on a rate of 0
/// and the last of the warm-up reaches the peak. Afterwards progress runs from 0 to 1 over the remaining updates.
pub fn learning_rate_factor(
    schedule: Schedule,
    update: u64,
    updates: u64,
    warmup: u64,
    final_fraction: f64,
) -> f64 {
    if update < warmup {
        return (update + 1) as f64 / warmup as f64;
    }
    let remaining = updates.saturating_sub(warmup).max(1);
    let progress = ((update - warmup) as f64 / remaining as f64).min(1.0);
    let fall = match schedule {
        Schedule::Constant => return 1.0,
        Schedule::Linear => 1.0 - progress,
        Schedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
    };
    final_fraction + (1.0 - final_fraction) * fall
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_follows_hand_worked_values() {
        let at = |schedule, update| learning_rate_factor(schedule, update, 12, 4, 0.1);
        assert_eq!(at(Schedule::Constant, 0), 0.25);
        assert_eq!(at(Schedule::Constant, 3), 1.0);
        assert_eq!(at(Schedule::Constant, 11), 1.0);
        assert_eq!(at(Schedule::Linear, 4), 1.0);
        assert!((at(Schedule::Linear, 8) - 0.55).abs() < 1e-12);
        assert!((at(Schedule::Cosine, 8) - 0.55).abs() < 1e-12);
        assert!((at(Schedule::Cosine, 6) - (0.1 + 0.45 * (1.0 + 0.5_f64.sqrt()))).abs() < 1e-12);
        assert!((at(Schedule::Linear, 12) - 0.1).abs() < 1e-12);
        assert_eq!(learning_rate_factor(Schedule::Linear, 0, 10, 0, 0.0), 1.0);
    }
}

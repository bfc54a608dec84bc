//! How sure a measured number is: intervals, standard errors and tests of a difference.
//!
//! Everything here is a pure function of its arguments; the bootstraps draw from a ChaCha8 stream of the seed they are
//! given, so the same call returns the same bytes on every machine.
//!
//! | question | function |
//! |---|---|
//! | how sure is a rate of successes? | [`wilson_interval`], with several trials a task [`clustered_rate_interval`] |
//! | how sure is a mean of scores? | [`bootstrap_mean_interval`], [`standard_error`] |
//! | do two systems differ on the same tasks? | [`paired_bootstrap`], for right or wrong answers also [`mcnemar_exact`] |
//! | … over several training seeds? | [`pooled_paired_bootstrap`] |

mod bootstrap;
mod mcnemar;
mod mean;
mod normal;
mod paired;
mod proportion;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use bootstrap::bootstrap_mean_interval;
pub use mcnemar::mcnemar_exact;
pub use mean::standard_error;
pub use paired::{PairedDifference, SeedTasks, paired_bootstrap, pooled_paired_bootstrap};
pub use proportion::{clustered_rate_interval, wilson_interval};

/// A bootstrap over tasks needs so many that differ: with fewer, most resamples repeat the same few tasks, and the interval
/// is far narrower than it claims.
pub const LEAST_DIFFERING_TASKS: usize = 10;

/// A two-sided interval, both ends included; `low <= high`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Lower end, in the unit of the quantity.
    pub low: f64,
    /// Upper end, in the unit of the quantity.
    pub high: f64,
}

impl Interval {
    /// Whether the value lies within the interval, its ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Half the distance between the ends: the number after ± where the interval is symmetric.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// Why a statistic has no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StatisticsError {
    /// A mean needs a value, a standard error two.
    #[error("too few values: expected at least {needed}, found {found}")]
    TooFewValues {
        /// Least number of values the statistic is defined for.
        needed: usize,
        /// Number of values given.
        found: usize,
    },
    /// NaN or infinity among the values.
    #[error("value {index} is {value}: expected a finite number")]
    NotFinite {
        /// Position of the first such value, from 0.
        index: usize,
        /// The value.
        value: f64,
    },
    /// A rate outside of 0 to 1.
    #[error("rate {index} is {value}: expected a number from 0 to 1")]
    NotARate {
        /// Position of the first such rate, from 0.
        index: usize,
        /// The value.
        value: f64,
    },
    /// More successes than trials.
    #[error("{successes} successes in {trials} trials: expected at most as many successes as trials")]
    MoreSuccessesThanTrials {
        /// Number of successes given.
        successes: usize,
        /// Number of trials given.
        trials: usize,
    },
    /// Not a probability strictly between 0 and 1.
    #[error("confidence {found}: expected a probability above 0 and below 1, such as 0.95")]
    Confidence {
        /// The confidence given.
        found: f64,
    },
    /// So few resamples that the ends of the interval lie beyond all of them.
    #[error("{found} resamples: an interval of confidence {confidence} needs at least {needed}")]
    TooFewResamples {
        /// Resamples that put one beyond each end of the interval.
        needed: usize,
        /// Resamples asked for.
        found: usize,
        /// Confidence asked for.
        confidence: f64,
    },
    /// Two lists that should describe the same tasks differ in length.
    #[error("unpaired values: expected {expected} as in the first list, found {found} in list {list}")]
    Unpaired {
        /// Position of the list that differs, from 0.
        list: usize,
        /// Length of the first list.
        expected: usize,
        /// Length of the list that differs.
        found: usize,
    },
}

fn check_confidence(confidence: f64) -> Result<(), StatisticsError> {
    if confidence > 0.0 && confidence < 1.0 {
        Ok(())
    } else {
        Err(StatisticsError::Confidence { found: confidence })
    }
}

fn check_values(values: &[f64], needed: usize) -> Result<(), StatisticsError> {
    if values.len() < needed {
        return Err(StatisticsError::TooFewValues { needed, found: values.len() });
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(StatisticsError::NotFinite { index, value: values[index] }),
        None => Ok(()),
    }
}

//! A rate of successes, of trials on their own or of several trials a task.

use super::bootstrap::{check_resamples, percentile_interval, sorted_means};
use super::mean::mean;
use super::normal::quantile;
use super::{Interval, LEAST_DIFFERING_TASKS, StatisticsError, check_confidence, check_values};

/// Wilson's score interval of a rate of successes, within `[0, 1]`.
///
/// It keeps its coverage for small `n` and for rates near 0 and 1, where the normal interval collapses. Needs one trial.
/// Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
pub fn wilson_interval(successes: usize, n: usize, confidence: f64) -> Result<Interval, StatisticsError> {
    check_confidence(confidence)?;
    if n == 0 {
        return Err(StatisticsError::TooFewValues { needed: 1, found: 0 });
    }
    if successes > n {
        return Err(StatisticsError::MoreSuccessesThanTrials { successes, trials: n });
    }
    Ok(wilson(successes as f64 / n as f64, n, confidence))
}

/// Interval of the rate of successes where each task was tried several times: `rates[i]` is the share of successes among
/// the trials of task `i`.
///
/// Trials of one task resemble one another, so the tasks are what is resampled: the percentile bootstrap of the mean of
/// `rates`. Where fewer than [`LEAST_DIFFERING_TASKS`] tasks differ from the commonest rate the bootstrap collapses; then
/// it is Wilson's interval of one trial a task, the widest that a mean of values between 0 and 1 can call for. Needs one
/// task.
pub fn clustered_rate_interval(
    rates: &[f64],
    resamples: usize,
    seed: u64,
    confidence: f64,
) -> Result<Interval, StatisticsError> {
    check_values(rates, 1)?;
    check_resamples(resamples, confidence)?;
    if let Some(index) = rates.iter().position(|rate| !(0.0..=1.0).contains(rate)) {
        return Err(StatisticsError::NotARate { index, value: rates[index] });
    }
    if rates.len() - most_common(rates) < LEAST_DIFFERING_TASKS {
        return Ok(wilson(mean(rates), rates.len(), confidence));
    }
    Ok(percentile_interval(&sorted_means(&[rates], resamples, seed), confidence))
}

/// How often the commonest of the values occurs.
fn most_common(values: &[f64]) -> usize {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.chunk_by(|a, b| a == b).map(<[f64]>::len).max().unwrap_or(0)
}

fn wilson(rate: f64, n: usize, confidence: f64) -> Interval {
    let trials = n as f64;
    let z = -quantile((1.0 - confidence) / 2.0);
    let z_squared = z * z;
    let shrink = 1.0 + z_squared / trials;
    let center = (rate + z_squared / (2.0 * trials)) / shrink;
    let half = z / shrink * (rate * (1.0 - rate) / trials + z_squared / (4.0 * trials * trials)).sqrt();
    // At either extreme the end is exact, whatever the rounding of center and half.
    let low = if rate == 0.0 { 0.0 } else { (center - half).max(0.0) };
    let high = if rate == 1.0 { 1.0 } else { (center + half).min(1.0) };
    Interval { low, high }
}

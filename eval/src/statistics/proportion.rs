//! A rate of successes.

use super::normal::quantile;
use super::{Interval, StatisticsError, check_confidence};

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
    let trials = n as f64;
    let rate = successes as f64 / trials;
    let z = -quantile((1.0 - confidence) / 2.0);
    let z_squared = z * z;
    let shrink = 1.0 + z_squared / trials;
    let center = (rate + z_squared / (2.0 * trials)) / shrink;
    let half = z / shrink * (rate * (1.0 - rate) / trials + z_squared / (4.0 * trials * trials)).sqrt();
    // At either extreme the end is exact, whatever the rounding of center and half.
    let low = if successes == 0 { 0.0 } else { (center - half).max(0.0) };
    let high = if successes == n { 1.0 } else { (center + half).min(1.0) };
    Ok(Interval { low, high })
}

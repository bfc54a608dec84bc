//! The percentile bootstrap of a mean.

use drgym_env::seed::generator;
use rand::Rng;

use super::mean::mean;
use super::{Interval, StatisticsError, check_confidence, check_values};

/// Percentile bootstrap interval of the mean of `values`: the quantiles `(1 - confidence) / 2` and
/// `(1 + confidence) / 2` of the means of `resamples` samples, each drawn from `values` with replacement.
///
/// Says nothing where all values are equal (the interval is that value): for a rate of successes use
/// [`wilson_interval`](super::wilson_interval). Source: B. Efron and R. Tibshirani, "An Introduction to the Bootstrap",
/// 1993, section 13.3. Needs one value; 10,000 resamples put an end within about 2 % of the interval's width.
pub fn bootstrap_mean_interval(
    values: &[f64],
    resamples: usize,
    seed: u64,
    confidence: f64,
) -> Result<Interval, StatisticsError> {
    check_values(values, 1)?;
    check_resamples(resamples, confidence)?;
    let means = sorted_means(&[values], resamples, seed);
    Ok(percentile_interval(&means, confidence))
}

/// Whether there are enough resamples for one to lie beyond each end of the interval.
pub(super) fn check_resamples(resamples: usize, confidence: f64) -> Result<(), StatisticsError> {
    check_confidence(confidence)?;
    // The subtraction forgives the rounding of 1 - confidence: 0.95 needs 40 resamples, not 41.
    let needed = (2.0 / (1.0 - confidence) - 1e-6).ceil() as usize;
    if resamples < needed {
        return Err(StatisticsError::TooFewResamples { needed, found: resamples, confidence });
    }
    Ok(())
}

/// Means of `resamples` resamples in ascending order. A resample draws from each stratum with replacement as many values
/// as it has, and its mean is the mean of the strata's means.
pub(super) fn sorted_means(strata: &[&[f64]], resamples: usize, seed: u64) -> Vec<f64> {
    let mut random = generator(seed);
    let mut means: Vec<f64> = (0..resamples)
        .map(|_| {
            let sum: f64 = strata
                .iter()
                .map(|values| {
                    let drawn: f64 =
                        (0..values.len()).map(|_| values[random.random_range(0..values.len())]).sum();
                    drawn / values.len() as f64
                })
                .sum();
            sum / strata.len() as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    means
}

/// The central part of the sorted values that holds `confidence` of them.
pub(super) fn percentile_interval(sorted: &[f64], confidence: f64) -> Interval {
    let tail = (1.0 - confidence) / 2.0;
    Interval { low: sorted_quantile(sorted, tail), high: sorted_quantile(sorted, 1.0 - tail) }
}

/// Quantile by linear interpolation between order statistics, the smallest at 0 and the largest at 1 (type 7 of
/// R. J. Hyndman and Y. Fan, "Sample quantiles in statistical packages", 1996; NumPy's default).
fn sorted_quantile(sorted: &[f64], probability: f64) -> f64 {
    let position = probability * (sorted.len() - 1) as f64;
    let below = sorted[position.floor() as usize];
    let above = sorted[position.ceil() as usize];
    below + (above - below) * position.fract()
}

/// The mean of the strata's means, which the resamples scatter around.
pub(super) fn mean_of_means(strata: &[&[f64]]) -> f64 {
    strata.iter().map(|values| mean(values)).sum::<f64>() / strata.len() as f64
}

//! The mean of a list of scores and how far it may be off.

use super::{StatisticsError, check_values};

/// Arithmetic mean of at least one value.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard error of the mean, `s / sqrt(n)` with the unbiased variance `s^2 = sum (x - mean)^2 / (n - 1)`, in the unit
/// of the values. Needs two values.
pub fn standard_error(values: &[f64]) -> Result<f64, StatisticsError> {
    check_values(values, 2)?;
    let center = mean(values);
    let squares: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
    let n = values.len() as f64;
    Ok((squares / (n - 1.0) / n).sqrt())
}

//! The difference of two systems on the same tasks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bootstrap::{check_resamples, mean_of_means, percentile_interval, sorted_means};
use super::{Interval, LEAST_DIFFERING_TASKS, StatisticsError, check_values};

/// How far the first system is ahead of the second, and how sure that is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PairedDifference {
    /// Mean of (first minus second) over the tasks, in the unit of the scores.
    pub difference: f64,
    /// Tasks on which the two differ.
    pub differing: usize,
    /// Percentile bootstrap interval of the difference. `None` where resampling says nothing about new tasks: fewer than
    /// [`LEAST_DIFFERING_TASKS`] tasks differ, or all differ by the same.
    pub interval: Option<Interval>,
    /// Two-sided p-value of "no difference": twice the share of resamples on the far side of zero, in `(0, 1]`. It agrees
    /// with the interval, which leaves zero out where this is below one minus the confidence; `None` where that is.
    pub p_value: Option<f64>,
}

/// Whether the seeds of a pool were evaluated on the same tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SeedTasks {
    /// The same tasks in the same order. A hard task is hard for every seed, so a resample draws a task together with the
    /// pairs of all seeds; drawing anew for each seed would make the interval too narrow.
    Shared,
    /// Each seed has its own tasks. A resample draws anew within each seed.
    Separate,
}

/// Compares two systems on the same tasks: `a[i]` and `b[i]` are their scores on task `i`. Tasks are resampled, each with
/// both of its scores.
///
/// Needs one task, and as many scores in `a` as in `b`.
pub fn paired_bootstrap(
    a: &[f64],
    b: &[f64],
    resamples: usize,
    seed: u64,
    confidence: f64,
) -> Result<PairedDifference, StatisticsError> {
    if a.len() != b.len() {
        return Err(StatisticsError::Unpaired { list: 1, expected: a.len(), found: b.len() });
    }
    check_values(a, 1)?;
    check_values(b, 1)?;
    let differences: Vec<f64> = a.iter().zip(b).map(|(first, second)| first - second).collect();
    compare(&[&differences], resamples, seed, confidence)
}

/// Compares two ways of training over several seeds: `seeds[s][i]` holds the scores of the first and the second on task
/// `i` under seed `s`. Every seed has the same weight.
///
/// Needs one seed and one task in each; with [`SeedTasks::Shared`] as many tasks in each seed as in the first. The seeds
/// themselves are not resampled: the interval is about these training runs on new tasks, not about new training runs.
pub fn pooled_paired_bootstrap(
    seeds: &[Vec<(f64, f64)>],
    tasks: SeedTasks,
    resamples: usize,
    seed: u64,
    confidence: f64,
) -> Result<PairedDifference, StatisticsError> {
    let Some(first) = seeds.first() else {
        return Err(StatisticsError::TooFewValues { needed: 1, found: 0 });
    };
    let mut differences: Vec<Vec<f64>> = Vec::with_capacity(seeds.len());
    for pairs in seeds {
        let of_seed: Vec<f64> = pairs.iter().map(|(a, b)| a - b).collect();
        // A difference is finite only if both of its scores are.
        check_values(&of_seed, 1)?;
        differences.push(of_seed);
    }
    match tasks {
        SeedTasks::Shared => {
            if let Some(list) = seeds.iter().position(|pairs| pairs.len() != first.len()) {
                let found = seeds[list].len();
                return Err(StatisticsError::Unpaired { list, expected: first.len(), found });
            }
            let of_tasks: Vec<f64> = (0..first.len())
                .map(|task| differences.iter().map(|of_seed| of_seed[task]).sum::<f64>() / seeds.len() as f64)
                .collect();
            compare(&[&of_tasks], resamples, seed, confidence)
        }
        SeedTasks::Separate => {
            let strata: Vec<&[f64]> = differences.iter().map(Vec::as_slice).collect();
            compare(&strata, resamples, seed, confidence)
        }
    }
}

fn compare(
    strata: &[&[f64]],
    resamples: usize,
    seed: u64,
    confidence: f64,
) -> Result<PairedDifference, StatisticsError> {
    check_resamples(resamples, confidence)?;
    // Sums that cancel exactly on paper miss zero by rounding; without the margin such ties would count on one side only.
    let largest =
        strata.iter().flat_map(|values| values.iter()).fold(0.0f64, |most, value| most.max(value.abs()));
    let zero = 1e-12 * largest;
    let differing = strata.iter().flat_map(|values| values.iter()).filter(|value| value.abs() > zero).count();
    let difference = mean_of_means(strata);
    let same = strata.iter().all(|values| values.iter().all(|value| (value - values[0]).abs() <= zero));
    if same || differing < LEAST_DIFFERING_TASKS {
        return Ok(PairedDifference { difference, differing, interval: None, p_value: None });
    }
    let means = sorted_means(strata, resamples, seed);
    let not_above = means.partition_point(|mean| *mean <= zero);
    let not_below = resamples - means.partition_point(|mean| *mean < -zero);
    // The data themselves count as one more resample, so that no finite number of resamples claims p = 0.
    let p_value = 2.0 * (not_above.min(not_below) + 1) as f64 / (resamples + 1) as f64;
    Ok(PairedDifference {
        difference,
        differing,
        interval: Some(percentile_interval(&means, confidence)),
        p_value: Some(p_value.min(1.0)),
    })
}

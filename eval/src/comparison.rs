//! Comparing two evaluations of the same tasks.

use std::collections::HashMap;

use drgym_env::Trace;
use serde::{Deserialize, Serialize};

use crate::statistics::{PairedDifference, StatisticsError, mcnemar_exact, paired_bootstrap};
use crate::summary::CONFIDENCE;

/// Resamples of every bootstrap.
pub const RESAMPLES: usize = 10_000;

/// How far the first evaluation is ahead of the second, on the episodes that both scored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Episodes that both scored.
    pub n: usize,
    /// Mean difference of the accuracies, with a paired bootstrap interval.
    pub difference: PairedDifference,
    /// Right only in the first.
    pub only_first: usize,
    /// Right only in the second.
    pub only_second: usize,
    /// McNemar's exact two-sided p-value.
    pub mcnemar_p: f64,
}

/// Pairs of scores (first, second) of the episodes that both evaluations scored, in the order of the first.
pub fn paired_scores(first: &[Trace], second: &[Trace]) -> Vec<(f64, f64)> {
    let score = |trace: &Trace| trace.correct.map(|correct| f64::from(u8::from(correct)));
    let others: HashMap<_, _> =
        second.iter().filter_map(|trace| Some((&trace.episode, score(trace)?))).collect();
    first.iter().filter_map(|trace| Some((score(trace)?, *others.get(&trace.episode)?))).collect()
}

/// Compares two evaluations; an error if they have no episode in common.
pub fn compare(first: &[Trace], second: &[Trace], seed: u64) -> Result<Comparison, StatisticsError> {
    let (a, b): (Vec<f64>, Vec<f64>) = paired_scores(first, second).into_iter().unzip();
    let difference = paired_bootstrap(&a, &b, RESAMPLES, seed, CONFIDENCE)?;
    let only = |x: &[f64], y: &[f64]| x.iter().zip(y).filter(|(x, y)| x > y).count();
    let (only_first, only_second) = (only(&a, &b), only(&b, &a));
    Ok(Comparison {
        n: a.len(),
        difference,
        only_first,
        only_second,
        mcnemar_p: mcnemar_exact(only_first, only_second),
    })
}

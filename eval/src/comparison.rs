//! Comparing two evaluations of the same tasks.

use std::collections::HashMap;

use drgym_env::Trace;
use serde::{Deserialize, Serialize};

use crate::statistics::{
    PairedDifference, SeedTasks, StatisticsError, mcnemar_exact, paired_bootstrap, pooled_paired_bootstrap,
};
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

/// Several pairs of evaluations of the same tasks, for instance one a training seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PooledComparison {
    /// Episodes that all evaluations scored.
    pub n: usize,
    /// Mean difference of the accuracies over all pairs; tasks are resampled together with all their pairs.
    pub difference: PairedDifference,
    /// Difference of each pair on those episodes.
    pub each: Vec<f64>,
}

/// Pools pairs over the episodes that every one of the evaluations scored.
pub fn compare_pooled(
    pairs: &[(Vec<Trace>, Vec<Trace>)],
    seed: u64,
) -> Result<PooledComparison, StatisticsError> {
    let score = |trace: &Trace| trace.correct.map(|correct| f64::from(u8::from(correct)));
    let scores: Vec<[HashMap<_, f64>; 2]> = pairs
        .iter()
        .map(|(first, second)| {
            [first, second].map(|traces| {
                traces.iter().filter_map(|trace| Some((&trace.episode, score(trace)?))).collect()
            })
        })
        .collect();
    let common: Vec<_> = pairs
        .first()
        .map(|(first, _)| first.iter().map(|trace| &trace.episode))
        .into_iter()
        .flatten()
        .filter(|&episode| scores.iter().flatten().all(|side| side.contains_key(episode)))
        .collect();
    let paired: Vec<Vec<(f64, f64)>> = scores
        .iter()
        .map(|[first, second]| common.iter().map(|&episode| (first[episode], second[episode])).collect())
        .collect();
    let difference = pooled_paired_bootstrap(&paired, SeedTasks::Shared, RESAMPLES, seed, CONFIDENCE)?;
    let mean = |pairs: &Vec<(f64, f64)>| {
        pairs.iter().map(|(first, second)| first - second).sum::<f64>() / pairs.len() as f64
    };
    Ok(PooledComparison { n: common.len(), difference, each: paired.iter().map(mean).collect() })
}

//! Comparing evaluations of the same tasks by their scores.

use std::collections::{HashMap, HashSet};

use drgym_env::Trace;
use serde::{Deserialize, Serialize};

use crate::statistics::{
    PairedDifference, SeedTasks, StatisticsError, mcnemar_exact, paired_bootstrap, pooled_paired_bootstrap,
};
use crate::summary::{CONFIDENCE, RESAMPLES};

/// How far the first evaluation is ahead of the second, on the tasks that both scored. The score of a task is the share of
/// right answers among its scored episodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Tasks of which both scored an episode.
    pub n: usize,
    /// Mean difference of the scores; tasks are resampled, each with all of its episodes.
    pub difference: PairedDifference,
    /// Tasks on which the first did better.
    pub only_first: usize,
    /// Tasks on which the second did better.
    pub only_second: usize,
    /// McNemar's exact two-sided p-value; `None` where a task has several scored episodes, whose answers are neither right
    /// nor wrong as a whole.
    pub mcnemar_p: Option<f64>,
}

/// Compares two evaluations; an error if they have no scored task in common.
pub fn compare(first: &[Trace], second: &[Trace], seed: u64) -> Result<Comparison, StatisticsError> {
    let sides = [first, second].map(scores);
    let common = common_tasks(first, &sides.iter());
    let [a, b] = [0, 1].map(|side| common.iter().map(|task| sides[side][task].mean()).collect::<Vec<f64>>());
    let difference = paired_bootstrap(&a, &b, RESAMPLES, seed, CONFIDENCE)?;
    let better = |x: &[f64], y: &[f64]| x.iter().zip(y).filter(|(x, y)| x > y).count();
    let (only_first, only_second) = (better(&a, &b), better(&b, &a));
    let single = sides.iter().all(|side| common.iter().all(|task| side[task].scored == 1));
    Ok(Comparison {
        n: common.len(),
        difference,
        only_first,
        only_second,
        mcnemar_p: single.then(|| mcnemar_exact(only_first, only_second)),
    })
}

/// Several pairs of evaluations of the same tasks, for instance one a training seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PooledComparison {
    /// Tasks of which all evaluations scored an episode.
    pub n: usize,
    /// Mean difference of the scores over all pairs; tasks are resampled together with all their pairs.
    pub difference: PairedDifference,
    /// Difference of each pair on those tasks.
    pub each: Vec<f64>,
}

/// Pools pairs over the tasks that every one of the evaluations scored.
pub fn compare_pooled(
    pairs: &[(&[Trace], &[Trace])],
    seed: u64,
) -> Result<PooledComparison, StatisticsError> {
    let sides: Vec<[Scores<'_>; 2]> =
        pairs.iter().map(|&(first, second)| [first, second].map(scores)).collect();
    let order: &[Trace] = pairs.first().map_or(&[], |pair| pair.0);
    let common = common_tasks(order, &sides.iter().flatten());
    let paired: Vec<Vec<(f64, f64)>> = sides
        .iter()
        .map(|[first, second]| common.iter().map(|task| (first[task].mean(), second[task].mean())).collect())
        .collect();
    let difference = pooled_paired_bootstrap(&paired, SeedTasks::Shared, RESAMPLES, seed, CONFIDENCE)?;
    let mean = |pairs: &Vec<(f64, f64)>| {
        pairs.iter().map(|(first, second)| first - second).sum::<f64>() / pairs.len() as f64
    };
    Ok(PooledComparison { n: common.len(), difference, each: paired.iter().map(mean).collect() })
}

/// What the figures of a pair do not cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncovered {
    /// Tasks that only the first evaluation played.
    pub tasks_only_in_first: usize,
    /// Tasks that only the second evaluation played.
    pub tasks_only_in_second: usize,
    /// Episodes of the first that were not scored.
    pub excluded_first: usize,
    /// Episodes of the second that were not scored.
    pub excluded_second: usize,
}

impl Uncovered {
    /// Counts over the episodes of a pair.
    pub fn of(first: &[Trace], second: &[Trace]) -> Self {
        let tasks =
            |traces: &[Trace]| traces.iter().map(|trace| trace.episode.task.clone()).collect::<HashSet<_>>();
        let excluded = |traces: &[Trace]| traces.iter().filter(|trace| trace.correct.is_none()).count();
        let (played_first, played_second) = (tasks(first), tasks(second));
        Self {
            tasks_only_in_first: played_first.difference(&played_second).count(),
            tasks_only_in_second: played_second.difference(&played_first).count(),
            excluded_first: excluded(first),
            excluded_second: excluded(second),
        }
    }
}

/// Scored episodes of one task.
#[derive(Clone, Copy, Default)]
struct TaskScore {
    correct: usize,
    scored: usize,
}

impl TaskScore {
    fn mean(self) -> f64 {
        self.correct as f64 / self.scored as f64
    }
}

/// Tasks that have a scored episode.
type Scores<'a> = HashMap<&'a str, TaskScore>;

fn scores(traces: &[Trace]) -> Scores<'_> {
    let mut scores = Scores::new();
    for trace in traces {
        if let Some(correct) = trace.correct {
            let score = scores.entry(&trace.episode.task).or_default();
            score.correct += usize::from(correct);
            score.scored += 1;
        }
    }
    scores
}

/// Tasks that every side scored, in the order of the given traces, each once.
fn common_tasks<'a: 's, 's>(
    order: &'a [Trace],
    sides: &(impl Iterator<Item = &'s Scores<'a>> + Clone),
) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    order
        .iter()
        .map(|trace| trace.episode.task.as_str())
        .filter(|task| seen.insert(*task) && sides.clone().all(|side| side.contains_key(task)))
        .collect()
}

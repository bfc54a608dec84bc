//! What a set of traces amounts to.

use std::collections::BTreeMap;

use drgym_env::{Boundary, Outcome, Trace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics::{Interval, StatisticsError, clustered_rate_interval, wilson_interval};

/// Confidence of every interval of a summary.
pub const CONFIDENCE: f64 = 0.95;

/// Resamples of every bootstrap.
pub const RESAMPLES: usize = 10_000;

/// Seed of the bootstraps of a summary: the same traces give the same figures.
const BOOTSTRAP_SEED: u64 = 1;

/// A rate of right answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// Right answers.
    pub correct: usize,
    /// Scored episodes.
    pub n: usize,
    /// Mean over the tasks of the share of right answers among a task's scored episodes: `correct / n` where each task has
    /// as many as the next.
    pub value: f64,
    /// 95 % interval: Wilson's for one scored episode a task, else that of a bootstrap over tasks
    /// ([`clustered_rate_interval`]).
    pub interval: Interval,
    /// Episodes that were not scored, which neither `n` nor `value` counts.
    #[serde(default)]
    pub excluded: usize,
    /// What `value` would be had all the excluded been wrong (`low`) or right (`high`); `None` if none was excluded.
    #[serde(default)]
    pub bounds: Option<Interval>,
}

/// Episodes of one task.
#[derive(Clone, Copy, Default)]
struct Trials {
    correct: usize,
    scored: usize,
    excluded: usize,
}

/// Episodes by the identifier of their task.
#[derive(Default)]
struct Tally<'a>(BTreeMap<&'a str, Trials>);

impl<'a> Tally<'a> {
    fn add(&mut self, task: &'a str, correct: Option<bool>) {
        let trials = self.0.entry(task).or_default();
        match correct {
            Some(correct) => {
                trials.correct += usize::from(correct);
                trials.scored += 1;
            }
            None => trials.excluded += 1,
        }
    }

    fn sum(&self, count: impl Fn(&Trials) -> usize) -> usize {
        self.0.values().map(count).sum()
    }

    /// `None` if nothing was excluded.
    fn bounds(&self) -> Option<Interval> {
        let tasks = self.0.len() as f64;
        let mean = |right: fn(&Trials) -> usize| {
            let share = |trials: &Trials| right(trials) as f64 / (trials.scored + trials.excluded) as f64;
            self.0.values().map(share).sum::<f64>() / tasks
        };
        (self.sum(|trials| trials.excluded) > 0).then(|| Interval {
            low: mean(|trials| trials.correct),
            high: mean(|trials| trials.correct + trials.excluded),
        })
    }

    /// `None` if nothing was scored.
    fn rate(&self) -> Result<Option<Rate>, StatisticsError> {
        let scored: Vec<&Trials> = self.0.values().filter(|trials| trials.scored > 0).collect();
        let (correct, n) = (self.sum(|trials| trials.correct), self.sum(|trials| trials.scored));
        if n == 0 {
            return Ok(None);
        }
        let (value, interval) = if scored.len() == n {
            (correct as f64 / n as f64, wilson_interval(correct, n, CONFIDENCE)?)
        } else {
            let share = |trials: &&Trials| trials.correct as f64 / trials.scored as f64;
            let rates: Vec<f64> = scored.iter().map(share).collect();
            let value = rates.iter().sum::<f64>() / rates.len() as f64;
            (value, clustered_rate_interval(&rates, RESAMPLES, BOOTSTRAP_SEED, CONFIDENCE)?)
        };
        let excluded = self.sum(|trials| trials.excluded);
        Ok(Some(Rate { correct, n, value, interval, excluded, bounds: self.bounds() }))
    }
}

/// Why episodes did not give a right answer. The first three are the policy's and count as wrong; the last four are
/// the infrastructure's: such episodes are excluded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailureCounts {
    /// An answer was given, and it was wrong.
    pub wrong_answer: usize,
    /// The turns ran out without an answer.
    pub turn_limit: usize,
    /// The context was full before an answer.
    pub context_limit: usize,
    /// Excluded: the search engine failed.
    pub search_failed: usize,
    /// Excluded: the policy or its server failed.
    pub policy_failed: usize,
    /// Excluded: the judge gave no verdict.
    pub judge_failed: usize,
    /// Excluded: our own environment failed.
    pub environment_failed: usize,
}

impl FailureCounts {
    /// Episodes that are not in the denominator of the accuracy.
    pub fn excluded(&self) -> usize {
        self.excluded_by_cause().iter().map(|(_, count)| count).sum()
    }

    /// The excluded episodes by what failed.
    pub fn excluded_by_cause(&self) -> [(&'static str, usize); 4] {
        [
            ("search", self.search_failed),
            ("policy", self.policy_failed),
            ("judge", self.judge_failed),
            ("environment", self.environment_failed),
        ]
    }

    fn count(&mut self, trace: &Trace) {
        let count = match (trace.correct, &trace.outcome) {
            (Some(true), _) => return,
            (Some(false), Outcome::TurnLimit) => &mut self.turn_limit,
            (Some(false), Outcome::ContextLimit) => &mut self.context_limit,
            (Some(false), _) => &mut self.wrong_answer,
            (None, Outcome::Failed { boundary: Boundary::Search, .. }) => &mut self.search_failed,
            (None, Outcome::Failed { boundary: Boundary::Policy, .. }) => &mut self.policy_failed,
            (None, Outcome::Failed { boundary: Boundary::Environment, .. }) => &mut self.environment_failed,
            (None, _) => &mut self.judge_failed,
        };
        *count += 1;
    }
}

/// Means over the scored episodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EpisodeMeans {
    /// Searches sent.
    pub searches: f64,
    /// Searches that repeat an earlier query of the same episode.
    pub repeated_searches: f64,
    /// Fetches sent.
    pub fetches: f64,
    /// Turns of the policy.
    pub turns: f64,
    /// Outputs that were no action.
    pub invalid_actions: f64,
    /// Tokens that the policy drew.
    pub sampled_tokens: f64,
    /// Tokens of prompts and observations.
    pub read_tokens: f64,
    /// Seconds from reset to the end; not reproducible.
    pub seconds: f64,
}

/// The figures of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Episodes in all.
    pub episodes: usize,
    /// Episodes that were not scored. Where failures strike hard questions more often than easy ones, the accuracy of the
    /// rest flatters the policy.
    #[serde(default)]
    pub excluded: usize,
    /// What the accuracy would be had all the excluded been wrong (`low`) or right (`high`); `None` if none was excluded.
    #[serde(default)]
    pub bounds: Option<Interval>,
    /// Share of right answers among the scored episodes; `None` if none was scored.
    pub accuracy: Option<Rate>,
    /// The same for each kind of task of which an episode was scored.
    pub by_kind: BTreeMap<String, Rate>,
    /// The same for wordings seen in training and for unseen ones, where tasks tell.
    pub by_phrasing: BTreeMap<String, Rate>,
    /// Causes.
    pub failures: FailureCounts,
    /// Means over the scored episodes.
    pub means: EpisodeMeans,
}

/// Prefix of the phrasing groups that occur in no training task.
pub const UNSEEN_PREFIX: &str = "unseen/";

impl Summary {
    /// Sums traces up.
    pub fn of(traces: &[Trace]) -> Result<Self, StatisticsError> {
        let mut failures = FailureCounts::default();
        let mut all = Tally::default();
        let mut kinds: BTreeMap<&str, Tally<'_>> = BTreeMap::new();
        let mut phrasings: BTreeMap<&str, Tally<'_>> = BTreeMap::new();
        for trace in traces {
            failures.count(trace);
            let (task, correct) = (trace.episode.task.as_str(), trace.correct);
            all.add(task, correct);
            if !trace.task.kind.is_empty() {
                kinds.entry(&trace.task.kind).or_default().add(task, correct);
            }
            if !trace.task.phrasing.is_empty() {
                let unseen = trace.task.phrasing.starts_with(UNSEEN_PREFIX);
                phrasings.entry(if unseen { "unseen" } else { "seen" }).or_default().add(task, correct);
            }
        }
        let scored: Vec<&Trace> = traces.iter().filter(|trace| trace.correct.is_some()).collect();
        Ok(Self {
            episodes: traces.len(),
            excluded: failures.excluded(),
            bounds: all.bounds(),
            accuracy: all.rate()?,
            by_kind: rates(&kinds)?,
            by_phrasing: rates(&phrasings)?,
            failures,
            means: means(&scored),
        })
    }

    /// Share of the episodes that were not scored.
    pub fn excluded_share(&self) -> f64 {
        if self.episodes == 0 { 0.0 } else { self.excluded as f64 / self.episodes as f64 }
    }
}

fn rates(groups: &BTreeMap<&str, Tally<'_>>) -> Result<BTreeMap<String, Rate>, StatisticsError> {
    let mut rates = BTreeMap::new();
    for (&name, tally) in groups {
        rates.extend(tally.rate()?.map(|rate| (name.to_owned(), rate)));
    }
    Ok(rates)
}

fn means(traces: &[&Trace]) -> EpisodeMeans {
    if traces.is_empty() {
        return EpisodeMeans::default();
    }
    let mean = |value: &dyn Fn(&Trace) -> f64| {
        traces.iter().map(|trace| value(trace)).sum::<f64>() / traces.len() as f64
    };
    EpisodeMeans {
        searches: mean(&|trace| f64::from(trace.usage.searches)),
        repeated_searches: mean(&|trace| f64::from(trace.usage.repeated_searches)),
        fetches: mean(&|trace| f64::from(trace.usage.fetches)),
        turns: mean(&|trace| f64::from(trace.usage.turns)),
        invalid_actions: mean(&|trace| f64::from(trace.usage.invalid_actions)),
        sampled_tokens: mean(&|trace| f64::from(trace.usage.sampled_tokens)),
        read_tokens: mean(&|trace| f64::from(trace.usage.prompt_tokens + trace.usage.observed_tokens)),
        seconds: mean(&|trace| trace.timings.total),
    }
}

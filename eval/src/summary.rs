//! What a set of traces amounts to.

use std::collections::BTreeMap;

use drgym_env::{Boundary, Outcome, Trace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics::{Interval, StatisticsError, wilson_interval};

/// Confidence of every interval of a summary.
pub const CONFIDENCE: f64 = 0.95;

/// A rate of right answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// Right answers.
    pub correct: usize,
    /// Scored episodes.
    pub n: usize,
    /// `correct / n`.
    pub value: f64,
    /// Wilson's 95 % interval.
    pub interval: Interval,
}

impl Rate {
    /// The rate of `correct` in `n`; `None` if nothing was scored.
    pub fn new(correct: usize, n: usize) -> Result<Option<Self>, StatisticsError> {
        if n == 0 {
            return Ok(None);
        }
        let interval = wilson_interval(correct, n, CONFIDENCE)?;
        Ok(Some(Self { correct, n, value: correct as f64 / n as f64, interval }))
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
        self.search_failed + self.policy_failed + self.judge_failed + self.environment_failed
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
    /// Share of right answers among the scored episodes; `None` if none was scored.
    pub accuracy: Option<Rate>,
    /// The same for each kind of task.
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
        let mut tallies: BTreeMap<(&str, String), (usize, usize)> = BTreeMap::new();
        let mut scored = Vec::new();
        for trace in traces {
            let Some(correct) = trace.correct else {
                match &trace.outcome {
                    Outcome::Failed { boundary: Boundary::Search, .. } => failures.search_failed += 1,
                    Outcome::Failed { boundary: Boundary::Policy, .. } => failures.policy_failed += 1,
                    Outcome::Failed { boundary: Boundary::Environment, .. } => {
                        failures.environment_failed += 1;
                    }
                    _ => failures.judge_failed += 1,
                }
                continue;
            };
            scored.push(trace);
            if !correct {
                match &trace.outcome {
                    Outcome::TurnLimit => failures.turn_limit += 1,
                    Outcome::ContextLimit => failures.context_limit += 1,
                    _ => failures.wrong_answer += 1,
                }
            }
            let mut tally = |group, name: String| {
                let (right, n) = tallies.entry((group, name)).or_default();
                *right += usize::from(correct);
                *n += 1;
            };
            tally("all", String::new());
            if !trace.task.kind.is_empty() {
                tally("kind", trace.task.kind.clone());
            }
            if !trace.task.phrasing.is_empty() {
                let unseen = trace.task.phrasing.starts_with(UNSEEN_PREFIX);
                tally("phrasing", if unseen { "unseen" } else { "seen" }.to_owned());
            }
        }
        let group = |wanted: &str| -> Result<BTreeMap<String, Rate>, StatisticsError> {
            let mut rates = BTreeMap::new();
            for ((_, name), &(correct, n)) in tallies.iter().filter(|((group, _), _)| *group == wanted) {
                rates.extend(Rate::new(correct, n)?.map(|rate| (name.clone(), rate)));
            }
            Ok(rates)
        };
        Ok(Self {
            episodes: traces.len(),
            accuracy: group("all")?.remove(""),
            by_kind: group("kind")?,
            by_phrasing: group("phrasing")?,
            failures,
            means: means(&scored),
        })
    }
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

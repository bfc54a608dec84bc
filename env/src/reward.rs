//! Scoring a finished episode.

use async_trait::async_trait;
use drgym_judge::Verdict;

use crate::trace::Trace;

/// What scoring a trace gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The reward of the whole episode.
    pub reward: f64,
    /// Whether the answer was right, the figure that evaluations report.
    pub correct: bool,
    /// The decisions behind it; empty where no judge was needed (no answer was given).
    pub verdicts: Vec<Verdict>,
}

/// Why a trace has no reward. The sample is dropped, never scored.
#[derive(Debug, thiserror::Error)]
pub enum RewardError {
    /// The judge failed.
    #[error(transparent)]
    Judge(#[from] drgym_judge::JudgeError),
    /// The episode itself failed for a reason outside the policy.
    #[error("the episode failed at the {boundary} boundary, so there is nothing to score")]
    EpisodeFailed {
        /// Where it failed.
        boundary: String,
    },
}

/// Scores an episode once, on its finished trace.
#[async_trait]
pub trait Reward: Send + Sync {
    /// The score, or why there is none.
    async fn score(&self, trace: &Trace) -> Result<Scored, RewardError>;

    /// A short name for results.
    fn name(&self) -> String;
}

//! Scoring a finished episode.

use std::sync::Arc;

use async_trait::async_trait;
use drgym_judge::{AnswerJudge, JudgeRequest, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::trace::{Outcome, Trace};

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

/// What outcomes are worth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RewardConfig {
    /// The answer was right.
    pub correct: f64,
    /// An answer was given, and it was wrong.
    pub answered: f64,
    /// No answer was given.
    pub no_answer: f64,
    /// Subtracted for every output that was no action.
    pub invalid_action_penalty: f64,
    /// Subtracted for every search whose query repeats an earlier one of the episode.
    pub repeated_search_penalty: f64,
}

impl Default for RewardConfig {
    fn default() -> Self {
        Self {
            correct: 1.0,
            answered: 0.0,
            no_answer: 0.0,
            invalid_action_penalty: 0.0,
            repeated_search_penalty: 0.0,
        }
    }
}

impl RewardConfig {
    /// Every problem of the settings, with the path of the key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let values = [
            self.correct,
            self.answered,
            self.no_answer,
            self.invalid_action_penalty,
            self.repeated_search_penalty,
        ];
        if values.iter().any(|value| !value.is_finite()) {
            problems.push("every value of reward must be a finite number".into());
        }
        if self.correct <= self.answered || self.correct <= self.no_answer {
            problems.push("reward.correct must be larger than reward.answered and reward.no_answer".into());
        }
        problems
    }
}

/// Pays by a judge's verdict on the answer.
pub struct JudgedReward {
    judge: Arc<dyn AnswerJudge>,
    config: RewardConfig,
}

impl JudgedReward {
    /// A reward that asks `judge`.
    pub fn new(judge: Arc<dyn AnswerJudge>, config: RewardConfig) -> Self {
        Self { judge, config }
    }
}

#[async_trait]
impl Reward for JudgedReward {
    async fn score(&self, trace: &Trace) -> Result<Scored, RewardError> {
        let config = &self.config;
        let (base, correct, verdicts) = match &trace.outcome {
            Outcome::Failed { boundary, .. } => {
                return Err(RewardError::EpisodeFailed { boundary: boundary.to_string() });
            }
            Outcome::TurnLimit | Outcome::ContextLimit => (config.no_answer, false, Vec::new()),
            Outcome::Answered { answer } => {
                let request = JudgeRequest {
                    question: trace.task.question.clone(),
                    references: trace.task.answers.clone(),
                    answer: answer.clone(),
                };
                let verdict = self.judge.judge(&request).await?;
                let base = if verdict.correct { config.correct } else { config.answered };
                (base, verdict.correct, vec![verdict])
            }
        };
        let penalty = config.invalid_action_penalty * f64::from(trace.usage.invalid_actions)
            + config.repeated_search_penalty * f64::from(trace.usage.repeated_searches);
        Ok(Scored { reward: base - penalty, correct, verdicts })
    }

    fn name(&self) -> String {
        self.judge.name()
    }
}

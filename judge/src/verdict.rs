//! The question put to every answer judge, and what it may answer.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// An answer to be judged against references.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgeRequest {
    /// The question that was asked.
    pub question: String,
    /// Accepted answers, aliases included; matching any one of them is enough. Never empty.
    pub references: Vec<String>,
    /// The answer to judge: only text that the policy wrote inside its answer action.
    pub answer: String,
}

/// Who decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictSource {
    /// A rule, named.
    Rule(String),
    /// A language model, named.
    Model(String),
}

/// A judge's decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the answer means the same as one of the references.
    pub correct: bool,
    /// Who decided.
    pub source: VerdictSource,
    /// Why, in a sentence.
    pub rationale: String,
}

/// Why there is no verdict. Never turned into a score.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// The request names no reference to compare with.
    #[error("the task has no reference answer")]
    NoReference,
    /// The judge's server failed, after the retries that the client was allowed.
    #[error("the judge {judge} did not answer: {reason}")]
    Unavailable {
        /// Model and address.
        judge: String,
        /// What was seen.
        reason: String,
    },
    /// The judge answered, but not in the form that was asked for.
    #[error("the judge {judge} gave no usable verdict: {reason}")]
    Unparsable {
        /// Model and address.
        judge: String,
        /// What was expected and what was found.
        reason: String,
    },
}

/// Decides whether an answer is right.
#[async_trait]
pub trait AnswerJudge: Send + Sync {
    /// One verdict, or why there is none.
    async fn judge(&self, request: &JudgeRequest) -> Result<Verdict, JudgeError>;

    /// A short name for results, for instance `rules` or `gpt-4o-mini`.
    fn name(&self) -> String;
}

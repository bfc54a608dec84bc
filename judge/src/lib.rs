//! Judging answers: rules, language models, and the one way in which language models are asked.
//!
//! ```text
//! JudgeRequest ──▶ AnswerJudge ──▶ Verdict          RuleJudge: normalised match, numbers, dates, aliases
//!                      │                            SoftMatchJudge: rules first, then a language model
//!                      └─▶ StructuredCall<T> ──▶ ChatClient ──▶ OpenAI-compatible server
//! ```
//!
//! An error is never a verdict: a judge that failed returns [`JudgeError`], and the caller drops the sample.

pub mod verdict;

pub use verdict::{AnswerJudge, JudgeError, JudgeRequest, Verdict, VerdictSource};

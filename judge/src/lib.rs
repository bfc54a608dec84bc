//! Judging answers: rules, language models, and the one way in which language models are asked.
//!
//! ```text
//! JudgeConfig ─build─▶ AnswerJudge ◀─ JudgeRequest        RuleJudge: normalised match, numbers, dates, aliases
//!                      │      └─▶ Verdict | JudgeError     SoftMatchJudge: rules first, then a language model
//!                      └─▶ StructuredCall<T> ──▶ ChatClient
//!                                                ├ OpenAiClient    an OpenAI-compatible server
//!                                                ├ ObservedClient  cache, CallLog, Ledger around another client
//!                                                └ ReplayClient    a CallLog played back
//! ```
//!
//! An error is never a verdict: a judge that failed returns [`JudgeError`], and the caller drops the sample.
//!
//! | module | what is in it |
//! |---|---|
//! | [`verdict`] | the question put to judges and their answers |
//! | [`normalize`] | normalisation of answers; exact match and F1 of SQuAD and HotpotQA |
//! | [`rules`] | the judge of rules |
//! | [`soft_match`] | the judge that asks a model |
//! | [`structured`] | one prompt, one schema, one typed answer |
//! | [`chat`] | clients of chat models, keys, retries |
//! | [`call_log`], [`ledger`] | observing, caching, recording, replaying and counting calls |
//! | [`config`] | which judge a run uses |

pub mod call_log;
pub mod chat;
pub mod config;
pub mod ledger;
pub mod normalize;
pub mod rules;
pub mod soft_match;
pub mod structured;
pub mod verdict;

pub use call_log::{
    Call, CallLog, CallObserver, CallRecord, MemoryCache, ObservedClient, ReplayClient, ReplyCache,
};
pub use chat::openai::{ModelConfig, OpenAiClient, RetryWaits};
pub use chat::secret::ApiKey;
pub use chat::{ChatClient, ChatError, ChatMessage, ChatReply, ChatRequest, Role, Usage};
pub use config::{JudgeConfig, JudgeConfigError, JudgeKind, build, build_with};
pub use ledger::{Ledger, LedgerTotals};
pub use rules::RuleJudge;
pub use soft_match::SoftMatchJudge;
pub use structured::{StructuredCall, StructuredError, StructuredSettings};
pub use verdict::{AnswerJudge, JudgeError, JudgeRequest, Verdict, VerdictSource};

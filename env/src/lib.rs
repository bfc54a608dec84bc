//! The environment: tasks, actions, episodes, traces and rewards of a search agent.
//!
//! ```text
//!            Task ──reset──▶ SearchEnv ◀──step(action text)── Episode ◀──tokens──▶ Policy
//!                               │  ▲                             │
//!                     SearchBackend (search, fetch)              ├─ Renderer: state ⇄ token ids, text ⇄ Action
//!                                                                ▼
//!                                              Trace (segments, events) ──Reward──▶ verdicts, reward
//! ```
//!
//! An episode that went wrong is data: the failure is attributed to one boundary and recorded in the trace.
//! A failure of the infrastructure is an error, never an observation and never a score.

pub mod action;
pub mod chat_template;
pub mod config;
pub mod environment;
pub mod episode;
pub mod policy;
pub mod renderer;
pub mod reward;
pub mod rollout;
pub mod schedule;
pub mod scripted;
pub mod seed;
pub mod task;
pub mod tokenizer;
pub mod trace;

#[cfg(test)]
mod testing;

pub use action::Action;
pub use config::{EnvConfig, FormatName, History};
pub use environment::{EnvError, Observation, SearchEnv, Step};
pub use episode::{Episode, EpisodeSetting, EpisodeSpec};
pub use policy::{
    EpisodeKey, OpenRequest, Policy, PolicyError, PolicyInfo, Sampled, SamplingParams, SessionId, StopReason,
};
pub use renderer::Renderer;
pub use reward::{JudgedReward, Reward, RewardConfig, RewardError, Scored};
pub use rollout::{RolloutError, RolloutRequest, Rollouts};
pub use schedule::{RolloutConfig, Schedule, Scheduler};
pub use scripted::{Expert, ScriptedPolicy};
pub use task::{ExpertStep, Task, TaskProvenance};
pub use tokenizer::{TextTokenizer, TokenizerError};
pub use trace::{Boundary, Event, Outcome, Segment, Trace, Usage};

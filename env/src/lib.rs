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
pub mod policy;
pub mod reward;
pub mod seed;
pub mod task;
pub mod trace;

pub use action::Action;
pub use policy::{
    EpisodeKey, OpenRequest, Policy, PolicyError, PolicyInfo, Sampled, SamplingParams, SessionId, StopReason,
};
pub use reward::{Reward, RewardError, Scored};
pub use task::{ExpertStep, Task, TaskProvenance};
pub use trace::{Boundary, Event, Outcome, Segment, Trace, Usage};

//! Playing many episodes: the trait by which trainer and evaluation ask for it, and what they get.

use std::sync::Arc;

use async_trait::async_trait;

use crate::policy::Policy;
use crate::task::Task;
use crate::trace::Trace;

/// Which episodes to play.
#[derive(Clone, Debug)]
pub struct RolloutRequest {
    /// The tasks, in the order in which the traces are wanted.
    pub tasks: Vec<Arc<Task>>,
    /// Episodes a task.
    pub samples: u32,
    /// 0 is greedy.
    pub temperature: f32,
    /// Root of every random draw.
    pub root_seed: u64,
    /// Step of the run, a part of every seed's name.
    pub step: u64,
    /// What the episodes are for (`train`, `dev`, `test`), a part of every seed's name.
    pub component: &'static str,
}

/// Why no traces came back at all. The failure of a single episode is recorded in its trace.
#[derive(Debug, thiserror::Error)]
pub enum RolloutError {
    /// The request cannot be played.
    #[error("cannot roll out: {0}")]
    BadRequest(String),
    /// Someone asked to stop.
    #[error("the rollout was interrupted")]
    Cancelled,
}

/// Plays episodes of a policy and scores them.
#[async_trait]
pub trait Rollouts: Send + Sync {
    /// Scored traces, ordered by (position of the task, sample).
    async fn run(&self, policy: Arc<dyn Policy>, request: RolloutRequest)
    -> Result<Vec<Trace>, RolloutError>;
}

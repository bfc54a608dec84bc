//! Evaluating a policy on tasks.

use std::sync::Arc;

use drgym_env::{Policy, RolloutError, RolloutRequest, Rollouts, Task, Trace};

use crate::statistics::StatisticsError;
use crate::summary::Summary;

/// What to evaluate on, and how to draw.
#[derive(Clone)]
pub struct EvaluationRequest {
    /// The tasks.
    pub tasks: Vec<Arc<Task>>,
    /// Episodes a task.
    pub samples: u32,
    /// 0 is greedy.
    pub temperature: f32,
    /// Root of every random draw.
    pub seed: u64,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum EvaluationError {
    /// There is nothing to evaluate on.
    #[error("there is no task to evaluate on")]
    NoTasks,
    /// The episodes could not be played.
    #[error(transparent)]
    Rollout(#[from] RolloutError),
    /// The figures could not be computed.
    #[error(transparent)]
    Statistics(#[from] StatisticsError),
}

/// Plays every task and sums up.
pub async fn evaluate(
    rollouts: &dyn Rollouts,
    policy: Arc<dyn Policy>,
    request: EvaluationRequest,
) -> Result<(Summary, Vec<Trace>), EvaluationError> {
    if request.tasks.is_empty() {
        return Err(EvaluationError::NoTasks);
    }
    let rollout = RolloutRequest {
        tasks: request.tasks,
        samples: request.samples,
        temperature: request.temperature,
        root_seed: request.seed,
        step: 0,
        component: "eval",
    };
    let traces = rollouts.run(policy, rollout).await?;
    Ok((Summary::of(&traces)?, traces))
}

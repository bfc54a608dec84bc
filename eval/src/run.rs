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
    #[error("there is no task to play")]
    NoTasks,
    /// Greedy decoding gives every sample of a task the same episode.
    #[error(
        "at temperature 0 the {samples} samples of a task are copies: expected 1 sample, or a temperature above 0"
    )]
    IdenticalSamples {
        /// Samples asked for.
        samples: u32,
    },
    /// The episodes could not be played.
    // Not transparent: a caller must find this error among the causes to tell an interruption from a failure.
    #[error("{0}")]
    Rollout(#[from] RolloutError),
    /// The figures could not be computed.
    #[error(transparent)]
    Statistics(#[from] StatisticsError),
}

/// Whether `tasks` tasks can be played so; to be asked before anything expensive is loaded.
pub fn check_episodes(tasks: usize, samples: u32, temperature: f32) -> Result<(), EvaluationError> {
    if tasks == 0 {
        return Err(EvaluationError::NoTasks);
    }
    if samples > 1 && temperature == 0.0 {
        return Err(EvaluationError::IdenticalSamples { samples });
    }
    Ok(())
}

/// Plays every task and sums up.
pub async fn evaluate(
    rollouts: &dyn Rollouts,
    policy: Arc<dyn Policy>,
    request: EvaluationRequest,
) -> Result<(Summary, Vec<Trace>), EvaluationError> {
    check_episodes(request.tasks.len(), request.samples, request.temperature)?;
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

//! Why a training run could not go on.

use std::path::PathBuf;

use drgym_search::artefact::ArtefactError;

use crate::algorithm::advantage::AdvantageError;
use crate::checkpoint::CheckpointError;
use crate::device::DeviceError;
use crate::metrics::{MetricsError, SkippedUpdate};
use crate::model::ModelError;
use crate::optimizer::OptimizerError;
use crate::sampler::SamplerError;

/// Why a training run could not go on. What was done before is in its checkpoints.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The configuration cannot run.
    #[error("the configuration cannot run: {}", .0.join("; "))]
    Config(Vec<String>),
    /// There is nothing to learn from.
    #[error("nothing to learn from: {0}")]
    NoData(String),
    /// The folder of the new run holds an earlier one.
    #[error("{path} holds a run already; resume it or choose another folder")]
    RunExists {
        /// The folder.
        path: PathBuf,
    },
    /// There is no run to go on with.
    #[error("{path} holds no run to resume; start it without --resume")]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is an index or a set of tasks.
    #[error("{path} holds an index or tasks (it has a manifest.json); a run needs a folder of its own")]
    Taken {
        /// The folder.
        path: PathBuf,
    },
    /// The run had checkpoints, and they are gone.
    #[error(
        "{path} has had checkpoints, but none is left: beginning again would cut off the metrics of the steps that it \
         did; bring its folder checkpoints back, or start a new run in another folder"
    )]
    CheckpointsLost {
        /// The run's folder.
        path: PathBuf,
    },
    /// Another process works in the folder.
    #[error("another process is training in {path}; wait for it, or choose another folder")]
    RunBusy {
        /// The folder.
        path: PathBuf,
    },
    /// An expert trace or an episode breaks an invariant.
    #[error("episode {episode} cannot be learnt from: {reason}")]
    Episode {
        /// Task and sample.
        episode: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The episodes that came back are not those that were asked for.
    #[error("the rollout gave something else than was asked for: {0}")]
    Membership(String),
    /// Too many episodes failed outside the policy.
    #[error(
        "step {step}: {failed} of {episodes} episodes have no reward, more than the allowed share of {limit}; \
         causes: {causes}"
    )]
    TooManyFailures {
        /// The step.
        step: u64,
        /// Episodes without a reward.
        failed: usize,
        /// Episodes that were run.
        episodes: usize,
        /// The allowed share.
        limit: f64,
        /// The causes with an example each.
        causes: String,
    },
    /// Loss or gradient was not finite again and again.
    #[error(
        "step {step}: {in_row} updates in a row were not finite ({reason}); last samples: {samples}; \
         --resume does not go on past this: look at these samples, and start a new run, with its model.path at a \
         checkpoint of this one and a lower learning rate"
    )]
    NotFinite {
        /// The step.
        step: u64,
        /// Updates in a row.
        in_row: u64,
        /// What was not finite.
        reason: String,
        /// The samples of the last of them.
        samples: String,
    },
    /// The rollout could not run.
    #[error("step {step}: {source}")]
    Rollout {
        /// The step.
        step: u64,
        /// What was wrong.
        source: drgym_env::rollout::RolloutError,
    },
    /// A file of the run cannot be written.
    #[error("cannot write {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Advantages cannot be computed.
    #[error(transparent)]
    Advantage(#[from] AdvantageError),
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The sampler cannot be set up.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The device is not to be had.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The optimiser failed.
    #[error(transparent)]
    Optimizer(#[from] OptimizerError),
    /// A file of the run cannot be written whole.
    #[error(transparent)]
    Artefact(#[from] ArtefactError),
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Metrics cannot be written.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
}

impl TrainError {
    /// What a run comes to that ended after `step`, when `in_row` updates had been left out, one after another.
    pub(crate) fn not_finite(step: u64, in_row: u64, last: &SkippedUpdate) -> Self {
        Self::NotFinite { step, in_row, reason: last.reason.clone(), samples: last.samples.join(", ") }
    }
}

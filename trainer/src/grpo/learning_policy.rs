//! The policy that a run's episodes are drawn from, while its weights change between steps.

use std::sync::Arc;

use async_trait::async_trait;

use drgym_env::Policy;

use crate::config::ModelOptions;
use crate::error::TrainError;
use crate::model::{ModelFolder, ModelHandle};
use crate::sampler::LocalPolicy;

/// A policy that draws from the model being trained.
#[async_trait]
pub trait LearningPolicy: Policy {
    /// Called when no session is open and the weights are those after `version` steps: whatever was computed with
    /// others is forgotten, and [`Policy::info`] gives the version from now on.
    async fn weights_changed(&self, version: u64) -> Result<(), TrainError>;

    /// Called when no session is open and an update follows: memory that only sampling needs is given back.
    async fn rollout_ended(&self) -> Result<(), TrainError> {
        Ok(())
    }
}

/// Makes the policy, once the model has its thread.
pub type PolicyMaker = Box<dyn FnOnce(&ModelHandle) -> Result<Arc<dyn LearningPolicy>, TrainError> + Send>;

/// The sampler of this crate, with tokenizer and end tokens of the model's folder.
pub fn local_policy(model: ModelOptions) -> PolicyMaker {
    Box::new(move |handle| {
        let folder = ModelFolder::open(&model.path)?;
        Ok(Arc::new(LocalPolicy::for_folder(handle.clone(), &folder, model.cache_bytes())?))
    })
}

#[async_trait]
impl LearningPolicy for LocalPolicy {
    async fn weights_changed(&self, version: u64) -> Result<(), TrainError> {
        // Jobs of the model thread keep their order, so this is done before the next token is drawn.
        self.invalidate()?;
        self.set_version(version);
        Ok(())
    }

    async fn rollout_ended(&self) -> Result<(), TrainError> {
        Ok(self.release_memory()?)
    }
}

//! A model folder as a policy: the decoder on its thread, and the sampler on top.

use std::path::Path;
use std::sync::Arc;

use drgym_env::{EnvConfig, Renderer};
use drgym_trainer::config::ModelOptions;
use drgym_trainer::learner::{load_options, threads};
use drgym_trainer::model::{Decoder, ModelFolder, ModelThread};
use drgym_trainer::sampler::LocalPolicy;

use crate::failure::Outcome;
use crate::policy::OpenPolicy;

/// Loads a model and starts its thread.
pub async fn open(
    options: &ModelOptions,
    renderer: Arc<Renderer>,
    env: Arc<EnvConfig>,
) -> Outcome<OpenPolicy> {
    let (load, threads) = (load_options(options)?, threads(options));
    let path = options.path.clone();
    let policy = tokio::task::spawn_blocking(move || sampler(&path, load, threads)).await??;
    Ok(OpenPolicy { policy: Arc::new(policy), renderer, env })
}

fn sampler(path: &Path, load: drgym_trainer::model::LoadOptions, threads: usize) -> Outcome<LocalPolicy> {
    let folder = ModelFolder::open(path)?;
    let model = path.to_owned();
    let (handle, ()) =
        ModelThread::spawn(threads, move || Decoder::load(&model, load).map(|decoder| (decoder, ())))?;
    Ok(LocalPolicy::for_folder(handle, &folder)?)
}

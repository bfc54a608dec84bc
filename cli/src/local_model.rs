//! A model folder as a policy: the decoder on its thread, and the sampler on top.

use std::sync::Arc;

use drgym_env::{EnvConfig, Renderer};
use drgym_trainer::config::ModelOptions;
use drgym_trainer::learner::{load_options, threads};
use drgym_trainer::model::{Decoder, LoadOptions, ModelFolder, ModelThread};
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
    let options = options.clone();
    let policy = tokio::task::spawn_blocking(move || sampler(&options, load, threads)).await??;
    Ok(OpenPolicy { policy: Arc::new(policy), renderer, env })
}

fn sampler(options: &ModelOptions, load: LoadOptions, threads: usize) -> Outcome<LocalPolicy> {
    let folder = ModelFolder::open(&options.path)?;
    let path = options.path.clone();
    let (handle, ()) =
        ModelThread::spawn(threads, move || Decoder::load(&path, load).map(|decoder| (decoder, ())))?;
    Ok(LocalPolicy::for_folder(handle, &folder, options.cache_bytes())?)
}

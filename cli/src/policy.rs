//! From words on the command line to a policy and the renderer that speaks its tokens.

use std::path::Path;
use std::sync::Arc;

use drgym_env::{EnvConfig, Expert, Policy, Renderer, ScriptedPolicy, Task};

use crate::config::{Config, PolicyConfig};
use crate::failure::{Failure, Outcome, WithHint};
use crate::paths;

/// Bytes that a token stands for, roughly; what limits are multiplied by where a token is a byte.
const BYTES_PER_TOKEN: u32 = 5;

/// A policy, its renderer, and the limits that fit its tokens.
pub struct OpenPolicy {
    /// Draws tokens.
    pub policy: Arc<dyn Policy>,
    /// Speaks its tokens.
    pub renderer: Arc<Renderer>,
    /// The settings, in its tokens.
    pub env: Arc<EnvConfig>,
}

/// Opens `DIR`, `expert` or `expert:DIR`.
pub async fn open(text: &str, config: &Config, tasks: &[Arc<Task>]) -> Outcome<OpenPolicy> {
    let env = &config.env;
    if text == "expert" {
        let env = Arc::new(in_bytes(env));
        let renderer = Arc::new(Renderer::bytes(env.clone())?);
        return Ok(expert(renderer, env, tasks));
    }
    if let Some(folder) = text.strip_prefix("expert:") {
        let env = Arc::new(env.clone());
        let renderer = Arc::new(Renderer::for_model(&paths::expand(Path::new(folder)), env.clone())?);
        return Ok(expert(renderer, env, tasks));
    }
    let folder = paths::expand(Path::new(text));
    if !folder.is_dir() {
        return Err(Failure::new(format!("there is no model folder {}", folder.display()))).hint(
            "give a Hugging Face model folder, `expert`, or `expert:DIR`; scripts/setup.sh lays out a model",
        );
    }
    let env = Arc::new(env.clone());
    let renderer = Arc::new(Renderer::for_model(&folder, env.clone())?);
    open_model(&folder, &config.policy, renderer, env).await
}

#[cfg(feature = "train")]
async fn open_model(
    folder: &Path,
    settings: &PolicyConfig,
    renderer: Arc<Renderer>,
    env: Arc<EnvConfig>,
) -> Outcome<OpenPolicy> {
    use drgym_trainer::config::{Dtype, LoraOptions, ModelOptions, TrainablePart};

    let options = ModelOptions {
        path: folder.to_owned(),
        dtype: if settings.bf16 { Dtype::Bf16 } else { Dtype::F32 },
        trainable: TrainablePart::All,
        lora: LoraOptions::default(),
        activation_checkpointing: false,
        device: settings.device.clone(),
        threads: settings.threads,
        cache_gib: settings.cache_gib,
    };
    crate::local_model::open(&options, renderer, env).await
}

fn expert(renderer: Arc<Renderer>, env: Arc<EnvConfig>, tasks: &[Arc<Task>]) -> OpenPolicy {
    let script = Expert::new(tasks.iter().cloned(), &renderer);
    OpenPolicy { policy: Arc::new(ScriptedPolicy::new(script, renderer.clone())), renderer, env }
}

fn in_bytes(env: &EnvConfig) -> EnvConfig {
    EnvConfig {
        max_response_tokens: env.max_response_tokens.saturating_mul(BYTES_PER_TOKEN),
        max_observation_tokens: env.max_observation_tokens.saturating_mul(BYTES_PER_TOKEN),
        max_context_tokens: env.max_context_tokens.saturating_mul(BYTES_PER_TOKEN),
        ..env.clone()
    }
}

#[cfg(not(feature = "train"))]
#[expect(clippy::unused_async, reason = "called as the one of a build with the trainer is")]
async fn open_model(_: &Path, _: &PolicyConfig, _: Arc<Renderer>, _: Arc<EnvConfig>) -> Outcome<OpenPolicy> {
    Err(Failure::new("this build of drgym cannot run a model; it was built without the feature `train`"))
}

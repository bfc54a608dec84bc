//! Puts search engine, policy tokens, judge and limits together.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use drgym_env::{EnvConfig, EpisodeSetting, JudgedReward, Renderer, Scheduler};
use drgym_search::SearchBackend;

use crate::config::Config;
use crate::failure::Outcome;

/// The scheduler that a configuration describes.
pub fn scheduler(
    config: &Config,
    renderer: Arc<Renderer>,
    env: Arc<EnvConfig>,
    backend: Arc<dyn SearchBackend>,
    cancel: Arc<AtomicBool>,
) -> Outcome<Scheduler> {
    let judge = drgym_judge::build(&config.judge)?;
    let reward = Arc::new(JudgedReward::new(judge, config.reward.clone()));
    let setting = EpisodeSetting { renderer, config: env, backend };
    Ok(Scheduler::new(setting, reward, config.rollout.clone()).with_cancel(cancel))
}

//! Puts search engine, policy, judge and limits together.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use drgym_env::{EnvConfig, EpisodeSetting, JudgedReward, Policy, Renderer, Scheduler, Task};
use drgym_search::SearchBackend;

use crate::config::Config;
use crate::failure::Outcome;
use crate::printer::{Bar, Printer};
use crate::{interrupt, policy};

/// A policy and the scheduler of its episodes, which a progress bar follows and Ctrl-C interrupts.
pub struct Episodes {
    /// Runs the episodes.
    pub scheduler: Scheduler,
    /// Plays them.
    pub policy: Arc<dyn Policy>,
    /// The settings, in the policy's tokens.
    pub env: Arc<EnvConfig>,
    /// To be finished after them.
    pub bar: Arc<Bar>,
}

/// Opens a policy by its name for `samples` episodes of each task.
pub async fn open(
    config: &Config,
    policy: &str,
    tasks: &[Arc<Task>],
    samples: u32,
    backend: Arc<dyn SearchBackend>,
    printer: Printer,
) -> Outcome<Episodes> {
    let opened = policy::open(policy, config, tasks).await?;
    let bar = Arc::new(printer.bar("episodes", tasks.len() as u64 * u64::from(samples)));
    let shown = bar.clone();
    let cancel = interrupt::cancel_flag(printer);
    let scheduler = scheduler(config, opened.renderer, opened.env.clone(), backend, cancel)?
        .with_progress(Arc::new(move |finished, _| shown.set(finished as u64, "")));
    Ok(Episodes { scheduler, policy: opened.policy, env: opened.env, bar })
}

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

//! Puts search engine, policy, judge and limits together.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use drgym_env::{EnvConfig, EpisodeSetting, JudgedReward, Policy, Renderer, Scheduler, Task};
use drgym_search::{Page, PageRequest, SearchBackend, SearchError, SearchResponse};

use crate::config::Config;
use crate::failure::{Failure, Outcome, WithHint};
use crate::printer::{Bar, Printer};
use crate::{backend, interrupt, paths, policy};

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

/// blake3 over the files of the model folder that a policy's name stands for, in hex; `None` for policies that are no model.
pub fn model_hash(policy: &str) -> Outcome<Option<String>> {
    if policy == "expert" || policy.starts_with("expert:") {
        return Ok(None);
    }
    hash_folder(&paths::expand(Path::new(policy))).map(Some)
}

#[cfg(feature = "train")]
fn hash_folder(folder: &Path) -> Outcome<String> {
    Ok(drgym_trainer::checkpoint::model_hash(folder)?)
}

#[cfg(not(feature = "train"))]
fn hash_folder(_: &Path) -> Outcome<String> {
    Err(Failure::new("this build of drgym cannot read a model; it was built without the feature `train`"))
}

/// Opens what `--search` names, or else what the configuration does, and makes the configuration say so.
pub async fn open_search(named: Option<&str>, config: &mut Config) -> Outcome<Arc<dyn SearchBackend>> {
    match named {
        Some("none") => config.env.search = false,
        Some(text) => {
            let named = backend::parse(text);
            // A configured key is for the configured server, and for no other.
            if named.url.is_some() && config.search.url.is_some() && named.url != config.search.url {
                config.search.api_key_env = None;
            }
            config.search.index = named.index;
            config.search.url = named.url;
            config.search.fetch_url = named.fetch_url;
            return backend::open(&config.search).await;
        }
        None => {}
    }
    if !config.env.search {
        return Ok(Arc::new(NoSearch));
    }
    if config.search.index.is_none() && config.search.url.is_none() {
        return Err(Failure::new("nothing to search is named"))
            .hint("name an index folder or URL with --search, or `--search none`");
    }
    backend::open(&config.search).await
}

/// Stands where the environment never searches.
struct NoSearch;

#[async_trait::async_trait]
impl SearchBackend for NoSearch {
    async fn search(&self, _: &str, _: usize) -> Result<SearchResponse, SearchError> {
        Err(SearchError::Internal("search is switched off".into()))
    }

    async fn fetch(&self, _: &PageRequest) -> Result<Page, SearchError> {
        Err(SearchError::Internal("search is switched off".into()))
    }

    fn name(&self) -> String {
        "none".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_configured_key_goes_to_the_configured_server_only() {
        let configured = || {
            let mut config = Config::default();
            config.search.url = Some("http://127.0.0.1:9".into());
            config.search.api_key_env = Some("DRGYM_TEST_KEY_THAT_NOBODY_SETS".into());
            config
        };
        let mut config = configured();
        assert!(open_search(Some("http://127.0.0.1:10"), &mut config).await.is_ok());
        assert_eq!(config.search.api_key_env, None);

        let same = open_search(Some("http://127.0.0.1:9"), &mut configured()).await;
        assert!(same.is_err(), "the key that nobody set was not asked for");
    }
}

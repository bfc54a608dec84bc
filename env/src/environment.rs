//! The gym-like environment: text of an action in, structured observation out.

use std::collections::HashSet;
use std::sync::Arc;

use drgym_search::{Page, PageRequest, Provenance, SearchBackend, SearchError, SearchHit};

use crate::action::{Action, TagsFormat};
use crate::config::EnvConfig;
use crate::task::Task;
use crate::trace::Usage;

/// What the environment tells the policy.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// The question, at the start.
    Question(String),
    /// What a search found, best first; may be empty.
    Documents(Vec<SearchHit>),
    /// A fetched page.
    Page(Page),
    /// A fact about the request that the policy may know, for instance that there is no such page.
    Notice(String),
    /// The history was replaced by this summary.
    Summarised(String),
    /// Nothing more: the episode is over.
    End,
}

/// What an action led to.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What the policy is told.
    pub observation: Observation,
    /// The episode ended by an answer.
    pub terminated: bool,
    /// The episode ended by a limit.
    pub truncated: bool,
    /// What happened, for the trace.
    pub info: StepInfo,
}

/// What happened in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepInfo {
    /// The action that was read.
    pub action: Action,
    /// Where the documents or the page came from.
    pub provenance: Option<Provenance>,
}

/// Why a step could not be taken. Never shown to the policy, never scored.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// The search engine failed.
    #[error("{0}")]
    Search(#[source] SearchError),
    /// The environment was used out of order.
    #[error("{0}")]
    Misuse(&'static str),
}

/// One agent's environment: a search engine, limits, and the state of one episode.
///
/// ```text
/// reset(task) ─▶ Question ─ step("<search>…") ─▶ Documents ─ step("<answer>…") ─▶ End (terminated)
/// ```
pub struct SearchEnv {
    backend: Arc<dyn SearchBackend>,
    config: Arc<EnvConfig>,
    format: TagsFormat,
    usage: Usage,
    queries: HashSet<String>,
    answer: Option<String>,
    running: bool,
}

impl SearchEnv {
    /// An environment over a search engine. [`reset`](Self::reset) before the first step.
    pub fn new(backend: Arc<dyn SearchBackend>, config: Arc<EnvConfig>) -> Self {
        let format = TagsFormat::new(&config);
        Self {
            backend,
            config,
            format,
            usage: Usage::default(),
            queries: HashSet::new(),
            answer: None,
            running: false,
        }
    }

    /// Starts an episode. The environment itself draws nothing at random; every draw is the policy's.
    pub fn reset(&mut self, task: &Task) -> Observation {
        self.usage = Usage::default();
        self.queries.clear();
        self.answer = None;
        self.running = true;
        Observation::Question(task.question.clone())
    }

    /// Takes one action, given as the text that the policy wrote.
    ///
    /// An engine's failure is an error and leaves the episode running, so that the caller may try again.
    pub async fn step(&mut self, action_text: &str) -> Result<Step, EnvError> {
        if !self.running {
            return Err(EnvError::Misuse("step was called before reset or after the end of the episode"));
        }
        let action = self.format.parse(action_text);
        let mut provenance = None;
        let observation = match &action {
            Action::Search(query) => self.search(query, &mut provenance).await?,
            Action::Fetch(url) => self.fetch(url, &mut provenance).await?,
            Action::Summary(text) => Observation::Summarised(text.clone()),
            Action::Answer(_) => Observation::End,
            Action::Invalid(_) => Observation::Notice(self.format.reminder()),
        };
        // Counted only now: a failed call leaves no mark.
        self.usage.turns += 1;
        match &action {
            Action::Search(query) if !matches!(observation, Observation::Notice(_)) => {
                self.usage.searches += 1;
                let normalised = query.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
                if !self.queries.insert(normalised) {
                    self.usage.repeated_searches += 1;
                }
            }
            Action::Fetch(_) => self.usage.fetches += 1,
            Action::Answer(text) => self.answer = Some(text.clone()),
            Action::Invalid(_) => self.usage.invalid_actions += 1,
            Action::Search(_) | Action::Summary(_) => {}
        }
        let terminated = self.answer.is_some();
        let truncated = !terminated && self.usage.turns >= self.config.max_turns;
        self.running = !(terminated || truncated);
        let observation = if truncated { Observation::End } else { observation };
        Ok(Step { observation, terminated, truncated, info: StepInfo { action, provenance } })
    }

    async fn search(
        &self,
        query: &str,
        provenance: &mut Option<Provenance>,
    ) -> Result<Observation, EnvError> {
        if self.usage.searches >= self.config.max_searches {
            return Ok(Observation::Notice("No searches are left. Write <answer>answer</answer>.".into()));
        }
        if !self.config.search {
            return Ok(Observation::Documents(Vec::new()));
        }
        match self.backend.search(query, self.config.top_k as usize).await {
            Ok(response) => {
                *provenance = Some(response.provenance);
                Ok(Observation::Documents(response.hits))
            }
            Err(error) if error.is_about_request() => {
                Ok(Observation::Notice(TagsFormat::neutralise(&error.to_string())))
            }
            Err(error) => Err(EnvError::Search(error)),
        }
    }

    async fn fetch(&self, url: &str, provenance: &mut Option<Provenance>) -> Result<Observation, EnvError> {
        if !self.config.search {
            return Ok(Observation::Notice("There is no such page.".into()));
        }
        match self.backend.fetch(&PageRequest::Url(url.to_owned())).await {
            Ok(page) => {
                *provenance = Some(page.provenance.clone());
                Ok(Observation::Page(page))
            }
            Err(error) if error.is_about_request() => {
                Ok(Observation::Notice(TagsFormat::neutralise(&error.to_string())))
            }
            Err(error) => Err(EnvError::Search(error)),
        }
    }

    /// Counts so far; the token counts are the episode's business and stay 0 here.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The answer, once the episode ended by one.
    pub fn answer(&self) -> Option<&str> {
        self.answer.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FailingBackend, ToyBackend, toy_task};

    fn environment(config: EnvConfig) -> SearchEnv {
        SearchEnv::new(Arc::new(ToyBackend::default()), Arc::new(config))
    }

    #[tokio::test]
    async fn an_episode_searches_and_answers() {
        let mut env = environment(EnvConfig::default());
        let task = toy_task("t");
        assert_eq!(env.reset(&task), Observation::Question(task.question.clone()));
        let step = env.step("<search>highest point of Kenya</search>").await.unwrap();
        let Observation::Documents(hits) = &step.observation else { panic!("{:?}", step.observation) };
        assert_eq!(hits[0].doc_id, "ke/elevation");
        assert!(step.info.provenance.is_some());
        let step = env.step("<answer>Mount Kenya</answer>").await.unwrap();
        assert!(step.terminated && !step.truncated);
        assert_eq!((env.answer(), step.observation), (Some("Mount Kenya"), Observation::End));
        assert!(matches!(env.step("<answer>x</answer>").await, Err(EnvError::Misuse(_))));
    }

    #[tokio::test]
    async fn limits_end_the_episode_and_searches_run_out() {
        let mut env = environment(EnvConfig { max_turns: 4, max_searches: 1, ..EnvConfig::default() });
        env.reset(&toy_task("t"));
        env.step("<search>kenya</search>").await.unwrap();
        let step = env.step("<search>Kenya</search>").await.unwrap();
        assert!(
            matches!(&step.observation, Observation::Notice(text) if text.contains("No searches are left"))
        );
        assert!(matches!(env.step("gibberish").await.unwrap().observation, Observation::Notice(_)));
        let step = env.step("gibberish").await.unwrap();
        assert!(step.truncated && step.observation == Observation::End);
        let usage = env.usage();
        assert_eq!((usage.turns, usage.searches, usage.invalid_actions), (4, 1, 2));
    }

    #[tokio::test]
    async fn a_repeated_query_is_counted_whatever_its_case() {
        let mut env = environment(EnvConfig::default());
        env.reset(&toy_task("t"));
        env.step("<search>Kenya  elevation</search>").await.unwrap();
        env.step("<search>kenya elevation</search>").await.unwrap();
        assert_eq!(env.usage().repeated_searches, 1);
    }

    #[tokio::test]
    async fn a_failing_engine_is_an_error_and_leaves_no_mark() {
        let mut env = SearchEnv::new(Arc::new(FailingBackend), Arc::new(EnvConfig::default()));
        env.reset(&toy_task("t"));
        assert!(matches!(env.step("<search>kenya</search>").await, Err(EnvError::Search(_))));
        assert_eq!(env.usage(), Usage::default());
    }

    #[tokio::test]
    async fn a_missing_page_is_told_and_search_switched_off_finds_nothing() {
        let mut env = environment(EnvConfig { fetch: true, ..EnvConfig::default() });
        env.reset(&toy_task("t"));
        let step = env.step("<fetch>nowhere</fetch>").await.unwrap();
        assert!(matches!(&step.observation, Observation::Notice(text) if text.contains("nowhere")));
        let mut env = environment(EnvConfig { search: false, ..EnvConfig::default() });
        env.reset(&toy_task("t"));
        let step = env.step("<search>kenya</search>").await.unwrap();
        assert_eq!(step.observation, Observation::Documents(Vec::new()));
    }
}

//! Policies that are programs: the expert, which knows each task's plan, and fixed outputs for tests and baselines.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::action::Action;
use crate::policy::{
    EpisodeKey, OpenRequest, Policy, PolicyError, PolicyInfo, Sampled, SamplingParams, SessionId, StopReason,
};
use crate::renderer::Renderer;
use crate::task::Task;

/// What a script knows when it is its turn.
#[derive(Clone, Copy, Debug)]
pub struct ScriptView<'session> {
    /// The episode.
    pub episode: &'session EpisodeKey,
    /// Number of the turn, from 0.
    pub turn: usize,
    /// What was told since the last turn, control tokens spelled out; the prompt on the first turn.
    pub observation: &'session str,
    /// Everything that was told in this session, the prompt included.
    pub seen: &'session str,
}

/// Writes the outputs of a scripted policy.
pub trait Script: Send + Sync {
    /// The whole output of a turn.
    fn output(&self, view: ScriptView<'_>) -> String;

    /// A short name for results.
    fn name(&self) -> String;
}

/// A policy whose outputs a [`Script`] writes. Log-probabilities are 0: a script is certain.
pub struct ScriptedPolicy<S> {
    script: S,
    renderer: Arc<Renderer>,
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    next: u64,
    open: HashMap<SessionId, Session>,
}

#[derive(Clone)]
struct Session {
    episode: EpisodeKey,
    turn: usize,
    observation: String,
    seen: String,
}

impl<S: Script> ScriptedPolicy<S> {
    /// A policy that speaks the renderer's tokens.
    pub fn new(script: S, renderer: Arc<Renderer>) -> Self {
        Self { script, renderer, sessions: Mutex::default() }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        // Every change of the state is a single assignment, so a panicking thread leaves nothing half done.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self, ids: &[u32]) -> Result<String, PolicyError> {
        self.renderer.tokenizer().decode_verbatim(ids).map_err(|error| PolicyError::Failed(error.to_string()))
    }
}

#[async_trait]
impl<S: Script> Policy for ScriptedPolicy<S> {
    async fn open(&self, request: OpenRequest) -> Result<SessionId, PolicyError> {
        let prompt = self.text(&request.prompt_ids)?;
        let mut sessions = self.sessions();
        let id = SessionId(sessions.next);
        sessions.next += 1;
        let session = Session {
            episode: request.episode,
            turn: request.turn as usize,
            observation: prompt.clone(),
            seen: prompt,
        };
        sessions.open.insert(id, session);
        Ok(id)
    }

    async fn fork(&self, session: SessionId) -> Result<SessionId, PolicyError> {
        let mut sessions = self.sessions();
        let copy = sessions.open.get(&session).ok_or(PolicyError::UnknownSession(session))?.clone();
        let id = SessionId(sessions.next);
        sessions.next += 1;
        sessions.open.insert(id, copy);
        Ok(id)
    }

    async fn extend(&self, session: SessionId, ids: &[u32]) -> Result<(), PolicyError> {
        let text = self.text(ids)?;
        let mut sessions = self.sessions();
        let state = sessions.open.get_mut(&session).ok_or(PolicyError::UnknownSession(session))?;
        state.seen.push_str(&text);
        state.observation.push_str(&text);
        Ok(())
    }

    async fn sample(&self, session: SessionId, params: SamplingParams) -> Result<Sampled, PolicyError> {
        let output = {
            let mut sessions = self.sessions();
            let state = sessions.open.get_mut(&session).ok_or(PolicyError::UnknownSession(session))?;
            let view = ScriptView {
                episode: &state.episode,
                turn: state.turn,
                observation: &state.observation,
                seen: &state.seen,
            };
            let output = self.script.output(view);
            state.turn += 1;
            state.observation.clear();
            output
        };
        let mut ids =
            self.renderer.output_ids(&output).map_err(|error| PolicyError::Failed(error.to_string()))?;
        let cut = ids.len() > params.max_tokens;
        ids.truncate(params.max_tokens);
        let stop = match params.stop.iter().find(|stop| output.ends_with(stop.as_str())) {
            _ if cut => StopReason::MaxTokens,
            Some(stop) => StopReason::StopString(stop.clone()),
            None => StopReason::EndOfTurn,
        };
        Ok(Sampled { logprobs: vec![0.0; ids.len()], ids, stop })
    }

    async fn close(&self, session: SessionId) {
        self.sessions().open.remove(&session);
    }

    fn info(&self) -> PolicyInfo {
        PolicyInfo { name: self.script.name(), version: 0, context_length: usize::MAX }
    }
}

/// Follows each task's expert plan; gives up honestly when a search does not show what it should.
///
/// Its accuracy is the ceiling that retrieval sets, and its traces are what SFT learns from.
pub struct Expert {
    tasks: HashMap<String, Arc<Task>>,
    format: crate::action::TagsFormat,
}

/// The expert's answer when the evidence did not show up.
pub const EXPERT_GIVES_UP: &str = "unknown";

impl Expert {
    /// An expert for these tasks.
    pub fn new(tasks: impl IntoIterator<Item = Arc<Task>>, renderer: &Renderer) -> Self {
        let tasks = tasks.into_iter().map(|task| (task.id.clone(), task)).collect();
        Self { tasks, format: renderer.format().clone() }
    }
}

impl Script for Expert {
    fn output(&self, view: ScriptView<'_>) -> String {
        let give_up = || Action::Answer(EXPERT_GIVES_UP.to_owned());
        let action = match self.tasks.get(&view.episode.task) {
            None => give_up(),
            Some(task) => {
                let found = view.turn.checked_sub(1).and_then(|previous| task.expert.get(previous));
                let shown = found.is_none_or(|step| step.is_shown_in(view.observation));
                match (shown, task.expert.get(view.turn), task.answers.first()) {
                    (true, Some(step), _) => Action::Search(step.query.clone()),
                    (true, None, Some(answer)) if !task.expert.is_empty() => Action::Answer(answer.clone()),
                    _ => give_up(),
                }
            }
        };
        self.format.render(&action)
    }

    fn name(&self) -> String {
        "expert".into()
    }
}

/// Writes the same outputs in every episode, the last one for ever.
pub struct FixedOutputs(pub Vec<String>);

impl Script for FixedOutputs {
    fn output(&self, view: ScriptView<'_>) -> String {
        self.0.get(view.turn).or(self.0.last()).cloned().unwrap_or_default()
    }

    fn name(&self) -> String {
        "fixed".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EnvConfig;
    use crate::task::ExpertStep;
    use crate::testing::toy_task;

    #[test]
    fn the_expert_goes_on_only_when_it_sees_the_finding_as_a_whole() {
        let finding = ExpertStep { query: "neighbours of Chad".into(), finding: "6".into() };
        let task = Task { answers: vec!["6".into()], expert: vec![finding], ..toy_task("t") };
        let renderer = Renderer::bytes(Arc::new(EnvConfig::default())).unwrap();
        let expert = Expert::new([Arc::new(task)], &renderer);
        let episode = EpisodeKey { task: "t".into(), sample: 0 };
        let output =
            |turn, observation| expert.output(ScriptView { episode: &episode, turn, observation, seen: "" });
        assert_eq!(output(0, "Question: …"), "<search>neighbours of Chad</search>");
        assert_eq!(output(1, "border countries: 6 (2016)"), "<answer>6</answer>");
        assert_eq!(output(1, "as of 2016: 6,406 km"), "<answer>unknown</answer>");
    }
}

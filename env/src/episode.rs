//! One episode: the state machine between a policy, which speaks tokens, and the environment, which speaks text.

use std::sync::Arc;
use std::time::{Duration, Instant};

use drgym_search::SearchBackend;

use crate::action::Action;
use crate::config::{EnvConfig, History};
use crate::environment::{EnvError, Observation, SearchEnv};
use crate::policy::{
    EpisodeKey, OpenRequest, Policy, PolicyError, Sampled, SamplingParams, SessionId, StopReason,
};
use crate::renderer::{HistoryTurn, RenderError, Renderer};
use crate::seed::derive_seed;
use crate::task::Task;
use crate::trace::{Boundary, Event, Outcome, Segment, TRACE_VERSION, Timings, Trace, Usage};

/// An episode in progress. [`start`](Self::start), then draw with [`sampling_params`](Self::sampling_params) and hand
/// the result to [`accept`](Self::accept) until [`is_done`](Self::is_done); then [`finish`](Self::finish).
pub struct Episode {
    key: EpisodeKey,
    env: SearchEnv,
    renderer: Arc<Renderer>,
    config: Arc<EnvConfig>,
    trace: Trace,
    session: Option<SessionId>,
    temperature: f32,
    context_length: usize,
    history: Vec<HistoryTurn>,
    summary: Option<String>,
    turn: UnfinishedTurn,
    done: bool,
    started: Instant,
}

/// What the policy drew of a turn that is not over yet.
///
/// One draw is a turn, save where a stop string stood inside a block that may quote tags: then the turn is drawn on.
#[derive(Default)]
struct UnfinishedTurn {
    ids: Vec<u32>,
    draws: u64,
}

/// Which episode to play.
#[derive(Clone)]
pub struct EpisodeSpec {
    /// The question.
    pub task: Arc<Task>,
    /// Number of the sample within the task's group, from 0.
    pub sample: u32,
    /// Seed from which every draw is derived.
    pub seed: u64,
    /// 0 is greedy.
    pub temperature: f32,
}

/// What all episodes of a rollout share.
#[derive(Clone)]
pub struct EpisodeSetting {
    /// Between tokens and text.
    pub renderer: Arc<Renderer>,
    /// Limits.
    pub config: Arc<EnvConfig>,
    /// The search engine.
    pub backend: Arc<dyn SearchBackend>,
}

/// Where an episode failed, and how.
struct Failure {
    boundary: Boundary,
    reason: String,
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        Self { boundary: Boundary::Policy, reason: error.to_string() }
    }
}

impl From<RenderError> for Failure {
    fn from(error: RenderError) -> Self {
        Self { boundary: Boundary::Environment, reason: error.to_string() }
    }
}

impl From<EnvError> for Failure {
    fn from(error: EnvError) -> Self {
        let boundary = match error {
            EnvError::Search(_) => Boundary::Search,
            EnvError::Misuse(_) => Boundary::Environment,
        };
        Self { boundary, reason: error.to_string() }
    }
}

impl Episode {
    /// Resets the environment and opens a session on the prompt. A failure ends the episode and is in its trace.
    pub async fn start(spec: &EpisodeSpec, setting: &EpisodeSetting, policy: &dyn Policy) -> Self {
        let EpisodeSetting { renderer, config, backend } = setting.clone();
        let EpisodeSpec { task, sample, seed, temperature } = spec.clone();
        let started = Instant::now();
        let key = EpisodeKey { task: task.id.clone(), sample };
        let info = policy.info();
        let mut env = SearchEnv::new(backend, config.clone());
        env.reset(&task);
        let trace = Trace {
            version: TRACE_VERSION,
            task: Task::clone(&task),
            episode: key.clone(),
            seed,
            policy: info.name,
            segments: Vec::new(),
            events: Vec::new(),
            outcome: Outcome::TurnLimit,
            verdicts: Vec::new(),
            correct: None,
            reward: None,
            scoring_error: None,
            usage: Usage::default(),
            timings: Timings::default(),
        };
        let context_length = (config.max_context_tokens as usize).min(info.context_length);
        let mut episode = Self {
            key,
            env,
            renderer,
            config,
            trace,
            session: None,
            temperature,
            context_length,
            history: Vec::new(),
            summary: None,
            turn: UnfinishedTurn::default(),
            done: false,
            started,
        };
        let opened = match episode.renderer.prompt(&task.question) {
            Ok(prompt) => episode.open_segment(prompt, policy).await,
            Err(error) => Err(error.into()),
        };
        if let Err(failure) = opened {
            episode.fail(failure);
        }
        episode
    }

    /// Whether nothing is left to draw.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The open session, unless the episode is done.
    pub fn session(&self) -> Option<SessionId> {
        if self.done { None } else { self.session }
    }

    /// How to draw the next turn, or the rest of one that a quoted stop string interrupted: the response limit holds
    /// for the whole turn, and every draw of it has a seed of its own.
    pub fn sampling_params(&self) -> SamplingParams {
        let turn = u64::from(self.env.usage().turns);
        SamplingParams {
            temperature: self.temperature,
            max_tokens: self.turn_room(),
            stop: self.renderer.stop_strings(),
            seed: derive_seed(self.trace.seed, "turn", turn, "", self.turn.draws),
        }
    }

    /// Takes what the policy drew, steps the environment and tells the policy what came of it.
    pub async fn accept(&mut self, sampled: Result<Sampled, PolicyError>, policy: &dyn Policy) {
        if self.done {
            return;
        }
        let outcome = match sampled {
            Ok(sampled) => self.advance(sampled, policy).await,
            Err(PolicyError::ContextOverflow { tokens, context_length }) => {
                self.overflow(tokens, context_length)
            }
            Err(error) => Err(error.into()),
        };
        if let Err(failure) = outcome {
            self.fail(failure);
        }
    }

    /// Closes the session and returns the record, not yet scored.
    pub async fn finish(mut self, policy: &dyn Policy) -> Trace {
        if let Some(session) = self.session.take() {
            policy.close(session).await;
        }
        let counted = self.env.usage();
        let segments = &self.trace.segments;
        let sampled: usize = segments.iter().map(Segment::sampled_tokens).sum();
        let response: usize = segments.iter().map(|segment| segment.response_ids.len()).sum();
        self.trace.usage = Usage {
            prompt_tokens: segments.iter().map(|segment| segment.prompt_ids.len() as u32).sum(),
            sampled_tokens: sampled as u32,
            observed_tokens: (response - sampled) as u32,
            ..counted
        };
        self.trace.timings.total = self.started.elapsed().as_secs_f64();
        self.trace
    }

    /// Notes how long the policy took for a draw.
    pub(crate) fn has_waited(&mut self, time: Duration) {
        self.trace.timings.policy += time.as_secs_f64();
    }

    async fn advance(&mut self, sampled: Sampled, policy: &dyn Policy) -> Result<(), Failure> {
        let turn = self.env.usage().turns;
        let segment_index = self.trace.segments.len().saturating_sub(1) as u32;
        let Some(segment) = self.trace.segments.last_mut() else {
            return Err(Failure { boundary: Boundary::Environment, reason: "no segment is open".into() });
        };
        segment.push_sampled(&sampled.ids, &sampled.logprobs);
        self.turn.ids.extend_from_slice(&sampled.ids);
        self.turn.draws += 1;
        let text = self.renderer.output_text(&self.turn.ids)?;
        // A policy that stops without drawing would go on for ever.
        if matches!(sampled.stop, StopReason::StopString(_))
            && !sampled.ids.is_empty()
            && self.turn_room() > 0
            && self.renderer.has_open_block(&text)
        {
            return Ok(());
        }
        let last = std::mem::take(&mut self.turn).ids.last().copied();
        let searching = Instant::now();
        let step = self.env.step(&text).await;
        self.trace.timings.search += searching.elapsed().as_secs_f64();
        let turn_event = |action| Event::Turn {
            turn,
            segment: segment_index,
            text: text.clone(),
            action,
            stop: sampled.stop.clone(),
        };
        let step = match step {
            Ok(step) => step,
            Err(error) => {
                let action = self.renderer.parse(&text);
                self.trace.events.push(turn_event(action));
                return Err(error.into());
            }
        };
        self.trace.events.push(turn_event(step.info.action.clone()));
        if step.terminated {
            self.end(Outcome::Answered { answer: self.env.answer().unwrap_or_default().to_owned() });
            return Ok(());
        }
        if step.truncated {
            self.end(Outcome::TurnLimit);
            return Ok(());
        }
        if sampled.stop == StopReason::ContextFull {
            self.end(Outcome::ContextLimit);
            return Ok(());
        }
        let rewrites =
            self.config.history == History::Turns || matches!(step.observation, Observation::Summarised(_));
        if rewrites {
            self.rewrite(&text, &step, policy).await
        } else {
            self.append(last, &step, policy).await
        }
    }

    /// Appends the observation to the session, after the last token of the turn.
    async fn append(
        &mut self,
        last: Option<u32>,
        step: &crate::Step,
        policy: &dyn Policy,
    ) -> Result<(), Failure> {
        let rendered = self.renderer.observation(&step.observation, last)?;
        self.record(step, rendered.truncated);
        // At least one token must be left to draw.
        if rendered.ids.len() >= self.room() {
            self.end(Outcome::ContextLimit);
            return Ok(());
        }
        if let Some(session) = self.session {
            policy.extend(session, &rendered.ids).await?;
        }
        if let Some(segment) = self.trace.segments.last_mut() {
            segment.push_observed(&rendered.ids);
        }
        Ok(())
    }

    /// Starts a new segment whose prompt tells the history so far.
    async fn rewrite(
        &mut self,
        output: &str,
        step: &crate::Step,
        policy: &dyn Policy,
    ) -> Result<(), Failure> {
        if let Observation::Summarised(summary) = &step.observation {
            let replaced_tokens =
                self.trace.segments.last().map_or(0, |segment| segment.response_ids.len() as u32);
            self.trace.events.push(Event::Summarised { replaced_tokens });
            self.summary = Some(summary.clone());
            self.history.clear();
        } else {
            let (observation, truncated) = self.renderer.observation_text(&step.observation)?;
            self.record(step, truncated);
            self.history.push(HistoryTurn { output: output.to_owned(), observation });
        }
        if let Some(session) = self.session.take() {
            policy.close(session).await;
        }
        let prompt = self.renderer.prompt_with_history(
            &self.trace.task.question,
            self.summary.as_deref(),
            &self.history,
        )?;
        self.open_segment(prompt, policy).await
    }

    async fn open_segment(&mut self, prompt: Vec<u32>, policy: &dyn Policy) -> Result<(), Failure> {
        if prompt.len() >= self.context_length {
            return self.overflow(prompt.len(), self.context_length);
        }
        let request = OpenRequest {
            prompt_ids: prompt.clone(),
            episode: self.key.clone(),
            turn: self.env.usage().turns,
        };
        self.session = match policy.open(request).await {
            Ok(session) => Some(session),
            Err(PolicyError::ContextOverflow { tokens, context_length }) => {
                return self.overflow(tokens, context_length);
            }
            Err(error) => return Err(error.into()),
        };
        self.trace.segments.push(Segment::new(prompt, policy.info().version));
        Ok(())
    }

    fn record(&mut self, step: &crate::Step, truncated: bool) {
        let event = match (&step.observation, &step.info.action, &step.info.provenance) {
            (Observation::Documents(hits), Action::Search(query), Some(provenance)) => Event::Search {
                query: query.clone(),
                doc_ids: hits.iter().map(|hit| hit.doc_id.clone()).collect(),
                provenance: provenance.clone(),
                truncated,
            },
            (Observation::Page(page), Action::Fetch(url), _) => {
                Event::Fetch { url: url.clone(), doc_id: Some(page.doc_id.clone()), truncated }
            }
            (Observation::Notice(_), Action::Fetch(url), _) => {
                Event::Fetch { url: url.clone(), doc_id: None, truncated }
            }
            (Observation::Notice(_), Action::Invalid(reason), _) => {
                Event::Reminded { reason: reason.clone() }
            }
            (Observation::Notice(notice), _, _) => Event::Reminded { reason: notice.clone() },
            _ => return,
        };
        self.trace.events.push(event);
    }

    /// The context is full. Before the policy's first draw that is the doing of task and settings, in which the policy
    /// has no part: a failure, and nothing that could be scored. A draw of no tokens is a draw.
    fn overflow(&mut self, tokens: usize, context_length: usize) -> Result<(), Failure> {
        if self.env.usage().turns == 0 && self.turn.draws == 0 {
            let reason = format!(
                "the prompt of {tokens} tokens leaves no room to draw one in the context of {context_length}"
            );
            return Err(Failure { boundary: Boundary::Environment, reason });
        }
        self.end(Outcome::ContextLimit);
        Ok(())
    }

    /// Tokens that the policy may still draw in this turn.
    fn turn_room(&self) -> usize {
        (self.config.max_response_tokens as usize).saturating_sub(self.turn.ids.len()).min(self.room())
    }

    fn room(&self) -> usize {
        self.context_length.saturating_sub(self.trace.segments.last().map_or(0, Segment::len))
    }

    fn end(&mut self, outcome: Outcome) {
        self.trace.outcome = outcome;
        self.done = true;
    }

    fn fail(&mut self, failure: Failure) {
        self.end(Outcome::Failed { boundary: failure.boundary, reason: failure.reason });
    }
}

#[cfg(test)]
mod tests;

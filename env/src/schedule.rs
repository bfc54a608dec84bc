//! Many episodes at once over one policy and one search engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::episode::{Episode, EpisodeSetting, EpisodeSpec};
use crate::policy::Policy;
use crate::reward::{Reward, RewardError};
use crate::rollout::{RolloutError, RolloutRequest, Rollouts};
use crate::seed::derive_seed;
use crate::trace::Trace;

/// Who draws next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// Episodes advance in rounds and batches are formed by episode number, whatever the search latency: the same
    /// seed gives the same traces.
    #[default]
    Deterministic,
    /// Whoever is ready draws; only the seeds are promised.
    Async,
}

/// Settings of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutConfig {
    /// Who draws next.
    pub schedule: Schedule,
    /// Episodes in progress at once, the batch of the sampler.
    pub concurrency: u32,
}

impl Default for RolloutConfig {
    fn default() -> Self {
        Self { schedule: Schedule::Deterministic, concurrency: 48 }
    }
}

impl RolloutConfig {
    /// Every problem of the settings, with the path of the key.
    pub fn validate(&self) -> Vec<String> {
        if self.concurrency == 0 { vec!["rollout.concurrency must be at least 1".into()] } else { Vec::new() }
    }
}

/// Called with (finished, all) whenever an episode has been scored.
pub type EpisodeProgress = dyn Fn(usize, usize) + Send + Sync;

/// Plays episodes over a local or remote search engine and scores them.
pub struct Scheduler {
    setting: EpisodeSetting,
    reward: Arc<dyn Reward>,
    config: RolloutConfig,
    cancel: Arc<AtomicBool>,
    progress: Option<Arc<EpisodeProgress>>,
}

impl Scheduler {
    /// A scheduler over a search engine, scoring by a reward.
    pub fn new(setting: EpisodeSetting, reward: Arc<dyn Reward>, config: RolloutConfig) -> Self {
        Self { setting, reward, config, cancel: Arc::default(), progress: None }
    }

    /// Stops between rounds when the flag is raised.
    #[must_use]
    pub fn with_cancel(mut self, cancel: Arc<AtomicBool>) -> Self {
        self.cancel = cancel;
        self
    }

    /// Reports every finished episode.
    #[must_use]
    pub fn with_progress(mut self, progress: Arc<EpisodeProgress>) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Rounds of exactly the live episodes in order; a finished one makes room for the next.
    async fn run_rounds(
        &self,
        policy: &dyn Policy,
        jobs: &[EpisodeSpec],
    ) -> Result<Vec<Trace>, RolloutError> {
        let mut traces: Vec<Option<Trace>> = jobs.iter().map(|_| None).collect();
        let mut live: Vec<(usize, Episode)> = Vec::new();
        let mut next = 0;
        let mut finished = 0;
        while next < jobs.len() || !live.is_empty() {
            if self.cancel.load(Ordering::Relaxed) {
                join_all(live.into_iter().map(|(_, episode)| episode.finish(policy))).await;
                return Err(RolloutError::Cancelled);
            }
            while live.len() < self.config.concurrency as usize && next < jobs.len() {
                live.push((next, Episode::start(&jobs[next], &self.setting, policy).await));
                next += 1;
            }
            let drawing: Vec<(usize, _)> = live
                .iter()
                .enumerate()
                .filter_map(|(index, (_, episode))| {
                    Some((index, (episode.session()?, episode.sampling_params())))
                })
                .collect();
            let (indices, requests): (Vec<usize>, Vec<_>) = drawing.into_iter().unzip();
            let drawing = Instant::now();
            let drawn = policy.sample_round(requests).await;
            let waited = drawing.elapsed();
            let mut drawn: std::collections::HashMap<usize, _> = indices.into_iter().zip(drawn).collect();
            // Searches of the round run at the same time; the next batch waits for the slowest.
            join_all(live.iter_mut().enumerate().map(|(index, (_, episode))| {
                let sampled = drawn.remove(&index);
                async move {
                    if let Some(sampled) = sampled {
                        episode.has_waited(waited);
                        episode.accept(sampled, policy).await;
                    }
                }
            }))
            .await;
            let (done, going): (Vec<_>, Vec<_>) =
                live.into_iter().partition(|(_, episode)| episode.is_done());
            live = going;
            let scored = join_all(done.into_iter().map(|(position, episode)| async move {
                (position, self.score(episode.finish(policy).await).await)
            }))
            .await;
            for (position, trace) in scored {
                traces[position] = Some(trace);
                finished += 1;
                self.report(finished, jobs.len());
            }
        }
        Ok(traces.into_iter().flatten().collect())
    }

    /// Every episode on its own; a policy that can batches whoever waits.
    async fn run_async(&self, policy: &dyn Policy, jobs: &[EpisodeSpec]) -> Result<Vec<Trace>, RolloutError> {
        let play = |position: usize| async move {
            let mut episode = Episode::start(&jobs[position], &self.setting, policy).await;
            while let Some(session) = episode.session() {
                if self.cancel.load(Ordering::Relaxed) {
                    break;
                }
                let drawing = Instant::now();
                let sampled = policy.sample(session, episode.sampling_params()).await;
                episode.has_waited(drawing.elapsed());
                episode.accept(sampled, policy).await;
            }
            let done = episode.is_done();
            let trace = episode.finish(policy).await;
            (position, if done { Some(self.score(trace).await) } else { None })
        };
        let mut traces: Vec<Option<Trace>> = jobs.iter().map(|_| None).collect();
        let mut playing = FuturesUnordered::new();
        let mut next = 0;
        let mut finished = 0;
        loop {
            while playing.len() < self.config.concurrency as usize
                && next < jobs.len()
                && !self.cancel.load(Ordering::Relaxed)
            {
                playing.push(play(next));
                next += 1;
            }
            let Some((position, trace)) = playing.next().await else { break };
            traces[position] = trace;
            finished += 1;
            self.report(finished, jobs.len());
        }
        if self.cancel.load(Ordering::Relaxed) {
            return Err(RolloutError::Cancelled);
        }
        Ok(traces.into_iter().flatten().collect())
    }

    /// Scores a finished trace. A failed judge leaves it without a reward and says why.
    async fn score(&self, mut trace: Trace) -> Trace {
        let judging = Instant::now();
        match self.reward.score(&trace).await {
            Ok(scored) => {
                trace.reward = Some(scored.reward);
                trace.correct = Some(scored.correct);
                trace.verdicts = scored.verdicts;
            }
            // The trace says already what failed.
            Err(RewardError::EpisodeFailed { .. }) => {}
            Err(error) => trace.scoring_error = Some(error.to_string()),
        }
        trace.timings.judge = judging.elapsed().as_secs_f64();
        trace
    }

    fn report(&self, finished: usize, all: usize) {
        if let Some(progress) = &self.progress {
            progress(finished, all);
        }
    }
}

#[async_trait]
impl Rollouts for Scheduler {
    async fn run(
        &self,
        policy: Arc<dyn Policy>,
        request: RolloutRequest,
    ) -> Result<Vec<Trace>, RolloutError> {
        if request.samples == 0 {
            return Err(RolloutError::BadRequest("samples must be at least 1".into()));
        }
        if !(request.temperature >= 0.0 && request.temperature.is_finite()) {
            return Err(RolloutError::BadRequest(format!(
                "temperature {} is not a number from 0",
                request.temperature
            )));
        }
        let jobs: Vec<EpisodeSpec> = request
            .tasks
            .iter()
            .flat_map(|task| (0..request.samples).map(move |sample| (task, sample)))
            .map(|(task, sample)| {
                let sample_number = u64::from(sample);
                let seed =
                    derive_seed(request.root_seed, request.component, request.step, &task.id, sample_number);
                EpisodeSpec { task: task.clone(), sample, seed, temperature: request.temperature }
            })
            .collect();
        match self.config.schedule {
            Schedule::Deterministic => self.run_rounds(policy.as_ref(), &jobs).await,
            Schedule::Async => self.run_async(policy.as_ref(), &jobs).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{EnvConfig, History};
    use crate::policy::{
        OpenRequest, PolicyError, PolicyInfo, Sampled, SamplingParams, SessionId, StopReason,
    };
    use crate::renderer::Renderer;
    use crate::reward::{JudgedReward, RewardConfig, Scored};
    use crate::scripted::{Expert, FixedOutputs, Script, ScriptView, ScriptedPolicy};
    use crate::task::Task;
    use crate::testing::{FailingBackend, ToyBackend, toy_task};
    use crate::trace::{Boundary, Event, Outcome};
    use drgym_judge::{AnswerJudge, JudgeError, JudgeRequest, Verdict, VerdictSource};
    use drgym_search::SearchBackend;
    use proptest::prelude::*;

    struct ContainsJudge;

    #[async_trait]
    impl AnswerJudge for ContainsJudge {
        async fn judge(&self, request: &JudgeRequest) -> Result<Verdict, JudgeError> {
            if request.answer.contains("break the judge") {
                return Err(JudgeError::Unavailable { judge: "toy".into(), reason: "500".into() });
            }
            let correct = request.references.iter().any(|reference| request.answer.contains(reference));
            Ok(Verdict { correct, source: VerdictSource::Rule("contains".into()), rationale: "toy".into() })
        }

        fn name(&self) -> String {
            "contains".into()
        }
    }

    fn scheduler(backend: Arc<dyn SearchBackend>, env: EnvConfig, config: RolloutConfig) -> Scheduler {
        let env = Arc::new(env);
        let renderer = Arc::new(Renderer::bytes(env.clone()).unwrap());
        let reward = Arc::new(JudgedReward::new(Arc::new(ContainsJudge), RewardConfig::default()));
        Scheduler::new(EpisodeSetting { renderer, config: env, backend }, reward, config)
    }

    fn roomy() -> EnvConfig {
        EnvConfig {
            max_context_tokens: 4096,
            max_response_tokens: 200,
            max_observation_tokens: 300,
            ..EnvConfig::default()
        }
    }

    fn tasks(count: usize) -> Vec<Arc<Task>> {
        (0..count).map(|index| Arc::new(toy_task(&format!("t{index}")))).collect()
    }

    fn request(tasks: Vec<Arc<Task>>, samples: u32) -> RolloutRequest {
        RolloutRequest { tasks, samples, temperature: 1.0, root_seed: 7, step: 0, component: "train" }
    }

    fn expert(scheduler: &Scheduler, tasks: &[Arc<Task>]) -> Arc<dyn Policy> {
        let expert = Expert::new(tasks.iter().cloned(), &scheduler.setting.renderer);
        Arc::new(ScriptedPolicy::new(expert, scheduler.setting.renderer.clone()))
    }

    fn fixed(scheduler: &Scheduler, outputs: &[&str]) -> Arc<dyn Policy> {
        let outputs = FixedOutputs(outputs.iter().map(|&output| output.to_owned()).collect());
        Arc::new(ScriptedPolicy::new(outputs, scheduler.setting.renderer.clone()))
    }

    async fn play(scheduler: &Scheduler, policy: Arc<dyn Policy>, request: RolloutRequest) -> Vec<Trace> {
        let traces = scheduler.run(policy, request).await.unwrap();
        for trace in &traces {
            trace.check().unwrap();
        }
        traces
    }

    #[tokio::test]
    async fn the_expert_finds_the_answer_and_traces_come_back_in_order() {
        let config = RolloutConfig { concurrency: 3, ..RolloutConfig::default() };
        let scheduler = scheduler(Arc::new(ToyBackend { delays: true }), roomy(), config);
        let tasks = tasks(5);
        let traces = play(&scheduler, expert(&scheduler, &tasks), request(tasks.clone(), 2)).await;
        let keys: Vec<_> =
            traces.iter().map(|trace| (trace.episode.task.clone(), trace.episode.sample)).collect();
        let expected: Vec<_> =
            (0..5).flat_map(|task| (0..2).map(move |sample| (format!("t{task}"), sample))).collect();
        assert_eq!(keys, expected);
        for trace in &traces {
            assert_eq!(trace.answer(), Some("Mount Kenya"));
            assert_eq!((trace.reward, trace.correct), (Some(1.0), Some(true)));
            assert_eq!((trace.usage.searches, trace.usage.turns, trace.segments.len()), (1, 2, 1));
        }
    }

    #[tokio::test]
    async fn latency_and_schedule_change_nothing_in_the_traces() {
        let tasks = tasks(7);
        let mut hashes = Vec::new();
        for (delays, schedule) in
            [(false, Schedule::Deterministic), (true, Schedule::Deterministic), (true, Schedule::Async)]
        {
            let config = RolloutConfig { schedule, concurrency: 4 };
            let scheduler = scheduler(Arc::new(ToyBackend { delays }), roomy(), config);
            let traces = play(&scheduler, expert(&scheduler, &tasks), request(tasks.clone(), 2)).await;
            hashes.push(traces.iter().map(Trace::content_hash).collect::<Vec<_>>());
        }
        assert_eq!(hashes[0], hashes[1]);
        assert_eq!(hashes[0], hashes[2]);
        assert_ne!(hashes[0][0], hashes[0][1], "two samples of a task have seeds of their own");
    }

    #[tokio::test]
    async fn a_search_that_is_down_is_a_failed_episode_without_reward() {
        let scheduler = scheduler(Arc::new(FailingBackend), roomy(), RolloutConfig::default());
        let tasks = tasks(1);
        let traces = play(&scheduler, expert(&scheduler, &tasks), request(tasks.clone(), 1)).await;
        assert!(matches!(traces[0].outcome, Outcome::Failed { boundary: Boundary::Search, .. }));
        assert_eq!((traces[0].reward, traces[0].correct), (None, None));
        assert!(matches!(traces[0].events[0], Event::Turn { .. }), "what the policy wrote is kept");
    }

    #[tokio::test]
    async fn a_judge_that_fails_leaves_no_reward() {
        let scheduler = scheduler(Arc::new(ToyBackend::default()), roomy(), RolloutConfig::default());
        let policy = fixed(&scheduler, &["<answer>break the judge</answer>"]);
        let traces = play(&scheduler, policy, request(tasks(1), 1)).await;
        assert_eq!((traces[0].reward, traces[0].correct), (None, None));
        assert!(traces[0].scoring_error.as_ref().unwrap().contains("500"));
    }

    #[tokio::test]
    async fn a_summary_and_turnwise_history_open_new_segments() {
        let outputs =
            ["<search>Kenya</search>", "<summary>saw the mountain</summary>", "<answer>Mount Kenya</answer>"];
        for (history, segments) in [(History::Append, 2), (History::Turns, 3)] {
            let env = EnvConfig { summary: true, history, ..roomy() };
            let scheduler = scheduler(Arc::new(ToyBackend::default()), env, RolloutConfig::default());
            let traces = play(&scheduler, fixed(&scheduler, &outputs), request(tasks(1), 1)).await;
            assert_eq!(traces[0].segments.len(), segments);
            let last = traces[0].segments.last().unwrap();
            let prompt = scheduler.setting.renderer.tokenizer().decode(&last.prompt_ids).unwrap();
            assert!(prompt.contains("saw the mountain") && !prompt.contains("5,199"), "{prompt}");
            assert_eq!(traces[0].reward, Some(1.0));
        }
    }

    #[tokio::test]
    async fn a_full_context_ends_the_episode() {
        let env = EnvConfig { max_context_tokens: 600, max_response_tokens: 60, ..roomy() };
        let scheduler = scheduler(Arc::new(ToyBackend::default()), env, RolloutConfig::default());
        let traces =
            play(&scheduler, fixed(&scheduler, &["<search>Kenya</search>"]), request(tasks(1), 1)).await;
        assert_eq!(traces[0].outcome, Outcome::ContextLimit);
        assert_eq!((traces[0].reward, traces[0].correct), (Some(0.0), Some(false)));
    }

    #[tokio::test]
    async fn a_policy_that_draws_no_tokens_fills_its_context_itself() {
        let env = EnvConfig {
            history: History::Turns,
            max_context_tokens: 700,
            max_response_tokens: 50,
            ..roomy()
        };
        let scheduler = scheduler(Arc::new(ToyBackend::default()), env, RolloutConfig::default());
        let traces = play(&scheduler, fixed(&scheduler, &[""]), request(tasks(1), 1)).await;
        let usage = traces[0].usage;
        assert!(usage.turns > 0 && usage.sampled_tokens == 0, "{usage:?}");
        assert_eq!(traces[0].outcome, Outcome::ContextLimit);
        assert_eq!((traces[0].reward, traces[0].correct), (Some(0.0), Some(false)));
    }

    #[tokio::test]
    async fn impossible_requests_and_cancellation_are_errors() {
        let cancel = Arc::new(AtomicBool::new(true));
        let scheduler =
            scheduler(Arc::new(ToyBackend::default()), roomy(), RolloutConfig::default()).with_cancel(cancel);
        let policy = fixed(&scheduler, &["x"]);
        let none = scheduler.run(policy.clone(), request(tasks(1), 0)).await;
        assert!(matches!(none, Err(RolloutError::BadRequest(_))));
        assert!(matches!(scheduler.run(policy, request(tasks(1), 1)).await, Err(RolloutError::Cancelled)));
    }

    /// A policy that breaks at a given draw.
    struct Breaking;

    #[async_trait]
    impl Policy for Breaking {
        async fn open(&self, _: OpenRequest) -> Result<SessionId, PolicyError> {
            Ok(SessionId(0))
        }
        async fn fork(&self, session: SessionId) -> Result<SessionId, PolicyError> {
            Ok(session)
        }
        async fn extend(&self, _: SessionId, _: &[u32]) -> Result<(), PolicyError> {
            Ok(())
        }
        async fn sample(&self, _: SessionId, params: SamplingParams) -> Result<Sampled, PolicyError> {
            if params.seed.is_multiple_of(2) {
                return Err(PolicyError::Failed("broken".into()));
            }
            Ok(Sampled { ids: vec![65], logprobs: vec![-1.0], stop: StopReason::MaxTokens })
        }
        async fn close(&self, _: SessionId) {}
        fn info(&self) -> PolicyInfo {
            PolicyInfo { name: "breaking".into(), version: 3, context_length: 10_000 }
        }
    }

    #[tokio::test]
    async fn a_broken_policy_fails_its_own_episode_only() {
        let scheduler = scheduler(Arc::new(ToyBackend::default()), roomy(), RolloutConfig::default());
        let traces = play(&scheduler, Arc::new(Breaking), request(tasks(6), 4)).await;
        let failed =
            |trace: &&Trace| matches!(trace.outcome, Outcome::Failed { boundary: Boundary::Policy, .. });
        let count = traces.iter().filter(failed).count();
        assert!(count > 0 && count < traces.len(), "{count} of {}", traces.len());
        assert!(traces.iter().all(|trace| trace.segments[0].policy_version == 3));
    }

    /// Writes a random mixture of actions and rubbish.
    struct RandomOutputs(Vec<String>);

    impl Script for RandomOutputs {
        fn output(&self, view: ScriptView<'_>) -> String {
            self.0[(view.turn * 7 + view.episode.sample as usize) % self.0.len()].clone()
        }
        fn name(&self) -> String {
            "random".into()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Whatever the policy writes: invariants hold, the trace survives JSON, and rewards are recomputable.
        #[test]
        fn traces_keep_their_invariants(
            outputs in prop::collection::vec(
                "(<search>|</search>|<answer>|</answer>|<summary>|</summary>|<fetch>|Kenya|Mount Kenya| |<think>|é){0,8}", 1..5),
            turns in prop::bool::ANY,
            context in 700u32..2000,
        ) {
            let history = if turns { History::Turns } else { History::Append };
            let env = EnvConfig {
                history, summary: true, fetch: true, max_context_tokens: context, max_response_tokens: 50, ..roomy()
            };
            let scheduler = scheduler(Arc::new(ToyBackend::default()), env, RolloutConfig::default());
            let policy = Arc::new(ScriptedPolicy::new(RandomOutputs(outputs), scheduler.setting.renderer.clone()));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let traces = runtime.block_on(scheduler.run(policy, request(tasks(2), 2))).unwrap();
            for trace in traces {
                trace.check().unwrap();
                prop_assert!(trace.segments.iter().all(|segment| segment.len() <= context as usize));
                let line = serde_json::to_string(&trace).unwrap();
                let back: Trace = serde_json::from_str(&line).unwrap();
                prop_assert_eq!(back.content_hash(), trace.content_hash());
                let reward = JudgedReward::new(Arc::new(ContainsJudge), RewardConfig::default());
                let again: Scored = runtime.block_on(reward.score(&back)).unwrap();
                prop_assert_eq!(Some(again.reward), trace.reward);
            }
        }
    }
}

//! Turns that are drawn in several pieces, and prompts that leave no room to draw.

use std::collections::HashMap;
use std::sync::Mutex;

use async_trait::async_trait;
use drgym_judge::RuleJudge;

use super::*;
use crate::policy::PolicyInfo;
use crate::reward::{JudgedReward, RewardConfig};
use crate::rollout::{RolloutRequest, Rollouts};
use crate::schedule::{RolloutConfig, Schedule, Scheduler};
use crate::testing::{ToyBackend, toy_task};

/// Types one text, a byte a token, through all turns of an episode, and pauses where the parameters say.
struct Typist {
    text: String,
    renderer: Arc<Renderer>,
    /// Most tokens of a prompt that it opens a session on, whatever it says of itself.
    longest_prompt: usize,
    desk: Mutex<Desk>,
}

#[derive(Default)]
struct Desk {
    sessions: Vec<EpisodeKey>,
    typed: HashMap<EpisodeKey, usize>,
    asked: Vec<SamplingParams>,
}

#[async_trait]
impl Policy for Typist {
    async fn open(&self, request: OpenRequest) -> Result<SessionId, PolicyError> {
        let tokens = request.prompt_ids.len();
        if tokens > self.longest_prompt {
            return Err(PolicyError::ContextOverflow { tokens, context_length: self.longest_prompt });
        }
        let mut desk = self.desk.lock().unwrap();
        desk.sessions.push(request.episode);
        Ok(SessionId(desk.sessions.len() as u64 - 1))
    }

    async fn fork(&self, session: SessionId) -> Result<SessionId, PolicyError> {
        Err(PolicyError::UnknownSession(session))
    }

    async fn extend(&self, _: SessionId, _: &[u32]) -> Result<(), PolicyError> {
        Ok(())
    }

    async fn sample(&self, session: SessionId, params: SamplingParams) -> Result<Sampled, PolicyError> {
        let mut desk = self.desk.lock().unwrap();
        let episode = desk.sessions[session.0 as usize].clone();
        let typed = desk.typed.entry(episode).or_default();
        let rest = &self.text[*typed..];
        let ends = params.stop.iter().filter_map(|stop| Some((rest.find(stop.as_str())? + stop.len(), stop)));
        let (length, stop) = match ends.min() {
            Some((end, stop)) if end <= params.max_tokens => (end, StopReason::StopString(stop.clone())),
            _ if rest.len() <= params.max_tokens => (rest.len(), StopReason::EndOfTurn),
            _ => (params.max_tokens, StopReason::MaxTokens),
        };
        *typed += length;
        desk.asked.push(params);
        let ids = self.renderer.output_ids(&rest[..length]).unwrap();
        Ok(Sampled { logprobs: vec![-0.5; ids.len()], ids, stop })
    }

    async fn close(&self, _: SessionId) {}

    fn info(&self) -> PolicyInfo {
        PolicyInfo { name: "typist".into(), version: 0, context_length: 4096 }
    }
}

fn settings() -> EnvConfig {
    EnvConfig {
        max_context_tokens: 4096,
        max_response_tokens: 200,
        max_observation_tokens: 300,
        summary: true,
        ..EnvConfig::default()
    }
}

/// The trace of one episode in which the policy types `text`, and what it was asked for.
async fn play(
    text: &str,
    env: EnvConfig,
    longest_prompt: usize,
    schedule: Schedule,
) -> (Trace, Vec<SamplingParams>) {
    let config = Arc::new(env);
    let renderer = Arc::new(Renderer::bytes(config.clone()).unwrap());
    let policy = Arc::new(Typist {
        text: text.into(),
        renderer: renderer.clone(),
        longest_prompt,
        desk: Mutex::default(),
    });
    let reward = Arc::new(JudgedReward::new(Arc::new(RuleJudge), RewardConfig::default()));
    let setting = EpisodeSetting { renderer, config, backend: Arc::new(ToyBackend::default()) };
    let scheduler = Scheduler::new(setting, reward, RolloutConfig { schedule, concurrency: 2 });
    let request = RolloutRequest {
        tasks: vec![Arc::new(toy_task("t"))],
        samples: 1,
        temperature: 1.0,
        root_seed: 7,
        step: 0,
        component: "train",
    };
    let trace = scheduler.run(policy.clone(), request).await.unwrap().remove(0);
    trace.check().unwrap();
    let asked = policy.desk.lock().unwrap().asked.clone();
    (trace, asked)
}

fn turns(trace: &Trace) -> Vec<(&str, &StopReason)> {
    let events = trace.events.iter();
    events
        .filter_map(|event| match event {
            Event::Turn { text, stop, .. } => Some((text.as_str(), stop)),
            _ => None,
        })
        .collect()
}

fn ended_by(stop: &str) -> StopReason {
    StopReason::StopString(stop.into())
}

#[tokio::test]
async fn a_stop_string_that_is_quoted_in_thinking_or_a_summary_does_not_end_the_turn() {
    let first = "<think>maybe <answer>b</answer>, or <search>x</search></think><search>Kenya</search>";
    let second = "<summary>saw <answer>c</answer> there</summary>";
    let third = "<answer>Mount Kenya</answer>";
    let text = [first, second, third].concat();
    let mut hashes = Vec::new();
    for schedule in [Schedule::Deterministic, Schedule::Async] {
        let (trace, asked) = play(&text, settings(), 4096, schedule).await;
        let [search, summary, answer] = ["</search>", "</summary>", "</answer>"].map(ended_by);
        assert_eq!(turns(&trace), [(first, &search), (second, &summary), (third, &answer)]);
        assert_eq!(trace.outcome, Outcome::Answered { answer: "Mount Kenya".into() });
        let usage = trace.usage;
        assert_eq!((usage.turns, usage.searches, usage.invalid_actions), (3, 1, 0));
        assert_eq!((usage.sampled_tokens as usize, trace.segments.len()), (text.len(), 2));
        assert_eq!((trace.reward, trace.correct), (Some(1.0), Some(true)));
        // Three draws of the first turn, two of the second and one of the third, each with a seed of its own and
        // with what the turn's earlier draws have left of the limit.
        let seeds: Vec<u64> = asked.iter().map(|params| params.seed).collect();
        let draws = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)];
        assert_eq!(seeds, draws.map(|(turn, draw)| derive_seed(trace.seed, "turn", turn, "", draw)));
        let limits: Vec<usize> = asked.iter().map(|params| params.max_tokens).collect();
        let after = |quoted: &str| 200 - (text.find(quoted).unwrap() + quoted.len());
        let left = [
            200,
            after("b</answer>"),
            after("x</search>"),
            200,
            200 - "<summary>saw <answer>c</answer>".len(),
            200,
        ];
        assert_eq!(limits, left);
        hashes.push(trace.content_hash());
    }
    assert_eq!(hashes[0], hashes[1]);
}

#[tokio::test]
async fn turns_without_such_a_block_are_one_draw_each() {
    let (trace, asked) =
        play("<search>Kenya</search><answer>x</answer>", settings(), 4096, Schedule::Deterministic).await;
    let asked: Vec<(u64, usize)> = asked.iter().map(|params| (params.seed, params.max_tokens)).collect();
    assert_eq!(asked, [0, 1].map(|turn| (derive_seed(trace.seed, "turn", turn, "", 0), 200)));
}

#[tokio::test]
async fn the_response_limit_holds_for_the_whole_turn() {
    // 7 tokens of a tag, then 18 for each quoted answer: the limit falls inside one, and right behind one.
    let text = format!("<think>{}", "<answer>b</answer>".repeat(20));
    for (limit, stop) in [(60, StopReason::MaxTokens), (43, ended_by("</answer>"))] {
        let env = EnvConfig { max_response_tokens: limit, max_turns: 1, ..settings() };
        let (trace, _) = play(&text, env, 4096, Schedule::Deterministic).await;
        assert_eq!(turns(&trace), [(&text[..limit as usize], &stop)]);
        assert_eq!((trace.usage.sampled_tokens, trace.usage.invalid_actions), (limit, 1));
        assert_eq!(trace.outcome, Outcome::TurnLimit);
    }
}

#[tokio::test]
async fn a_prompt_that_leaves_no_room_is_a_failure_and_never_scored() {
    let prompt =
        Renderer::bytes(Arc::new(settings())).unwrap().prompt(&toy_task("t").question).unwrap().len();
    let length = u32::try_from(prompt).unwrap();
    let cramped = EnvConfig { max_context_tokens: length, max_response_tokens: 60, ..settings() };
    for (env, longest_prompt, context) in [(cramped, 4096, prompt), (settings(), 100, 100)] {
        for schedule in [Schedule::Deterministic, Schedule::Async] {
            let (trace, asked) = play("<answer>x</answer>", env.clone(), longest_prompt, schedule).await;
            let Outcome::Failed { boundary: Boundary::Environment, reason } = &trace.outcome else {
                panic!("{:?}", trace.outcome)
            };
            let lengths = [format!("prompt of {prompt} tokens"), format!("context of {context}")];
            assert!(lengths.iter().all(|length| reason.contains(length)), "{reason}");
            assert_eq!((trace.reward, trace.correct, &trace.scoring_error), (None, None, &None));
            assert!(asked.is_empty() && trace.segments.is_empty());
        }
    }
    let roomy = EnvConfig { max_context_tokens: length + 18, max_response_tokens: 60, ..settings() };
    let (trace, _) = play("<answer>x</answer>", roomy, 4096, Schedule::Deterministic).await;
    assert_eq!(trace.answer(), Some("x"));
}

//! A world small enough to learn in seconds: tiny models, expert traces, and a two-turn bandit.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use drgym_env::rollout::{RolloutError, RolloutRequest, Rollouts};
use drgym_env::seed::{derive_seed, generator};
use drgym_env::trace::{TRACE_VERSION, Timings};
use drgym_env::{
    Boundary, EpisodeKey, OpenRequest, Outcome, Policy, PolicyError, PolicyInfo, Sampled, SamplingParams,
    Segment, SessionId, StopReason, Task, TaskProvenance, Trace, Usage,
};
use drgym_trainer::TrainError;
use drgym_trainer::config::GrpoConfig;
use drgym_trainer::grpo::{GrpoReport, GrpoRun, LearningPolicy, PolicyMaker};
use drgym_trainer::model::{Decoder, LoadOptions, ModelConfig, ModelHandle};
use drgym_trainer::sampler::{LocalPolicy, LocalPolicyOptions, TokenBytes};
use rand::Rng;
use tch::Kind;

pub const VOCABULARY: usize = 12;
/// The token that the bandit pays for.
pub const PRIZE: u32 = 7;

pub fn tiny_config(tied: bool) -> ModelConfig {
    let config = serde_json::json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCABULARY, "hidden_size": 16,
        "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": tied, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
    });
    ModelConfig::from_json(Path::new("config.json"), config).unwrap()
}

/// Writes a tiny random model.
pub fn write_model(folder: &Path) {
    let decoder = Decoder::random(tiny_config(true), 5, LoadOptions::default()).unwrap();
    // Llama's standard deviation of 0.02 hardly lets such a narrow model tell tokens apart.
    tch::no_grad(|| {
        for (name, parameter) in decoder.parameters().iter() {
            if !name.ends_with("norm.weight") {
                let _ = parameter.shallow_clone().g_mul_scalar_(10.0);
            }
        }
    });
    decoder.save(folder).unwrap();
}

pub fn task(number: usize) -> Arc<Task> {
    Arc::new(Task {
        id: format!("task-{number}"),
        question: format!("question {number}?"),
        answers: vec!["7".into()],
        evidence: vec![],
        kind: "bandit".into(),
        phrasing: String::new(),
        entities: vec![],
        expert: vec![],
        provenance: TaskProvenance::default(),
        extra: serde_json::Map::new(),
    })
}

/// A scored trace of one segment.
pub fn trace(task: &Task, sample: u32, segment: Segment, reward: f64) -> Trace {
    let sampled = segment.sampled_tokens() as u32;
    let usage = Usage {
        turns: 2,
        searches: 1,
        prompt_tokens: segment.prompt_ids.len() as u32,
        sampled_tokens: sampled,
        observed_tokens: segment.response_ids.len() as u32 - sampled,
        ..Usage::default()
    };
    Trace {
        version: TRACE_VERSION,
        task: task.clone(),
        episode: EpisodeKey { task: task.id.clone(), sample },
        seed: 0,
        policy: "tiny".into(),
        segments: vec![segment],
        events: vec![],
        outcome: Outcome::Answered { answer: "7".into() },
        verdicts: vec![],
        correct: Some(reward > 0.5),
        reward: Some(reward),
        scoring_error: None,
        usage,
        timings: Timings::default(),
    }
}

/// Expert traces: the prize, an observation, two fixed tokens.
pub fn expert_traces(count: usize) -> Vec<Trace> {
    (0..count)
        .map(|number| {
            let mut segment = Segment::new(prompt(number), 0);
            segment.push_sampled(&[PRIZE], &[0.0]);
            segment.push_observed(&[8, 9, (number % 3) as u32 + 3]);
            segment.push_sampled(&[10, 2], &[0.0, 0.0]);
            trace(&task(number), 0, segment, 1.0)
        })
        .collect()
}

pub fn prompt(number: usize) -> Vec<u32> {
    let mut prompt = vec![1, 3 + (number % 4) as u32];
    prompt.resize(2 + number % 3, 4);
    prompt
}

/// Episodes of two turns with an observation between them; the first token decides the reward.
#[derive(Default)]
pub struct Bandit {
    /// The run dies in this step.
    pub die_in: Option<u64>,
    /// Samples of which the search fails, by number.
    pub failing_samples: Vec<u32>,
    /// Gives the first two traces in the wrong order.
    pub swapped: bool,
    /// Every episode gets this reward.
    pub flat: Option<f64>,
    /// Decides the reward of the episodes that are learnt from, by position of the task and number of the sample.
    pub reward: Option<fn(usize, u32) -> f64>,
    /// The traces tell log-probabilities that are off by this.
    pub logprob_offset: f32,
    /// Set when this step's episodes are done.
    pub cancel_in: Option<(u64, Arc<AtomicBool>)>,
    /// The evaluation after this step is interrupted.
    pub interrupt_evaluation_in: Option<u64>,
    /// The search fails in this many episodes of every evaluation, the first ones.
    pub failing_evaluations: usize,
}

#[async_trait]
impl Rollouts for Bandit {
    async fn run(
        &self,
        policy: Arc<dyn Policy>,
        request: RolloutRequest,
    ) -> Result<Vec<Trace>, RolloutError> {
        if request.component == "train" && self.die_in == Some(request.step) {
            return Err(RolloutError::BadRequest("the power went out".into()));
        }
        if request.component == "dev" && self.interrupt_evaluation_in == Some(request.step) {
            return Err(RolloutError::Cancelled);
        }
        let mut traces = Vec::new();
        for (position, task) in request.tasks.iter().enumerate() {
            for sample in 0..request.samples {
                let seed =
                    derive_seed(request.root_seed, request.component, request.step, &task.id, sample.into());
                let failed = |error: PolicyError| RolloutError::BadRequest(error.to_string());
                let episode = EpisodeKey { task: task.id.clone(), sample };
                let prompt_ids = prompt(position);
                let open = OpenRequest { prompt_ids: prompt_ids.clone(), episode, turn: 0 };
                let session = policy.open(open).await.map_err(failed)?;
                let mut segment = Segment::new(prompt_ids, policy.info().version);
                for (turn, max_tokens) in [(0, 1), (1, 2)] {
                    let seed = derive_seed(seed, "turn", turn, "", 0);
                    let params =
                        SamplingParams { temperature: request.temperature, max_tokens, stop: vec![], seed };
                    let sampled = policy.sample(session, params).await.map_err(failed)?;
                    let told: Vec<f32> =
                        sampled.logprobs.iter().map(|logprob| logprob + self.logprob_offset).collect();
                    segment.push_sampled(&sampled.ids, &told);
                    if turn == 0 {
                        policy.extend(session, &[8, 9]).await.map_err(failed)?;
                        segment.push_observed(&[8, 9]);
                    }
                }
                policy.close(session).await;
                let won = segment.response_ids[0] == PRIZE;
                let reward = match self.reward {
                    Some(reward) if request.component == "train" => reward(position, sample),
                    _ => self.flat.unwrap_or(f64::from(u8::from(won))),
                };
                let mut trace = trace(task, sample, segment, reward);
                let fails = match request.component {
                    "train" => self.failing_samples.contains(&sample),
                    _ => position < self.failing_evaluations,
                };
                if fails {
                    let reason = "no route to the index".to_owned();
                    trace.outcome = Outcome::Failed { boundary: Boundary::Search, reason };
                    (trace.reward, trace.correct) = (None, None);
                }
                traces.push(trace);
            }
        }
        if self.swapped {
            traces.swap(0, request.samples as usize);
        }
        if let Some((step, cancel)) = &self.cancel_in
            && *step == request.step
        {
            cancel.store(true, Ordering::Relaxed);
        }
        Ok(traces)
    }
}

/// Draws token by token, each with a forward pass of its own: slow, plain, and independent of the sampler.
pub struct PlainPolicy {
    handle: ModelHandle,
    sessions: Mutex<HashMap<u64, Vec<u32>>>,
    next: AtomicU64,
    version: AtomicU64,
}

impl PlainPolicy {
    pub fn maker() -> PolicyMaker {
        Box::new(|handle| {
            Ok(Arc::new(Self {
                handle: handle.clone(),
                sessions: Mutex::default(),
                next: AtomicU64::new(0),
                version: AtomicU64::new(0),
            }))
        })
    }
}

#[async_trait]
impl Policy for PlainPolicy {
    async fn open(&self, request: OpenRequest) -> Result<SessionId, PolicyError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.sessions.lock().unwrap().insert(id, request.prompt_ids);
        Ok(SessionId(id))
    }

    async fn fork(&self, session: SessionId) -> Result<SessionId, PolicyError> {
        Err(PolicyError::UnknownSession(session))
    }

    async fn extend(&self, session: SessionId, ids: &[u32]) -> Result<(), PolicyError> {
        self.sessions.lock().unwrap().get_mut(&session.0).unwrap().extend_from_slice(ids);
        Ok(())
    }

    async fn sample(&self, session: SessionId, params: SamplingParams) -> Result<Sampled, PolicyError> {
        let ids = self.sessions.lock().unwrap()[&session.0].clone();
        let drawn = self.handle.run(move |decoder: &mut Decoder| draw(decoder, ids, &params)).await;
        let (ids, logprobs) = drawn.map_err(|error| PolicyError::Failed(error.to_string()))?;
        self.extend(session, &ids).await?;
        Ok(Sampled { ids, logprobs, stop: StopReason::MaxTokens })
    }

    async fn close(&self, session: SessionId) {
        self.sessions.lock().unwrap().remove(&session.0);
    }

    fn info(&self) -> PolicyInfo {
        let version = self.version.load(Ordering::Relaxed);
        PolicyInfo { name: "plain".into(), version, context_length: 64 }
    }
}

#[async_trait]
impl LearningPolicy for PlainPolicy {
    async fn weights_changed(&self, version: u64) -> Result<(), TrainError> {
        self.version.store(version, Ordering::Relaxed);
        Ok(())
    }
}

fn draw(decoder: &Decoder, mut ids: Vec<u32>, params: &SamplingParams) -> (Vec<u32>, Vec<f32>) {
    let _guard = tch::no_grad_guard();
    let mut random = generator(params.seed);
    let (mut drawn, mut logprobs) = (Vec::new(), Vec::new());
    for _ in 0..params.max_tokens {
        let input: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
        let hidden = decoder.hidden_states(&tch::Tensor::from_slice(&input).unsqueeze(0));
        let logits = decoder.logits(&hidden.select(1, input.len() as i64 - 1)).squeeze_dim(0);
        let temperature = if params.temperature == 0.0 { 1.0 } else { f64::from(params.temperature) };
        let scores = Vec::<f32>::try_from((logits / temperature).log_softmax(-1, Kind::Float)).unwrap();
        let token = if params.temperature == 0.0 {
            (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap()
        } else {
            let mut rest = random.random::<f32>();
            let last = scores.len() - 1;
            (0..last).find(|&token| (rest -= scores[token].exp(), rest < 0.0).1).unwrap_or(last)
        };
        drawn.push(token as u32);
        logprobs.push(scores[token].min(0.0));
        ids.push(token as u32);
    }
    (drawn, logprobs)
}

/// The sampler of the program, for the tiny model.
pub fn sampler_maker() -> PolicyMaker {
    Box::new(|handle| {
        let bytes = (0..VOCABULARY as u8).map(|id| vec![b'A' + id]).collect();
        let options = LocalPolicyOptions {
            name: "tiny".into(),
            context_length: 64,
            end_of_turn_ids: Vec::new(),
            vocab_size: VOCABULARY,
            cache_bytes: 1 << 24,
            max_batch: 16,
        };
        Ok(Arc::new(LocalPolicy::new(handle.clone(), Arc::new(TokenBytes::new(bytes)), options)?))
    })
}

/// A bandit run in `out` with the model in `model`.
pub fn grpo_config(model: &Path, steps: u64) -> GrpoConfig {
    let text = format!(
        "steps = {steps}\nprompts_per_step = 4\ngroup_size = 8\n\
         [model]\npath = '{}'\nthreads = 1\n\
         [optimizer]\nlearning_rate = 0.01\nwarmup_updates = 2\n\
         [micro_batch]\ntokens = 64\nlogit_rows = 16\n\
         [evaluation]\nevery = 2\n\
         [checkpoint]\nevery = 2\n",
        model.display()
    );
    toml::from_str(&text).unwrap()
}

pub fn run_grpo(
    config: &GrpoConfig,
    out: &Path,
    resume: bool,
    world: Bandit,
) -> Result<GrpoReport, TrainError> {
    run_grpo_with(PlainPolicy::maker(), config, out, resume, world)
}

pub fn run_grpo_with(
    policy: PolicyMaker,
    config: &GrpoConfig,
    out: &Path,
    resume: bool,
    world: Bandit,
) -> Result<GrpoReport, TrainError> {
    let cancel = world.cancel_in.as_ref().map(|(_, flag)| Arc::clone(flag)).unwrap_or_default();
    let run = GrpoRun {
        config: config.clone(),
        rollouts: Arc::new(world),
        train: (0..10).map(task).collect(),
        dev: (20..24).map(task).collect(),
        policy,
        out: out.to_owned(),
        resume,
        seed: 3,
        resolved_config_toml: toml::to_string(config).unwrap(),
        progress: &mut |_| {},
        cancel,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    runtime.block_on(drgym_trainer::grpo::run(run))
}

/// The lines of `metrics.jsonl` without their wall-clock figures.
pub fn timeless_metrics(run: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines()
        .map(|line| {
            let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(value.as_object_mut().unwrap().remove("timings").is_some());
            value
        })
        .collect()
}

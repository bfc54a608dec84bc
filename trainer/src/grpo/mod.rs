//! Group relative policy optimisation of a search agent.
//!
//! ```text
//! tasks ─order─▶ batch ─Rollouts─▶ traces ─drop failed─▶ rewards ─advantage─▶ episodes ─updates─▶ policy
//!                                    │                                            │
//!                              traces/step_N.jsonl                         metrics.jsonl, checkpoints/step_N
//! ```
//!
//! Each step draws tasks, runs a group of episodes for each at the policy's present weights, and updates the
//! weights on those whose group has spread (DeepSeekMath, arXiv 2402.03300, algorithm 1). An episode that failed
//! outside the policy is dropped from its group and counted, never scored.

mod learning_policy;
mod policy_loss;
mod policy_update;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use drgym_env::rollout::{RolloutError, RolloutRequest, Rollouts};
use drgym_env::{Outcome, Policy, Segment, Task, Trace};

pub use self::learning_policy::{LearningPolicy, PolicyMaker, local_policy};
pub use self::policy_loss::{PolicyLoss, TokenTally};
use self::policy_update::{Episodes, PolicyUpdate, Trainer};
use crate::algorithm::advantage;
use crate::batch::Sequence;
use crate::checkpoint::{Best, Checkpoint, Stop};
use crate::config::GrpoConfig;
use crate::error::TrainError;
use crate::learner::{Learner, load_options, threads};
use crate::metrics::{
    EpisodeMetrics, GroupMetrics, StepTimings, UpdateMetrics, drop_cause, peak_memory_bytes,
};
use crate::model::{Decoder, ModelConfig, ModelHandle, ModelThread};
use crate::order::DataOrder;
use crate::run_folder::{HeldFolder, RunFolder, fresh_state};
use crate::sft::{check_sequences, label_of};
use crate::trace_text;

/// A run of GRPO.
pub struct GrpoRun<'a> {
    /// How to train.
    pub config: GrpoConfig,
    /// Runs and scores episodes.
    pub rollouts: Arc<dyn Rollouts>,
    /// Tasks to learn from.
    pub train: Vec<Arc<Task>>,
    /// Tasks to choose the best checkpoint by; may be empty, then nothing is evaluated.
    pub dev: Vec<Arc<Task>>,
    /// Makes the policy that episodes are drawn from.
    pub policy: PolicyMaker,
    /// The run's folder.
    pub out: PathBuf,
    /// Go on with the run that is there. One that a guard ended ends so again.
    pub resume: bool,
    /// Root of every random draw.
    pub seed: u64,
    /// The configuration as it was resolved, kept in the folder and compared when the run is resumed.
    pub resolved_config_toml: String,
    /// Told after every step.
    pub progress: &'a mut (dyn FnMut(&GrpoProgress) + Send),
    /// Set from outside: the step under way is finished, a checkpoint written, and the run returns.
    pub cancel: Arc<AtomicBool>,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub struct GrpoProgress {
    /// Steps done.
    pub step: u64,
    /// Steps in all.
    pub steps: u64,
    /// What the last step did; also a line of `metrics.jsonl`.
    pub metrics: GrpoMetrics,
}

/// One line of `metrics.jsonl`. Line 0, where there is one, holds the evaluation before the first step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GrpoMetrics {
    /// The step, from 1.
    pub step: u64,
    /// The pass over the tasks, from 0.
    pub epoch: u64,
    /// The episodes that were learnt from.
    pub train: EpisodeMetrics,
    /// Their groups.
    pub groups: GroupMetrics,
    /// The updates.
    pub update: UpdateMetrics,
    /// Greedy episodes on the development tasks after the step, where it was evaluated.
    pub dev: Option<EpisodeMetrics>,
    /// Wall-clock figures.
    pub timings: StepTimings,
}

/// Why a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All steps are done.
    Finished,
    /// Someone asked to stop.
    Cancelled,
    /// The policy left the reference, or the policy that drew its tokens, by more than allowed.
    KlLimit {
        /// Nats a token.
        kl: f64,
        /// The limit.
        limit: f64,
    },
    /// The entropy left its bounds, a sign of collapse.
    EntropyLimit {
        /// Nats a token.
        entropy: f64,
        /// The bound that was crossed.
        limit: f64,
    },
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct GrpoReport {
    /// Steps done.
    pub step: u64,
    /// Steps in all.
    pub steps: u64,
    /// Why it ended.
    pub ending: Ending,
    /// Accuracy on the development tasks before the first step, counted as in [`Best`].
    pub start_accuracy: Option<f64>,
    /// The best evaluation after a step, and its checkpoint.
    pub best: Option<(Best, PathBuf)>,
    /// The last checkpoint; its folder is a model to load.
    pub checkpoint: Checkpoint,
    /// Numbers that were trained.
    pub trained_parameters: usize,
}

/// Runs or resumes GRPO. The model lives on a thread of its own; the caller's runtime does the rest.
pub async fn run(run: GrpoRun<'_>) -> Result<GrpoReport, TrainError> {
    let problems = problems(&run);
    if !problems.is_empty() {
        return Err(TrainError::Config(problems));
    }
    let hash = dataset_hash(&run.train, &run.dev)?;
    let fresh = fresh_state("grpo", run.seed, &run.resolved_config_toml, hash, &run.config.model.path)?;
    let folder = HeldFolder::take(&run.out, run.resume, fresh, &run.resolved_config_toml)?;
    let mut session = Session::start(run, folder)?;
    let ending = match session.folder.state.stopped.clone() {
        Some(stop) => ending_of(&stop, session.folder.state.step)?,
        None => session.train().await?,
    };
    session.checkpoint(false).await?;
    session.report(ending)
}

/// What a run comes to that a guard ended after `step`, then and whenever it is resumed.
fn ending_of(stop: &Stop, step: u64) -> Result<Ending, TrainError> {
    match *stop {
        Stop::KlLimit { kl, limit } => Ok(Ending::KlLimit { kl, limit }),
        Stop::EntropyLimit { entropy, limit } => Ok(Ending::EntropyLimit { entropy, limit }),
        Stop::NotFinite { in_row, ref last } => Err(TrainError::not_finite(step, in_row, last)),
    }
}

fn problems(run: &GrpoRun<'_>) -> Vec<String> {
    let mut problems = run.config.validate();
    if run.config.prompts_per_step > run.train.len() {
        problems.push(format!(
            "prompts_per_step: must not exceed the number of training tasks, {}, found {}",
            run.train.len(),
            run.config.prompts_per_step
        ));
    }
    problems
}

/// A run under way.
struct Session<'a> {
    run: Plan<'a>,
    folder: RunFolder,
    order: DataOrder,
    handle: ModelHandle,
    model: ModelConfig,
    policy: Arc<dyn LearningPolicy>,
    trainer: Arc<Mutex<Trainer>>,
    trained_parameters: usize,
    checkpoint_seconds: f64,
}

/// What stays the same during a run.
struct Plan<'a> {
    config: GrpoConfig,
    rollouts: Arc<dyn Rollouts>,
    train: Vec<Arc<Task>>,
    dev: Vec<Arc<Task>>,
    seed: u64,
    progress: &'a mut (dyn FnMut(&GrpoProgress) + Send),
    cancel: Arc<AtomicBool>,
}

impl<'a> Session<'a> {
    fn start(run: GrpoRun<'a>, folder: HeldFolder) -> Result<Self, TrainError> {
        let config = &run.config;
        let resumed = folder.last().map(|checkpoint| checkpoint.path.clone());
        let merge = config.checkpoint.merge_adapter;
        let (model, optimizer) = (config.model.clone(), config.optimizer.clone());
        let (seed, with_reference) = (run.seed, config.kl_coefficient > 0.0);
        let load = move || -> Result<_, TrainError> {
            let (decoder, learner) = Learner::load(&model, &optimizer, merge, seed, resumed.as_deref())?;
            let reference = with_reference
                .then(|| Ok::<_, TrainError>(Decoder::load(&model.path, load_options(&model)?)?));
            let (shape, trainer) =
                (decoder.config().clone(), Trainer { learner, reference: reference.transpose()? });
            Ok((decoder, (shape, trainer)))
        };
        let (handle, (model, trainer)) = ModelThread::spawn(threads(&config.model), load)?;
        let trained_parameters = trainer.learner.trained_elements();
        let trainer = Arc::new(Mutex::new(trainer));
        let policy = (run.policy)(&handle)?;
        let folder = folder.begin()?;
        let order = DataOrder::full_batches(run.train.len(), config.prompts_per_step, run.seed);
        let run = Plan {
            config: run.config,
            rollouts: run.rollouts,
            train: run.train,
            dev: run.dev,
            seed: run.seed,
            progress: run.progress,
            cancel: run.cancel,
        };
        Ok(Self {
            run,
            folder,
            order,
            handle,
            model,
            policy,
            trainer,
            trained_parameters,
            checkpoint_seconds: 0.0,
        })
    }

    /// Steps until the run ends. The state is one that a checkpoint may be made of whenever this returns without
    /// an error.
    async fn train(&mut self) -> Result<Ending, TrainError> {
        let steps = self.run.config.steps;
        self.policy.weights_changed(self.folder.state.step).await?;
        let state = &self.folder.state;
        if state.step == 0 && state.start_accuracy.is_none() && self.run.config.evaluation.at_start {
            let started = Instant::now();
            let Some(dev) = self.evaluate(0).await? else { return Ok(Ending::Cancelled) };
            if let Some(dev) = dev {
                self.folder.state.start_accuracy = dev.right_of_all();
                let mut metrics = GrpoMetrics { dev: Some(dev), ..GrpoMetrics::default() };
                metrics.timings.evaluation_seconds = started.elapsed().as_secs_f64();
                metrics.timings.peak_memory_bytes = peak_memory_bytes();
                self.folder.metrics.append(0, &metrics)?;
                (self.run.progress)(&GrpoProgress { step: 0, steps, metrics });
            }
        }
        if self.folder.state.unreported.is_some()
            && let Some(ending) = self.finish_step().await?
        {
            return Ok(ending);
        }
        while self.folder.state.step < steps {
            if self.run.cancel.load(Ordering::Relaxed) || !self.step().await? {
                return Ok(Ending::Cancelled);
            }
            if let Some(ending) = self.finish_step().await? {
                return Ok(ending);
            }
        }
        Ok(Ending::Finished)
    }

    /// Episodes and updates of one step, whose metrics are left in the state; `false` when the rollout was
    /// interrupted, which leaves everything as it was.
    async fn step(&mut self) -> Result<bool, TrainError> {
        let index = self.folder.state.step;
        let step = index + 1;
        let tasks: Vec<Arc<Task>> =
            self.order.batch(index).into_iter().map(|task| Arc::clone(&self.run.train[task])).collect();
        let mut metrics = GrpoMetrics { step, epoch: self.order.epoch(index), ..GrpoMetrics::default() };

        let started = Instant::now();
        let (samples, temperature) = (self.run.config.group_size, self.run.config.temperature);
        let Some(traces) = self.roll_out(tasks.clone(), samples, temperature, step, "train").await? else {
            return Ok(false);
        };
        metrics.timings.rollout_seconds = started.elapsed().as_secs_f64();
        let total: usize = traces.iter().flat_map(|trace| &trace.segments).map(Segment::len).sum();
        let drawn: u32 = traces.iter().map(|trace| trace.usage.sampled_tokens).sum();
        metrics.timings.rollout_tokens_per_second = total as f64 / metrics.timings.rollout_seconds;
        metrics.timings.sampled_tokens_per_second = f64::from(drawn) / metrics.timings.rollout_seconds;
        metrics.train = EpisodeMetrics::of(&traces);
        self.folder.write_traces(step, &traces)?;
        self.check_failures(step, &traces, &metrics.train).await?;
        let (episodes, groups) = self.episodes(&traces)?;
        metrics.groups = groups;

        let started = Instant::now();
        self.policy.rollout_ended().await?;
        let update = self.learn(episodes, index).await?;
        metrics.timings.train_seconds = started.elapsed().as_secs_f64();
        metrics.timings.train_tokens_per_second = update.read_tokens as f64 / metrics.timings.train_seconds;
        metrics.update = update.metrics;
        self.folder.state.step = step;
        self.folder.state.data_position += tasks.len() as u64;
        self.folder.state.skipped_in_row = update.skipped_in_row;
        self.policy.weights_changed(self.folder.state.step).await?;
        for trace in traces.iter().take(self.run.config.shown_episodes) {
            let tag = format!("episode/{}", trace.episode.sample);
            self.folder.metrics.text(step, &tag, &trace_text::markdown(trace))?;
        }
        metrics.timings.checkpoint_seconds = std::mem::take(&mut self.checkpoint_seconds);
        self.folder.state.unreported = Some(metrics);
        Ok(true)
    }

    /// Evaluates after a step where that is due, reports the step and writes the checkpoint where that is due. The
    /// ending, if the run ends here; an evaluation that was interrupted is made when the run is resumed.
    async fn finish_step(&mut self) -> Result<Option<Ending>, TrainError> {
        let (step, steps) = (self.folder.state.step, self.run.config.steps);
        let every = self.run.config.evaluation.every;
        let mut dev = None;
        let started = Instant::now();
        if every > 0 && (step.is_multiple_of(every) || step == steps) {
            dev = match self.evaluate(step).await? {
                Some(dev) => dev,
                None => return Ok(Some(Ending::Cancelled)),
            };
        }
        let Some(mut metrics) = self.folder.state.unreported.take() else {
            unreachable!("a step leaves its metrics")
        };
        if dev.is_some() {
            metrics.timings.evaluation_seconds = started.elapsed().as_secs_f64();
            self.note_best(step, dev.as_ref().and_then(EpisodeMetrics::right_of_all));
        }
        metrics.dev = dev;
        metrics.timings.peak_memory_bytes = peak_memory_bytes();
        self.folder.metrics.append(step, &metrics)?;
        (self.run.progress)(&GrpoProgress { step, steps, metrics: metrics.clone() });

        if let Some(stop) = self.not_finite(&metrics).or_else(|| self.crossed_limit(&metrics)) {
            self.folder.state.stopped = Some(stop.clone());
            // What went wrong is written down, but takes no earlier, healthier checkpoint away.
            self.checkpoint(true).await?;
            return ending_of(&stop, step).map(Some);
        }
        let state = &self.folder.state;
        let every = self.run.config.checkpoint.every;
        let due = every > 0 && state.step.is_multiple_of(every);
        if due || state.best.is_some_and(|best| best.step == state.step) {
            self.checkpoint(false).await?;
        }
        Ok(None)
    }

    /// Scored traces for `tasks`, in order; `None` when interrupted.
    async fn roll_out(
        &self,
        tasks: Vec<Arc<Task>>,
        samples: u32,
        temperature: f32,
        step: u64,
        component: &'static str,
    ) -> Result<Option<Vec<Trace>>, TrainError> {
        let request = RolloutRequest {
            tasks: tasks.clone(),
            samples,
            temperature,
            root_seed: self.run.seed,
            step,
            component,
        };
        let policy: Arc<dyn Policy> = Arc::<dyn LearningPolicy>::clone(&self.policy);
        match self.run.rollouts.run(policy, request).await {
            Ok(traces) => {
                check_membership(&traces, &tasks, samples)?;
                Ok(Some(traces))
            }
            Err(RolloutError::Cancelled) => Ok(None),
            Err(source) => Err(TrainError::Rollout { step, source }),
        }
    }

    /// Greedy episodes on the development tasks: `None` when interrupted, `Some(None)` when there are no tasks.
    async fn evaluate(&mut self, step: u64) -> Result<Option<Option<EpisodeMetrics>>, TrainError> {
        if self.run.dev.is_empty() {
            return Ok(Some(None));
        }
        let Some(traces) = self.roll_out(self.run.dev.clone(), 1, 0.0, step, "dev").await? else {
            return Ok(None);
        };
        let metrics = EpisodeMetrics::of(&traces);
        // A figure over the few episodes that an outage spared must not choose a checkpoint.
        self.check_failures(step, &traces, &metrics).await?;
        Ok(Some(Some(metrics)))
    }

    fn note_best(&mut self, step: u64, accuracy: Option<f64>) {
        if let Some(accuracy) = accuracy
            && self.folder.state.best.is_none_or(|best| accuracy > best.accuracy)
        {
            self.folder.state.best = Some(Best { step, accuracy });
        }
    }

    /// Stops a run whose infrastructure fails too often; what was learnt so far is kept.
    async fn check_failures(
        &mut self,
        step: u64,
        traces: &[Trace],
        metrics: &EpisodeMetrics,
    ) -> Result<(), TrainError> {
        let limit = self.run.config.guard.max_failed_fraction;
        let (failed, episodes) = (metrics.dropped_samples, metrics.episodes);
        if failed as f64 <= limit * episodes as f64 {
            return Ok(());
        }
        if self.folder.state.step > 0 {
            self.checkpoint(false).await?;
        }
        let causes: Vec<String> = metrics
            .dropped_by
            .iter()
            .map(|(cause, count)| {
                let example = traces.iter().find(|trace| drop_cause(trace).as_ref() == Some(cause));
                format!("{cause} {count} times ({})", example.map(reason_of).unwrap_or_default())
            })
            .collect();
        Err(TrainError::TooManyFailures { step, failed, episodes, limit, causes: causes.join("; ") })
    }

    /// Advantages and sequences of the scored traces.
    fn episodes(&self, traces: &[Trace]) -> Result<(Episodes, GroupMetrics), TrainError> {
        let group_size = self.run.config.group_size as usize;
        let mut episodes = Episodes {
            sequences: Vec::new(),
            advantages: Vec::new(),
            informative: Vec::new(),
            groups: Vec::new(),
            labels: Vec::new(),
        };
        let mut rewards = Vec::new();
        for (position, trace) in traces.iter().enumerate() {
            let Some(reward) = trace.reward.filter(|_| drop_cause(trace).is_none()) else { continue };
            let label = label_of(trace);
            let sequences = Sequence::of_trace(trace, rewards.len())
                .map_err(|reason| TrainError::Episode { episode: label.clone(), reason })?;
            episodes.sequences.extend(sequences);
            episodes.groups.push(position / group_size);
            episodes.labels.push(label);
            rewards.push(reward);
        }
        check_sequences(&self.model, &episodes.sequences, &episodes.labels)?;
        let options = self.run.config.advantage();
        let groups = traces.len() / group_size;
        let advantages = advantage::grpo(&rewards, &episodes.groups, groups, group_size, &options)?;
        let metrics = GroupMetrics {
            groups: advantages.groups,
            zero_spread_groups: advantages.zero_spread_groups,
            singleton_groups: advantages.singleton_groups,
        };
        episodes.advantages = advantages.values;
        episodes.informative = advantages.informative;
        Ok((episodes, metrics))
    }

    async fn learn(&self, episodes: Episodes, index: u64) -> Result<PolicyUpdate, TrainError> {
        let trainer = Arc::clone(&self.trainer);
        let config = self.run.config.clone();
        let skipped_in_row = self.folder.state.skipped_in_row;
        let work = move |decoder: &mut Decoder| {
            let mut trainer = trainer.lock().unwrap_or_else(PoisonError::into_inner);
            trainer.learn(decoder, &config, &episodes, index, skipped_in_row)
        };
        self.handle.run(work).await?
    }

    /// Whether the step's last update was left out once too often. One without any update is not to blame for those
    /// before it.
    fn not_finite(&self, metrics: &GrpoMetrics) -> Option<Stop> {
        let in_row = self.folder.state.skipped_in_row;
        let last = metrics.update.skipped.last()?;
        let limit = self.run.config.guard.max_skipped_in_row;
        (in_row >= limit).then(|| Stop::NotFinite { in_row, last: last.clone() })
    }

    fn crossed_limit(&self, metrics: &GrpoMetrics) -> Option<Stop> {
        let (guard, update) = (&self.run.config.guard, &metrics.update);
        let kl = update.kl.or(update.ratio.as_ref().map(|ratio| ratio.kl_to_old));
        if let Some(kl) = kl.filter(|&kl| guard.max_kl > 0.0 && kl > guard.max_kl) {
            return Some(Stop::KlLimit { kl, limit: guard.max_kl });
        }
        // Over all tokens drawn: a policy that has collapsed has no informative groups, and so no updates to measure.
        let entropy = metrics.train.surprisal?;
        if guard.min_entropy > 0.0 && entropy < guard.min_entropy {
            return Some(Stop::EntropyLimit { entropy, limit: guard.min_entropy });
        }
        if guard.max_entropy > 0.0 && entropy > guard.max_entropy {
            return Some(Stop::EntropyLimit { entropy, limit: guard.max_entropy });
        }
        None
    }

    /// Writes the checkpoint of the present state, unless there is one, on the thread that owns the tensors, and
    /// removes old ones unless all are to be kept.
    async fn checkpoint(&mut self, keep_all: bool) -> Result<(), TrainError> {
        let started = Instant::now();
        let keep_last = if keep_all { usize::MAX } else { self.run.config.checkpoint.keep_last };
        let Some(job) = self.folder.checkpoint_job(keep_last)? else {
            return Ok(());
        };
        let trainer = Arc::clone(&self.trainer);
        let work = move |decoder: &mut Decoder| {
            let trainer = trainer.lock().unwrap_or_else(PoisonError::into_inner);
            job.write(|path| trainer.learner.save(decoder, path))
        };
        self.folder.last = Some(self.handle.run(work).await??);
        self.checkpoint_seconds = started.elapsed().as_secs_f64();
        Ok(())
    }

    fn report(self, ending: Ending) -> Result<GrpoReport, TrainError> {
        let state = &self.folder.state;
        let best = state.best.map(|best| (best, self.folder.checkpoint_path(best.step)));
        let (step, start_accuracy) = (state.step, state.start_accuracy);
        let Some(checkpoint) = self.folder.last else {
            return Err(TrainError::NoData("the run ended before its first checkpoint".into()));
        };
        Ok(GrpoReport {
            step,
            steps: self.run.config.steps,
            ending,
            start_accuracy,
            best,
            checkpoint,
            trained_parameters: self.trained_parameters,
        })
    }
}

/// Checks that the traces are those that were asked for, group by group: a sample in another task's group would be
/// compared with the wrong rewards.
fn check_membership(traces: &[Trace], tasks: &[Arc<Task>], samples: u32) -> Result<(), TrainError> {
    let expected = tasks.len() * samples as usize;
    if traces.len() != expected {
        return Err(TrainError::Membership(format!(
            "expected {} tasks times {samples} samples, {expected} traces, found {}",
            tasks.len(),
            traces.len()
        )));
    }
    let keys = tasks.iter().flat_map(|task| (0..samples).map(move |sample| (&task.id, sample)));
    for (position, (trace, (task, sample))) in traces.iter().zip(keys).enumerate() {
        if trace.task.id != *task || trace.episode.task != *task || trace.episode.sample != sample {
            return Err(TrainError::Membership(format!(
                "trace {position} should be sample {sample} of task {task}, but is sample {} of task {}",
                trace.episode.sample, trace.episode.task
            )));
        }
    }
    Ok(())
}

fn reason_of(trace: &Trace) -> String {
    match &trace.outcome {
        Outcome::Failed { reason, .. } => reason.clone(),
        _ => trace.scoring_error.clone().unwrap_or_else(|| "no reward was set".into()),
    }
}

fn dataset_hash(train: &[Arc<Task>], dev: &[Arc<Task>]) -> Result<String, TrainError> {
    let mut hasher = blake3::Hasher::new();
    for (name, tasks) in [("train", train), ("dev", dev)] {
        hasher.update(name.as_bytes());
        hasher.update(&(tasks.len() as u64).to_le_bytes());
        for task in tasks {
            let bytes = serde_json::to_vec(task.as_ref())
                .map_err(|error| TrainError::NoData(format!("task {} cannot be hashed: {error}", task.id)))?;
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(&bytes);
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

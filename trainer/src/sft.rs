//! Supervised fine-tuning on expert traces.
//!
//! The loss is the negative log-probability of the tokens that the expert wrote: the same segments and masks that
//! GRPO learns from, so observations are read but never learnt.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use drgym_env::Trace;

use crate::batch::Sequence;
use crate::checkpoint::{Checkpoint, Stop};
use crate::config::SftConfig;
use crate::device::set_threads;
use crate::error::TrainError;
use crate::forward_backward::PassOptions;
use crate::learner::{Learner, LossInput, UpdateOptions, threads};
use crate::metrics::{SkippedUpdate, StepTimings, UpdateMetrics, peak_memory_bytes};
use crate::model::{Decoder, ModelConfig};
use crate::order::DataOrder;
use crate::run_folder::{HeldFolder, RunFolder, fresh_state};

/// A supervised run.
pub struct SftRun<'a> {
    /// How to train.
    pub config: SftConfig,
    /// Expert traces. Those that failed or have no token to learn from are an error: filter them before.
    pub examples: Vec<Trace>,
    /// The run's folder.
    pub out: PathBuf,
    /// Go on with the run that is there. One that ended because its updates were not finite ends so again.
    pub resume: bool,
    /// Root of every random draw.
    pub seed: u64,
    /// The configuration as it was resolved, kept in the folder and compared when the run is resumed.
    pub resolved_config_toml: String,
    /// Told after every step.
    pub progress: &'a mut (dyn FnMut(&SftProgress) + Send),
    /// Set from outside: the step under way is finished, a checkpoint written, and the run returns.
    pub cancel: Arc<AtomicBool>,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub struct SftProgress {
    /// Steps done.
    pub step: u64,
    /// Steps in all.
    pub steps: u64,
    /// What the last step did; also a line of `metrics.jsonl`.
    pub metrics: SftMetrics,
}

/// One line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SftMetrics {
    /// The step, from 1.
    pub step: u64,
    /// The pass over the examples, from 0.
    pub epoch: u64,
    /// Examples of the update.
    pub examples: usize,
    /// The update. The loss is in nats a token.
    pub update: UpdateMetrics,
    /// Wall-clock figures.
    pub timings: StepTimings,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct SftReport {
    /// Steps done.
    pub step: u64,
    /// Steps in all; more than `step` if the run was cancelled.
    pub steps: u64,
    /// Whether someone asked to stop.
    pub cancelled: bool,
    /// Mean loss of the first update that this process made, in nats a token.
    pub first_loss: Option<f64>,
    /// Mean loss of the last one.
    pub last_loss: Option<f64>,
    /// Numbers that were trained.
    pub trained_parameters: usize,
    /// The last checkpoint; its folder is a model to load.
    pub checkpoint: Checkpoint,
}

/// Runs or resumes supervised training. Blocks the calling thread, on which all tensors live.
pub fn run(run: SftRun<'_>) -> Result<SftReport, TrainError> {
    let SftRun { config, examples, out, resume, seed, resolved_config_toml, progress, cancel } = run;
    let problems = config.validate();
    if !problems.is_empty() {
        return Err(TrainError::Config(problems));
    }
    let (sequences, labels) = read_examples(&examples)?;
    let config = &config;
    let model = ModelConfig::read(&config.model.path.join("config.json"))?;
    check_sequences(&model, &sequences, &labels)?;
    set_threads(threads(&config.model));

    let dataset_hash = dataset_hash(&examples);
    let fresh = fresh_state("sft", seed, &resolved_config_toml, dataset_hash, &config.model.path)?;
    let folder = HeldFolder::take(&out, resume, fresh, &resolved_config_toml)?;
    if let Some(state) = folder.last().map(|checkpoint| &checkpoint.state)
        && let Some(Stop::NotFinite { in_row, last }) = &state.stopped
    {
        return Err(TrainError::not_finite(state.step, *in_row, last));
    }
    let resumed = folder.last().map(|checkpoint| checkpoint.path.clone());
    let merge = config.checkpoint.merge_adapter;
    let (mut decoder, mut learner) =
        Learner::load(&config.model, &config.optimizer, merge, seed, resumed.as_deref())?;
    let mut folder = folder.begin()?;

    let order = DataOrder::with_tail(examples.len(), config.batch_size, seed);
    let steps = config.epochs * order.batches() as u64;
    let mut report = (None, None);
    let mut checkpoint_seconds = 0.0;
    while folder.state.step < steps && !cancel.load(Ordering::Relaxed) {
        let index = folder.state.step;
        let started = Instant::now();
        let chosen = order.batch(index);
        let members: Vec<usize> =
            (0..sequences.len()).filter(|&member| chosen.contains(&sequences[member].episode)).collect();
        let update = update(config, &mut learner, &mut decoder, &sequences, &members, index, steps)?;
        let seconds = started.elapsed().as_secs_f64();

        folder.state.step += 1;
        folder.state.data_position += chosen.len() as u64;
        report = (report.0.or(update.metrics.loss), update.metrics.loss.or(report.1));
        let mut metrics = SftMetrics {
            step: folder.state.step,
            epoch: order.epoch(index),
            examples: chosen.len(),
            update: update.metrics,
            timings: StepTimings {
                train_seconds: seconds,
                train_tokens_per_second: update.read_tokens as f64 / seconds,
                checkpoint_seconds,
                peak_memory_bytes: peak_memory_bytes(),
                ..StepTimings::default()
            },
        };
        let skipped = update.skipped.map(|(reason, episodes)| SkippedUpdate {
            reason,
            samples: episodes.iter().map(|&episode| labels[episode].clone()).collect(),
        });
        folder.state.skipped_in_row = if skipped.is_some() { folder.state.skipped_in_row + 1 } else { 0 };
        metrics.update.skipped.extend(skipped.clone());
        folder.metrics.append(metrics.step, &metrics)?;
        progress(&SftProgress { step: metrics.step, steps, metrics });
        let in_row = folder.state.skipped_in_row;
        // A run that ends without a single update has taught the model nothing, however short it was.
        let none_applied = folder.state.step == steps && in_row == steps;
        if let Some(last) = skipped.filter(|_| none_applied || in_row >= config.max_skipped_in_row) {
            let error = TrainError::not_finite(folder.state.step, in_row, &last);
            folder.state.stopped = Some(Stop::NotFinite { in_row, last });
            // Beside the earlier ones: those may be healthier.
            write_checkpoint(&mut folder, usize::MAX, &learner, &decoder)?;
            return Err(error);
        }
        let due = config.checkpoint.every > 0 && folder.state.step.is_multiple_of(config.checkpoint.every);
        if due {
            let started = Instant::now();
            write_checkpoint(&mut folder, config.checkpoint.keep_last, &learner, &decoder)?;
            checkpoint_seconds = started.elapsed().as_secs_f64();
        }
    }
    write_checkpoint(&mut folder, config.checkpoint.keep_last, &learner, &decoder)?;
    let Some(checkpoint) = folder.last else { unreachable!("a checkpoint was written above") };
    Ok(SftReport {
        step: folder.state.step,
        steps,
        cancelled: folder.state.step < steps,
        first_loss: report.0,
        last_loss: report.1,
        trained_parameters: learner.trained_elements(),
        checkpoint,
    })
}

fn write_checkpoint(
    folder: &mut RunFolder,
    keep_last: usize,
    learner: &Learner,
    decoder: &Decoder,
) -> Result<(), TrainError> {
    if let Some(job) = folder.checkpoint_job(keep_last)? {
        folder.last = Some(job.write(|path| learner.save(decoder, path))?);
    }
    Ok(())
}

struct SftUpdate {
    metrics: UpdateMetrics,
    read_tokens: usize,
    skipped: Option<(String, Vec<usize>)>,
}

fn update(
    config: &SftConfig,
    learner: &mut Learner,
    decoder: &mut Decoder,
    sequences: &[Sequence],
    members: &[usize],
    index: u64,
    steps: u64,
) -> Result<SftUpdate, TrainError> {
    let learning_rate = config.optimizer.learning_rate_at(index, steps);
    let options = UpdateOptions {
        learning_rate,
        aggregation: config.aggregation,
        micro_batch: config.micro_batch.clone(),
        pass: PassOptions {
            activation_checkpointing: config.model.activation_checkpointing,
            logit_rows: config.micro_batch.logit_rows,
            temperature: 1.0,
            entropy_gradient: false,
        },
    };
    let loss = |input: &LossInput| -(input.logprobs * input.weights).sum(tch::Kind::Float);
    let update = learner.update(decoder, sequences, members, &options, loss, |_, _| {})?;
    let applied = update.skipped.is_none();
    let metrics = UpdateMetrics {
        updates: u64::from(applied),
        learning_rate: Some(learning_rate),
        loss: applied.then_some(update.loss),
        gradient_norm: applied.then_some(update.gradient_norm),
        tokens: update.tokens,
        entropy: applied.then_some(update.entropy),
        kl: None,
        ratio: None,
        skipped: Vec::new(),
    };
    Ok(SftUpdate { metrics, read_tokens: update.read_tokens, skipped: update.skipped })
}

/// The sequences of all examples, and a label for each example.
fn read_examples(examples: &[Trace]) -> Result<(Vec<Sequence>, Vec<String>), TrainError> {
    if examples.is_empty() {
        return Err(TrainError::NoData("there is no example".into()));
    }
    let mut sequences = Vec::new();
    let mut labels = Vec::new();
    for (index, trace) in examples.iter().enumerate() {
        let label = label_of(trace);
        let failed = |reason| TrainError::Episode { episode: label.clone(), reason };
        let found = Sequence::of_trace(trace, index).map_err(failed)?;
        if found.is_empty() {
            return Err(failed("it has no token to learn from".into()));
        }
        sequences.extend(found);
        labels.push(label);
    }
    Ok((sequences, labels))
}

/// Task and sample of an episode, for reports.
pub(crate) fn label_of(trace: &Trace) -> String {
    format!("{}#{}", trace.episode.task, trace.episode.sample)
}

/// Checks that a model can read the sequences: lengths and token ids.
pub(crate) fn check_sequences(
    model: &ModelConfig,
    sequences: &[Sequence],
    labels: &[String],
) -> Result<(), TrainError> {
    for sequence in sequences {
        let failed = |reason| TrainError::Episode { episode: labels[sequence.episode].clone(), reason };
        if sequence.ids.len() > model.context_length {
            return Err(failed(format!(
                "its {} tokens do not fit the model's context of {}",
                sequence.ids.len(),
                model.context_length
            )));
        }
        if let Some(id) = sequence.ids.iter().find(|&&id| id as usize >= model.vocab_size) {
            return Err(failed(format!("token {id} is not among the model's {}", model.vocab_size)));
        }
    }
    Ok(())
}

fn dataset_hash(examples: &[Trace]) -> String {
    let mut hasher = blake3::Hasher::new();
    for trace in examples {
        hasher.update(trace.content_hash().as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

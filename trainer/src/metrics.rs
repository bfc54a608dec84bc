//! What is measured in a run, and the two places where it is written: `metrics.jsonl` and TensorBoard events.
//!
//! `metrics.jsonl` holds one JSON object a step. Wall-clock times and memory stand under `timings`; everything
//! else is the same in every run of the same configuration and seed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use drgym_env::{Outcome, Trace};

use crate::tensorboard::EventFile;

/// Name of the metrics file in a run's folder.
pub const METRICS_FILE: &str = "metrics.jsonl";

/// Why metrics could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {source}")]
pub struct MetricsError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: std::io::Error,
}

/// Means over the episodes of a step or of an evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpisodeMetrics {
    /// Episodes that were run.
    pub episodes: usize,
    /// Episodes without a reward because a judge, a search or the policy failed; they enter no other figure.
    pub dropped_samples: usize,
    /// How often each cause dropped an episode.
    pub dropped_by: BTreeMap<String, usize>,
    /// Mean reward; `None` when nothing was scored.
    pub reward_mean: Option<f64>,
    /// Share of right answers among the episodes with a reward; see [`right_of_all`](Self::right_of_all).
    pub accuracy: Option<f64>,
    /// Share of episodes that gave an answer.
    pub answered: Option<f64>,
    /// Mean number of turns.
    pub turns: Option<f64>,
    /// Mean number of searches.
    pub searches: Option<f64>,
    /// Mean number of outputs that were no action.
    pub invalid_actions: Option<f64>,
    /// Mean number of searches whose query was sent before in the same episode.
    pub repeated_searches: Option<f64>,
    /// Mean number of prompt tokens.
    pub prompt_tokens: Option<f64>,
    /// Mean number of tokens that the policy drew.
    pub sampled_tokens: Option<f64>,
    /// Mean number of tokens that the environment wrote.
    pub observed_tokens: Option<f64>,
    /// Mean of `−log p` over the tokens drawn, in nats: an estimate of the policy's entropy where the tokens were drawn
    /// at the temperature that their log-probabilities are for.
    #[serde(default)]
    pub surprisal: Option<f64>,
}

impl EpisodeMetrics {
    /// The figures of some traces.
    pub fn of(traces: &[Trace]) -> Self {
        let mut metrics = Self { episodes: traces.len(), ..Self::default() };
        let mut scored = Vec::with_capacity(traces.len());
        for trace in traces {
            match drop_cause(trace) {
                Some(cause) => {
                    metrics.dropped_samples += 1;
                    *metrics.dropped_by.entry(cause).or_default() += 1;
                }
                None => scored.push(trace),
            }
        }
        if scored.is_empty() {
            return metrics;
        }
        let mean = |value: &dyn Fn(&Trace) -> f64| {
            Some(scored.iter().map(|trace| value(trace)).sum::<f64>() / scored.len() as f64)
        };
        metrics.reward_mean = mean(&|trace| trace.reward.unwrap_or_default());
        metrics.accuracy = mean(&|trace| f64::from(u8::from(trace.correct == Some(true))));
        metrics.answered = mean(&|trace| f64::from(u8::from(trace.answer().is_some())));
        metrics.turns = mean(&|trace| f64::from(trace.usage.turns));
        metrics.searches = mean(&|trace| f64::from(trace.usage.searches));
        metrics.invalid_actions = mean(&|trace| f64::from(trace.usage.invalid_actions));
        metrics.repeated_searches = mean(&|trace| f64::from(trace.usage.repeated_searches));
        metrics.prompt_tokens = mean(&|trace| f64::from(trace.usage.prompt_tokens));
        metrics.sampled_tokens = mean(&|trace| f64::from(trace.usage.sampled_tokens));
        metrics.observed_tokens = mean(&|trace| f64::from(trace.usage.observed_tokens));
        let segments = scored.iter().flat_map(|trace| &trace.segments);
        let drawn = segments.flat_map(|segment| segment.logprobs.iter().zip(&segment.loss_mask));
        let (sum, count) = drawn
            .filter(|&(_, &drawn)| drawn)
            .fold((0.0, 0_u64), |(sum, count), (logprob, _)| (sum - f64::from(*logprob), count + 1));
        metrics.surprisal = (count > 0).then(|| sum / count as f64);
        metrics
    }

    /// Share of right answers among all episodes, those without a reward counted as not right; `None` when nothing was
    /// scored. Unlike [`accuracy`](Self::accuracy) it does not rise when a hard question is dropped, so evaluations are
    /// compared by it.
    pub fn right_of_all(&self) -> Option<f64> {
        let scored = self.episodes - self.dropped_samples;
        // Rounded to the number of right answers that the mean was made of: equal numbers must compare as equal.
        let right = (self.accuracy? * scored as f64).round();
        Some(right / self.episodes as f64)
    }
}

/// Why a trace takes no part in learning or in figures: the boundary that failed. `None` for a scored trace.
pub fn drop_cause(trace: &Trace) -> Option<String> {
    match (&trace.outcome, trace.reward, trace.correct) {
        (Outcome::Failed { boundary, .. }, _, _) => Some(boundary.to_string()),
        (_, Some(reward), Some(_)) if reward.is_finite() => None,
        _ => Some("judge".into()),
    }
}

/// What the updates of a step did, over the tokens learnt from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateMetrics {
    /// Updates that changed the weights.
    pub updates: u64,
    /// Learning rate of the last update of the step; `None` when there was none.
    pub learning_rate: Option<f64>,
    /// Mean of the loss over those; `None` when there was none.
    pub loss: Option<f64>,
    /// Mean global gradient norm before clipping over those.
    pub gradient_norm: Option<f64>,
    /// Tokens learnt from, each counted once a pass.
    pub tokens: usize,
    /// Mean entropy of the policy in nats a token, over those updates.
    pub entropy: Option<f64>,
    /// Mean k3 estimate of the divergence from the reference in nats a token; `None` without a reference.
    pub kl: Option<f64>,
    /// Ratios and clipping; `None` in supervised training.
    pub ratio: Option<RatioMetrics>,
    /// Updates that were left out because the loss or the gradient was not finite.
    pub skipped: Vec<SkippedUpdate>,
}

/// The ratio between the policy and the one that drew the tokens, before any clipping.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RatioMetrics {
    /// Mean.
    pub mean: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Share of tokens where the clip decides the loss.
    pub clip_fraction: f64,
    /// Share of tokens where the dual clip decides the loss.
    pub dual_clip_fraction: f64,
    /// Mean k3 estimate of KL(π_old ‖ π), in nats a token: π_old drew the tokens, so in this direction it is unbiased.
    pub kl_to_old: f64,
    /// Mean absolute difference between the sampler's and the trainer's log-probabilities in the step's first update that
    /// was applied, before it changed the weights.
    pub sampler_gap: f64,
}

/// An update that was left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SkippedUpdate {
    /// What was not finite.
    pub reason: String,
    /// Episodes or examples whose loss was not finite; all of the update's where only the gradient was not.
    pub samples: Vec<String>,
}

/// Groups of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMetrics {
    /// Tasks with at least one scored episode.
    pub groups: usize,
    /// Tasks whose episodes all got the same reward; they are left out of the loss and of its denominator.
    pub zero_spread_groups: usize,
    /// Tasks with a single scored episode.
    pub singleton_groups: usize,
}

/// Wall-clock figures; they differ from run to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTimings {
    /// Seconds of running episodes.
    pub rollout_seconds: f64,
    /// Tokens of all episodes, prompts and observations included, a second.
    pub rollout_tokens_per_second: f64,
    /// Tokens that the policy drew, a second.
    pub sampled_tokens_per_second: f64,
    /// Seconds of updates.
    pub train_seconds: f64,
    /// Tokens read by the trained model in updates, each counted once a pass, a second.
    pub train_tokens_per_second: f64,
    /// Seconds of the evaluation on development tasks.
    pub evaluation_seconds: f64,
    /// Seconds of writing the checkpoint before this step.
    pub checkpoint_seconds: f64,
    /// Largest resident memory of the process so far, in bytes.
    pub peak_memory_bytes: u64,
}

/// Largest resident memory of this process so far in bytes (`VmHWM` of /proc/self/status); 0 where unknown.
pub fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|kibibytes| kibibytes.parse::<u64>().ok())
        .map_or(0, |kibibytes| kibibytes * 1024)
}

/// The metrics of a run: `metrics.jsonl` and the events beside it.
pub struct MetricsLog {
    path: PathBuf,
    file: File,
    offset: u64,
    events: EventFile,
}

impl MetricsLog {
    /// Starts the metrics of a new run in `folder`, or goes on behind byte `offset` of an earlier one after
    /// cutting off what follows. Events of step `next_step` and later that an earlier process wrote are declared
    /// void.
    pub fn open(folder: &Path, offset: u64, next_step: u64) -> Result<Self, MetricsError> {
        let path = folder.join(METRICS_FILE);
        let failed = |source| MetricsError { path: path.clone(), source };
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length < offset {
            let reason = format!("{offset} bytes were written before the checkpoint, {length} are left");
            return Err(failed(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, reason)));
        }
        file.set_len(offset).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        let events = EventFile::create(folder, next_step)?;
        Ok(Self { path, file, offset, events })
    }

    /// Appends one line, and every number in it as a scalar named by its path (`update/ratio/mean`).
    pub fn append(&mut self, step: u64, record: &impl Serialize) -> Result<(), MetricsError> {
        let failed = |source| MetricsError { path: self.path.clone(), source };
        let value = serde_json::to_value(record).map_err(|error| failed(error.into()))?;
        let mut line = serde_json::to_vec(&value).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(failed)?;
        self.offset += line.len() as u64;
        let mut scalars = Vec::new();
        collect_scalars("", &value, &mut scalars);
        self.events.scalars(step, &scalars)
    }

    /// Shows a text in TensorBoard.
    pub fn text(&mut self, step: u64, tag: &str, text: &str) -> Result<(), MetricsError> {
        self.events.text(step, tag, text)
    }

    /// Brings everything to the disk and tells how long `metrics.jsonl` is, for a checkpoint.
    pub fn sync(&mut self) -> Result<u64, MetricsError> {
        self.file.sync_all().map_err(|source| MetricsError { path: self.path.clone(), source })?;
        self.events.sync()?;
        Ok(self.offset)
    }
}

/// Every finite number in a JSON value with the path that leads to it; numbers in lists are left out.
fn collect_scalars(prefix: &str, value: &serde_json::Value, into: &mut Vec<(String, f64)>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
                collect_scalars(&path, field, into);
            }
        }
        serde_json::Value::Number(number) => {
            if let Some(number) = number.as_f64() {
                into.push((prefix.to_owned(), number));
            }
        }
        _ => {}
    }
}

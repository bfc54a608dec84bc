//! What a step of GRPO does with its episodes on the model thread.

use tch::{Kind, Tensor};

use crate::algorithm::{kl, loss};
use crate::batch::{Sequence, pack};
use crate::config::{GrpoConfig, OldLogprobs};
use crate::error::TrainError;
use crate::forward_backward::{PassOptions, score};
use crate::learner::{Learner, LossInput, Update, UpdateOptions};
use crate::metrics::{RatioMetrics, SkippedUpdate, UpdateMetrics};
use crate::model::Decoder;

/// The policy's learner and, with a KL term, the frozen model that it must not leave.
pub(super) struct Trainer {
    pub(super) learner: Learner,
    pub(super) reference: Option<Decoder>,
}

/// The scored episodes of a step, ready to learn from.
pub(super) struct Episodes {
    /// Token sequences of all of them.
    pub(super) sequences: Vec<Sequence>,
    /// Advantage of each episode.
    pub(super) advantages: Vec<f64>,
    /// Whether the episode's group has spread.
    pub(super) informative: Vec<bool>,
    /// Position of the episode's task within the step.
    pub(super) groups: Vec<usize>,
    /// Task and sample of each episode.
    pub(super) labels: Vec<String>,
}

/// What the updates of a step came to.
pub(super) struct PolicyUpdate {
    pub(super) metrics: UpdateMetrics,
    pub(super) read_tokens: usize,
    /// Updates in a row, up to the last, that were not finite.
    pub(super) skipped_in_row: u64,
}

impl Trainer {
    /// Learns from the episodes of step `step` (from 0). Ends early after `guard.max_skipped_in_row` updates that
    /// were not finite.
    pub(super) fn learn(
        &mut self,
        decoder: &mut Decoder,
        config: &GrpoConfig,
        episodes: &Episodes,
        step: u64,
        mut skipped_in_row: u64,
    ) -> Result<PolicyUpdate, TrainError> {
        let pass = PassOptions {
            activation_checkpointing: config.model.activation_checkpointing,
            logit_rows: config.micro_batch.logit_rows,
            temperature: f64::from(config.temperature),
            entropy_gradient: config.entropy_coefficient > 0.0,
        };
        let sequences = &episodes.sequences;
        let mini_batches = mini_batches(config, episodes);
        let members: Vec<usize> = mini_batches.concat();

        // With a single update the policy that drew the tokens is the one being updated: its log-probabilities are
        // the pass's own values, and no pass of their own is needed.
        let single = config.ppo_epochs == 1 && mini_batches.len() <= 1;
        let old = match config.old_logprobs {
            OldLogprobs::Sampler => {
                Some(sequences.iter().map(|one| one.behaviour_logprobs.clone()).collect())
            }
            OldLogprobs::Recompute if single => None,
            OldLogprobs::Recompute => Some(score_all(decoder, config, sequences, &members, &pass)),
        };
        let reference =
            self.reference.as_ref().map(|reference| score_all(reference, config, sequences, &members, &pass));
        let terms = LossTerms { config, episodes, old, reference };

        let updates = config.steps * config.updates_per_step();
        let mut tally = Tally::default();
        let mut sums = Sums::default();
        'passes: for epoch in 0..config.ppo_epochs {
            for (number, members) in mini_batches.iter().enumerate() {
                let index = step * config.updates_per_step() + epoch * config.mini_batches + number as u64;
                let options = UpdateOptions {
                    learning_rate: config.optimizer.learning_rate_at(index, updates),
                    aggregation: config.aggregation,
                    micro_batch: config.micro_batch.clone(),
                    pass,
                };
                let first = epoch == 0 && number == 0;
                let mut update_tally = Tally::default();
                let mut gap = (0.0_f64, 0_usize);
                let update = self.learner.update(
                    decoder,
                    sequences,
                    members,
                    &options,
                    |input| terms.loss(input, &mut update_tally),
                    |batch, scores| {
                        let drawn = batch.gather(|member| &sequences[member].behaviour_logprobs);
                        for (ours, theirs) in scores.logprobs.iter().zip(drawn).filter(|_| first) {
                            gap.0 += f64::from((ours - theirs).abs());
                            gap.1 += 1;
                        }
                    },
                )?;
                sums.add(&update, &options, &episodes.labels);
                if update.skipped.is_some() {
                    skipped_in_row += 1;
                    if skipped_in_row >= config.guard.max_skipped_in_row {
                        break 'passes;
                    }
                } else {
                    skipped_in_row = 0;
                    (update_tally.gap, update_tally.gap_tokens) = gap;
                    tally.merge(&update_tally);
                }
            }
        }
        let mut metrics = sums.metrics();
        if tally.tokens > 0 {
            metrics.kl = terms.reference.is_some().then(|| tally.mean(tally.kl));
            metrics.ratio = Some(tally.ratio_metrics());
        }
        Ok(PolicyUpdate { metrics, read_tokens: sums.read_tokens, skipped_in_row })
    }
}

/// Everything that the loss of a token is made of besides the model.
struct LossTerms<'a> {
    config: &'a GrpoConfig,
    episodes: &'a Episodes,
    /// Log-probabilities under the policy that drew the tokens, by sequence and token.
    old: Option<Vec<Vec<f32>>>,
    /// Log-probabilities under the reference, by sequence and token.
    reference: Option<Vec<Vec<f32>>>,
}

impl LossTerms<'_> {
    /// `Σᵢ wᵢ (ℓᵢ + β kᵢ − η Hᵢ)` over the tokens of a chunk.
    fn loss(&self, input: &LossInput, tally: &mut Tally) -> Tensor {
        let sequences = &self.episodes.sequences;
        let advantages =
            input.batch.spread(sequences, |index| self.episodes.advantages[sequences[index].episode] as f32);
        let old = match &self.old {
            Some(old) => input.part(&input.batch.gather(|index| &old[index])),
            None => input.logprobs.detach(),
        };
        let clipped =
            loss::clipped_ratio(input.logprobs, &old, &input.part(&advantages), &self.config.clip());
        tally.count(&clipped, &kl::k3(&input.logprobs.detach(), &old));
        let mut token_loss = clipped.loss;
        if let Some(reference) = &self.reference {
            let reference = input.part(&input.batch.gather(|index| &reference[index]));
            let divergence = kl::k3(input.logprobs, &reference);
            tally.kl += sum(&divergence);
            token_loss += divergence * self.config.kl_coefficient;
        }
        if self.config.entropy_coefficient > 0.0 {
            token_loss -= input.entropy * self.config.entropy_coefficient;
        }
        (token_loss * input.weights).sum(Kind::Float)
    }
}

/// Sequences of each update: informative episodes, divided by the position of their task. Updates without any are
/// left out.
fn mini_batches(config: &GrpoConfig, episodes: &Episodes) -> Vec<Vec<usize>> {
    let share = (config.prompts_per_step as u64).div_ceil(config.mini_batches).max(1) as usize;
    let mut batches = vec![Vec::new(); config.mini_batches as usize];
    for (index, sequence) in episodes.sequences.iter().enumerate() {
        if episodes.informative[sequence.episode]
            && let Some(batch) = batches.get_mut(episodes.groups[sequence.episode] / share)
        {
            batch.push(index);
        }
    }
    batches.retain(|batch| !batch.is_empty());
    batches
}

/// Log-probabilities of the tokens of `members`, by sequence and token, without gradients.
fn score_all(
    decoder: &Decoder,
    config: &GrpoConfig,
    sequences: &[Sequence],
    members: &[usize],
    pass: &PassOptions,
) -> Vec<Vec<f32>> {
    let mut logprobs = vec![Vec::new(); sequences.len()];
    for batch in pack(sequences, members, &config.micro_batch.packing()) {
        let scores = score(decoder, &batch, pass);
        batch.scatter(&scores.logprobs, sequences, &mut logprobs);
    }
    logprobs
}

/// Sums over tokens.
struct Tally {
    tokens: usize,
    ratio: f64,
    smallest: f64,
    largest: f64,
    clipped: f64,
    dual_clipped: f64,
    kl_to_old: f64,
    kl: f64,
    /// Of the first pass over the tokens only.
    gap: f64,
    gap_tokens: usize,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            tokens: 0,
            ratio: 0.0,
            smallest: f64::INFINITY,
            largest: f64::NEG_INFINITY,
            clipped: 0.0,
            dual_clipped: 0.0,
            kl_to_old: 0.0,
            kl: 0.0,
            gap: 0.0,
            gap_tokens: 0,
        }
    }
}

impl Tally {
    fn count(&mut self, clipped: &loss::ClippedRatio, kl_to_old: &Tensor) {
        self.tokens += clipped.ratio.numel();
        self.ratio += sum(&clipped.ratio);
        self.smallest = self.smallest.min(clipped.ratio.min().double_value(&[]));
        self.largest = self.largest.max(clipped.ratio.max().double_value(&[]));
        self.clipped += sum(&clipped.clipped);
        self.dual_clipped += sum(&clipped.dual_clipped);
        self.kl_to_old += sum(kl_to_old);
    }

    fn merge(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.ratio += other.ratio;
        self.smallest = self.smallest.min(other.smallest);
        self.largest = self.largest.max(other.largest);
        self.clipped += other.clipped;
        self.dual_clipped += other.dual_clipped;
        self.kl_to_old += other.kl_to_old;
        self.kl += other.kl;
        self.gap += other.gap;
        self.gap_tokens += other.gap_tokens;
    }

    fn mean(&self, total: f64) -> f64 {
        total / self.tokens.max(1) as f64
    }

    fn ratio_metrics(&self) -> RatioMetrics {
        RatioMetrics {
            mean: self.mean(self.ratio),
            min: self.smallest,
            max: self.largest,
            clip_fraction: self.mean(self.clipped),
            dual_clip_fraction: self.mean(self.dual_clipped),
            kl_to_old: self.mean(self.kl_to_old),
            sampler_gap: self.gap / self.gap_tokens.max(1) as f64,
        }
    }
}

fn sum(tensor: &Tensor) -> f64 {
    tensor.detach().sum(Kind::Double).double_value(&[])
}

/// Sums over updates.
#[derive(Default)]
struct Sums {
    applied: u64,
    learning_rate: Option<f64>,
    loss: f64,
    gradient_norm: f64,
    entropy: f64,
    tokens: usize,
    read_tokens: usize,
    skipped: Vec<SkippedUpdate>,
}

impl Sums {
    fn add(&mut self, update: &Update, options: &UpdateOptions, labels: &[String]) {
        self.learning_rate = Some(options.learning_rate);
        self.read_tokens += update.read_tokens;
        if let Some((reason, episodes)) = &update.skipped {
            let mut samples: Vec<String> = episodes.iter().map(|&episode| labels[episode].clone()).collect();
            samples.dedup();
            self.skipped.push(SkippedUpdate { reason: reason.clone(), samples });
            return;
        }
        self.applied += 1;
        self.tokens += update.tokens;
        self.loss += update.loss;
        self.gradient_norm += update.gradient_norm;
        self.entropy += update.entropy;
    }

    fn metrics(&self) -> UpdateMetrics {
        let mean = |total: f64| (self.applied > 0).then(|| total / self.applied as f64);
        UpdateMetrics {
            updates: self.applied,
            learning_rate: self.learning_rate,
            loss: mean(self.loss),
            gradient_norm: mean(self.gradient_norm),
            tokens: self.tokens,
            entropy: mean(self.entropy),
            kl: None,
            ratio: None,
            skipped: self.skipped.clone(),
        }
    }
}

//! What a step of GRPO does with its episodes on the model thread.

use super::policy_loss::{PolicyLoss, TokenTally};
use crate::batch::{Sequence, pack};
use crate::config::{GrpoConfig, OldLogprobs};
use crate::error::TrainError;
use crate::forward_backward::{PassOptions, score};
use crate::learner::{Learner, Update, UpdateOptions};
use crate::metrics::{SkippedUpdate, UpdateMetrics};
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
        let terms = PolicyLoss { config, sequences, advantages: &episodes.advantages, old, reference };

        let updates = config.steps * config.updates_per_step();
        let mut tally = TokenTally::default();
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
                // Until an update is applied, the weights are those that drew the tokens.
                let unchanged = tally.tokens == 0;
                let mut update_tally = TokenTally::default();
                let mut gap = (0.0_f64, 0_usize);
                let update = self.learner.update(
                    decoder,
                    sequences,
                    members,
                    &options,
                    |input| terms.loss(input, &mut update_tally),
                    |batch, scores| {
                        let drawn = batch.gather(|member| &sequences[member].behaviour_logprobs);
                        for (ours, theirs) in scores.logprobs.iter().zip(drawn).filter(|_| unchanged) {
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
            metrics.kl = terms.reference.is_some().then(|| tally.kl());
            metrics.ratio = Some(tally.ratio_metrics());
        }
        Ok(PolicyUpdate { metrics, read_tokens: sums.read_tokens, skipped_in_row })
    }
}

/// Sequences of each update: informative episodes, divided by the position of their task. Updates without any are
/// left out.
fn mini_batches(config: &GrpoConfig, episodes: &Episodes) -> Vec<Vec<usize>> {
    let (parts, prompts) = (config.mini_batches as usize, config.prompts_per_step);
    let mut batches = vec![Vec::new(); parts];
    for (index, sequence) in episodes.sequences.iter().enumerate() {
        if episodes.informative[sequence.episode]
            && let Some(batch) = batches.get_mut(episodes.groups[sequence.episode] * parts / prompts)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of one episode a task, all of them informative.
    fn episodes(prompts: usize) -> Episodes {
        let sequence = |episode| Sequence {
            episode,
            ids: vec![1, 2],
            positions: vec![1],
            behaviour_logprobs: vec![0.0],
        };
        Episodes {
            sequences: (0..prompts).map(sequence).collect(),
            advantages: vec![1.0; prompts],
            informative: vec![true; prompts],
            groups: (0..prompts).collect(),
            labels: vec![String::new(); prompts],
        }
    }

    #[test]
    fn a_step_is_divided_among_as_many_updates_as_are_configured() {
        for (prompts, parts) in [(8, 1), (8, 2), (8, 3), (8, 5), (8, 6), (8, 7), (8, 8), (3, 2)] {
            let text = format!(
                "steps = 1\nprompts_per_step = {prompts}\nmini_batches = {parts}\n[model]\npath = \"m\"\n"
            );
            let config: GrpoConfig = toml::from_str(&text).unwrap();
            let batches = mini_batches(&config, &episodes(prompts));
            assert_eq!(batches.concat(), (0..prompts).collect::<Vec<_>>());
            let sizes: Vec<usize> = batches.iter().map(Vec::len).collect();
            assert_eq!(sizes.len(), parts, "{sizes:?}");
            assert!(sizes.iter().all(|&size| size == prompts / parts || size == prompts.div_ceil(parts)));
        }
    }
}

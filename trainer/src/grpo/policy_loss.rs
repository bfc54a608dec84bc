//! The loss of an update, and what is measured of its tokens on the way.

use tch::{Kind, Tensor};

use crate::algorithm::{kl, loss};
use crate::batch::Sequence;
use crate::config::GrpoConfig;
use crate::learner::LossInput;
use crate::metrics::RatioMetrics;

/// Everything that the loss of a token is made of besides the model.
pub struct PolicyLoss<'a> {
    /// Where the ratio is clipped, β (`kl_coefficient`) and η (`entropy_coefficient`).
    pub config: &'a GrpoConfig,
    /// The sequences of the step.
    pub sequences: &'a [Sequence],
    /// Advantage of each episode.
    pub advantages: &'a [f64],
    /// Log-probabilities under the policy that drew the tokens, by sequence and token; without them that policy is the
    /// one being updated.
    pub old: Option<Vec<Vec<f32>>>,
    /// Log-probabilities under the reference, by sequence and token; without them there is no KL term.
    pub reference: Option<Vec<Vec<f32>>>,
}

impl PolicyLoss<'_> {
    /// `Σᵢ wᵢ (ℓᵢ + β kᵢ − η Hᵢ)` over the tokens of a chunk, which are added to the tally.
    pub fn loss(&self, input: &LossInput, tally: &mut TokenTally) -> Tensor {
        let sequences = self.sequences;
        let advantages =
            input.batch.spread(sequences, |index| self.advantages[sequences[index].episode] as f32);
        let old = match &self.old {
            Some(old) => input.part(&input.batch.gather(|index| &old[index])),
            None => input.logprobs.detach(),
        };
        let clipped =
            loss::clipped_ratio(input.logprobs, &old, &input.part(&advantages), &self.config.clip());
        // π_old drew the tokens, so what they estimate without bias is KL(π_old ‖ π): ρ − 1 − log ρ.
        tally.count(&clipped, &kl::k3(&old, &input.logprobs.detach()));
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

/// Sums over tokens.
pub struct TokenTally {
    pub(super) tokens: usize,
    ratio: f64,
    smallest: f64,
    largest: f64,
    clipped: f64,
    dual_clipped: f64,
    kl_to_old: f64,
    kl: f64,
    /// Of the step's first update that was applied only.
    pub(super) gap: f64,
    pub(super) gap_tokens: usize,
}

impl Default for TokenTally {
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

impl TokenTally {
    fn count(&mut self, clipped: &loss::ClippedRatio, kl_to_old: &Tensor) {
        self.tokens += clipped.ratio.numel();
        self.ratio += sum(&clipped.ratio);
        self.smallest = self.smallest.min(clipped.ratio.min().double_value(&[]));
        self.largest = self.largest.max(clipped.ratio.max().double_value(&[]));
        self.clipped += sum(&clipped.clipped);
        self.dual_clipped += sum(&clipped.dual_clipped);
        self.kl_to_old += sum(kl_to_old);
    }

    pub(super) fn merge(&mut self, other: &Self) {
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

    /// Mean k3 estimate of the divergence from the reference, in nats a token; 0 without a reference.
    pub fn kl(&self) -> f64 {
        self.mean(self.kl)
    }

    /// Means and extremes of the ratio.
    pub fn ratio_metrics(&self) -> RatioMetrics {
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

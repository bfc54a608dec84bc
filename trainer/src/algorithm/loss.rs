//! The clipped surrogate loss.

use tch::Tensor;

/// Where the ratio is clipped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClipOptions {
    /// The ratio is clipped below at `1 − low`.
    pub low: f64,
    /// The ratio is clipped above at `1 + high`.
    pub high: f64,
    /// `c > 1`: for negative advantages the loss is at most `c · |A|` (dual clip, arXiv 1912.09729, equation 5).
    pub dual_clip: Option<f64>,
}

impl Default for ClipOptions {
    fn default() -> Self {
        Self { low: 0.2, high: 0.2, dual_clip: Some(3.0) }
    }
}

/// The surrogate loss token by token; every tensor has the shape of the inputs.
#[derive(Debug)]
pub struct ClippedRatio {
    /// The loss of each token; carries the gradient.
    pub loss: Tensor,
    /// `π / π_old` before any clipping, without gradient.
    pub ratio: Tensor,
    /// Where the clip decides the loss (bool).
    pub clipped: Tensor,
    /// Where the dual clip decides the loss (bool).
    pub dual_clipped: Tensor,
}

/// The clipped surrogate loss of PPO (arXiv 1707.06347, equation 7) with dual clip, to be minimised.
///
/// ```text
/// ρ = exp(clamp(log π − log π_old, −20, 20))
/// ℓ = max(−A ρ, −A clamp(ρ, 1 − low, 1 + high))         and for A < 0:  ℓ = min(ℓ, −A c)
/// ```
///
/// `logprobs`, `old_logprobs` and `advantages` are of the policy's own tokens only, packed, and of equal shape
/// (normally `[tokens]`); observation tokens never enter. Constants and clamps as in verl's
/// `compute_policy_loss_vanilla`.
pub fn clipped_ratio(
    logprobs: &Tensor,
    old_logprobs: &Tensor,
    advantages: &Tensor,
    options: &ClipOptions,
) -> ClippedRatio {
    let ratio = (logprobs - old_logprobs).clamp(-20.0, 20.0).exp();
    let plain = -(advantages * &ratio);
    let bounded = -(advantages * ratio.clamp(1.0 - options.low, 1.0 + options.high));
    let clipped = bounded.detach().gt_tensor(&plain.detach());
    let mut loss = plain.maximum(&bounded);
    let dual_clipped = match options.dual_clip {
        Some(bound) => {
            let ceiling = -(advantages * bound);
            let dual_clipped = loss.detach().gt_tensor(&ceiling).logical_and(&advantages.lt(0.0));
            loss = loss.minimum(&ceiling).where_self(&advantages.lt(0.0), &loss);
            dual_clipped
        }
        None => clipped.zeros_like(),
    };
    ClippedRatio { loss, ratio: ratio.detach(), clipped, dual_clipped }
}

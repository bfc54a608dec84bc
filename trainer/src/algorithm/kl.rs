//! Estimators of the divergence from a reference policy.

use tch::Tensor;

/// The k3 estimator of KL(π ‖ π_ref) for each token, of the same shape as its inputs (Schulman, "Approximating KL
/// divergence", 2020; clamps as in verl's `kl_penalty`):
///
/// ```text
/// r = clamp(log π_ref − log π, −20, 20)       k3 = clamp(exp(r) − r − 1, −10, 10)
/// ```
///
/// Both log-probabilities are of the drawn token. Unbiased where π drew it, and never negative; its gradient flows into `logprobs`.
pub fn k3(logprobs: &Tensor, reference_logprobs: &Tensor) -> Tensor {
    let r = (reference_logprobs - logprobs).clamp(-20.0, 20.0);
    (r.exp() - &r - 1.0).clamp(-10.0, 10.0)
}

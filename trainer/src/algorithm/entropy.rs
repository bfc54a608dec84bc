//! Entropy of the next-token distribution.

use tch::{Kind, Tensor};

/// Entropy in nats of `softmax(logits)` for each row: `logits` `[rows, vocabulary]` f32, answer `[rows]`.
///
/// `H = logsumexp(z) − Σ softmax(z) z`, as in verl's `entropy_from_logits`. `logsumexp` is that of the same rows,
/// which the caller has at hand anyway.
pub fn from_logits(logits: &Tensor, logsumexp: &Tensor) -> Tensor {
    let expected =
        (logits.softmax(-1, Kind::Float) * logits).sum_dim_intlist([-1_i64].as_slice(), false, Kind::Float);
    logsumexp - expected
}

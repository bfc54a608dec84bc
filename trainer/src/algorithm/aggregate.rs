//! How token losses become one number.
//!
//! Every aggregation is a weighted sum `Σᵢ wᵢ ℓᵢ` over the policy's tokens of the whole optimiser batch. The
//! weights depend only on lengths, so they are known before the first micro-batch runs and the gradient of a
//! batch does not depend on how it is cut up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How token losses become one number; names as in verl's `agg_loss`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// Mean over all policy tokens of the optimiser batch: long episodes weigh more.
    #[default]
    TokenMean,
    /// Mean over episodes of the mean over their policy tokens: every episode weighs the same.
    SeqMeanTokenMean,
}

/// The weight of each token of each sequence.
///
/// `lengths[i]` is the number of policy tokens of sequence `i`, and `episodes[i]` the number of the episode that it
/// belongs to (an episode whose history was rewritten has several sequences). The answer holds one weight for each
/// sequence, shared by its tokens, `[sequences]`; the weights of all tokens sum to 1.
pub fn token_weights(lengths: &[usize], episodes: &[usize], aggregation: Aggregation) -> Vec<f64> {
    match aggregation {
        Aggregation::TokenMean => {
            let total: usize = lengths.iter().sum();
            vec![1.0 / total.max(1) as f64; lengths.len()]
        }
        Aggregation::SeqMeanTokenMean => {
            let mut tokens_of = std::collections::BTreeMap::<usize, usize>::new();
            for (&length, &episode) in lengths.iter().zip(episodes) {
                *tokens_of.entry(episode).or_default() += length;
            }
            let learning = tokens_of.values().filter(|&&tokens| tokens > 0).count().max(1) as f64;
            episodes
                .iter()
                .map(|episode| 1.0 / (learning * tokens_of.get(episode).copied().unwrap_or(0).max(1) as f64))
                .collect()
        }
    }
}

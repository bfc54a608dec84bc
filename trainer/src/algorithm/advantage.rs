//! Group-relative advantages.
//!
//! For the rewards `R₁ … R_G` of the samples of one task (GRPO, DeepSeekMath section 4.1, equation for outcome
//! supervision; the variant with ε as in verl's `compute_grpo_outcome_advantage`):
//!
//! ```text
//! Aᵢ = (Rᵢ − mean(R)) / (std(R) + ε)        std with divisor G − 1
//! ```
//!
//! Dr. GRPO (arXiv 2503.20783, section 3.2) leaves the division out, since it weights tasks by their difficulty.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of a group with a single scored sample, which has no standard deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Singleton {
    /// Mean 0 and standard deviation 1, so that the advantage is the reward itself (verl).
    #[default]
    Raw,
    /// Advantage 0, counted as a group without spread.
    Drop,
}

/// Constants of the advantage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdvantageOptions {
    /// ε, added to the standard deviation.
    pub epsilon: f64,
    /// Divide by the standard deviation; `false` is Dr. GRPO.
    pub normalize_by_std: bool,
    /// Groups whose largest and smallest reward differ by at most this have no spread and get advantage 0.
    pub spread_tolerance: f64,
    /// What becomes of a group of one.
    pub singleton: Singleton,
}

impl Default for AdvantageOptions {
    fn default() -> Self {
        Self { epsilon: 1e-6, normalize_by_std: true, spread_tolerance: 1e-9, singleton: Singleton::Raw }
    }
}

/// Advantages of all samples, and what is known about their groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Advantages {
    /// One for each sample, in the order of the rewards, `[samples]`.
    pub values: Vec<f64>,
    /// Whether the sample's group has spread; a sample without is left out of the loss and its denominator,
    /// `[samples]`.
    pub informative: Vec<bool>,
    /// Groups with at least one sample.
    pub groups: usize,
    /// Groups whose rewards are all equal within the tolerance.
    pub zero_spread_groups: usize,
    /// Groups with exactly one sample.
    pub singleton_groups: usize,
}

/// Why rewards have no advantages.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AdvantageError {
    /// The two slices do not belong together.
    #[error("{rewards} rewards, but {groups} group numbers")]
    Lengths {
        /// Number of rewards.
        rewards: usize,
        /// Number of group numbers.
        groups: usize,
    },
    /// A sample claims a group that does not exist.
    #[error("sample {sample} belongs to group {group}, but there are only {groups} groups")]
    UnknownGroup {
        /// Position of the sample.
        sample: usize,
        /// Its group number.
        group: usize,
        /// How many groups there are.
        groups: usize,
    },
    /// More samples in a group than were drawn for it: samples of different tasks were mixed up.
    #[error("group {group} holds {found} samples, more than the {group_size} drawn for a task")]
    GroupTooLarge {
        /// The group number.
        group: usize,
        /// Samples found in it.
        found: usize,
        /// Samples drawn for each task.
        group_size: usize,
    },
    /// A reward is not a number.
    #[error("the reward of sample {sample} is {reward}, not a finite number")]
    NotFinite {
        /// Position of the sample.
        sample: usize,
        /// The reward.
        reward: f64,
    },
}

/// Group-relative advantages of `rewards` (`[samples]`), sample `i` being of group `groups[i]` in
/// `0..group_count`, each of at most `group_size` samples.
///
/// Samples that failed are simply absent: a group may hold fewer than `group_size`.
pub fn grpo(
    rewards: &[f64],
    groups: &[usize],
    group_count: usize,
    group_size: usize,
    options: &AdvantageOptions,
) -> Result<Advantages, AdvantageError> {
    if rewards.len() != groups.len() {
        return Err(AdvantageError::Lengths { rewards: rewards.len(), groups: groups.len() });
    }
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); group_count];
    for (sample, (&reward, &group)) in rewards.iter().zip(groups).enumerate() {
        if !reward.is_finite() {
            return Err(AdvantageError::NotFinite { sample, reward });
        }
        members
            .get_mut(group)
            .ok_or(AdvantageError::UnknownGroup { sample, group, groups: group_count })?
            .push(sample);
    }
    let mut advantages = Advantages {
        values: vec![0.0; rewards.len()],
        informative: vec![false; rewards.len()],
        groups: 0,
        zero_spread_groups: 0,
        singleton_groups: 0,
    };
    for (group, members) in members.iter().enumerate() {
        if members.len() > group_size {
            return Err(AdvantageError::GroupTooLarge { group, found: members.len(), group_size });
        }
        if members.is_empty() {
            continue;
        }
        advantages.groups += 1;
        let group_rewards: Vec<f64> = members.iter().map(|&sample| rewards[sample]).collect();
        if let [reward] = group_rewards[..] {
            advantages.singleton_groups += 1;
            if options.singleton == Singleton::Drop {
                advantages.zero_spread_groups += 1;
                continue;
            }
            let divisor = if options.normalize_by_std { 1.0 + options.epsilon } else { 1.0 };
            advantages.values[members[0]] = reward / divisor;
            advantages.informative[members[0]] = true;
            continue;
        }
        let largest = group_rewards.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let smallest = group_rewards.iter().copied().fold(f64::INFINITY, f64::min);
        if largest - smallest <= options.spread_tolerance {
            advantages.zero_spread_groups += 1;
            continue;
        }
        let count = group_rewards.len() as f64;
        let mean = group_rewards.iter().sum::<f64>() / count;
        let variance =
            group_rewards.iter().map(|reward| (reward - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let divisor = if options.normalize_by_std { variance.sqrt() + options.epsilon } else { 1.0 };
        for &sample in members {
            advantages.values[sample] = (rewards[sample] - mean) / divisor;
            advantages.informative[sample] = true;
        }
    }
    Ok(advantages)
}

//! Train, dev and test, disjoint by entity.

use drgym_env::seed::{derive_seed, generator};
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// For training.
    Train,
    /// For choosing between runs.
    Dev,
    /// For reporting.
    Test,
}

impl Split {
    /// Every split.
    pub const ALL: [Self; 3] = [Self::Train, Self::Dev, Self::Test];

    /// The name as it stands in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Dev => "dev",
            Self::Test => "test",
        }
    }
}

/// Something for each split.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PerSplit<T> {
    /// For training.
    pub train: T,
    /// For choosing between runs.
    pub dev: T,
    /// For reporting.
    pub test: T,
}

impl<T: Copy> PerSplit<T> {
    /// The value of one split.
    pub fn get(&self, split: Split) -> T {
        match split {
            Split::Train => self.train,
            Split::Dev => self.dev,
            Split::Test => self.test,
        }
    }
}

/// Assigns a split to every entity, given how many facts each has.
///
/// Entities with at least `rich` facts and the others are dealt separately, so that no split gets only barren
/// islands. Of each group, dev and test get their rounded share of `fractions`, train the rest. The same counts and
/// seed give the same assignment.
pub fn assign(facts: &[usize], rich: usize, fractions: &PerSplit<f64>, seed: u64) -> Vec<Split> {
    let mut assigned = vec![Split::Train; facts.len()];
    for (step, is_rich) in [(0, true), (1, false)] {
        let mut group: Vec<usize> =
            (0..facts.len()).filter(|&index| (facts[index] >= rich) == is_rich).collect();
        group.shuffle(&mut generator(derive_seed(seed, "split", step, "", 0)));
        let share = |fraction: f64| (fraction * group.len() as f64).round() as usize;
        let test = share(fractions.test).min(group.len());
        let dev = share(fractions.dev).min(group.len() - test);
        for (position, &entity) in group.iter().enumerate() {
            if position < test {
                assigned[entity] = Split::Test;
            } else if position < test + dev {
                assigned[entity] = Split::Dev;
            }
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FRACTIONS: PerSplit<f64> = PerSplit { train: 0.65, dev: 0.1, test: 0.25 };

    #[test]
    fn shares_are_kept_among_rich_and_poor() {
        let facts: Vec<usize> = (0..240).map(|index| if index < 200 { 20 } else { 1 }).collect();
        let assigned = assign(&facts, 10, &FRACTIONS, 7);
        let count =
            |split, range: std::ops::Range<usize>| assigned[range].iter().filter(|&&s| s == split).count();
        assert_eq!(count(Split::Test, 0..200), 50);
        assert_eq!(count(Split::Dev, 0..200), 20);
        assert_eq!(count(Split::Test, 200..240), 10);
        assert_eq!(count(Split::Dev, 200..240), 4);
        assert_eq!(count(Split::Train, 0..240), 156);
    }

    proptest! {
        #[test]
        fn every_entity_has_one_split_and_the_shares_hold(
            facts in proptest::collection::vec(0usize..30, 0..300), seed in any::<u64>()
        ) {
            let assigned = assign(&facts, 10, &FRACTIONS, seed);
            prop_assert_eq!(assigned.len(), facts.len());
            let test = assigned.iter().filter(|&&split| split == Split::Test).count() as f64;
            let dev = assigned.iter().filter(|&&split| split == Split::Dev).count() as f64;
            // Two groups, each rounded by at most a half.
            prop_assert!((test - 0.25 * facts.len() as f64).abs() <= 1.0);
            prop_assert!((dev - 0.1 * facts.len() as f64).abs() <= 1.0);
            prop_assert_eq!(assigned, assign(&facts, 10, &FRACTIONS, seed));
        }

        #[test]
        fn seeds_matter(seed in any::<u64>()) {
            let facts = vec![20; 200];
            prop_assert_ne!(assign(&facts, 10, &FRACTIONS, seed), assign(&facts, 10, &FRACTIONS, seed.wrapping_add(1)));
        }
    }
}

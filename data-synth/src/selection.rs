//! The order in which candidates are taken, so that no relation and no description dominates.

use std::collections::BTreeMap;

use drgym_env::seed::{derive_seed, generator};
use rand::seq::SliceRandom;

use crate::factbook::candidate::Candidate;

/// Orders `chosen` (indices into `candidates`) in turns: one of each relation, then the next of each; within a
/// relation one of each description in turn; otherwise shuffled.
///
/// The same candidates and seed give the same order.
pub fn in_turns(candidates: &[Candidate], chosen: &[usize], seed: u64, component: &str) -> Vec<usize> {
    let mut by_relation: BTreeMap<&str, BTreeMap<&str, Vec<usize>>> = BTreeMap::new();
    for &index in chosen {
        let candidate = &candidates[index];
        let by_clue = by_relation.entry(candidate.relation).or_default();
        by_clue.entry(candidate.clue.unwrap_or("")).or_default().push(index);
    }
    let shuffle = |list: &mut Vec<usize>, name: &str| {
        list.shuffle(&mut generator(derive_seed(seed, component, 0, name, 0)));
    };
    let mut queues: Vec<Vec<usize>> = Vec::new();
    for (relation, by_clue) in by_relation {
        let mut lists: Vec<Vec<usize>> = Vec::new();
        for (clue, mut list) in by_clue {
            shuffle(&mut list, &format!("{relation}/{clue}"));
            lists.push(list);
        }
        rotate(&mut lists, derive_seed(seed, component, 1, relation, 0));
        queues.push(interleave(&lists));
    }
    rotate(&mut queues, derive_seed(seed, component, 2, "", 0));
    interleave(&queues)
}

/// Begins the turns elsewhere for every seed; otherwise small quotas would always serve the same relations.
fn rotate(lists: &mut [Vec<usize>], by: u64) {
    if !lists.is_empty() {
        let middle = (by % lists.len() as u64) as usize;
        lists.rotate_left(middle);
    }
}

/// The first of every list, then the second of every list, and so on.
fn interleave(lists: &[Vec<usize>]) -> Vec<usize> {
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|turn| lists.iter().filter_map(move |list| list.get(turn).copied())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_take_turns() {
        assert_eq!(interleave(&[vec![1, 2, 3], vec![10], vec![20, 21]]), [1, 10, 20, 2, 21, 3]);
        assert!(interleave(&[]).is_empty());
    }
}

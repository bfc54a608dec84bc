//! One root seed, a named stream for each (component, step, task, sample).

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// A seed that depends on every part of its name and on nothing else.
///
/// Between crates seeds travel, never generators: the versions of `rand` behind our dependencies differ.
pub fn derive_seed(root: u64, component: &str, step: u64, task: &str, sample: u64) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&root.to_le_bytes());
    for part in [component, task] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.update(&step.to_le_bytes());
    hasher.update(&sample.to_le_bytes());
    let bytes: [u8; 8] = std::array::from_fn(|index| hasher.finalize().as_bytes()[index]);
    u64::from_le_bytes(bytes)
}

/// The generator of a seed: ChaCha8, the same on every machine.
pub fn generator(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_the_name_changes_the_seed() {
        let base = derive_seed(1, "rollout", 2, "task", 3);
        assert_eq!(base, derive_seed(1, "rollout", 2, "task", 3));
        for other in [
            derive_seed(0, "rollout", 2, "task", 3),
            derive_seed(1, "rolloutt", 2, "ask", 3),
            derive_seed(1, "rollout", 3, "task", 3),
            derive_seed(1, "rollout", 2, "tasks", 3),
            derive_seed(1, "rollout", 2, "task", 4),
        ] {
            assert_ne!(base, other);
        }
    }
}

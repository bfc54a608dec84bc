//! In which order a run goes through its data.

use rand::seq::SliceRandom;

use drgym_env::seed::{derive_seed, generator};

/// Passes over `items` things in batches of `batch`, each pass in an order of its own that depends only on the
/// seed: the batch of a step can be computed at any time, so a resumed run goes on where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOrder {
    items: usize,
    batch: usize,
    seed: u64,
    keep_tail: bool,
}

impl DataOrder {
    /// Passes whose last, smaller batch is kept (supervised training).
    pub fn with_tail(items: usize, batch: usize, seed: u64) -> Self {
        Self { items, batch: batch.max(1), seed, keep_tail: true }
    }

    /// Passes of full batches only: what is left at the end of a pass waits for the next one, so that no batch
    /// holds a thing twice (tasks of GRPO, whose episodes are told apart by task and sample). `batch` must not
    /// exceed `items`.
    pub fn full_batches(items: usize, batch: usize, seed: u64) -> Self {
        Self { items, batch: batch.max(1), seed, keep_tail: false }
    }

    /// Batches of a pass.
    pub fn batches(&self) -> usize {
        let batches = if self.keep_tail { self.items.div_ceil(self.batch) } else { self.items / self.batch };
        batches.max(1)
    }

    /// The pass that a step (from 0) belongs to.
    pub fn epoch(&self, step: u64) -> u64 {
        step / self.batches() as u64
    }

    /// The things of a step (from 0).
    pub fn batch(&self, step: u64) -> Vec<usize> {
        let epoch = self.epoch(step);
        let mut order: Vec<usize> = (0..self.items).collect();
        order.shuffle(&mut generator(derive_seed(self.seed, "data-order", epoch, "", 0)));
        let start = (step % self.batches() as u64) as usize * self.batch;
        order.into_iter().skip(start).take(self.batch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_visits_everything_once_and_passes_differ() {
        let order = DataOrder::with_tail(10, 4, 7);
        assert_eq!(order.batches(), 3);
        let pass =
            |epoch: u64| (epoch * 3..epoch * 3 + 3).flat_map(|step| order.batch(step)).collect::<Vec<_>>();
        for epoch in 0..2 {
            let mut sorted = pass(epoch);
            sorted.sort_unstable();
            assert_eq!(sorted, (0..10).collect::<Vec<_>>());
        }
        assert_ne!(pass(0), pass(1));
        assert_eq!(order.batch(2).len(), 2);
        assert_eq!(order.epoch(3), 1);
    }

    #[test]
    fn full_batches_never_repeat_a_thing() {
        let order = DataOrder::full_batches(10, 4, 7);
        assert_eq!(order.batches(), 2);
        for step in 0..20 {
            let mut batch = order.batch(step);
            assert_eq!(batch.len(), 4);
            batch.sort_unstable();
            batch.dedup();
            assert_eq!(batch.len(), 4);
        }
        assert_ne!(DataOrder::full_batches(10, 4, 8).batch(0), order.batch(0));
    }
}

//! The cache of the running batch: one row a sequence, rows side by side, so that one attention serves all of them.

use tch::{Kind, Tensor};

use super::parked::{CacheShape, Parked, rounded};
use crate::model::KeyValueCache;

/// Rows are added by so many at a time.
const ROWS: usize = 8;

/// Working copies of the running sessions' caches.
#[derive(Debug)]
pub(super) struct BatchCache {
    /// `[layers, 2, rows, capacity, kv_heads * head_dim]`; never uninitialised, since masked numbers still enter sums.
    store: Tensor,
    shape: CacheShape,
    /// Tokens held by each live row; live rows come first.
    lengths: Vec<i64>,
    step: Option<Step>,
}

/// What is the same in every layer of one decoding step.
#[derive(Debug)]
struct Step {
    /// Where each row's new token goes, in rows of `[rows * capacity, width]`.
    places: Tensor,
    /// `[rows, 1, 1, longest]`, 0 within a row's length and -∞ beyond; none where all have the same length.
    mask: Option<Tensor>,
    longest: i64,
}

impl BatchCache {
    pub(super) fn new(shape: CacheShape) -> Self {
        let store = Tensor::zeros([shape.layers, 2, 0, 0, shape.width()], (shape.kind, shape.device));
        Self { store, shape, lengths: Vec::new(), step: None }
    }

    /// Tokens that a batch of so many rows of at most so many tokens takes room for.
    pub(super) fn room(rows: usize, longest: usize) -> usize {
        rows.next_multiple_of(ROWS) * rounded(longest)
    }

    /// Tokens that there is room for now.
    pub(super) fn capacity(&self) -> usize {
        (self.rows() * self.columns()) as usize
    }

    /// Tokens that there will be room for after it is made to hold so many rows of so many tokens.
    pub(super) fn capacity_for(&self, rows: usize, longest: usize) -> usize {
        let (rows, columns) = self.layout_for(rows, longest);
        (rows * columns) as usize
    }

    fn rows(&self) -> i64 {
        self.store.size()[2]
    }

    fn columns(&self) -> i64 {
        self.store.size()[3]
    }

    /// Rows and columns with room for so many rows of so many tokens. What is large enough stays as it is, an empty
    /// batch is laid out anew, and live rows keep all columns that they have.
    fn layout_for(&self, rows: usize, longest: usize) -> (i64, i64) {
        let (rows, columns) = (rows.next_multiple_of(ROWS) as i64, rounded(longest) as i64);
        if rows <= self.rows() && columns <= self.columns() {
            (self.rows(), self.columns())
        } else if self.lengths.is_empty() {
            (rows, columns)
        } else {
            (rows.max(self.rows()), columns.max(self.columns()))
        }
    }

    /// Makes room for so many rows of so many tokens. While live rows move, the old memory is held beside the new.
    pub(super) fn reserve(&mut self, rows: usize, longest: usize) {
        let (rows, columns) = self.layout_for(rows, longest);
        if (rows, columns) == (self.rows(), self.columns()) {
            return;
        }
        let live = self.lengths.len() as i64;
        let place = (self.shape.kind, self.shape.device);
        let size = [self.shape.layers, 2, rows, columns, self.shape.width()];
        if live == 0 {
            // The old one goes first, so that both are never held at once.
            self.store = Tensor::new();
            self.store = Tensor::zeros(size, place);
        } else {
            let grown = Tensor::zeros(size, place);
            let old = self.store.narrow(2, 0, live);
            grown.narrow(2, 0, live).narrow(3, 0, self.columns()).copy_(&old);
            self.store = grown;
        }
    }

    /// Frees the memory of an empty batch.
    pub(super) fn release(&mut self) {
        if self.lengths.is_empty() {
            *self = Self::new(self.shape);
        }
    }

    /// Copies a session's cache into a new last row, for which there must be room.
    pub(super) fn push(&mut self, parked: &Parked) {
        let (row, length) = (self.lengths.len() as i64, parked.length() as i64);
        self.store.select(2, row).narrow(2, 0, length).copy_(&parked.filled());
        self.lengths.push(length);
    }

    /// Gives a row's newest tokens, from `since` on, to the session's cache; the last row takes the row's place.
    pub(super) fn remove(&mut self, row: usize, parked: Option<&mut Parked>) {
        if let Some(parked) = parked {
            let since = parked.length() as i64;
            let count = self.lengths[row] - since;
            if count > 0 {
                parked.append(&self.store.select(2, row as i64).narrow(2, since, count));
            }
        }
        let last = self.lengths.len() - 1;
        if row != last {
            let length = self.lengths[last];
            let from = self.store.select(2, last as i64).narrow(2, 0, length);
            self.store.select(2, row as i64).narrow(2, 0, length).copy_(&from);
        }
        self.lengths.swap_remove(row);
    }

    /// Prepares a step in which every live row gets one token; gives the tokens' positions, `[rows]`, and a bound
    /// above them.
    pub(super) fn begin_step(&mut self) -> (Tensor, i64) {
        let columns = self.columns();
        let device = self.shape.device;
        let lengths = Tensor::from_slice(&self.lengths);
        let places: Vec<i64> =
            self.lengths.iter().enumerate().map(|(row, length)| row as i64 * columns + length).collect();
        let longest = self.lengths.iter().max().copied().unwrap_or(0) + 1;
        let mask = self.lengths.iter().any(|&length| length + 1 != longest).then(|| {
            let beyond =
                Tensor::arange(longest, (Kind::Int64, tch::Device::Cpu)).gt_tensor(&lengths.unsqueeze(1));
            let mask = Tensor::zeros(beyond.size(), (self.shape.kind, tch::Device::Cpu));
            mask.masked_fill(&beyond, f64::NEG_INFINITY).unsqueeze(1).unsqueeze(1).to_device(device)
        });
        self.step = Some(Step { places: Tensor::from_slice(&places).to_device(device), mask, longest });
        (lengths.to_device(device), longest)
    }

    /// Counts the tokens of the step.
    pub(super) fn end_step(&mut self) {
        self.step = None;
        for length in &mut self.lengths {
            *length += 1;
        }
    }
}

impl KeyValueCache for BatchCache {
    fn attend(&mut self, layer: usize, query: &Tensor, key: &Tensor, value: &Tensor) -> Tensor {
        let Some(step) = &self.step else { unreachable!("attention outside a step") };
        let CacheShape { kv_heads, head_dim, .. } = self.shape;
        let width = self.shape.width();
        let (rows, heads) = (query.size()[0], query.size()[1]);
        let group = heads / kv_heads;
        let layer = self.store.select(0, layer as i64);
        let held = |new: &Tensor, which: i64| {
            let store = layer.select(0, which);
            let _ = store.view([-1, width]).index_copy_(0, &step.places, &new.reshape([rows, width]));
            // [rows, kv_heads, longest, head_dim]
            store
                .narrow(0, 0, rows)
                .narrow(1, 0, step.longest)
                .view([rows, step.longest, kv_heads, head_dim])
                .transpose(1, 2)
        };
        let (key, value) = (held(key, 0), held(value, 1));
        // The query heads that share a key head stand where time usually stands, so that keys need no repetition.
        let query = query.reshape([rows, kv_heads, group, head_dim]);
        let mask = step.mask.as_ref().map(|mask| mask.expand([rows, 1, group, step.longest], false));
        let mixed = Tensor::scaled_dot_product_attention(
            &query,
            &key,
            &value,
            mask.as_ref(),
            0.0,
            false,
            None,
            false,
        );
        mixed.reshape([rows, heads * head_dim])
    }
}

//! The cache of one session.

use tch::{Device, Kind, Tensor};

use crate::model::{Decoder, ModelConfig};

/// Caches grow by so many tokens at a time.
const BLOCK: i64 = 64;

/// What the caches of a model look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheShape {
    pub(super) layers: i64,
    pub(super) heads: i64,
    pub(super) kv_heads: i64,
    pub(super) head_dim: i64,
    pub(super) kind: Kind,
    pub(super) device: Device,
}

impl CacheShape {
    pub(super) fn of(decoder: &Decoder) -> Self {
        let config = decoder.config();
        Self { kind: decoder.compute(), device: decoder.device(), ..Self::planned(config) }
    }

    fn planned(config: &ModelConfig) -> Self {
        Self {
            layers: config.layers as i64,
            heads: config.heads as i64,
            kv_heads: config.kv_heads as i64,
            head_dim: config.head_dim as i64,
            kind: Kind::Float,
            device: Device::Cpu,
        }
    }

    /// Keys or values of one token in one layer.
    pub(super) fn width(&self) -> i64 {
        self.kv_heads * self.head_dim
    }

    /// Keys and values of one token in all layers.
    pub(super) fn bytes_per_token(&self) -> usize {
        (self.layers * 2 * self.width()) as usize * self.kind.elt_size_in_bytes()
    }
}

/// Room for a number of tokens, rounded up to whole blocks.
pub(super) fn rounded(tokens: usize) -> usize {
    tokens.next_multiple_of(BLOCK as usize)
}

/// Keys and values of a session's first tokens.
#[derive(Debug)]
pub(super) struct Parked {
    /// `[layers, 2, capacity, kv_heads * head_dim]`.
    store: Tensor,
    shape: CacheShape,
    /// How many tokens it holds.
    length: i64,
    /// When it was last used, in steps of the engine.
    pub(super) used: u64,
}

impl Parked {
    pub(super) fn new(shape: CacheShape, capacity: usize) -> Self {
        let mut parked = Self { store: Tensor::new(), shape, length: 0, used: 0 };
        parked.store = parked.allocate(rounded(capacity) as i64);
        parked
    }

    fn allocate(&self, capacity: i64) -> Tensor {
        let size = [self.shape.layers, 2, capacity, self.shape.width()];
        Tensor::empty(size, (self.shape.kind, self.shape.device))
    }

    pub(super) fn length(&self) -> usize {
        self.length as usize
    }

    pub(super) fn capacity(&self) -> usize {
        self.store.size()[2] as usize
    }

    /// Forgets all but the first tokens.
    pub(super) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length as i64);
    }

    /// Makes room for so many tokens in all.
    pub(super) fn reserve(&mut self, tokens: usize) {
        if tokens > self.capacity() {
            let grown = self.allocate(rounded(tokens) as i64);
            grown.narrow(2, 0, self.length).copy_(&self.filled());
            self.store = grown;
        }
    }

    /// A copy of the first tokens, with room for `capacity`.
    pub(super) fn copy_of(&self, length: usize, capacity: usize) -> Self {
        let mut copy = Self::new(self.shape, capacity.max(length));
        copy.length = self.length.min(length as i64);
        copy.store.narrow(2, 0, copy.length).copy_(&self.store.narrow(2, 0, copy.length));
        copy
    }

    /// `[layers, 2, length, width]`.
    pub(super) fn filled(&self) -> Tensor {
        self.store.narrow(2, 0, self.length)
    }

    /// Appends keys and values, `[layers, 2, tokens, width]`.
    pub(super) fn append(&mut self, new: &Tensor) {
        let count = new.size()[2];
        self.reserve((self.length + count) as usize);
        self.store.narrow(2, self.length, count).copy_(new);
        self.length += count;
    }

    /// The memory itself, `[layers, 2, capacity, width]`: what is written to the result is written here.
    pub(super) fn memory(&self) -> Tensor {
        self.store.shallow_clone()
    }

    /// Counts tokens that were written to its [`memory`](Self::memory).
    pub(super) fn advance(&mut self, count: usize) {
        self.length += count as i64;
    }
}

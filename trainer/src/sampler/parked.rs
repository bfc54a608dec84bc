//! The cache of one session, and attention of new tokens over it.

use tch::{Device, Kind, Tensor};

use crate::model::{Decoder, KeyValueCache, ModelConfig};

/// Caches grow by so many tokens at a time.
const BLOCK: i64 = 64;

/// What the caches of a model look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheShape {
    pub(super) layers: i64,
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

    /// Counts tokens that [`PackedPieces`] wrote.
    pub(super) fn advance(&mut self, count: usize) {
        self.length += count as i64;
    }
}

/// New tokens of several sessions, packed one after another, with each session's cache to write to and look at.
pub(super) struct PackedPieces {
    pieces: Vec<Piece>,
    shape: CacheShape,
}

struct Piece {
    store: Tensor,
    past: i64,
    count: i64,
    /// `[count, past + count]`, 0 where a token may look and -∞ where not; none where nothing is before.
    mask: Option<Tensor>,
}

impl PackedPieces {
    pub(super) fn new(shape: CacheShape) -> Self {
        Self { pieces: Vec::new(), shape }
    }

    /// Adds the next `count` tokens of a session, for which its cache must have room.
    pub(super) fn push(&mut self, parked: &Parked, count: usize) {
        let (past, count) = (parked.length, count as i64);
        let mask = (past > 0 && count > 1).then(|| {
            let blocked =
                Tensor::full([count, past + count], f64::NEG_INFINITY, (self.shape.kind, self.shape.device));
            blocked.triu(past + 1)
        });
        self.pieces.push(Piece { store: parked.store.shallow_clone(), past, count, mask });
    }
}

impl KeyValueCache for PackedPieces {
    fn attend(&mut self, layer: usize, query: &Tensor, key: &Tensor, value: &Tensor) -> Tensor {
        let CacheShape { kv_heads, head_dim, .. } = self.shape;
        let mut outputs = Vec::with_capacity(self.pieces.len());
        let mut start = 0;
        for piece in &self.pieces {
            let (count, length) = (piece.count, piece.past + piece.count);
            let layer = piece.store.select(0, layer as i64);
            let rows = |new: &Tensor, which: i64| {
                let store = layer.select(0, which);
                store
                    .narrow(0, piece.past, count)
                    .view([count, kv_heads, head_dim])
                    .copy_(&new.narrow(0, start, count));
                store.narrow(0, 0, length).view([length, kv_heads, head_dim])
            };
            let (key, value) = (rows(key, 0), rows(value, 1));
            let query = query.narrow(0, start, count);
            outputs.push(if count == 1 {
                look_back(&query, &key, &value)
            } else {
                look_back_causally(&query, &key, &value, piece.mask.as_ref())
            });
            start += count;
        }
        if outputs.len() == 1 { outputs.remove(0) } else { Tensor::cat(&outputs, 0) }
    }
}

/// Attention of one token over everything held: the query heads that share a key head stand where time usually
/// stands, so that keys need no repetition. `[1, heads, d]`, `[length, kv_heads, d]` → `[1, heads * d]`.
fn look_back(query: &Tensor, key: &Tensor, value: &Tensor) -> Tensor {
    let (heads, head_dim, kv_heads) = (query.size()[1], query.size()[2], key.size()[1]);
    let query = query.reshape([1, kv_heads, heads / kv_heads, head_dim]);
    let [key, value] = [key, value].map(|held| held.transpose(0, 1).unsqueeze(0));
    let mixed =
        Tensor::scaled_dot_product_attention(&query, &key, &value, None::<&Tensor>, 0.0, false, None, false);
    mixed.reshape([1, heads * head_dim])
}

/// Attention of several tokens, each over everything up to itself: `[count, heads, d]`, `[length, kv_heads, d]` →
/// `[count, heads * d]`. Without a mask the tokens are all there is.
fn look_back_causally(query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> Tensor {
    let (count, heads, head_dim) = (query.size()[0], query.size()[1], query.size()[2]);
    let (length, kv_heads) = (key.size()[0], key.size()[1]);
    let query = query.transpose(0, 1).unsqueeze(0);
    // [1, heads, length, d]: each key head serves heads / kv_heads query heads.
    let [key, value] = [key, value].map(|held| {
        held.unsqueeze(2)
            .expand([length, kv_heads, heads / kv_heads, head_dim], false)
            .reshape([length, heads, head_dim])
            .transpose(0, 1)
            .unsqueeze(0)
    });
    let causal = mask.is_none();
    let mixed = Tensor::scaled_dot_product_attention(&query, &key, &value, mask, 0.0, causal, None, false);
    mixed.squeeze_dim(0).transpose(0, 1).reshape([count, heads * head_dim])
}

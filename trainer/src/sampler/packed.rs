//! Attention of new tokens of several sessions, packed one after another, over what the sessions' caches hold.

use std::cmp::Reverse;

use tch::{Device, Tensor};

use super::parked::{CacheShape, Parked};
use crate::model::KeyValueCache;

/// New tokens of several sessions, with each session's cache to write to and look at.
///
/// Sessions without a past look at nothing but themselves: those of like length share one attention, and their keys
/// and values of all layers go to their caches at the end, in [`PackedPieces::keep`].
pub(super) struct PackedPieces {
    pieces: Vec<Piece>,
    shape: CacheShape,
    /// How the pieces without a past are computed; known from the first layer on.
    fresh: Option<Fresh>,
}

impl PackedPieces {
    pub(super) fn new(shape: CacheShape) -> Self {
        Self { pieces: Vec::new(), shape, fresh: None }
    }

    /// Adds the next `count` tokens of a session, for which its cache must have room.
    pub(super) fn push(&mut self, parked: &Parked, count: usize) {
        let (past, count) = (parked.length() as i64, count as i64);
        let start = self.pieces.last().map_or(0, |last| last.start + last.count);
        self.pieces.push(Piece::new(parked.memory(), self.shape, start, past, count));
    }

    /// Writes what the layers have not written yet to the sessions' caches; once, after the last layer.
    pub(super) fn keep(&mut self) {
        let Some(fresh) = self.fresh.take() else { return };
        for piece in self.pieces.iter().filter(|piece| piece.past == 0) {
            let new = fresh.written.narrow(2, piece.start, piece.count);
            piece.memory.narrow(2, 0, piece.count).copy_(&new);
        }
    }
}

impl KeyValueCache for PackedPieces {
    fn attend(&mut self, layer: usize, query: &Tensor, key: &Tensor, value: &Tensor) -> Tensor {
        let (tokens, width) = (query.size()[0], query.size()[1] * query.size()[2]);
        let (pieces, shape) = (&self.pieces, self.shape);
        let fresh = self.fresh.get_or_insert_with(|| Fresh::new(pieces, shape, tokens));
        fresh.write(layer, key, value);
        if let ([group], true) = (fresh.groups.as_slice(), fresh.alone)
            && group.order.is_none()
        {
            return group.attend(query, key, value);
        }
        let output = Tensor::empty([tokens, width], (query.kind(), query.device()));
        for group in &fresh.groups {
            let mixed = group.attend(query, key, value);
            match &group.order {
                None => output.narrow(0, group.start, mixed.size()[0]).copy_(&mixed),
                Some(order) => {
                    let _ = output.shallow_clone().index_copy_(
                        0,
                        &order.rows,
                        &mixed.index_select(0, &order.places),
                    );
                }
            }
        }
        for piece in self.pieces.iter().filter(|piece| piece.past > 0) {
            let [query, key, value] =
                [query, key, value].map(|packed| packed.narrow(0, piece.start, piece.count));
            let mixed = piece.look_back(shape, layer, &query, &key, &value);
            output.narrow(0, piece.start, piece.count).copy_(&mixed);
        }
        output
    }
}

/// New tokens of one session.
struct Piece {
    /// The session's cache, `[layers, 2, capacity, kv_heads * head_dim]`.
    memory: Tensor,
    /// First of its packed rows.
    start: i64,
    past: i64,
    count: i64,
    /// For several tokens after a past: `[group * count, past + count]`, 0 where a token may look and -∞ where not.
    mask: Option<Tensor>,
}

impl Piece {
    fn new(memory: Tensor, shape: CacheShape, start: i64, past: i64, count: i64) -> Self {
        let mask = (past > 0 && count > 1).then(|| {
            let blocked = Tensor::full([count, past + count], f64::NEG_INFINITY, (shape.kind, shape.device));
            blocked.triu(past + 1).repeat([shape.heads / shape.kv_heads, 1])
        });
        Self { memory, start, past, count, mask }
    }

    /// Attention of new tokens over the past and over one another, `[count, heads, d]` → `[count, heads * d]`; their keys
    /// and values go to the cache.
    ///
    /// The query heads that share a key head stand where time usually stands, so that keys need no repetition.
    fn look_back(
        &self,
        shape: CacheShape,
        layer: usize,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
    ) -> Tensor {
        let CacheShape { heads, kv_heads, head_dim, .. } = shape;
        let (count, length, group) = (self.count, self.past + self.count, heads / kv_heads);
        let memory = self.memory.select(0, layer as i64);
        let held = |new: &Tensor, which: i64| {
            let held = memory.select(0, which).narrow(0, 0, length).view([length, kv_heads, head_dim]);
            held.narrow(0, self.past, count).copy_(new);
            held.transpose(0, 1).unsqueeze(0)
        };
        let (key, value) = (held(key, 0), held(value, 1));
        let query = query.reshape([count, kv_heads, group, head_dim]).permute([1, 2, 0, 3]);
        let query = query.reshape([1, kv_heads, group * count, head_dim]);
        let mask = self.mask.as_ref();
        let mixed = Tensor::scaled_dot_product_attention(&query, &key, &value, mask, 0.0, false, None, false);
        let mixed = mixed.reshape([kv_heads, group, count, head_dim]).permute([2, 0, 1, 3]);
        mixed.reshape([count, heads * head_dim])
    }
}

/// The pieces without a past.
struct Fresh {
    groups: Vec<Group>,
    /// There are no other pieces.
    alone: bool,
    /// Keys and values of every packed token, `[layers, 2, tokens, kv_heads * head_dim]`; nothing if there are no groups.
    written: Tensor,
}

impl Fresh {
    fn new(pieces: &[Piece], shape: CacheShape, tokens: i64) -> Self {
        let mut fresh: Vec<&Piece> = pieces.iter().filter(|piece| piece.past == 0).collect();
        let alone = fresh.len() == pieces.len();
        let tokens = if fresh.is_empty() { 0 } else { tokens };
        // Longest first; the sort is stable, so pieces of one length stay in their order.
        fresh.sort_by_key(|piece| Reverse(piece.count));
        let mut groups = Vec::new();
        let mut rest = fresh.as_slice();
        while let [first, ..] = rest {
            // At most a quarter of each piece's places are padding.
            let size = rest.iter().take_while(|piece| piece.count * 4 >= first.count * 3).count();
            let (group, others) = rest.split_at(size);
            groups.push(Group::new(group, shape));
            rest = others;
        }
        let size = [shape.layers, 2, tokens, shape.width()];
        Self { groups, alone, written: Tensor::empty(size, (shape.kind, shape.device)) }
    }

    fn write(&self, layer: usize, key: &Tensor, value: &Tensor) {
        if self.groups.is_empty() {
            return;
        }
        let written = self.written.select(0, layer as i64);
        for (which, new) in [(0, key), (1, value)] {
            written.select(0, which).view_as(new).copy_(new);
        }
    }
}

/// Pieces without a past that share one attention, each padded at its end to the longest. Causal attention never looks
/// right, so the padding needs no mask; what it gives is left out.
struct Group {
    /// First packed row.
    start: i64,
    pieces: i64,
    longest: i64,
    /// None where the pieces lie one after another and have the same length.
    order: Option<Order>,
    /// Query heads to a key head.
    spread: i64,
}

struct Order {
    /// The packed row at each padded place, `[pieces * longest]`.
    padded: Tensor,
    /// The places that hold tokens, and the packed row of each, `[tokens of the group]`.
    places: Tensor,
    rows: Tensor,
}

impl Group {
    /// `pieces` begin with the longest.
    fn new(pieces: &[&Piece], shape: CacheShape) -> Self {
        let (start, longest) = pieces.first().map_or((0, 0), |first| (first.start, first.count));
        let regular = (0..).zip(pieces).all(|(index, piece)| piece.start == start + index * longest);
        let order = (!regular || pieces.iter().any(|piece| piece.count != longest))
            .then(|| Order::new(pieces, longest, shape.device));
        Self { start, pieces: pieces.len() as i64, longest, order, spread: shape.heads / shape.kv_heads }
    }

    /// `[tokens, heads, d]` of all packed rows → `[pieces * longest, heads * d]` of this group.
    fn attend(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Tensor {
        let [query, key, value] = [query, key, value].map(|packed| {
            let (heads, head_dim) = (packed.size()[1], packed.size()[2]);
            let rows = match &self.order {
                None => packed.narrow(0, self.start, self.pieces * self.longest),
                Some(order) => packed.index_select(0, &order.padded),
            };
            rows.reshape([self.pieces, self.longest, heads, head_dim]).transpose(1, 2)
        });
        let [key, value] = [key, value].map(|held| repeat_heads(&held, self.spread));
        let mask = None::<&Tensor>;
        let mixed = Tensor::scaled_dot_product_attention(&query, &key, &value, mask, 0.0, true, None, false);
        let (heads, head_dim) = (mixed.size()[1], mixed.size()[3]);
        mixed.transpose(1, 2).reshape([self.pieces * self.longest, heads * head_dim])
    }
}

impl Order {
    fn new(pieces: &[&Piece], longest: i64, device: Device) -> Self {
        let (mut padded, mut places, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            for place in 0..longest {
                let row = piece.start + place.min(piece.count - 1);
                if place < piece.count {
                    places.push(padded.len() as i64);
                    rows.push(row);
                }
                padded.push(row);
            }
        }
        let [padded, places, rows] =
            [padded, places, rows].map(|index| Tensor::from_slice(&index).to_device(device));
        Self { padded, places, rows }
    }
}

/// `[b, kv_heads, t, d]` → `[b, kv_heads * times, t, d]`, each head `times` times in a row: causal attention of the
/// fused kernel wants as many key as query heads.
fn repeat_heads(held: &Tensor, times: i64) -> Tensor {
    if times == 1 {
        return held.shallow_clone();
    }
    let size = held.size();
    held.unsqueeze(2).expand([size[0], size[1], times, size[2], size[3]], false).reshape([
        size[0],
        size[1] * times,
        size[2],
        size[3],
    ])
}

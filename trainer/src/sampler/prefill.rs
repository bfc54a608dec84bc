//! Running the tokens of sessions that their caches do not cover yet.

use std::collections::HashMap;

use drgym_env::SessionId;
use tch::Tensor;

use super::packed::PackedPieces;
use super::parked::{CacheShape, Parked};
use crate::model::Decoder;

/// At most so many tokens go through the model at once; this bounds the memory of a prefill. On two CPU cores 1024 is as
/// fast as more.
const CHUNK: usize = 1024;

/// A common beginning is computed once only if it has so many tokens; copying less is not worth the bookkeeping.
const SHARED: usize = 32;

/// A session that is about to be drawn from.
pub(super) struct Pending {
    pub(super) session: SessionId,
    /// Everything in the session so far, never empty.
    pub(super) tokens: Vec<u32>,
}

/// Completes the caches of these sessions and gives the scores of their next tokens, `[sessions, vocabulary]`.
///
/// Sessions without a cache that hold the same tokens are computed once and copied, and so is the beginning that
/// all sessions without a cache have in common. What is shared depends on the sessions given only, so the same
/// sessions give the same numbers.
pub(super) fn prefill(
    decoder: &mut Decoder,
    shape: CacheShape,
    parked: &mut HashMap<SessionId, Parked>,
    pending: &[Pending],
) -> Tensor {
    let _guard = tch::no_grad_guard();
    // Which entry computes the cache of each; itself, unless an earlier one holds the same tokens.
    let mut leaders: Vec<usize> = (0..pending.len()).collect();
    let mut fresh: Vec<usize> = Vec::new();
    let mut first_with: HashMap<&[u32], usize> = HashMap::new();
    for (index, entry) in pending.iter().enumerate() {
        let cache = parked.entry(entry.session).or_insert_with(|| Parked::new(shape, entry.tokens.len()));
        // The last token is always run, since its output is what is asked for.
        cache.truncate(entry.tokens.len() - 1);
        cache.reserve(entry.tokens.len());
        if cache.length() == 0 {
            let leader = *first_with.entry(&entry.tokens).or_insert(index);
            leaders[index] = leader;
            if leader == index {
                fresh.push(index);
            }
        }
    }
    let shared = shared_length(pending, &fresh);
    if shared >= SHARED {
        let first = &pending[fresh[0]];
        let _ = run(decoder, shape, parked, &[(first.session, &first.tokens[..shared])]);
        for &other in &fresh[1..] {
            copy(parked, first.session, &pending[other], shared);
        }
    }
    let work: Vec<(SessionId, &[u32])> = leaders
        .iter()
        .enumerate()
        .filter(|(index, leader)| index == *leader)
        .map(|(index, _)| {
            let entry = &pending[index];
            let held = parked.get(&entry.session).map_or(0, Parked::length);
            (entry.session, &entry.tokens[held..])
        })
        .collect();
    let hidden = run(decoder, shape, parked, &work);
    let scores = decoder.logits_cached(&hidden);
    // Row of the scores for each leader.
    let mut rows = HashMap::new();
    for (index, leader) in leaders.iter().enumerate() {
        if index == *leader {
            rows.insert(index, rows.len() as i64);
        } else {
            copy(parked, pending[*leader].session, &pending[index], pending[index].tokens.len());
        }
    }
    if rows.len() == pending.len() {
        return scores;
    }
    let order: Vec<i64> = leaders.iter().map(|leader| rows[leader]).collect();
    scores.index_select(0, &Tensor::from_slice(&order).to_device(scores.device()))
}

/// How many first tokens all of these have in common, leaving each at least one of its own; 0 for fewer than two.
fn shared_length(pending: &[Pending], fresh: &[usize]) -> usize {
    let [first, rest @ ..] = fresh else { return 0 };
    if rest.is_empty() {
        return 0;
    }
    let first = &pending[*first].tokens;
    rest.iter().fold(first.len() - 1, |shared, &other| {
        let other = &pending[other].tokens;
        let common = first.iter().zip(other).take_while(|(left, right)| left == right).count();
        shared.min(common).min(other.len() - 1)
    })
}

/// Makes a session's cache a copy of another's first tokens.
fn copy(parked: &mut HashMap<SessionId, Parked>, from: SessionId, to: &Pending, length: usize) {
    if let Some(source) = parked.get(&from) {
        let copy = source.copy_of(length, to.tokens.len());
        parked.insert(to.session, copy);
    }
}

/// Runs tokens after what each session's cache holds; gives the last token's output of each, `[sessions, hidden]`.
fn run(
    decoder: &mut Decoder,
    shape: CacheShape,
    parked: &mut HashMap<SessionId, Parked>,
    work: &[(SessionId, &[u32])],
) -> Tensor {
    let mut outputs = Vec::with_capacity(work.len());
    let mut next = 0;
    let mut done = 0;
    while next < work.len() {
        // One chunk: whole sessions while they fit, and a part of one that does not fit in any chunk.
        let mut pieces = PackedPieces::new(shape);
        let (mut ids, mut positions) = (Vec::new(), Vec::new());
        let mut taken: Vec<(SessionId, usize)> = Vec::new();
        let mut ends = Vec::new();
        let mut bound = 0;
        while next < work.len() && ids.len() < CHUNK {
            let (session, tokens) = work[next];
            let Some(cache) = parked.get(&session) else { unreachable!("prefill made every cache") };
            let count = (tokens.len() - done).min(CHUNK - ids.len());
            if count < tokens.len() - done && !ids.is_empty() && tokens.len() - done <= CHUNK {
                break;
            }
            pieces.push(cache, count);
            let past = cache.length();
            ids.extend(tokens[done..done + count].iter().map(|&id| i64::from(id)));
            positions.extend((past..past + count).map(|position| position as i64));
            bound = bound.max((past + count) as i64);
            taken.push((session, count));
            done += count;
            if done < tokens.len() {
                break;
            }
            ends.push(ids.len() as i64 - 1);
            next += 1;
            done = 0;
        }
        let device = decoder.device();
        let ids = Tensor::from_slice(&ids).to_device(device);
        let positions = Tensor::from_slice(&positions).to_device(device);
        let hidden = decoder.forward_cached(&ids, &positions, bound, &mut pieces);
        pieces.keep();
        outputs.push(hidden.index_select(0, &Tensor::from_slice(&ends).to_device(device)));
        for (session, count) in taken {
            if let Some(cache) = parked.get_mut(&session) {
                cache.advance(count);
            }
        }
    }
    Tensor::cat(&outputs, 0)
}

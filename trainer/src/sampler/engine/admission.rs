//! Who may start, and the memory that is set aside for them.

use drgym_env::{PolicyError, SessionId};

use super::{Engine, Request, Waiting};
use crate::model::Decoder;
use crate::sampler::batch_cache::BatchCache;
use crate::sampler::parked::rounded;

/// A draw that is about to start.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) request: Request,
    /// Everything in the session so far.
    pub(super) tokens: Vec<u32>,
    /// Most tokens that the session can hold when the draw has ended.
    pub(super) reserved: usize,
}

/// Memory that rows decoded together can come to need, in tokens.
///
/// Every row's session has a cache of its own, and the batch holds a copy of each, all as long as the longest. It is
/// set aside whole when the rows are admitted, so that each of them can be drawn to its end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    pub(super) rows: usize,
    pub(super) longest: usize,
    /// The sessions' own caches together.
    caches: usize,
}

impl Demand {
    fn add(&mut self, reserved: usize) {
        self.rows += 1;
        self.longest = self.longest.max(reserved);
        self.caches += rounded(reserved);
    }

    /// With a batch laid out for these rows.
    fn alone(&self) -> usize {
        self.caches + BatchCache::room(self.rows, self.longest)
    }

    /// With the batch that there is, which grows if it must.
    fn with(&self, batch: &BatchCache) -> usize {
        self.caches + batch.capacity_for(self.rows, self.longest)
    }
}

impl Engine {
    /// Takes from the queue whoever may start now, completes their caches and draws their first tokens.
    pub(super) fn admit(&mut self, decoder: &mut Decoder) {
        let mut joining: Vec<Joining> = Vec::new();
        loop {
            match self.waiting.pop_front() {
                Some(Waiting::Round(requests)) if self.running.is_empty() && joining.is_empty() => {
                    joining = self.first_part(requests);
                    if !joining.is_empty() {
                        self.in_round = true;
                        break;
                    }
                }
                Some(Waiting::Single(request)) if self.is_open(joining.len()) => {
                    if !self.join(request, &mut joining) {
                        break;
                    }
                }
                Some(waiting) => {
                    self.waiting.push_front(waiting);
                    break;
                }
                None => break,
            }
        }
        if !joining.is_empty() {
            self.start(decoder, joining);
        }
    }

    /// What the running rows and those that join can come to need.
    pub(super) fn demand(&self, joining: &[Joining]) -> Demand {
        let mut demand = Demand::default();
        for running in &self.running {
            demand.add(running.reserved);
        }
        for joining in joining {
            demand.add(joining.reserved);
        }
        demand
    }

    /// Whether one more idle cache of so many tokens fits beside everything else.
    pub(super) fn fits_idle(&mut self, tokens: usize) -> bool {
        let limit = self.limit();
        let held: usize = self.idle(&[]).iter().map(|(_, _, capacity)| capacity).sum();
        let needed = self.demand(&[]).caches + held + rounded(tokens);
        let Some((_, batch)) = &mut self.caches else { return false };
        // An empty batch is left over from earlier draws, which must not decide this.
        if needed + batch.capacity() > limit {
            batch.release();
        }
        needed + batch.capacity() <= limit
    }

    /// As much of a round as fits the memory, in its order; the rest makes up the next round.
    fn first_part(&mut self, requests: Vec<Request>) -> Vec<Joining> {
        let mut joining: Vec<Joining> =
            requests.into_iter().filter_map(|request| self.look_up(request)).collect();
        let fitting = self.fitting(&joining);
        let mut rest = joining.split_off(fitting).into_iter().map(|joining| joining.request);
        if fitting == 0
            && let Some(request) = rest.next()
        {
            self.refuse(request, self.no_room());
        }
        let rest: Vec<Request> = rest.collect();
        if !rest.is_empty() {
            self.waiting.push_front(Waiting::Round(rest));
        }
        self.make_room(&joining);
        joining
    }

    /// Whether a draw may join when so many do already.
    fn is_open(&self, joining: usize) -> bool {
        (!self.in_round || self.running.is_empty()) && self.running.len() + joining < self.options.max_batch
    }

    /// Adds a draw to those that join, or answers it at once; `false` if it has to wait for room.
    fn join(&mut self, request: Request, joining: &mut Vec<Joining>) -> bool {
        let Some(next) = self.look_up(request) else { return true };
        joining.push(next);
        if self.make_room(joining) {
            self.in_round = false;
            return true;
        }
        let Some(Joining { request, .. }) = joining.pop() else { return true };
        if joining.is_empty() && self.running.is_empty() {
            self.refuse(request, self.no_room());
            return true;
        }
        self.waiting.push_front(Waiting::Single(request));
        false
    }

    /// A request with its session's tokens; one that can no longer be met is answered.
    fn look_up(&self, request: Request) -> Option<Joining> {
        if request.answer.is_closed() {
            self.refuse(request, PolicyError::Failed("the caller has gone".into()));
            return None;
        }
        let tokens = self.sessions().get(request.session).map(|session| session.tokens.clone());
        match tokens {
            Ok(tokens) => {
                let most = tokens.len().saturating_add(request.params.max_tokens);
                Some(Joining { request, tokens, reserved: most.min(self.options.context_length) })
            }
            Err(error) => {
                self.refuse(request, error);
                None
            }
        }
    }

    fn no_room(&self) -> PolicyError {
        PolicyError::Failed(format!(
            "the caches would exceed {} bytes: raise cache_gib, or allow less context or shorter responses",
            self.options.cache_bytes
        ))
    }

    /// Tokens that all caches together may hold.
    fn limit(&self) -> usize {
        self.caches.as_ref().map_or(0, |(shape, _)| self.options.cache_bytes / shape.bytes_per_token())
    }

    /// How many of these, from the first on, fit the memory together when nothing else is running.
    fn fitting(&self, joining: &[Joining]) -> usize {
        let limit = self.limit();
        let mut demand = Demand::default();
        joining
            .iter()
            .take_while(|joining| {
                demand.add(joining.reserved);
                demand.alone() <= limit
            })
            .count()
    }

    /// Makes room for the running rows and those that join, and tells whether there is enough. Idle sessions' caches
    /// make way, the longest unused first.
    fn make_room(&mut self, joining: &[Joining]) -> bool {
        let limit = self.limit();
        let demand = self.demand(joining);
        let idle = self.idle(joining);
        let mut held: usize = idle.iter().map(|(_, _, capacity)| capacity).sum();
        let Some((_, batch)) = &mut self.caches else { return false };
        // An empty batch keeps its memory for the next one, unless that is what is wanting: no cache makes way that
        // would not have to if there had been no earlier batch.
        if demand.with(batch) + held > limit {
            batch.release();
        }
        let needed = demand.with(batch);
        if needed > limit {
            return false;
        }
        for (_, session, capacity) in idle {
            if needed + held <= limit {
                break;
            }
            self.parked.remove(&session);
            held -= capacity;
        }
        true
    }

    /// Sessions with a cache that neither run nor join, the longest unused first: last use, session, capacity.
    fn idle(&self, joining: &[Joining]) -> Vec<(u64, SessionId, usize)> {
        let is_active = |session: SessionId| {
            self.running.iter().any(|running| running.request.session == session)
                || joining.iter().any(|joining| joining.request.session == session)
        };
        let mut idle: Vec<(u64, SessionId, usize)> = self
            .parked
            .iter()
            .filter(|(session, _)| !is_active(**session))
            .map(|(session, parked)| (parked.used, *session, parked.capacity()))
            .collect();
        idle.sort_unstable();
        idle
    }
}

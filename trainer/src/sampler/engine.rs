//! The engine: queue, running batch, one token a row and step. It lives on the model thread.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drgym_env::{PolicyError, Sampled, SamplingParams, SessionId, StopReason};
use rand_chacha::ChaCha8Rng;
use tch::Tensor;
use tokio::sync::oneshot;

use super::batch_cache::BatchCache;
use super::draw::{Drawer, draw};
use super::parked::{CacheShape, Parked, rounded};
use super::prefill::{Pending, prefill};
use super::sessions::Sessions;
use super::stop::StopWatch;
use super::token_bytes::TokenBytes;
use crate::model::{Background, Decoder};

/// A row gets room for so many tokens more than it holds.
const HEADROOM: usize = 128;

/// A beginning shared with an idle session is copied only if it has so many tokens.
const SHARED: usize = 32;

/// One draw that was asked for.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) session: SessionId,
    pub(super) params: SamplingParams,
    pub(super) answer: oneshot::Sender<Result<Sampled, PolicyError>>,
}

/// What waits in the queue.
#[derive(Debug)]
pub(super) enum Waiting {
    /// May join a running batch.
    Single(Request),
    /// Makes up a batch of its own, in this order.
    Round(Vec<Request>),
}

/// What an engine must know.
#[derive(Debug)]
pub(super) struct EngineOptions {
    pub(super) token_bytes: Arc<TokenBytes>,
    pub(super) end_of_turn_ids: Vec<u32>,
    pub(super) context_length: usize,
    pub(super) cache_bytes: usize,
    pub(super) max_batch: usize,
}

/// A draw under way; its place in the list is its row in the batch.
#[derive(Debug)]
struct Running {
    request: Request,
    /// Tokens of the session before the draw.
    before: usize,
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    generator: ChaCha8Rng,
    watch: StopWatch,
    /// The weights changed under it, so its cache must not outlive it.
    stale: bool,
}

impl Running {
    fn drawer(&mut self) -> Drawer<'_> {
        Drawer { temperature: self.request.params.temperature, generator: &mut self.generator }
    }

    /// Tokens of the session with those drawn.
    fn length(&self) -> usize {
        self.before + self.ids.len()
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Engine {
    options: EngineOptions,
    sessions: Arc<Mutex<Sessions>>,
    waiting: VecDeque<Waiting>,
    running: Vec<Running>,
    /// The running batch is a round: nobody may join.
    in_round: bool,
    parked: HashMap<SessionId, Parked>,
    /// Known from the first step on.
    caches: Option<(CacheShape, BatchCache)>,
    clock: u64,
}

/// The engine as it is shared between the model thread, which uses it, and jobs on their way there.
#[derive(Clone, Debug)]
pub(super) struct SharedEngine(Arc<Mutex<Engine>>);

impl SharedEngine {
    pub(super) fn new(options: EngineOptions, sessions: Arc<Mutex<Sessions>>) -> Self {
        Self(Arc::new(Mutex::new(Engine {
            options,
            sessions,
            waiting: VecDeque::new(),
            running: Vec::new(),
            in_round: false,
            parked: HashMap::new(),
            caches: None,
            clock: 0,
        })))
    }

    /// The engine. Only the model thread calls this, so nobody ever waits; after a panic `fail` makes it whole.
    pub(super) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Background for SharedEngine {
    fn has_work(&self) -> bool {
        let engine = self.lock();
        !engine.waiting.is_empty() || !engine.running.is_empty()
    }

    fn step(&mut self, decoder: &mut Decoder) {
        self.lock().step(decoder);
    }

    fn fail(&mut self, reason: &str) {
        self.lock().fail(reason);
    }
}

impl Engine {
    /// Queues draws.
    pub(super) fn enqueue(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// Copies a session's cache for a fork of it, unless there is no room: then the fork computes its own.
    pub(super) fn fork(&mut self, source: SessionId, child: SessionId) {
        let Some(parked) = self.parked.get(&source) else { return };
        let Some((shape, batch)) = &self.caches else { return };
        let used: usize = self.parked.values().map(Parked::capacity).sum::<usize>() + batch.capacity();
        if (used + rounded(parked.length())) * shape.bytes_per_token() <= self.options.cache_bytes {
            let mut copy = parked.copy_of(parked.length(), parked.length());
            copy.used = self.clock;
            self.parked.insert(child, copy);
        }
    }

    /// Drops a closed session's cache.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.parked.remove(&session);
    }

    /// The weights have changed: no cache is valid any more. Draws under way end on the cache they began with.
    pub(super) fn invalidate(&mut self) {
        for running in &mut self.running {
            running.stale = true;
        }
        let running = &self.running;
        self.parked.retain(|session, _| running.iter().any(|draw| draw.request.session == *session));
    }

    /// Frees the batch's memory if nobody is being drawn for.
    pub(super) fn release_memory(&mut self) {
        if let Some((_, batch)) = &mut self.caches {
            batch.release();
        }
    }

    /// Admits who waits, then draws one token for every running row.
    fn step(&mut self, decoder: &mut Decoder) {
        self.clock += 1;
        if self.caches.is_none() {
            let shape = CacheShape::of(decoder);
            self.caches = Some((shape, BatchCache::new(shape)));
        }
        self.drop_departed();
        self.admit(decoder);
        self.make_room();
        if !self.running.is_empty() {
            self.decode(decoder);
        }
        if self.running.is_empty() {
            self.in_round = false;
        }
    }

    /// Answers everybody with an error and drops every cache, since what a broken step left cannot be trusted.
    fn fail(&mut self, reason: &str) {
        let waiting = std::mem::take(&mut self.waiting).into_iter().flat_map(|waiting| match waiting {
            Waiting::Single(request) => vec![request],
            Waiting::Round(requests) => requests,
        });
        let running = std::mem::take(&mut self.running).into_iter().map(|running| running.request);
        for request in running.chain(waiting).collect::<Vec<_>>() {
            self.refuse(request, PolicyError::Failed(reason.to_owned()));
        }
        self.parked.clear();
        self.caches = None;
        self.in_round = false;
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, request: Request, error: PolicyError) {
        if let Ok(session) = self.sessions().get(request.session) {
            session.busy = false;
        }
        // Who has gone needs no answer.
        let _ = request.answer.send(Err(error));
    }

    /// Rows whose caller has gone leave the batch; their sessions stay as they were.
    fn drop_departed(&mut self) {
        for row in (0..self.running.len()).rev() {
            if self.running[row].request.answer.is_closed() {
                if let Some((_, batch)) = &mut self.caches {
                    batch.remove(row, None);
                }
                let running = self.running.swap_remove(row);
                self.abandon(&running);
            }
        }
    }

    fn abandon(&mut self, running: &Running) {
        if running.stale {
            self.parked.remove(&running.request.session);
        }
        if let Ok(session) = self.sessions().get(running.request.session) {
            session.busy = false;
        }
    }

    /// Takes from the queue whoever may start now, completes their caches and draws their first tokens.
    fn admit(&mut self, decoder: &mut Decoder) {
        let mut joining: Vec<(Request, Vec<u32>)> = Vec::new();
        loop {
            match self.waiting.front() {
                Some(Waiting::Round(_)) if self.running.is_empty() && joining.is_empty() => {
                    let Some(Waiting::Round(requests)) = self.waiting.pop_front() else { return };
                    for request in requests {
                        self.look_up(request, &mut joining);
                    }
                    // As many as fit, in their order; the rest makes up the next round.
                    let fitting = self.fitting(&joining);
                    let mut rest = joining.split_off(fitting).into_iter().map(|(request, _)| request);
                    if fitting == 0
                        && let Some(request) = rest.next()
                    {
                        let error = self.no_room();
                        self.refuse(request, error);
                    }
                    let rest: Vec<Request> = rest.collect();
                    if !rest.is_empty() {
                        self.waiting.push_front(Waiting::Round(rest));
                    }
                    if fitting > 0 {
                        self.in_round = true;
                        self.fits(&joining, None);
                        break;
                    }
                }
                Some(Waiting::Single(request))
                    if (!self.in_round || self.running.is_empty())
                        && self.running.len() + joining.len() < self.options.max_batch =>
                {
                    let tokens = self.sessions().get(request.session).map(|session| session.tokens.len());
                    let fits = tokens.map_or(true, |tokens| self.fits(&joining, Some(tokens)));
                    if !fits && (!joining.is_empty() || !self.running.is_empty()) {
                        break;
                    }
                    let Some(Waiting::Single(request)) = self.waiting.pop_front() else { return };
                    if fits {
                        self.in_round = false;
                        self.look_up(request, &mut joining);
                    } else {
                        let error = self.no_room();
                        self.refuse(request, error);
                    }
                }
                _ => break,
            }
        }
        if !joining.is_empty() {
            self.start(decoder, joining);
        }
    }

    /// Adds a request with its session's tokens to those that join, or answers it at once.
    fn look_up(&self, request: Request, joining: &mut Vec<(Request, Vec<u32>)>) {
        if request.answer.is_closed() {
            return self.refuse(request, PolicyError::Failed("the caller has gone".into()));
        }
        let tokens = self.sessions().get(request.session).map(|session| session.tokens.clone());
        match tokens {
            Ok(tokens) => joining.push((request, tokens)),
            Err(error) => self.refuse(request, error),
        }
    }

    fn no_room(&self) -> PolicyError {
        PolicyError::Failed(format!(
            "the caches would exceed {} bytes: raise cache_gib, or allow less context",
            self.options.cache_bytes
        ))
    }

    /// How many of these, from the first on, fit the memory together when nothing else is running.
    fn fitting(&self, joining: &[(Request, Vec<u32>)]) -> usize {
        let Some((shape, _)) = &self.caches else { return 0 };
        let limit = self.options.cache_bytes / shape.bytes_per_token();
        let (mut active, mut longest) = (0, 0);
        for (index, (_, tokens)) in joining.iter().enumerate() {
            let length = (tokens.len() + HEADROOM).min(self.options.context_length);
            active += rounded(length);
            longest = longest.max(length);
            if active + BatchCache::room(index + 1, longest) > limit {
                return index;
            }
        }
        joining.len()
    }

    /// Whether the running rows, those that join and one more session of `extra` tokens fit the memory; idle
    /// sessions' caches make way, the longest unused first.
    fn fits(&mut self, joining: &[(Request, Vec<u32>)], extra: Option<usize>) -> bool {
        let Some((shape, batch)) = &mut self.caches else { return false };
        let limit = self.options.cache_bytes / shape.bytes_per_token();
        let lengths: Vec<usize> = self
            .running
            .iter()
            .map(Running::length)
            .chain(joining.iter().map(|(_, tokens)| tokens.len()))
            .chain(extra)
            .map(|length| (length + HEADROOM).min(self.options.context_length))
            .collect();
        let longest = lengths.iter().max().copied().unwrap_or(0);
        let active: usize = lengths.iter().map(|&length| rounded(length)).sum::<usize>();
        let room = BatchCache::room(lengths.len(), longest);
        if active + room > limit {
            return false;
        }
        let mut idle: Vec<(u64, SessionId, usize)> = self
            .parked
            .iter()
            .filter(|(session, _)| {
                !self.running.iter().any(|running| running.request.session == **session)
                    && !joining.iter().any(|(request, _)| request.session == **session)
            })
            .map(|(session, parked)| (parked.used, *session, parked.capacity()))
            .collect();
        idle.sort_unstable();
        let mut held: usize = idle.iter().map(|(_, _, capacity)| capacity).sum();
        // An empty batch keeps its memory for the next one, unless that is what is wanting.
        if active + held + room.max(batch.capacity()) > limit {
            batch.release();
        }
        let needed = active + room.max(batch.capacity());
        for (_, session, capacity) in idle {
            if needed + held <= limit {
                break;
            }
            self.parked.remove(&session);
            held -= capacity;
        }
        true
    }

    /// Completes caches, draws first tokens, and puts whoever goes on into the batch.
    fn start(&mut self, decoder: &mut Decoder, joining: Vec<(Request, Vec<u32>)>) {
        let Some((shape, _)) = self.caches else { return };
        let mut starting = Vec::with_capacity(joining.len());
        let mut pending = Vec::with_capacity(joining.len());
        for (request, tokens) in joining {
            if !self.in_round {
                self.borrow_beginning(request.session, &tokens);
            }
            starting.push(Running {
                before: tokens.len(),
                ids: Vec::new(),
                logprobs: Vec::new(),
                generator: drgym_env::seed::generator(request.params.seed),
                watch: StopWatch::new(&request.params.stop),
                stale: false,
                request,
            });
            pending.push(Pending { session: starting[starting.len() - 1].request.session, tokens });
        }
        let scores = prefill(decoder, shape, &mut self.parked, &pending);
        drop(pending);
        let reasons = self.accept(&mut starting, &scores);
        let going_on = reasons.iter().filter(|reason| reason.is_none()).count();
        let longest = starting
            .iter()
            .chain(&self.running)
            .map(|running| (running.length() + HEADROOM).min(self.options.context_length))
            .max()
            .unwrap_or(0);
        let rows = self.running.len() + going_on;
        if let Some((_, batch)) = &mut self.caches {
            batch.reserve(rows, longest);
        }
        for (running, reason) in starting.into_iter().zip(reasons) {
            if let Some(parked) = self.parked.get_mut(&running.request.session) {
                parked.used = self.clock;
            }
            match reason {
                Some(reason) => self.finish(running, reason),
                None => {
                    if let Some(((_, batch), parked)) =
                        self.caches.as_mut().zip(self.parked.get(&running.request.session))
                    {
                        batch.push(parked);
                        self.running.push(running);
                    }
                }
            }
        }
    }

    /// Gives a session without a cache the longest beginning that it shares with a session that has one. Which one
    /// that is depends on who happens to be open, so rounds do without.
    fn borrow_beginning(&mut self, session: SessionId, tokens: &[u32]) {
        if self.parked.get(&session).is_some_and(|parked| parked.length() > 0) {
            return;
        }
        let mut best: Option<(usize, SessionId)> = None;
        {
            let mut sessions = self.sessions();
            for (&other, parked) in &self.parked {
                let Ok(held) = sessions.get(other) else { continue };
                let held = &held.tokens[..parked.length().min(held.tokens.len())];
                let common = tokens.iter().zip(held).take_while(|(left, right)| left == right).count();
                let common = common.min(tokens.len() - 1);
                let better =
                    best.is_none_or(|(length, id)| common > length || (common == length && other < id));
                if common >= SHARED && better {
                    best = Some((common, other));
                }
            }
        }
        let stale =
            |id: SessionId| self.running.iter().any(|running| running.request.session == id && running.stale);
        if let Some((length, other)) = best.filter(|(_, other)| !stale(*other))
            && let Some(source) = self.parked.get(&other)
        {
            let copy = source.copy_of(length, tokens.len());
            self.parked.insert(session, copy);
        }
    }

    /// Grows the batch for the next token of every row. Where that exceeds the memory, idle caches make way, and
    /// then the longest rows end with an error.
    fn make_room(&mut self) {
        while !self.running.is_empty() {
            let longest = self.running.iter().map(Running::length).max().unwrap_or(0);
            if self.fits(&[], None) {
                let rows = self.running.len();
                if let Some((_, batch)) = &mut self.caches
                    && !batch.holds(rows, longest)
                {
                    batch.reserve(rows, (longest + HEADROOM).min(self.options.context_length));
                }
                return;
            }
            let Some(row) = (0..self.running.len()).max_by_key(|&row| self.running[row].length()) else {
                return;
            };
            if let Some((_, batch)) = &mut self.caches {
                batch.remove(row, None);
            }
            let running = self.running.swap_remove(row);
            let error = self.no_room();
            self.abandon(&running);
            let _ = running.request.answer.send(Err(error));
        }
    }

    /// One token for every running row.
    fn decode(&mut self, decoder: &mut Decoder) {
        let Some((_, batch)) = &mut self.caches else { return };
        let newest: Vec<i64> =
            self.running.iter().map(|running| running.ids.last().map_or(0, |&id| i64::from(id))).collect();
        let ids = Tensor::from_slice(&newest).to_device(decoder.device());
        let (positions, bound) = batch.begin_step();
        let hidden = decoder.forward_cached(&ids, &positions, bound, batch);
        batch.end_step();
        let scores = decoder.logits_cached(&hidden);
        let mut running = std::mem::take(&mut self.running);
        let reasons = self.accept(&mut running, &scores);
        self.running = running;
        for row in (0..self.running.len()).rev() {
            if let Some(reason) = &reasons[row] {
                let running = self.running.swap_remove(row);
                if let Some((_, batch)) = &mut self.caches {
                    batch.remove(row, self.parked.get_mut(&running.request.session));
                }
                self.finish(running, reason.clone());
            }
        }
    }

    /// Draws a token for each row from its scores; tells who has come to an end.
    fn accept(&self, rows: &mut [Running], scores: &Tensor) -> Vec<Option<StopReason>> {
        let mut drawers: Vec<Drawer<'_>> = rows.iter_mut().map(Running::drawer).collect();
        let (ids, logprobs) = draw(scores, &mut drawers);
        let mut reasons = Vec::with_capacity(rows.len());
        for ((row, id), logprob) in rows.iter_mut().zip(ids).zip(logprobs) {
            row.ids.push(id);
            row.logprobs.push(logprob);
            let stop = row.watch.push(self.options.token_bytes.get(id));
            reasons.push(if self.options.end_of_turn_ids.contains(&id) {
                Some(StopReason::EndOfTurn)
            } else if let Some(stop) = stop {
                Some(StopReason::StopString(row.request.params.stop[stop].clone()))
            } else if row.ids.len() >= row.request.params.max_tokens {
                Some(StopReason::MaxTokens)
            } else if row.length() >= self.options.context_length {
                Some(StopReason::ContextFull)
            } else {
                None
            });
        }
        reasons
    }

    /// Appends what was drawn to the session and answers.
    fn finish(&mut self, running: Running, stop: StopReason) {
        let session = running.request.session;
        if running.request.answer.is_closed() {
            if let Some(parked) = self.parked.get_mut(&session) {
                parked.truncate(running.before);
            }
            return self.abandon(&running);
        }
        let open = {
            let mut sessions = self.sessions();
            sessions.get(session).map(|session| {
                session.tokens.extend_from_slice(&running.ids);
                session.busy = false;
            })
        };
        if open.is_err() || running.stale {
            self.parked.remove(&session);
        }
        let answer = open.map(|()| Sampled { ids: running.ids, logprobs: running.logprobs, stop });
        let _ = running.request.answer.send(answer);
    }
}

//! The engine: queue, running batch, one token a row and step. It lives on the model thread.

mod admission;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drgym_env::{PolicyError, Sampled, SamplingParams, SessionId, StopReason};
use rand_chacha::ChaCha8Rng;
use tch::Tensor;
use tokio::sync::oneshot;

use self::admission::Joining;
use super::batch_cache::BatchCache;
use super::draw::{Drawer, draw};
use super::parked::{CacheShape, Parked};
use super::prefill::{Pending, prefill};
use super::sessions::Sessions;
use super::stop::StopWatch;
use super::token_bytes::TokenBytes;
use crate::model::{Background, Decoder};

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
    /// Most tokens that it can hold after the draw, for which there is memory.
    reserved: usize,
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

/// How a draw ends.
type End = Result<StopReason, PolicyError>;

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

    /// Copies a session's cache for a fork of it that holds its first `count` tokens, unless there is no room: then the
    /// fork computes its own. Drawing from the session may have gone on since the fork was made.
    pub(super) fn fork(&mut self, source: SessionId, child: SessionId, count: usize) {
        let Some(length) = self.parked.get(&source).map(|parked| parked.length().min(count)) else { return };
        if self.is_stale(source) || !self.fits_idle(length) {
            return;
        }
        if let Some(parked) = self.parked.get(&source) {
            let mut copy = parked.copy_of(length, length);
            copy.used = self.clock;
            self.parked.insert(child, copy);
        }
    }

    /// Drops a closed session's cache.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.parked.remove(&session);
    }

    /// The weights have changed: no cache is valid any more, and an empty batch gives its memory back. Draws under way
    /// end on the cache they began with.
    pub(super) fn invalidate(&mut self) {
        for running in &mut self.running {
            running.stale = true;
        }
        let running = &self.running;
        self.parked.retain(|session, _| running.iter().any(|draw| draw.request.session == *session));
        self.release_memory();
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

    /// Whether the weights changed under a draw of this session.
    fn is_stale(&self, session: SessionId) -> bool {
        self.running.iter().any(|running| running.request.session == session && running.stale)
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

    /// Completes caches, draws first tokens, and puts whoever goes on into the batch.
    fn start(&mut self, decoder: &mut Decoder, joining: Vec<Joining>) {
        let Some((shape, _)) = self.caches else { return };
        let demand = self.demand(&joining);
        let mut starting = Vec::with_capacity(joining.len());
        let mut pending = Vec::with_capacity(joining.len());
        for Joining { request, tokens, reserved } in joining {
            if !self.in_round {
                self.borrow_beginning(request.session, &tokens);
            }
            starting.push(Running {
                before: tokens.len(),
                reserved,
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
        if let Some((_, batch)) = &mut self.caches {
            // Even for rows that have come to an end already, since that is what there is room for: laid out for fewer
            // rows, a batch may keep more columns.
            batch.reserve(demand.rows, demand.longest);
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
        if let Some((length, other)) = best.filter(|(_, other)| !self.is_stale(*other))
            && let Some(source) = self.parked.get(&other)
        {
            let copy = source.copy_of(length, tokens.len());
            self.parked.insert(session, copy);
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
        let mut reasons = self.accept(&mut running, &scores);
        self.running = running;
        for row in (0..self.running.len()).rev() {
            if let Some(end) = reasons[row].take() {
                let running = self.running.swap_remove(row);
                if let Some((_, batch)) = &mut self.caches {
                    batch.remove(row, self.parked.get_mut(&running.request.session));
                }
                self.finish(running, end);
            }
        }
    }

    /// Draws a token for each row from its scores; tells who has come to an end. Scores that are no finite numbers, as those
    /// of a model whose training went astray, end a draw with an error: its tokens would mean nothing.
    fn accept(&self, rows: &mut [Running], scores: &Tensor) -> Vec<Option<End>> {
        let mut drawers: Vec<Drawer<'_>> = rows.iter_mut().map(Running::drawer).collect();
        let (ids, logprobs) = draw(scores, &mut drawers);
        let mut reasons = Vec::with_capacity(rows.len());
        for ((row, id), logprob) in rows.iter_mut().zip(ids).zip(logprobs) {
            row.ids.push(id);
            row.logprobs.push(logprob);
            let stop = row.watch.push(self.options.token_bytes.get(id));
            reasons.push(if !logprob.is_finite() {
                Some(Err(PolicyError::Failed("the model's scores are not finite numbers".into())))
            } else if self.options.end_of_turn_ids.contains(&id) {
                Some(Ok(StopReason::EndOfTurn))
            } else if let Some(stop) = stop {
                Some(Ok(StopReason::StopString(row.request.params.stop[stop].clone())))
            } else if row.ids.len() >= row.request.params.max_tokens {
                Some(Ok(StopReason::MaxTokens))
            } else if row.length() >= self.options.context_length {
                Some(Ok(StopReason::ContextFull))
            } else {
                None
            });
        }
        reasons
    }

    /// Appends what was drawn to the session and answers.
    fn finish(&mut self, running: Running, end: End) {
        let session = running.request.session;
        if running.request.answer.is_closed() || end.is_err() {
            // It has grown for tokens that the session does not get, and the next draw may reserve less than that.
            self.parked.remove(&session);
            self.abandon(&running);
        }
        let stop = match end {
            Ok(_) if running.request.answer.is_closed() => return,
            Ok(stop) => stop,
            Err(error) => {
                let _ = running.request.answer.send(Err(error));
                return;
            }
        };
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

#[cfg(test)]
mod tests;

//! The engine, stepped by hand: what memory its caches take, and what earlier draws leave behind.

use std::path::Path;

use drgym_env::seed::generator;
use rand::Rng;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::model::LoadOptions;

type Answer = oneshot::Receiver<Result<Sampled, PolicyError>>;

/// An engine on the tiny llama.
struct Bench {
    engine: SharedEngine,
    decoder: Decoder,
    sessions: Arc<Mutex<Sessions>>,
    context_length: usize,
    /// Tokens that all caches together may hold.
    limit: usize,
}

impl Bench {
    fn new(limit: usize, context_length: usize) -> Self {
        crate::device::set_threads(1);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/model/llama");
        let decoder = Decoder::load(&folder, LoadOptions::default()).unwrap();
        let sessions = Arc::new(Mutex::new(Sessions::default()));
        let options = EngineOptions {
            token_bytes: Arc::new(TokenBytes::new(Vec::new())),
            end_of_turn_ids: Vec::new(),
            context_length,
            cache_bytes: limit * CacheShape::of(&decoder).bytes_per_token(),
            max_batch: 16,
        };
        let engine = SharedEngine::new(options, Arc::clone(&sessions));
        Self { engine, decoder, sessions, context_length, limit }
    }

    fn open(&self, tokens: Vec<u32>) -> SessionId {
        self.sessions.lock().unwrap().open(tokens)
    }

    fn tokens_of(&self, session: SessionId) -> Vec<u32> {
        self.sessions.lock().unwrap().get(session).unwrap().tokens.clone()
    }

    fn extend(&self, session: SessionId, tokens: &[u32]) {
        self.sessions.lock().unwrap().get(session).unwrap().tokens.extend_from_slice(tokens);
    }

    fn close(&self, session: SessionId) {
        self.sessions.lock().unwrap().close(session);
        self.engine.lock().forget(session);
    }

    fn enqueue(&self, waiting: Waiting) {
        self.engine.lock().enqueue(waiting);
    }

    /// Queues a draw that may join others.
    fn ask(&self, session: SessionId, max_tokens: usize, seed: u64) -> Answer {
        let (request, answer) = request(session, max_tokens, seed);
        self.enqueue(Waiting::Single(request));
        answer
    }

    /// Draws for one session.
    fn draw(&mut self, session: SessionId, max_tokens: usize, seed: u64) -> Sampled {
        let mut answer = self.ask(session, max_tokens, seed);
        while self.engine.has_work() {
            self.step();
        }
        answer.try_recv().unwrap().unwrap()
    }

    fn step(&mut self) {
        self.engine.lock().step(&mut self.decoder);
        let held = self.held();
        assert!(held <= self.limit, "{held} tokens, but the limit is {}", self.limit);
    }

    /// Tokens that the caches have memory for.
    fn held(&self) -> usize {
        let engine = self.engine.lock();
        let batch = engine.caches.as_ref().map_or(0, |(_, batch)| batch.capacity());
        engine.parked.values().map(Parked::capacity).sum::<usize>() + batch
    }

    /// How many tokens each session's cache holds; none where it has made way.
    fn kept(&self, sessions: &[SessionId]) -> Vec<Option<usize>> {
        let engine = self.engine.lock();
        sessions.iter().map(|session| engine.parked.get(session).map(Parked::length)).collect()
    }
}

fn request(session: SessionId, max_tokens: usize, seed: u64) -> (Request, Answer) {
    let (answer, receiver) = oneshot::channel();
    let params = SamplingParams { temperature: 1.0, max_tokens, stop: Vec::new(), seed };
    (Request { session, params, answer }, receiver)
}

/// So many tokens that depend on the salt.
fn tokens(count: usize, salt: usize) -> Vec<u32> {
    (0..count).map(|at| ((at * at * 7 + at * 3 + salt * 11) % 48) as u32).collect()
}

/// Sessions at random, as a client would use them.
struct Clients {
    bench: Bench,
    random: ChaCha8Rng,
    idle: Vec<SessionId>,
    /// Who waits for an answer, and for how many tokens.
    waiting: Vec<(SessionId, Answer, usize)>,
}

impl Clients {
    fn act(&mut self, turn: u64) {
        match self.random.random_range(0..9) {
            0..=2 => {
                let prompt = tokens(self.random.random_range(1..150), turn as usize);
                self.idle.push(self.bench.open(prompt));
            }
            3 | 4 => {
                if let Some(request) = self.request(turn) {
                    self.bench.enqueue(Waiting::Single(request));
                }
            }
            5 => {
                let count = self.random.random_range(1..7);
                let requests = (0..count).filter_map(|_| self.request(turn)).collect();
                self.bench.enqueue(Waiting::Round(requests));
            }
            6 => self.fork(),
            7 => {
                if let Some(session) = self.take_idle() {
                    self.bench.close(session);
                }
            }
            _ if turn.is_multiple_of(2) => self.bench.engine.lock().invalidate(),
            // A caller goes away. Nobody else knows its session.
            _ => drop(self.waiting.pop()),
        }
    }

    fn take_idle(&mut self) -> Option<SessionId> {
        if self.idle.is_empty() {
            return None;
        }
        let place = self.random.random_range(0..self.idle.len());
        Some(self.idle.swap_remove(place))
    }

    /// A draw from an idle session that is not full.
    fn request(&mut self, seed: u64) -> Option<Request> {
        let session = self.take_idle()?;
        let room = self.bench.context_length - self.bench.tokens_of(session).len();
        if room == 0 {
            return None;
        }
        let max_tokens = self.random.random_range(1..60);
        let (request, answer) = request(session, max_tokens, seed);
        self.waiting.push((session, answer, max_tokens.min(room)));
        Some(request)
    }

    fn fork(&mut self) {
        if let Some(source) = self.take_idle() {
            let held = self.bench.tokens_of(source);
            let count = held.len();
            let child = self.bench.open(held);
            self.bench.engine.lock().fork(source, child, count);
            self.idle.extend([source, child]);
        }
    }

    /// Takes the answers that have come; every draw must have got all its tokens.
    fn receive(&mut self) {
        let idle = &mut self.idle;
        self.waiting.retain_mut(|(session, answer, expected)| match answer.try_recv() {
            Err(TryRecvError::Empty) => true,
            answered => {
                assert_eq!(answered.unwrap().unwrap().ids.len(), *expected);
                idle.push(*session);
                false
            }
        });
    }
}

#[test]
fn memory_stays_within_its_limit_and_every_draw_comes_to_its_end() {
    // A row as long as the context just fits: 8 × 256 of the smallest batch and 256 of its own.
    for limit in [2304, 3000, 5000] {
        let mut clients = Clients {
            bench: Bench::new(limit, 256),
            random: generator(limit as u64),
            idle: Vec::new(),
            waiting: Vec::new(),
        };
        for turn in 0..400 {
            clients.act(turn);
            clients.bench.step();
            clients.receive();
        }
        while clients.bench.engine.has_work() {
            clients.bench.step();
            clients.receive();
        }
        assert!(clients.waiting.is_empty());
    }
}

/// A batch that grows by rows keeps the columns that a long row left in it, and room must be made for all of that.
#[test]
fn rows_that_join_count_with_the_columns_of_a_row_that_has_left() {
    let mut bench = Bench::new(3000, 256);
    let long = bench.open(tokens(200, 0));
    let short: Vec<SessionId> = (1..10).map(|salt| bench.open(tokens(20, salt))).collect();
    let mut answers = vec![bench.ask(long, 2, 0)];
    for &session in &short[..7] {
        answers.push(bench.ask(session, 40, 1));
    }
    bench.step();
    assert_eq!(answers[0].try_recv().unwrap().unwrap().ids.len(), 2);
    for &session in &short[7..] {
        answers.push(bench.ask(session, 40, 1));
    }
    while bench.engine.has_work() {
        bench.step();
    }
    for answer in &mut answers[1..] {
        assert_eq!(answer.try_recv().unwrap().unwrap().ids.len(), 40);
    }
}

/// Rounds of eight sessions: which caches were there after each step, and what was drawn.
fn play(bench: &mut Bench) -> (Vec<Vec<Option<usize>>>, Vec<Sampled>) {
    let sessions: Vec<SessionId> = (0..8).map(|salt| bench.open(tokens(10 + 3 * salt, salt))).collect();
    let (mut kept, mut drawn) = (Vec::new(), Vec::new());
    for round in 0..3u64 {
        let mut requests = Vec::new();
        let mut answers = Vec::new();
        for (index, &session) in sessions.iter().enumerate() {
            // Two rows end early, so that their caches are idle while the others grow.
            let max_tokens = if round == 0 && index >= 2 { 60 } else { 3 };
            let (request, answer) = request(session, max_tokens, round);
            requests.push(request);
            answers.push(answer);
        }
        bench.enqueue(Waiting::Round(requests));
        while bench.engine.has_work() {
            bench.step();
            kept.push(bench.kept(&sessions));
        }
        for (mut answer, &session) in answers.into_iter().zip(&sessions) {
            drawn.push(answer.try_recv().unwrap().unwrap());
            bench.extend(session, &tokens(4, 1));
        }
    }
    (kept, drawn)
}

/// A run that is resumed has no batch from an evaluation before, and must still come to the same bits.
#[test]
fn a_batch_that_earlier_draws_left_decides_nothing() {
    for (limit, prompt) in [(1500, 100), (2500, 200), (5700, 400)] {
        let mut fresh = Bench::new(limit, 512);
        let mut used = Bench::new(limit, 512);
        let earlier: Vec<SessionId> = (0..3).map(|salt| used.open(tokens(prompt, salt))).collect();
        let (requests, answers): (Vec<Request>, Vec<Answer>) =
            earlier.iter().map(|&session| request(session, 2, 0)).unzip();
        used.enqueue(Waiting::Round(requests));
        while used.engine.has_work() {
            used.step();
        }
        for mut answer in answers {
            answer.try_recv().unwrap().unwrap();
        }
        for session in earlier {
            used.close(session);
        }
        assert!(used.held() > 0);
        assert_eq!(play(&mut fresh), play(&mut used), "{limit}");

        used.engine.lock().invalidate();
        assert_eq!(used.held(), 0);
    }
}

/// Between the copy of a session's tokens and that of its cache, the session may be drawn from.
#[test]
fn a_fork_gets_the_cache_of_its_own_tokens_only() {
    let mut bench = Bench::new(4000, 256);
    let source = bench.open(tokens(20, 1));
    let child = bench.open(tokens(20, 1));
    bench.draw(source, 10, 1);
    bench.engine.lock().fork(source, child, 20);
    // The last token that was drawn has never been run.
    assert_eq!(bench.kept(&[source, child]), [Some(29), Some(20)]);

    bench.extend(child, &tokens(12, 9));
    let mut other = Bench::new(4000, 256);
    let whole = other.open(bench.tokens_of(child));
    let (found, expected) = (bench.draw(child, 5, 3), other.draw(whole, 5, 3));
    assert_eq!(found.ids, expected.ids);
    for (found, expected) in found.logprobs.iter().zip(&expected.logprobs) {
        assert!((found - expected).abs() < 1e-4, "{found}, expected {expected}");
    }

    // A session whose weights change under it has nothing to give.
    let _answer = bench.ask(source, 50, 4);
    bench.step();
    bench.engine.lock().invalidate();
    let late = bench.open(tokens(20, 1));
    bench.engine.lock().fork(source, late, 20);
    assert_eq!(bench.kept(&[late]), [None::<usize>]);
}

#[test]
fn scores_that_are_no_numbers_end_a_draw_with_an_error_and_leave_the_session_alone() {
    let mut bench = Bench::new(4096, 256);
    let session = bench.open(tokens(9, 1));
    let drawn = bench.draw(session, 2, 1).ids.len();
    let before = bench.tokens_of(session);
    assert_eq!(before.len(), 9 + drawn);
    tch::no_grad(|| {
        let norm = bench.decoder.parameters().get("model.norm.weight").unwrap();
        let _ = norm.shallow_clone().fill_(f64::NAN);
    });
    bench.engine.lock().invalidate();
    for waits in [true, false] {
        let mut answer = bench.ask(session, 4, 2);
        if !waits {
            // Who has gone is told nothing, and the session is free again.
            answer.close();
        }
        while bench.engine.has_work() {
            bench.step();
        }
        let told = answer.try_recv();
        assert_eq!(waits, matches!(told, Ok(Err(PolicyError::Failed(_)))), "{told:?}");
        assert_eq!(bench.tokens_of(session), before);
    }
    assert_eq!(bench.kept(&[session]), [None]);
}

//! [`LocalPolicy`]: the sampler as the environment sees it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use drgym_env::{
    OpenRequest, Policy, PolicyError, PolicyInfo, Sampled, SamplingParams, SessionId, StopReason,
};
use tokio::sync::oneshot;

use super::engine::{EngineOptions, Request, SharedEngine, Waiting};
use super::sessions::Sessions;
use super::token_bytes::{TokenBytes, TokenBytesError};
use crate::model::{ModelError, ModelFolder, ModelHandle};

/// Special tokens that end a turn in the usual chat formats, beside the end tokens of the model's own files.
const END_OF_TURN: [&str; 4] = ["<|im_end|>", "<|eot_id|>", "<|end_of_turn|>", "<|endoftext|>"];

/// Why a policy could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    /// The model folder or thread failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The tokenizer failed.
    #[error(transparent)]
    Tokenizer(#[from] TokenBytesError),
}

/// How a [`LocalPolicy`] samples.
#[derive(Clone, Debug)]
pub struct LocalPolicyOptions {
    /// For results and logs.
    pub name: String,
    /// Most tokens in a session; no more than the model was made for.
    pub context_length: usize,
    /// Tokens that end a turn.
    pub end_of_turn_ids: Vec<u32>,
    /// Token ids must lie below this.
    pub vocab_size: usize,
    /// Most memory for keys and values, in bytes; a batch that grows while it runs is held twice for a moment. Every draw
    /// counts with all the tokens that it may come to, so whoever has begun is drawn to the end. Idle sessions make way
    /// when the limit is reached, and are computed anew when they go on. A round that does not fit is drawn in parts, in
    /// its order; a sequence that does not fit at all is refused.
    pub cache_bytes: usize,
    /// Most sequences that are decoded together; who comes later waits. A round is decoded whole, whatever its size.
    pub max_batch: usize,
}

impl LocalPolicyOptions {
    /// What a folder suggests: its context, its end tokens, 4 GiB of cache, batches of up to 64.
    pub fn for_folder(folder: &ModelFolder, token_bytes: &TokenBytes) -> Self {
        let mut end_of_turn_ids = folder.eos_token_ids.clone();
        end_of_turn_ids.extend(END_OF_TURN.iter().filter_map(|text| token_bytes.special(text)));
        end_of_turn_ids.sort_unstable();
        end_of_turn_ids.dedup();
        let name = folder.dir.file_name().map(|name| name.to_string_lossy().into_owned());
        Self {
            name: name.unwrap_or_else(|| "local".into()),
            context_length: folder.config.context_length,
            end_of_turn_ids,
            vocab_size: folder.config.vocab_size,
            cache_bytes: 4 << 30,
            max_batch: 64,
        }
    }
}

/// A [`Policy`] on a model thread. Cheap to clone; clones share sessions.
#[derive(Clone, Debug)]
pub struct LocalPolicy {
    handle: ModelHandle,
    engine: SharedEngine,
    sessions: Arc<Mutex<Sessions>>,
    version: Arc<AtomicU64>,
    name: Arc<str>,
    context_length: usize,
    vocab_size: usize,
}

impl LocalPolicy {
    /// Installs a sampler on a model thread.
    pub fn new(
        handle: ModelHandle,
        token_bytes: Arc<TokenBytes>,
        options: LocalPolicyOptions,
    ) -> Result<Self, SamplerError> {
        let sessions = Arc::new(Mutex::new(Sessions::default()));
        let engine = SharedEngine::new(
            EngineOptions {
                token_bytes,
                end_of_turn_ids: options.end_of_turn_ids,
                context_length: options.context_length,
                cache_bytes: options.cache_bytes,
                max_batch: options.max_batch.max(1),
            },
            Arc::clone(&sessions),
        );
        handle.install(Box::new(engine.clone()))?;
        Ok(Self {
            handle,
            engine,
            sessions,
            version: Arc::new(AtomicU64::new(0)),
            name: options.name.into(),
            context_length: options.context_length,
            vocab_size: options.vocab_size,
        })
    }

    /// Installs a sampler for a model that was loaded from this folder, as the folder suggests but for its cache.
    pub fn for_folder(
        handle: ModelHandle,
        folder: &ModelFolder,
        cache_bytes: usize,
    ) -> Result<Self, SamplerError> {
        let token_bytes = TokenBytes::from_file(&folder.tokenizer_path())?;
        let options =
            LocalPolicyOptions { cache_bytes, ..LocalPolicyOptions::for_folder(folder, &token_bytes) };
        Self::new(handle, Arc::new(token_bytes), options)
    }

    /// Says that the weights have changed: caches are dropped, working memory is freed and compute copies are made anew
    /// before anything is drawn. Sessions stay open, and their tokens are run again when they go on. Meant for the time
    /// between rollouts; a draw under way ends on the cache it began with.
    pub fn invalidate(&self) -> Result<(), ModelError> {
        let engine = self.engine.clone();
        self.handle.send(move |decoder| {
            decoder.refresh_compute_copies();
            engine.lock().invalidate();
        })
    }

    /// Frees the working memory of decoding, which the next draw allocates anew. Sessions stay open.
    pub fn release_memory(&self) -> Result<(), ModelError> {
        let engine = self.engine.clone();
        self.handle.send(move |_| engine.lock().release_memory())
    }

    /// Sets the version that [`info`](Policy::info) reports.
    pub fn set_version(&self, version: u64) {
        self.version.store(version, Ordering::Release);
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_ids(&self, held: usize, ids: &[u32]) -> Result<(), PolicyError> {
        if held + ids.len() > self.context_length {
            return Err(PolicyError::ContextOverflow {
                tokens: held + ids.len(),
                context_length: self.context_length,
            });
        }
        match ids.iter().find(|&&id| id as usize >= self.vocab_size) {
            Some(id) => Err(PolicyError::Failed(format!(
                "token id {id} is beyond the model's vocabulary of {}",
                self.vocab_size
            ))),
            None => Ok(()),
        }
    }

    /// Marks a session as being drawn from and makes the request, or answers at once.
    fn prepare(&self, session: SessionId, params: SamplingParams) -> Prepared {
        match self.check_request(session, &params) {
            Ok(None) => {
                let (answer, receiver) = oneshot::channel();
                Prepared::Queued(Request { session, params, answer }, receiver)
            }
            Ok(Some(stop)) => Prepared::Known(Ok(Sampled { ids: Vec::new(), logprobs: Vec::new(), stop })),
            Err(error) => Prepared::Known(Err(error)),
        }
    }

    /// A stop reason if nothing is to be drawn; otherwise the session is marked.
    fn check_request(
        &self,
        session: SessionId,
        params: &SamplingParams,
    ) -> Result<Option<StopReason>, PolicyError> {
        if !params.temperature.is_finite() || params.temperature < 0.0 {
            return Err(PolicyError::Failed(format!(
                "temperature {}: expected a number from 0",
                params.temperature
            )));
        }
        if params.stop.iter().any(String::is_empty) {
            return Err(PolicyError::Failed("a stop string is empty".into()));
        }
        let mut sessions = self.sessions();
        let session = sessions.get_idle(session)?;
        if session.tokens.len() >= self.context_length {
            return Ok(Some(StopReason::ContextFull));
        }
        if params.max_tokens == 0 {
            return Ok(Some(StopReason::MaxTokens));
        }
        session.busy = true;
        Ok(None)
    }

    fn enqueue(&self, waiting: Waiting) -> Result<(), PolicyError> {
        let engine = self.engine.clone();
        self.handle.send(move |_| engine.lock().enqueue(waiting)).map_err(failed)
    }
}

enum Prepared {
    Known(Result<Sampled, PolicyError>),
    Queued(Request, oneshot::Receiver<Result<Sampled, PolicyError>>),
}

fn failed(error: impl std::fmt::Display) -> PolicyError {
    PolicyError::Failed(error.to_string())
}

async fn receive(receiver: oneshot::Receiver<Result<Sampled, PolicyError>>) -> Result<Sampled, PolicyError> {
    receiver.await.unwrap_or_else(|_| Err(failed(ModelError::ThreadGone)))
}

#[async_trait]
impl Policy for LocalPolicy {
    async fn open(&self, request: OpenRequest) -> Result<SessionId, PolicyError> {
        if request.prompt_ids.is_empty() {
            return Err(PolicyError::Failed("the prompt is empty".into()));
        }
        self.check_ids(0, &request.prompt_ids)?;
        Ok(self.sessions().open(request.prompt_ids))
    }

    async fn fork(&self, session: SessionId) -> Result<SessionId, PolicyError> {
        let (child, count) = {
            let mut sessions = self.sessions();
            let tokens = sessions.get_idle(session)?.tokens.clone();
            let count = tokens.len();
            (sessions.open(tokens), count)
        };
        let engine = self.engine.clone();
        self.handle.send(move |_| engine.lock().fork(session, child, count)).map_err(failed)?;
        Ok(child)
    }

    async fn extend(&self, session: SessionId, ids: &[u32]) -> Result<(), PolicyError> {
        let mut sessions = self.sessions();
        let session = sessions.get_idle(session)?;
        self.check_ids(session.tokens.len(), ids)?;
        session.tokens.extend_from_slice(ids);
        Ok(())
    }

    async fn sample(&self, session: SessionId, params: SamplingParams) -> Result<Sampled, PolicyError> {
        match self.prepare(session, params) {
            Prepared::Known(answer) => answer,
            Prepared::Queued(request, receiver) => {
                self.enqueue(Waiting::Single(request))?;
                receive(receiver).await
            }
        }
    }

    async fn sample_round(
        &self,
        requests: Vec<(SessionId, SamplingParams)>,
    ) -> Vec<Result<Sampled, PolicyError>> {
        let mut round = Vec::new();
        let mut answers = Vec::with_capacity(requests.len());
        for (session, params) in requests {
            answers.push(match self.prepare(session, params) {
                Prepared::Known(answer) => Ok(answer),
                Prepared::Queued(request, receiver) => {
                    round.push(request);
                    Err(receiver)
                }
            });
        }
        // If the thread has gone the requests are dropped with it, and every receiver says so.
        let _ = self.enqueue(Waiting::Round(round));
        let mut sampled = Vec::with_capacity(answers.len());
        for answer in answers {
            sampled.push(match answer {
                Ok(known) => known,
                Err(receiver) => receive(receiver).await,
            });
        }
        sampled
    }

    async fn close(&self, session: SessionId) {
        self.sessions().close(session);
        let engine = self.engine.clone();
        // A thread that has gone holds no cache.
        let _ = self.handle.send(move |_| engine.lock().forget(session));
    }

    fn info(&self) -> PolicyInfo {
        PolicyInfo {
            name: self.name.to_string(),
            version: self.version.load(Ordering::Acquire),
            context_length: self.context_length,
        }
    }
}

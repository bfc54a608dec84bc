//! The language model as the environment sees it: token ids in, token ids and log-probabilities out.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Handle of an open session, unique within a policy for its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Which episode a session belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EpisodeKey {
    /// Identifier of the task.
    pub task: String,
    /// Number of the sample within the task's group, from 0.
    pub sample: u32,
}

/// What a session starts from.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    /// The prompt.
    pub prompt_ids: Vec<u32>,
    /// The episode, for scripted policies and logs; a language model ignores it.
    pub episode: EpisodeKey,
    /// Turns that the episode has played in earlier sessions; above 0 when its history was rewritten.
    pub turn: u32,
}

/// How to draw tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy. Log-probabilities are those of the distribution after division by the temperature;
    /// under greedy decoding, of the distribution at temperature 1.
    pub temperature: f32,
    /// At most so many tokens.
    pub max_tokens: usize,
    /// Generation ends with the token whose text completes any of these; the token is kept.
    pub stop: Vec<String>,
    /// Seed of this very draw.
    pub seed: u64,
}

/// Why generation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// A stop string was completed.
    StopString(String),
    /// The model ended its turn; the end token is the last of the ids.
    EndOfTurn,
    /// `max_tokens` were drawn.
    MaxTokens,
    /// The context of the model is full.
    ContextFull,
}

/// What was drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The new tokens, `[tokens]`; they are part of the session now.
    pub ids: Vec<u32>,
    /// Log-probability of each under the distribution that it was drawn from, `[tokens]`, natural logarithm.
    pub logprobs: Vec<f32>,
    /// Why generation ended.
    pub stop: StopReason,
}

/// Facts about a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyInfo {
    /// For results and logs.
    pub name: String,
    /// Grows by one with every optimiser step; 0 for a policy that does not learn.
    pub version: u64,
    /// Most tokens that a session can hold.
    pub context_length: usize,
}

/// Why a policy gave no tokens.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The session is not open.
    #[error("session {} is not open", .0.0)]
    UnknownSession(SessionId),
    /// The prompt or extension does not fit the context.
    #[error("{tokens} tokens do not fit the context of {context_length}")]
    ContextOverflow {
        /// Tokens that were asked for in all.
        tokens: usize,
        /// Most that fit.
        context_length: usize,
    },
    /// The model or its server failed.
    #[error("the policy failed: {0}")]
    Failed(String),
}

/// A language model with sessions, so that a waiting episode keeps its key/value cache.
///
/// A session is the token sequence `prompt, sampled, extended, sampled, …`; nothing in it is ever tokenised again.
#[async_trait]
pub trait Policy: Send + Sync {
    /// Opens a session on a prompt. Computation may wait until the first [`sample`](Self::sample).
    async fn open(&self, request: OpenRequest) -> Result<SessionId, PolicyError>;

    /// Opens a second session with the same content.
    async fn fork(&self, session: SessionId) -> Result<SessionId, PolicyError>;

    /// Appends tokens that the policy did not write (an observation).
    async fn extend(&self, session: SessionId, ids: &[u32]) -> Result<(), PolicyError>;

    /// Draws tokens at the end of a session.
    async fn sample(&self, session: SessionId, params: SamplingParams) -> Result<Sampled, PolicyError>;

    /// Draws for several sessions in one batch that holds exactly these, in this order.
    ///
    /// The deterministic schedule uses this, since the last bits of a batched forward pass may depend on the
    /// batch. The default draws them one after another.
    async fn sample_round(
        &self,
        requests: Vec<(SessionId, SamplingParams)>,
    ) -> Vec<Result<Sampled, PolicyError>> {
        let mut answers = Vec::with_capacity(requests.len());
        for (session, params) in requests {
            answers.push(self.sample(session, params).await);
        }
        answers
    }

    /// Ends a session and frees its cache. Closing twice is harmless.
    async fn close(&self, session: SessionId);

    /// Facts about the policy as it is now.
    fn info(&self) -> PolicyInfo;
}

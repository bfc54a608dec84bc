//! The record of one episode, exact to the token: what the policy saw, what it drew, what came of it.

use drgym_judge::Verdict;
use drgym_search::Provenance;
use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::policy::{EpisodeKey, StopReason};
use crate::task::Task;

/// Version of the trace format, raised when a reader must care.
pub const TRACE_VERSION: u32 = 1;

/// One episode. JSONL, one line an episode; rewards, advantages and masks can be recomputed from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// [`TRACE_VERSION`] of the writer.
    pub version: u32,
    /// The question and its answers.
    pub task: Task,
    /// Which sample of the task this is.
    pub episode: EpisodeKey,
    /// Seed from which every draw of the episode is derived.
    pub seed: u64,
    /// Name of the policy.
    pub policy: String,
    /// Token sequences, in order: one for an append-only episode, a new one whenever the history was rewritten.
    pub segments: Vec<Segment>,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// How it ended.
    pub outcome: Outcome,
    /// Decisions of the judges; empty before scoring.
    #[serde(default)]
    pub verdicts: Vec<Verdict>,
    /// Whether the answer was right; `None` when scoring did not run or failed.
    #[serde(default)]
    pub correct: Option<bool>,
    /// `None` when scoring did not run or failed.
    #[serde(default)]
    pub reward: Option<f64>,
    /// Why scoring failed, if it did.
    #[serde(default)]
    pub scoring_error: Option<String>,
    /// Counts of tokens and calls.
    pub usage: Usage,
    /// Wall-clock times; not part of [`content_hash`](Trace::content_hash).
    #[serde(default)]
    pub timings: Timings,
}

/// A contiguous token sequence with one prompt.
///
/// Invariants, held by [`Segment::check`]: the three response vectors have equal lengths, and a token outside the
/// mask has log-probability 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Prompt tokens, `[prompt]`.
    pub prompt_ids: Vec<u32>,
    /// Everything after the prompt, drawn and observed, `[response]`.
    pub response_ids: Vec<u32>,
    /// `true` where the policy drew the token and may learn from it, `[response]`.
    pub loss_mask: Vec<bool>,
    /// Log-probability under the policy that drew the token, 0 where the mask is false, `[response]`.
    pub logprobs: Vec<f32>,
    /// Version of the policy that drew the tokens.
    pub policy_version: u64,
}

impl Segment {
    /// A segment that holds only its prompt.
    pub fn new(prompt_ids: Vec<u32>, policy_version: u64) -> Self {
        Self {
            prompt_ids,
            response_ids: Vec::new(),
            loss_mask: Vec::new(),
            logprobs: Vec::new(),
            policy_version,
        }
    }

    /// Appends tokens that the policy drew.
    pub fn push_sampled(&mut self, ids: &[u32], logprobs: &[f32]) {
        debug_assert_eq!(ids.len(), logprobs.len());
        self.response_ids.extend_from_slice(ids);
        self.logprobs.extend_from_slice(logprobs);
        self.loss_mask.resize(self.response_ids.len(), true);
    }

    /// Appends tokens that the environment wrote.
    pub fn push_observed(&mut self, ids: &[u32]) {
        self.response_ids.extend_from_slice(ids);
        self.logprobs.resize(self.response_ids.len(), 0.0);
        self.loss_mask.resize(self.response_ids.len(), false);
    }

    /// Prompt and response together.
    pub fn len(&self) -> usize {
        self.prompt_ids.len() + self.response_ids.len()
    }

    /// Whether the segment holds no token at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of tokens that the policy drew.
    pub fn sampled_tokens(&self) -> usize {
        self.loss_mask.iter().filter(|&&drawn| drawn).count()
    }

    /// Checks the invariants; the error says which one is broken.
    pub fn check(&self) -> Result<(), String> {
        let lengths = [self.response_ids.len(), self.loss_mask.len(), self.logprobs.len()];
        if lengths.iter().any(|&length| length != lengths[0]) {
            return Err(format!("response ids, mask and log-probabilities have lengths {lengths:?}"));
        }
        if self.prompt_ids.is_empty() {
            return Err("the prompt is empty".into());
        }
        for (index, (&drawn, &logprob)) in self.loss_mask.iter().zip(&self.logprobs).enumerate() {
            if !drawn && logprob != 0.0 {
                return Err(format!("token {index} was observed, yet has log-probability {logprob}"));
            }
            if drawn && (logprob.is_nan() || logprob > 0.0) {
                return Err(format!("token {index} was drawn with log-probability {logprob}"));
            }
        }
        Ok(())
    }
}

/// One thing that happened in an episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The policy wrote something.
    Turn {
        /// Number of the turn, from 0.
        turn: u32,
        /// Index of the segment that holds its tokens.
        segment: u32,
        /// The text of the drawn tokens.
        text: String,
        /// The action read from it.
        action: Action,
        /// Why generation ended.
        stop: StopReason,
    },
    /// A search was answered.
    Search {
        /// The query as sent.
        query: String,
        /// Identifiers of the hits, best first.
        doc_ids: Vec<String>,
        /// What answered.
        provenance: Provenance,
        /// The observation was longer than the limit and was cut inside its documents.
        truncated: bool,
    },
    /// A fetch was answered.
    Fetch {
        /// The URL as sent.
        url: String,
        /// The document, or `None` if there is no such page.
        doc_id: Option<String>,
        /// The observation was longer than the limit and was cut.
        truncated: bool,
    },
    /// The history was replaced by a summary.
    Summarised {
        /// Tokens of the history that was replaced.
        replaced_tokens: u32,
    },
    /// The policy was told that its output was no action.
    Reminded {
        /// Why.
        reason: String,
    },
}

/// Where a failure arose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boundary {
    /// The search backend.
    Search,
    /// The policy or its server.
    Policy,
    /// The judge.
    Judge,
    /// Our own code.
    Environment,
}

impl std::fmt::Display for Boundary {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Search => "search",
            Self::Policy => "policy",
            Self::Judge => "judge",
            Self::Environment => "environment",
        })
    }
}

/// How an episode ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The policy answered.
    Answered {
        /// Its answer, as written inside the answer action.
        answer: String,
    },
    /// The number of turns was used up without an answer.
    TurnLimit,
    /// The context was full before an answer came.
    ContextLimit,
    /// The infrastructure failed; there is nothing to score.
    Failed {
        /// Where.
        boundary: Boundary,
        /// What was seen.
        reason: String,
    },
}

/// Counts of one episode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Turns of the policy.
    pub turns: u32,
    /// Searches sent.
    pub searches: u32,
    /// Fetches sent.
    pub fetches: u32,
    /// Outputs that were no action.
    pub invalid_actions: u32,
    /// Searches whose query equals an earlier one of the same episode.
    pub repeated_searches: u32,
    /// Prompt tokens of all segments.
    pub prompt_tokens: u32,
    /// Tokens that the policy drew.
    pub sampled_tokens: u32,
    /// Tokens that the environment wrote.
    pub observed_tokens: u32,
}

/// Wall-clock times of one episode in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// From reset to the end.
    pub total: f64,
    /// Waiting for search and fetch.
    pub search: f64,
    /// Waiting for the policy; in rounds, for those who are drawn with it.
    pub policy: f64,
    /// Waiting for the judge.
    pub judge: f64,
}

impl Trace {
    /// blake3 of everything but the timings, in hex: two runs of the same seed must agree in it.
    pub fn content_hash(&self) -> String {
        let timeless = Self { timings: Timings::default(), ..self.clone() };
        // A trace is made of strings, numbers and vectors; none of them can fail to serialise.
        let bytes = serde_json::to_vec(&timeless).unwrap_or_default();
        blake3::hash(&bytes).to_hex().to_string()
    }

    /// The answer, if there is one.
    pub fn answer(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Answered { answer } => Some(answer),
            _ => None,
        }
    }

    /// Checks the invariants of every segment and of the counts.
    pub fn check(&self) -> Result<(), String> {
        for (index, segment) in self.segments.iter().enumerate() {
            segment.check().map_err(|reason| format!("segment {index}: {reason}"))?;
        }
        let sampled: usize = self.segments.iter().map(Segment::sampled_tokens).sum();
        if sampled != self.usage.sampled_tokens as usize {
            return Err(format!(
                "{sampled} drawn tokens in the segments, {} counted",
                self.usage.sampled_tokens
            ));
        }
        if matches!(self.outcome, Outcome::Failed { .. }) && self.reward.is_some() {
            return Err("a failed episode carries a reward".into());
        }
        Ok(())
    }
}

//! The local policy: sampling from a [`Decoder`](crate::model::Decoder) with sessions that keep their cache.
//!
//! ```text
//! LocalPolicy ── tokens of every session (a table behind a short lock)
//!      │  sample, sample_round, fork, close
//!      ▼  (jobs of the model thread, between decoding steps)
//!   Engine ── queue ──▶ prefill of what is pending ──▶ running batch: one token a row and step
//!      │                        │                              ▲ │
//!      └── parked caches, one a session ◀──── rows that finished ┘
//! ```
//!
//! Opening and extending only note token ids. Drawing first runs the ids that the cache does not cover yet, packed
//! without padding, then decodes all running rows together; a row that finishes leaves the batch at once.

mod batch_cache;
mod draw;
mod engine;
mod packed;
mod parked;
mod policy;
mod prefill;
mod sessions;
mod stop;
mod token_bytes;

pub use policy::{LocalPolicy, LocalPolicyOptions, SamplerError};
pub use stop::StopWatch;
pub use token_bytes::{TokenBytes, TokenBytesError};

//! What the models cost.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::call_log::{Call, CallObserver};

/// Counts calls and tokens, from any number of threads.
#[derive(Debug, Default)]
pub struct Ledger {
    calls: AtomicU64,
    failed: AtomicU64,
    cached: AtomicU64,
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
}

/// A ledger's state at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerTotals {
    /// Calls that reached a server, failed ones included. A call's retries count once, with it.
    pub calls: u64,
    /// Calls that gave no reply.
    pub failed: u64,
    /// Replies out of a cache; not among `calls`.
    pub cached: u64,
    /// Tokens sent, as servers counted them.
    pub prompt_tokens: u64,
    /// Tokens received, as servers counted them.
    pub completion_tokens: u64,
}

impl Ledger {
    /// The totals so far.
    pub fn totals(&self) -> LedgerTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LedgerTotals {
            calls: read(&self.calls),
            failed: read(&self.failed),
            cached: read(&self.cached),
            prompt_tokens: read(&self.prompt_tokens),
            completion_tokens: read(&self.completion_tokens),
        }
    }
}

impl CallObserver for Ledger {
    fn observe(&self, call: &Call<'_>) -> io::Result<()> {
        let add = |counter: &AtomicU64, amount: u64| counter.fetch_add(amount, Ordering::Relaxed);
        if call.cached {
            add(&self.cached, 1);
            return Ok(());
        }
        add(&self.calls, 1);
        match call.outcome {
            Ok(reply) => {
                add(&self.prompt_tokens, reply.usage.prompt_tokens);
                add(&self.completion_tokens, reply.usage.completion_tokens);
            }
            Err(_) => {
                add(&self.failed, 1);
            }
        }
        Ok(())
    }
}

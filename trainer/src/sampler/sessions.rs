//! The token sequences of the open sessions.

use std::collections::HashMap;

use drgym_env::{PolicyError, SessionId};

/// One session's tokens.
#[derive(Debug, Default)]
pub(super) struct SessionTokens {
    pub(super) tokens: Vec<u32>,
    /// Whether a draw is queued or under way; the tokens must not change meanwhile.
    pub(super) busy: bool,
}

/// All open sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: HashMap<SessionId, SessionTokens>,
    next: u64,
}

impl Sessions {
    /// Opens a session with these tokens.
    pub(super) fn open(&mut self, tokens: Vec<u32>) -> SessionId {
        let id = SessionId(self.next);
        self.next += 1;
        self.open.insert(id, SessionTokens { tokens, busy: false });
        id
    }

    /// A session that is open.
    pub(super) fn get(&mut self, id: SessionId) -> Result<&mut SessionTokens, PolicyError> {
        self.open.get_mut(&id).ok_or(PolicyError::UnknownSession(id))
    }

    /// A session that is open and not being drawn from.
    pub(super) fn get_idle(&mut self, id: SessionId) -> Result<&mut SessionTokens, PolicyError> {
        let session = self.get(id)?;
        if session.busy {
            return Err(PolicyError::Failed(format!("session {} is being sampled", id.0)));
        }
        Ok(session)
    }

    /// Closes a session; closing twice is harmless.
    pub(super) fn close(&mut self, id: SessionId) {
        self.open.remove(&id);
    }
}

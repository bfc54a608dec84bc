//! Integration tests of query synthesis: planted flaws, whole runs on a small corpus, and the real Factbook.

#![expect(clippy::unwrap_used, reason = "what a test sets up itself must work, or the test fails")]

mod checks;
mod corpus;
mod factbook;
mod pipeline;

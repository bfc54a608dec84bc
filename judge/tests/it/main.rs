//! Behaviour of the judges and of the chat client, the latter against a server in this process.
#![expect(
    clippy::unwrap_used,
    reason = "the set-up of a test may fail it; clippy knows only #[test] functions"
)]

mod calls;
mod client;
mod config;
mod fake_server;
mod rules;
mod soft_match;
mod structured;

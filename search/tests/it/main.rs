//! Behaviour of the search crate through its public interface: real files, real sockets, a real encoder where set-up
//! has put one.

#![expect(clippy::unwrap_used, reason = "a helper of a test may fail it")]

mod backends;
mod corpora;
mod encoding;
mod indexes;
mod ranking;
mod serving;
mod support;

//! The real binary: its help and errors, the crate order, the presets, the commands of the README, and the path from
//! corpus to results.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails, or says what it lacks"
)]

mod crate_order;
mod errors;
mod evaluation;
mod help;
mod pipeline;
mod presets;
mod program;
#[cfg(feature = "train")]
mod readme;

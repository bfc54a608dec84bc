//! The real binary: its help and errors, the crate order, the presets, and the path from corpus to results.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails, or says what it lacks"
)]

mod crate_order;
mod errors;
mod help;
mod pipeline;
mod presets;
mod program;

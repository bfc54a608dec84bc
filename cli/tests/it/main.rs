//! The real binary: its help and errors, the crate order, the presets, and the path from corpus to results.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod crate_order;
mod errors;
mod help;
mod pipeline;
mod presets;
mod program;

//! The real binary: its help and errors, the crate order, the presets, and the path from corpus to results.

mod crate_order;
mod errors;
mod help;
mod pipeline;
mod presets;
mod program;

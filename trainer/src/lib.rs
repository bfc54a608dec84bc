//! Training of search agents on libtorch: models, sampler, supervised fine-tuning and GRPO.
//!
//! ```text
//! model folder ──Decoder::load──▶ ModelThread (one OS thread owns the tensors)
//!                                    ▲            ▲
//!              LocalPolicy ──sample──┘            └──run(step)── trainer
//! ```
//!
//! Everything that touches tensors runs on the model thread; the rest of the program sends it work through a
//! [`model::ModelHandle`] and awaits the answer.

pub mod algorithm;
pub mod batch;
pub mod checkpoint;
pub mod config;
pub mod device;
pub mod error;
pub mod forward_backward;
pub mod grpo;
pub mod import;
pub mod learner;
pub mod metrics;
pub mod model;
pub mod optimizer;
pub mod order;
mod run_folder;
pub mod sampler;
pub mod schedule;
pub mod sft;
pub mod tensorboard;
pub mod trace_text;

pub use error::TrainError;

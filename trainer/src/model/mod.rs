//! Causal decoders of the Llama family (Llama, Qwen2, Qwen3): folders, forward passes, adapters, the model thread.
//!
//! - [`Decoder`] holds the parameters and runs them: layer by layer for training, with a cache for sampling.
//! - [`Lora`] is a low-rank adapter, trained instead of the base weights.
//! - [`ModelThread`] is the one thread that owns a decoder; everything else sends it work.

mod cached;
mod config;
mod decoder;
mod error;
pub(crate) mod folder;
mod forward;
mod lora;
mod lora_folder;
mod parameters;
mod thread;
pub(crate) mod weights_file;

pub use cached::{ComputeCopies, KeyValueCache};
pub use config::{Family, ModelConfig, RopeScaling};
pub(crate) use decoder::check_shapes;
pub use decoder::{Decoder, LoadOptions, Trainable};
pub use error::{ModelError, TensorMismatch};
pub use folder::ModelFolder;
pub use lora::{Lora, LoraConfig, LoraPair};
pub use parameters::Parameters;
pub use thread::{Background, ModelHandle, ModelThread};

//! Tests of the trainer from outside, in one binary.

mod import_gguf;
mod learning_algorithm;
mod learning_gradients;
mod learning_grpo;
mod learning_killed;
mod learning_records;
mod learning_sft;
mod learning_support;
mod model_folder;
mod model_golden;
mod model_lora;
mod model_support;
mod model_thread;
mod sampler_policy;
mod sampler_stop;

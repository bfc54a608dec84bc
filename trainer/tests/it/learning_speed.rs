//! How fast updates are on the small real model. Not part of the suite: `cargo test --release -p drgym-trainer
//! --test it speed -- --ignored --nocapture`.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::path::PathBuf;
use std::time::Instant;

use drgym_trainer::algorithm::aggregate::Aggregation;
use drgym_trainer::batch::Sequence;
use drgym_trainer::config::{MicroBatchConfig, ModelOptions, OptimizerConfig};
use drgym_trainer::device::set_threads;
use drgym_trainer::forward_backward::PassOptions;
use drgym_trainer::learner::{Learner, UpdateOptions};
use drgym_trainer::metrics::peak_memory_bytes;
use tch::Kind;

fn model_folder() -> Option<PathBuf> {
    let home = std::env::var_os("DRGYM_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/drgym")))?;
    let folder = home.join("models/smollm2-135m-instruct");
    folder.join("config.json").exists().then_some(folder)
}

/// Episodes of 190 to 240 tokens, of which the policy wrote three stretches of 10.
fn episodes(count: usize) -> Vec<Sequence> {
    (0..count)
        .map(|episode| {
            let length = 190 + (episode * 37) % 51;
            let positions: Vec<u32> = [80, 130, length - 10]
                .iter()
                .flat_map(|&start| (start..start + 10).map(|position| position as u32))
                .collect();
            Sequence {
                episode,
                ids: (0..length).map(|index| ((index * 131 + episode * 17) % 40_000 + 100) as u32).collect(),
                behaviour_logprobs: vec![-1.0; positions.len()],
                positions,
            }
        })
        .collect()
}

/// Processor time of this process in seconds: user and system time in /proc/self/stat, in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, rest) = text.rsplit_once(')').unwrap();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

#[test]
#[ignore = "a measurement that takes minutes"]
fn speed_of_updates() {
    let Some(folder) = model_folder() else {
        println!("skipped: needs models/smollm2-135m-instruct");
        return;
    };
    // On a busy machine one thread and its processor time say more than two threads and the wall clock.
    let threads = std::env::var("DRGYM_SPEED_THREADS").map_or(2, |threads| threads.parse().unwrap());
    set_threads(threads);
    let variants = [
        ("all", "f32", false, 8),
        ("all", "bf16", false, 8),
        ("upper:15", "f32", false, 24),
        ("upper:15", "bf16", false, 24),
        ("upper:15", "f32", true, 24),
        ("lora", "f32", false, 8),
    ];
    for (trainable, dtype, checkpointing, count) in variants {
        let text = format!(
            "path = '{}'\ntrainable = {trainable:?}\ndtype = {dtype:?}\n\
             activation_checkpointing = {checkpointing}\n",
            folder.display()
        );
        let model: ModelOptions = toml::from_str(&text).unwrap();
        let optimizer = OptimizerConfig::with_learning_rate(1e-6);
        let (mut decoder, mut learner) = Learner::load(&model, &optimizer, false, 1, None).unwrap();
        let sequences = episodes(count);
        let members: Vec<usize> = (0..count).collect();
        let micro_batch = MicroBatchConfig::default();
        let options = UpdateOptions {
            learning_rate: 1e-6,
            aggregation: Aggregation::TokenMean,
            pass: PassOptions {
                activation_checkpointing: checkpointing,
                logit_rows: micro_batch.logit_rows,
                temperature: 1.0,
                entropy_gradient: false,
            },
            micro_batch,
        };
        for round in 0..3 {
            let (started, cpu) = (Instant::now(), cpu_seconds());
            let update = learner
                .update(
                    &mut decoder,
                    &sequences,
                    &members,
                    &options,
                    |input| -(input.logprobs * input.weights).sum(Kind::Float),
                    |_, _| {},
                )
                .unwrap();
            let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu);
            println!(
                "{trainable} {dtype} checkpointing {checkpointing} round {round}: {:.0} tokens/s, {seconds:.2} s, \
                 {:.0} tokens a processor second, loss {:.4}, gradient norm {:.4}, peak {} MiB",
                update.read_tokens as f64 / seconds,
                update.read_tokens as f64 / cpu,
                update.loss,
                update.gradient_norm,
                peak_memory_bytes() >> 20,
            );
        }
    }
}

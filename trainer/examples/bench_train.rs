//! Times whole training steps (forward, backward, clipping, AdamW) on a batch read from a file; the peer of
//! `scripts/peers/train_step.py`.
//!
//! `bench_train MODEL BATCH.json STEPS [all|upper:N|lora] [f32|bf16] [checkpointing]` prints one JSON object: the seconds of
//! each step after one that warms up, tokens of a step, losses, peak memory.
#![expect(clippy::print_stdout, reason = "prints its measurements")]

use std::time::Instant;

use drgym_trainer::algorithm::aggregate::Aggregation;
use drgym_trainer::batch::Sequence;
use drgym_trainer::config::{MicroBatchConfig, ModelOptions, OptimizerConfig};
use drgym_trainer::device::set_threads;
use drgym_trainer::forward_backward::PassOptions;
use drgym_trainer::learner::{self, Learner, UpdateOptions};
use drgym_trainer::metrics::peak_memory_bytes;
use tch::Kind;

/// One sequence of the batch: its tokens, and the positions that are learnt.
#[derive(serde::Deserialize)]
struct Row {
    ids: Vec<u32>,
    positions: Vec<u32>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, batch, steps, rest @ ..] = arguments.as_slice() else {
        return Err("usage: bench_train MODEL BATCH.json STEPS [PART] [DTYPE] [checkpointing]".into());
    };
    let steps: usize = steps.parse()?;
    let option = |index: usize, default: &str| rest.get(index).map_or(default, String::as_str).to_owned();
    let checkpointing = option(2, "") == "checkpointing";
    let threads = std::env::var("DRGYM_BENCH_THREADS")?;
    let text = format!(
        "path = {model:?}\nthreads = {threads}\ntrainable = {:?}\ndtype = {:?}\nactivation_checkpointing = {checkpointing}\n",
        option(0, "all"),
        option(1, "f32")
    );
    let model: ModelOptions = toml::from_str(&text)?;
    set_threads(learner::threads(&model));
    let rows: Vec<Row> = serde_json::from_slice(&std::fs::read(batch)?)?;
    let tokens: usize = rows.iter().map(|row| row.ids.len()).sum();
    let sequences: Vec<Sequence> = rows
        .into_iter()
        .enumerate()
        .map(|(episode, row)| Sequence {
            episode,
            behaviour_logprobs: vec![-1.0; row.positions.len()],
            ids: row.ids,
            positions: row.positions,
        })
        .collect();
    let members: Vec<usize> = (0..sequences.len()).collect();
    let optimizer = OptimizerConfig::with_learning_rate(1e-6);
    let (mut decoder, mut learner) = Learner::load(&model, &optimizer, false, 1, None)?;
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
    let (mut seconds, mut losses) = (Vec::new(), Vec::new());
    for _ in 0..=steps {
        let started = Instant::now();
        let update = learner.update(
            &mut decoder,
            &sequences,
            &members,
            &options,
            |input| -(input.logprobs * input.weights).sum(Kind::Float),
            |_, _| {},
        )?;
        seconds.push(started.elapsed().as_secs_f64());
        losses.push(update.loss);
    }
    let report = serde_json::json!({
        "tokens": tokens, "seconds": seconds[1..], "losses": losses, "peak_bytes": peak_memory_bytes(),
        "threads": tch::get_num_threads(), "torch": libtorch_version()?,
    });
    println!("{report}");
    Ok(())
}

/// The version of the libtorch that this was built with.
fn libtorch_version() -> Result<String, Box<dyn std::error::Error>> {
    let folder = std::env::var("LIBTORCH")?;
    Ok(std::fs::read_to_string(std::path::Path::new(&folder).join("build-version"))?.trim().to_owned())
}

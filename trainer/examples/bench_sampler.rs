//! Times greedy sampling of a batch of prompts, prefill included; the peer of `scripts/peers/generate.py`.
//!
//! `bench_sampler MODEL PROMPTS.json NEW_TOKENS ROUNDS` prints one JSON object: the seconds of each round after one that
//! warms up, new tokens of a round, peak memory. No end token ends a sequence, so both sides draw the same number.
#![expect(clippy::print_stdout, reason = "prints its measurements")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use drgym_env::{EpisodeKey, OpenRequest, Policy, SamplingParams};
use drgym_trainer::metrics::peak_memory_bytes;
use drgym_trainer::model::{Decoder, LoadOptions, ModelFolder, ModelThread};
use drgym_trainer::sampler::{LocalPolicy, LocalPolicyOptions, TokenBytes};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, prompts, new_tokens, rounds] = arguments.as_slice() else {
        return Err("usage: bench_sampler MODEL PROMPTS.json NEW_TOKENS ROUNDS".into());
    };
    let (max_tokens, rounds): (usize, usize) = (new_tokens.parse()?, rounds.parse()?);
    let prompts: Vec<Vec<u32>> = serde_json::from_slice(&std::fs::read(prompts)?)?;
    let folder = ModelFolder::open(Path::new(model))?;
    let token_bytes = TokenBytes::from_file(&folder.tokenizer_path())?;
    let options = LocalPolicyOptions {
        end_of_turn_ids: Vec::new(),
        ..LocalPolicyOptions::for_folder(&folder, &token_bytes)
    };
    let threads: usize = std::env::var("DRGYM_BENCH_THREADS")?.parse()?;
    let model = model.clone();
    let load = move || Decoder::load(Path::new(&model), LoadOptions::default()).map(|decoder| (decoder, ()));
    let (handle, ()) = ModelThread::spawn(threads, load)?;
    let policy = LocalPolicy::new(handle, Arc::new(token_bytes), options)?;
    let (mut seconds, mut drawn) = (Vec::new(), 0);
    for _ in 0..=rounds {
        let started = Instant::now();
        let mut requests = Vec::new();
        for (sample, prompt) in (0..).zip(&prompts) {
            let episode = EpisodeKey { task: "bench".into(), sample };
            let request = OpenRequest { prompt_ids: prompt.clone(), episode, turn: 0 };
            let params = SamplingParams { temperature: 0.0, max_tokens, stop: Vec::new(), seed: 0 };
            requests.push((policy.open(request).await?, params));
        }
        let sessions: Vec<_> = requests.iter().map(|(session, _)| *session).collect();
        drawn = 0;
        for sampled in policy.sample_round(requests).await {
            drawn += sampled?.ids.len();
        }
        seconds.push(started.elapsed().as_secs_f64());
        for session in sessions {
            policy.close(session).await;
        }
    }
    let report = serde_json::json!({
        "new_tokens": drawn, "seconds": seconds[1..], "peak_bytes": peak_memory_bytes(),
        "threads": threads, "torch": libtorch_version()?,
    });
    println!("{report}");
    Ok(())
}

/// The version of the libtorch that this was built with.
fn libtorch_version() -> Result<String, Box<dyn std::error::Error>> {
    let folder = std::env::var("LIBTORCH")?;
    Ok(std::fs::read_to_string(Path::new(&folder).join("build-version"))?.trim().to_owned())
}

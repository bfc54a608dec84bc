//! How fast an encoder works through a corpus, as `drgym index build` uses it.
//!
//! `cargo run --release -p drgym-search --features engine --example encoding_speed -- ENCODER FORMAT CORPUS CHUNK LIMIT [THREADS]`

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use std::path::PathBuf;
use std::time::Instant;

use drgym_search::encoder::{BertEncoder, Encoder, EncoderOptions};
use drgym_search::index::{BuildRequest, build_with_encoder};
use drgym_search::local::LocalBackend;
use drgym_search::{FlatIndex, SearchBackend};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [encoder, format, corpus, chunk, limit, threads @ ..] = arguments.as_slice() else {
        return Err("expected ENCODER FORMAT CORPUS CHUNK LIMIT [THREADS]".into());
    };
    let threads = threads.first().map(|threads| threads.parse()).transpose()?;
    let options = EncoderOptions { threads, ..EncoderOptions::default() };
    let folder = tempfile::tempdir()?;
    let request = BuildRequest {
        corpus: vec![PathBuf::from(corpus)],
        format: format.parse()?,
        encoder: PathBuf::from(encoder),
        encoder_options: options.clone(),
        chunking: chunk.parse()?,
        out: folder.path().join("index"),
        overwrite: false,
        limit: Some(limit.parse()?),
    };
    let started = Instant::now();
    let encoder = BertEncoder::load(&request.encoder, &options)?;
    println!("encoder loaded in {:.2} s", started.elapsed().as_secs_f64());

    let built = build_with_encoder(&request, &encoder, &|_| ())?;
    println!(
        "{} documents, {} chunks in {:.2} s: {:.1} documents/s, {:.1} chunks/s",
        built.documents,
        built.chunks,
        built.seconds,
        built.documents as f64 / built.seconds,
        built.chunks as f64 / built.seconds
    );

    let index = FlatIndex::open(&request.out)?;
    let query = encoder.encode_query("a query to warm up")?;
    let started = Instant::now();
    for _ in 0..100 {
        index.search(&query, 10);
    }
    println!("exact search: {:.3} ms", started.elapsed().as_secs_f64() * 10.0);

    let backend = LocalBackend::new(index, std::sync::Arc::new(encoder))?;
    let started = Instant::now();
    for i in 0..50 {
        backend.search(&format!("What is the highest mountain of country number {i}?"), 10).await?;
    }
    println!("search with encoding of the query: {:.2} ms", started.elapsed().as_secs_f64() * 20.0);
    Ok(())
}

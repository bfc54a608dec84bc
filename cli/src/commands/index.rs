//! `drgym index`.

use drgym_search::chunk::Chunking;
use drgym_search::corpus::CorpusFormat;
use drgym_search::encoder::{self, EncoderOptions};
use drgym_search::evaluate::{EvaluateOptions, evaluate, read_qrels, read_queries};
use drgym_search::index::{self, BuildRequest};

use super::search::settings;
use crate::arguments::{
    Format, IndexBuildArguments, IndexCommand, IndexEvalArguments, IndexFolderArguments, Pooling,
};
use crate::failure::{Failure, Outcome, WithHint};
use crate::printer::Printer;
use crate::{backend, paths};

/// Builds, inspects and measures indexes.
pub async fn run(command: IndexCommand, printer: Printer) -> Outcome {
    match command {
        IndexCommand::Build(arguments) => build(arguments, printer).await,
        IndexCommand::Info(arguments) => info(&arguments, printer),
        IndexCommand::Verify(arguments) => verify(&arguments, printer),
        IndexCommand::Eval(arguments) => measure(arguments, printer).await,
    }
}

async fn build(arguments: IndexBuildArguments, printer: Printer) -> Outcome {
    let chunking: Chunking = arguments.chunk.parse().map_err(Failure::new)?;
    let folder = arguments.encoder.unwrap_or_else(|| paths::home().join("models/all-minilm-l6-v2"));
    if !folder.is_dir() {
        return Err(Failure::new(format!("there is no encoder folder {}", folder.display())))
            .hint("run scripts/setup.sh, or name a BERT-family Hugging Face folder with --encoder");
    }
    let encoder_options = EncoderOptions {
        pooling: arguments.pooling.map(|pooling| match pooling {
            Pooling::Mean => encoder::Pooling::Mean,
            Pooling::Cls => encoder::Pooling::Cls,
        }),
        query_prefix: arguments.query_prefix,
        passage_prefix: arguments.passage_prefix,
        max_sequence: arguments.max_tokens,
        threads: arguments.threads,
    };
    if let Some(told) = encoder::missing_prefixes(&folder, &encoder_options)? {
        printer.say(&format!("warning: {told}; give them with --query-prefix and --passage-prefix"));
    }
    let request = BuildRequest {
        corpus: arguments.corpus.iter().map(|path| paths::expand(path)).collect(),
        format: match arguments.format {
            Format::Jsonl => CorpusFormat::Jsonl,
            Format::Factbook => CorpusFormat::Factbook,
        },
        encoder: folder,
        encoder_options,
        chunking,
        out: arguments.out,
        overwrite: arguments.overwrite,
        limit: arguments.limit,
    };
    let bar = printer.bar("encode", 0);
    let summary = tokio::task::spawn_blocking(move || {
        let summary = index::build(&request, &|progress| {
            bar.set(progress.documents, format!("documents, {} chunks", progress.chunks));
        });
        bar.finish();
        summary
    })
    .await??;
    if arguments.json {
        return printer.json(&summary);
    }
    printer.say(&format!(
        "{} documents in {} chunks, {:.0} s, index {}",
        summary.documents, summary.chunks, summary.seconds, summary.hash
    ));
    Ok(())
}

fn info(arguments: &IndexFolderArguments, printer: Printer) -> Outcome {
    let info = index::info(&arguments.index)?;
    if arguments.json {
        return printer.json(&info);
    }
    let manifest = &info.manifest;
    printer.data(&format!("index      {}", info.hash));
    printer.data(&format!("documents  {}", manifest.documents));
    printer.data(&format!("chunks     {} (chunking {})", manifest.chunks, manifest.chunking));
    let encoder = &manifest.encoder;
    printer.data(&format!(
        "encoder    {}, {} dimensions, {} tokens, fingerprint {}",
        encoder.name, encoder.dimension, encoder.max_tokens, encoder.fingerprint
    ));
    if !encoder.overrides.overrides_nothing() {
        printer.data(&format!("loaded as  {}", serde_json::to_string(&encoder.overrides)?));
    }
    printer.data(&format!("corpus     {}", manifest.corpus.content));
    printer.data(&format!("size       {:.1} MB", info.bytes as f64 / 1e6));
    Ok(())
}

fn verify(arguments: &IndexFolderArguments, printer: Printer) -> Outcome {
    let corruptions = index::verify(&arguments.index)?;
    if arguments.json {
        let list: Vec<_> = corruptions
            .iter()
            .map(|corruption| serde_json::json!({"file": corruption.file, "reason": corruption.reason}))
            .collect();
        printer.json(&serde_json::json!({"whole": list.is_empty(), "corruptions": list}))?;
    } else if corruptions.is_empty() {
        printer.data(&format!("{} is whole", arguments.index.display()));
    }
    if corruptions.is_empty() {
        return Ok(());
    }
    let list: Vec<String> =
        corruptions.iter().map(|corruption| format!("{} ({})", corruption.file, corruption.reason)).collect();
    Err(Failure::new(format!("{} is damaged: {}", arguments.index.display(), list.join(", "))))
        .hint("build the index again; the corpus and settings stand in its manifest.json")
}

async fn measure(arguments: IndexEvalArguments, printer: Printer) -> Outcome {
    let backend = backend::open(&settings(&arguments.search)).await?;
    let queries = read_queries(&arguments.queries)?;
    let qrels = read_qrels(&arguments.qrels)?;
    let mut recall_cutoffs = vec![10, arguments.k];
    recall_cutoffs.dedup();
    let options = EvaluateOptions { recall_cutoffs, ..EvaluateOptions::default() };
    let report = evaluate(backend.as_ref(), None, &queries, &qrels, &options).await?;
    if arguments.json {
        return printer.json(&report);
    }
    for (name, value) in &report.metrics {
        printer.data(&format!("{name:<14} {value:.4}"));
    }
    Ok(())
}

//! `drgym synth`.

use drgym_search::Provenance;
use drgym_synth::{SynthInputs, SynthProgress};

use crate::arguments::SynthArguments;
use crate::backend;
use crate::config::Config;
use crate::failure::{Failure, Outcome, WithHint};
use crate::printer::Printer;

/// Makes tasks from the corpus; with a search engine named, only such whose evidence it finds.
pub async fn run(arguments: SynthArguments, printer: Printer) -> Outcome {
    let config = Config::read(Some(&arguments.config.config), &arguments.config.set)?;
    let name = arguments.config.config.display();
    let corpus =
        config.corpus.as_ref().ok_or_else(|| Failure::new(format!("{name} has no [corpus] section")));
    let corpus = corpus
        .hint("name the folder of the World Factbook: [corpus] path = \"$DRGYM_HOME/corpora/factbook\"")?;
    let mut synth = config.synth.clone().unwrap_or_default();
    if config.synth.is_none() {
        synth.seed = config.seed;
    }
    let searches = config.search.index.is_some() || config.search.url.is_some();
    let backend = if searches { Some(backend::open(&config.search).await?) } else { None };
    let corpus_hash = match backend.as_ref().and_then(|backend| backend.provenance()) {
        Some(Provenance::Index { hash } | Provenance::Recorded { hash }) => hash,
        _ => String::new(),
    };
    let inputs =
        SynthInputs { corpus_dir: corpus.path.clone(), corpus_hash, backend, out_dir: arguments.out.clone() };
    let wanted = synth.counts.train + synth.counts.dev + synth.counts.test;
    let bar = printer.bar("synthesise", wanted as u64);
    let finished = std::sync::Mutex::new(std::collections::HashMap::new());
    let report = drgym_synth::run(&synth, &inputs, &|progress| match progress {
        SynthProgress::Read { entities, facts } => {
            printer.say(&format!("read {entities} entities, {facts} facts"));
        }
        SynthProgress::Checked { candidates, passed } => {
            printer
                .say(&format!("{passed} of {candidates} candidate questions pass the checks without search"));
        }
        SynthProgress::Chosen { split, tasks, .. } => {
            // A poisoned lock only costs a progress message.
            if let Ok(mut finished) = finished.lock() {
                finished.insert(split.name(), tasks as u64);
                bar.set(finished.values().sum(), split.name());
            }
        }
    })
    .await?;
    bar.finish();
    if arguments.json {
        return printer.json(&report);
    }
    for (split, part) in &report.splits {
        printer.say(&format!("{:<5} {} tasks about {} entities", split.name(), part.tasks, part.entities));
    }
    Ok(())
}

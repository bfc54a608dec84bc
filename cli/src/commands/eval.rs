//! `drgym eval`.

use std::sync::Arc;
use std::time::Instant;

use drgym_env::{EnvConfig, Event, Task, Trace};
use drgym_eval::results::{RESULTS_VERSION, traces_hash};
use drgym_eval::{EvaluationRequest, Rate, Results, Summary, benchmark, evaluate};
use drgym_search::{Provenance, SearchBackend};

use crate::arguments::EvalArguments;
use crate::config::Config;
use crate::failure::{Failure, Outcome, WithHint};
use crate::printer::Printer;
use crate::{backend, rollouts};

/// Evaluates a policy on a benchmark and writes a results folder.
pub async fn run(arguments: EvalArguments, printer: Printer) -> Outcome {
    if arguments.list {
        for benchmark in benchmark::all() {
            printer.data(&format!(
                "{:<8} {} (licence: {})",
                benchmark.name(),
                benchmark.description(),
                benchmark.licence()
            ));
        }
        return Ok(());
    }
    let required = |name| Failure::new(format!("--{name} is missing"));
    let data = arguments.data.as_deref().ok_or_else(|| required("data"))?;
    let out = arguments.out.as_deref().ok_or_else(|| required("out"))?;
    let policy_name = arguments.policy.as_deref().ok_or_else(|| required("policy"))?;

    let mut config = Config::read(arguments.config.as_deref(), &arguments.set)?;
    let mut tasks: Vec<Arc<Task>> =
        benchmark::by_name(&arguments.benchmark)?.load(data)?.into_iter().map(Arc::new).collect();
    tasks.truncate(arguments.limit.unwrap_or(usize::MAX));
    let data_hash = blake3::hash(&std::fs::read(data)?).to_hex().to_string();
    let backend = open_search(&arguments, &mut config).await?;
    let episodes =
        rollouts::open(&config, policy_name, &tasks, arguments.samples, backend.clone(), printer).await?;
    let request = EvaluationRequest {
        tasks,
        samples: arguments.samples,
        temperature: arguments.temperature,
        seed: config.seed,
    };
    let started = Instant::now();
    let (summary, traces) = evaluate(&episodes.scheduler, episodes.policy.clone(), request).await?;
    episodes.bar.finish();

    let results = Results {
        version: RESULTS_VERSION,
        program: format!("drgym {}", env!("CARGO_PKG_VERSION")),
        benchmark: arguments.benchmark,
        data_hash,
        policy: episodes.policy.info().name,
        search: if config.env.search { backend.name() } else { "none".into() },
        search_hash: search_hash(&traces),
        judge: drgym_judge::build(&config.judge)?.name(),
        seed: config.seed,
        temperature: arguments.temperature,
        samples: arguments.samples,
        env: EnvConfig::clone(&episodes.env),
        summary,
        traces_hash: traces_hash(&traces),
        seconds: started.elapsed().as_secs_f64(),
    };
    results.write(out, &traces)?;
    if arguments.json {
        return printer.json(&results);
    }
    print_summary(&results.summary, printer);
    printer.say(&format!("results and traces in {}", out.display()));
    Ok(())
}

async fn open_search(arguments: &EvalArguments, config: &mut Config) -> Outcome<Arc<dyn SearchBackend>> {
    match arguments.search.as_deref() {
        Some("none") => {
            config.env.search = false;
            Ok(Arc::new(NoSearch))
        }
        Some(text) => {
            let named = backend::parse(text);
            config.search.index = named.index;
            config.search.url = named.url;
            backend::open(&config.search).await
        }
        None if !config.env.search => Ok(Arc::new(NoSearch)),
        None => backend::open(&config.search)
            .await
            .hint("name an index folder or URL with --search, or `--search none`"),
    }
}

/// The hash of the one index or recording that answered every search; `None` for live engines, or without searches.
fn search_hash(traces: &[Trace]) -> Option<String> {
    let mut hashes = traces.iter().flat_map(|trace| &trace.events).filter_map(|event| match event {
        Event::Search { provenance, .. } => Some(match provenance {
            Provenance::Index { hash } | Provenance::Recorded { hash } => Some(hash),
            Provenance::Live { .. } => None,
        }),
        _ => None,
    });
    let first = hashes.next()??;
    hashes.all(|hash| hash == Some(first)).then(|| first.clone())
}

/// Stands where the environment never searches.
struct NoSearch;

#[async_trait::async_trait]
impl SearchBackend for NoSearch {
    async fn search(
        &self,
        _: &str,
        _: usize,
    ) -> Result<drgym_search::SearchResponse, drgym_search::SearchError> {
        Err(drgym_search::SearchError::Internal("search is switched off".into()))
    }

    async fn fetch(
        &self,
        _: &drgym_search::PageRequest,
    ) -> Result<drgym_search::Page, drgym_search::SearchError> {
        Err(drgym_search::SearchError::Internal("search is switched off".into()))
    }

    fn name(&self) -> String {
        "none".into()
    }
}

fn print_summary(summary: &Summary, printer: Printer) {
    let line = |name: &str, rate: &Rate| {
        printer.data(&format!(
            "{name:<24} {:5.1} %  [{:.1}, {:.1}]  {} of {}",
            100.0 * rate.value,
            100.0 * rate.interval.low,
            100.0 * rate.interval.high,
            rate.correct,
            rate.n
        ));
    };
    match &summary.accuracy {
        Some(rate) => line("accuracy", rate),
        None => printer.data("accuracy                 no episode could be scored"),
    }
    for (name, rate) in &summary.by_kind {
        line(&format!("  kind {name}"), rate);
    }
    for (name, rate) in &summary.by_phrasing {
        line(&format!("  phrasing {name}"), rate);
    }
    let means = &summary.means;
    printer.data(&format!(
        "per episode: {:.2} searches ({:.2} repeated), {:.2} turns, {:.2} invalid, {:.1} tokens drawn, {:.1} read",
        means.searches,
        means.repeated_searches,
        means.turns,
        means.invalid_actions,
        means.sampled_tokens,
        means.read_tokens
    ));
    let failures = &summary.failures;
    printer.data(&format!(
        "wrong {}, no answer {} (turns) + {} (context); excluded: search {}, policy {}, judge {}, environment {}",
        failures.wrong_answer,
        failures.turn_limit,
        failures.context_limit,
        failures.search_failed,
        failures.policy_failed,
        failures.judge_failed,
        failures.environment_failed
    ));
}

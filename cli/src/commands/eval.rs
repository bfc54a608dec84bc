//! `drgym eval`.

use std::sync::Arc;
use std::time::Instant;

use drgym_env::{EnvConfig, Event, Task, Trace};
use drgym_eval::results::{Place, RESULTS_VERSION, traces_hash};
use drgym_eval::statistics::Interval;
use drgym_eval::{EvaluationRequest, Rate, Results, Summary, benchmark, check_episodes, evaluate};
use drgym_search::Provenance;

use crate::arguments::EvalArguments;
use crate::config::Config;
use crate::failure::{Failure, Outcome, WithHint};
use crate::printer::Printer;
use crate::rollouts;

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
    check_episodes(tasks.len(), arguments.samples, arguments.temperature)?;
    let data_hash = blake3::hash(&std::fs::read(data)?).to_hex().to_string();
    let judge = drgym_judge::build(&config.judge)?.name();
    // Hours of episodes must not end at a folder that cannot be written.
    let _place = Place::folder(out)?;
    if !arguments.overwrite && Results::is_in(out) {
        return Err(Failure::new(format!("{} holds an evaluation already", out.display())))
            .hint("choose another folder, or replace it with --overwrite");
    }
    let backend = rollouts::open_search(arguments.search.as_deref(), &mut config).await?;
    let episodes =
        rollouts::open(&config, policy_name, &tasks, arguments.samples, backend.clone(), printer).await?;
    let hashed = policy_name.to_owned();
    let model_hash = tokio::task::spawn_blocking(move || rollouts::model_hash(&hashed)).await??;
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
        program: format!("drgym {}", crate::VERSION),
        benchmark: arguments.benchmark,
        data_hash,
        policy: episodes.policy.info().name,
        policy_source: Some(policy_name.to_owned()),
        model_hash,
        limit: arguments.limit,
        config: Some(config.to_toml()?),
        search: if config.env.search { backend.name() } else { "none".into() },
        search_hash: if config.env.search {
            search_hash(&traces, backend.provenance().as_ref())
        } else {
            None
        },
        judge,
        seed: config.seed,
        temperature: arguments.temperature,
        samples: arguments.samples,
        env: EnvConfig::clone(&episodes.env),
        summary,
        traces_hash: traces_hash(&traces),
        seconds: started.elapsed().as_secs_f64(),
    };
    let acceptance = refuse_exclusions(&results.summary, arguments.max_excluded);
    let written = if acceptance.is_ok() { "results" } else { "refused results" };
    match acceptance {
        Ok(()) => results.write(out, &traces)?,
        Err(_) => results.write_refused(out, &traces)?,
    }
    if arguments.json {
        printer.json(&results)?;
    } else {
        print_summary(&results.summary, printer);
        printer.say(&format!("{written} and traces in {}", out.display()));
    }
    acceptance
}

/// A failure where so much was excluded that the accuracy says little about the policy.
fn refuse_exclusions(summary: &Summary, max_excluded: f64) -> Outcome {
    let too_many = if summary.accuracy.is_none() {
        "none could be scored".to_owned()
    } else if summary.excluded_share() > max_excluded {
        format!("more than the share of {max_excluded} that --max-excluded allows")
    } else {
        return Ok(());
    };
    let causes: Vec<String> = summary
        .failures
        .excluded_by_cause()
        .into_iter()
        .filter(|&(_, count)| count > 0)
        .map(|(cause, count)| format!("{cause} {count}"))
        .collect();
    Err(Failure::new(format!(
        "{} of {} episodes were excluded ({}): {too_many}",
        summary.excluded,
        summary.episodes,
        causes.join(", ")
    )))
    .hint("refused-traces.jsonl says of each episode what failed; mend it and evaluate again")
}

/// The hash of the one index or recording that answered every search, or would have; `None` for live engines.
fn search_hash(traces: &[Trace], would_have: Option<&Provenance>) -> Option<String> {
    let hash_of = |provenance: &Provenance| match provenance {
        Provenance::Index { hash } | Provenance::Recorded { hash } => Some(hash.clone()),
        Provenance::Live { .. } => None,
    };
    let mut hashes = traces.iter().flat_map(|trace| &trace.events).filter_map(|event| match event {
        Event::Search { provenance, .. } => Some(hash_of(provenance)),
        _ => None,
    });
    let Some(first) = hashes.next() else { return would_have.and_then(hash_of) };
    hashes.all(|hash| hash == first).then_some(first).flatten()
}

fn print_summary(summary: &Summary, printer: Printer) {
    let line = |name: &str, rate: &Rate| {
        let excluded = match rate.bounds {
            Some(bounds) => format!("; {} excluded: {}", rate.excluded, between(bounds)),
            None => String::new(),
        };
        printer.data(&format!(
            "{name:<24} {:5.1} %  [{:.1}, {:.1}]  {} of {}{excluded}",
            100.0 * rate.value,
            100.0 * rate.interval.low,
            100.0 * rate.interval.high,
            rate.correct,
            rate.n
        ));
    };
    match (&summary.accuracy, summary.bounds) {
        (Some(rate), _) => line("accuracy", rate),
        (None, Some(bounds)) => printer.data(&format!(
            "accuracy                 no episode could be scored; {} excluded: {}",
            summary.excluded,
            between(bounds)
        )),
        (None, None) => printer.data("accuracy                 no episode could be scored"),
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

/// What an accuracy could be, whatever the excluded episodes would have been.
fn between(bounds: Interval) -> String {
    format!("{:.1} % if all were wrong, {:.1} % if all were right", 100.0 * bounds.low, 100.0 * bounds.high)
}

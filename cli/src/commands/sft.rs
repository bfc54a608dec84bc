//! `drgym sft`.

use std::sync::Arc;

use drgym_env::task::read_tasks;
use drgym_env::{Expert, Renderer, RolloutRequest, Rollouts, ScriptedPolicy, Task, Trace};
use drgym_eval::results::read_traces;
use drgym_trainer::sft::{self, SftRun};
use rand::seq::SliceRandom;

use crate::arguments::TrainArguments;
use crate::config::Config;
use crate::failure::{Failure, Outcome, WithHint};
use crate::printer::Printer;
use crate::{backend, interrupt, rollouts};

/// Fine-tunes a model on successful expert episodes.
pub async fn run(arguments: TrainArguments, printer: Printer) -> Outcome {
    let source = &arguments.config;
    let config = Config::read(Some(&source.config), &source.set)?;
    let section = config
        .sft
        .clone()
        .ok_or_else(|| Failure::new(format!("{} has no [sft] section", source.config.display())))?;
    let examples = demonstrations(&config, &section.model.path, printer).await?;
    printer.say(&format!("{} expert traces to learn from", examples.len()));

    let cancel = interrupt::cancel_flag(printer);
    let resolved_config_toml = config.to_toml()?;
    let (out, resume, seed) = (arguments.out.clone(), arguments.resume, config.seed);
    let report = tokio::task::spawn_blocking(move || {
        let mut shown = None::<crate::printer::Bar>;
        let mut progress = |progress: &sft::SftProgress| {
            let bar = shown.get_or_insert_with(|| printer.bar("sft", progress.steps));
            let loss = progress
                .metrics
                .update
                .loss
                .map_or_else(|| "skipped".into(), |loss| format!("loss {loss:.3}"));
            let speed = progress.metrics.timings.train_tokens_per_second;
            bar.set(progress.step, format!("{loss}, {speed:.0} tokens/s"));
        };
        let run = SftRun {
            config: section,
            examples,
            out,
            resume,
            seed,
            resolved_config_toml,
            progress: &mut progress,
            cancel,
        };
        let report = sft::run(run);
        if let Some(bar) = shown {
            bar.finish();
        }
        report
    })
    .await??;
    if arguments.json {
        printer.json(&serde_json::json!({
            "step": report.step,
            "steps": report.steps,
            "cancelled": report.cancelled,
            "last_loss": report.last_loss,
            "trained_parameters": report.trained_parameters,
            "checkpoint": report.checkpoint.path,
        }))?;
    } else {
        printer.say(&format!(
            "step {} of {}; the model is in {}",
            report.step,
            report.steps,
            report.checkpoint.path.display()
        ));
    }
    if report.cancelled { Err(Failure::interrupted(report.step, report.steps)) } else { Ok(()) }
}

/// Successful episodes of the expert on training tasks in a seeded order, or those of a file.
async fn demonstrations(config: &Config, model: &std::path::Path, printer: Printer) -> Outcome<Vec<Trace>> {
    let wanted = &config.demonstrations;
    let right = |trace: &Trace| trace.correct == Some(true);
    let mut found = match &wanted.traces {
        Some(path) => read_traces(path)?.into_iter().filter(right).collect::<Vec<_>>(),
        None => play_expert(config, model, printer).await?.into_iter().filter(right).collect(),
    };
    if found.len() < wanted.skip + wanted.count {
        return Err(Failure::new(format!(
            "only {} expert episodes are right, {} are asked for after skipping {}",
            found.len(),
            wanted.count,
            wanted.skip
        )))
        .hint("make more training tasks, or lower demonstrations.count");
    }
    found.drain(..wanted.skip);
    found.truncate(wanted.count);
    Ok(found)
}

async fn play_expert(config: &Config, model: &std::path::Path, printer: Printer) -> Outcome<Vec<Trace>> {
    let path = config.tasks.train.as_ref().ok_or_else(|| Failure::new("tasks.train is not set"));
    let path = path
        .hint("name the tasks file that `drgym synth` wrote, or a file of traces in demonstrations.traces")?;
    let mut tasks: Vec<Arc<Task>> = read_tasks(path)?.into_iter().map(Arc::new).collect();
    let seed = drgym_env::seed::derive_seed(config.seed, "demonstrations", 0, "", 0);
    tasks.shuffle(&mut drgym_env::seed::generator(seed));
    let env = Arc::new(config.env.clone());
    let renderer = Arc::new(Renderer::for_model(model, env.clone())?);
    let backend = backend::open(&config.search).await?;
    let cancel = interrupt::cancel_flag(printer);
    let scheduler = rollouts::scheduler(config, renderer.clone(), env, backend, cancel)?;
    let expert = Expert::new(tasks.iter().cloned(), &renderer);
    let policy: Arc<dyn drgym_env::Policy> = Arc::new(ScriptedPolicy::new(expert, renderer));
    // In portions, since most training files hold far more tasks than are wanted.
    let (goal, mut traces, mut right) =
        (config.demonstrations.skip + config.demonstrations.count, Vec::new(), 0);
    let bar = printer.bar("expert", goal as u64);
    for portion in tasks.chunks(64) {
        let request = RolloutRequest {
            tasks: portion.to_vec(),
            samples: 1,
            temperature: 0.0,
            root_seed: config.seed,
            step: 0,
            component: "demonstrations",
        };
        let played = scheduler.run(policy.clone(), request).await?;
        right += played.iter().filter(|trace| trace.correct == Some(true)).count();
        traces.extend(played);
        bar.set(right.min(goal) as u64, "");
        if right >= goal {
            break;
        }
    }
    bar.finish();
    Ok(traces)
}

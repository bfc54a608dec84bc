//! `drgym rollout`.

use std::sync::Arc;

use drgym_env::task::read_tasks;
use drgym_env::{RolloutRequest, Rollouts};
use drgym_eval::results::write_traces;

use crate::arguments::RolloutArguments;
use crate::config::Config;
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::{backend, rollouts};

/// Plays episodes and writes their traces.
pub async fn run(arguments: RolloutArguments, printer: Printer) -> Outcome {
    let config = Config::read(Some(&arguments.config.config), &arguments.config.set)?;
    let mut tasks: Vec<Arc<_>> = read_tasks(&arguments.tasks)?.into_iter().map(Arc::new).collect();
    tasks.truncate(arguments.limit.unwrap_or(usize::MAX));
    let backend = backend::open(&config.search).await?;
    let episodes =
        rollouts::open(&config, &arguments.policy, &tasks, arguments.samples, backend, printer).await?;
    let request = RolloutRequest {
        tasks,
        samples: arguments.samples,
        temperature: arguments.temperature,
        root_seed: config.seed,
        step: 0,
        component: "rollout",
    };
    let traces = episodes.scheduler.run(episodes.policy, request).await?;
    episodes.bar.finish();
    write_traces(&arguments.out, &traces)?;
    let correct = traces.iter().filter(|trace| trace.correct == Some(true)).count();
    printer.say(&format!("{} episodes, {correct} right, in {}", traces.len(), arguments.out.display()));
    Ok(())
}

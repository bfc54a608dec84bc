//! `drgym rollout`.

use std::sync::Arc;

use drgym_env::task::read_tasks;
use drgym_env::{RolloutRequest, Rollouts};
use drgym_eval::results::{Place, write_traces};
use drgym_eval::{Summary, check_episodes};

use crate::arguments::RolloutArguments;
use crate::config::Config;
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::rollouts;

/// Plays episodes and writes their traces.
pub async fn run(arguments: RolloutArguments, printer: Printer) -> Outcome {
    let mut config = Config::read(Some(&arguments.config.config), &arguments.config.set)?;
    let mut tasks: Vec<Arc<_>> = read_tasks(&arguments.tasks)?.into_iter().map(Arc::new).collect();
    tasks.truncate(arguments.limit.unwrap_or(usize::MAX));
    check_episodes(tasks.len(), arguments.samples, arguments.temperature)?;
    // Hours of episodes must not end at a file that cannot be written.
    let _place = Place::file(&arguments.out)?;
    let backend = rollouts::open_search(arguments.search.as_deref(), &mut config).await?;
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
    let summary = Summary::of(&traces)?;
    printer.say(&format!(
        "{} episodes, {} right, {} excluded, in {}",
        traces.len(),
        summary.accuracy.map_or(0, |rate| rate.correct),
        summary.excluded,
        arguments.out.display()
    ));
    Ok(())
}

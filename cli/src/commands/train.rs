//! `drgym train`.

use std::sync::Arc;

use drgym_env::task::read_tasks;
use drgym_env::{Renderer, Task};
use drgym_search::Provenance;
use drgym_trainer::grpo::{self, Ending, GrpoRun};
use drgym_trainer::model::ModelFolder;

use crate::arguments::TrainArguments;
use crate::config::Config;
use crate::failure::{Failure, Outcome, WithHint};
use crate::printer::Printer;
use crate::{backend, interrupt, rollouts};

/// How to go on where a guard ended a run: resuming it ends it again.
const PAST_A_GUARD: &str = "start a new run with grpo.model.path at an earlier checkpoint of this one; --resume does \
                            not go on past a guard";

/// Trains a model by GRPO.
pub async fn run(arguments: TrainArguments, printer: Printer) -> Outcome {
    let source = &arguments.config;
    let config = Config::read(Some(&source.config), &source.set)?;
    let name = source.config.display();
    let section = config.grpo.clone().ok_or_else(|| Failure::new(format!("{name} has no [grpo] section")))?;
    let tasks = |path: &std::path::Path| -> Outcome<Vec<Arc<Task>>> {
        Ok(read_tasks(path)?.into_iter().map(Arc::new).collect())
    };
    let train = config.tasks.train.as_deref().ok_or_else(|| Failure::new("tasks.train is not set"));
    let train = tasks(train.hint("name the tasks file that `drgym synth` wrote")?)?;
    let mut dev = config.tasks.dev.as_deref().map(tasks).transpose()?.unwrap_or_default();
    dev.truncate(config.tasks.dev_limit.unwrap_or(usize::MAX));

    ModelFolder::open(&section.model.path)
        .hint("grpo.model.path must be a Hugging Face model folder, usually a checkpoint of `drgym sft`")?;
    let env = Arc::new(config.env.clone());
    let renderer = Arc::new(Renderer::for_model(&section.model.path, env.clone())?);
    let backend = backend::open(&config.search).await?;
    let cancel = interrupt::cancel_flag(printer);
    // Of the search engine the configuration knows only the place; what stands there must not change within a run.
    let searched = match backend.provenance() {
        Some(Provenance::Index { hash } | Provenance::Recorded { hash }) => format!("# searched: {hash}\n"),
        Some(Provenance::Live { .. }) | None => String::new(),
    };
    let scheduler = rollouts::scheduler(&config, renderer, env, backend, cancel.clone())?;

    let policy = grpo::local_policy(section.model.clone());
    let bar = printer.bar("grpo", section.steps);
    let mut progress = |progress: &grpo::GrpoProgress| {
        let metrics = &progress.metrics;
        let percent =
            |value: Option<f64>| value.map_or_else(|| "–".into(), |value| format!("{:.0} %", 100.0 * value));
        let dev =
            metrics.dev.as_ref().map_or_else(String::new, |dev| format!(", dev {}", percent(dev.accuracy)));
        let number = |value: Option<f64>| value.map_or_else(|| "–".into(), |value| format!("{value:.2}"));
        let line = format!(
            "reward {}, right {}{dev}, entropy {}",
            number(metrics.train.reward_mean),
            percent(metrics.train.accuracy),
            number(metrics.update.entropy),
        );
        bar.set(progress.step, line);
    };
    let run = GrpoRun {
        config: section,
        rollouts: Arc::new(scheduler),
        train,
        dev,
        policy,
        out: arguments.out.clone(),
        resume: arguments.resume,
        seed: config.seed,
        resolved_config_toml: config.to_toml()? + &searched,
        progress: &mut progress,
        cancel,
    };
    let report = grpo::run(run).await?;
    bar.finish();
    let best = report.best.as_ref();
    if arguments.json {
        printer.json(&serde_json::json!({
            "step": report.step,
            "steps": report.steps,
            "ending": report.ending,
            "start_accuracy": report.start_accuracy,
            "best_accuracy": best.map(|(best, _)| best.accuracy),
            "best_step": best.map(|(best, _)| best.step),
            "best": best.map(|(_, path)| path),
            "trained_parameters": report.trained_parameters,
            "checkpoint": report.checkpoint.path,
        }))?;
    } else {
        printer.say(&format!(
            "step {} of {}; last checkpoint {}",
            report.step,
            report.steps,
            report.checkpoint.path.display()
        ));
        if let Some((best, path)) = best {
            printer.say(&format!(
                "best on dev: {:.1} % after step {}, {}",
                100.0 * best.accuracy,
                best.step,
                path.display()
            ));
        }
    }
    match report.ending {
        Ending::Finished => Ok(()),
        Ending::Cancelled => Err(Failure::interrupted(report.step, report.steps)),
        Ending::KlLimit { kl, limit } => Err(Failure::new(format!(
            "stopped: the divergence of {kl:.4} nats a token exceeds grpo.guard.max_kl = {limit}"
        )))
        .hint(format!("lower the learning rate or raise grpo.kl_coefficient, and {PAST_A_GUARD}")),
        Ending::EntropyLimit { entropy, limit } => Err(Failure::new(format!(
            "stopped: the entropy of {entropy:.4} nats a token crossed the limit of {limit}"
        )))
        .hint(format!(
            "the policy is collapsing or dissolving: lower the learning rate or add an entropy bonus, and \
             {PAST_A_GUARD}"
        )),
    }
}

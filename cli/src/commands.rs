//! The verbs, one file each.

mod compare;
mod completions;
mod config;
mod doctor;
mod eval;
#[cfg(feature = "engine")]
mod index;
#[cfg(feature = "train")]
mod model;
mod rollout;
mod search;
#[cfg(feature = "engine")]
mod serve;
#[cfg(feature = "train")]
mod sft;
mod synth;
#[cfg(feature = "train")]
mod train;

use crate::arguments::Command;
use crate::failure::Outcome;
use crate::printer::Printer;

/// Runs a verb.
pub async fn run(command: Command, printer: Printer) -> Outcome {
    match command {
        #[cfg(feature = "engine")]
        Command::Index(command) => index::run(command, printer).await,
        #[cfg(feature = "engine")]
        Command::Serve(arguments) => serve::run(arguments, printer).await,
        #[cfg(not(feature = "engine"))]
        Command::Index(_) | Command::Serve(_) => {
            Err(crate::failure::Failure::new("this build of drgym has no search engine (feature `engine`)"))
        }
        Command::Search(arguments) => search::run(arguments, printer).await,
        Command::Synth(arguments) => synth::run(arguments, printer).await,
        Command::Rollout(arguments) => rollout::run(arguments, printer).await,
        Command::Eval(arguments) => eval::run(arguments, printer).await,
        Command::Compare(arguments) => compare::run(&arguments, printer),
        #[cfg(feature = "train")]
        Command::Sft(arguments) => sft::run(arguments, printer).await,
        #[cfg(feature = "train")]
        Command::Train(arguments) => train::run(arguments, printer).await,
        #[cfg(feature = "train")]
        Command::Model(command) => model::run(command, printer).await,
        Command::Config(command) => config::run(command, printer),
        Command::Doctor(arguments) => doctor::run(&arguments, printer),
        Command::Completions { shell } => {
            completions::run(shell);
            Ok(())
        }
    }
}

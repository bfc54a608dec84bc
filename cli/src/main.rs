//! `drgym`: train, evaluate and compare search agents over a local, frozen search engine.
//!
//! This file only starts things: arguments, logging, panic hook, then one verb of [`commands`].

mod arguments;
mod backend;
mod commands;
mod config;
mod failure;
mod interrupt;
#[cfg(feature = "train")]
mod local_model;
mod paths;
mod policy;
mod printer;
mod rollouts;

use clap::Parser;

use crate::arguments::Arguments;
use crate::failure::ExitStatus;
use crate::printer::Printer;

/// Version and, where it was built in a checkout, commit of the source; `+` marks one that was changed since.
const VERSION: &str = env!("DRGYM_VERSION");

fn main() -> std::process::ExitCode {
    // Arguments: clap prints usage errors itself; they are the user's, so exit 1 and not clap's 2.
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nowhere is left to report a failure to print.
            let _ = error.print();
            return if error.use_stderr() { ExitStatus::User } else { ExitStatus::Success }.into();
        }
    };
    let printer = Printer::new(arguments.quiet);

    // Logging goes to standard error, which is talk; standard output is data.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("DRGYM_LOG").unwrap_or_else(|_| "warn".into()),
        )
        .init();

    // A panic is a defect of ours: say so in one line, keep the backtrace for those who ask for it.
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            default_hook(info);
        } else {
            printer::print_error(
                &format!("internal error: {info}"),
                Some("this is a defect of drgym; run again with RUST_BACKTRACE=1 and report what it prints"),
            );
        }
    }));

    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(arguments, printer)));
    match outcome {
        Ok(Ok(())) => ExitStatus::Success.into(),
        Ok(Err(failure)) => {
            printer::print_error(&failure.message(), failure.hint());
            failure.status().into()
        }
        Err(_) => ExitStatus::Ours.into(),
    }
}

fn run(arguments: Arguments, printer: Printer) -> failure::Outcome {
    // Two workers do all network and search waiting; tensors have a thread and pools of their own.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(commands::run(arguments.command, printer))
}

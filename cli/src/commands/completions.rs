//! `drgym completions`.

use clap::CommandFactory;

use crate::arguments::Arguments;

/// Prints the completion script of a shell.
pub fn run(shell: clap_complete::Shell) {
    clap_complete::generate(shell, &mut Arguments::command(), "drgym", &mut std::io::stdout());
}

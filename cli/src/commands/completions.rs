//! `drgym completions`.

use clap::CommandFactory;

use crate::arguments::Arguments;
use crate::printer::print_data;

/// Prints the completion script of a shell.
pub fn run(shell: clap_complete::Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "drgym", &mut script);
    print_data(&String::from_utf8_lossy(&script));
}

//! All output goes through here: data to standard output, talk and progress to standard error.
#![expect(
    clippy::unused_self,
    reason = "printing goes through the value that stands for it, also where it decides nothing"
)]

use std::io::{ErrorKind, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::Outcome;

/// Knows what may be shown.
#[derive(Clone, Copy, Debug)]
pub struct Printer {
    quiet: bool,
    terminal: bool,
}

impl Printer {
    /// A printer; `quiet` leaves only data and errors.
    pub fn new(quiet: bool) -> Self {
        Self { quiet, terminal: std::io::stderr().is_terminal() }
    }

    /// A line of data. Ends the process where nobody takes it; see [`print_data`].
    pub fn data(self, line: &str) {
        print_data(&format!("{line}\n"));
    }

    /// A document of data. Ends the process where nobody takes it; see [`print_data`].
    pub fn json(self, value: &impl Serialize) -> Outcome {
        self.data(&serde_json::to_string_pretty(value)?);
        Ok(())
    }

    /// A line of talk.
    pub fn say(self, line: &str) {
        if !self.quiet {
            print_talk(line);
        }
    }

    /// A progress bar on a terminal; elsewhere a line now and then. A length of 0 means that it is not known.
    pub fn bar(self, label: &str, length: u64) -> Bar {
        let target = if self.quiet || !self.terminal {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(Some(length), target);
        let template = if length == 0 {
            "{prefix:>12} {spinner} {pos} {msg} {elapsed}"
        } else {
            "{prefix:>12} {bar:30} {pos}/{len} {elapsed} ({eta} left) {msg}"
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        bar.set_prefix(label.to_owned());
        bar.enable_steady_tick(Duration::from_millis(500));
        Bar { inner: bar, label: label.to_owned(), printer: self, lines: !self.quiet && !self.terminal }
    }
}

/// Shows how far a phase is.
pub struct Bar {
    inner: ProgressBar,
    label: String,
    printer: Printer,
    lines: bool,
}

impl Bar {
    /// Sets how many are done and, behind the bar, what is worth knowing.
    pub fn set(&self, position: u64, message: impl Into<String>) {
        let message = message.into();
        let before = self.inner.position();
        let length = self.inner.length().unwrap_or(0);
        self.inner.set_position(position);
        self.inner.set_message(message.clone());
        if !self.lines || position == before {
            return;
        }
        // Without a terminal a line every tenth of the way, so that a log stays short.
        let stride = if length == 0 { 4096 } else { length.div_ceil(10) };
        if position / stride > before / stride || position == length {
            let of = if length == 0 { String::new() } else { format!("/{length}") };
            self.printer.say(format!("{}: {position}{of} {message}", self.label).trim_end());
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.inner.finish_and_clear();
    }
}

/// How a shell shows a program that ended since nobody reads its output any more.
const OUTPUT_CLOSED: i32 = 128 + 13;

/// Data as it is. Ends the process where it cannot be written: without a word, as other programs do, where the reader has
/// closed the pipe (`drgym … | head`); else, for instance on a full disk, with an error of the user's.
pub fn print_data(data: &str) {
    let mut output = std::io::stdout().lock();
    match output.write_all(data.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(OUTPUT_CLOSED),
        Err(error) => {
            print_error(&format!("cannot write to standard output: {error}"), None);
            std::process::exit(1);
        }
    }
}

/// An error and what to do about it, each in one line.
pub fn print_error(message: &str, hint: Option<&str>) {
    print_talk(&format!("error: {}", message.trim_end()));
    if let Some(hint) = hint {
        print_talk(&format!("hint: {hint}"));
    }
}

/// Work goes on where nobody listens: there is nowhere left to say so.
fn print_talk(line: &str) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

//! Running the program under test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program, with nothing of the caller's environment that changes what it prints.
pub fn drgym() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drgym"));
    command.env("RUST_BACKTRACE", "0").env_remove("DRGYM_LOG").env("COLUMNS", "100").current_dir(workspace());
    command
}

/// What a run printed and how it ended.
pub struct Run {
    /// Exit status.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs the program to its end.
pub fn run<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Run {
    let Output { status, stdout, stderr } = drgym().args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Run { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// The root of the repository.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A part of what set-up lays out, or `None` after saying what is missing.
pub fn artefact(path: &str) -> Option<PathBuf> {
    let home = std::env::var_os("DRGYM_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/drgym")))?;
    let found = home.join(path);
    if found.exists() {
        return Some(found);
    }
    println!("skipped: needs {path}, which scripts/setup.sh lays out");
    None
}

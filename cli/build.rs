//! Lets binaries and tests find libtorch where it was at build time, or beside the binary in a release; tells the program which
//! source it was built from.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    if let Some(libtorch) = std::env::var_os("LIBTORCH") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}/lib", libtorch.to_string_lossy());
    }
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../lib");

    // Whatever changes the source changes its description.
    for source in ["search", "judge", "env", "data-synth", "trainer", "eval", "cli"] {
        println!("cargo:rerun-if-changed=../{source}/src");
    }
    for file in ["Cargo.toml", "Cargo.lock", ".git/logs/HEAD"] {
        if std::path::Path::new("..").join(file).exists() {
            println!("cargo:rerun-if-changed=../{file}");
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    match commit() {
        Some(commit) => println!("cargo:rustc-env=DRGYM_VERSION={version} ({commit})"),
        None => println!("cargo:rustc-env=DRGYM_VERSION={version}"),
    }
}

/// The commit that is checked out, if this is a checkout of this repository and not a folder within another.
fn commit() -> Option<String> {
    if !std::path::Path::new("../.git").exists() {
        return None;
    }
    let described = Command::new("git")
        .args(["describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"])
        .output()
        .ok()?;
    let commit = String::from_utf8(described.stdout).ok()?.trim().to_owned();
    (described.status.success() && !commit.is_empty()).then_some(commit)
}

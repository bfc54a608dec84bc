//! Where set-up put things.

use std::path::{Path, PathBuf};

/// `$DRGYM_HOME`, by default `~/.cache/drgym`.
pub fn home() -> PathBuf {
    if let Some(home) = std::env::var_os("DRGYM_HOME") {
        return PathBuf::from(home);
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    cache.unwrap_or_else(|| PathBuf::from(".cache")).join("drgym")
}

/// A path of a configuration file: a leading `$DRGYM_HOME` or `~` is replaced.
pub fn expand(path: &Path) -> PathBuf {
    let Some(text) = path.to_str() else { return path.to_owned() };
    if let Some(rest) = text.strip_prefix("$DRGYM_HOME") {
        return home().join(rest.trim_start_matches('/'));
    }
    match (text.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(user_home)) => PathBuf::from(user_home).join(rest),
        _ => path.to_owned(),
    }
}

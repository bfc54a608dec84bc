//! Where set-up put things.

use std::path::{Path, PathBuf};

/// `$DRGYM_HOME`, by default `drgym` in `$XDG_CACHE_HOME` or `~/.cache`.
pub fn home() -> PathBuf {
    if let Some(home) = variable("DRGYM_HOME") {
        return home;
    }
    let cache = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    cache.unwrap_or_else(|| PathBuf::from(".cache")).join("drgym")
}

/// A path of a configuration file: a leading `$DRGYM_HOME` or `~` is replaced.
pub fn expand(path: &Path) -> PathBuf {
    if let Ok(rest) = path.strip_prefix("$DRGYM_HOME") {
        return home().join(rest);
    }
    match (path.strip_prefix("~"), variable("HOME")) {
        (Ok(rest), Some(user_home)) => user_home.join(rest),
        _ => path.to_owned(),
    }
}

/// A variable that is empty counts as not set, as it does in the scripts.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_first_parts_are_replaced() {
        assert_eq!(expand(Path::new("$DRGYM_HOME/models/x")), home().join("models/x"));
        assert_eq!(expand(Path::new("$DRGYM_HOME")), home());
        for untouched in ["$DRGYM_HOMES/x", "a/$DRGYM_HOME", "~other/x", "a~", "/a/b"] {
            assert_eq!(expand(Path::new(untouched)), Path::new(untouched));
        }
    }
}

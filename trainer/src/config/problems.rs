//! Collecting what is wrong with a configuration.

#[derive(Default)]
pub(super) struct Problems {
    /// Each as `path: rule, found value`.
    pub(super) found: Vec<String>,
}

impl Problems {
    /// Notes a problem unless `holds`.
    pub(super) fn require(&mut self, holds: bool, path: &str, rule: &str, value: impl std::fmt::Display) {
        if !holds {
            self.found.push(format!("{path}: {rule}, found {value}"));
        }
    }
}

//! `{search, judge} ← env ← {data-synth, trainer, eval} ← cli`: siblings never import one another.

use std::collections::{BTreeMap, BTreeSet};

use crate::program::workspace;

#[test]
fn crates_depend_on_one_another_in_one_direction() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("drgym-search", &[][..]),
        ("drgym-judge", &[]),
        ("drgym-env", &["drgym-search", "drgym-judge"]),
        ("drgym-synth", &["drgym-env", "drgym-search", "drgym-judge"]),
        ("drgym-trainer", &["drgym-env", "drgym-search", "drgym-judge"]),
        ("drgym-eval", &["drgym-env", "drgym-search", "drgym-judge"]),
        (
            "drgym",
            &["drgym-env", "drgym-search", "drgym-judge", "drgym-synth", "drgym-trainer", "drgym-eval"],
        ),
    ]);
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(workspace().join("Cargo.toml"))
        .no_deps()
        .other_options(vec!["--offline".into()])
        .exec()
        .unwrap();
    let names: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    assert_eq!(
        names,
        allowed.keys().copied().collect(),
        "a crate is missing from this test, or from the workspace"
    );
    for package in &metadata.packages {
        for dependency in
            package.dependencies.iter().filter(|dependency| names.contains(dependency.name.as_str()))
        {
            let name = package.name.as_str();
            assert!(
                allowed[name].contains(&dependency.name.as_str()),
                "{name} must not depend on {}, not even for tests",
                dependency.name
            );
        }
    }
}

#[test]
fn only_the_program_uses_anyhow_and_only_the_trainer_libtorch() {
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(workspace().join("Cargo.toml"))
        .no_deps()
        .other_options(vec!["--offline".into()])
        .exec()
        .unwrap();
    for package in &metadata.packages {
        let uses = |name: &str| package.dependencies.iter().any(|dependency| dependency.name == name);
        assert_eq!(uses("anyhow"), package.name.as_str() == "drgym", "{}", package.name);
        assert_eq!(uses("tch"), package.name.as_str() == "drgym-trainer", "{}", package.name);
    }
}

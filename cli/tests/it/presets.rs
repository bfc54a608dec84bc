//! Every shipped configuration is in order, and what `config show` prints reads back.

use crate::program::{run, workspace};

#[test]
fn every_preset_is_in_order() {
    let mut count = 0;
    for entry in std::fs::read_dir(workspace().join("configs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let checked = run(&["config".as_ref(), "check".as_ref(), "--config".as_ref(), path.as_os_str()]);
            assert_eq!(checked.code, Some(0), "{}", checked.stderr);
            let shown = run(&["config".as_ref(), "show".as_ref(), "--config".as_ref(), path.as_os_str()]);
            let folder = tempfile::tempdir().unwrap();
            let copy = folder.path().join("shown.toml");
            std::fs::write(&copy, &shown.stdout).unwrap();
            let again = run(&["config".as_ref(), "show".as_ref(), "--config".as_ref(), copy.as_os_str()]);
            assert_eq!(again.stdout, shown.stdout);
            count += 1;
        }
    }
    assert!(count > 0, "no preset was found");
}

#[test]
fn the_checked_in_schema_is_that_of_the_program() {
    let path = workspace().join("configs/schema.json");
    let current = run(&["config", "schema"]).stdout;
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(checked_in, current, "run the tests once with UPDATE_SCHEMA=1 and review the difference");
}

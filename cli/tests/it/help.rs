//! Help texts are documentation; a change of theirs is reviewed.

use crate::program::run;

#[test]
fn help_texts() {
    let verbs: [&[&str]; 15] = [
        &[],
        &["index", "build"],
        &["index", "info"],
        &["index", "verify"],
        &["index", "eval"],
        &["search"],
        &["serve"],
        &["synth"],
        &["rollout"],
        &["eval"],
        &["compare"],
        &["sft"],
        &["train"],
        &["model", "import"],
        &["config"],
    ];
    for verb in verbs {
        let arguments = [verb, &["--help"]].concat();
        let shown = run(&arguments);
        assert_eq!(shown.code, Some(0), "{}", shown.stderr);
        assert_eq!(shown.stderr, "");
        let name = if verb.is_empty() { "drgym".to_owned() } else { verb.join("_") };
        insta::assert_snapshot!(format!("help_{name}"), shown.stdout);
    }
}

#[test]
fn completions_name_the_verbs() {
    let bash = run(&["completions", "bash"]);
    assert_eq!(bash.code, Some(0));
    assert!(bash.stdout.contains("rollout") && bash.stdout.contains("--overwrite"));
}

#[test]
fn the_version_is_printed() {
    assert_eq!(run(&["--version"]).stdout, format!("drgym {}\n", env!("CARGO_PKG_VERSION")));
}

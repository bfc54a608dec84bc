//! Bad input: one clear line, a hint where there is one, the right exit status, no panic, old artefacts left whole.

use std::fmt::Write as _;
use std::path::Path;

use crate::program::{artefact, drgym, run};

/// A folder with some broken inputs.
fn inputs() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| std::fs::write(folder.path().join(name), content).unwrap();
    write("broken.jsonl", "{\"id\":\"a\",\"text\":\"x\"}\n{\"id\":\"b\",\"text\":\n");
    write("empty.jsonl", "");
    write("no-text.jsonl", "{\"id\":\"a\",\"title\":\"x\"}\n");
    write("twice.jsonl", "{\"id\":\"a\",\"text\":\"x\"}\n{\"id\":\"a\",\"text\":\"y\"}\n");
    write("typo.toml", "seed = 1\n[env]\nmax_turnz = 3\n[grpo]\nsteps = \"ten\"\n");
    write("nothing.toml", "");
    write("tasks.jsonl", "{\"id\":\"t\",\"question\":\"q?\",\"answers\":[\"a\"]}\n");
    write("bad-tasks.jsonl", "{\"id\":\"t\",\"question\":\"q?\",\"answers\":[]}\n");
    std::fs::create_dir(folder.path().join("foreign")).unwrap();
    std::fs::write(folder.path().join("foreign/manifest.json"), "{\"format\":\"other\"}").unwrap();
    folder
}

#[test]
fn bad_input_is_reported_in_a_line_with_status_1() {
    let folder = inputs();
    let root = folder.path().display().to_string();
    let encoder = artefact("models/all-minilm-l6-v2");
    let cases = [
        "search --index {root}/nowhere --query x",
        "search --index {root}/foreign --query x",
        "search --query x",
        "search --url http://127.0.0.1:9 --query x",
        "index info {root}/nowhere",
        "index verify {root}/foreign",
        "index build --corpus {root}/broken.jsonl --format jsonl --encoder {root}/nowhere --out {root}/out",
        "config check --config {root}/typo.toml",
        "config check --config {root}/nowhere.toml",
        "config check --config {root}/nothing.toml --set seed",
        "synth --config {root}/nothing.toml --out {root}/out",
        "eval --benchmark gaja --data {root}/tasks.jsonl --policy expert --search none --out {root}/out",
        "eval --data {root}/bad-tasks.jsonl --policy expert --search none --out {root}/out",
        "eval --data {root}/nowhere.jsonl --policy expert --search none --out {root}/out",
        "eval --data {root}/tasks.jsonl --policy {root}/nowhere --search none --out {root}/out",
        "eval --data {root}/tasks.jsonl --policy expert --out {root}/out",
        "eval --policy expert",
        "compare {root}/a {root}/b",
        "rollout --config {root}/nothing.toml --policy expert --tasks {root}/tasks.jsonl --out {root}/t.jsonl",
        "serve --index {root}/nowhere --addr nonsense",
        "sft --config {root}/nothing.toml --out {root}/out",
        "train --config {root}/nothing.toml --out {root}/out",
        "model import --gguf {root}/empty.jsonl --out {root}/out",
        "model info {root}/nowhere",
        "frobnicate",
    ];
    let mut report = String::new();
    for case in cases {
        let arguments: Vec<String> = case.split(' ').map(|part| part.replace("{root}", &root)).collect();
        let ended = run(&arguments);
        assert_eq!(ended.code, Some(1), "{case}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{case}");
        assert!(!ended.stderr.contains("panicked"), "{case}: {}", ended.stderr);
        writeln!(report, "$ drgym {case}\n{}", ended.stderr.replace(&root, "{root}")).unwrap();
    }
    let encoder_cases = [
        ("broken", "broken.jsonl"),
        ("empty", "empty.jsonl"),
        ("text", "no-text.jsonl"),
        ("id", "twice.jsonl"),
    ];
    if let Some(encoder) = encoder {
        for (_, file) in encoder_cases {
            let out = folder.path().join("index");
            let ended = run(&build_arguments(&folder.path().join(file), &encoder, &out));
            assert_eq!(ended.code, Some(1), "{file}: {}", ended.stderr);
            assert!(!out.exists(), "a failed build must leave nothing");
        }
    }
    insta::with_settings!({filters => vec![(r"os error \d+", "os error N")]}, {
        insta::assert_snapshot!("errors", report);
    });
}

fn build_arguments(corpus: &Path, encoder: &Path, out: &Path) -> Vec<String> {
    let text = |path: &Path| path.display().to_string();
    [
        "index",
        "build",
        "--format",
        "jsonl",
        "--corpus",
        &text(corpus),
        "--encoder",
        &text(encoder),
        "--out",
        &text(out),
    ]
    .map(str::to_owned)
    .to_vec()
}

#[test]
fn malformed_corpora_name_file_and_line() {
    let Some(encoder) = artefact("models/all-minilm-l6-v2") else { return };
    let folder = inputs();
    for (file, expected) in [
        ("broken.jsonl", "broken.jsonl: line 2"),
        ("no-text.jsonl", "no-text.jsonl: line 1"),
        ("twice.jsonl", "twice.jsonl: line 2"),
        ("empty.jsonl", "holds no document"),
    ] {
        let ended = run(&build_arguments(&folder.path().join(file), &encoder, &folder.path().join("index")));
        assert!(ended.stderr.contains(expected), "{file}: {}", ended.stderr);
    }
}

/// A builder that is killed leaves the old index whole, and the next build is not disturbed by its remains.
#[cfg(unix)]
#[test]
fn a_killed_build_leaves_the_old_index_whole() {
    let Some(encoder) = artefact("models/all-minilm-l6-v2") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (small, large) = (folder.path().join("small.jsonl"), folder.path().join("large.jsonl"));
    let corpus = |count: usize| {
        (0..count).fold(String::new(), |mut text, number| {
            writeln!(text, "{{\"id\":\"{number}\",\"text\":\"document number {number} about something\"}}")
                .unwrap();
            text
        })
    };
    std::fs::write(&small, corpus(5)).unwrap();
    std::fs::write(&large, corpus(3000)).unwrap();
    let index = folder.path().join("index");
    assert_eq!(run(&build_arguments(&small, &encoder, &index)).code, Some(0));
    let hash =
        |path: &Path| run(&["index".as_ref(), "info".as_ref(), path.as_os_str(), "--json".as_ref()]).stdout;
    let before = hash(&index);

    // Killed as soon as something of the new index is there to be lost.
    let mut builder = drgym()
        .args(build_arguments(&large, &encoder, &index))
        .arg("--overwrite")
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while builder.try_wait().unwrap().is_none() && std::fs::read_dir(folder.path()).unwrap().count() <= 3 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    builder.kill().unwrap();
    builder.wait().unwrap();

    assert_eq!(hash(&index), before);
    assert_eq!(run(&["index".as_ref(), "verify".as_ref(), index.as_os_str()]).code, Some(0));
    let mut again = build_arguments(&small, &encoder, &index);
    again.push("--overwrite".into());
    assert_eq!(run(&again).code, Some(0));
    assert_eq!(hash(&index), before, "the same corpus gives the same index");
}

/// A limit on the size of files stands in for a full disk: both make `write` fail half way through.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_the_old_index_whole_and_nothing_beside_it() {
    let Some(encoder) = artefact("models/all-minilm-l6-v2") else { return };
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus.jsonl");
    let index = folder.path().join("index");
    std::fs::write(&corpus, "{\"id\":\"a\",\"text\":\"one document\"}\n").unwrap();
    assert_eq!(run(&build_arguments(&corpus, &encoder, &index)).code, Some(0));
    let hash = || run(&["index".as_ref(), "info".as_ref(), index.as_os_str(), "--json".as_ref()]).stdout;
    let before = hash();

    // 64 vectors are 96 KiB.
    let lines = (0..64).map(|number| format!("{{\"id\":\"{number}\",\"text\":\"document {number}\"}}\n"));
    std::fs::write(&corpus, lines.collect::<String>()).unwrap();
    let full = std::process::Command::new("bash")
        .args(["-c", "trap '' XFSZ; ulimit -f 48; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_drgym")])
        .args(build_arguments(&corpus, &encoder, &index))
        .arg("--overwrite")
        .output()
        .unwrap();
    let said = String::from_utf8(full.stderr).unwrap();
    assert_eq!(full.status.code(), Some(1), "{said}");
    assert!(said.contains("vectors.f32") && said.contains("File too large"), "{said}");
    assert_eq!(hash(), before);
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "corpus and index, and nothing unfinished");
}

#[cfg(unix)]
#[test]
fn a_reader_that_has_gone_ends_the_program_without_a_word() {
    for arguments in
        [&["config", "schema"][..], &["completions", "bash"], &["eval", "--list"], &["doctor", "--json"]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = drgym().args(arguments).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        // As a shell shows a program that a closed pipe ended.
        assert_eq!((ended.status.code(), said.as_str()), (Some(141), ""), "{arguments:?}");
    }
    // Talk that nobody hears changes nothing about the outcome.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended =
        drgym().args(["config", "check", "--config", "nowhere.toml"]).stderr(writer).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_the_users_to_mend() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ended = drgym().args(["config", "schema"]).stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write to standard output: No space left"), "{said}");
}

#[test]
fn a_key_in_place_of_its_variable_is_not_repeated() {
    let folder = inputs();
    let config = folder.path().join("nothing.toml").display().to_string();
    let server = ["search", "--query", "x", "--url", "http://127.0.0.1:9", "--api-key-env"];
    for arguments in [
        [&server[..], &["sk-live-1"]].concat(),
        vec!["config", "check", "--config", &config, "--set", "search.api_key_env=sk-live-1"],
        vec!["config", "check", "--config", &config, "--set", "search.url=http://user:sk-live-1@host"],
    ] {
        let ended = run(&arguments);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(!ended.stderr.contains("sk-live") && !ended.stdout.contains("sk-live"), "{}", ended.stderr);
    }
    let unset = run(&[&server[..], &["DRGYM_NO_SUCH_VARIABLE"]].concat());
    assert!(unset.stderr.contains("DRGYM_NO_SUCH_VARIABLE"), "{}", unset.stderr);
}

#[cfg(feature = "train")]
#[test]
fn a_folder_that_is_no_model_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("thesis.txt"), "x").unwrap();
    let refused = run(&[
        "model".as_ref(),
        "import".as_ref(),
        "--gguf".as_ref(),
        "absent.gguf".as_ref(),
        "--overwrite".as_ref(),
        "--out".as_ref(),
        folder.path().as_os_str(),
    ]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("something else"), "{}", refused.stderr);
    assert!(folder.path().join("thesis.txt").exists());
}

#[test]
fn an_existing_index_is_not_overwritten_unasked() {
    let Some(encoder) = artefact("models/all-minilm-l6-v2") else { return };
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("c.jsonl");
    std::fs::write(&corpus, "{\"id\":\"a\",\"text\":\"x\"}\n").unwrap();
    let out = folder.path().join("index");
    assert_eq!(run(&build_arguments(&corpus, &encoder, &out)).code, Some(0));
    let refused = run(&build_arguments(&corpus, &encoder, &out));
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("exists"), "{}", refused.stderr);
}

//! `eval`, `rollout` and `compare` where something fails or does not fit, through the real binary without any model.

use std::path::Path;

use serde_json::Value;

use crate::program::{Run, run};

fn tasks(count: usize) -> String {
    let task = |number: usize| {
        format!(
            "{{\"id\":\"t{number}\",\"question\":\"What is the capital of country {number}?\",\
             \"answers\":[\"City\"],\"expert\":[{{\"query\":\"capital\",\"finding\":\"City\"}}]}}\n"
        )
    };
    (0..count).map(task).collect()
}

/// A folder with twelve tasks and an empty configuration.
fn inputs() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tasks.jsonl"), tasks(12)).unwrap();
    std::fs::write(folder.path().join("nothing.toml"), "").unwrap();
    folder
}

/// Runs a line in which `@` stands for the folder.
fn line(folder: &Path, line: &str) -> Run {
    let root = folder.display().to_string();
    let arguments: Vec<String> = line.split(' ').map(|part| part.replace('@', &root)).collect();
    run(&arguments)
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = read(path);
    change(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
}

/// Two evaluations of the expert without search, in `a` and `b`.
fn evaluated_twice() -> tempfile::TempDir {
    let folder = inputs();
    for out in ["a", "b"] {
        let ended = line(
            folder.path(),
            &format!("eval --data @/tasks.jsonl --policy expert --search none --limit 11 --out @/{out}"),
        );
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    folder
}

#[test]
fn a_dead_search_server_ends_in_status_1_with_what_happened_written() {
    let folder = inputs();
    let eval = "eval --data @/tasks.jsonl --policy expert --search http://127.0.0.1:9 --out @/out";
    let ended = line(folder.path(), eval);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let said = "error: 12 of 12 episodes were excluded (search 12): none could be scored";
    assert!(ended.stderr.lines().any(|line| line == said), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("no episode could be scored; 12 excluded: 0.0 % if all were wrong, 100.0 %")
    );
    let summary = &read(&folder.path().join("out/refused.json"))["summary"];
    assert_eq!((summary["excluded"].as_u64(), summary["bounds"]["high"].as_f64()), (Some(12), Some(1.0)));
    let traces = std::fs::read_to_string(folder.path().join("out/refused-traces.jsonl")).unwrap();
    assert_eq!(traces.lines().count(), 12);
    assert!(!folder.path().join("out/results.json").exists());

    // Nothing at all was scored: no share that may be excluded makes a result of that.
    let allowed = line(folder.path(), &format!("{eval} --max-excluded 1"));
    assert_eq!(allowed.code, Some(1), "{}", allowed.stderr);
    let nonsense = line(folder.path(), &format!("{eval} --max-excluded 5"));
    assert!(nonsense.stderr.contains("a share from 0 to 1"), "{}", nonsense.stderr);
}

#[test]
fn more_exclusions_than_allowed_end_in_status_1_and_fewer_do_not() {
    let folder = inputs();
    // The expert of the first task has no plan and gives up at once; the other eleven need the dead server.
    let mut mixed: Vec<String> = tasks(12).lines().map(str::to_owned).collect();
    mixed[0] = "{\"id\":\"t0\",\"question\":\"q?\",\"answers\":[\"City\"],\"expert\":[]}".into();
    std::fs::write(folder.path().join("tasks.jsonl"), mixed.join("\n") + "\n").unwrap();
    let eval = "eval --data @/tasks.jsonl --policy expert --search http://127.0.0.1:9 --out @/out";
    let ended = line(folder.path(), eval);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let said = "error: 11 of 12 episodes were excluded (search 11): \
                more than the share of 0.05 that --max-excluded allows";
    assert!(ended.stderr.lines().any(|line| line == said), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("0 of 1; 11 excluded: 0.0 % if all were wrong, 91.7 %"),
        "{}",
        ended.stdout
    );
    let allowed = line(folder.path(), &format!("{eval} --max-excluded 0.95"));
    assert_eq!(allowed.code, Some(0), "{}", allowed.stderr);
    let left: Vec<bool> =
        ["results.json", "refused.json"].map(|name| folder.path().join("out").join(name).exists()).into();
    assert_eq!(left, [true, false]);

    // A refused evaluation takes nothing from an accepted one.
    assert_eq!(line(folder.path(), &format!("{eval} --overwrite")).code, Some(1));
    let compared = line(folder.path(), "compare @/out @/out");
    assert_eq!(compared.code, Some(0), "{}", compared.stderr);
}

#[test]
fn samples_that_would_be_copies_are_refused_before_anything_is_loaded() {
    let folder = inputs();
    for command in [
        "eval --data @/tasks.jsonl --policy @/nowhere --search none --samples 3 --out @/out",
        "rollout --config @/nothing.toml --tasks @/tasks.jsonl --policy @/nowhere --search none --samples 3 \
         --temperature 0 --out @/out/t.jsonl",
    ] {
        let ended = line(folder.path(), command);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("the 3 samples of a task are copies"), "{}", ended.stderr);
        assert!(!folder.path().join("out").exists());
    }
}

#[test]
fn an_evaluation_over_an_older_one_takes_its_place_whole() {
    let folder = inputs();
    let eval = "eval --data @/tasks.jsonl --policy expert --search none --out @/out";
    assert_eq!(line(folder.path(), eval).code, Some(0));
    let refused = line(folder.path(), &format!("{eval} --limit 11"));
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("holds an evaluation already"), "{}", refused.stderr);
    let limited = line(folder.path(), &format!("{eval} --limit 11 --overwrite"));
    assert_eq!(limited.code, Some(0), "{}", limited.stderr);
    let names = || {
        let mut names: Vec<String> = std::fs::read_dir(folder.path().join("out"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["results.json", "traces.jsonl"]);
    // What else lies there stays.
    std::fs::write(folder.path().join("out/notes.md"), "mine").unwrap();
    assert_eq!(line(folder.path(), &format!("{eval} --overwrite")).code, Some(0));
    assert_eq!(names(), ["notes.md", "results.json", "traces.jsonl"]);
    assert_eq!(line(folder.path(), "compare @/out @/out").code, Some(0));
}

#[test]
fn where_the_results_cannot_go_is_said_before_the_model_is_loaded() {
    let folder = inputs();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    std::fs::create_dir(folder.path().join("index")).unwrap();
    std::fs::write(folder.path().join("index/manifest.json"), "{}").unwrap();
    let eval = "eval --data @/tasks.jsonl --policy @/nowhere --search none --out";
    let rollout =
        "rollout --config @/nothing.toml --tasks @/tasks.jsonl --policy @/nowhere --search none --out";
    for (command, out, said) in [
        (eval, "@/index", "holds an index or tasks"),
        (eval, "@/tasks.jsonl", "tasks.jsonl is a file, expected a folder"),
        (eval, "@/tasks.jsonl/deeper/out", "cannot create"),
        (rollout, "@/folder", "is a folder, expected a file"),
        (rollout, "@/tasks.jsonl/t.jsonl", "tasks.jsonl is a file, expected a folder"),
        // A place that would do: now the model is what is missing, and no empty folder stays.
        (eval, "@/new/out", "there is no model folder"),
        (rollout, "@/new/t.jsonl", "there is no model folder"),
    ] {
        let ended = line(folder.path(), &format!("{command} {out}"));
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains(said), "{command} {out}: {}", ended.stderr);
    }
    assert!(!folder.path().join("new").exists());
}

#[test]
fn rollout_plays_without_search_into_a_folder_that_it_makes() {
    let folder = inputs();
    for without in ["--set env.search=false", "--search none"] {
        let rollout =
            "rollout --config @/nothing.toml --policy expert --tasks @/tasks.jsonl --out @/new/t.jsonl";
        let ended = line(folder.path(), &format!("{rollout} {without}"));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let written = folder.path().join("new/t.jsonl");
        assert_eq!(std::fs::read_to_string(&written).unwrap().lines().count(), 12);
        std::fs::remove_dir_all(folder.path().join("new")).unwrap();
    }
}

#[test]
fn results_hold_what_is_needed_to_get_them_again() {
    let folder = evaluated_twice();
    let results = read(&folder.path().join("a/results.json"));
    assert_eq!((results["version"].as_u64(), results["limit"].as_u64()), (Some(1), Some(11)));
    assert_eq!((results["policy_source"].as_str(), results["model_hash"].is_null()), (Some("expert"), true));
    let config = results["config"].as_str().unwrap();
    std::fs::write(folder.path().join("again.toml"), config).unwrap();
    let again = line(
        folder.path(),
        "eval --data @/tasks.jsonl --policy expert --config @/again.toml --limit 11 --out @/again --json",
    );
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again["traces_hash"], results["traces_hash"], "the recorded configuration is the whole of it");
}

#[test]
fn compare_refuses_what_does_not_belong_together() {
    let folder = evaluated_twice();
    let root = folder.path();
    let results = root.join("b/results.json");
    let whole = std::fs::read_to_string(&results).unwrap();
    for (key, value, said) in [
        ("judge", "another model", "different judges"),
        ("data_hash", "feed", "different data"),
        ("traces_hash", "feed", "b/traces.jsonl does not belong to the results.json beside it"),
    ] {
        edit(&results, |results| results[key] = value.into());
        for command in ["compare @/a @/b", "compare @/a @/a --also @/b @/b"] {
            let ended = line(root, command);
            assert_eq!(ended.code, Some(1), "{key}, {command}: {}", ended.stderr);
            assert!(ended.stderr.contains(said), "{key}, {command}: {}", ended.stderr);
            assert_eq!(ended.stdout, "");
        }
        std::fs::write(&results, &whole).unwrap();
    }
    assert_eq!(line(root, "compare @/a @/b").code, Some(0));
}

#[test]
fn compare_says_what_differs_and_claims_nothing_from_few_tasks() {
    let folder = evaluated_twice();
    let root = folder.path();
    edit(&root.join("b/results.json"), |results| results["env"]["search"] = true.into());
    let ended = line(root, "compare @/a @/b");
    assert_eq!(ended.code, Some(0), "an ablation is compared: {}", ended.stderr);
    assert!(
        ended.stdout.contains("+0.0 points (no interval: they differ on 0 tasks, and a bootstrap needs 10)")
    );
    assert!(ended.stdout.contains("over 11 tasks"), "{}", ended.stdout);
    assert!(ended.stdout.contains("    env.search: false against true\n"), "{}", ended.stdout);
    assert!(
        ended.stdout.contains("0 tasks only in the first, 0 only in the second; excluded 0 and 0 episodes")
    );

    let shorter =
        line(root, "eval --data @/tasks.jsonl --policy expert --search none --limit 8 --out @/b --overwrite");
    assert_eq!(shorter.code, Some(0), "{}", shorter.stderr);
    let printed = line(root, "compare @/a @/b --json").stdout;
    let compared: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (compared["n"].as_u64(), compared["pairs"][0]["tasks_only_in_first"].as_u64()),
        (Some(8), Some(3))
    );
    assert!(compared["difference"]["interval"].is_null() && compared["difference"]["p_value"].is_null());
    let setting = &compared["pairs"][0]["differing_settings"][0];
    assert_eq!((&setting["setting"], &setting["second"]), (&Value::from("limit"), &Value::from(8)));

    let pooled = line(root, "compare @/a @/b --also @/a @/a");
    assert_eq!(pooled.code, Some(0), "{}", pooled.stderr);
    assert!(pooled.stdout.starts_with("mean of 2 pairs: "), "{}", pooled.stdout);
    assert!(pooled.stdout.contains("over 8 tasks each; single pairs +0.0, +0.0\n"), "{}", pooled.stdout);
}

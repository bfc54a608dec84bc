//! Results folders: what is read back, what is refused, and where one can be written.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use drgym_env::{EnvConfig, Trace};
use drgym_eval::results::{Place, RESULTS_VERSION, traces_hash};
use drgym_eval::{Evaluation, Results, ResultsError, Summary, check_comparable, differing_settings};
use serde_json::{Value, json};

use crate::samples::episode;

fn traces() -> Vec<Trace> {
    (0..3)
        .map(|task| {
            let mut trace = episode(task, 0, (task != 1).then_some(true));
            trace.timings.total = 0.25;
            trace
        })
        .collect()
}

fn results(traces: &[Trace]) -> Results {
    Results {
        version: RESULTS_VERSION,
        program: "drgym 0".into(),
        benchmark: "tasks".into(),
        data_hash: "d".into(),
        policy: "step_3".into(),
        policy_source: Some("runs/a/step_3".into()),
        model_hash: Some("m".into()),
        limit: None,
        config: Some("seed = 1\n".into()),
        search: "index".into(),
        search_hash: Some("i".into()),
        judge: "rules".into(),
        seed: 1,
        temperature: 0.0,
        samples: 1,
        env: EnvConfig::default(),
        summary: Summary::of(traces).unwrap(),
        traces_hash: traces_hash(traces),
        seconds: 0.5,
    }
}

fn edit(path: &Path, change: impl FnOnce(String) -> String) {
    std::fs::write(path, change(std::fs::read_to_string(path).unwrap())).unwrap();
}

#[test]
fn traces_of_another_run_beside_the_results_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let results = results(&traces());
    results.write(folder.path(), &traces()).unwrap();
    let read = Evaluation::read(folder.path()).unwrap();
    assert_eq!((read.results, read.traces), (results, traces()));

    let path = folder.path().join("traces.jsonl");
    // Timings are the part that may differ between equal runs.
    edit(&path, |text| text.replace("\"total\":0.25", "\"total\":7.5"));
    Evaluation::read(folder.path()).unwrap();
    edit(&path, |text| text.replacen("\"correct\":true", "\"correct\":false", 1));
    let error = Evaluation::read(folder.path()).unwrap_err();
    assert!(matches!(error, ResultsError::ForeignTraces { .. }), "{error}");
    assert!(error.to_string().contains("traces.jsonl"), "{error}");
}

#[test]
fn folders_of_an_older_program_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let results = results(&traces());
    results.write(folder.path(), &traces()).unwrap();
    // A program whose traces lack a field hashed, and wrote, the lines without it.
    let lines: Vec<String> = traces()
        .into_iter()
        .map(|mut trace| {
            trace.timings.total = 0.0;
            let line = serde_json::to_string(&trace).unwrap();
            assert!(line.contains(",\"scoring_error\":null"), "{line}");
            line.replace(",\"scoring_error\":null", "")
        })
        .collect();
    let mut hasher = blake3::Hasher::new();
    for line in &lines {
        hasher.update(blake3::hash(line.as_bytes()).to_hex().as_bytes());
    }
    std::fs::write(folder.path().join("traces.jsonl"), lines.join("\n") + "\n").unwrap();

    let path = folder.path().join("results.json");
    let mut old: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let remove = |value: &mut Value, keys: &[&str]| {
        for key in keys {
            assert!(value.as_object_mut().unwrap().remove(*key).is_some(), "{key}");
        }
    };
    remove(&mut old, &["policy_source", "model_hash", "limit", "config"]);
    remove(&mut old["summary"], &["excluded", "bounds"]);
    remove(&mut old["summary"]["accuracy"], &["excluded", "bounds"]);
    remove(&mut old["summary"]["by_kind"]["even"], &["excluded", "bounds"]);
    old["traces_hash"] = json!(hasher.finalize().to_hex().to_string());
    std::fs::write(&path, old.to_string()).unwrap();

    let read = Evaluation::read(folder.path()).unwrap().results;
    assert_eq!((read.summary.excluded, read.summary.bounds), (1, None));
    assert_eq!((read.policy_source.clone(), read.config.clone()), (None, None));
    let differing = differing_settings(&read, &results);
    assert!(differing.is_empty(), "what was not recorded is no difference: {differing:?}");
}

#[test]
fn a_newer_format_is_refused_by_its_version() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("results.json"), "{\"version\": 99, \"all\": \"new\"}").unwrap();
    let error = Results::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("has version 99") && error.contains("at most 1"), "{error}");
}

#[test]
fn other_data_and_other_judges_are_refused_and_other_settings_named() {
    let evaluation = |change: fn(&mut Results)| {
        let mut results = results(&traces());
        change(&mut results);
        Evaluation { folder: "there".into(), results, traces: traces() }
    };
    let one = evaluation(|_| {});
    let refused =
        |change: fn(&mut Results)| check_comparable(&one, &evaluation(change)).unwrap_err().to_string();
    let data = refused(|results| results.data_hash = "other".into());
    assert!(data.contains("different data: there has d, there has other"), "{data}");
    let judge = refused(|results| results.judge = "model".into());
    assert!(judge.contains("different judges") && judge.contains("\"model\""), "{judge}");

    let ablated = evaluation(|results| {
        results.env.search = false;
        results.search_hash = None;
        results.samples = 4;
        results.temperature = 1.0;
        results.limit = Some(2);
        results.model_hash = Some("n".into());
    });
    check_comparable(&one, &ablated).unwrap();
    let differing = differing_settings(&one.results, &ablated.results);
    let names: Vec<&str> = differing.iter().map(|difference| difference.setting.as_str()).collect();
    assert_eq!(names, ["search_hash", "temperature", "samples", "model_hash", "limit", "env.search"]);
    assert_eq!((&differing[5].first, &differing[5].second), (&json!(true), &json!(false)));
}

#[test]
fn a_place_is_tried_before_the_work_and_cleared_if_nothing_came_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("file"), "kept").unwrap();
    std::fs::create_dir_all(at("old/traces.jsonl")).unwrap();
    let said = |place: Result<Place, ResultsError>| place.unwrap_err().to_string();
    assert!(said(Place::folder(&at("file"))).contains("is a file, expected a folder"));
    assert!(said(Place::folder(&at("old"))).contains("traces.jsonl is a folder, expected a file"));
    assert!(said(Place::file(&at("old"))).contains("is a folder, expected a file"));
    assert!(said(Place::file(&at("file/traces.jsonl"))).contains("is a file, expected a folder"));
    assert!(said(Place::folder(&at("file/deep/out"))).contains("cannot create"));

    let place = Place::folder(&at("new/out")).unwrap();
    assert!(at("new/out").is_dir());
    drop(place);
    assert!(!at("new").exists(), "nothing was written");
    let place = Place::file(&at("new/deep/traces.jsonl")).unwrap();
    std::fs::write(at("new/deep/traces.jsonl"), "1").unwrap();
    drop(place);
    assert!(at("new/deep/traces.jsonl").exists());
    drop(Place::folder(&at("new")).unwrap());
    assert!(at("new").is_dir(), "what was there before stays");
    assert_eq!(std::fs::read(at("file")).unwrap(), b"kept");
}

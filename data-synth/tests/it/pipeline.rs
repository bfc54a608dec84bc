//! Whole runs on a small corpus.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use drgym_env::Task;
use drgym_env::task::read_tasks;
use drgym_search::SearchBackend;
use drgym_synth::{
    PerSplit, RejectRecord, Split, SynthConfig, SynthError, SynthInputs, SynthReport, UNSEEN, run,
};
use proptest::prelude::*;

use crate::corpus::{Down, WordOverlap, write_small};

fn config() -> SynthConfig {
    SynthConfig {
        counts: PerSplit { train: 60, dev: 12, test: 30 },
        entity_fractions: PerSplit { train: 0.6, dev: 0.15, test: 0.25 },
        ..SynthConfig::default()
    }
}

async fn run_in(
    corpus: &Path,
    out: &Path,
    config: &SynthConfig,
    backend: Option<Arc<dyn SearchBackend>>,
) -> Result<SynthReport, SynthError> {
    let inputs = SynthInputs {
        corpus_dir: corpus.to_owned(),
        corpus_hash: "hash of the corpus".to_owned(),
        backend,
        out_dir: out.to_owned(),
    };
    run(config, &inputs, &|_| {}).await
}

pub fn read_all(out: &Path) -> BTreeMap<Split, Vec<Task>> {
    Split::ALL
        .into_iter()
        .map(|split| (split, read_tasks(&out.join(format!("{}.jsonl", split.name()))).unwrap()))
        .collect()
}

/// No entity of one split occurs in another; unseen wordings occur in test alone; ids are unique over all files.
pub fn assert_disjoint(tasks: &BTreeMap<Split, Vec<Task>>) {
    let mut owner: BTreeMap<&str, Split> = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for (split, tasks) in tasks {
        for task in tasks {
            assert!(!task.entities.is_empty(), "{}", task.id);
            assert!(ids.insert(&task.id), "{} stands twice", task.id);
            assert!(*split == Split::Test || !task.phrasing.starts_with(UNSEEN), "{}", task.id);
            for entity in &task.entities {
                let first = *owner.entry(entity).or_insert(*split);
                assert_eq!(first, *split, "{entity} occurs in {first:?} and, with {}, in {split:?}", task.id);
            }
        }
    }
}

pub fn bytes_of(out: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(out).unwrap().map(|entry| entry.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())).collect()
}

#[tokio::test]
async fn a_run_writes_what_it_reports() {
    let (corpus, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_small(corpus.path(), 60);
    let report = run_in(corpus.path(), out.path(), &config(), None).await.unwrap();
    let tasks = read_all(out.path());
    assert_disjoint(&tasks);
    for (split, wanted) in [(Split::Train, 60), (Split::Dev, 12), (Split::Test, 30)] {
        let counts = &report.splits[&split];
        assert_eq!((tasks[&split].len(), counts.tasks), (wanted, wanted));
        assert_eq!(
            counts.by_kind,
            BTreeMap::from([("one_hop".into(), wanted / 2), ("two_hop".into(), wanted / 2)])
        );
    }
    assert_eq!(report.splits[&Split::Test].unseen_phrasing, 6);
    assert!(report.retrieval.is_none());

    let files = bytes_of(out.path());
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["dev.jsonl", "manifest.json", "rejects.jsonl", "report.json", "test.jsonl", "train.jsonl"]
    );
    let manifest: serde_json::Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
    for name in ["dev.jsonl", "rejects.jsonl", "report.json", "test.jsonl", "train.jsonl"] {
        let hash = blake3::hash(&files[name]).to_hex().to_string();
        assert_eq!(manifest["files"][name], hash.as_str(), "{name}");
    }
    let written: SynthReport = serde_json::from_slice(&files["report.json"]).unwrap();
    assert_eq!(written, report);
    let rejects: Vec<RejectRecord> = std::str::from_utf8(&files["rejects.jsonl"])
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rejects.len(), report.rejections.values().sum::<usize>());
}

#[tokio::test]
async fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let corpus = tempfile::tempdir().unwrap();
    write_small(corpus.path(), 60);
    let mut runs = Vec::new();
    for seed in [3, 3, 4] {
        let out = tempfile::tempdir().unwrap();
        let backend: Arc<dyn SearchBackend> = Arc::new(WordOverlap::over(corpus.path()));
        run_in(corpus.path(), out.path(), &SynthConfig { seed, ..config() }, Some(backend)).await.unwrap();
        runs.push(bytes_of(out.path()));
    }
    assert_eq!(runs[0], runs[1]);
    for name in ["train.jsonl", "dev.jsonl", "test.jsonl"] {
        assert_ne!(runs[0][name], runs[2][name], "{name}");
    }
}

#[tokio::test]
async fn tasks_that_search_cannot_answer_are_replaced_and_counted() {
    let (corpus, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_small(corpus.path(), 60);
    let backend: Arc<dyn SearchBackend> = Arc::new(WordOverlap::over(corpus.path()).without("/coastline"));
    let report = run_in(corpus.path(), out.path(), &config(), Some(backend)).await.unwrap();
    let tasks = read_all(out.path());
    assert_eq!(tasks.values().map(Vec::len).sum::<usize>(), 102);
    let relations = tasks.values().flatten().map(|task| task.extra["relation"].as_str().unwrap());
    assert!(relations.into_iter().all(|relation| relation != "coastline"));
    let refused = report.rejections["not_retrievable"];
    let retrieval = report.retrieval.unwrap();
    assert!(refused > 0);
    assert_eq!(retrieval.checked - retrieval.found, refused);
    assert_eq!(retrieval.found, 102);
}

#[tokio::test]
async fn earlier_tasks_are_replaced_as_a_whole_and_anything_else_is_spared() {
    let (corpus, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_small(corpus.path(), 60);
    let tasks = out.path().join("tasks");
    for seed in [3, 4] {
        run_in(corpus.path(), &tasks, &SynthConfig { seed, ..config() }, None).await.unwrap();
    }
    let fresh = out.path().join("fresh");
    run_in(corpus.path(), &fresh, &SynthConfig { seed: 4, ..config() }, None).await.unwrap();
    assert_eq!(bytes_of(&tasks), bytes_of(&fresh));

    let foreign = out.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("train.jsonl"), "mine").unwrap();
    let error = run_in(corpus.path(), &foreign, &config(), None).await.unwrap_err();
    assert!(matches!(error, SynthError::NotOverwritten { .. }), "{error}");
    assert_eq!(bytes_of(&foreign).len(), 1);

    // Neither does a folder of tasks take with it what somebody put beside them, nor do others' manifests pass for ours.
    std::fs::write(tasks.join("notes.md"), "mine").unwrap();
    let error = run_in(corpus.path(), &tasks, &config(), None).await.unwrap_err();
    assert!(matches!(error, SynthError::NotOverwritten { .. }), "{error}");
    std::fs::write(foreign.join("manifest.json"), r#"{"files": {"train.jsonl": ""}}"#).unwrap();
    let error = run_in(corpus.path(), &foreign, &config(), None).await.unwrap_err();
    assert!(matches!(error, SynthError::NotOverwritten { .. }), "{error}");
}

#[tokio::test]
async fn a_failing_engine_is_an_error_and_leaves_nothing_behind() {
    let (corpus, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_small(corpus.path(), 60);
    let error = run_in(corpus.path(), out.path(), &config(), Some(Arc::new(Down))).await.unwrap_err();
    assert!(matches!(error, SynthError::Search(_)), "{error}");
    assert!(bytes_of(out.path()).is_empty());
}

#[tokio::test]
async fn too_small_a_corpus_is_an_error_unless_fewer_tasks_are_accepted() {
    let (corpus, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_small(corpus.path(), 12);
    let error = run_in(corpus.path(), out.path(), &SynthConfig::default(), None).await.unwrap_err();
    assert!(matches!(error, SynthError::TooFew { split: Split::Train, kind: "one_hop", .. }), "{error}");
    let config = SynthConfig { allow_fewer: true, ..SynthConfig::default() };
    let report = run_in(corpus.path(), out.path(), &config, None).await.unwrap();
    assert!(report.splits[&Split::Train].tasks < 2000);
}

#[tokio::test]
async fn wrong_settings_and_a_missing_corpus_are_errors() {
    let out = tempfile::tempdir().unwrap();
    let wrong = SynthConfig { two_hop_fraction: -1.0, concurrency: 0, ..SynthConfig::default() };
    let error = run_in(out.path(), out.path(), &wrong, None).await.unwrap_err().to_string();
    assert!(error.contains("two_hop_fraction") && error.contains("concurrency"), "{error}");
    let error = run_in(&out.path().join("absent"), out.path(), &config(), None).await.unwrap_err();
    assert!(matches!(error, SynthError::Corpus(_)), "{error}");
}

#[tokio::test]
async fn limits_hold() {
    let (corpus, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_small(corpus.path(), 60);
    let config = SynthConfig { max_per_entity: 3, max_per_relation: 9, ..config() };
    run_in(corpus.path(), out.path(), &config, None).await.unwrap();
    for tasks in read_all(out.path()).values() {
        let mut of_entity: BTreeMap<&str, usize> = BTreeMap::new();
        let mut of_relation: BTreeMap<&str, usize> = BTreeMap::new();
        for task in tasks {
            *of_entity.entry(&task.entities[0]).or_default() += 1;
            *of_relation.entry(task.extra["relation"].as_str().unwrap()).or_default() += 1;
        }
        assert!(of_entity.values().all(|&count| count <= 3), "{of_entity:?}");
        assert!(of_relation.values().all(|&count| count <= 9), "{of_relation:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn splits_are_disjoint_for_every_seed(seed in any::<u64>(), countries in 30usize..90) {
        let (corpus, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write_small(corpus.path(), countries);
        let config = SynthConfig { seed, allow_fewer: true, ..config() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(run_in(corpus.path(), out.path(), &config, None)).unwrap();
        assert_disjoint(&read_all(out.path()));
    }
}

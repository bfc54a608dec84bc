//! Supervised training: it learns, repeats itself bit by bit, resumes, and survives numbers that are not finite.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drgym_env::Trace;
use drgym_trainer::TrainError;
use drgym_trainer::checkpoint::{CheckpointError, CheckpointStore};
use drgym_trainer::config::{SftConfig, TrainablePart};
use drgym_trainer::model::{Decoder, LoadOptions};
use drgym_trainer::sft::{SftReport, SftRun, run};

use crate::learning_support::{expert_traces, timeless_metrics, tiny_config, write_model};

fn config(model: &Path, extra: &str) -> SftConfig {
    let text = format!(
        "epochs = 6\nbatch_size = 4\n{extra}\n[model]\npath = '{}'\nthreads = 1\n\
         [optimizer]\nlearning_rate = 0.01\nschedule = \"cosine\"\nwarmup_updates = 2\n\
         [micro_batch]\ntokens = 24\n[checkpoint]\nevery = 4\n",
        model.display()
    );
    toml::from_str(&text).unwrap()
}

fn train(
    config: &SftConfig,
    examples: Vec<Trace>,
    out: &Path,
    resume: bool,
    stop: u64,
) -> Result<SftReport, TrainError> {
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancel);
    run(SftRun {
        config: config.clone(),
        examples,
        out: out.to_owned(),
        resume,
        seed: 1,
        resolved_config_toml: toml::to_string(config).unwrap(),
        progress: &mut move |progress| flag.store(progress.step == stop, Ordering::Relaxed),
        cancel,
    })
}

#[test]
fn the_loss_falls_and_two_runs_are_equal() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    write_model(&model);
    let config = config(&model, "");
    let first = train(&config, expert_traces(10), &folder.path().join("a"), false, 0).unwrap();
    let second = train(&config, expert_traces(10), &folder.path().join("b"), false, 0).unwrap();
    assert_eq!((first.step, first.steps, first.cancelled), (18, 18, false));
    assert!(first.last_loss.unwrap() < 0.3 * first.first_loss.unwrap(), "{first:?}");
    assert_eq!(first.checkpoint.manifest.content_hash, second.checkpoint.manifest.content_hash);
    assert_eq!(timeless_metrics(&folder.path().join("a")), timeless_metrics(&folder.path().join("b")));
    assert!(Decoder::load(&first.checkpoint.path, LoadOptions::default()).is_ok());

    let again = train(&config, expert_traces(10), &folder.path().join("a"), false, 0);
    assert!(matches!(again, Err(TrainError::RunExists { .. })));
}

#[test]
fn a_cancelled_run_resumes_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    write_model(&model);
    for part in ["", "\"upper:2\"", "\"lora\""] {
        let mut config = config(&model, "");
        if !part.is_empty() {
            config.model.trainable = serde_json::from_str(part).unwrap();
            config.model.activation_checkpointing = true;
        }
        let (whole, cut) =
            (folder.path().join(format!("whole{part}")), folder.path().join(format!("cut{part}")));
        let straight = train(&config, expert_traces(10), &whole, false, 0).unwrap();
        let cancelled = train(&config, expert_traces(10), &cut, false, 7).unwrap();
        assert_eq!((cancelled.step, cancelled.cancelled), (7, true));
        let resumed = train(&config, expert_traces(10), &cut, true, 0).unwrap();
        assert_eq!(resumed.checkpoint.manifest.files, straight.checkpoint.manifest.files, "{part}");
        assert_eq!(timeless_metrics(&cut), timeless_metrics(&whole), "{part}");
    }
}

#[test]
fn resuming_something_else_is_refused_with_the_difference() {
    let folder = tempfile::tempdir().unwrap();
    let (model, out) = (folder.path().join("model"), folder.path().join("run"));
    write_model(&model);
    let original = config(&model, "");
    train(&original, expert_traces(10), &out, false, 3).unwrap();
    let refused = |config: &SftConfig, examples| match train(config, examples, &out, true, 0) {
        Err(TrainError::Checkpoint(error @ CheckpointError::Changed { .. })) => error.to_string(),
        other => panic!("not refused: {other:?}"),
    };
    let mut changed = original.clone();
    changed.optimizer.learning_rate = 0.02;
    let message = refused(&changed, expert_traces(10));
    assert!(
        message.contains("- learning_rate = 0.01") && message.contains("+ learning_rate = 0.02"),
        "{message}"
    );
    assert!(refused(&original, expert_traces(9)).contains("the dataset has changed"));
    std::fs::remove_dir_all(&model).unwrap();
    Decoder::random(tiny_config(true), 77, LoadOptions::default()).unwrap().save(&model).unwrap();
    assert!(refused(&original, expert_traces(10)).contains("the start model has changed"));
}

/// A model in which reading token 11 gives no finite number.
fn write_poisoned_model(folder: &Path) {
    let decoder = Decoder::random(tiny_config(false), 5, LoadOptions::default()).unwrap();
    tch::no_grad(|| {
        let embedding = decoder.parameters().get("model.embed_tokens.weight").unwrap();
        let _ = embedding.get(11).fill_(f64::NAN);
    });
    decoder.save(folder).unwrap();
}

#[test]
fn a_run_without_a_single_update_fails_however_short_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    write_poisoned_model(&model);
    let mut examples = expert_traces(1);
    examples[0].segments[0].prompt_ids = vec![1, 11];
    let mut config = config(&model, "max_skipped_in_row = 3");
    (config.epochs, config.batch_size) = (2, 1);
    let error = train(&config, examples, &folder.path().join("a"), false, 0).unwrap_err();
    assert!(matches!(error, TrainError::NotFinite { step: 2, in_row: 2, .. }), "{error}");
}

#[test]
fn an_update_that_is_not_finite_is_left_out_and_its_sample_named() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    write_poisoned_model(&model);
    let mut examples = expert_traces(6);
    examples[4].segments[0].prompt_ids = vec![1, 11];
    let mut config = config(&model, "max_skipped_in_row = 2");
    (config.epochs, config.batch_size) = (1, 1);
    let report = train(&config, examples.clone(), &folder.path().join("a"), false, 0).unwrap();
    assert_eq!(report.step, 6);
    let lines = timeless_metrics(&folder.path().join("a"));
    let skipped: Vec<_> = lines.iter().filter(|line| line["update"]["updates"] == 0).collect();
    assert_eq!(skipped.len(), 1);
    assert_eq!(skipped[0]["update"]["skipped"][0]["samples"], serde_json::json!(["task-4#0"]));
    assert!(lines.iter().all(|line| line["update"]["updates"] == 1 || line["update"]["loss"].is_null()));
    let last = lines.last().unwrap()["update"]["loss"].as_f64();
    assert!(last.is_some_and(f64::is_finite) || lines.last().unwrap()["update"]["updates"] == 0);

    config.max_skipped_in_row = 1;
    let out = folder.path().join("b");
    let stopped = train(&config, examples.clone(), &out, false, 0).unwrap_err();
    let TrainError::NotFinite { step, in_row: 1, samples, .. } = &stopped else { panic!("{stopped}") };
    assert_eq!(samples, "task-4#0");
    // What was learnt is kept, and the run does not go on as if nothing had been wrong.
    assert_eq!(CheckpointStore::open(&out).unwrap().latest().unwrap().state.step, *step);
    let again = train(&config, examples, &out, true, 0).unwrap_err();
    assert_eq!(again.to_string(), stopped.to_string());
    assert_eq!(timeless_metrics(&out).len() as u64, *step);
}

#[test]
fn what_only_loading_the_model_finds_wrong_leaves_no_run_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (model, out) = (folder.path().join("model"), folder.path().join("run"));
    write_model(&model);
    let mut config = config(&model, "");
    config.model.trainable = TrainablePart::Lora;
    let targets = std::mem::replace(&mut config.model.lora.targets, vec!["nonsense".into()]);
    let error = train(&config, expert_traces(4), &out, false, 0).unwrap_err();
    assert!(error.to_string().contains("nonsense"), "{error}");
    config.model.lora.targets = targets;
    let error = train(&config, expert_traces(4), &out, true, 0).unwrap_err();
    assert!(matches!(error, TrainError::NoRun { .. }), "{error}");
    train(&config, expert_traces(4), &out, false, 0).unwrap();
}

#[test]
fn examples_that_cannot_be_learnt_from_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    write_model(&model);
    let config = config(&model, "");
    let refused = |examples: Vec<Trace>, out: &str| {
        train(&config, examples, &folder.path().join(out), false, 0).unwrap_err().to_string()
    };
    assert!(refused(vec![], "a").contains("there is no example"));
    let mut examples = expert_traces(3);
    examples[1].segments[0].response_ids[0] = 4000;
    assert!(refused(examples.clone(), "b").contains("task-1#0 cannot be learnt from: token 4000"));
    examples[1].segments[0].response_ids.pop();
    assert!(refused(examples, "c").contains("task-1#0"));
    let mut long = expert_traces(1);
    long[0].segments[0].prompt_ids = vec![3; 80];
    assert!(refused(long, "d").contains("do not fit the model's context of 64"));
}

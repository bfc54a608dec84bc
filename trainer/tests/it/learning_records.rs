//! What a run leaves behind: checkpoints that are whole or absent, and events that TensorBoard reads.

use std::path::Path;
use std::process::Command;

use drgym_trainer::TrainError;
use drgym_trainer::checkpoint::{
    CHECKPOINT_FORMAT, Checkpoint, CheckpointError, CheckpointStore, OPTIMIZER, RunState, model_hash, read,
};
use drgym_trainer::metrics::MetricsLog;

use crate::learning_support::{Bandit, grpo_config, run_grpo, write_model};
use crate::model_support::set_up_folder;

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let (model, out) = (folder.path().join("model"), folder.path().join("run"));
    write_model(&model);
    let mut config = grpo_config(&model, 4);
    config.evaluation.every = 0;
    run_grpo(&config, &out, false, Bandit::default()).unwrap();
    let store = CheckpointStore::open(&out).unwrap();
    assert_eq!(store.steps().unwrap(), [2, 4]);
    assert_eq!(store.latest().unwrap().state.step, 4);

    let flip = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    let weights = store.path(4).join("model.safetensors");
    flip(&weights);
    assert!(
        matches!(read(&store.path(4)), Err(CheckpointError::Broken { reason, .. }) if reason.contains("model.safetensors"))
    );
    assert_eq!(store.latest().unwrap().state.step, 2);
    flip(&weights);
    assert_eq!(store.latest().unwrap().state.step, 4);

    std::fs::remove_file(store.path(4).join("trainer_state/optimizer.safetensors")).unwrap();
    let state = store.path(2).join("trainer_state/state.json");
    let text = std::fs::read_to_string(&state).unwrap();
    std::fs::write(&state, &text[..text.len() / 2]).unwrap();
    let error = run_grpo(&config, &out, true, Bandit::default()).unwrap_err();
    let TrainError::Checkpoint(CheckpointError::NoCheckpoint { broken, .. }) = error else {
        panic!("{error}")
    };
    assert_eq!(broken.len(), 2);
}

/// Writes a checkpoint of step 1 that holds no model.
fn write_step_1(store: &CheckpointStore, data_position: u64) -> Result<Checkpoint, CheckpointError> {
    let state = RunState {
        format_version: CHECKPOINT_FORMAT,
        kind: "grpo".into(),
        step: 1,
        data_position,
        seed: 0,
        config_hash: String::new(),
        dataset_hash: String::new(),
        model_hash: String::new(),
        skipped_in_row: 0,
        start_accuracy: None,
        best: None,
        unreported: None,
        stopped: None,
    };
    store.write(&state, "", 0, |folder| {
        let written = std::fs::create_dir_all(folder.join("trainer_state"))
            .and_then(|()| std::fs::write(folder.join(OPTIMIZER), "moments"));
        written.map_err(|source| CheckpointError::Io { action: "write", path: folder.to_owned(), source })
    })
}

#[test]
fn a_checkpoint_that_is_written_again_is_never_missing() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(folder.path()).unwrap();
    write_step_1(&store, 0).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for data_position in 1..=40 {
                write_step_1(&store, data_position).unwrap();
            }
        });
        let (mut looks, path) = (0_u64, store.path(1));
        while !writer.is_finished() {
            assert!(path.is_dir(), "missing after {looks} looks");
            looks += 1;
        }
        writer.join().unwrap();
        assert!(looks > 0);
    });
    assert_eq!(store.latest().unwrap().state.data_position, 40);
    assert_eq!(std::fs::read_dir(folder.path().join("checkpoints")).unwrap().count(), 1);
}

/// Where the file system cannot exchange two folders, the old one makes way first.
#[test]
fn a_checkpoint_that_made_way_for_one_that_never_came_is_brought_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(folder.path()).unwrap();
    let aside = folder.path().join("checkpoints/.step_1.part-7-0.replaced");
    write_step_1(&store, 5).unwrap();
    std::fs::rename(store.path(1), &aside).unwrap();
    let store = CheckpointStore::open(folder.path()).unwrap();
    assert_eq!(store.latest().unwrap().state.data_position, 5);
    assert!(!aside.exists());

    // Not in place of one that came.
    std::fs::rename(store.path(1), &aside).unwrap();
    write_step_1(&store, 6).unwrap();
    let store = CheckpointStore::open(folder.path()).unwrap();
    assert_eq!(store.latest().unwrap().state.data_position, 6);
    assert!(!aside.exists());
}

#[test]
fn a_run_whose_checkpoints_are_gone_is_refused_and_keeps_its_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let (model, out) = (folder.path().join("model"), folder.path().join("run"));
    write_model(&model);
    let config = grpo_config(&model, 2);
    run_grpo(&config, &out, false, Bandit::default()).unwrap();
    let metrics = std::fs::read(out.join("metrics.jsonl")).unwrap();
    std::fs::remove_dir_all(out.join("checkpoints")).unwrap();
    let error = run_grpo(&config, &out, true, Bandit::default()).unwrap_err();
    assert!(matches!(error, TrainError::CheckpointsLost { .. }), "{error}");
    assert_eq!(std::fs::read(out.join("metrics.jsonl")).unwrap(), metrics);
}

#[test]
fn the_hash_of_a_model_covers_its_chat_template() {
    let folder = tempfile::tempdir().unwrap();
    let hash_with = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        model_hash(folder.path()).unwrap()
    };
    let bare = hash_with("config.json", "{}");
    assert_eq!(hash_with("README.md", "about"), bare);
    let first = hash_with("chat_template.jinja", "{{ messages }}");
    let second = hash_with("chat_template.jinja", "{{ messages[0] }}");
    assert!(first != bare && second != bare && first != second);
}

#[test]
fn metrics_are_cut_back_to_where_the_checkpoint_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = MetricsLog::open(folder.path(), 0, 0).unwrap();
    log.append(1, &serde_json::json!({"step": 1})).unwrap();
    let offset = log.sync().unwrap();
    log.append(2, &serde_json::json!({"step": 2})).unwrap();
    drop(log);
    let mut log = MetricsLog::open(folder.path(), offset, 2).unwrap();
    log.append(2, &serde_json::json!({"step": 2, "again": true})).unwrap();
    let text = std::fs::read_to_string(folder.path().join("metrics.jsonl")).unwrap();
    assert_eq!(text, "{\"step\":1}\n{\"step\":2,\"again\":true}\n");
    assert!(MetricsLog::open(folder.path(), 10_000, 2).is_err());
}

#[test]
fn tensorboard_reads_scalars_and_texts() {
    let Some(packages) = set_up_folder("tools/tensorboard") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (model, out) = (folder.path().join("model"), folder.path().join("run"));
    write_model(&model);
    let mut config = grpo_config(&model, 4);
    config.checkpoint.every = 2;
    // Step 3 is done twice: TensorBoard must show what the second process says.
    run_grpo(&config, &out, false, Bandit { die_in: Some(4), ..Bandit::default() }).unwrap_err();
    run_grpo(&config, &out, true, Bandit::default()).unwrap();

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/golden/learning_tensorboard.py");
    let output = Command::new(std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into()))
        .env("PYTHONPATH", packages)
        .arg(script)
        .arg(&out)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let lines: Vec<serde_json::Value> = std::fs::read_to_string(out.join("metrics.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let rewards = found["scalars"]["train/reward_mean"].as_array().unwrap();
    assert_eq!(rewards.len(), 4);
    for (event, line) in rewards.iter().zip(&lines[1..]) {
        assert_eq!(event[0], line["step"]);
        let expected = line["train"]["reward_mean"].as_f64().unwrap() as f32;
        assert_eq!(event[1].as_f64().unwrap() as f32, expected);
    }
    assert_eq!(found["scalars"]["dev/accuracy"].as_array().unwrap().len(), 3);
    assert_eq!(found["scalars"]["timings/train_seconds"].as_array().unwrap().len(), 5);
    let texts = found["texts"]["episode/0"].as_array().unwrap();
    // TensorBoard voids scalars of steps that were done again, but keeps their texts.
    let steps: Vec<_> = texts.iter().map(|event| event[0].as_u64().unwrap()).collect();
    assert_eq!(steps, [1, 2, 3, 3, 4]);
    assert!(texts[0][1].as_str().unwrap().contains("Expected: 7"));
}

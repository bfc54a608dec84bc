//! What a run leaves behind: checkpoints that are whole or absent, and events that TensorBoard reads.

use std::path::Path;
use std::process::Command;

use drgym_trainer::TrainError;
use drgym_trainer::checkpoint::{CheckpointError, CheckpointStore, read};
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

//! GRPO on a bandit: reward rises, runs repeat and resume bit by bit, failures are dropped and never scored.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use drgym_trainer::TrainError;
use drgym_trainer::checkpoint::{Best, Checkpoint, CheckpointError, CheckpointStore};
use drgym_trainer::config::{OldLogprobs, TrainablePart};
use drgym_trainer::grpo::{Ending, GrpoReport};
use drgym_trainer::model::{Decoder, LoadOptions};

use crate::learning_support::{
    Bandit, grpo_config, run_grpo, run_grpo_with, sampler_maker, timeless_metrics, write_model,
};

struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_model(&folder.path().join("model"));
        Self { folder }
    }

    fn model(&self) -> std::path::PathBuf {
        self.folder.path().join("model")
    }

    fn out(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }
}

fn traces(run: &Path) -> BTreeMap<String, String> {
    std::fs::read_dir(run.join("traces"))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                std::fs::read_to_string(&path).unwrap(),
            )
        })
        .collect()
}

#[test]
fn reward_rises_and_the_best_checkpoint_is_kept() {
    let world = World::new();
    let config = grpo_config(&world.model(), 30);
    let report = run_grpo(&config, &world.out("run"), false, Bandit::default()).unwrap();
    assert_eq!((report.step, report.ending.clone()), (30, Ending::Finished));
    let lines = timeless_metrics(&world.out("run"));
    assert_eq!(lines.len(), 31);
    let mean = |lines: &[serde_json::Value]| {
        lines.iter().map(|line| line["train"]["reward_mean"].as_f64().unwrap()).sum::<f64>()
            / lines.len() as f64
    };
    let (before, after) = (mean(&lines[1..4]), mean(&lines[28..]));
    assert!(before < 0.4 && after > 0.9, "{before} {after}");
    assert_eq!(report.start_accuracy, lines[0]["dev"]["accuracy"].as_f64());
    let (best, path) = report.best.unwrap();
    assert_eq!(best.accuracy, 1.0);
    assert!(Decoder::load(&path, LoadOptions::default()).is_ok());
    let mut steps: Vec<String> = std::fs::read_dir(world.out("run/checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    steps.sort();
    let mut expected = vec![format!("step_{}", best.step), "step_28".into(), "step_30".into()];
    expected.sort();
    expected.dedup();
    assert_eq!(steps, expected);
    // With one update a step the policy is its own predecessor, and the sampler agrees with the trainer.
    for line in &lines[1..] {
        if !line["update"]["ratio"].is_null() {
            assert_eq!(line["update"]["ratio"]["mean"], 1.0);
            assert!(line["update"]["ratio"]["sampler_gap"].as_f64().unwrap() < 1e-5);
        }
    }
}

#[test]
fn a_killed_run_resumes_to_the_same_bits() {
    let world = World::new();
    let mut config = grpo_config(&world.model(), 7);
    config.kl_coefficient = 0.01;
    config.entropy_coefficient = 0.001;
    (config.mini_batches, config.ppo_epochs) = (2, 2);
    let straight = run_grpo(&config, &world.out("whole"), false, Bandit::default()).unwrap();
    // The last checkpoint is of step 4; step 5 is done and lost, step 6 never ends.
    let killed = run_grpo(&config, &world.out("cut"), false, Bandit { die_in: Some(6), ..Bandit::default() });
    assert!(matches!(killed, Err(TrainError::Rollout { step: 6, .. })), "{killed:?}");
    assert!(world.out("cut/traces/step_5.jsonl").exists());
    // What a write that was cut short leaves behind, and a damaged newer checkpoint, do not matter.
    std::fs::create_dir_all(world.out("cut/checkpoints/.step_6.1/trainer_state")).unwrap();
    std::fs::create_dir_all(world.out("cut/checkpoints/step_5")).unwrap();
    let resumed = run_grpo(&config, &world.out("cut"), true, Bandit::default()).unwrap();
    assert_eq!(resumed.checkpoint.manifest.files, straight.checkpoint.manifest.files);
    assert_eq!(timeless_metrics(&world.out("cut")), timeless_metrics(&world.out("whole")));
    assert_eq!(traces(&world.out("cut")), traces(&world.out("whole")));
    assert!(!world.out("cut/checkpoints/.step_6.1").exists());
}

#[test]
fn the_same_seed_gives_the_same_checkpoint() {
    let world = World::new();
    let config = grpo_config(&world.model(), 3);
    let first = run_grpo(&config, &world.out("a"), false, Bandit::default()).unwrap();
    let second = run_grpo(&config, &world.out("b"), false, Bandit::default()).unwrap();
    assert_eq!(first.checkpoint.manifest.content_hash, second.checkpoint.manifest.content_hash);
    assert_eq!(timeless_metrics(&world.out("a")), timeless_metrics(&world.out("b")));
}

#[test]
fn a_cancelled_run_leaves_a_checkpoint_and_resumes() {
    let world = World::new();
    let config = grpo_config(&world.model(), 5);
    let straight = run_grpo(&config, &world.out("whole"), false, Bandit::default()).unwrap();
    let cancel_in = Some((3, Arc::new(AtomicBool::new(false))));
    let cancelled =
        run_grpo(&config, &world.out("cut"), false, Bandit { cancel_in, ..Bandit::default() }).unwrap();
    assert_eq!((cancelled.step, cancelled.ending), (3, Ending::Cancelled));
    let resumed = run_grpo(&config, &world.out("cut"), true, Bandit::default()).unwrap();
    assert_eq!(resumed.checkpoint.manifest.files, straight.checkpoint.manifest.files);
}

#[test]
fn an_interrupted_evaluation_is_made_when_the_run_is_resumed() {
    let world = World::new();
    let config = grpo_config(&world.model(), 4);
    let straight = run_grpo(&config, &world.out("whole"), false, Bandit::default()).unwrap();
    // The evaluation in the middle, and the one after the last step.
    for step in [2, 4] {
        let out = world.out(&format!("cut{step}"));
        let interrupted = Bandit { interrupt_evaluation_in: Some(step), ..Bandit::default() };
        let cancelled = run_grpo(&config, &out, false, interrupted).unwrap();
        assert_eq!((cancelled.step, cancelled.ending), (step, Ending::Cancelled));
        let resumed = run_grpo(&config, &out, true, Bandit::default()).unwrap();
        assert_eq!((resumed.ending, &resumed.best), (Ending::Finished, &straight_best(&straight, &out)));
        assert_eq!(resumed.checkpoint.manifest.files, straight.checkpoint.manifest.files);
        assert_eq!(timeless_metrics(&out), timeless_metrics(&world.out("whole")));
    }
}

/// The best checkpoint of another run, as it lies in `out`.
fn straight_best(straight: &GrpoReport, out: &Path) -> Option<(Best, std::path::PathBuf)> {
    let (best, path) = straight.best.as_ref()?;
    Some((*best, out.join("checkpoints").join(path.file_name()?)))
}

#[test]
fn an_evaluation_that_mostly_failed_chooses_no_checkpoint() {
    let world = World::new();
    let mut config = grpo_config(&world.model(), 4);
    config.evaluation.at_start = false;
    let outage = Bandit { failing_evaluations: 3, ..Bandit::default() };
    let error = run_grpo(&config, &world.out("run"), false, outage).unwrap_err();
    let TrainError::TooManyFailures { step, failed, episodes, .. } = error else { panic!("{error}") };
    assert_eq!((step, failed, episodes), (2, 3, 4));
    // Nothing that was learnt is lost, and the evaluation is made once the search is back.
    let straight = run_grpo(&config, &world.out("whole"), false, Bandit::default()).unwrap();
    let resumed = run_grpo(&config, &world.out("run"), true, Bandit::default()).unwrap();
    assert_eq!(resumed.checkpoint.manifest.files, straight.checkpoint.manifest.files);
}

#[test]
fn an_evaluation_that_lost_an_episode_does_not_beat_a_whole_one() {
    let world = World::new();
    let config = grpo_config(&world.model(), 4);
    // Every answer is right, but up to step 2 the search fails in one episode of four.
    let failing = Bandit { flat: Some(1.0), failing_evaluations: 1, die_in: Some(3), ..Bandit::default() };
    run_grpo(&config, &world.out("run"), false, failing).unwrap_err();
    let whole = Bandit { flat: Some(1.0), ..Bandit::default() };
    let report = run_grpo(&config, &world.out("run"), true, whole).unwrap();
    let line = &timeless_metrics(&world.out("run"))[2]["dev"];
    assert_eq!((line["dropped_samples"].as_u64(), line["accuracy"].as_f64()), (Some(1), Some(1.0)));
    assert_eq!(report.start_accuracy, Some(0.75));
    assert_eq!(report.best.unwrap().0, Best { step: 4, accuracy: 1.0 });
}

#[test]
fn a_limit_on_divergence_that_cannot_be_measured_is_a_configuration_error() {
    let mut config = grpo_config(Path::new("model"), 4);
    config.guard.max_kl = 0.1;
    assert!(config.validate().iter().any(|problem| problem.starts_with("guard.max_kl")));
    config.ppo_epochs = 2;
    assert_eq!(config.validate(), Vec::<String>::new());
}

#[test]
fn recomputed_and_sampled_log_probabilities_agree() {
    let world = World::new();
    let mut config = grpo_config(&world.model(), 3);
    config.ppo_epochs = 2;
    run_grpo(&config, &world.out("recompute"), false, Bandit::default()).unwrap();
    config.old_logprobs = OldLogprobs::Sampler;
    run_grpo(&config, &world.out("sampler"), false, Bandit::default()).unwrap();
    let lines = [timeless_metrics(&world.out("recompute")), timeless_metrics(&world.out("sampler"))];
    for (recomputed, sampled) in lines[0].iter().zip(&lines[1]).skip(1) {
        let of = |line: &serde_json::Value| line["update"]["ratio"]["mean"].as_f64().unwrap();
        assert!((of(recomputed) - of(sampled)).abs() < 1e-3, "{recomputed} {sampled}");
        assert!(of(recomputed) != 1.0);
    }
}

/// Rewards of which every group has some of each.
fn alternating(_task: usize, sample: u32) -> f64 {
    f64::from(sample % 2)
}

#[test]
fn sampler_and_trainer_agree_at_another_temperature() {
    let world = World::new();
    let mut config = grpo_config(&world.model(), 3);
    config.temperature = 0.7;
    let spread = Bandit { reward: Some(alternating), ..Bandit::default() };
    run_grpo_with(sampler_maker(), &config, &world.out("run"), false, spread).unwrap();
    for line in &timeless_metrics(&world.out("run"))[1..] {
        let gap = line["update"]["ratio"]["sampler_gap"].as_f64().unwrap();
        assert!(gap < 1e-4, "{line}");
    }
}

/// Rewards of the first two tasks of a step that give advantages beyond single precision, so that the loss is not finite.
fn half_of_them_huge(task: usize, sample: u32) -> f64 {
    if task < 2 { huge(task, sample) } else { alternating(task, sample) }
}

/// The same for all tasks.
fn huge(_task: usize, sample: u32) -> f64 {
    if sample == 0 { 1e300 } else { 0.0 }
}

#[test]
fn the_sampler_is_compared_with_the_first_update_that_was_applied() {
    let world = World::new();
    let mut config = grpo_config(&world.model(), 1);
    (config.mini_batches, config.normalize_by_std) = (2, false);
    let bandit = Bandit { reward: Some(half_of_them_huge), logprob_offset: -0.1, ..Bandit::default() };
    run_grpo(&config, &world.out("run"), false, bandit).unwrap();
    let update = &timeless_metrics(&world.out("run"))[1]["update"];
    assert_eq!(update["skipped"].as_array().unwrap().len(), 1, "{update}");
    assert_eq!(update["updates"], 1, "{update}");
    let gap = update["ratio"]["sampler_gap"].as_f64().unwrap();
    assert!((gap - 0.1).abs() < 1e-3, "{gap}");
}

#[test]
fn failed_episodes_are_dropped_from_their_groups() {
    let world = World::new();
    let config = grpo_config(&world.model(), 2);
    let failing = || Bandit { failing_samples: vec![1, 5], ..Bandit::default() };
    run_grpo(&config, &world.out("a"), false, failing()).unwrap();
    let line = &timeless_metrics(&world.out("a"))[1];
    assert_eq!(line["train"]["episodes"], 32);
    assert_eq!(line["train"]["dropped_samples"], 8);
    assert_eq!(line["train"]["dropped_by"], serde_json::json!({"search": 8}));
    let text = &traces(&world.out("a"))["step_1.jsonl"];
    let rewards: Vec<f64> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<drgym_env::Trace>(line).unwrap().reward)
        .collect();
    assert_eq!(rewards.len(), 24);
    let mean = rewards.iter().sum::<f64>() / 24.0;
    assert!((line["train"]["reward_mean"].as_f64().unwrap() - mean).abs() < 1e-12);

    // Where all that were scored are alike there is nothing to learn; a failure scored as 0 would stand out from them.
    let alike = Bandit { flat: Some(1.0), ..failing() };
    run_grpo(&config, &world.out("alike"), false, alike).unwrap();
    for line in &timeless_metrics(&world.out("alike"))[1..] {
        let groups = serde_json::json!({"groups": 4, "zero_spread_groups": 4, "singleton_groups": 0});
        assert_eq!((line["train"]["dropped_samples"].as_u64(), &line["groups"]), (Some(8), &groups));
        assert_eq!(line["update"]["updates"], 0, "{line}");
    }

    let many = Bandit { failing_samples: vec![1, 2, 3], ..Bandit::default() };
    let error = run_grpo(&config, &world.out("b"), false, many).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("12 of 32 episodes") && message.contains("no route to the index"), "{message}");
}

#[test]
fn groups_without_spread_change_nothing() {
    let world = World::new();
    let mut config = grpo_config(&world.model(), 1);
    config.evaluation.at_start = false;
    let flat = Bandit { flat: Some(0.1), ..Bandit::default() };
    let report = run_grpo(&config, &world.out("run"), false, flat).unwrap();
    let line = &timeless_metrics(&world.out("run"))[0];
    assert_eq!(
        line["groups"],
        serde_json::json!({"groups": 4, "zero_spread_groups": 4, "singleton_groups": 0})
    );
    assert_eq!((&line["update"]["updates"], &line["update"]["tokens"]), (&0.into(), &0.into()));
    let weights = |folder: &Path| {
        let decoder = Decoder::load(folder, LoadOptions::default()).unwrap();
        let tensor = decoder.parameters().get("model.layers.1.mlp.up_proj.weight").unwrap().shallow_clone();
        Vec::<f32>::try_from(tensor.flatten(0, -1)).unwrap()
    };
    assert_eq!(weights(&report.checkpoint.path), weights(&world.model()));
}

#[test]
fn samples_in_another_group_are_refused() {
    let world = World::new();
    let config = grpo_config(&world.model(), 1);
    let swapped = Bandit { swapped: true, ..Bandit::default() };
    let error = run_grpo(&config, &world.out("run"), false, swapped).unwrap_err();
    assert!(matches!(error, TrainError::Membership(_)), "{error}");
}

#[test]
fn limits_on_divergence_and_entropy_end_the_run() {
    let world = World::new();
    let mut config = grpo_config(&world.model(), 20);
    config.guard.min_entropy = 1.5;
    let report = run_grpo(&config, &world.out("entropy"), false, Bandit::default()).unwrap();
    assert!(matches!(report.ending, Ending::EntropyLimit { entropy, .. } if entropy < 1.5), "{report:?}");
    assert!(report.step < 20 && report.checkpoint.state.step == report.step);
    let steps = CheckpointStore::open(&world.out("entropy")).unwrap().steps().unwrap();
    assert!(steps.len() > config.checkpoint.keep_last, "a healthier checkpoint stays: {steps:?}");
    config.guard.min_entropy = 0.0;
    (config.kl_coefficient, config.guard.max_kl) = (0.001, 0.2);
    let report = run_grpo(&config, &world.out("kl"), false, Bandit::default()).unwrap();
    assert!(matches!(report.ending, Ending::KlLimit { kl, .. } if kl > 0.2), "{report:?}");
}

#[test]
fn a_run_that_a_guard_ended_ends_so_again_when_it_is_resumed() {
    let world = World::new();
    // Whether it was the last step or not.
    for steps in [1, 4] {
        let out = world.out(&format!("of{steps}"));
        let mut config = grpo_config(&world.model(), steps);
        config.guard.min_entropy = 100.0;
        let ended = run_grpo(&config, &out, false, Bandit::default()).unwrap();
        assert!(matches!(ended.ending, Ending::EntropyLimit { .. }), "{ended:?}");
        assert_eq!(ended.step, 1);
        let metrics = timeless_metrics(&out);
        // It would die if it went on.
        let again = run_grpo(&config, &out, true, Bandit { die_in: Some(2), ..Bandit::default() }).unwrap();
        assert_eq!((again.step, &again.ending, &again.best), (1, &ended.ending, &ended.best));
        assert_eq!(again.checkpoint, ended.checkpoint);
        assert_eq!(timeless_metrics(&out), metrics);
    }
}

#[test]
fn updates_that_are_not_finite_end_the_run_and_end_it_again_when_it_is_resumed() {
    let world = World::new();
    let mut config = grpo_config(&world.model(), 3);
    (config.normalize_by_std, config.guard.max_skipped_in_row) = (false, 2);
    let out = world.out("run");
    let error =
        run_grpo(&config, &out, false, Bandit { reward: Some(huge), ..Bandit::default() }).unwrap_err();
    let TrainError::NotFinite { step, in_row, reason, samples } = &error else { panic!("{error}") };
    assert_eq!((*step, *in_row), (2, 2));
    assert!(!reason.is_empty() && !samples.is_empty(), "{error}");
    let again = run_grpo(&config, &out, true, Bandit { die_in: Some(3), ..Bandit::default() }).unwrap_err();
    assert_eq!(again.to_string(), error.to_string());

    // In a checkpoint from before that was kept, the updates in a row stand at their limit. A step without any update
    // adds none to them.
    forget_the_ending(&out);
    let flat = Bandit { flat: Some(0.1), ..Bandit::default() };
    let resumed = run_grpo(&config, &out, true, flat).unwrap();
    assert_eq!((resumed.step, resumed.ending), (3, Ending::Finished));
}

/// Writes the newest checkpoint anew without what a guard ended the run for.
fn forget_the_ending(run: &Path) {
    let store = CheckpointStore::open(run).unwrap();
    let Checkpoint { path, manifest, mut state, config } = store.latest().unwrap();
    assert!(state.stopped.take().is_some());
    let copy = |folder: &Path| -> Result<(), CheckpointError> {
        for name in manifest.files.keys() {
            let to = folder.join(name);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(path.join(name), to).unwrap();
        }
        Ok(())
    };
    store.write(&state, &config, manifest.metrics_offset, copy).unwrap();
}

#[test]
fn what_only_loading_the_model_finds_wrong_leaves_no_run_behind() {
    let world = World::new();
    let config = grpo_config(&world.model(), 1);
    let mut wrong = config.clone();
    wrong.model.trainable = TrainablePart::Upper(99);
    let error = run_grpo(&wrong, &world.out("run"), false, Bandit::default()).unwrap_err();
    assert!(error.to_string().contains("99 trainable upper layers"), "{error}");
    let error = run_grpo(&config, &world.out("run"), true, Bandit::default()).unwrap_err();
    assert!(matches!(error, TrainError::NoRun { .. }), "{error}");
    run_grpo(&config, &world.out("run"), false, Bandit::default()).unwrap();
}

#[test]
fn fewer_tasks_than_a_step_needs_are_a_configuration_error() {
    let world = World::new();
    let mut config = grpo_config(&world.model(), 1);
    config.prompts_per_step = 11;
    let error = run_grpo(&config, &world.out("run"), false, Bandit::default()).unwrap_err();
    assert!(matches!(&error, TrainError::Config(problems) if problems.len() == 1), "{error}");
    assert!(!world.out("run").exists());
}

//! Training processes that are killed, again and again, come to the same end as those that are left alone.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use drgym_env::seed::{derive_seed, generator};
use drgym_trainer::TrainError;
use drgym_trainer::checkpoint::{CheckpointStore, FileEntry};
use drgym_trainer::config::SftConfig;
use drgym_trainer::grpo::GrpoReport;
use drgym_trainer::sft::{SftRun, run};
use rand::Rng;

use crate::learning_support::{
    Bandit, expert_traces, grpo_config, run_grpo, run_grpo_with, sampler_maker, timeless_metrics, write_model,
};

/// Tells a process that it is to train, and where: `KIND MODEL RUN`, one a line.
const VICTIM: &str = "DRGYM_TEST_VICTIM";

/// Steps of each run.
const STEPS: u64 = 8;

/// Not a test of its own: what the processes started below do.
#[test]
fn victim() {
    let Ok(order) = std::env::var(VICTIM) else { return };
    let [kind, model, out] = order.lines().collect::<Vec<_>>()[..] else { panic!("{order}") };
    let (model, out) = (Path::new(model), Path::new(out));
    let resume = out.join("config.toml").exists();
    match kind {
        "sft" => drop(sft(model, out, resume).unwrap()),
        _ => drop(grpo(model, out, resume, Bandit::default()).unwrap()),
    }
}

/// With the program's own sampler.
fn grpo(model: &Path, out: &Path, resume: bool, world: Bandit) -> Result<GrpoReport, TrainError> {
    let mut config = grpo_config(model, STEPS);
    (config.checkpoint.every, config.checkpoint.keep_last) = (1, 2);
    run_grpo_with(sampler_maker(), &config, out, resume, world)
}

fn sft(model: &Path, out: &Path, resume: bool) -> Result<drgym_trainer::sft::SftReport, TrainError> {
    let text = format!(
        "epochs = 4\nbatch_size = 4\n[model]\npath = '{}'\nthreads = 1\n[optimizer]\nlearning_rate = 0.01\n\
         [checkpoint]\nevery = 1\nkeep_last = 2\n",
        model.display()
    );
    let config: SftConfig = toml::from_str(&text).unwrap();
    run(SftRun {
        resolved_config_toml: toml::to_string(&config).unwrap(),
        config,
        examples: expert_traces(10),
        out: out.to_owned(),
        resume,
        seed: 1,
        progress: &mut |_| {},
        cancel: Arc::new(AtomicBool::new(false)),
    })
}

fn start(kind: &str, model: &Path, out: &Path) -> Child {
    victim_of(Command::new(std::env::current_exe().unwrap()), kind, model, out).spawn().unwrap()
}

fn victim_of(mut command: Command, kind: &str, model: &Path, out: &Path) -> Command {
    command
        .args(["learning_killed::victim", "--exact", "--test-threads=1", "--nocapture"])
        .env(VICTIM, format!("{kind}\n{}\n{}", model.display(), out.display()))
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null());
    command
}

/// Everything that a run leaves, clocks apart.
#[derive(Debug, PartialEq)]
struct Left {
    /// Of the last checkpoint.
    files: BTreeMap<String, FileEntry>,
    metrics: Vec<serde_json::Value>,
    episodes: BTreeMap<PathBuf, Vec<u8>>,
}

fn left(out: &Path) -> Left {
    let checkpoint = CheckpointStore::open(out).unwrap().latest().unwrap();
    let mut episodes = BTreeMap::new();
    if let Ok(entries) = std::fs::read_dir(out.join("traces")) {
        for entry in entries {
            let path = entry.unwrap().path();
            episodes.insert(path.file_name().unwrap().into(), std::fs::read(&path).unwrap());
        }
    }
    Left { files: checkpoint.manifest.files, metrics: timeless_metrics(out), episodes }
}

fn killed_and_resumed(kind: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (model, straight, cut) =
        (folder.path().join("model"), folder.path().join("straight"), folder.path().join("cut"));
    write_model(&model);
    let begun = Instant::now();
    assert!(start(kind, &model, &straight).wait().unwrap().success());
    let step = begun.elapsed().div_f64(STEPS as f64);

    // One process is killed after every step, at an arbitrary moment; the end must not depend on which.
    let mut random = generator(derive_seed(1, "kills", 0, kind, 0));
    let lines = || std::fs::read_to_string(cut.join("metrics.jsonl")).map_or(0, |text| text.lines().count());
    let mut killed = 0;
    for target in 0..STEPS as usize {
        let mut process = start(kind, &model, &cut);
        while lines() < target && process.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(step.mul_f64(random.random_range(0.0..1.0)));
        process.kill().unwrap();
        killed += usize::from(process.wait().unwrap().signal().is_some());
    }
    assert!(killed > 0, "every process had ended by itself before it was to be killed");
    assert!(start(kind, &model, &cut).wait().unwrap().success());
    assert_eq!(left(&straight), left(&cut));
}

#[test]
fn killed_reinforcement_learning_ends_in_the_same_bits() {
    killed_and_resumed("grpo");
}

#[test]
fn killed_supervised_training_ends_in_the_same_bits() {
    killed_and_resumed("sft");
}

/// A limit on the size of files stands in for a full disk: both make `write` fail half way through.
#[test]
fn a_full_disk_at_a_checkpoint_leaves_the_last_one_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (model, straight, cut) =
        (folder.path().join("model"), folder.path().join("straight"), folder.path().join("cut"));
    write_model(&model);
    assert!(start("grpo", &model, &straight).wait().unwrap().success());
    grpo(&model, &cut, false, Bandit { die_in: Some(3), ..Bandit::default() }).unwrap_err();
    let before = CheckpointStore::open(&cut).unwrap().latest().unwrap();
    assert_eq!(before.state.step, 2);

    // 32 KiB hold a step's episodes and the model, not the moments of the optimiser.
    let mut shell = Command::new("bash");
    shell
        .args(["-c", "trap '' XFSZ; ulimit -f 32; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap());
    let full = victim_of(shell, "grpo", &model, &cut).output().unwrap();
    let said = String::from_utf8_lossy(&full.stderr);
    assert!(!full.status.success());
    assert!(said.contains("checkpoints") && said.contains("File too large"), "{said}");
    let names: Vec<_> = std::fs::read_dir(cut.join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.iter().all(|name| !name.starts_with('.')), "the disk must not stay full: {names:?}");
    assert_eq!(CheckpointStore::open(&cut).unwrap().latest().unwrap().manifest, before.manifest);

    assert!(start("grpo", &model, &cut).wait().unwrap().success());
    assert_eq!(left(&straight), left(&cut));
}

#[test]
fn a_run_interrupted_before_its_first_checkpoint_begins_again() {
    let folder = tempfile::tempdir().unwrap();
    let (model, straight, cut) =
        (folder.path().join("model"), folder.path().join("straight"), folder.path().join("cut"));
    write_model(&model);
    let config = grpo_config(&model, 4);
    let whole = run_grpo(&config, &straight, false, Bandit::default()).unwrap();
    run_grpo(&config, &cut, false, Bandit { die_in: Some(2), ..Bandit::default() }).unwrap_err();
    let again = run_grpo(&config, &cut, true, Bandit::default()).unwrap();
    assert_eq!(again.checkpoint.manifest.files, whole.checkpoint.manifest.files);
    assert_eq!(timeless_metrics(&cut), timeless_metrics(&straight));

    // But only as the run that it was.
    let other = folder.path().join("other");
    run_grpo(&config, &other, false, Bandit { die_in: Some(2), ..Bandit::default() }).unwrap_err();
    let error = run_grpo(&grpo_config(&model, 5), &other, true, Bandit::default()).unwrap_err();
    assert!(error.to_string().contains("steps = 5"), "{error}");
    let error = run_grpo(&config, &folder.path().join("absent"), true, Bandit::default()).unwrap_err();
    assert!(matches!(error, TrainError::NoRun { .. }), "{error}");
    assert!(!folder.path().join("absent").exists());
}

#[test]
fn two_processes_do_not_train_in_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (model, out) = (folder.path().join("model"), folder.path().join("run"));
    write_model(&model);
    let config = grpo_config(&model, 2);
    run_grpo(&config, &out, false, Bandit::default()).unwrap();
    let lock = std::fs::File::options().write(true).open(out.join(".lock")).unwrap();
    lock.lock().unwrap();
    let error = run_grpo(&config, &out, true, Bandit::default()).unwrap_err();
    assert!(matches!(error, TrainError::RunBusy { .. }), "{error}");
    drop(lock);
    run_grpo(&config, &out, true, Bandit::default()).unwrap();
}

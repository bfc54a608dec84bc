//! The folder of a run: configuration, metrics, traces, checkpoints.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drgym_env::Trace;
use drgym_search::artefact::write_file;

use crate::checkpoint::{
    CHECKPOINT_FORMAT, CHECKPOINTS, Checkpoint, CheckpointError, CheckpointStore, RunState, check_same_run,
};
use crate::error::TrainError;
use crate::metrics::{METRICS_FILE, MetricsLog};
use crate::tensorboard::EVENT_FILE_PREFIX;

/// The resolved configuration in a run's folder.
const CONFIG_FILE: &str = "config.toml";
/// The state before the first step in a run's folder: what a run without a checkpoint is made of.
const START_FILE: &str = "start.json";
/// Exists in the folder of a run that has had a checkpoint: without one such a run must not begin again.
const CHECKPOINTED_FILE: &str = ".checkpointed";
/// Locked while a process works in the folder.
const LOCK_FILE: &str = ".lock";
/// The episodes in a run's folder.
const TRACES: &str = "traces";

/// A run's folder that this process holds. Nothing that makes a run of it has been written yet: what only loading the
/// model finds wrong must leave no run behind that the mended configuration could neither start nor resume.
pub(crate) struct HeldFolder {
    path: PathBuf,
    fresh: RunState,
    config: String,
    last: Option<Checkpoint>,
    lock: File,
}

impl HeldFolder {
    /// Takes an empty or new folder for a run to start in, or the folder of the run to go on with.
    ///
    /// `fresh` is the state of a run before its first step. A run is gone on with only if it was made of the same
    /// configuration, data and model.
    pub(crate) fn take(out: &Path, resume: bool, fresh: RunState, config: &str) -> Result<Self, TrainError> {
        match (resume, holds_run(out)) {
            (false, true) => return Err(TrainError::RunExists { path: out.to_owned() }),
            (true, false) => return Err(TrainError::NoRun { path: out.to_owned() }),
            (false, false) if out.join("manifest.json").exists() => {
                return Err(TrainError::Taken { path: out.to_owned() });
            }
            _ => {}
        }
        std::fs::create_dir_all(out).map_err(io(out))?;
        let lock = lock(out)?;
        if !resume && holds_run(out) {
            // Another process has trained here since.
            return Err(TrainError::RunExists { path: out.to_owned() });
        }
        let last = if resume { newest_checkpoint(out)? } else { None };
        match &last {
            Some(last) => check_same_run(&last.path, &last.state, &last.config, &fresh, config)?,
            None => check_noted_start(out, &fresh, config)?,
        }
        Ok(Self { path: out.to_owned(), fresh, config: config.to_owned(), last, lock })
    }

    /// The newest whole checkpoint of the run to go on with.
    pub(crate) fn last(&self) -> Option<&Checkpoint> {
        self.last.as_ref()
    }

    /// Begins to write. Whatever the run wrote behind its newest whole checkpoint is cut off; one that was interrupted
    /// before its first checkpoint begins again.
    pub(crate) fn begin(self) -> Result<RunFolder, TrainError> {
        let Self { path, fresh, config, last, lock } = self;
        remove_unfinished(&path)?;
        remove_unfinished(&path.join(TRACES))?;
        if last.is_none() {
            note_start(&path, &fresh, &config)?;
            remove_files(&path, |name| name.starts_with(EVENT_FILE_PREFIX))?;
        }
        let store = CheckpointStore::open(&path)?;
        let (state, offset) = match &last {
            Some(last) => {
                store.set_aside_after(last.state.step)?;
                note_checkpoint(&path)?;
                (last.state.clone(), last.manifest.metrics_offset)
            }
            None => (fresh, 0),
        };
        remove_later_traces(&path, state.step)?;
        let next_step = last.as_ref().map_or(0, |last| last.state.step + 1);
        let metrics = MetricsLog::open(&path, offset, next_step)?;
        Ok(RunFolder { path, store, config, metrics, state, last, _lock: lock })
    }
}

/// A run's folder, open for writing, and the state that its next checkpoint will hold.
pub(crate) struct RunFolder {
    path: PathBuf,
    store: CheckpointStore,
    config: String,
    pub(crate) metrics: MetricsLog,
    pub(crate) state: RunState,
    pub(crate) last: Option<Checkpoint>,
    _lock: File,
}

impl RunFolder {
    /// What is needed to write the checkpoint of the present state; `None` if there is one already.
    pub(crate) fn checkpoint_job(&mut self, keep_last: usize) -> Result<Option<CheckpointJob>, TrainError> {
        if self.last.as_ref().is_some_and(|last| last.state == self.state) {
            return Ok(None);
        }
        Ok(Some(CheckpointJob {
            metrics_offset: self.metrics.sync()?,
            run: self.path.clone(),
            store: self.store.clone(),
            state: self.state.clone(),
            config: self.config.clone(),
            keep_last,
        }))
    }

    /// Folder of a step's checkpoint.
    pub(crate) fn checkpoint_path(&self, step: u64) -> PathBuf {
        self.store.path(step)
    }

    /// Writes the episodes of a step, one JSON object a line.
    pub(crate) fn write_traces(&self, step: u64, traces: &[Trace]) -> Result<(), TrainError> {
        let folder = self.path.join(TRACES);
        std::fs::create_dir_all(&folder).map_err(io(&folder))?;
        Ok(write_file(&folder.join(format!("step_{step}.jsonl")), |file| {
            for trace in traces {
                serde_json::to_writer(&mut *file, trace)?;
                file.write_all(b"\n")?;
            }
            Ok(())
        })?)
    }
}

/// A checkpoint to be written, away from the run's folder, on the thread that owns the tensors.
pub(crate) struct CheckpointJob {
    run: PathBuf,
    store: CheckpointStore,
    state: RunState,
    config: String,
    metrics_offset: u64,
    keep_last: usize,
}

impl CheckpointJob {
    /// Writes the checkpoint and removes old ones. `fill` puts the tensors into the folder that it is given.
    pub(crate) fn write(
        self,
        fill: impl FnOnce(&Path) -> Result<(), TrainError>,
    ) -> Result<Checkpoint, TrainError> {
        let checkpoint = self.store.write(&self.state, &self.config, self.metrics_offset, fill)?;
        note_checkpoint(&self.run)?;
        self.store.rotate(self.keep_last, self.state.best.map(|best| best.step))?;
        Ok(checkpoint)
    }
}

/// The state of a run before its first step.
pub(crate) fn fresh_state(
    kind: &str,
    seed: u64,
    config: &str,
    dataset_hash: String,
    model: &Path,
) -> Result<RunState, CheckpointError> {
    Ok(RunState {
        format_version: CHECKPOINT_FORMAT,
        kind: kind.to_owned(),
        step: 0,
        data_position: 0,
        seed,
        config_hash: blake3::hash(config.as_bytes()).to_hex().to_string(),
        dataset_hash,
        model_hash: crate::checkpoint::model_hash(model)?,
        skipped_in_row: 0,
        start_accuracy: None,
        best: None,
        unreported: None,
        stopped: None,
    })
}

/// Whether a run has begun in a folder.
fn holds_run(out: &Path) -> bool {
    [METRICS_FILE, CHECKPOINTS, START_FILE, CONFIG_FILE].iter().any(|name| out.join(name).exists())
}

/// The newest whole checkpoint of a run; `None` if it never had one.
fn newest_checkpoint(out: &Path) -> Result<Option<Checkpoint>, TrainError> {
    let store = CheckpointStore::open(out)?;
    if !store.steps()?.is_empty() {
        return Ok(Some(store.latest()?));
    }
    if out.join(CHECKPOINTED_FILE).exists() {
        return Err(TrainError::CheckpointsLost { path: out.to_owned() });
    }
    Ok(None)
}

/// Remembers that a run has had a checkpoint.
fn note_checkpoint(out: &Path) -> Result<(), TrainError> {
    let path = out.join(CHECKPOINTED_FILE);
    if path.exists() {
        return Ok(());
    }
    Ok(write_file(&path, |_| Ok(()))?)
}

/// Checks that a run without a checkpoint was begun as the same, if it was begun at all.
fn check_noted_start(out: &Path, fresh: &RunState, config: &str) -> Result<(), TrainError> {
    let (start, config_file) = (out.join(START_FILE), out.join(CONFIG_FILE));
    if !start.exists() {
        return Ok(());
    }
    let failed = |error: serde_json::Error| io(&start)(error.into());
    let text = std::fs::read_to_string(&start).map_err(io(&start))?;
    let noted: RunState = serde_json::from_str(&text).map_err(failed)?;
    let noted_config = std::fs::read_to_string(&config_file).map_err(io(&config_file))?;
    Ok(check_same_run(out, &noted, &noted_config, fresh, config)?)
}

/// Notes what a run is made of, unless an earlier process has.
fn note_start(out: &Path, fresh: &RunState, config: &str) -> Result<(), TrainError> {
    let start = out.join(START_FILE);
    if start.exists() {
        return Ok(());
    }
    write_file(&out.join(CONFIG_FILE), |file| file.write_all(config.as_bytes()))?;
    // Last: where it is, the configuration is too.
    Ok(write_file(&start, |file| {
        serde_json::to_writer_pretty(&mut *file, fresh)?;
        file.write_all(b"\n")
    })?)
}

/// Takes the folder for this process, or refuses if another one works in it. The lock goes with the process.
fn lock(out: &Path) -> Result<File, TrainError> {
    let path = out.join(LOCK_FILE);
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(io(&path))?;
    for _ in 0..10 {
        match file.try_lock() {
            // A process that this program starts holds the locks of its parent for an instant.
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
            // Some network file systems know no locks; there it is up to the user.
            Err(TryLockError::Error(_)) | Ok(()) => return Ok(file),
        }
    }
    Err(TrainError::RunBusy { path: out.to_owned() })
}

/// Removes the temporary files of processes that are gone, which whoever holds the lock can tell.
fn remove_unfinished(folder: &Path) -> Result<(), TrainError> {
    remove_files(folder, |name| name.starts_with('.') && name.contains(".part-"))
}

fn remove_files(folder: &Path, doomed: impl Fn(&str) -> bool) -> Result<(), TrainError> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let entry = entry.map_err(io(folder))?;
        if doomed(&entry.file_name().to_string_lossy()) && entry.path().is_file() {
            std::fs::remove_file(entry.path()).map_err(io(&entry.path()))?;
        }
    }
    Ok(())
}

fn remove_later_traces(out: &Path, step: u64) -> Result<(), TrainError> {
    let folder = out.join(TRACES);
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(()) };
    for entry in entries {
        let entry = entry.map_err(io(&folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix("step_").and_then(|rest| rest.strip_suffix(".jsonl"));
        if number.and_then(|number| number.parse::<u64>().ok()).is_some_and(|number| number > step) {
            std::fs::remove_file(entry.path()).map_err(io(&entry.path()))?;
        }
    }
    Ok(())
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> TrainError {
    let path = path.to_owned();
    move |source| TrainError::Io { path, source }
}

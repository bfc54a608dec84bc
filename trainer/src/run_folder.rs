//! The folder of a run: configuration, metrics, traces, checkpoints.

use std::path::{Path, PathBuf};

use drgym_env::Trace;

use crate::checkpoint::{
    CHECKPOINT_FORMAT, CHECKPOINTS, Checkpoint, CheckpointError, CheckpointStore, RunState, write_whole,
};
use crate::error::TrainError;
use crate::metrics::{METRICS_FILE, MetricsLog};

/// The resolved configuration in a run's folder.
const CONFIG_FILE: &str = "config.toml";
/// The episodes in a run's folder.
const TRACES: &str = "traces";

/// A run's folder, open for writing, and the state that its next checkpoint will hold.
pub(crate) struct RunFolder {
    path: PathBuf,
    store: CheckpointStore,
    config: String,
    pub(crate) metrics: MetricsLog,
    pub(crate) state: RunState,
    pub(crate) last: Option<Checkpoint>,
}

impl RunFolder {
    /// Starts a run in an empty or new folder, or goes on with the one that is there.
    ///
    /// `fresh` is the state of a run before its first step. A run is gone on with only if it was made of the same
    /// configuration, data and model; whatever it wrote behind its newest whole checkpoint is cut off.
    pub(crate) fn open(out: &Path, resume: bool, fresh: RunState, config: &str) -> Result<Self, TrainError> {
        if resume {
            let store = CheckpointStore::open(out)?;
            let checkpoint = store.latest()?;
            checkpoint.check_same_run(&fresh, config)?;
            let state = checkpoint.state.clone();
            remove_later_traces(out, state.step)?;
            let metrics = MetricsLog::open(out, checkpoint.manifest.metrics_offset, state.step + 1)?;
            let path = out.to_owned();
            return Ok(Self {
                path,
                store,
                config: config.to_owned(),
                metrics,
                state,
                last: Some(checkpoint),
            });
        }
        let occupied = |name: &str| out.join(name).exists();
        if occupied(METRICS_FILE) || occupied(CHECKPOINTS) || occupied(CONFIG_FILE) {
            return Err(TrainError::RunExists { path: out.to_owned() });
        }
        std::fs::create_dir_all(out).map_err(io(out))?;
        write_whole(&out.join(CONFIG_FILE), config.as_bytes())?;
        let store = CheckpointStore::open(out)?;
        let metrics = MetricsLog::open(out, 0, 0)?;
        let path = out.to_owned();
        Ok(Self { path, store, config: config.to_owned(), metrics, state: fresh, last: None })
    }

    /// What is needed to write the checkpoint of the present state; `None` if there is one already.
    pub(crate) fn checkpoint_job(&mut self, keep_last: usize) -> Result<Option<CheckpointJob>, TrainError> {
        if self.last.as_ref().is_some_and(|last| last.state == self.state) {
            return Ok(None);
        }
        Ok(Some(CheckpointJob {
            metrics_offset: self.metrics.sync()?,
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
        let path = folder.join(format!("step_{step}.jsonl"));
        let mut bytes = Vec::new();
        for trace in traces {
            serde_json::to_writer(&mut bytes, trace).map_err(|error| io(&path)(error.into()))?;
            bytes.push(b'\n');
        }
        Ok(write_whole(&path, &bytes)?)
    }
}

/// A checkpoint to be written, away from the run's folder, on the thread that owns the tensors.
pub(crate) struct CheckpointJob {
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
    })
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

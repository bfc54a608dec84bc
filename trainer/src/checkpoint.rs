//! Checkpoints: whole or absent, found by scanning, checked by hash.
//!
//! ```text
//! checkpoints/step_40/
//!   config.json, model.safetensors, tokenizer.json, …   a Hugging Face folder (merged, where an adapter is trained)
//!   adapter/                                            the PEFT adapter, where one is trained
//!   trainer_state/state.json                            step, data position, hashes, best score
//!   trainer_state/optimizer.safetensors                 moments and number of updates
//!   trainer_state/config.toml                           the resolved configuration
//!   manifest.json                                       length and blake3 of every file above
//! ```
//!
//! A checkpoint is written to a hidden folder beside its place, brought to the disk and renamed, or exchanged for the
//! one that lies there: a reader never sees half of one, and a step that is written again never lacks a whole one.
//! [`Manifest::content_hash`] covers everything but the manifest itself, so two runs of the same
//! seed can be compared by one string.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use drgym_search::artefact::{ArtefactError, FolderInProgress, sync_folder};
use serde::{Deserialize, Serialize};

use crate::grpo::GrpoMetrics;
use crate::metrics::SkippedUpdate;

/// Version of the folder's format.
pub const CHECKPOINT_FORMAT: u32 = 1;
/// Folder of the checkpoints within a run's folder.
pub const CHECKPOINTS: &str = "checkpoints";
/// The manifest within a checkpoint.
pub const MANIFEST: &str = "manifest.json";
/// The trainer's state within a checkpoint.
pub const STATE: &str = "trainer_state/state.json";
/// The optimiser's state within a checkpoint.
pub const OPTIMIZER: &str = "trainer_state/optimizer.safetensors";
/// The resolved configuration within a checkpoint.
pub const CONFIG: &str = "trainer_state/config.toml";
/// The adapter within a checkpoint.
pub const ADAPTER: &str = "adapter";
/// The chat template of a model folder, where it is a file of its own. It shapes every prompt.
const CHAT_TEMPLATE: &str = "chat_template.jinja";

/// Why a checkpoint could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The folder is not a whole checkpoint.
    #[error("{path} is not a whole checkpoint: {reason}")]
    Broken {
        /// The folder.
        path: PathBuf,
        /// What is missing or wrong.
        reason: String,
    },
    /// A file cannot be written whole.
    #[error(transparent)]
    Artefact(#[from] ArtefactError),
    /// There is nothing to resume from.
    #[error(
        "{path} holds no whole checkpoint to resume from{}",
        if .broken.is_empty() { String::new() } else { format!(" ({})", .broken.join("; ")) }
    )]
    NoCheckpoint {
        /// The folder of checkpoints.
        path: PathBuf,
        /// The reasons why those that are there do not count.
        broken: Vec<String>,
    },
    /// The run to resume was made of something else.
    #[error("cannot resume from {path}: {}", .differences.join("; "))]
    Changed {
        /// The checkpoint.
        path: PathBuf,
        /// Every difference, in words.
        differences: Vec<String>,
    },
}

/// The state of a run between two steps, apart from weights and moments. Everything random in a run is derived
/// from its seed and the step, so there is no generator to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// [`CHECKPOINT_FORMAT`] of the writer.
    pub format_version: u32,
    /// `sft` or `grpo`.
    pub kind: String,
    /// Steps done.
    pub step: u64,
    /// Tasks or examples drawn so far, over all passes.
    pub data_position: u64,
    /// Root of every seed.
    pub seed: u64,
    /// blake3 of the resolved configuration.
    pub config_hash: String,
    /// blake3 of the tasks or examples.
    pub dataset_hash: String,
    /// blake3 of the model that training started from.
    pub model_hash: String,
    /// Updates in a row, up to now, whose gradient was not finite.
    pub skipped_in_row: u64,
    /// Share of right answers on the development tasks before the first step, counted as in [`Best`].
    pub start_accuracy: Option<f64>,
    /// The best evaluation so far.
    pub best: Option<Best>,
    /// Metrics of a step that is done, but whose evaluation was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreported: Option<GrpoMetrics>,
    /// Why the run ended for good, where a guard ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stop>,
}

/// What a guard ended a run for. It is kept, so that a run that is resumed neither counts as finished nor trains on
/// past it without a word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The policy left the reference, or the policy that drew its tokens, by more than allowed.
    KlLimit {
        /// Nats a token.
        kl: f64,
        /// The limit.
        limit: f64,
    },
    /// The entropy left its bounds.
    EntropyLimit {
        /// Nats a token.
        entropy: f64,
        /// The bound that was crossed.
        limit: f64,
    },
    /// Loss or gradient was not finite again and again.
    NotFinite {
        /// Updates in a row.
        in_row: u64,
        /// The last of them.
        last: SkippedUpdate,
    },
}

/// The best evaluation of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The step after which it was made.
    pub step: u64,
    /// Share of right answers among all episodes. One that was dropped counts as not right: evaluations of which
    /// different episodes were spared could not be compared otherwise.
    pub accuracy: f64,
}

/// What a checkpoint consists of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`CHECKPOINT_FORMAT`] of the writer.
    pub format_version: u32,
    /// Steps done.
    pub step: u64,
    /// blake3 over the names and hashes of all files, in hex.
    pub content_hash: String,
    /// Length of `metrics.jsonl` in bytes when the checkpoint was written. Not part of the content hash, since
    /// that file holds wall-clock times.
    pub metrics_offset: u64,
    /// Every file but this one, by its path within the folder.
    pub files: BTreeMap<String, FileEntry>,
}

/// Length and hash of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Length in bytes.
    pub bytes: u64,
    /// blake3 in hex.
    pub blake3: String,
}

/// A whole checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Its folder.
    pub path: PathBuf,
    /// What it consists of.
    pub manifest: Manifest,
    /// The trainer's state.
    pub state: RunState,
    /// The resolved configuration.
    pub config: String,
}

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    folder: PathBuf,
}

impl CheckpointStore {
    /// The checkpoints of the run in `run`. Creates their folder, brings back a checkpoint that had made way for a
    /// successor that never came, and removes what else an interrupted write left.
    pub fn open(run: &Path) -> Result<Self, CheckpointError> {
        let folder = run.join(CHECKPOINTS);
        std::fs::create_dir_all(&folder).map_err(io("create", &folder))?;
        let store = Self { folder };
        for entry in std::fs::read_dir(&store.folder).map_err(io("list", &store.folder))? {
            let entry = entry.map_err(io("list", &store.folder))?;
            // Everything hidden in here is the unfinished work of a process that is gone.
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                store.tidy(&entry.path(), &name)?;
            }
        }
        Ok(store)
    }

    fn tidy(&self, path: &Path, name: &str) -> Result<(), CheckpointError> {
        if let Some(step) = replaced_step(name)
            && !self.path(step).exists()
        {
            return std::fs::rename(path, self.path(step)).map_err(io("rename", path));
        }
        let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        removed.map_err(io("remove", path))
    }

    /// The folder of a step, whether or not it exists.
    pub fn path(&self, step: u64) -> PathBuf {
        self.folder.join(format!("step_{step}"))
    }

    /// Writes a checkpoint, in exchange for the one of the same step if there is one. `fill` puts the model's files and
    /// [`OPTIMIZER`] into the empty folder that it is given; the rest is added here.
    pub fn write<E: From<CheckpointError>>(
        &self,
        state: &RunState,
        config: &str,
        metrics_offset: u64,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<Checkpoint, E> {
        let path = self.path(state.step);
        // Removed when it is dropped unplaced: a full disk must not stay full because of what did not fit.
        let part = FolderInProgress::new(&path).map_err(CheckpointError::from)?;
        fill(part.path())?;
        let manifest = seal(part.path(), state, config, metrics_offset)?;
        part.replace().map_err(CheckpointError::from)?;
        Ok(Checkpoint { path, manifest, state: state.clone(), config: config.to_owned() })
    }

    /// The newest whole checkpoint. Broken ones are passed over with a warning.
    pub fn latest(&self) -> Result<Checkpoint, CheckpointError> {
        let mut broken = Vec::new();
        for step in self.steps()?.into_iter().rev() {
            match read(&self.path(step)) {
                Ok(checkpoint) => return Ok(checkpoint),
                Err(error) => {
                    tracing::warn!(%error, "passing over a checkpoint");
                    broken.push(error.to_string());
                }
            }
        }
        Err(CheckpointError::NoCheckpoint { path: self.folder.clone(), broken })
    }

    /// Steps of which there is a folder, ascending.
    pub fn steps(&self) -> Result<Vec<u64>, CheckpointError> {
        let mut steps = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(io("list", &self.folder))? {
            let entry = entry.map_err(io("list", &self.folder))?;
            let name = entry.file_name();
            if let Some(step) =
                name.to_string_lossy().strip_prefix("step_").and_then(|step| step.parse().ok())
            {
                steps.push(step);
            }
        }
        steps.sort_unstable();
        Ok(steps)
    }

    /// Removes all but the newest `keep_last` checkpoints and the one of step `best`.
    pub fn rotate(&self, keep_last: usize, best: Option<u64>) -> Result<(), CheckpointError> {
        let steps = self.steps()?;
        let surplus = steps.len().saturating_sub(keep_last);
        for &step in steps.iter().take(surplus).filter(|&&step| Some(step) != best) {
            self.remove(step)?;
        }
        Ok(())
    }

    fn remove(&self, step: u64) -> Result<(), CheckpointError> {
        let path = self.path(step);
        // Renamed first, so that an interrupted removal never looks like a damaged checkpoint.
        let doomed = self.folder.join(format!(".step_{step}.removed"));
        std::fs::rename(&path, &doomed).map_err(io("rename", &path))?;
        std::fs::remove_dir_all(&doomed).map_err(io("remove", &doomed))
    }

    /// Puts the folders of later steps aside, as `damaged_step_N`: those that [`latest`](Self::latest) passed over would
    /// count as the newest otherwise.
    pub(crate) fn set_aside_after(&self, last: u64) -> Result<(), CheckpointError> {
        for step in self.steps()?.into_iter().filter(|&step| step > last) {
            let (path, aside) = (self.path(step), self.folder.join(format!("damaged_step_{step}")));
            if aside.exists() {
                std::fs::remove_dir_all(&aside).map_err(io("remove", &aside))?;
            }
            std::fs::rename(&path, &aside).map_err(io("rename", &path))?;
        }
        Ok(())
    }
}

/// Adds what is the same in all checkpoints to a folder that holds the tensors, and brings all of it to the disk.
fn seal(
    folder: &Path,
    state: &RunState,
    config: &str,
    metrics_offset: u64,
) -> Result<Manifest, CheckpointError> {
    write_file(&folder.join(STATE), &to_json(state, folder)?)?;
    write_file(&folder.join(CONFIG), config.as_bytes())?;
    let mut files = BTreeMap::new();
    collect_files(folder, folder, &mut files)?;
    let manifest = Manifest {
        format_version: CHECKPOINT_FORMAT,
        step: state.step,
        content_hash: content_hash(&files),
        metrics_offset,
        files,
    };
    write_file(&folder.join(MANIFEST), &to_json(&manifest, folder)?)?;
    sync_tree(folder)?;
    Ok(manifest)
}

/// The step of a checkpoint that was renamed to make way for its successor, on a file system that cannot exchange two
/// folders in one step; see [`FolderInProgress::replace`].
fn replaced_step(name: &str) -> Option<u64> {
    let (step, _) = name.strip_suffix(".replaced")?.strip_prefix(".step_")?.split_once(".part-")?;
    step.parse().ok()
}

/// Reads a checkpoint and checks every file against the manifest.
pub fn read(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let broken = |reason: String| CheckpointError::Broken { path: path.to_owned(), reason };
    let text = |name: &str| {
        std::fs::read_to_string(path.join(name)).map_err(|error| broken(format!("{name}: {error}")))
    };
    let manifest: Manifest =
        serde_json::from_str(&text(MANIFEST)?).map_err(|error| broken(format!("{MANIFEST}: {error}")))?;
    if manifest.format_version != CHECKPOINT_FORMAT {
        return Err(broken(format!(
            "format version {} is not {CHECKPOINT_FORMAT}, the one this program reads",
            manifest.format_version
        )));
    }
    for (name, expected) in &manifest.files {
        let found = describe(&path.join(name)).map_err(|error| broken(format!("{name}: {error}")))?;
        if found != *expected {
            return Err(broken(format!(
                "{name} has {} bytes with hash {}, expected {} with {}",
                found.bytes, found.blake3, expected.bytes, expected.blake3
            )));
        }
    }
    if content_hash(&manifest.files) != manifest.content_hash {
        return Err(broken("the content hash does not fit the list of files".into()));
    }
    for name in [STATE, CONFIG, OPTIMIZER] {
        if !manifest.files.contains_key(name) {
            return Err(broken(format!("the manifest does not list {name}")));
        }
    }
    let state: RunState =
        serde_json::from_str(&text(STATE)?).map_err(|error| broken(format!("{STATE}: {error}")))?;
    Ok(Checkpoint { path: path.to_owned(), manifest, state, config: text(CONFIG)? })
}

/// Refuses to go on with another run than the one at `path`, of which `found` is a state and `found_config` the resolved
/// configuration. `expected` is the state that a fresh run of the present command would start from, and `config` its
/// resolved configuration.
pub(crate) fn check_same_run(
    path: &Path,
    found: &RunState,
    found_config: &str,
    expected: &RunState,
    config: &str,
) -> Result<(), CheckpointError> {
    let mut differences = Vec::new();
    if found.kind != expected.kind {
        differences.push(format!("it is a {} run, not a {} run", found.kind, expected.kind));
    }
    if found.seed != expected.seed {
        differences.push(format!("its seed is {}, not {}", found.seed, expected.seed));
    }
    if found.config_hash != expected.config_hash {
        let lines = changed_lines(found_config, config);
        differences.push(format!("the configuration has changed: {}", lines.join(", ")));
    }
    for (what, then, now) in [
        ("dataset", &found.dataset_hash, &expected.dataset_hash),
        ("start model", &found.model_hash, &expected.model_hash),
    ] {
        if then != now {
            differences.push(format!("the {what} has changed: its hash was {then} and is now {now}"));
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    Err(CheckpointError::Changed { path: path.to_owned(), differences })
}

/// Lines of the old text that are gone, with `-`, and lines of the new one that were not there, with `+`.
fn changed_lines(old: &str, new: &str) -> Vec<String> {
    let gone =
        old.lines().filter(|line| !new.lines().any(|other| other == *line)).map(|line| format!("- {line}"));
    let come =
        new.lines().filter(|line| !old.lines().any(|other| other == *line)).map(|line| format!("+ {line}"));
    let lines: Vec<String> = gone.chain(come).collect();
    if lines.is_empty() { vec!["the order of its lines".into()] } else { lines }
}

/// blake3 over the files of a model folder that decide what it computes and what it is asked, in hex: `*.json`,
/// `*.safetensors` and the chat template directly in it, by name.
pub fn model_hash(folder: &Path) -> Result<String, CheckpointError> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(io("list", folder))? {
        let entry = entry.map_err(io("list", folder))?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let weighty = name == CHAT_TEMPLATE
            || path.extension().is_some_and(|extension| extension == "json" || extension == "safetensors");
        if weighty && name != MANIFEST && path.is_file() {
            files.insert(name, describe(&path).map_err(io("read", &path))?);
        }
    }
    Ok(content_hash(&files))
}

fn content_hash(files: &BTreeMap<String, FileEntry>) -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, entry) in files {
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        hasher.update(entry.blake3.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

fn describe(path: &Path) -> std::io::Result<FileEntry> {
    let mut hasher = blake3::Hasher::new();
    let bytes = std::io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(FileEntry { bytes, blake3: hasher.finalize().to_hex().to_string() })
}

fn collect_files(
    root: &Path,
    folder: &Path,
    into: &mut BTreeMap<String, FileEntry>,
) -> Result<(), CheckpointError> {
    for entry in std::fs::read_dir(folder).map_err(io("list", folder))? {
        let path = entry.map_err(io("list", folder))?.path();
        if path.is_dir() {
            collect_files(root, &path, into)?;
        } else {
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            into.insert(name, describe(&path).map_err(io("read", &path))?);
        }
    }
    Ok(())
}

fn sync_tree(folder: &Path) -> Result<(), CheckpointError> {
    for entry in std::fs::read_dir(folder).map_err(io("list", folder))? {
        let path = entry.map_err(io("list", folder))?.path();
        if path.is_dir() {
            sync_tree(&path)?;
        } else {
            File::open(&path).and_then(|file| file.sync_all()).map_err(io("sync", &path))?;
        }
    }
    Ok(sync_folder(folder)?)
}

fn to_json(value: &impl Serialize, path: &Path) -> Result<Vec<u8>, CheckpointError> {
    serde_json::to_vec_pretty(value).map_err(|error| io("write", path)(error.into()))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    std::fs::write(path, bytes).map_err(io("write", path))
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> CheckpointError {
    let path = path.to_owned();
    move |source| CheckpointError::Io { action, path, source }
}

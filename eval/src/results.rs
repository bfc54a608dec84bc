//! The results folder of an evaluation: `results.json` and `traces.jsonl`.

use std::io::Write;
use std::path::{Path, PathBuf};

use drgym_env::Trace;
use drgym_search::artefact::{ArtefactError, write_file};
use serde::{Deserialize, Serialize};

use crate::summary::Summary;

/// Version of the results format.
pub const RESULTS_VERSION: u32 = 1;

/// What `results.json` holds: the figures, and everything needed to get them again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`RESULTS_VERSION`] of the writer.
    pub version: u32,
    /// Version of the program.
    pub program: String,
    /// Name of the benchmark.
    pub benchmark: String,
    /// blake3 of the benchmark file, in hex.
    pub data_hash: String,
    /// Name of the policy.
    pub policy: String,
    /// Name of the search backend.
    pub search: String,
    /// Hash of the index or recording; `None` for live engines.
    pub search_hash: Option<String>,
    /// Name of the judge.
    pub judge: String,
    /// Root seed.
    pub seed: u64,
    /// 0 is greedy.
    pub temperature: f32,
    /// Episodes a task.
    pub samples: u32,
    /// Settings of the environment.
    pub env: drgym_env::EnvConfig,
    /// The figures.
    pub summary: Summary,
    /// blake3 over the content hashes of all traces in order, in hex: equal for equal runs.
    pub traces_hash: String,
    /// Wall-clock seconds of the whole evaluation; not reproducible.
    pub seconds: f64,
}

/// Why a results folder could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The system refused.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// `write` or `read`.
        what: &'static str,
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file cannot be written whole.
    #[error(transparent)]
    Artefact(#[from] ArtefactError),
    /// A file is not what it should be.
    #[error("{path}:{line}: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line number from 1.
        line: usize,
        /// What was expected and found.
        reason: String,
    },
}

/// blake3 over the content hashes of traces, in hex.
pub fn traces_hash(traces: &[Trace]) -> String {
    let mut hasher = blake3::Hasher::new();
    for trace in traces {
        hasher.update(trace.content_hash().as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Writes traces as JSONL, whole or not at all.
pub fn write_traces(path: &Path, traces: &[Trace]) -> Result<(), ResultsError> {
    Ok(write_file(path, |file| {
        for trace in traces {
            serde_json::to_writer(&mut *file, trace)?;
            file.write_all(b"\n")?;
        }
        Ok(())
    })?)
}

/// Reads a file of traces.
pub fn read_traces(path: &Path) -> Result<Vec<Trace>, ResultsError> {
    let text = std::fs::read_to_string(path).map_err(|source| ResultsError::Io {
        what: "read",
        path: path.to_owned(),
        source,
    })?;
    let mut traces = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let trace = serde_json::from_str(line).map_err(|error| ResultsError::Malformed {
            path: path.to_owned(),
            line: index + 1,
            reason: format!("not a trace: {error}"),
        })?;
        traces.push(trace);
    }
    Ok(traces)
}

impl Results {
    /// Writes `results.json` and `traces.jsonl` into a folder, the results last: where they stand, all is there.
    pub fn write(&self, folder: &Path, traces: &[Trace]) -> Result<(), ResultsError> {
        std::fs::create_dir_all(folder).map_err(|source| ResultsError::Io {
            what: "create",
            path: folder.to_owned(),
            source,
        })?;
        write_traces(&folder.join("traces.jsonl"), traces)?;
        Ok(write_file(&folder.join("results.json"), |file| {
            serde_json::to_writer_pretty(&mut *file, self)?;
            file.write_all(b"\n")
        })?)
    }

    /// Reads `results.json` of a folder.
    pub fn read(folder: &Path) -> Result<Self, ResultsError> {
        let path = folder.join("results.json");
        let bytes = std::fs::read(&path).map_err(|source| ResultsError::Io {
            what: "read",
            path: path.clone(),
            source,
        })?;
        serde_json::from_slice(&bytes).map_err(|error| ResultsError::Malformed {
            path,
            line: error.line(),
            reason: format!("not a results file: {error}"),
        })
    }
}

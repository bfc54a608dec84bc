//! The results folder of an evaluation: `results.json` and `traces.jsonl`, each of which knows the other.

use std::io::Write;
use std::path::{Path, PathBuf};

use drgym_env::Trace;
use drgym_search::artefact::{ArtefactError, FolderInProgress, holds_only, write_file};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::summary::Summary;

/// Version of the results format. Fields that came later have defaults, so that a reader takes every version up to its own.
pub const RESULTS_VERSION: u32 = 1;

/// The figures and settings within a results folder.
const RESULTS: &str = "results.json";
/// The episodes within a results folder.
const TRACES: &str = "traces.jsonl";

/// What an evaluation leaves that is not to count as one, and its episodes.
const REFUSED: [&str; 2] = ["refused.json", "refused-traces.jsonl"];

/// Every file that an evaluation writes.
const OURS: [&str; 4] = [RESULTS, TRACES, REFUSED[0], REFUSED[1]];

/// Stands in folders that are something else: an index, a set of tasks.
const MANIFEST: &str = "manifest.json";

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
    /// What was asked for as the policy: a model folder, `expert` or `expert:DIR`. `None` in files of programs that recorded
    /// neither this nor the three below.
    #[serde(default)]
    pub policy_source: Option<String>,
    /// blake3 over the files of the model folder, in hex; `None` for policies that are no model.
    #[serde(default)]
    pub model_hash: Option<String>,
    /// Only the first so many tasks of the file were taken; `None` took all.
    #[serde(default)]
    pub limit: Option<usize>,
    /// The resolved configuration as TOML.
    #[serde(default)]
    pub config: Option<String>,
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
        /// `write`, `read` or `create`.
        what: &'static str,
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file cannot be written whole.
    #[error(transparent)]
    Artefact(#[from] ArtefactError),
    /// There is a folder in the place of a file, or the reverse.
    #[error("{path} is a {found}, expected a {expected} to write")]
    Place {
        /// The place.
        path: PathBuf,
        /// `file` or `folder`.
        expected: &'static str,
        /// `file` or `folder`.
        found: &'static str,
    },
    /// The folder is an index or a set of tasks.
    #[error("{path} holds an index or tasks (it has a manifest.json); results need a folder of their own")]
    Taken {
        /// The folder.
        path: PathBuf,
    },
    /// A newer program wrote the results.
    #[error("{path} has version {found} of the results format, expected at most {known}")]
    Version {
        /// The file.
        path: PathBuf,
        /// The newest version that this program reads.
        known: u32,
        /// Its version.
        found: u32,
    },
    /// The two files of a folder are not of one evaluation.
    #[error(
        "{path} does not belong to the results.json beside it: expected episodes with the hash {expected}, found {found}"
    )]
    ForeignTraces {
        /// The file of traces.
        path: PathBuf,
        /// What the results say.
        expected: String,
        /// What the traces give.
        found: String,
    },
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
    parse_traces(&read_text(path)?, path)
}

fn read_text(path: &Path) -> Result<String, ResultsError> {
    std::fs::read_to_string(path).map_err(io("read", path))
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ResultsError {
    let path = path.to_owned();
    move |source| ResultsError::Io { what, path, source }
}

fn parse_traces(text: &str, path: &Path) -> Result<Vec<Trace>, ResultsError> {
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
        // Over an older evaluation both files must come at once: either alone belongs to nothing.
        if folder.join(RESULTS).exists() && holds_only(folder, |name| OURS.contains(&name)) {
            let both = FolderInProgress::new(folder)?;
            self.write_as(both.path(), traces, RESULTS, TRACES)?;
            return Ok(both.replace()?);
        }
        self.write_as(folder, traces, RESULTS, TRACES)?;
        for name in REFUSED {
            let path = folder.join(name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io("remove", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the same as `refused.json` and `refused-traces.jsonl`, which nobody takes for results.
    pub fn write_refused(&self, folder: &Path, traces: &[Trace]) -> Result<(), ResultsError> {
        let [results, episodes] = REFUSED;
        self.write_as(folder, traces, results, episodes)
    }

    fn write_as(
        &self,
        folder: &Path,
        traces: &[Trace],
        results: &str,
        episodes: &str,
    ) -> Result<(), ResultsError> {
        std::fs::create_dir_all(folder).map_err(io("create", folder))?;
        write_traces(&folder.join(episodes), traces)?;
        Ok(write_file(&folder.join(results), |file| {
            serde_json::to_writer_pretty(&mut *file, self)?;
            file.write_all(b"\n")
        })?)
    }

    /// Whether a folder holds an evaluation.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(RESULTS).exists()
    }

    /// Reads `results.json` of a folder.
    pub fn read(folder: &Path) -> Result<Self, ResultsError> {
        let path = folder.join(RESULTS);
        let bytes = std::fs::read(&path).map_err(io("read", &path))?;
        let malformed = |error: serde_json::Error| ResultsError::Malformed {
            path: path.clone(),
            line: error.line(),
            reason: format!("not a results file: {error}"),
        };
        // First the version alone: a newer file may not have today's form.
        let Versioned { version } = serde_json::from_slice(&bytes).map_err(malformed)?;
        if version > RESULTS_VERSION {
            return Err(ResultsError::Version { path, known: RESULTS_VERSION, found: version });
        }
        let mut results: Self = serde_json::from_slice(&bytes).map_err(malformed)?;
        // Older files have only the causes.
        results.summary.excluded = results.summary.failures.excluded();
        Ok(results)
    }
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// An evaluation as its folder holds it.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The folder.
    pub folder: PathBuf,
    /// The figures and settings.
    pub results: Results,
    /// The episodes.
    pub traces: Vec<Trace>,
}

impl Evaluation {
    /// Reads both files of a folder; an error if the traces are not those that the results were made from.
    pub fn read(folder: &Path) -> Result<Self, ResultsError> {
        let results = Results::read(folder)?;
        let path = folder.join(TRACES);
        let text = read_text(&path)?;
        let traces = parse_traces(&text, &path)?;
        let found = written_traces_hash(&text);
        if found != results.traces_hash {
            return Err(ResultsError::ForeignTraces { path, expected: results.traces_hash, found });
        }
        Ok(Self { folder: folder.to_owned(), results, traces })
    }
}

/// [`traces_hash`] of the traces as they stand in a file. Taken from the text, since a program with other fields in its
/// traces would write, and hash, them differently.
fn written_traces_hash(text: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    for line in text.lines() {
        let content = match timeless(line) {
            Some(timeless) => blake3::hash(timeless.as_bytes()),
            None => blake3::hash(line.as_bytes()),
        };
        hasher.update(content.to_hex().as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// A written trace with all of its timings, which are its last field, at zero; `None` if it does not end with timings.
fn timeless(line: &str) -> Option<String> {
    const FIELD: &str = ",\"timings\":";
    let (before, rest) = line.rsplit_once(FIELD)?;
    let mut timings: Map<String, Value> = serde_json::from_str(rest.strip_suffix('}')?).ok()?;
    for value in timings.values_mut() {
        *value = Value::from(0.0);
    }
    Some(format!("{before}{FIELD}{}}}", Value::Object(timings)))
}

/// A place for results that was found fit to write to. Folders that were made for it and are still empty when this is
/// dropped are removed.
#[derive(Debug)]
pub struct Place {
    /// Innermost first.
    made: Vec<PathBuf>,
}

impl Place {
    /// Makes a folder, with those above it, for [`Results::write`], and makes sure that files can be written there.
    pub fn folder(path: &Path) -> Result<Self, ResultsError> {
        if path.join(MANIFEST).exists() {
            return Err(ResultsError::Taken { path: path.to_owned() });
        }
        for file in OURS.map(|name| path.join(name)) {
            if file.is_dir() {
                return Err(misplaced(&file, "file", "folder"));
            }
        }
        Self::writable(path)
    }

    /// Makes the folders above a file, and makes sure that the file can be written.
    pub fn file(path: &Path) -> Result<Self, ResultsError> {
        if path.is_dir() {
            return Err(misplaced(path, "file", "folder"));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Self::writable(parent.unwrap_or(Path::new(".")))
    }

    fn writable(path: &Path) -> Result<Self, ResultsError> {
        if path.is_file() {
            return Err(misplaced(path, "folder", "file"));
        }
        let missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        let place = Self { made: path.ancestors().take_while(missing).map(Path::to_owned).collect() };
        std::fs::create_dir_all(path).map_err(io("create", path))?;
        tempfile::NamedTempFile::new_in(path).map_err(io("create a file in", path))?;
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for folder in &self.made {
            // Refused for a folder that holds something, which is then there to stay.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

fn misplaced(path: &Path, expected: &'static str, found: &'static str) -> ResultsError {
    ResultsError::Place { path: path.to_owned(), expected, found }
}

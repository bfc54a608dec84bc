//! The configuration file: one TOML file for a whole pipeline, each verb takes the sections it needs.

mod problems;

use std::path::{Path, PathBuf};

use drgym_env::{EnvConfig, RewardConfig, RolloutConfig};
use drgym_judge::JudgeConfig;
use drgym_synth::SynthConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Outcome};
use crate::paths;

/// A configuration file of drgym.
///
/// Paths may begin with `$DRGYM_HOME` or `~`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Root of every random draw.
    #[serde(default)]
    pub seed: u64,
    /// The corpus that questions are made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corpus: Option<CorpusConfig>,
    /// Where to search.
    #[serde(default)]
    pub search: SearchConfig,
    /// Episodes.
    #[serde(default)]
    pub env: EnvConfig,
    /// Scheduling of episodes.
    #[serde(default)]
    pub rollout: RolloutConfig,
    /// How a model folder is run by `eval` and `rollout`.
    #[serde(default)]
    pub policy: PolicyConfig,
    /// Who judges answers.
    #[serde(default)]
    pub judge: JudgeConfig,
    /// What outcomes are worth.
    #[serde(default)]
    pub reward: RewardConfig,
    /// Task files.
    #[serde(default)]
    pub tasks: TasksConfig,
    /// Query synthesis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synth: Option<SynthConfig>,
    /// Expert traces for fine-tuning.
    #[serde(default)]
    pub demonstrations: DemonstrationsConfig,
    /// Supervised fine-tuning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sft: Option<SftSection>,
    /// Reinforcement learning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpo: Option<GrpoSection>,
}

#[cfg(feature = "train")]
type SftSection = drgym_trainer::config::SftConfig;
#[cfg(feature = "train")]
type GrpoSection = drgym_trainer::config::GrpoConfig;
// A build without the trainer still reads the files of one with it.
#[cfg(not(feature = "train"))]
type SftSection = serde_json::Map<String, serde_json::Value>;
#[cfg(not(feature = "train"))]
type GrpoSection = serde_json::Map<String, serde_json::Value>;

/// The corpus that questions are made from.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorpusConfig {
    /// Folder of the World Factbook as JSON, one folder a region.
    pub path: PathBuf,
}

/// Where to search: an index folder or a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SearchConfig {
    /// Index folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<PathBuf>,
    /// Base URL of a server that speaks DeepResearchGym's API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Environment variable that holds the server's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// Folder of the encoder, if it is not where the index was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder: Option<PathBuf>,
}

/// How a model folder is run by `eval` and `rollout`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// `cpu`, `cuda` or `cuda:N`.
    pub device: String,
    /// Compute in bfloat16 instead of single precision.
    pub bf16: bool,
    /// Threads of libtorch on the CPU; 0 takes all cores.
    pub threads: usize,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self { device: "cpu".into(), bf16: false, threads: 0 }
    }
}

/// Task files.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TasksConfig {
    /// Tasks to learn from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<PathBuf>,
    /// Tasks by which a checkpoint is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev: Option<PathBuf>,
    /// Take only the first so many of the dev tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev_limit: Option<usize>,
}

/// Expert traces for fine-tuning.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DemonstrationsConfig {
    /// A file of traces, in place of playing the expert; those with a right answer are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traces: Option<PathBuf>,
    /// So many successful episodes of the expert are learnt from.
    pub count: usize,
    /// So many successful episodes are passed over first, for runs that need fresh ones.
    pub skip: usize,
}

impl Default for DemonstrationsConfig {
    fn default() -> Self {
        Self { traces: None, count: 200, skip: 0 }
    }
}

impl Config {
    /// Reads a file and its overrides; every problem is reported at once, and nothing starts on a bad file.
    pub fn read(path: Option<&Path>, overrides: &[String]) -> Outcome<Self> {
        let (name, mut table) = match path {
            Some(path) => (path.display().to_string(), read_table(path)?),
            None => ("the command line".to_owned(), toml::Table::new()),
        };
        let mut found = Vec::new();
        for setting in overrides {
            if let Err(problem) = set(&mut table, setting) {
                found.push(problem);
            }
        }
        let value = serde_json::to_value(&table)?;
        found.extend(problems::against_schema(&value, &Self::schema()));
        let config = match table.try_into::<Self>() {
            Ok(config) => config.with_expanded_paths(),
            Err(error) => {
                if found.is_empty() {
                    found.push(error.message().to_owned());
                }
                return Err(bad(&name, &found));
            }
        };
        found.extend(config.problems());
        if found.is_empty() { Ok(config) } else { Err(bad(&name, &found)) }
    }

    /// The JSON schema of a file.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }

    /// The whole configuration with its defaults, as TOML.
    pub fn to_toml(&self) -> Outcome<String> {
        Ok(toml::to_string_pretty(self)?)
    }

    fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.search.index.is_some() && self.search.url.is_some() {
            found.push("search.index and search.url exclude one another".into());
        }
        for (key, path) in [
            ("corpus.path", self.corpus.as_ref().map(|corpus| &corpus.path)),
            ("search.index", self.search.index.as_ref()),
            ("search.encoder", self.search.encoder.as_ref()),
            ("tasks.train", self.tasks.train.as_ref()),
            ("tasks.dev", self.tasks.dev.as_ref()),
            ("demonstrations.traces", self.demonstrations.traces.as_ref()),
        ] {
            if path.is_some_and(|path| path.as_os_str().is_empty()) {
                found.push(format!("{key}: must name a file or folder, found an empty text"));
            }
        }
        found.extend(self.env.validate());
        found.extend(self.rollout.validate());
        found.extend(self.reward.validate());
        found.extend(self.judge.validate().into_iter().map(|problem| format!("judge.{problem}")));
        let synth = self.synth.iter().flat_map(SynthConfig::problems);
        found.extend(synth.map(|problem| format!("synth.{problem}")));
        #[cfg(feature = "train")]
        {
            let sft = self.sft.iter().flat_map(SftSection::validate);
            found.extend(sft.map(|problem| format!("sft.{problem}")));
            let grpo = self.grpo.iter().flat_map(GrpoSection::validate);
            found.extend(grpo.map(|problem| format!("grpo.{problem}")));
        }
        found
    }

    fn with_expanded_paths(mut self) -> Self {
        let optional = [
            &mut self.search.index,
            &mut self.search.encoder,
            &mut self.tasks.train,
            &mut self.tasks.dev,
            &mut self.demonstrations.traces,
        ];
        for path in
            optional.into_iter().flatten().chain(self.corpus.iter_mut().map(|corpus| &mut corpus.path))
        {
            *path = paths::expand(path);
        }
        #[cfg(feature = "train")]
        for path in self
            .sft
            .iter_mut()
            .map(|sft| &mut sft.model.path)
            .chain(self.grpo.iter_mut().map(|grpo| &mut grpo.model.path))
        {
            *path = paths::expand(path);
        }
        self
    }
}

fn bad(name: &str, problems: &[String]) -> Failure {
    let list: Vec<String> = problems.iter().map(|problem| format!("\n  - {problem}")).collect();
    Failure::new(format!("{name} has {}:{}", plural(problems.len(), "problem"), list.concat()))
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn read_table(path: &Path) -> Outcome<toml::Table> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::new(format!("cannot read the configuration {}: {error}", path.display()))
    })?;
    text.parse::<toml::Table>().map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        Failure::new(format!("{}:{line}: not TOML: {}", path.display(), error.message()))
    })
}

/// Applies `a.b=value`; the value is TOML, or else a plain string.
fn set(table: &mut toml::Table, setting: &str) -> Result<(), String> {
    let (key, text) =
        setting.split_once('=').ok_or_else(|| format!("--set {setting}: expected KEY=VALUE"))?;
    let text = text.trim();
    let value = format!("value = {text}")
        .parse::<toml::Table>()
        .ok()
        .and_then(|mut parsed| parsed.remove("value"))
        .unwrap_or_else(|| toml::Value::String(text.to_owned()));
    let mut parts: Vec<&str> = key.trim().split('.').collect();
    let last = parts
        .pop()
        .filter(|last| !last.is_empty())
        .ok_or_else(|| format!("--set {setting}: the key is empty"))?;
    let mut current = table;
    for part in parts {
        let entry = current.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        current = entry.as_table_mut().ok_or_else(|| format!("--set {setting}: {part} is not a section"))?;
    }
    current.insert(last.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, overrides: &[&str]) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
        Config::read(Some(&path), &overrides).map_err(|failure| failure.message())
    }

    #[test]
    fn an_empty_file_is_all_defaults() {
        assert_eq!(read("", &[]).unwrap().env, EnvConfig::default());
    }

    #[test]
    fn every_problem_is_reported_at_once_with_path_and_nearest_key() {
        let message =
            read("sed = 1\n[env]\nmax_turn = 3\ntop_k = 0\n[judge]\nkind = \"rule\"\n", &[]).unwrap_err();
        assert!(message.contains("unknown key sed; did you mean seed?"), "{message}");
        assert!(message.contains("unknown key env.max_turn; did you mean env.max_turns?"), "{message}");
        assert!(message.contains("judge.kind"), "{message}");
    }

    #[test]
    fn semantic_problems_follow_when_the_shape_is_right() {
        let message = read("[env]\ntop_k = 0\nmax_turns = 0\n[rollout]\nconcurrency = 0\n", &[]).unwrap_err();
        assert!(message.contains("3 problems") && message.contains("env.top_k"), "{message}");
    }

    #[test]
    fn overrides_make_sections_and_keep_types() {
        let config = read("seed = 1", &["seed=7", "env.search=false", "tasks.train=a b.jsonl"]).unwrap();
        assert_eq!((config.seed, config.env.search), (7, false));
        assert_eq!(config.tasks.train, Some(PathBuf::from("a b.jsonl")));
        assert!(read("", &["seed"]).unwrap_err().contains("KEY=VALUE"));
        assert!(read("", &["seed.x=1"]).is_err());
        assert!(read("seed = 1", &["seed.x=1"]).unwrap_err().contains("seed is not a section"));
    }

    #[test]
    fn broken_toml_names_the_line() {
        let message = read("seed = 1\n[env\n", &[]).unwrap_err();
        assert!(message.contains("config.toml:2"), "{message}");
    }

    #[test]
    fn what_is_shown_reads_back() {
        let config = read("seed = 3\n[search]\nindex = \"$DRGYM_HOME/x\"", &[]).unwrap();
        assert!(!config.search.index.as_ref().unwrap().starts_with("$DRGYM_HOME"));
        let shown = config.to_toml().unwrap();
        assert_eq!(read(&shown, &[]).unwrap().to_toml().unwrap(), shown);
    }
}

//! The configuration file: one TOML file for a whole pipeline, each verb takes the sections it needs.

mod problems;

use std::path::{Path, PathBuf};

use drgym_env::{EnvConfig, RewardConfig, RolloutConfig};
use drgym_judge::JudgeConfig;
use drgym_search::client::{check_address, is_key_variable};
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
    /// Base URL of `/fetch`, if pages are fetched from another place than `url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch_url: Option<String>,
    /// Environment variable that holds the server's key; a name of capital letters, digits and underscores.
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
    /// Most memory for keys and values, in GiB. Episodes that do not fit together are drawn in parts.
    pub cache_gib: f64,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self { device: "cpu".into(), bf16: false, threads: 0, cache_gib: 4.0 }
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
        for problem in problems::against_schema(&value, &Self::schema()) {
            remove(&mut table, &problem.path);
            found.push(problem.text);
        }
        let Some(config) = Self::taken(table, &mut found) else { return Err(bad(&name, &found)) };
        let config = config.with_expanded_paths();
        if found.is_empty() {
            found.extend(config.problems());
        }
        if found.is_empty() { Ok(config) } else { Err(bad(&name, &found)) }
    }

    /// What serde makes of a table. It stops at the first value that it refuses; without that one it goes on to the next.
    fn taken(mut table: toml::Table, found: &mut Vec<String>) -> Option<Self> {
        loop {
            let error = match table.clone().try_into::<Self>() {
                Ok(config) => return Some(config),
                Err(error) => error,
            };
            let path = path_of(&error);
            // What is missing has been told already, or was taken out for what it held.
            if found.is_empty() || !error.message().starts_with("missing field") {
                let place = path.as_ref().map_or_else(String::new, |path| format!("{path}: "));
                found.push(format!("{place}{}", error.message()));
            }
            if !path.is_some_and(|path| remove(&mut table, &path)) {
                return None;
            }
        }
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
            found.extend(path.and_then(|path| path_problem(path)).map(|problem| format!("{key}: {problem}")));
        }
        for (key, url) in [("search.url", &self.search.url), ("search.fetch_url", &self.search.fetch_url)] {
            let problem = url.as_deref().and_then(|url| check_address(url).err());
            found.extend(problem.map(|problem| format!("{key}: {problem}")));
        }
        if self.search.api_key_env.as_deref().is_some_and(|name| !is_key_variable(name)) {
            // The value is not repeated: it may be a key, pasted into the wrong place.
            found.push(
                "search.api_key_env: expected the name of an environment variable ([A-Z][A-Z0-9_]*), not a key"
                    .into(),
            );
        }
        let device = self.policy.device.as_str();
        let numbered = device.strip_prefix("cuda:").is_some_and(|number| number.parse::<usize>().is_ok());
        if !(matches!(device, "cpu" | "cuda") || numbered) {
            found.push(format!("policy.device: must be cpu, cuda or cuda:N, found {device:?}"));
        }
        // As in the trainer, which may not be part of this build: with far more threads than cores libtorch hardly moves.
        if self.policy.threads > 512 {
            found.push(format!("policy.threads: must be at most 512, found {}", self.policy.threads));
        }
        if !(self.policy.cache_gib.is_finite() && self.policy.cache_gib > 0.0) {
            found.push(format!("policy.cache_gib: must be above 0, found {}", self.policy.cache_gib));
        }
        found.extend(self.env.validate());
        found.extend(self.rollout.validate());
        found.extend(self.reward.validate());
        found.extend(self.judge.validate().into_iter().map(|problem| format!("judge.{problem}")));
        let synth = self.synth.iter().flat_map(SynthConfig::problems);
        found.extend(synth.map(|problem| format!("synth.{problem}")));
        #[cfg(feature = "train")]
        {
            for (key, model) in [
                ("sft.model.path", self.sft.as_ref().map(|sft| &sft.model.path)),
                ("grpo.model.path", self.grpo.as_ref().map(|grpo| &grpo.model.path)),
            ] {
                let problem = model.and_then(|path| path_problem(path));
                found.extend(problem.map(|problem| format!("{key}: {problem}")));
            }
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

/// What is wrong with a path after its leading `$DRGYM_HOME` or `~` was replaced.
fn path_problem(path: &Path) -> Option<String> {
    let first = path.components().next().map(|first| first.as_os_str().to_string_lossy().into_owned());
    match first {
        None => Some("must name a file or folder, found an empty text".into()),
        Some(first) if first.starts_with('$') => {
            Some(format!("only a leading $DRGYM_HOME or ~ is replaced, found {first}"))
        }
        Some(_) => None,
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
        let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or(&text));
        let line = before.matches('\n').count() + 1;
        Failure::new(format!("{}:{line}: not TOML: {}", path.display(), error.message()))
    })
}

/// Where serde stopped, which the error tells only when it is printed: after the message, as ``in `a.b` ``.
fn path_of(error: &toml::de::Error) -> Option<String> {
    let printed = error.to_string();
    let place = printed.strip_prefix(error.message())?.trim();
    Some(place.strip_prefix("in `")?.strip_suffix('`')?.to_owned())
}

/// Takes a value out of a table; the whole list where the path leads into one. `false` if it is not there.
fn remove(table: &mut toml::Table, path: &str) -> bool {
    let path = path.split('[').next().unwrap_or_default();
    let (sections, last) =
        path.rsplit_once('.').map_or((None, path), |(sections, last)| (Some(sections), last));
    let mut current = table;
    for section in sections.into_iter().flat_map(|sections| sections.split('.')) {
        match current.get_mut(section).and_then(toml::Value::as_table_mut) {
            Some(next) => current = next,
            None => return false,
        }
    }
    current.remove(last).is_some()
}

/// Applies `a.b=value`; the value is TOML, or else a plain string. No problem repeats the value, which may be secret.
fn set(table: &mut toml::Table, setting: &str) -> Result<(), String> {
    let (key, text) =
        setting.split_once('=').ok_or_else(|| format!("--set {setting}: expected KEY=VALUE"))?;
    let (key, text) = (key.trim(), text.trim());
    let value = format!("value = {text}")
        .parse::<toml::Table>()
        .ok()
        .filter(|parsed| parsed.len() == 1)
        .and_then(|mut parsed| parsed.remove("value"))
        .unwrap_or_else(|| toml::Value::String(text.to_owned()));
    let mut parts: Vec<&str> = key.split('.').map(str::trim).collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err(format!("--set {key}: the key, or a part of it, is empty"));
    }
    let last = parts.pop().unwrap_or(key);
    let mut current = table;
    for part in parts {
        let entry = current.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        current = entry.as_table_mut().ok_or_else(|| format!("--set {key}: {part} is not a section"))?;
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
        for (text, line) in [
            ("seed = 1\n[env\n", 2),
            ("seed = 1\nseed = 2", 2),
            ("\n\nseed = 1\n\nseed = 2\n", 5),
            ("= 1", 1),
            ("# ü\r\nseed = 1\r\nseed = 2\r\n", 3),
        ] {
            let message = read(text, &[]).unwrap_err();
            assert!(message.contains(&format!("config.toml:{line}: ")), "{text:?}: {message}");
        }
    }

    #[test]
    fn types_ranges_and_forms_are_told_with_path_all_at_once() {
        let message = read(
            "",
            &[
                "env.max_turns=-1",
                "env.top_k=5000000000",
                "env.fetch=1",
                "tasks.dev_limit=many",
                "tasks.train=7",
                "reward.correct=high",
            ],
        )
        .unwrap_err();
        for expected in [
            "6 problems",
            "env.max_turns: expected a whole number from 0 to 4294967295, found -1",
            "env.top_k: expected a whole number from 0 to 4294967295, found 5000000000",
            "env.fetch: expected true or false, found 1",
            "tasks.dev_limit: expected a whole number, found \"many\"",
            "tasks.train: expected a string, found 7",
            "reward.correct: expected a number, found \"high\"",
        ] {
            assert!(message.contains(expected), "{expected:?} is not in {message}");
        }
    }

    #[cfg(feature = "train")]
    #[test]
    fn a_form_is_told_also_where_other_keys_of_the_section_are_wrong() {
        let message = read(
            "[sft.model]\npath = \"x\"\ntrainable = \"upper:0\"\n[grpo]\nsteps = \"ten\"\n[grpo.model]\ntrainable = \"top\"\n",
            &[],
        )
        .unwrap_err();
        for expected in [
            "sft.model.trainable: expected a text of the form",
            "grpo.model.trainable: expected a text of the form",
            "found \"upper:0\"",
            "grpo.steps: expected a whole number",
            "grpo.model.path is missing",
        ] {
            assert!(message.contains(expected), "{expected:?} is not in {message}");
        }
    }

    /// What the schema cannot say is left to serde, whose every refusal is told with its path as well.
    #[test]
    fn what_serde_refuses_is_told_with_its_path() {
        let table: toml::Table =
            "[env]\nmax_turns = -1\ntop_k = -2\n[reward]\ncorrect = \"x\"".parse().unwrap();
        let mut found = Vec::new();
        let left = Config::taken(table, &mut found).unwrap();
        assert_eq!((left.env, left.reward), (EnvConfig::default(), RewardConfig::default()));
        assert_eq!(found.len(), 3, "{found:?}");
        for path in ["env.max_turns: ", "env.top_k: ", "reward.correct: "] {
            assert!(found.iter().any(|problem| problem.starts_with(path)), "{path}: {found:?}");
        }
    }

    #[test]
    fn a_server_is_checked_before_anything_starts_and_a_key_is_not_repeated() {
        let good =
            ["search.url=https://host/x", "search.fetch_url=http://127.0.0.1:80", "search.api_key_env=KEY_1"];
        let config = read("", &good).unwrap();
        assert_eq!(config.search.fetch_url.as_deref(), Some("http://127.0.0.1:80"));
        let message = read(
            "",
            &[
                "search.url=ftp://host",
                "search.fetch_url=https://user:sk-live-1@host",
                "search.api_key_env=sk-live-1",
            ],
        )
        .unwrap_err();
        assert!(message.contains("3 problems") && !message.contains("sk-live"), "{message}");
        for key in ["search.url: ", "search.fetch_url: ", "search.api_key_env: "] {
            assert!(message.contains(key), "{key}: {message}");
        }
        for setting in ["search.api_key_env=48151623", "search.api_key_env.x=48151623", "..x=48151623"] {
            let message = read("[search]\napi_key_env = \"A\"", &[setting]).unwrap_err();
            assert!(!message.contains("48151623"), "{message}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        let config = read("seed = 3\n[search]\nindex = \"$DRGYM_HOME/x\"", &[]).unwrap();
        assert!(!config.search.index.as_ref().unwrap().starts_with("$DRGYM_HOME"));
        let shown = config.to_toml().unwrap();
        assert_eq!(read(&shown, &[]).unwrap().to_toml().unwrap(), shown);
    }
}

//! Which evaluations may be compared, and what they do not have in common.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::results::{Evaluation, Results};

/// Why two evaluations must not be compared.
#[derive(Debug, thiserror::Error)]
pub enum IncomparableError {
    /// Different questions.
    #[error("the evaluations are of different data: {first} has {first_hash}, {second} has {second_hash}")]
    Data {
        /// Folder of one evaluation.
        first: PathBuf,
        /// blake3 of its benchmark file.
        first_hash: String,
        /// Folder of the other.
        second: PathBuf,
        /// blake3 of its benchmark file.
        second_hash: String,
    },
    /// What one judge calls right, another may call wrong.
    #[error(
        "the evaluations are of different judges: {first} has {first_judge:?}, {second} has {second_judge:?}"
    )]
    Judge {
        /// Folder of one evaluation.
        first: PathBuf,
        /// Name of its judge.
        first_judge: String,
        /// Folder of the other.
        second: PathBuf,
        /// Name of its judge.
        second_judge: String,
    },
}

/// Refuses evaluations of different data or by different judges. Everything else may be what is being compared.
pub fn check_comparable(first: &Evaluation, second: &Evaluation) -> Result<(), IncomparableError> {
    let (one, other) = (&first.results, &second.results);
    let folders = || (first.folder.clone(), second.folder.clone());
    if one.data_hash != other.data_hash {
        let (first, second) = folders();
        let (first_hash, second_hash) = (one.data_hash.clone(), other.data_hash.clone());
        return Err(IncomparableError::Data { first, first_hash, second, second_hash });
    }
    if one.judge != other.judge {
        let (first, second) = folders();
        let (first_judge, second_judge) = (one.judge.clone(), other.judge.clone());
        return Err(IncomparableError::Judge { first, first_judge, second, second_judge });
    }
    Ok(())
}

/// A setting in which two evaluations differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DifferingSetting {
    /// Its name in `results.json`; `env.KEY` for those of the environment.
    pub setting: String,
    /// Value in the first.
    pub first: Value,
    /// Value in the second.
    pub second: Value,
}

/// Every setting in which two evaluations differ, in the order of `results.json`. Settings that one of them does not
/// record, being of an older program, are passed over.
pub fn differing_settings(first: &Results, second: &Results) -> Vec<DifferingSetting> {
    let (one, other) = (settings(first), settings(second));
    let differs = |(setting, first): (&String, &Value)| {
        let second = other.get(setting).filter(|second| *second != first)?;
        Some(DifferingSetting { setting: setting.clone(), first: first.clone(), second: second.clone() })
    };
    one.iter().filter_map(differs).collect()
}

fn settings(results: &Results) -> Map<String, Value> {
    let mut settings = Map::new();
    let mut set = |name: &str, value: Value| settings.insert(name.to_owned(), value);
    set("program", json!(results.program));
    set("benchmark", json!(results.benchmark));
    set("policy", json!(results.policy));
    set("search", json!(results.search));
    set("search_hash", json!(results.search_hash));
    set("seed", json!(results.seed));
    set("temperature", json!(results.temperature));
    set("samples", json!(results.samples));
    if results.policy_source.is_some() {
        set("policy_source", json!(results.policy_source));
        set("model_hash", json!(results.model_hash));
        set("limit", json!(results.limit));
    }
    if let Value::Object(env) = json!(results.env) {
        for (key, value) in env {
            set(&format!("env.{key}"), value);
        }
    }
    settings
}

//! What a synthesis run made and what it refused.

use std::collections::{BTreeMap, BTreeSet};

use drgym_env::Task;
use serde::{Deserialize, Serialize};

use crate::checks::Rejection;
use crate::config::SynthConfig;
use crate::factbook::candidate::UNSEEN;
use crate::split::Split;

/// One refused candidate, one line of `rejects.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RejectRecord {
    /// The entity that would have been asked about.
    pub entity: String,
    /// The relation that would have been asked for.
    pub relation: String,
    /// The relation that would have described the entity; absent where it was to be named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clue: Option<String>,
    /// The question; absent where the fact was refused before any question was worded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Why.
    #[serde(flatten)]
    pub rejection: Rejection,
}

/// Counts of one split.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SplitReport {
    /// Tasks written.
    pub tasks: usize,
    /// Entities that the tasks touch.
    pub entities: usize,
    /// Tasks of each kind.
    pub by_kind: BTreeMap<String, usize>,
    /// Tasks that ask for each relation.
    pub by_relation: BTreeMap<String, usize>,
    /// Tasks that describe their entity by each relation.
    pub by_clue: BTreeMap<String, usize>,
    /// Tasks with wordings that every split uses.
    pub seen_phrasing: usize,
    /// Tasks with wordings of the test split alone.
    pub unseen_phrasing: usize,
}

/// How retrievability was checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetrievalReport {
    /// Name of the search engine.
    pub backend: String,
    /// How many documents were looked at.
    pub k: usize,
    /// Tasks checked.
    pub checked: usize,
    /// Tasks of which every evidence document was found and its finding shown.
    pub found: usize,
}

/// What a run made, written as `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SynthReport {
    /// Name and version of the generator.
    pub generator: String,
    /// The settings of the run.
    pub config: SynthConfig,
    /// Hash of the corpus.
    pub corpus: String,
    /// Entities in the corpus.
    pub corpus_entities: usize,
    /// Facts read out of the corpus.
    pub facts: usize,
    /// Candidates worded from the facts.
    pub candidates: usize,
    /// Candidates that passed every check but were not needed or exceeded a limit.
    pub unused: usize,
    /// Counts by split.
    pub splits: BTreeMap<Split, SplitReport>,
    /// Refused facts and candidates by reason.
    pub rejections: BTreeMap<String, usize>,
    /// Absent where no search engine was given.
    pub retrieval: Option<RetrievalReport>,
    /// blake3 of each tasks and rejects file, in hex.
    pub files: BTreeMap<String, String>,
}

impl SplitReport {
    /// Counts `tasks`.
    pub fn of(tasks: &[Task]) -> Self {
        let mut report = Self { tasks: tasks.len(), ..Self::default() };
        let mut entities = BTreeSet::new();
        for task in tasks {
            entities.extend(task.entities.iter());
            *report.by_kind.entry(task.kind.clone()).or_default() += 1;
            for (field, counts) in [("relation", &mut report.by_relation), ("clue", &mut report.by_clue)] {
                if let Some(name) = task.extra.get(field).and_then(|value| value.as_str()) {
                    *counts.entry(name.to_owned()).or_default() += 1;
                }
            }
            if task.phrasing.starts_with(UNSEEN) {
                report.unseen_phrasing += 1;
            } else {
                report.seen_phrasing += 1;
            }
        }
        report.entities = entities.len();
        report
    }
}

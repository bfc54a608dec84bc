//! What a synthesis run is asked for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::split::PerSplit;

/// Settings of a synthesis run; every field has a default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SynthConfig {
    /// Root seed: the same seed and corpus give the same bytes.
    pub seed: u64,
    /// How many tasks each split is to have.
    pub counts: PerSplit<usize>,
    /// What part of the entities each split gets; the three sum to 1.
    pub entity_fractions: PerSplit<f64>,
    /// What part of the tasks describes its entity instead of naming it, 0 to 1.
    pub two_hop_fraction: f64,
    /// What part of the test tasks is worded as no training task is, 0 to 1.
    pub unseen_phrasing_fraction: f64,
    /// At most so many tasks about one entity.
    pub max_per_entity: usize,
    /// At most so many tasks of one split ask for the same relation.
    pub max_per_relation: usize,
    /// With a search engine: every evidence document must be among the first so many for the expert's query.
    pub retrievable_k: usize,
    /// With a search engine: how many tasks are checked at the same time.
    pub concurrency: usize,
    /// Accept fewer tasks than `counts` asks for where the corpus holds no more, instead of failing.
    pub allow_fewer: bool,
}

impl Default for SynthConfig {
    fn default() -> Self {
        Self {
            seed: 17,
            counts: PerSplit { train: 2000, dev: 200, test: 500 },
            entity_fractions: PerSplit { train: 0.65, dev: 0.1, test: 0.25 },
            two_hop_fraction: 0.5,
            unseen_phrasing_fraction: 0.2,
            max_per_entity: 40,
            max_per_relation: 150,
            retrievable_k: 3,
            concurrency: 8,
            allow_fewer: false,
        }
    }
}

impl SynthConfig {
    /// Everything that is wrong with the settings, each with its path; empty if nothing is.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let fractions = &self.entity_fractions;
        for (path, value) in [
            ("two_hop_fraction", self.two_hop_fraction),
            ("unseen_phrasing_fraction", self.unseen_phrasing_fraction),
            ("entity_fractions.train", fractions.train),
            ("entity_fractions.dev", fractions.dev),
            ("entity_fractions.test", fractions.test),
        ] {
            if !(0.0..=1.0).contains(&value) {
                problems.push(format!("{path}: expected 0 to 1, found {value}"));
            }
        }
        let sum = fractions.train + fractions.dev + fractions.test;
        if (sum - 1.0).abs() > 1e-6 {
            problems.push(format!("entity_fractions: expected a sum of 1, found {sum}"));
        }
        for (path, value) in [
            ("max_per_entity", self.max_per_entity),
            ("max_per_relation", self.max_per_relation),
            ("retrievable_k", self.retrievable_k),
            ("concurrency", self.concurrency),
            ("counts", self.counts.train + self.counts.dev + self.counts.test),
        ] {
            if value == 0 {
                problems.push(format!("{path}: expected at least 1, found 0"));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_sound_and_unknown_fields_are_refused() {
        assert!(SynthConfig::default().problems().is_empty());
        let empty: SynthConfig = serde_json::from_str("{}").unwrap();
        assert_eq!(empty, SynthConfig::default());
        assert!(serde_json::from_str::<SynthConfig>(r#"{"sede": 1}"#).is_err());
        assert!(
            serde_json::from_str::<SynthConfig>(r#"{"counts": {"train": 1, "dev": 1, "tset": 1}}"#).is_err()
        );
    }

    #[test]
    fn the_schema_describes_every_field() {
        let schema = serde_json::to_value(schemars::schema_for!(SynthConfig)).unwrap();
        let written = serde_json::to_value(SynthConfig::default()).unwrap();
        let fields = written.as_object().unwrap().keys();
        for field in fields {
            assert!(schema["properties"][field]["description"].is_string(), "{field}");
        }
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let config = SynthConfig {
            two_hop_fraction: 1.5,
            entity_fractions: PerSplit { train: 0.5, dev: 0.1, test: 0.1 },
            retrievable_k: 0,
            ..SynthConfig::default()
        };
        let problems = config.problems();
        assert_eq!(problems.len(), 3, "{problems:?}");
    }
}

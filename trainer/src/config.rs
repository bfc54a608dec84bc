//! The training sections of a configuration file.
//!
//! Every section knows its defaults, its JSON schema and its problems: [`SftConfig::validate`] and
//! [`GrpoConfig::validate`] report all of them at once, each with the path of the field.

mod grpo;
mod model;
mod optimizer;
mod problems;
mod sft;
mod update;

pub use grpo::{EvaluationConfig, GrpoConfig, GuardConfig, OldLogprobs};
pub use model::{Dtype, LoraOptions, ModelOptions, TrainablePart, default_cache};
pub use optimizer::OptimizerConfig;
pub use sft::SftConfig;
pub use update::{CheckpointConfig, MicroBatchConfig};

fn yes() -> bool {
    true
}

fn default_skipped_in_row() -> u64 {
    3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::advantage::AdvantageOptions;
    use crate::algorithm::loss::ClipOptions;
    use crate::optimizer::AdamWOptions;

    #[test]
    fn defaults_are_the_documented_ones_and_are_valid() {
        let sft: SftConfig = toml::from_str("[model]\npath = \"m\"").unwrap();
        assert_eq!(sft.validate(), Vec::<String>::new());
        assert_eq!((sft.epochs, sft.batch_size, sft.optimizer.learning_rate), (1, 8, 2e-4));
        let grpo: GrpoConfig =
            toml::from_str("steps = 10\n[model]\npath = \"m\"\ntrainable = \"upper:15\"").unwrap();
        assert_eq!(grpo.validate(), Vec::<String>::new());
        assert_eq!(grpo.model.trainable, TrainablePart::Upper(15));
        assert_eq!(grpo.clip(), ClipOptions::default());
        assert_eq!(grpo.advantage(), AdvantageOptions::default());
        assert_eq!(grpo.optimizer.adamw(), AdamWOptions::default());
        let again: GrpoConfig = toml::from_str(&toml::to_string(&grpo).unwrap()).unwrap();
        assert_eq!(again, grpo);
    }

    #[test]
    fn every_problem_is_reported_with_its_path() {
        let text = "steps = 0\ngroup_size = 1\nclip_low = 1.5\n[model]\npath = \"m\"\ndevice = \"tpu\"\n\
                    [optimizer]\nlearning_rate = -1.0\n";
        let problems = toml::from_str::<GrpoConfig>(text).unwrap().validate();
        let paths: Vec<&str> = problems.iter().filter_map(|problem| problem.split(':').next()).collect();
        assert_eq!(paths, ["model.device", "optimizer.learning_rate", "steps", "group_size", "clip_low"]);
    }

    #[test]
    fn unknown_fields_and_parts_are_refused() {
        assert!(toml::from_str::<SftConfig>("epoch = 1\n[model]\npath = \"m\"").is_err());
        for part in ["upper:0", "upper:", "lower:3", "everything"] {
            let text = format!("[model]\npath = \"m\"\ntrainable = \"{part}\"");
            assert!(toml::from_str::<SftConfig>(&text).is_err(), "{part}");
        }
    }

    #[test]
    fn the_schema_names_every_field() {
        let schema = serde_json::to_string(&schemars::schema_for!(GrpoConfig)).unwrap();
        for field in ["prompts_per_step", "max_failed_fraction", "upper:[1-9]", "warmup_updates"] {
            assert!(schema.contains(field), "{field}");
        }
    }
}

//! Which judge a run uses, as its configuration says.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chat::openai::{ModelConfig, OpenAiClient};
use crate::chat::{ChatClient, ChatError};
use crate::rules::RuleJudge;
use crate::soft_match::SoftMatchJudge;
use crate::verdict::AnswerJudge;

/// Who judges answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JudgeKind {
    /// Rules alone: free, offline, the same every time.
    #[default]
    Rules,
    /// Rules first, then the language model of the `model` section.
    Model,
}

/// The judge's section of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgeConfig {
    /// Who judges.
    #[serde(default)]
    pub kind: JudgeKind,
    /// Seed of the markers around answers and of the model's sampling.
    #[serde(default)]
    pub seed: u64,
    /// The model; needed by, and only by, the kind `model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelConfig>,
}

/// Why a judge cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum JudgeConfigError {
    /// The configuration contradicts itself or is incomplete.
    #[error("bad judge configuration: {}", problems.join("; "))]
    Invalid {
        /// Every problem, each with its field.
        problems: Vec<String>,
    },
    /// The client cannot be built, for instance because its key is missing.
    #[error(transparent)]
    Client(#[from] ChatError),
}

impl JudgeConfig {
    /// Every problem, each beginning with the field it is in; empty where there is none. Looks at nothing outside.
    pub fn validate(&self) -> Vec<String> {
        match (self.kind, &self.model) {
            (JudgeKind::Model, None) => vec!["model: the kind \"model\" needs this section".into()],
            (JudgeKind::Rules, Some(_)) => {
                vec![
                    "model: the kind \"rules\" asks no model; remove the section or say kind = \"model\""
                        .into(),
                ]
            }
            (JudgeKind::Rules, None) => Vec::new(),
            (JudgeKind::Model, Some(model)) => model.problems("model."),
        }
    }
}

/// The judge of a configuration.
pub fn build(config: &JudgeConfig) -> Result<Arc<dyn AnswerJudge>, JudgeConfigError> {
    build_with(config, |client| client)
}

/// The same, with a hand on the client: for caches, call logs and ledgers
/// ([`ObservedClient`](crate::call_log::ObservedClient)).
pub fn build_with(
    config: &JudgeConfig,
    wrap: impl FnOnce(Arc<dyn ChatClient>) -> Arc<dyn ChatClient>,
) -> Result<Arc<dyn AnswerJudge>, JudgeConfigError> {
    let problems = config.validate();
    if !problems.is_empty() {
        return Err(JudgeConfigError::Invalid { problems });
    }
    match &config.model {
        None => Ok(Arc::new(RuleJudge)),
        Some(model) => {
            let client: Arc<dyn ChatClient> = Arc::new(OpenAiClient::new(model)?);
            Ok(Arc::new(SoftMatchJudge::new(wrap(client), config.seed)))
        }
    }
}

//! Settings of the environment.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the policy's history reaches it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum History {
    /// One growing sequence: observations are appended where the policy stopped (Search-R1's way). The key/value
    /// cache stays alive and a whole episode is one training sample.
    #[default]
    Append,
    /// Every turn is a fresh prompt with the turns so far (DeepResearchGym's way); every turn is a segment.
    Turns,
}

/// How actions are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FormatName {
    /// `<search>…</search>`, `<fetch>…</fetch>`, `<summary>…</summary>`, `<answer>…</answer>`.
    #[default]
    Tags,
}

/// Settings of the environment, its renderer and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EnvConfig {
    /// How actions are written.
    pub format: FormatName,
    /// How the history reaches the policy.
    pub history: History,
    /// Outputs of the policy an episode, invalid ones included.
    pub max_turns: u32,
    /// Searches an episode; a further one is answered by a reminder.
    pub max_searches: u32,
    /// Documents a search.
    pub top_k: u32,
    /// Tokens the policy may draw a turn.
    pub max_response_tokens: u32,
    /// Tokens of one observation; longer ones are cut inside their documents.
    pub max_observation_tokens: u32,
    /// Tokens of prompt and history together.
    pub max_context_tokens: u32,
    /// Whether searches find anything. Switched off, every search comes back empty: what remains is memory.
    pub search: bool,
    /// Whether the policy may fetch pages.
    pub fetch: bool,
    /// Whether the policy may replace its history by a summary.
    pub summary: bool,
    /// Instructions in place of the built-in ones.
    pub instructions: Option<String>,
}

impl Default for EnvConfig {
    fn default() -> Self {
        Self {
            format: FormatName::Tags,
            history: History::Append,
            max_turns: 5,
            max_searches: 3,
            top_k: 1,
            max_response_tokens: 64,
            max_observation_tokens: 128,
            max_context_tokens: 1024,
            search: true,
            fetch: false,
            summary: false,
            instructions: None,
        }
    }
}

impl EnvConfig {
    /// Every problem of the settings, with the path of the key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (key, value) in [
            ("max_turns", self.max_turns),
            ("top_k", self.top_k),
            ("max_response_tokens", self.max_response_tokens),
            ("max_context_tokens", self.max_context_tokens),
        ] {
            if value == 0 {
                problems.push(format!("env.{key} must be at least 1"));
            }
        }
        if self.max_observation_tokens < 32 {
            problems.push(format!(
                "env.max_observation_tokens is {}, but 32 are needed to close the tags of an observation",
                self.max_observation_tokens
            ));
        }
        if self.max_response_tokens >= self.max_context_tokens {
            problems.push("env.max_response_tokens must be smaller than env.max_context_tokens".into());
        }
        problems
    }
}

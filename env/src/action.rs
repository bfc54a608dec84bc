//! What an agent can do.

use serde::{Deserialize, Serialize};

/// One action of the agent, parsed from its output by an action format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "value", rename_all = "snake_case")]
pub enum Action {
    /// Search for a query.
    Search(String),
    /// Fetch the page at a URL.
    Fetch(String),
    /// Replace the history by a summary.
    Summary(String),
    /// Answer and end the episode.
    Answer(String),
    /// The output is no action; the reason in words.
    Invalid(String),
}

//! Asking a chat model one thing.

pub mod openai;
pub mod secret;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Standing instructions.
    System,
    /// The one who asks.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

impl ChatMessage {
    /// A standing instruction.
    pub fn system(content: impl Into<String>) -> Self {
        Self { role: Role::System, content: content.into() }
    }

    /// A message of the one who asks.
    pub fn user(content: impl Into<String>) -> Self {
        Self { role: Role::User, content: content.into() }
    }

    /// A message of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self { role: Role::Assistant, content: content.into() }
    }
}

/// Everything that decides a reply, the model itself excepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatRequest {
    /// The conversation so far.
    pub messages: Vec<ChatMessage>,
    /// 0 for the likeliest tokens.
    pub temperature: f64,
    /// Most tokens of the reply.
    pub max_tokens: u32,
    /// For servers that sample reproducibly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// JSON schema that the server is to hold the reply to; sent as `response_format`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
}

/// Tokens that a call took, as the server counted them; 0 where it did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the conversation.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Tokens of the reply.
    #[serde(default)]
    pub completion_tokens: u64,
}

/// What the model said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatReply {
    /// The text.
    pub text: String,
    /// What it cost.
    #[serde(default)]
    pub usage: Usage,
    /// Whether the reply was cut at `max_tokens`.
    #[serde(default)]
    pub truncated: bool,
}

/// Why there is no reply. `server` is the model and the address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// The environment variable that should hold the key is unset or empty.
    #[error("the environment variable {variable}, which should hold the key for {server}, is not set")]
    MissingKey {
        /// Model and address.
        server: String,
        /// The variable's name.
        variable: String,
    },
    /// The key cannot be sent in a header.
    #[error("the value of the environment variable {variable} holds characters that no key has")]
    UnusableKey {
        /// The variable's name.
        variable: String,
    },
    /// The client cannot be built.
    #[error("cannot set up the client for {server}: {reason}")]
    Setup {
        /// Model and address.
        server: String,
        /// What is wrong.
        reason: String,
    },
    /// The server refused the key (401 or 403).
    #[error("{server} refused the key ({status}); {hint}")]
    Unauthorized {
        /// Model and address.
        server: String,
        /// HTTP status.
        status: u16,
        /// Which variable to set.
        hint: String,
    },
    /// The server does not know the model or the path (404).
    #[error(
        "{server} answered 404: is {model:?} a model of this server, and does its address end in the API's root, often /v1? {reason}"
    )]
    NotFound {
        /// Model and address.
        server: String,
        /// The model asked for.
        model: String,
        /// What the server said.
        reason: String,
    },
    /// The server refused the request for good (another 4xx, or a redirection).
    #[error("{server} refused the request ({status}): {reason}")]
    Refused {
        /// Model and address.
        server: String,
        /// HTTP status.
        status: u16,
        /// What the server said.
        reason: String,
    },
    /// Overloaded, failing, too slow or out of reach, after every allowed attempt.
    #[error("{server} is unavailable after {attempts} attempts: {reason}")]
    Unavailable {
        /// Model and address.
        server: String,
        /// How often it was tried.
        attempts: u32,
        /// What was seen last.
        reason: String,
    },
    /// The reply is longer than the client accepts.
    #[error("{server} sent more than {limit} bytes")]
    TooLarge {
        /// Model and address.
        server: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// The reply does not follow the protocol.
    #[error("{server} sent a malformed reply: {reason}")]
    Protocol {
        /// Model and address.
        server: String,
        /// What was expected and found.
        reason: String,
    },
    /// A replay was asked for something that was never recorded.
    #[error("the recording {recording} holds no further reply to the request {hash} of {model}")]
    NotRecorded {
        /// Path of the recording.
        recording: String,
        /// The model asked for.
        model: String,
        /// Hash of the request.
        hash: String,
    },
    /// The call was made but could not be entered where it must be.
    #[error("cannot record a call of {model}: {reason}")]
    Unrecorded {
        /// The model asked.
        model: String,
        /// What the system said.
        reason: String,
    },
}

/// Something that completes conversations.
#[async_trait]
pub trait ChatClient: Send + Sync {
    /// The next message of the conversation, or why there is none. Retries are the client's business.
    async fn complete(&self, request: &ChatRequest) -> Result<ChatReply, ChatError>;

    /// The model's name, as results report it.
    fn model(&self) -> String;

    /// Model and address, for error messages.
    fn server(&self) -> String;

    /// Whether the server holds its replies to [`ChatRequest::response_schema`].
    fn offers_json_schema(&self) -> bool;
}

/// A short name of a request to a model: blake3 over the model's name and every field of the request, in hex.
pub fn request_hash(model: &str, request: &ChatRequest) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(model.len() as u64).to_le_bytes());
    hasher.update(model.as_bytes());
    // Every text goes in with its length, so that no two conversations run together into the same bytes.
    for message in &request.messages {
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        for part in [role, &message.content] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
    }
    let schema = request.response_schema.as_ref().map_or(String::new(), Value::to_string);
    let rest =
        format!("|{}|{}|{:?}|{schema}", request.temperature.to_bits(), request.max_tokens, request.seed);
    hasher.update(rest.as_bytes());
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_changes_the_hash() {
        let base = ChatRequest {
            messages: vec![ChatMessage::user("ab"), ChatMessage::user("c")],
            temperature: 0.0,
            max_tokens: 10,
            seed: None,
            response_schema: None,
        };
        let hash = request_hash("m", &base);
        assert_eq!(hash, request_hash("m", &base.clone()));
        let others = [
            ChatRequest { messages: vec![ChatMessage::user("a"), ChatMessage::user("bc")], ..base.clone() },
            ChatRequest { messages: vec![ChatMessage::system("ab"), ChatMessage::user("c")], ..base.clone() },
            ChatRequest { temperature: 0.1, ..base.clone() },
            ChatRequest { max_tokens: 11, ..base.clone() },
            ChatRequest { seed: Some(0), ..base.clone() },
            ChatRequest { response_schema: Some(serde_json::json!({})), ..base.clone() },
        ];
        for other in others {
            assert_ne!(hash, request_hash("m", &other), "{other:?}");
        }
        assert_ne!(hash, request_hash("n", &base));
    }
}

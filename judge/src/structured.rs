//! One prompt, one JSON schema, one typed answer: the only way in which this program asks models for decisions.

pub mod tolerant;

use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::chat::{ChatClient, ChatError, ChatMessage, ChatRequest, Role};

/// How a structured call samples and how often it asks again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StructuredSettings {
    /// 0 for the likeliest tokens.
    pub temperature: f64,
    /// Most tokens of one reply.
    pub max_tokens: u32,
    /// For servers that sample reproducibly.
    pub seed: Option<u64>,
    /// How often an unusable reply is answered by a request to do it again.
    pub max_reasks: u32,
}

impl Default for StructuredSettings {
    fn default() -> Self {
        Self { temperature: 0.0, max_tokens: 1024, seed: None, max_reasks: 2 }
    }
}

/// Why there is no typed answer. Never turned into a default.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StructuredError {
    /// The model could not be asked.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// The model answered, but never in the form asked for.
    #[error(
        "{server} gave no usable answer in {attempts} attempts: {reason}; its last reply began {excerpt:?}"
    )]
    Unparsable {
        /// Model and address.
        server: String,
        /// How often it was asked.
        attempts: u32,
        /// What was wrong with the last reply.
        reason: String,
        /// The beginning of the last reply.
        excerpt: String,
    },
}

/// Asks a model for a `T`.
///
/// The schema of `T` goes to servers that hold their replies to one; for others it is written under the prompt. A
/// reply is read tolerantly ([`tolerant::read`]), and an unusable one is answered by saying what is wrong with it.
pub struct StructuredCall<T> {
    client: Arc<dyn ChatClient>,
    schema: Value,
    settings: StructuredSettings,
    answer: PhantomData<fn() -> T>,
}

/// Most characters of an unusable reply that are shown back to the model or in an error.
const SHOWN: usize = 1000;

impl<T: DeserializeOwned + JsonSchema> StructuredCall<T> {
    /// A call of this client.
    pub fn new(client: Arc<dyn ChatClient>, settings: StructuredSettings) -> Self {
        let generator = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        let mut schema = generator.into_generator().into_root_schema_for::<T>().to_value();
        if let Some(object) = schema.as_object_mut() {
            // Strict servers refuse keywords that constrain nothing.
            object.shift_remove("$schema");
            object.shift_remove("title");
        }
        Self { client, schema, settings, answer: PhantomData }
    }

    /// The JSON schema of an answer.
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// The client that is asked.
    pub fn client(&self) -> &Arc<dyn ChatClient> {
        &self.client
    }

    /// Asks, and asks again while the replies are unusable and [`StructuredSettings::max_reasks`] allows.
    pub async fn ask(&self, mut messages: Vec<ChatMessage>) -> Result<T, StructuredError> {
        let offered = self.client.offers_json_schema();
        if !offered {
            let demand = format!(
                "Reply with one JSON object that satisfies this JSON schema, and with nothing else:\n{}",
                self.schema
            );
            match messages.last_mut().filter(|last| last.role == Role::User) {
                Some(last) => last.content = format!("{}\n\n{demand}", last.content),
                None => messages.push(ChatMessage::user(demand)),
            }
        }
        let mut attempts = 0;
        loop {
            let request = ChatRequest {
                messages: messages.clone(),
                temperature: self.settings.temperature,
                max_tokens: self.settings.max_tokens,
                seed: self.settings.seed,
                response_schema: offered.then(|| self.schema.clone()),
            };
            let reply = self.client.complete(&request).await?;
            attempts += 1;
            let reason = if reply.truncated {
                // What stands in half a reply may be a quotation: only a whole reply is an answer.
                format!("the reply was cut at {} tokens", self.settings.max_tokens)
            } else {
                match tolerant::read(&reply.text) {
                    Ok(answer) => return Ok(answer),
                    Err(reason) => reason.to_string(),
                }
            };
            let excerpt: String = reply.text.chars().take(SHOWN).collect();
            if attempts > self.settings.max_reasks {
                let excerpt = excerpt.chars().take(SHOWN / 5).collect();
                return Err(StructuredError::Unparsable {
                    server: self.client.server(),
                    attempts,
                    reason,
                    excerpt,
                });
            }
            tracing::debug!(server = %self.client.server(), attempts, %reason, "asking again");
            messages.push(ChatMessage::assistant(excerpt));
            messages.push(ChatMessage::user(format!(
                "That reply cannot be used: {reason}. Reply with one short, complete JSON object of the required form, \
                 and with nothing else."
            )));
        }
    }
}

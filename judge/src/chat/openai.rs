//! Servers that speak OpenAI's chat completions: OpenAI itself, vLLM, SGLang, llama.cpp, Ollama and many more.
//!
//! Retried with growing, jittered waits: 408, 429, 5xx, timeouts, connections that fail or break. A `Retry-After` in
//! seconds is honoured, up to [`RetryWaits::longest`]. Not retried: every other status, and replies that are too long
//! or malformed.

use std::sync::{Mutex, Once};
use std::time::Duration;

use async_trait::async_trait;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reqwest::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::secret::ApiKey;
use super::{ChatClient, ChatError, ChatReply, ChatRequest, Usage};

/// Where a model is served, and how hard to try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Root of the API, for instance `https://api.openai.com/v1`; `/chat/completions` is added.
    pub base_url: String,
    /// The model's name on that server.
    pub model: String,
    /// Name of the environment variable that holds the key; leave out for servers without keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// Seconds until one attempt counts as failed.
    #[serde(default = "default_timeout_seconds")]
    pub timeout_seconds: u64,
    /// Most requests under way at once.
    #[serde(default = "default_concurrency")]
    pub concurrency: usize,
    /// Attempts after the first.
    #[serde(default = "default_max_retries")]
    pub max_retries: u32,
    /// Whether the server takes `response_format` with a JSON schema; otherwise the schema goes into the prompt.
    #[serde(default)]
    pub json_schema: bool,
}

fn default_timeout_seconds() -> u64 {
    60
}

fn default_concurrency() -> usize {
    8
}

fn default_max_retries() -> u32 {
    5
}

impl ModelConfig {
    /// Every problem, each with the field it is in, prefixed by `path` (for instance `judge.model.`).
    pub fn problems(&self, path: &str) -> Vec<String> {
        let mut problems = Vec::new();
        // Neither value is repeated: keys are pasted into the wrong place, and passwords written into addresses.
        match Url::parse(&self.base_url) {
            Err(error) => problems.push(format!(
                "{path}base_url: expected an address such as https://api.openai.com/v1, found something else ({error})"
            )),
            Ok(url) if !matches!(url.scheme(), "http" | "https") => {
                problems.push(format!("{path}base_url: expected http or https, found another scheme"));
            }
            Ok(url)
                if !url.username().is_empty()
                    || url.password().is_some()
                    || url.query().is_some()
                    || url.fragment().is_some() =>
            {
                problems.push(format!(
                    "{path}base_url: must hold neither credentials nor a query nor a fragment; keys come from api_key_env"
                ));
            }
            Ok(_) => {}
        }
        if self.model.trim().is_empty() {
            problems.push(format!("{path}model: is empty"));
        }
        if let Some(variable) = &self.api_key_env
            && !is_variable_name(variable)
        {
            problems.push(format!(
                "{path}api_key_env: expected the name of an environment variable (capital letters, digits and \
                 underscores, a letter first), found something else, perhaps a key"
            ));
        }
        if self.timeout_seconds == 0 {
            problems.push(format!("{path}timeout_seconds: must be at least 1"));
        }
        if !(1..=MOST_CONCURRENCY).contains(&self.concurrency) {
            problems.push(format!(
                "{path}concurrency: expected 1 to {MOST_CONCURRENCY}, found {}",
                self.concurrency
            ));
        }
        problems
    }
}

/// Names that a key can hardly be taken for: `[A-Z][A-Z0-9_]*`.
fn is_variable_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// How long to wait before trying again: `first`, doubled each time, at most `longest`, times a factor from 0.5 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryWaits {
    /// Before the first retry.
    pub first: Duration,
    /// Never longer; a server that asks for more is given up.
    pub longest: Duration,
    /// Seed of the jitter.
    pub seed: u64,
}

impl Default for RetryWaits {
    fn default() -> Self {
        Self { first: Duration::from_millis(500), longest: Duration::from_mins(2), seed: 0 }
    }
}

const MOST_CONCURRENCY: usize = 4096;
/// Most bytes of a reply.
const REPLY_LIMIT: usize = 4 << 20;
/// Most characters of a server's words in an error.
const EXCERPT: usize = 300;

/// A client of one model on one OpenAI-compatible server.
pub struct OpenAiClient {
    http: reqwest::Client,
    endpoint: Url,
    config: ModelConfig,
    key: Option<ApiKey>,
    authorization: Option<HeaderValue>,
    permits: Semaphore,
    waits: RetryWaits,
    jitter: Mutex<ChaCha8Rng>,
}

impl std::fmt::Debug for OpenAiClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("OpenAiClient")
            .field("config", &self.config)
            .field("key", &self.key)
            .field("waits", &self.waits)
            .finish_non_exhaustive()
    }
}

enum Attempt {
    Final(ChatError),
    Again { reason: String, retry_after: Option<Duration> },
}

impl OpenAiClient {
    /// Reads the key from the environment and sets the client up; sends nothing.
    pub fn new(config: &ModelConfig) -> Result<Self, ChatError> {
        // First of all: the errors below name the variable, which must not be a key.
        check(config)?;
        let key = match &config.api_key_env {
            None => None,
            Some(variable) => {
                let value = std::env::var(variable).ok().filter(|value| !value.trim().is_empty());
                let missing =
                    || ChatError::MissingKey { server: server_name(config), variable: variable.clone() };
                Some(ApiKey::new(&value.ok_or_else(missing)?))
            }
        };
        Self::with_key(config, key)
    }

    /// The same with a key that the caller holds.
    pub fn with_key(config: &ModelConfig, key: Option<ApiKey>) -> Result<Self, ChatError> {
        static CRYPTOGRAPHY: Once = Once::new();
        // An error only says that another part of the program has installed a provider already, which will do.
        CRYPTOGRAPHY.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
        let setup = |reason: String| ChatError::Setup { server: server_name(config), reason };
        check(config)?;
        let endpoint = format!("{}/chat/completions", config.base_url.trim_end_matches('/'));
        let endpoint = Url::parse(&endpoint).map_err(|error| setup(error.to_string()))?;
        let authorization = match &key {
            None => None,
            Some(key) => {
                let unusable = |_| ChatError::UnusableKey {
                    variable: config.api_key_env.clone().unwrap_or_else(|| "(none)".into()),
                };
                let mut header =
                    HeaderValue::from_str(&format!("Bearer {}", key.reveal())).map_err(unusable)?;
                header.set_sensitive(true);
                Some(header)
            }
        };
        let mut builder = reqwest::Client::builder()
            .timeout(Duration::from_secs(config.timeout_seconds))
            // A redirection could carry the key to another host.
            .redirect(reqwest::redirect::Policy::none());
        if endpoint
            .host_str()
            .is_some_and(|host| host == "localhost" || host.starts_with("127.") || host == "[::1]")
        {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| setup(error.to_string()))?;
        let waits = RetryWaits::default();
        Ok(Self {
            http,
            endpoint,
            config: config.clone(),
            key,
            authorization,
            permits: Semaphore::new(config.concurrency),
            jitter: Mutex::new(ChaCha8Rng::seed_from_u64(waits.seed)),
            waits,
        })
    }

    /// Other waits between attempts.
    #[must_use]
    pub fn with_waits(mut self, waits: RetryWaits) -> Self {
        self.jitter = Mutex::new(ChaCha8Rng::seed_from_u64(waits.seed));
        self.waits = waits;
        self
    }

    async fn attempt(&self, body: &Value) -> Result<ChatReply, Attempt> {
        let mut request = self.http.post(self.endpoint.clone()).json(body);
        if let Some(header) = &self.authorization {
            request = request.header(AUTHORIZATION, header.clone());
        }
        let response = request.send().await.map_err(|error| self.transport(error))?;
        let status = response.status();
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.trim().parse::<f64>().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let bytes = self.read(response).await?;
        if status.is_success() {
            return self.reply(&bytes).map_err(Attempt::Final);
        }
        let reason = self.excerpt(&server_words(&bytes));
        let server = self.server();
        Err(match status {
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                Attempt::Again { reason: format!("it answered {status}: {reason}"), retry_after }
            }
            _ if status.is_server_error() => {
                Attempt::Again { reason: format!("it answered {status}: {reason}"), retry_after }
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let hint = match &self.config.api_key_env {
                    Some(variable) => format!("is the environment variable {variable} set to a valid key?"),
                    None => {
                        "no key was sent; name the environment variable that holds it in api_key_env".into()
                    }
                };
                Attempt::Final(ChatError::Unauthorized { server, status: status.as_u16(), hint })
            }
            StatusCode::NOT_FOUND => {
                Attempt::Final(ChatError::NotFound { server, model: self.config.model.clone(), reason })
            }
            _ => Attempt::Final(ChatError::Refused { server, status: status.as_u16(), reason }),
        })
    }

    fn transport(&self, error: reqwest::Error) -> Attempt {
        let reason = if error.is_timeout() {
            format!("no reply within {} s", self.config.timeout_seconds)
        } else {
            let error = error.without_url();
            let mut words = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(inner) = cause {
                words = format!("{words}: {inner}");
                cause = inner.source();
            }
            self.excerpt(&words)
        };
        Attempt::Again { reason, retry_after: None }
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, Attempt> {
        let too_large = || Attempt::Final(ChatError::TooLarge { server: self.server(), limit: REPLY_LIMIT });
        if response.content_length().is_some_and(|length| length > REPLY_LIMIT as u64) {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.transport(error))? {
            if bytes.len() + chunk.len() > REPLY_LIMIT {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    fn reply(&self, bytes: &[u8]) -> Result<ChatReply, ChatError> {
        let protocol =
            |reason: String| ChatError::Protocol { server: self.server(), reason: self.excerpt(&reason) };
        let completion: Completion = serde_json::from_slice(bytes).map_err(|error| {
            protocol(format!("expected a chat completion, found {error}: {}", server_words(bytes)))
        })?;
        let choice = completion
            .choices
            .into_iter()
            .next()
            .ok_or_else(|| protocol("the list of choices is empty".into()))?;
        let text = match (choice.message.content, choice.message.refusal) {
            (Some(text), _) => text,
            (None, Some(refusal)) => return Err(protocol(format!("the model refused: {refusal}"))),
            (None, None) => return Err(protocol("choices[0].message.content is missing".into())),
        };
        let truncated = choice.finish_reason.as_deref() == Some("length");
        Ok(ChatReply { text, usage: completion.usage.unwrap_or_default(), truncated })
    }

    fn excerpt(&self, text: &str) -> String {
        let redacted = self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.redact(text));
        let line = redacted.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.chars().count() > EXCERPT {
            line.chars().take(EXCERPT).chain("…".chars()).collect()
        } else {
            line
        }
    }

    fn wait(&self, retry: u32) -> Duration {
        let doubled = self.waits.first.saturating_mul(1_u32.checked_shl(retry.min(20)).unwrap_or(u32::MAX));
        let mut jitter = self.jitter.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        doubled.min(self.waits.longest).mul_f64(jitter.random_range(0.5..1.0))
    }
}

#[async_trait]
impl ChatClient for OpenAiClient {
    async fn complete(&self, request: &ChatRequest) -> Result<ChatReply, ChatError> {
        let body = body(&self.config.model, request);
        let mut retry = 0;
        loop {
            let outcome = {
                // Held for the attempt only, so that those who wait to try again do not keep others out.
                let permit = self.permits.acquire().await;
                let outcome = self.attempt(&body).await;
                drop(permit);
                outcome
            };
            let (reason, retry_after) = match outcome {
                Ok(reply) => return Ok(reply),
                Err(Attempt::Final(error)) => return Err(error),
                Err(Attempt::Again { reason, retry_after }) => (reason, retry_after),
            };
            let unavailable =
                |reason| ChatError::Unavailable { server: self.server(), attempts: retry + 1, reason };
            if retry >= self.config.max_retries {
                return Err(unavailable(reason));
            }
            let wait = retry_after.unwrap_or_else(|| self.wait(retry));
            if wait > self.waits.longest {
                let asked = format!("{reason}; it asks to wait {} s, longer than allowed", wait.as_secs());
                return Err(unavailable(asked));
            }
            tracing::debug!(server = %self.server(), retry, ?wait, %reason, "trying again");
            tokio::time::sleep(wait).await;
            retry += 1;
        }
    }

    fn model(&self) -> String {
        self.config.model.clone()
    }

    fn server(&self) -> String {
        server_name(&self.config)
    }

    fn offers_json_schema(&self) -> bool {
        self.config.json_schema
    }
}

/// Refuses a configuration that has a problem; the error names the first one.
fn check(config: &ModelConfig) -> Result<(), ChatError> {
    match config.problems("").into_iter().next() {
        None => Ok(()),
        Some(reason) => Err(ChatError::Setup { server: server_name(config), reason }),
    }
}

fn server_name(config: &ModelConfig) -> String {
    // Only scheme, host and path, and those only of a proper address: whatever else one holds may be secret.
    let url = Url::parse(&config.base_url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let address = url.map_or_else(
        || "an unreadable address".into(),
        |url| format!("{}{}", url.origin().ascii_serialization(), url.path().trim_end_matches('/')),
    );
    format!("{} at {address}", config.model)
}

fn body(model: &str, request: &ChatRequest) -> Value {
    let mut body = json!({
        "model": model,
        "messages": request.messages,
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
    });
    if let Some(seed) = request.seed {
        body["seed"] = json!(seed);
    }
    if let Some(schema) = &request.response_schema {
        body["response_format"] = json!({
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": true, "schema": schema},
        });
    }
    body
}

/// What a server says in an error body: its `error.message` or `detail`, or else the body itself.
fn server_words(bytes: &[u8]) -> String {
    let value: Option<Value> = serde_json::from_slice(bytes).ok();
    let message = value.as_ref().and_then(|value| {
        let error = value.get("error").or_else(|| value.get("detail")).or_else(|| value.get("message"))?;
        error.as_str().or_else(|| error.get("message")?.as_str())
    });
    message
        .map_or_else(|| String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]).into_owned(), str::to_owned)
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    refusal: Option<String>,
}

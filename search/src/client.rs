//! The client of DeepResearchGym's API: the hosted service, a copy of it, or our own server.

mod key;

use std::hash::{BuildHasher, RandomState};
use std::sync::Once;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::backend::{Page, PageRequest, Provenance, SearchBackend, SearchError, SearchHit, SearchResponse};
use crate::wire::{ErrorBody, FetchBody, INDEX_HEADER, SearchBody, WireDocument};
use key::Key;
pub use key::is_key_variable;

/// Longest wait between attempts; where a server asks for more, the request fails at once.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Waits of this length are told: whoever looks on wonders by then.
const TELLING: Duration = Duration::from_secs(5);

/// Largest answer that is read, in bytes.
const LARGEST_BODY: usize = 256 << 20;

/// Most characters of a server's words in an error.
const EXCERPT: usize = 300;

/// How to reach a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// `/search` and `/fetch` are appended, for instance to `http://127.0.0.1:8080` or `https://host/fineweb`.
    pub base_url: String,
    /// Where `/fetch` is, if not under `base_url`.
    pub fetch_base_url: Option<String>,
    /// Environment variable whose value is sent as `x-api-key`; see [`is_key_variable`].
    pub api_key_variable: Option<String>,
    /// Time limit of one attempt, from connecting to the last byte.
    pub timeout: Duration,
    /// Further attempts after a connection failure, a time-out or 5xx other than 503.
    pub retries: u32,
    /// Further attempts after 429 and 503: the server is well and asks for patience.
    pub busy_retries: u32,
    /// Wait before the first further attempt, doubled for each later one up to a minute, times a random factor from
    /// 0.5 to 1, so that those who were refused together do not come back together. A `Retry-After` of the server is
    /// waited out first.
    pub backoff: Duration,
}

impl ClientOptions {
    /// No key, 30 seconds, three retries from half a second; eight (at least a minute) where the server is busy.
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            fetch_base_url: None,
            api_key_variable: None,
            timeout: Duration::from_secs(30),
            retries: 3,
            busy_retries: 8,
            backoff: Duration::from_millis(500),
        }
    }
}

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is not one.
    #[error("{url:?} is no http or https address: {reason}")]
    Url {
        /// The address.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What should name the variable that holds the key cannot do so. It is not told, since it may be a key.
    #[error(
        "the environment variable that holds the API key must have a name of capital letters, digits and underscores \
         ([A-Z][A-Z0-9_]*); found something else, which is not shown since it may be a key"
    )]
    KeyVariable,
    /// The key is not set.
    #[error("the environment variable {variable}, which should hold the API key, {reason}")]
    Key {
        /// The variable.
        variable: String,
        /// What is wrong with its value, which is not told.
        reason: &'static str,
    },
    /// The HTTP client cannot be set up.
    #[error("cannot set up HTTP: {0}")]
    Http(#[from] reqwest::Error),
}

/// A search backend over HTTP.
pub struct DeepResearchGymBackend {
    http: reqwest::Client,
    search_url: Url,
    fetch_url: Url,
    key: Option<Key>,
    options: ClientOptions,
}

impl DeepResearchGymBackend {
    /// Checks the options and reads the key; nothing is sent yet.
    pub fn new(options: ClientOptions) -> Result<Self, ClientError> {
        let search_url = endpoint(&options.base_url, "search")?;
        let fetch_url = endpoint(options.fetch_base_url.as_ref().unwrap_or(&options.base_url), "fetch")?;
        let key = options.api_key_variable.as_deref().map(Key::read).transpose()?;
        let header: Option<HeaderValue> = key.as_ref().and_then(Key::header);
        let headers = header.map(|header| (HeaderName::from_static("x-api-key"), header));
        install_tls_provider();
        let mut builder = reqwest::Client::builder()
            .default_headers(headers.into_iter().collect())
            .timeout(options.timeout)
            // A redirection would carry the key to wherever it points.
            .redirect(reqwest::redirect::Policy::none());
        if is_loopback(&search_url) && is_loopback(&fetch_url) {
            builder = builder.no_proxy();
        }
        let http = builder.build()?;
        Ok(Self { http, search_url, fetch_url, key, options })
    }

    /// The body of a successful answer with its headers, after retries.
    async fn get<T: DeserializeOwned>(
        &self,
        url: &Url,
        parameters: &[(&str, &str)],
    ) -> Result<(HeaderMap, T), Failure> {
        let (mut failed, mut busy) = (0, 0);
        loop {
            let (reason, asked, is_busy) = match self.attempt(url, parameters).await {
                Ok((status, headers, body)) if status.is_success() => {
                    let body = serde_json::from_slice(&body).map_err(|error| {
                        Failure::Error(self.protocol(&format!("unexpected body: {error}")))
                    })?;
                    return Ok((headers, body));
                }
                Ok((status, headers, body)) => {
                    let is_busy =
                        matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
                    if !is_busy && !status.is_server_error() {
                        return Err(Failure::Refused { status, body });
                    }
                    let reason = format!("HTTP {} {}", status.as_u16(), server_words(&body));
                    (self.quote(&reason), retry_after(&headers), is_busy)
                }
                Err(Broken { reason, again: true }) => (self.quote(&reason), None, false),
                Err(Broken { reason, again: false }) => return Err(Failure::Error(self.protocol(&reason))),
            };
            let attempts = failed + busy + 1;
            let unavailable = |reason| SearchError::Unavailable { engine: self.engine(), reason };
            if let Some(asked) = asked.filter(|&asked| asked > LONGEST_WAIT) {
                let reason = format!(
                    "{reason} (it asks to wait {} s, allowed are {} s)",
                    asked.as_secs(),
                    LONGEST_WAIT.as_secs()
                );
                return Err(Failure::Error(unavailable(reason)));
            }
            let (count, most) = if is_busy {
                (&mut busy, self.options.busy_retries)
            } else {
                (&mut failed, self.options.retries)
            };
            if *count >= most {
                return Err(Failure::Error(unavailable(format!("{reason} (after {attempts} attempts)"))));
            }
            let wait = asked.unwrap_or_default() + growing_wait(self.options.backoff, *count, jitter());
            *count += 1;
            if wait >= TELLING {
                let seconds = wait.as_secs();
                tracing::warn!(
                    engine = self.engine(),
                    reason,
                    attempts,
                    seconds,
                    "no answer yet; trying again"
                );
            } else {
                tracing::debug!(engine = self.engine(), reason, ?wait, "retrying");
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn attempt(
        &self,
        url: &Url,
        parameters: &[(&str, &str)],
    ) -> Result<(StatusCode, HeaderMap, Vec<u8>), Broken> {
        // The address may carry the query text; it has no place in an error message.
        let explain = |error: reqwest::Error| Broken { reason: chain(&error.without_url()), again: true };
        let mut response = self.http.get(url.clone()).query(parameters).send().await.map_err(explain)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(explain)? {
            body.extend_from_slice(&chunk);
            if body.len() > LARGEST_BODY {
                let reason = format!("the answer is larger than {LARGEST_BODY} bytes");
                return Err(Broken { reason, again: false });
            }
        }
        Ok((status, headers, body))
    }

    fn engine(&self) -> String {
        self.options.base_url.clone()
    }

    /// What a server said, in a line of bounded length and without the key: it goes into logs and traces.
    fn quote(&self, text: &str) -> String {
        let redacted = self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.redact(text));
        // A server must not steer the terminal on which this is read.
        let plain: String = redacted.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.chars().count() > EXCERPT {
            line.chars().take(EXCERPT).chain("…".chars()).collect()
        } else {
            line
        }
    }

    fn protocol(&self, reason: &str) -> SearchError {
        SearchError::Protocol { engine: self.engine(), reason: self.quote(reason) }
    }

    fn provenance_of(&self, headers: &HeaderMap) -> Result<Provenance, SearchError> {
        if let Some(hash) = headers.get(INDEX_HEADER) {
            // It goes into traces, where a server could otherwise put anything.
            let text = hash.to_str().unwrap_or_default();
            if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                let reason = format!("the header {INDEX_HEADER} is {hash:?}, expected 64 hexadecimal digits");
                return Err(self.protocol(&reason));
            }
            return Ok(Provenance::Index { hash: text.to_owned() });
        }
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |at| at.as_secs());
        Ok(Provenance::Live { engine: self.engine(), at })
    }

    /// Refusals that mean the same for both requests.
    fn refused(&self, status: StatusCode, body: &[u8]) -> SearchError {
        let words = server_words(body);
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => SearchError::Unauthorized {
                engine: self.engine(),
                status: status.as_u16(),
                variable: self
                    .options
                    .api_key_variable
                    .clone()
                    .unwrap_or_else(|| "an API key variable".to_owned()),
            },
            // There is no such service.
            StatusCode::NOT_FOUND => self.protocol(&format!("HTTP 404 {words}")),
            _ if status.is_client_error() => SearchError::Refused {
                engine: self.engine(),
                status: status.as_u16(),
                reason: self.quote(&words),
            },
            _ if status.is_redirection() => self.protocol(&format!(
                "HTTP {}: a redirection, which is not followed since the key would go along; give the address itself",
                status.as_u16()
            )),
            _ => self.protocol(&format!("HTTP {} {words}", status.as_u16())),
        }
    }
}

#[async_trait]
impl SearchBackend for DeepResearchGymBackend {
    async fn search(&self, query: &str, k: usize) -> Result<SearchResponse, SearchError> {
        if query.trim().is_empty() {
            return Err(SearchError::BadRequest("the query is empty".to_owned()));
        }
        if k == 0 {
            return Err(SearchError::BadRequest("k is 0, expected at least 1".to_owned()));
        }
        let parameters = [("query", query), ("k", &k.to_string()), ("with_distance", "true")];
        let (headers, body) = match self.get::<SearchBody>(&self.search_url, &parameters).await {
            Ok(answer) => answer,
            Err(Failure::Error(error)) => return Err(error),
            Err(Failure::Refused { status, body }) => return Err(self.refused(status, &body)),
        };
        let count = body.results.len();
        if let Some(distances) = &body.distances
            && distances.len() != count
        {
            return Err(self.protocol(&format!("{count} results, but {} distances", distances.len())));
        }
        let mut hits: Vec<SearchHit> = Vec::with_capacity(count);
        for (position, encoded) in body.results.iter().enumerate() {
            let WireDocument { doc_id, url, title, text } = WireDocument::decode(encoded)
                .map_err(|reason| self.protocol(&format!("result {position}: {reason}")))?;
            // Servers that search several shards have been seen to repeat a document.
            if !hits.iter().any(|hit| hit.doc_id == doc_id) {
                let score = body.distances.as_ref().map(|distances| distances[position]);
                hits.push(SearchHit { doc_id, url, title, text, score });
            }
        }
        hits.truncate(k);
        Ok(SearchResponse { hits, provenance: self.provenance_of(&headers)? })
    }

    async fn fetch(&self, request: &PageRequest) -> Result<Page, SearchError> {
        let (what, value) = match request {
            PageRequest::Url(url) => ("url", url.trim_end_matches(['\n', '\r'])),
            PageRequest::DocId(doc_id) => ("doc_id", doc_id.as_str()),
        };
        let (headers, body) = match self.get::<FetchBody>(&self.fetch_url, &[(what, value)]).await {
            Ok(answer) => answer,
            // Another 404 says that there is no such service, which is no fact about the document.
            Err(Failure::Refused { status: StatusCode::NOT_FOUND, body }) if says_page_not_found(&body) => {
                return Err(SearchError::NotFound { what, value: value.to_owned() });
            }
            Err(Failure::Refused { status, body }) => return Err(self.refused(status, &body)),
            Err(Failure::Error(error)) => return Err(error),
        };
        let WireDocument { doc_id, url, title, text } =
            WireDocument::decode(&body.clean_text).map_err(|reason| self.protocol(&reason))?;
        Ok(Page { doc_id, url, title, text, provenance: self.provenance_of(&headers)? })
    }

    fn name(&self) -> String {
        format!("deepresearchgym:{}", self.options.base_url)
    }
}

/// Why there is no answer, and whether another attempt could bring one.
struct Broken {
    reason: String,
    again: bool,
}

/// Why there is no body.
enum Failure {
    Refused { status: StatusCode, body: Vec<u8> },
    Error(SearchError),
}

/// Whether this can be the address of a server: http or https, without credentials, query or fragment.
pub fn check_address(base: &str) -> Result<(), ClientError> {
    endpoint(base, "search").map(|_| ())
}

fn endpoint(base: &str, name: &str) -> Result<Url, ClientError> {
    // Whatever else stands in a mistaken address may be secret.
    let shown = if base.contains(['@', '?', '#']) || !base.contains("://") { "(hidden)" } else { base };
    let wrong = |reason: String| ClientError::Url { url: shown.to_owned(), reason };
    let mut url = Url::parse(base).map_err(|error| wrong(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(format!("its scheme is {:?}", url.scheme())));
    }
    let extra = url.query().is_some() || url.fragment().is_some();
    if extra || !url.username().is_empty() || url.password().is_some() {
        let reason = "it holds credentials, a query or a fragment; put a key into an environment variable";
        return Err(wrong(reason.to_owned()));
    }
    let path = format!("{}/{name}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(|host| host == "localhost" || host.starts_with("127.") || host == "[::1]")
}

/// What a server says in an error body: its `detail`, whatever JSON that is, or else the body itself.
fn server_words(body: &[u8]) -> String {
    let detail = serde_json::from_slice::<Value>(body).ok().and_then(|body| body.get("detail").cloned());
    match detail {
        Some(Value::String(detail)) => detail,
        Some(detail) => detail.to_string(),
        None => String::from_utf8_lossy(&body[..body.len().min(4096)]).into_owned(),
    }
}

/// The one refusal that is a fact about a document; the words are the protocol's.
fn says_page_not_found(body: &[u8]) -> bool {
    serde_json::from_slice::<ErrorBody>(body).is_ok_and(|body| body.detail == "URL not found.")
}

/// The wait before retry number `retry`, counted from 0; `jitter` lies between 0 and 1.
fn growing_wait(first: Duration, retry: u32, jitter: f64) -> Duration {
    let doubled = first.saturating_mul(1_u32.checked_shl(retry).unwrap_or(u32::MAX));
    doubled.min(LONGEST_WAIT).mul_f64(0.5 + 0.5 * jitter)
}

/// From 0 to 1, another one at each call and in each process: nothing that is recorded depends on it.
fn jitter() -> f64 {
    RandomState::new().hash_one(()) as f64 / u64::MAX as f64
}

/// `Retry-After` in seconds; the other form, a date, is not used by such servers and counts as none.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// TLS needs a provider of cryptography, chosen once for the process.
fn install_tls_provider() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        // Somebody else may have chosen one already, which serves as well.
        drop(rustls::crypto::ring::default_provider().install_default());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_appended_to_the_path() {
        let url = |base| endpoint(base, "search").map(|url| url.to_string());
        assert_eq!(url("http://127.0.0.1:80").unwrap(), "http://127.0.0.1/search");
        assert_eq!(url("https://host/fineweb/").unwrap(), "https://host/fineweb/search");
        assert!(url("ftp://host").is_err());
        for secret in [
            "https://user:hunter2@host",
            "ftp://user:hunter2@host",
            "https://host/?key=hunter2",
            "https://host/#hunter2",
            "https://user:hunter2@",
            "hunter2",
        ] {
            let told = url(secret).unwrap_err().to_string();
            assert!(!told.contains("hunter2"), "{told}");
        }
        let told = url("https://ho st").unwrap_err().to_string();
        assert!(told.contains("ho st"), "{told}");
    }

    #[test]
    fn waits_grow_to_a_minute_and_outlast_a_queue() {
        let first = Duration::from_millis(500);
        assert_eq!(growing_wait(first, 0, 0.0), Duration::from_millis(250));
        assert_eq!(growing_wait(first, 0, 1.0), Duration::from_millis(500));
        assert_eq!(growing_wait(first, 3, 1.0), Duration::from_secs(4));
        assert_eq!(growing_wait(first, 40, 1.0), LONGEST_WAIT);
        let options = ClientOptions::new("http://127.0.0.1");
        let shortest: Duration =
            (0..options.busy_retries).map(|retry| growing_wait(options.backoff, retry, 0.0)).sum();
        assert!(shortest >= Duration::from_mins(1), "{shortest:?}");
    }

    #[test]
    fn those_who_were_refused_together_come_back_apart() {
        let drawn: Vec<f64> = (0..100).map(|_| jitter()).collect();
        assert!(drawn.iter().all(|jitter| (0.0..=1.0).contains(jitter)));
        let low = drawn.iter().filter(|&&jitter| jitter < 0.5).count();
        assert!((20..=80).contains(&low), "{low} of 100 below the middle");
    }

    #[test]
    fn a_servers_words_are_found_in_any_form() {
        assert_eq!(server_words(br#"{"detail": "bad k"}"#), "bad k");
        assert_eq!(server_words(br#"{"detail": [{"loc": ["k"]}]}"#), r#"[{"loc":["k"]}]"#);
        assert_eq!(server_words(b"<html>"), "<html>");
        assert!(says_page_not_found(br#"{"detail": "URL not found."}"#));
        assert!(
            !says_page_not_found(br#"{"detail": "Not Found"}"#) && !says_page_not_found(b"URL not found.")
        );
    }

    #[test]
    fn retry_after_is_read_in_seconds() {
        let headers =
            |value: &'static str| HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
        assert_eq!(retry_after(&headers("2")), Some(Duration::from_secs(2)));
        assert_eq!(retry_after(&headers("-1")), None);
        assert_eq!(retry_after(&headers("Wed, 21 Oct 2015 07:28:00 GMT")), None);
    }
}

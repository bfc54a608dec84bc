//! The client of DeepResearchGym's API: the hosted service, a copy of it, or our own server.

use std::sync::Once;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use serde::de::DeserializeOwned;

use crate::backend::{Page, PageRequest, Provenance, SearchBackend, SearchError, SearchHit, SearchResponse};
use crate::wire::{ErrorBody, FetchBody, INDEX_HEADER, SearchBody, WireDocument};

/// Longest wait that a server may ask for; beyond it the request fails at once.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Largest answer that is read, in bytes.
const LARGEST_BODY: usize = 256 << 20;

/// How to reach a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// `/search` and `/fetch` are appended, for instance to `http://127.0.0.1:8080` or `https://host/fineweb`.
    pub base_url: String,
    /// Where `/fetch` is, if not under `base_url`.
    pub fetch_base_url: Option<String>,
    /// Environment variable whose value is sent as `x-api-key`.
    pub api_key_variable: Option<String>,
    /// Time limit of one attempt, from connecting to the last byte.
    pub timeout: Duration,
    /// Further attempts after a connection failure, a time-out, 429 or 5xx.
    pub retries: u32,
    /// Wait before the first further attempt, doubled for each later one. A `Retry-After` of the server prevails.
    pub backoff: Duration,
}

impl ClientOptions {
    /// No key, 30 seconds, three retries from half a second.
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            fetch_base_url: None,
            api_key_variable: None,
            timeout: Duration::from_secs(30),
            retries: 3,
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
    options: ClientOptions,
}

impl DeepResearchGymBackend {
    /// Checks the options and reads the key; nothing is sent yet.
    pub fn new(options: ClientOptions) -> Result<Self, ClientError> {
        let search_url = endpoint(&options.base_url, "search")?;
        let fetch_url = endpoint(options.fetch_base_url.as_ref().unwrap_or(&options.base_url), "fetch")?;
        let mut headers = HeaderMap::new();
        if let Some(variable) = &options.api_key_variable {
            let wrong = |reason| ClientError::Key { variable: variable.clone(), reason };
            let key = std::env::var(variable).map_err(|_| wrong("is not set"))?;
            let mut key =
                HeaderValue::from_str(key.trim()).map_err(|_| wrong("holds characters no key has"))?;
            if key.is_empty() {
                return Err(wrong("is empty"));
            }
            key.set_sensitive(true);
            headers.insert("x-api-key", key);
        }
        install_tls_provider();
        let http = reqwest::Client::builder().default_headers(headers).timeout(options.timeout).build()?;
        Ok(Self { http, search_url, fetch_url, options })
    }

    /// The body of a successful answer with its headers, after retries.
    async fn get<T: DeserializeOwned>(
        &self,
        url: &Url,
        parameters: &[(&str, &str)],
    ) -> Result<(HeaderMap, T), Failure> {
        let mut wait = self.options.backoff;
        for attempt in 0.. {
            let (reason, asked) = match self.attempt(url, parameters).await {
                Ok((status, headers, body)) if status.is_success() => {
                    let body = serde_json::from_slice(&body).map_err(|error| {
                        Failure::Error(self.protocol(format!("unexpected body: {error}")))
                    })?;
                    return Ok((headers, body));
                }
                Ok((status, headers, body)) => {
                    let detail = serde_json::from_slice::<ErrorBody>(&body).map(|body| body.detail);
                    let detail = detail.unwrap_or_default();
                    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
                        return Err(Failure::Refused { status, detail });
                    }
                    (format!("HTTP {} {detail}", status.as_u16()), retry_after(&headers))
                }
                Err(reason) => (reason, None),
            };
            let wait_now = asked.unwrap_or(wait);
            if attempt >= self.options.retries || wait_now > LONGEST_WAIT {
                let reason = format!("{reason} (after {} attempts)", attempt + 1);
                return Err(Failure::Error(SearchError::Unavailable { engine: self.engine(), reason }));
            }
            tracing::debug!(engine = self.engine(), reason, ?wait_now, "retrying");
            tokio::time::sleep(wait_now).await;
            wait = wait.saturating_mul(2).min(LONGEST_WAIT);
        }
        Err(Failure::Error(self.protocol("the attempts ran out of numbers".to_owned())))
    }

    async fn attempt(
        &self,
        url: &Url,
        parameters: &[(&str, &str)],
    ) -> Result<(StatusCode, HeaderMap, Vec<u8>), String> {
        // The address may carry the query text; it has no place in an error message.
        let explain = |error: reqwest::Error| chain(&error.without_url());
        let mut response = self.http.get(url.clone()).query(parameters).send().await.map_err(explain)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(explain)? {
            body.extend_from_slice(&chunk);
            if body.len() > LARGEST_BODY {
                return Err(format!("the answer is larger than {LARGEST_BODY} bytes"));
            }
        }
        Ok((status, headers, body))
    }

    fn engine(&self) -> String {
        self.options.base_url.clone()
    }

    fn protocol(&self, reason: String) -> SearchError {
        SearchError::Protocol { engine: self.engine(), reason }
    }

    fn provenance_of(&self, headers: &HeaderMap) -> Provenance {
        if let Some(hash) = headers.get(INDEX_HEADER).and_then(|hash| hash.to_str().ok()) {
            return Provenance::Index { hash: hash.to_owned() };
        }
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |at| at.as_secs());
        Provenance::Live { engine: self.engine(), at }
    }

    /// Refusals that mean the same for both requests.
    fn refused(&self, status: StatusCode, detail: String) -> SearchError {
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
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => SearchError::BadRequest(detail),
            _ => self.protocol(format!("HTTP {} {detail}", status.as_u16())),
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
            Err(Failure::Refused { status, detail }) => return Err(self.refused(status, detail)),
        };
        let count = body.results.len();
        if let Some(distances) = &body.distances
            && distances.len() != count
        {
            return Err(self.protocol(format!("{count} results, but {} distances", distances.len())));
        }
        let mut hits: Vec<SearchHit> = Vec::with_capacity(count);
        for (position, encoded) in body.results.iter().enumerate() {
            let WireDocument { doc_id, url, title, text } = WireDocument::decode(encoded)
                .map_err(|reason| self.protocol(format!("result {position}: {reason}")))?;
            // Servers that search several shards have been seen to repeat a document.
            if !hits.iter().any(|hit| hit.doc_id == doc_id) {
                let score = body.distances.as_ref().map(|distances| distances[position]);
                hits.push(SearchHit { doc_id, url, title, text, score });
            }
        }
        hits.truncate(k);
        Ok(SearchResponse { hits, provenance: self.provenance_of(&headers) })
    }

    async fn fetch(&self, request: &PageRequest) -> Result<Page, SearchError> {
        let (what, value) = match request {
            PageRequest::Url(url) => ("url", url.trim_end_matches(['\n', '\r'])),
            PageRequest::DocId(doc_id) => ("doc_id", doc_id.as_str()),
        };
        let (headers, body) = match self.get::<FetchBody>(&self.fetch_url, &[(what, value)]).await {
            Ok(answer) => answer,
            // Another 404 says that there is no such service, which is no fact about the document.
            Err(Failure::Refused { status: StatusCode::NOT_FOUND, detail }) if detail == "URL not found." => {
                return Err(SearchError::NotFound { what, value: value.to_owned() });
            }
            Err(Failure::Refused { status, detail }) => return Err(self.refused(status, detail)),
            Err(Failure::Error(error)) => return Err(error),
        };
        let WireDocument { doc_id, url, title, text } =
            WireDocument::decode(&body.clean_text).map_err(|reason| self.protocol(reason))?;
        Ok(Page { doc_id, url, title, text, provenance: self.provenance_of(&headers) })
    }

    fn name(&self) -> String {
        format!("deepresearchgym:{}", self.options.base_url)
    }
}

/// Why there is no body.
enum Failure {
    Refused { status: StatusCode, detail: String },
    Error(SearchError),
}

fn endpoint(base: &str, name: &str) -> Result<Url, ClientError> {
    let wrong = |reason: String| ClientError::Url { url: base.to_owned(), reason };
    let mut url = Url::parse(base).map_err(|error| wrong(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(format!("its scheme is {:?}", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(ClientError::Url {
            url: "(hidden)".to_owned(),
            reason: "it holds credentials or a query; put a key into an environment variable".to_owned(),
        });
    }
    let path = format!("{}/{name}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
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
        let secret = url("https://user:hunter2@host").unwrap_err().to_string();
        assert!(!secret.contains("hunter2"), "{secret}");
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

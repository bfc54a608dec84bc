//! The search sandbox over HTTP, in DeepResearchGym's format.
//!
//! | request | answer |
//! |---|---|
//! | `GET /search?query=…&k=10` | `{"results": [base64…], "distances": null, "outlinks": null}` |
//! | `GET /fetch?url=…` (or `doc_id=…`, our extension) | `{"clean_text": base64}`, or 404 `{"detail": "URL not found."}` |
//! | `GET /fetch/health` | `{"status", "service", "url_mappings_loaded"}` |
//! | `GET /health` | `{"status": "healthy"}` |
//!
//! The first index answers there; every index also answers under `/NAME/search`, `/NAME/fetch` and so on. Every
//! response carries the hash of its index in the header `x-drgym-index`. Errors are `{"detail": …}`: 400 for a faulty
//! request, 404, 429 with `Retry-After` when the request's turn did not come within the time limit, 500 for a fault of
//! ours, 504 when its turn came but not its answer; no body tells anything about this machine.
//!
//! Parameters of `/search`: `query` (needed, not empty), `k` (1 to 1000), `with_distance` (adds the inner products),
//! `with_outlink` (adds an empty list: our corpora keep no links). Accepted for the sake of clients and without
//! effect on an exact index in one piece: `complexity` (an exact search has no search list), `shard_ids`,
//! `num_of_shards` and `cw22_a` (there is one shard), `rerank` (there is no re-ranker), `original_query` and
//! `iteration` (tracking). A document's `text` is the passage that matched; `/fetch` gives the whole.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tower_http::catch_panic::CatchPanicLayer;

use crate::backend::{PageRequest, SearchError};
use crate::document::Document;
use crate::local::{FoundDocument, LocalBackend};
use crate::wire::{ErrorBody, FetchBody, INDEX_HEADER, SearchBody, WireDocument};

/// The most hits that one request may ask for.
pub const MAX_K: usize = 1000;

/// What to serve.
pub struct ServeOptions {
    /// Where to listen; port 0 takes a free one.
    pub addr: SocketAddr,
    /// Name and backend; the first one also answers without its name.
    pub indexes: Vec<(String, LocalBackend)>,
    /// Longest time for one answer, waiting for its turn included.
    pub timeout: Duration,
    /// Longest time for the head of a request to come, counted from the answer before it or from the opening of the
    /// connection, which is then closed: clients that stop half way must not use up the connections of the system.
    pub idle_timeout: Duration,
    /// Searches and fetches of each index that are computed at the same time; further ones wait their turn, in the
    /// order in which they came.
    pub concurrency: usize,
}

/// Why the server cannot start or has stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There is nothing to serve.
    #[error("no index to serve")]
    NoIndex,
    /// A name cannot be part of a path, is taken, or hides a route.
    #[error("{name:?} cannot name an index: {reason}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The server broke down.
    #[error("the server stopped: {0}")]
    Stopped(String),
}

/// A running server. Dropping it stops the server without waiting.
pub struct ServerHandle {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
}

impl ServerHandle {
    /// The address that is listened on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://ADDR`, the base address for clients.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Takes no more requests, answers those that have begun, and ends; at the latest after the time limit of an answer,
    /// since a client that does not read its answer would otherwise keep the server for ever.
    pub async fn shutdown(mut self) -> Result<(), ServeError> {
        self.stop = None;
        self.finished().await
    }

    /// Runs until `signal` comes, then ends as [`shutdown`](Self::shutdown) does.
    pub async fn run_until(mut self, signal: impl Future<Output = ()>) -> Result<(), ServeError> {
        tokio::pin!(signal);
        tokio::select! {
            () = &mut signal => self.shutdown().await,
            ended = &mut self.task => stopped(ended),
        }
    }

    async fn finished(&mut self) -> Result<(), ServeError> {
        stopped((&mut self.task).await)
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn stopped(ended: Result<std::io::Result<()>, tokio::task::JoinError>) -> Result<(), ServeError> {
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(ServeError::Stopped(error.to_string())),
        Err(error) => Err(ServeError::Stopped(error.to_string())),
    }
}

/// Starts to listen; returns when the address is bound.
pub async fn serve(options: ServeOptions) -> Result<ServerHandle, ServeError> {
    let router = router(&options)?;
    let listen = |source| ServeError::Listen { addr: options.addr, source };
    let listener = TcpListener::bind(options.addr).await.map_err(listen)?;
    let addr = listener.local_addr().map_err(listen)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let (idle, grace) = (options.idle_timeout, options.timeout);
    let task = tokio::spawn(accept(listener, router, idle, grace, stopped));
    Ok(ServerHandle { addr, stop: Some(stop), task })
}

/// Accepts connections until `stopped` is resolved or its sender is gone; then the open ones have `grace` to finish.
async fn accept(
    listener: TcpListener,
    router: Router,
    idle: Duration,
    grace: Duration,
    stopped: oneshot::Receiver<()>,
) -> std::io::Result<()> {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(idle);
    let open = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    tokio::pin!(stopped);
    loop {
        let stream = tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, open = connections.len(), "no connection was accepted");
                    // Too many open files, most likely: they become fewer when clients go.
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    continue;
                }
            },
        };
        while connections.try_join_next().is_some() {}
        // Answers are small and whole; waiting to fill a packet only delays them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection was gone before it was served");
            continue;
        }
        let service = TowerToHyperService::new(router.clone());
        let connection = open.watch(http.serve_connection(TokioIo::new(stream), service));
        connections.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(grace, open.shutdown()).await.is_err() {
        tracing::warn!("connections were closed before their answers were read");
    }
    Ok(())
}

struct Served {
    backend: LocalBackend,
    hash: HeaderValue,
    timeout: Duration,
    permits: Arc<Semaphore>,
}

impl Served {
    /// Does the work on a thread that may block, once it is its turn.
    ///
    /// The permit goes with the work and not with the request: work cannot be stopped, so it counts until it ends, also
    /// where the client has gone or the time is up. A client that goes while it waits gives up its turn.
    async fn answer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&LocalBackend) -> Result<T, SearchError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (backend, permits) = (self.backend.clone(), Arc::clone(&self.permits));
        let mut begun = false;
        let answer = async {
            let permit = permits.acquire_owned().await;
            begun = true;
            tokio::task::spawn_blocking(move || {
                let result = work(&backend);
                drop(permit);
                result
            })
            .await
        };
        let answered = tokio::time::timeout(self.timeout, answer).await;
        match answered {
            Ok(Ok(result)) => result.map_err(refusal),
            Ok(Err(error)) => {
                Err(refusal(SearchError::Internal(format!("the work was not completed: {error}"))))
            }
            Err(_) if begun => Err(Refusal {
                status: StatusCode::GATEWAY_TIMEOUT,
                detail: "The search took too long.".to_owned(),
            }),
            Err(_) => Err(Refusal {
                status: StatusCode::TOO_MANY_REQUESTS,
                detail: "Too many requests are being answered.".to_owned(),
            }),
        }
    }
}

type Shared = Arc<Served>;

fn router(options: &ServeOptions) -> Result<Router, ServeError> {
    let mut names = Vec::new();
    let mut router = Router::new();
    let mut default = None;
    for (name, backend) in &options.indexes {
        let bad = |reason| Err(ServeError::Name { name: name.clone(), reason });
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)) {
            return bad("expected letters, digits, hyphens and underscores");
        }
        if ["search", "fetch", "health"].contains(&name.as_str()) {
            return bad("it would hide a route of the default index");
        }
        if names.contains(&name) {
            return bad("another index has it");
        }
        names.push(name);
        let Ok(hash) = HeaderValue::from_str(&backend.info().hash) else {
            return bad("its index has a malformed hash");
        };
        let permits = Arc::new(Semaphore::new(options.concurrency.clamp(1, Semaphore::MAX_PERMITS)));
        let served = Arc::new(Served { backend: backend.clone(), hash, timeout: options.timeout, permits });
        router = router.nest(&format!("/{name}"), routes(&served));
        default.get_or_insert(served);
    }
    let default = default.ok_or(ServeError::NoIndex)?;
    let answer_for_all = middleware::from_fn_with_state(Arc::clone(&default), name_index);
    Ok(router.merge(routes(&default)).fallback(no_route).layer(answer_for_all))
}

fn routes(served: &Shared) -> Router {
    Router::new()
        .route("/search", get(search))
        .route("/fetch", get(fetch))
        // Health is answered however busy the index is: it waits for no permit.
        .route("/fetch/health", get(fetch_health))
        .route("/health", get(health))
        .method_not_allowed_fallback(async || detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"))
        .layer(CatchPanicLayer::custom(|_| detail(StatusCode::INTERNAL_SERVER_ERROR, INTERNAL)))
        .layer(middleware::from_fn_with_state(Arc::clone(served), name_index))
        .with_state(Arc::clone(served))
}

const INTERNAL: &str = "Internal server error.";

/// Names the index on every response.
async fn name_index(State(served): State<Shared>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().entry(INDEX_HEADER).or_insert_with(|| served.hash.clone());
    response
}

async fn no_route() -> Response {
    detail(StatusCode::NOT_FOUND, "Not Found")
}

type Parameters = Result<Query<HashMap<String, String>>, axum::extract::rejection::QueryRejection>;

async fn search(State(served): State<Shared>, parameters: Parameters) -> Result<Response, Refusal> {
    let parameters = Checked::new(parameters)?;
    let query = parameters.get("query").filter(|query| !query.trim().is_empty());
    let Some(query) = query.map(str::to_owned) else {
        return Err(bad_request("The parameter 'query' is missing or empty."));
    };
    let k = parameters.number("k")?.unwrap_or(10);
    if !(1..=MAX_K).contains(&k) {
        return Err(bad_request(&format!("'k' is {k}, expected 1 to {MAX_K}.")));
    }
    let with_distance = parameters.flag("with_distance")?;
    let with_outlink = parameters.flag("with_outlink")?;
    // Without effect here, but nonsense in them is told all the same.
    for name in ["cw22_a", "rerank"] {
        parameters.flag(name)?;
    }
    for name in ["complexity", "num_of_shards"] {
        parameters.number(name)?;
    }

    let found = served.answer(move |backend| backend.search_blocking(&query, k)).await?;
    let distances = with_distance.then(|| found.iter().filter_map(|found| found.hit.score).collect());
    let results = found
        .into_iter()
        .map(|FoundDocument { hit, document }| {
            let wire = WireDocument { doc_id: hit.doc_id, url: hit.url, title: hit.title, text: hit.text };
            wire.encode(&document.extra)
        })
        .collect();
    Ok(Json(SearchBody { results, distances, outlinks: with_outlink.then(Vec::new) }).into_response())
}

async fn fetch(State(served): State<Shared>, parameters: Parameters) -> Result<Response, Refusal> {
    let parameters = Checked::new(parameters)?;
    parameters.flag("with_outlink")?;
    let request = match (parameters.get("url"), parameters.get("doc_id")) {
        (Some(url), None) => PageRequest::Url(url.to_owned()),
        (None, Some(doc_id)) => PageRequest::DocId(doc_id.to_owned()),
        _ => return Err(bad_request("Expected exactly one of the parameters 'url' and 'doc_id'.")),
    };
    let Document { doc_id, url, title, text, extra } =
        served.answer(move |backend| backend.fetch_blocking(&request)).await?;
    let clean_text = WireDocument { doc_id, url, title, text }.encode(&extra);
    Ok(Json(FetchBody { clean_text, outlink: None }).into_response())
}

async fn health() -> Response {
    Json(json!({"status": "healthy"})).into_response()
}

async fn fetch_health(State(served): State<Shared>) -> Response {
    let count = served.backend.document_count();
    Json(json!({"status": "healthy", "service": "fetch", "url_mappings_loaded": count})).into_response()
}

/// Query parameters, whose faults are answered in the form of all other errors.
struct Checked(HashMap<String, String>);

impl Checked {
    fn new(parameters: Parameters) -> Result<Self, Refusal> {
        match parameters {
            Ok(Query(parameters)) => Ok(Self(parameters)),
            Err(_) => Err(bad_request("The query string cannot be decoded.")),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Result<Option<usize>, Refusal> {
        let Some(value) = self.get(name).filter(|value| !value.is_empty()) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| bad_request(&format!("'{name}' is not a whole number.")))
    }

    fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.get(name).unwrap_or_default().to_ascii_lowercase().as_str() {
            "" | "false" | "0" | "no" | "off" => Ok(false),
            "true" | "1" | "yes" | "on" => Ok(true),
            _ => Err(bad_request(&format!("'{name}' is neither true nor false."))),
        }
    }
}

/// An error of the API: a status and what the caller is told.
struct Refusal {
    status: StatusCode,
    detail: String,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(ErrorBody { detail: self.detail })).into_response();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

fn bad_request(reason: &str) -> Refusal {
    Refusal { status: StatusCode::BAD_REQUEST, detail: reason.to_owned() }
}

fn refusal(error: SearchError) -> Refusal {
    let (status, detail) = match error {
        SearchError::NotFound { .. } => (StatusCode::NOT_FOUND, "URL not found.".to_owned()),
        SearchError::BadRequest(reason) => (StatusCode::BAD_REQUEST, reason),
        other => {
            tracing::error!(error = %other, "search failed");
            (StatusCode::INTERNAL_SERVER_ERROR, INTERNAL.to_owned())
        }
    };
    Refusal { status, detail }
}

fn detail(status: StatusCode, detail: &str) -> Response {
    Refusal { status, detail: detail.to_owned() }.into_response()
}

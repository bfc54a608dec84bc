//! An OpenAI-compatible server in this process that answers from a script and keeps what it was asked.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use drgym_judge::ModelConfig;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// What the server does with one request.
#[derive(Clone)]
pub enum Act {
    /// A completion with this text.
    Say(String),
    /// The same, cut at the token limit.
    Cut(String),
    /// This status, with this body.
    Status(u16, String),
    /// This status, with a `Retry-After`.
    Busy(u16, &'static str),
    /// 200 with this body as it is.
    Raw(Vec<u8>),
    /// Never an answer.
    Hang,
    /// A completion once the gate lets the request through.
    Gate,
}

pub fn say(text: &str) -> Act {
    Act::Say(text.into())
}

pub struct Asked {
    pub body: Value,
    pub authorization: Option<String>,
}

pub struct FakeServer {
    pub base_url: String,
    state: Arc<Script>,
}

struct Script {
    acts: Mutex<VecDeque<Act>>,
    last: Act,
    asked: Mutex<Vec<Asked>>,
    inside: AtomicUsize,
    most_inside: AtomicUsize,
    gate: Semaphore,
}

impl FakeServer {
    /// Starts a server that goes through `acts` and then repeats the last one.
    pub async fn start(acts: Vec<Act>) -> Self {
        let state = Arc::new(Script {
            last: acts.last().unwrap().clone(),
            acts: Mutex::new(acts.into()),
            asked: Mutex::default(),
            inside: AtomicUsize::new(0),
            most_inside: AtomicUsize::new(0),
            gate: Semaphore::new(0),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let router = Router::new().route("/v1/chat/completions", post(answer)).with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { base_url, state }
    }

    /// A client configuration for this server, quick to retry.
    pub fn config(&self) -> ModelConfig {
        ModelConfig {
            base_url: self.base_url.clone(),
            model: "fake-judge".into(),
            api_key_env: None,
            timeout_seconds: 30,
            concurrency: 4,
            max_retries: 2,
            json_schema: false,
        }
    }

    pub fn asked(&self) -> std::sync::MutexGuard<'_, Vec<Asked>> {
        self.state.asked.lock().unwrap()
    }

    /// How many requests stand before the gate.
    pub fn inside(&self) -> usize {
        self.state.inside.load(Ordering::SeqCst)
    }

    pub fn most_inside(&self) -> usize {
        self.state.most_inside.load(Ordering::SeqCst)
    }

    /// Lets `count` requests through the gate.
    pub fn open_gate(&self, count: usize) {
        self.state.gate.add_permits(count);
    }
}

fn completion(text: &str, finish: &str) -> Response {
    axum::Json(json!({
        "id": "x",
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }))
    .into_response()
}

async fn answer(
    State(script): State<Arc<Script>>,
    headers: HeaderMap,
    axum::Json(body): axum::Json<Value>,
) -> Response {
    let authorization = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    script.asked.lock().unwrap().push(Asked { body, authorization });
    let act = script.acts.lock().unwrap().pop_front().unwrap_or_else(|| script.last.clone());
    match act {
        Act::Say(text) => completion(&text, "stop"),
        Act::Cut(text) => completion(&text, "length"),
        Act::Status(status, body) => (StatusCode::from_u16(status).unwrap(), body).into_response(),
        Act::Busy(status, wait) => {
            (StatusCode::from_u16(status).unwrap(), [("retry-after", wait)], "busy").into_response()
        }
        Act::Raw(body) => body.into_response(),
        Act::Hang => std::future::pending().await,
        Act::Gate => {
            let inside = script.inside.fetch_add(1, Ordering::SeqCst) + 1;
            script.most_inside.fetch_max(inside, Ordering::SeqCst);
            script.gate.acquire().await.unwrap().forget();
            script.inside.fetch_sub(1, Ordering::SeqCst);
            completion("ok", "stop")
        }
    }
}

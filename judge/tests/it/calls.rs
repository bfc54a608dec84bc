//! Observing, caching, recording and replaying calls.

use std::io::Write as _;
use std::sync::Arc;

use drgym_judge::call_log::ReplayError;
use drgym_judge::{
    Call, CallLog, CallObserver, CallRecord, ChatClient, ChatError, ChatMessage, ChatRequest, Ledger,
    LedgerTotals, MemoryCache, ObservedClient, ReplayClient,
};

use crate::client::quick;
use crate::fake_server::{Act, FakeServer, say};

fn request(text: &str, temperature: f64) -> ChatRequest {
    ChatRequest {
        messages: vec![ChatMessage::user(text)],
        temperature,
        max_tokens: 9,
        seed: None,
        response_schema: None,
    }
}

#[tokio::test]
async fn a_ledger_counts_calls_failures_and_tokens() {
    let server = FakeServer::start(vec![say("a"), Act::Status(400, String::new()), say("b")]).await;
    let ledger = Arc::new(Ledger::default());
    let client = ObservedClient::new(Arc::new(quick(&server.config())))
        .with_cache(Arc::new(MemoryCache::default()))
        .with_observer(Arc::clone(&ledger) as Arc<dyn CallObserver>);
    client.complete(&request("x", 0.0)).await.unwrap();
    client.complete(&request("y", 0.0)).await.unwrap_err();
    client.complete(&request("y", 0.0)).await.unwrap(); // a failure is not cached
    assert_eq!(client.complete(&request("x", 0.0)).await.unwrap().text, "a");
    let expected = LedgerTotals { calls: 3, failed: 1, cached: 1, prompt_tokens: 22, completion_tokens: 14 };
    assert_eq!(ledger.totals(), expected);
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn samples_are_never_cached() {
    let server = FakeServer::start(vec![say("a"), say("b")]).await;
    let client =
        ObservedClient::new(Arc::new(quick(&server.config()))).with_cache(Arc::new(MemoryCache::default()));
    assert_eq!(client.complete(&request("x", 0.7)).await.unwrap().text, "a");
    assert_eq!(client.complete(&request("x", 0.7)).await.unwrap().text, "b");
}

#[tokio::test]
async fn a_log_plays_back_what_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("calls.jsonl");
    let server = FakeServer::start(vec![say("a"), say("b"), say("c"), Act::Status(400, String::new())]).await;
    let record = async |requests: Vec<ChatRequest>| {
        let log = Arc::new(CallLog::open(&path).unwrap());
        let client = ObservedClient::new(Arc::new(quick(&server.config()))).with_observer(log);
        for request in requests {
            let _ = client.complete(&request).await;
        }
    };
    record(vec![request("x", 0.7), request("x", 0.7)]).await;
    // A crash leaves half a line; whoever goes on removes it.
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"hash\": \"ab").unwrap();
    ReplayClient::open(&path, "fake-judge", false).unwrap();
    record(vec![request("z", 0.0), request("failing", 0.0)]).await;

    let text = std::fs::read_to_string(&path).unwrap();
    let records: Vec<CallRecord> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 4);
    assert!(records[3].reply.is_none() && records[3].error.as_deref().unwrap().contains("400"));

    let replay = ReplayClient::open(&path, "fake-judge", false).unwrap();
    let said = async |request: ChatRequest| replay.complete(&request).await.map(|reply| reply.text);
    assert_eq!(said(request("x", 0.7)).await.as_deref(), Ok("a"));
    assert_eq!(said(request("x", 0.7)).await.as_deref(), Ok("b"));
    assert!(matches!(said(request("x", 0.7)).await, Err(ChatError::NotRecorded { .. })));
    assert_eq!(said(request("z", 0.0)).await.as_deref(), Ok("c"));
    assert_eq!(said(request("z", 0.0)).await.as_deref(), Ok("c"));
    assert!(matches!(said(request("failing", 0.0)).await, Err(ChatError::NotRecorded { .. })));
    assert!(matches!(said(request("new", 0.0)).await, Err(ChatError::NotRecorded { .. })));

    let other = ReplayClient::open(&path, "another-model", false).unwrap();
    assert!(matches!(other.complete(&request("z", 0.0)).await, Err(ChatError::NotRecorded { .. })));
}

#[test]
fn a_broken_line_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("calls.jsonl");
    std::fs::write(&path, "{}\n{}\n").unwrap();
    assert!(matches!(ReplayClient::open(&path, "m", false), Err(ReplayError::Malformed { line: 1, .. })));
    assert!(matches!(
        ReplayClient::open(&folder.path().join("none"), "m", false),
        Err(ReplayError::Io { .. })
    ));
}

#[tokio::test]
async fn a_call_that_cannot_be_recorded_fails() {
    struct Full;
    impl CallObserver for Full {
        fn observe(&self, _: &Call<'_>) -> std::io::Result<()> {
            Err(std::io::Error::other("disk full"))
        }
    }
    let server = FakeServer::start(vec![say("a")]).await;
    let client = ObservedClient::new(Arc::new(quick(&server.config()))).with_observer(Arc::new(Full));
    let error = client.complete(&request("x", 0.0)).await.unwrap_err();
    assert!(
        matches!(&error, ChatError::Unrecorded { reason, .. } if reason.contains("disk full")),
        "{error}"
    );
}

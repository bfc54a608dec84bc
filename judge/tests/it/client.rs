//! The chat client against a server that behaves well, badly, slowly and not at all.

use std::sync::Arc;
use std::time::Duration;

use drgym_judge::{
    ApiKey, ChatClient, ChatError, ChatMessage, ChatRequest, ModelConfig, OpenAiClient, RetryWaits, Usage,
};
use serde_json::json;

use crate::fake_server::{Act, FakeServer, say};

pub fn quick(config: &ModelConfig) -> OpenAiClient {
    quick_with_key(config, None)
}

fn quick_with_key(config: &ModelConfig, key: Option<ApiKey>) -> OpenAiClient {
    let waits = RetryWaits { first: Duration::from_millis(1), longest: Duration::from_secs(5), seed: 1 };
    OpenAiClient::with_key(config, key).unwrap().with_waits(waits)
}

fn request() -> ChatRequest {
    ChatRequest {
        messages: vec![ChatMessage::system("s"), ChatMessage::user("u")],
        temperature: 0.0,
        max_tokens: 9,
        seed: Some(3),
        response_schema: Some(json!({"type": "object"})),
    }
}

#[tokio::test]
async fn a_request_and_its_reply() {
    let server = FakeServer::start(vec![say("hello")]).await;
    let client = quick_with_key(&server.config(), Some(ApiKey::new("sk-test")));
    let reply = client.complete(&request()).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.truncated), ("hello", false));
    assert_eq!(reply.usage, Usage { prompt_tokens: 11, completion_tokens: 7 });
    let asked = server.asked();
    assert_eq!(asked[0].authorization.as_deref(), Some("Bearer sk-test"));
    assert_eq!(
        asked[0].body,
        json!({
            "model": "fake-judge",
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
            "temperature": 0.0,
            "max_tokens": 9,
            "seed": 3,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": true, "schema": {"type": "object"}},
            },
        })
    );
}

#[tokio::test]
async fn without_a_key_none_is_sent() {
    let server = FakeServer::start(vec![say("hello")]).await;
    quick(&server.config()).complete(&request()).await.unwrap();
    assert_eq!(server.asked()[0].authorization, None);
}

#[tokio::test]
async fn a_busy_server_is_asked_again_when_it_says() {
    let server = FakeServer::start(vec![Act::Busy(429, "0"), Act::Busy(503, "0.001"), say("at last")]).await;
    assert_eq!(quick(&server.config()).complete(&request()).await.unwrap().text, "at last");
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn a_retry_after_is_honoured_rather_than_the_own_wait() {
    let server = FakeServer::start(vec![Act::Busy(429, "0"), say("at last")]).await;
    // The own wait would outlast any test: only by heeding the server does this end.
    let waits = RetryWaits { first: Duration::from_hours(1), longest: Duration::from_hours(2), seed: 1 };
    let client = OpenAiClient::with_key(&server.config(), None).unwrap().with_waits(waits);
    assert_eq!(client.complete(&request()).await.unwrap().text, "at last");
}

#[tokio::test]
async fn a_server_that_asks_for_too_long_a_wait_is_given_up() {
    let server = FakeServer::start(vec![Act::Busy(429, "86400")]).await;
    let error = quick(&server.config()).complete(&request()).await.unwrap_err();
    assert!(
        matches!(&error, ChatError::Unavailable { attempts: 1, reason, .. } if reason.contains("86400")),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_always_fails_is_unavailable() {
    let server =
        FakeServer::start(vec![Act::Status(500, "{\"error\":{\"message\":\"out of order\"}}".into())]).await;
    let error = quick(&server.config()).complete(&request()).await.unwrap_err();
    assert!(
        matches!(&error, ChatError::Unavailable { attempts: 3, reason, .. } if reason.contains("out of order")),
        "{error}"
    );
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn a_server_that_hangs_is_unavailable() {
    let server = FakeServer::start(vec![Act::Hang]).await;
    let config = ModelConfig { timeout_seconds: 1, max_retries: 1, ..server.config() };
    let error = quick(&config).complete(&request()).await.unwrap_err();
    assert!(
        matches!(&error, ChatError::Unavailable { attempts: 2, reason, .. } if reason.contains("no reply within 1 s")),
        "{error}"
    );
}

#[tokio::test]
async fn nobody_listening_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let server = FakeServer::start(vec![say("x")]).await;
    let config = ModelConfig { base_url: format!("http://{address}/v1"), ..server.config() };
    let error = quick(&config).complete(&request()).await.unwrap_err();
    assert!(matches!(error, ChatError::Unavailable { attempts: 3, .. }), "{error}");
}

#[tokio::test]
async fn refusals_are_final() {
    for (status, expected) in [(400, "(400)"), (404, "fake-judge"), (422, "(422)"), (302, "(302)")] {
        let server = FakeServer::start(vec![Act::Status(status, "{\"error\":\"no\"}".into())]).await;
        let error = quick(&server.config()).complete(&request()).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(
            matches!(
                (status, &error),
                (404, ChatError::NotFound { .. }) | (400 | 422 | 302, ChatError::Refused { .. })
            ),
            "{error:?}"
        );
        assert_eq!(server.asked().len(), 1);
    }
}

#[tokio::test]
async fn a_refused_key_names_its_variable_and_is_never_shown() {
    let words = "{\"error\":{\"message\":\"Incorrect API key provided: sk-test-12345\"}}";
    for status in [401, 403, 400, 500] {
        let server = FakeServer::start(vec![Act::Status(status, words.into())]).await;
        let config = ModelConfig { api_key_env: Some("JUDGE_KEY".into()), max_retries: 0, ..server.config() };
        let client = quick_with_key(&config, Some(ApiKey::new("sk-test-12345")));
        let error = client.complete(&request()).await.unwrap_err();
        if matches!(status, 401 | 403) {
            assert!(matches!(error, ChatError::Unauthorized { .. }), "{error:?}");
            assert!(error.to_string().contains("JUDGE_KEY"), "{error}");
        }
        for shown in [format!("{error} {error:?}"), format!("{client:?} {client:#?}")] {
            assert!(!shown.contains("12345"), "{shown}");
        }
        assert_eq!(server.asked().len(), 1);
    }
}

#[tokio::test]
async fn a_malformed_reply_is_an_error() {
    let cases: [(&str, &str); 4] = [
        ("half", "{\"choices\": [{\"mess"),
        ("no choices", "{\"choices\": []}"),
        ("no content", "{\"choices\": [{\"message\": {\"content\": null}}]}"),
        ("a refusal", "{\"choices\": [{\"message\": {\"content\": null, \"refusal\": \"I will not\"}}]}"),
    ];
    for (name, body) in cases {
        let server = FakeServer::start(vec![Act::Raw(body.into())]).await;
        let error = quick(&server.config()).complete(&request()).await.unwrap_err();
        assert!(matches!(error, ChatError::Protocol { .. }), "{name}: {error:?}");
    }
}

#[tokio::test]
async fn a_huge_reply_is_refused() {
    let server = FakeServer::start(vec![Act::Raw(vec![b' '; (4 << 20) + 1])]).await;
    let error = quick(&server.config()).complete(&request()).await.unwrap_err();
    assert!(matches!(error, ChatError::TooLarge { limit: 4_194_304, .. }), "{error:?}");
}

#[tokio::test]
async fn no_more_requests_than_allowed_are_under_way() {
    let server = FakeServer::start(vec![Act::Gate]).await;
    let config = ModelConfig { concurrency: 3, ..server.config() };
    let client = Arc::new(quick(&config));
    let calls: Vec<_> = (0..12)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.complete(&request()).await })
        })
        .collect();
    // Three come in and stay before the gate; only then is it opened.
    while server.inside() < 3 {
        tokio::task::yield_now().await;
    }
    server.open_gate(12);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().text, "ok");
    }
    assert_eq!(server.most_inside(), 3);
}

#[test]
fn an_unset_key_is_named() {
    let config = ModelConfig {
        base_url: "https://judge.example/v1".into(),
        model: "m".into(),
        api_key_env: Some("DRGYM_TEST_KEY_THAT_NOBODY_SETS".into()),
        timeout_seconds: 1,
        concurrency: 1,
        max_retries: 0,
        json_schema: true,
    };
    let error = OpenAiClient::new(&config).unwrap_err();
    assert!(matches!(error, ChatError::MissingKey { .. }));
    assert!(error.to_string().contains("DRGYM_TEST_KEY_THAT_NOBODY_SETS"));
    let error = OpenAiClient::with_key(&config, Some(ApiKey::new("sk-\u{7}bell"))).unwrap_err();
    assert!(matches!(error, ChatError::UnusableKey { .. }));
    assert!(!format!("{error} {error:?}").contains("bell"));
}

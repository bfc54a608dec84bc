//! Typed answers from untidy replies.

use std::sync::Arc;

use drgym_judge::{ChatMessage, ModelConfig, StructuredCall, StructuredError, StructuredSettings};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::client::quick;
use crate::fake_server::{Act, FakeServer, say};

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Count {
    /// How many.
    count: u32,
}

async fn ask(server: &FakeServer, json_schema: bool) -> Result<Count, StructuredError> {
    let client = Arc::new(quick(&ModelConfig { json_schema, ..server.config() }));
    StructuredCall::new(client, StructuredSettings::default()).ask(vec![ChatMessage::user("How many?")]).await
}

#[tokio::test]
async fn untidy_replies_are_read() {
    for reply in [
        "{\"count\": 4}",
        "```json\n{\"count\": 4}\n```",
        "I count four: {\"count\": 4}. Right?",
        "{'count': 4,}",
    ] {
        let server = FakeServer::start(vec![say(reply)]).await;
        assert_eq!(ask(&server, false).await.unwrap(), Count { count: 4 }, "{reply}");
        assert_eq!(server.asked().len(), 1);
    }
}

#[tokio::test]
async fn the_schema_goes_where_the_server_takes_it() {
    let server = FakeServer::start(vec![say("{\"count\": 4}")]).await;
    ask(&server, true).await.unwrap();
    ask(&server, false).await.unwrap();
    let asked = server.asked();
    let schema = &asked[0].body["response_format"]["json_schema"]["schema"];
    assert_eq!(schema["required"], json!(["count"]));
    assert_eq!(schema.get("$schema"), None);
    assert_eq!(asked[0].body["messages"][0]["content"], "How many?");
    assert_eq!(asked[1].body.get("response_format"), None);
    let prompt = asked[1].body["messages"][0]["content"].as_str().unwrap();
    assert!(prompt.starts_with("How many?") && prompt.contains("\"required\":[\"count\"]"), "{prompt}");
}

#[tokio::test]
async fn an_unusable_reply_is_answered_with_what_is_wrong() {
    let server =
        FakeServer::start(vec![say("{\"count\": 4"), say("{\"count\": \"four\"}"), say("{\"count\": 4}")])
            .await;
    assert_eq!(ask(&server, false).await.unwrap(), Count { count: 4 });
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    let messages = asked[2].body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    assert!(messages[2]["content"].as_str().unwrap().contains("does not end"));
    assert!(messages[4]["content"].as_str().unwrap().contains("u32"));
}

#[tokio::test]
async fn unusable_for_good_is_an_error() {
    for act in [say("{\"count\": 4"), say("four"), say(""), Act::Cut("{\"count\": 4}".into())] {
        let server = FakeServer::start(vec![act]).await;
        let error = ask(&server, false).await.unwrap_err();
        assert!(matches!(error, StructuredError::Unparsable { attempts: 3, .. }), "{error:?}");
        assert_eq!(server.asked().len(), 3);
    }
}

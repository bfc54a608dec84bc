//! Configurations, good and bad.

use std::sync::Arc;

use drgym_judge::{
    AnswerJudge, ChatClient, JudgeConfig, JudgeConfigError, JudgeKind, JudgeRequest, Ledger, ObservedClient,
    OpenAiClient, build, build_with,
};

use crate::fake_server::{FakeServer, say};

const MODEL: &str = "kind = \"model\"\n[model]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n";

fn parse(text: &str) -> JudgeConfig {
    toml::from_str(text).unwrap()
}

#[test]
fn nothing_said_means_rules() {
    assert_eq!(parse(""), parse("kind = \"rules\""));
    assert_eq!(build(&parse("")).unwrap().name(), "rules");
}

#[test]
fn a_model_has_defaults() {
    let config = parse(MODEL);
    assert_eq!(config.kind, JudgeKind::Model);
    assert_eq!(config.validate(), Vec::<String>::new());
    let model = config.model.clone().unwrap();
    assert_eq!(
        (model.timeout_seconds, model.concurrency, model.max_retries, model.json_schema),
        (60, 8, 5, false)
    );
    assert_eq!(build(&config).unwrap().name(), "m");
}

#[test]
fn unknown_fields_are_refused() {
    for text in ["kind = \"rules\"\ntemperature = 1", &format!("{MODEL}modle = \"x\""), "kind = \"regex\""] {
        assert!(toml::from_str::<JudgeConfig>(text).is_err(), "{text}");
    }
    let schema = schemars::schema_for!(JudgeConfig).to_value().to_string();
    assert!(schema.contains("\"additionalProperties\":false"));
}

#[test]
fn every_problem_is_reported_at_once_with_its_field() {
    let config = parse(
        "kind = \"model\"\n[model]\nbase_url = \"ftp://x/v1\"\nmodel = \"\"\napi_key_env = \"sk-pasted-key\"\n\
         timeout_seconds = 0\nconcurrency = 0",
    );
    let problems = config.validate();
    let fields: Vec<&str> = problems.iter().map(|problem| problem.split(':').next().unwrap()).collect();
    assert_eq!(
        fields,
        ["model.base_url", "model.model", "model.api_key_env", "model.timeout_seconds", "model.concurrency"]
    );
    assert!(!problems.join("\n").contains("pasted"));
    let Err(JudgeConfigError::Invalid { problems: reported }) = build(&config) else {
        panic!("must be refused")
    };
    assert_eq!(reported, problems);
    for (text, field) in [
        ("kind = \"model\"", "model"),
        (&*MODEL.replace("\"model\"\n", "\"rules\"\n"), "model"),
        (&*MODEL.replace("http://", "http://user:pass@"), "model.base_url"),
        (&*MODEL.replace("/v1", "/v1?key=1"), "model.base_url"),
        (&*MODEL.replace("/v1", "/v1#x"), "model.base_url"),
        (&*MODEL.replace("http://127.0.0.1:1", "not a url"), "model.base_url"),
    ] {
        let problems = parse(text).validate();
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        assert!(problems[0].starts_with(field), "{text}: {problems:?}");
    }
}

#[test]
fn what_may_be_a_secret_is_refused_and_never_repeated() {
    let with = |field: &str| parse(&format!("{MODEL}{field}"));
    for key in ["gsk_AbC123", "sk-s3cret", "s3cret", "_S3CRET", "3CRET", "KEY=S3CRET", "ÄPI_KEY", ""] {
        let config = with(&format!("api_key_env = \"{key}\""));
        let problems = config.validate();
        assert_eq!(problems.len(), 1, "{key}: {problems:?}");
        assert!(problems[0].starts_with("model.api_key_env"), "{problems:?}");
        // The client checks again, since it can be made without a judge's configuration.
        let client = OpenAiClient::new(&config.model.unwrap()).unwrap_err().to_string();
        for text in [&problems[0], &client] {
            assert!(key.is_empty() || !text.contains(key), "{text}");
        }
    }
    for variable in ["K", "OPENAI_API_KEY", "KEY_2"] {
        assert_eq!(with(&format!("api_key_env = \"{variable}\"")).validate(), Vec::<String>::new());
    }
    for address in [
        "https://u:s3cret@host:99999/v1",
        "https://s3cret@[::1/v1",
        "s3cret@host",
        "s3cret:u@host",
        "u:s3cret@host",
        "https://host/v1?key=s3cret",
        "https://host/v1#s3cret",
        "https://u:s3cret@host/v1",
    ] {
        let config = parse(&MODEL.replace("http://127.0.0.1:1/v1", address));
        let problems = config.validate();
        assert_eq!(problems.len(), 1, "{address}: {problems:?}");
        let client = OpenAiClient::new(&config.model.unwrap()).unwrap_err().to_string();
        for text in [&problems[0], &client] {
            assert!(text.contains("base_url") && !text.contains("s3cret"), "{text}");
        }
    }
}

#[test]
fn a_missing_key_is_reported_before_anything_is_asked() {
    let config = parse(&format!("{MODEL}api_key_env = \"DRGYM_TEST_KEY_THAT_NOBODY_SETS\""));
    let Err(error) = build(&config) else { panic!("must be refused") };
    assert!(error.to_string().contains("DRGYM_TEST_KEY_THAT_NOBODY_SETS"), "{error}");
}

#[tokio::test]
async fn a_configured_judge_judges_through_the_wrapped_client() {
    let server = FakeServer::start(vec![say("{\"rationale\": \"r\", \"judgement\": \"correct\"}")]).await;
    let config = JudgeConfig { kind: JudgeKind::Model, seed: 1, model: Some(server.config()) };
    let ledger = Arc::new(Ledger::default());
    let observer = Arc::clone(&ledger);
    let wrap = |client| Arc::new(ObservedClient::new(client).with_observer(observer)) as Arc<dyn ChatClient>;
    let judge: Arc<dyn AnswerJudge> = build_with(&config, wrap).unwrap();
    let request = JudgeRequest {
        question: "Which city?".into(),
        references: vec!["Paris".into()],
        answer: "Lutetia".into(),
    };
    assert!(judge.judge(&request).await.unwrap().correct);
    assert_eq!(ledger.totals().calls, 1);
}

//! The client against servers that misbehave, recordings, injected faults, and evaluation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drgym_search::backend::Page;
use drgym_search::evaluate::{EvaluateError, EvaluateOptions, Query, Unjudged, evaluate};
use drgym_search::{
    ClientOptions, DeepResearchGymBackend, FaultRates, Faulty, PageRequest, Provenance, Recorded,
    SearchBackend, SearchError, SearchHit, SearchResponse,
};
use serde_json::json;

use crate::support::backend;

/// Answers `/search` and `/fetch` with the given responses in turn, the last one again and again.
async fn scripted(responses: Vec<fn(&HeaderMap) -> Response>) -> (String, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let answer = move |headers: HeaderMap| {
        let turn = counter.fetch_add(1, Ordering::SeqCst).min(responses.len() - 1);
        let response = responses[turn](&headers);
        async move { response }
    };
    let router = Router::new().route("/search", get(answer.clone())).route("/fetch", get(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, count)
}

fn client(url: &str, retries: u32) -> DeepResearchGymBackend {
    let backoff = Duration::from_millis(1);
    let options = ClientOptions { retries, busy_retries: retries, backoff, ..ClientOptions::new(url) };
    DeepResearchGymBackend::new(options).unwrap()
}

fn ok(body: &serde_json::Value) -> Response {
    axum::Json(body).into_response()
}

fn one_hit() -> Response {
    ok(
        &json!({"results": [STANDARD.encode(r#"{"text": "t", "id": "i", "url": "u"}"#)], "distances": null, "outlinks": null}),
    )
}

#[tokio::test]
async fn both_dialects_of_documents_are_read() {
    let (url, _) = scripted(vec![|_| {
        let documents = [
            json!({"URL": "http://a/\n", "URL-hash": "h", "Language": "en", "ClueWeb22-ID": "clueweb22-en0000-00-00001", "Clean-Text": "clue"}),
            json!({"text": "fine", "id": "<urn:uuid:1>", "dump": "CC", "url": "http://b/", "token_count": 1}),
            json!({"text": "no id", "url": "http://c/"}),
            json!({"text": "again", "id": "<urn:uuid:1>", "url": "http://b/"}),
        ];
        let results: Vec<String> = documents.iter().map(|document| STANDARD.encode(document.to_string())).collect();
        ok(&json!({"results": results, "distances": [0.9, 0.8, 0.7, 0.6], "outlinks": []}))
    }])
    .await;
    let response = client(&url, 0).search("x", 10).await.unwrap();
    let hit = |doc_id: &str, url: &str, text: &str, score| SearchHit {
        doc_id: doc_id.to_owned(),
        url: url.to_owned(),
        title: String::new(),
        text: text.to_owned(),
        score: Some(score),
    };
    let expected = [
        hit("clueweb22-en0000-00-00001", "http://a/", "clue", 0.9),
        hit("<urn:uuid:1>", "http://b/", "fine", 0.8),
        hit("http://c/", "http://c/", "no id", 0.7),
    ];
    assert_eq!(response.hits, expected);
    assert!(
        matches!(response.provenance, Provenance::Live { engine, at } if engine == url && at > 1_700_000_000)
    );
}

#[tokio::test]
async fn an_overloaded_server_is_asked_again_as_it_wishes() {
    let (url, count) = scripted(vec![
        |_| (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")], "{}").into_response(),
        |_| (StatusCode::BAD_GATEWAY, "<html>").into_response(),
        |_| one_hit(),
    ])
    .await;
    assert_eq!(client(&url, 2).search("x", 1).await.unwrap().hits.len(), 1);
    assert_eq!(count.load(Ordering::SeqCst), 3);

    let (url, count) =
        scripted(vec![|_| (StatusCode::SERVICE_UNAVAILABLE, "{\"detail\": \"busy\"}").into_response()]).await;
    let error = client(&url, 1).search("x", 1).await.unwrap_err();
    assert!(
        matches!(error, SearchError::Unavailable { .. }) && error.to_string().contains("HTTP 503 busy"),
        "{error}"
    );
    assert!(!error.is_about_request());
    assert_eq!(count.load(Ordering::SeqCst), 2);

    // A broken server and a busy one have counts of their own.
    let (url, count) = scripted(vec![
        |_| (StatusCode::TOO_MANY_REQUESTS, "").into_response(),
        |_| (StatusCode::TOO_MANY_REQUESTS, "").into_response(),
        |_| StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    ])
    .await;
    let backoff = Duration::from_millis(1);
    let options = ClientOptions { retries: 1, busy_retries: 2, backoff, ..ClientOptions::new(&url) };
    let error = DeepResearchGymBackend::new(options).unwrap().search("x", 1).await.unwrap_err();
    assert!(error.to_string().contains("HTTP 500") && error.to_string().contains("4 attempts"), "{error}");
    assert_eq!(count.load(Ordering::SeqCst), 4);

    // A wait beyond all patience fails at once.
    let (url, count) =
        scripted(vec![|_| (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "3600")], "").into_response()])
            .await;
    assert!(matches!(client(&url, 5).search("x", 1).await, Err(SearchError::Unavailable { .. })));
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn refusals_and_nonsense_are_told_apart() {
    let (url, count) = scripted(vec![
        |_| (StatusCode::UNAUTHORIZED, "{\"detail\": \"Missing or invalid API Key\"}").into_response(),
        |_| (StatusCode::BAD_REQUEST, "{\"detail\": \"bad k\"}").into_response(),
        |_| ok(&json!({"results": ["%%%"], "distances": null, "outlinks": null})),
        |_| {
            ok(&json!({"results": [STANDARD.encode("{\"id\": \"x\"}")], "distances": null, "outlinks": null}))
        },
        |_| ok(&json!({"hits": []})),
        |_| ok(&json!({"results": [], "distances": [1.0], "outlinks": null})),
        |_| (StatusCode::NOT_FOUND, "{\"detail\": \"URL not found.\"}").into_response(),
        |_| (StatusCode::NOT_FOUND, "{\"detail\": \"Not Found\"}").into_response(),
    ])
    .await;
    let client = client(&url, 3);
    let mut errors = Vec::new();
    for _ in 0..6 {
        errors.push(client.search("x", 1).await.unwrap_err());
    }
    let page = PageRequest::Url("http://a/".to_owned());
    for _ in 0..2 {
        errors.push(client.fetch(&page).await.unwrap_err());
    }
    assert!(matches!(errors[0], SearchError::Unauthorized { status: 401, .. }), "{}", errors[0]);
    // A server that refuses everything must not count as the fault of whoever asks.
    assert!(
        matches!(&errors[1], SearchError::Refused { status: 400, reason, .. } if reason == "bad k"),
        "{}",
        errors[1]
    );
    assert!(!errors[1].is_about_request());
    for error in &errors[2..6] {
        assert!(matches!(error, SearchError::Protocol { .. }), "{error}");
    }
    assert!(matches!(errors[6], SearchError::NotFound { what: "url", .. }), "{}", errors[6]);
    // There is no such service: no fact about the document.
    assert!(matches!(errors[7], SearchError::Protocol { .. }), "{}", errors[7]);
    assert_eq!(count.load(Ordering::SeqCst), 8, "none of these is tried again");
}

#[tokio::test]
async fn a_key_is_sent_and_never_shown() {
    let (url, _) = scripted(vec![|headers| {
        // PATH is set everywhere; a test cannot set a variable without unsafe code.
        let told = headers.get("x-api-key").map(|key| key.to_str().unwrap_or_default().to_owned());
        if told == std::env::var("PATH").ok() { one_hit() } else { StatusCode::UNAUTHORIZED.into_response() }
    }])
    .await;
    let with = |variable: &str| ClientOptions {
        api_key_variable: Some(variable.to_owned()),
        retries: 0,
        ..ClientOptions::new(&url)
    };
    let client = DeepResearchGymBackend::new(with("PATH")).unwrap();
    assert_eq!(client.search("x", 1).await.unwrap().hits.len(), 1);
    let error = DeepResearchGymBackend::new(with("DRGYM_NO_SUCH_VARIABLE")).err().unwrap();
    assert!(
        error.to_string().contains("DRGYM_NO_SUCH_VARIABLE, which should hold the API key, is not set"),
        "{error}"
    );
    let keyless =
        DeepResearchGymBackend::new(ClientOptions { retries: 0, ..ClientOptions::new(&url) }).unwrap();
    assert!(matches!(keyless.search("x", 1).await, Err(SearchError::Unauthorized { .. })));
}

/// Servers repeat what they are sent, and what they say ends in logs and traces.
#[tokio::test]
async fn a_key_that_the_server_repeats_is_not_passed_on() {
    fn told(headers: &HeaderMap) -> String {
        headers["x-api-key"].to_str().unwrap().to_owned()
    }
    let (url, count) = scripted(vec![
        |headers| refusal(StatusCode::BAD_REQUEST, &told(headers)),
        |headers| refusal(StatusCode::UNPROCESSABLE_ENTITY, &told(headers)),
        |headers| refusal(StatusCode::NOT_FOUND, &told(headers)),
        |headers| refusal(StatusCode::INTERNAL_SERVER_ERROR, &told(headers)),
        |headers| (StatusCode::BAD_REQUEST, told(headers)).into_response(),
        |headers| ok(&json!({"results": told(headers), "distances": null, "outlinks": null})),
        |headers| {
            let document = STANDARD.encode(json!(told(headers)).to_string());
            ok(&json!({"results": [document], "distances": null, "outlinks": null}))
        },
        |headers| ([("x-drgym-index", told(headers))], one_hit()).into_response(),
    ])
    .await;
    let options =
        ClientOptions { api_key_variable: Some("PATH".to_owned()), retries: 0, ..ClientOptions::new(&url) };
    let client = DeepResearchGymBackend::new(options).unwrap();
    let key = std::env::var("PATH").unwrap();
    for _ in 0..8 {
        let error = client.search("x", 1).await.unwrap_err();
        assert!(!error.is_about_request(), "{error}");
        let error = error.to_string();
        assert!(error.contains("***") && !error.contains(key.trim()), "{error}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 8);
}

fn refusal(status: StatusCode, key: &str) -> Response {
    (status, axum::Json(json!({"detail": format!("bad key {key}")}))).into_response()
}

#[tokio::test]
async fn a_redirection_is_not_followed_with_the_key() {
    let followed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&followed);
    let elsewhere = move || {
        counter.fetch_add(1, Ordering::SeqCst);
        async { one_hit() }
    };
    let away = || async { (StatusCode::FOUND, [("location", "/elsewhere")]) };
    let router = Router::new().route("/search", get(away)).route("/elsewhere", get(elsewhere));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let error = client(&url, 3).search("x", 1).await.unwrap_err();
    assert!(matches!(error, SearchError::Protocol { .. }), "{error}");
    assert!(error.to_string().contains("HTTP 302: a redirection"), "{error}");
    assert_eq!(followed.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn pages_are_fetched_where_the_options_say() {
    let (search_url, searches) = scripted(vec![|_| one_hit()]).await;
    let (fetch_url, fetches) = scripted(vec![|_| {
        ok(&json!({"clean_text": STANDARD.encode(r#"{"text": "whole", "id": "i", "url": "u"}"#)}))
    }])
    .await;
    let options = ClientOptions { fetch_base_url: Some(fetch_url), ..ClientOptions::new(&search_url) };
    let client = DeepResearchGymBackend::new(options).unwrap();
    assert_eq!(client.search("x", 1).await.unwrap().hits.len(), 1);
    assert_eq!(client.fetch(&PageRequest::Url("u".to_owned())).await.unwrap().text, "whole");
    assert_eq!((searches.load(Ordering::SeqCst), fetches.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn a_slow_server_is_unavailable() {
    let router = Router::new().route("/search", get(std::future::pending::<Response>));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let options =
        ClientOptions { retries: 0, timeout: Duration::from_millis(50), ..ClientOptions::new(&url) };
    let error =
        DeepResearchGymBackend::new(options).unwrap().search("a secret question", 1).await.unwrap_err();
    assert!(matches!(error, SearchError::Unavailable { .. }), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn a_replay_gives_what_was_recorded_and_nothing_else() {
    let (dir, local) = backend();
    let path = dir.path().join("recording.jsonl");
    let page = PageRequest::DocId("a".to_owned());
    let missing = PageRequest::Url("http://none/".to_owned());
    let recorded = {
        let recorder = Recorded::record(&path, Arc::new(local.clone())).unwrap();
        let search = recorder.search("Swiss peaks", 2).await.unwrap();
        assert_eq!(search, recorder.search("Swiss peaks", 2).await.unwrap());
        assert!(recorder.fetch(&missing).await.unwrap_err().is_about_request());
        let fetched = recorder.fetch(&page).await.unwrap();
        assert_eq!(recorder.len(), 3);
        (search, fetched)
    };
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);

    let replay = Recorded::replay(&path).unwrap();
    let again = Recorded::replay(&path).unwrap();
    let answer = replay.search("Swiss peaks", 2).await.unwrap();
    assert_eq!(answer.hits, recorded.0.hits);
    assert_eq!(replay.provenance(), Some(answer.provenance.clone()));
    let bytes = |response: &SearchResponse| serde_json::to_vec(response).unwrap();
    assert_eq!(bytes(&answer), bytes(&again.search("Swiss peaks", 2).await.unwrap()));
    assert_eq!(replay.fetch(&page).await.unwrap().text, recorded.1.text);
    assert!(matches!(replay.fetch(&missing).await, Err(SearchError::NotFound { what: "url", .. })));
    for (query, k) in [("Swiss peaks", 3), ("swiss peaks", 2)] {
        let error = replay.search(query, k).await.unwrap_err();
        assert!(matches!(error, SearchError::NotRecorded { .. }) && !error.is_about_request(), "{error}");
    }
}

#[tokio::test]
async fn a_torn_recording_goes_on_and_a_damaged_one_is_refused() {
    let (dir, local) = backend();
    let path = dir.path().join("recording.jsonl");
    let recorder = Recorded::record(&path, Arc::new(local.clone())).unwrap();
    recorder.search("one", 1).await.unwrap();
    recorder.search("two", 1).await.unwrap();
    drop(recorder);
    let whole = std::fs::read(&path).unwrap();
    let torn = &whole[..whole.len() - 10];

    std::fs::write(&path, torn).unwrap();
    let replay = Recorded::replay(&path).unwrap();
    assert_eq!(replay.len(), 1);
    assert!(matches!(replay.search("two", 1).await, Err(SearchError::NotRecorded { .. })));

    let recorder = Recorded::record(&path, Arc::new(local)).unwrap();
    recorder.search("two", 1).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), whole);

    let mut damaged = whole.clone();
    let at = damaged.windows(5).position(|bytes| bytes == b"\"one\"").unwrap();
    damaged[at + 1] = b'O';
    std::fs::write(&path, damaged).unwrap();
    let error = Recorded::replay(&path).err().unwrap().to_string();
    assert!(error.contains("line 1: not a recorded answer: its key is"), "{error}");
}

/// An engine that fails is not recorded: the next attempt may succeed.
#[tokio::test]
async fn failures_are_not_recorded() {
    let (dir, local) = backend();
    let path = dir.path().join("recording.jsonl");
    let rates = FaultRates { unavailable: 1.0, ..FaultRates::default() };
    let broken = Arc::new(Faulty::new(Arc::new(local.clone()), rates, 1).unwrap());
    let recorder = Recorded::record(&path, broken).unwrap();
    assert!(matches!(recorder.search("one", 1).await, Err(SearchError::Unavailable { .. })));
    assert!(recorder.is_empty());
    let recorder = Recorded::record(&path, Arc::new(local)).unwrap();
    assert!(recorder.search("one", 1).await.is_ok());
}

#[tokio::test]
async fn injected_faults_follow_the_seed() {
    let (_dir, local) = backend();
    let local: Arc<dyn SearchBackend> = Arc::new(local);
    let outcomes = async |rates: FaultRates, seed| {
        let faulty = Faulty::new(Arc::clone(&local), rates, seed).unwrap();
        let mut outcomes = Vec::new();
        for _ in 0..200 {
            outcomes.push(match faulty.search("Swiss lake", 3).await {
                Ok(response) => response.hits.into_iter().map(|hit| hit.doc_id).collect::<Vec<_>>().join(" "),
                Err(error) => error.to_string(),
            });
        }
        outcomes
    };
    let rates =
        FaultRates { unavailable: 0.3, empty: 0.1, truncated: 0.1, shuffled: 0.3, ..FaultRates::default() };
    let first = outcomes(rates.clone(), 7).await;
    assert_eq!(first, outcomes(rates.clone(), 7).await);
    assert_ne!(first, outcomes(rates.clone(), 8).await);
    let unavailable =
        |outcomes: &[String]| outcomes.iter().map(|o| o.contains("unavailable")).collect::<Vec<bool>>();
    let count = unavailable(&first).iter().filter(|&&hit| hit).count();
    assert!((35..=85).contains(&count), "{count} of 200 at a rate of 0.3");
    let only = FaultRates { unavailable: 0.3, ..FaultRates::default() };
    assert_eq!(unavailable(&first), unavailable(&outcomes(only, 7).await), "rates do not move one another");
    let plain = local.search("Swiss lake", 3).await.unwrap().hits;
    let plain = plain.into_iter().map(|hit| hit.doc_id).collect::<Vec<_>>().join(" ");
    assert!(outcomes(FaultRates::default(), 7).await.iter().all(|outcome| *outcome == plain));
    assert!(Faulty::new(local, FaultRates { empty: 1.5, ..FaultRates::default() }, 0).is_err());
}

/// A backend whose rankings are written down.
struct Fixed(BTreeMap<&'static str, Vec<&'static str>>);

#[async_trait]
impl SearchBackend for Fixed {
    async fn search(&self, query: &str, k: usize) -> Result<SearchResponse, SearchError> {
        let ranking = self.0.get(query).ok_or_else(|| SearchError::Internal("no ranking".to_owned()))?;
        let hit = |id: &&str| SearchHit {
            doc_id: (*id).to_owned(),
            url: format!("u:{id}"),
            title: String::new(),
            text: String::new(),
            score: None,
        };
        let provenance = Provenance::Index { hash: "h".to_owned() };
        Ok(SearchResponse { hits: ranking.iter().take(k).map(hit).collect(), provenance })
    }

    async fn fetch(&self, _: &PageRequest) -> Result<Page, SearchError> {
        Err(SearchError::Internal("not asked for".to_owned()))
    }

    fn name(&self) -> String {
        "fixed".to_owned()
    }
}

#[tokio::test]
#[expect(clippy::manual_midpoint, reason = "these are means, written out")]
async fn a_report_holds_means_worked_by_hand() {
    let fixed =
        Fixed(BTreeMap::from([("one", vec!["x", "a", "b"]), ("two", vec!["c", "y"]), ("three", vec!["z"])]));
    let exact =
        Fixed(BTreeMap::from([("one", vec!["x", "b", "q"]), ("two", vec!["c", "y"]), ("three", vec!["z"])]));
    let query = |id: &str, text: &str| Query { id: id.to_owned(), text: text.to_owned() };
    let queries = [query("1", "one"), query("2", "two"), query("3", "three")];
    let grades =
        |grades: &[(&str, u32)]| grades.iter().map(|(id, grade)| ((*id).to_owned(), *grade)).collect();
    // The second query is judged by address; the third has only a document judged irrelevant.
    let qrels = BTreeMap::from([
        ("1".to_owned(), grades(&[("a", 1), ("b", 1)])),
        ("2".to_owned(), grades(&[("u:y", 1), ("elsewhere", 1)])),
        ("3".to_owned(), grades(&[("z", 0)])),
    ]);
    let options =
        EvaluateOptions { cutoffs: vec![2], recall_cutoffs: vec![2, 3], ..EvaluateOptions::default() };
    let report = evaluate(&fixed, Some(&exact), &queries, &qrels, &options).await.unwrap();
    assert_eq!((report.queries, report.unjudged), (2, 1));
    assert_eq!(report.provenance, Some(Provenance::Index { hash: "h".to_owned() }));
    let close = |report: &drgym_search::evaluate::Report, name: &str, expected: f64| {
        let value = report.metrics[name];
        assert!((value - expected).abs() < 1e-12, "{name} is {value}, expected {expected}");
    };
    close(&report, "mrr@2", 0.5);
    close(&report, "recall@2", (0.5 + 0.5) / 2.0);
    close(&report, "recall@3", (1.0 + 0.5) / 2.0);
    close(&report, "precision@2", 0.5);
    close(&report, "map@3", ((0.5 + 2.0 / 3.0) / 2.0 + 0.5 / 2.0) / 2.0);
    close(&report, "ann_recall@2", (0.5 + 1.0) / 2.0);
    // Both: one relevant hit at rank 2 of two possible.
    let log = 0.630_929_753_571_457_4;
    close(&report, "ndcg@2", log / (1.0 + log));

    let all = EvaluateOptions { unjudged: Unjudged::CountAsZero, ..options.clone() };
    let report = evaluate(&fixed, None, &queries, &qrels, &all).await.unwrap();
    close(&report, "mrr@2", 1.0 / 3.0);
    assert_eq!(report.queries, 3);
    assert!(!report.metrics.contains_key("ann_recall@2"));

    let none = evaluate(&fixed, None, &queries[2..], &qrels, &options).await;
    assert!(matches!(none, Err(EvaluateError::NothingJudged { queries: 1 })));
    let failing = evaluate(&fixed, None, &[query("1", "unknown")], &qrels, &options).await;
    assert!(matches!(failing, Err(EvaluateError::Search { id, .. }) if id == "1"));
}

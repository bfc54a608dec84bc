//! `/search` and `/fetch` through a real socket, with the real client and with plain HTTP.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drgym_search::encoder::{Encoder, EncoderError, EncoderIdentity};
use drgym_search::{
    ClientOptions, DeepResearchGymBackend, FlatIndex, LocalBackend, PageRequest, Provenance, SearchBackend,
    SearchError, ServeError, ServeOptions, ServerHandle, serve,
};
use serde_json::{Value, json};

use crate::support::{CORPUS, WordEncoder, backend, build};

fn options(indexes: Vec<(String, LocalBackend)>) -> ServeOptions {
    ServeOptions {
        addr: "127.0.0.1:0".parse().unwrap(),
        indexes,
        timeout: Duration::from_secs(30),
        idle_timeout: Duration::from_mins(1),
        concurrency: 64,
    }
}

async fn server() -> (tempfile::TempDir, LocalBackend, ServerHandle) {
    let (dir, backend) = backend();
    let server = serve(options(vec![("main".to_owned(), backend.clone())])).await.unwrap();
    (dir, backend, server)
}

fn client(url: &str) -> DeepResearchGymBackend {
    let options = ClientOptions { retries: 0, busy_retries: 0, ..ClientOptions::new(url) };
    DeepResearchGymBackend::new(options).unwrap()
}

/// Plain HTTP: status, index header and JSON body.
async fn get(url: &str) -> (u16, Option<String>, Value) {
    // The client installs the TLS provider that any reqwest client of this build needs.
    drop(client("http://127.0.0.1:1"));
    let response = reqwest::get(url).await.unwrap();
    let hash = response.headers().get("x-drgym-index").map(|hash| hash.to_str().unwrap().to_owned());
    (response.status().as_u16(), hash, response.json().await.unwrap())
}

fn decode(encoded: &Value) -> Value {
    serde_json::from_slice(&STANDARD.decode(encoded.as_str().unwrap()).unwrap()).unwrap()
}

#[tokio::test]
async fn a_remote_search_equals_the_local_one() {
    let (_dir, local, server) = server().await;
    let remote = client(&server.url());
    for query in ["highest Swiss peaks", "rivers & lakes = 100% #1?", "ü 東京", "Lake"] {
        for k in [1, 2, 10] {
            assert_eq!(remote.search(query, k).await.unwrap(), local.search(query, k).await.unwrap());
        }
    }
    for request in [
        PageRequest::Url("http://example.org/b?x=1&y=ü".to_owned()),
        PageRequest::Url("http://example.org/a\n\r\n".to_owned()),
        PageRequest::DocId("c".to_owned()),
    ] {
        assert_eq!(remote.fetch(&request).await.unwrap(), local.fetch(&request).await.unwrap());
    }
    let missing = PageRequest::Url("http://example.org/A".to_owned());
    for backend in [&remote as &dyn SearchBackend, &local] {
        let error = backend.fetch(&missing).await.unwrap_err();
        assert!(matches!(error, SearchError::NotFound { what: "url", .. }), "{error}");
    }
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_body_is_deepresearchgyms() {
    let (_dir, local, server) = server().await;
    let hash = local.info().hash.clone();
    let url = server.url();
    let (status, header, body) = get(&format!("{url}/search?query=rhine%20north&k=1")).await;
    assert_eq!((status, header.as_ref()), (200, Some(&hash)));
    let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["results", "distances", "outlinks"]);
    assert_eq!((&body["distances"], &body["outlinks"]), (&Value::Null, &Value::Null));
    let expected = json!({
        "text": "The Rhine flows north.",
        "id": "b",
        "url": "http://example.org/b?x=1&y=ü",
        "title": "Rivers",
        "URL": "http://example.org/b?x=1&y=ü",
        "ClueWeb22-ID": "b",
        "Clean-Text": "The Rhine flows north.",
        "language": "en",
        "score": 0.5,
    });
    // Compared as text: the order of the keys is part of the golden form.
    assert_eq!(decode(&body["results"][0]).to_string(), expected.to_string());

    let all = "with_distance=true&with_outlink=True&complexity=500&shard_ids=0,2&cw22_a=1&original_query=x&iteration=2&rerank=false";
    let (_, _, body) = get(&format!("{url}/search?query=lake&{all}")).await;
    assert_eq!(body["results"].as_array().unwrap().len(), 3);
    let distances: Vec<f64> =
        body["distances"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    assert!(distances.is_sorted_by(|a, b| a >= b) && distances.len() == 3, "{distances:?}");
    assert_eq!(body["outlinks"], json!([]));

    let (status, header, body) = get(&format!("{url}/fetch?url=http://example.org/a")).await;
    assert_eq!((status, header.as_ref()), (200, Some(&hash)));
    assert_eq!(body.as_object().unwrap().len(), 1);
    let page = decode(&body["clean_text"]);
    assert!(page["Clean-Text"].as_str().unwrap().ends_with("lies in France and Italy."));

    let (_, _, health) = get(&format!("{url}/health")).await;
    assert_eq!(health, json!({"status": "healthy"}));
    let (_, _, health) = get(&format!("{url}/fetch/health")).await;
    assert_eq!(health, json!({"status": "healthy", "service": "fetch", "url_mappings_loaded": 3}));
}

#[tokio::test]
async fn faults_of_a_request_are_told_in_one_form() {
    let (dir, local, server) = server().await;
    let url = server.url();
    for (path, expected) in [
        ("/search", 400),
        ("/search?query=", 400),
        ("/search?query=%20", 400),
        ("/search?query=x&k=0", 400),
        ("/search?query=x&k=1001", 400),
        ("/search?query=x&k=-1", 400),
        ("/search?query=x&k=ten", 400),
        ("/search?query=x&with_distance=maybe", 400),
        ("/fetch", 400),
        ("/fetch?url=a&doc_id=b", 400),
        ("/fetch?url=http://example.org/none", 404),
        ("/nothing", 404),
        ("/main/nothing", 404),
        ("/other/search?query=x", 404),
    ] {
        let (status, header, body) = get(&format!("{url}{path}")).await;
        assert_eq!((status, header), (expected, Some(local.info().hash.clone())), "{path}");
        let detail = body["detail"].as_str().unwrap_or_default();
        assert!(!detail.is_empty() && body.as_object().unwrap().len() == 1, "{path}: {body}");
        assert!(!detail.contains(dir.path().to_str().unwrap()), "{path}: {detail}");
    }
    let (_, _, body) = get(&format!("{url}/fetch?url=http://example.org/none")).await;
    assert_eq!(body, json!({"detail": "URL not found."}));
    assert_eq!(get(&format!("{url}/search?query=x&k=1000")).await.0, 200);
}

/// Damage that appears under a running server is a 500 that tells nothing about this machine.
#[tokio::test]
async fn a_fault_of_ours_does_not_show_paths() {
    let dir = tempfile::tempdir().unwrap();
    let line = |id: &str| format!("{{\"id\": \"{id}\", \"text\": \"lake\"}}\n");
    let (_, out) = build(dir.path(), &(line("a") + &line("b"))).unwrap();
    // The same length, but no JSON: sizes fit, so the index opens.
    let documents = out.join("documents.jsonl");
    let length = std::fs::read(&documents).unwrap().len();
    std::fs::write(&documents, vec![b'x'; length]).unwrap();
    let backend =
        LocalBackend::new(FlatIndex::open(&out).unwrap(), Arc::new(WordEncoder::new("w1"))).unwrap();
    let server = serve(options(vec![("main".to_owned(), backend)])).await.unwrap();
    let (status, header, body) = get(&format!("{}/search?query=lake", server.url())).await;
    assert_eq!((status, body), (500, json!({"detail": "Internal server error."})));
    assert!(header.is_some());
    let error = client(&server.url()).search("lake", 1).await.unwrap_err();
    assert!(matches!(error, SearchError::Unavailable { .. }), "{error}");
}

/// An encoder that waits until it may go on, so that a request is surely still being answered.
struct Gated(WordEncoder, Arc<Barrier>);

impl Encoder for Gated {
    fn identity(&self) -> &EncoderIdentity {
        self.0.identity()
    }

    fn encode_query(&self, query: &str) -> Result<Vec<f32>, EncoderError> {
        // Once to tell that the request is here, once more to let it go.
        self.1.wait();
        self.1.wait();
        self.0.encode_query(query)
    }

    fn encode_documents(&self, texts: &[&str]) -> Result<Vec<f32>, EncoderError> {
        self.0.encode_documents(texts)
    }

    fn token_ranges(&self, text: &str) -> Result<Vec<Range<usize>>, EncoderError> {
        self.0.token_ranges(text)
    }
}

/// A server of one index at a time with an encoder of the test's own.
async fn server_with(encoder: Arc<dyn Encoder>, concurrency: usize, timeout: Duration) -> Busy {
    let dir = tempfile::tempdir().unwrap();
    let (_, out) = build(dir.path(), CORPUS).unwrap();
    let backend = LocalBackend::new(FlatIndex::open(&out).unwrap(), encoder).unwrap();
    let indexes = vec![("main".to_owned(), backend)];
    let server = serve(ServeOptions { concurrency, timeout, ..options(indexes) }).await.unwrap();
    Busy { _dir: dir, server }
}

/// A server and the folder of its index, which must outlive it.
struct Busy {
    _dir: tempfile::TempDir,
    server: ServerHandle,
}

/// Both sides of the barrier must be on threads that may block.
async fn pass(gate: &Arc<Barrier>) {
    let gate = Arc::clone(gate);
    tokio::task::spawn_blocking(move || gate.wait()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_lets_wait_and_then_answers() {
    let gate = Arc::new(Barrier::new(2));
    let encoder = Arc::new(Gated(WordEncoder::new("w1"), Arc::clone(&gate)));
    let busy = server_with(encoder, 1, Duration::from_secs(30)).await;
    let url = busy.server.url();
    let ask = |path: &'static str| {
        let url = url.clone();
        tokio::spawn(async move { get(&format!("{url}{path}")).await })
    };
    let first = ask("/search?query=lake");
    pass(&gate).await;
    // Found in no cache and in need of no encoder: only the queue keeps it waiting.
    let second = ask("/fetch?doc_id=b");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!second.is_finished());
    assert_eq!(get(&format!("{url}/health")).await.0, 200, "health waits for nothing");
    pass(&gate).await;
    assert_eq!((first.await.unwrap().0, second.await.unwrap().0), (200, 200));
}

/// Work that nobody waits for any more still counts: the limit bounds what is computed, not who is waiting.
#[tokio::test(flavor = "multi_thread")]
async fn work_counts_until_it_ends_and_a_turn_that_does_not_come_is_told() {
    let gate = Arc::new(Barrier::new(2));
    let encoder = Arc::new(Gated(WordEncoder::new("w1"), Arc::clone(&gate)));
    let busy = server_with(encoder, 1, Duration::from_secs(1)).await;
    let url = busy.server.url();
    let first = tokio::spawn({
        let url = url.clone();
        async move { get(&format!("{url}/search?query=lake")).await.0 }
    });
    pass(&gate).await;
    assert_eq!(first.await.unwrap(), 504, "its turn came, its answer did not");
    let late = reqwest::get(format!("{url}/fetch?doc_id=b")).await.unwrap();
    assert_eq!((late.status().as_u16(), late.headers()["retry-after"].to_str().unwrap()), (429, "1"));
    assert!(late.headers().contains_key("x-drgym-index"));
    pass(&gate).await;
    assert_eq!(get(&format!("{url}/fetch?doc_id=b")).await.0, 200);
}

/// Counts how many queries are encoded at the same time.
struct Counted {
    words: WordEncoder,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Encoder for Counted {
    fn identity(&self) -> &EncoderIdentity {
        self.words.identity()
    }

    fn encode_query(&self, query: &str) -> Result<Vec<f32>, EncoderError> {
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(5));
        self.now.fetch_sub(1, Ordering::SeqCst);
        self.words.encode_query(query)
    }

    fn encode_documents(&self, texts: &[&str]) -> Result<Vec<f32>, EncoderError> {
        self.words.encode_documents(texts)
    }

    fn token_ranges(&self, text: &str) -> Result<Vec<Range<usize>>, EncoderError> {
        self.words.token_ranges(text)
    }
}

/// A round of a rollout searches with all its episodes together; none may fail for that.
#[tokio::test(flavor = "multi_thread")]
async fn many_searches_at_once_wait_their_turn_and_all_succeed() {
    let counted = Arc::new(Counted {
        words: WordEncoder::new("w1"),
        now: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
    });
    let busy = server_with(Arc::clone(&counted) as Arc<dyn Encoder>, 2, Duration::from_secs(30)).await;
    // No attempt after the first, for any reason.
    let options = ClientOptions { retries: 0, busy_retries: 0, ..ClientOptions::new(busy.server.url()) };
    let remote = Arc::new(DeepResearchGymBackend::new(options).unwrap());
    let searches: Vec<_> = (0..64)
        .map(|number| {
            let remote = Arc::clone(&remote);
            // Each its own, so that no cache answers.
            tokio::spawn(async move { remote.search(&format!("lake number {number}"), 3).await })
        })
        .collect();
    for search in searches {
        assert_eq!(search.await.unwrap().unwrap().hits.len(), 3);
    }
    assert_eq!(counted.most.load(Ordering::SeqCst), 2, "two at a time, no more and no fewer");
}

#[tokio::test]
async fn several_indexes_answer_under_their_names() {
    let (_one, first) = backend();
    let dir = tempfile::tempdir().unwrap();
    let (_, out) = build(dir.path(), "{\"id\": \"z\", \"text\": \"The other corpus.\"}").unwrap();
    let second = LocalBackend::new(FlatIndex::open(&out).unwrap(), Arc::new(WordEncoder::new("w1"))).unwrap();
    let named = vec![("first".to_owned(), first.clone()), ("second".to_owned(), second.clone())];
    let server = serve(options(named)).await.unwrap();
    for (path, expected) in [("", &first), ("/first", &first), ("/second", &second)] {
        let remote = client(&format!("{}{path}", server.url()));
        let response = remote.search("corpus", 10).await.unwrap();
        assert_eq!(response.provenance, Provenance::Index { hash: expected.info().hash.clone() });
        assert_eq!(response, expected.search("corpus", 10).await.unwrap());
    }
    let page =
        client(&format!("{}/second", server.url())).fetch(&PageRequest::DocId("z".to_owned())).await.unwrap();
    assert_eq!(page.text, "The other corpus.");

    for (names, reason) in [
        (vec!["search"], "hide a route"),
        (vec!["a/b"], "expected letters"),
        (vec!["a", "a"], "another index has it"),
    ] {
        let indexes = names.iter().map(|name| ((*name).to_owned(), first.clone())).collect();
        let error = serve(options(indexes)).await.err().unwrap().to_string();
        assert!(error.contains(reason), "{error}");
    }
    assert!(matches!(serve(options(Vec::new())).await.err(), Some(ServeError::NoIndex)));
}

#[tokio::test]
async fn the_server_ends_when_told_and_frees_its_address() {
    let (_dir, backend, server) = server().await;
    let addr = server.addr();
    let busy = ServeOptions { addr, ..options(vec![("main".to_owned(), backend.clone())]) };
    assert!(matches!(serve(busy).await.err(), Some(ServeError::Listen { .. })));
    server.run_until(async {}).await.unwrap();
    let error = client(&format!("http://{addr}")).search("x", 1).await.unwrap_err();
    assert!(matches!(error, SearchError::Unavailable { .. }), "{error}");
    let again = ServeOptions { addr, ..options(vec![("main".to_owned(), backend)]) };
    serve(again).await.unwrap().shutdown().await.unwrap();
}

/// A connection over which the head of a request comes half way.
async fn half_sent(addr: std::net::SocketAddr) -> tokio::net::TcpStream {
    use tokio::io::AsyncWriteExt;
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: ").await.unwrap();
    stream
}

/// Far longer than anything here takes, so that a test fails instead of waiting for ever.
const PATIENCE: Duration = Duration::from_secs(50);

#[tokio::test]
async fn a_request_that_stops_half_way_loses_its_connection() {
    use tokio::io::AsyncReadExt;
    let (_dir, backend) = backend();
    let idle_timeout = Duration::from_millis(100);
    let server = ServeOptions { idle_timeout, ..options(vec![("main".to_owned(), backend)]) };
    let server = serve(server).await.unwrap();
    let mut stream = half_sent(server.addr()).await;
    let mut answer = Vec::new();
    // Closed or reset: both end it.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
    assert!(!String::from_utf8_lossy(&answer).contains("healthy"));
    assert_eq!(get(&format!("{}/health", server.url())).await.0, 200);
}

#[tokio::test]
async fn no_client_keeps_the_server_from_ending() {
    let (_dir, backend) = backend();
    let timeout = Duration::from_millis(100);
    let server = ServeOptions { timeout, ..options(vec![("main".to_owned(), backend)]) };
    let server = serve(server).await.unwrap();
    let stream = half_sent(server.addr()).await;
    // The server has taken the connection once it answers a later one.
    assert_eq!(get(&format!("{}/health", server.url())).await.0, 200);
    tokio::time::timeout(PATIENCE, server.shutdown()).await.unwrap().unwrap();
    drop(stream);
}

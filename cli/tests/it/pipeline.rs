//! From a corpus to results, through the real binary, a real index and a real socket, without any policy model.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::program::{Run, artefact, drgym, run};

const CORPUS: &str = r#"{"id":"ke","url":"doc:ke","title":"Kenya – Elevation","text":"highest point: Mount Kenya 5,199 m"}
{"id":"pe","url":"doc:pe","title":"Peru – Capital","text":"name: Lima"}
{"id":"fr","url":"doc:fr","title":"France – Internet country code","text":".fr"}
"#;

const TASKS: &str = r#"{"id":"t1","question":"What is the highest point of Kenya?","answers":["Mount Kenya"],"evidence":["ke"],"kind":"one_hop","phrasing":"plain","expert":[{"query":"Kenya highest point","finding":"Mount Kenya"}]}
{"id":"t2","question":"What is the capital of Peru?","answers":["Lima"],"evidence":["pe"],"kind":"one_hop","phrasing":"unseen/odd","expert":[{"query":"capital of Peru","finding":"Lima"}]}
{"id":"t3","question":"What is the capital of Atlantis?","answers":["Poseidonis"],"kind":"one_hop","phrasing":"plain","expert":[{"query":"capital of Atlantis","finding":"Poseidonis"}]}
"#;

/// Writes a corpus and builds its index, both in the folder.
fn built(folder: &Path, corpus: &str) -> Option<()> {
    let encoder = artefact("models/all-minilm-l6-v2")?;
    std::fs::write(folder.join("corpus.jsonl"), corpus).unwrap();
    build(folder, "index", &encoder, &["--quiet"]);
    Some(())
}

/// Builds an index of `corpus.jsonl`.
fn build(folder: &Path, out: &str, encoder: &Path, options: &[&str]) -> Run {
    let text = |name: &str| folder.join(name).display().to_string();
    let (corpus, out, encoder) = (text("corpus.jsonl"), text(out), encoder.display().to_string());
    let needed =
        ["index", "build", "--format", "jsonl", "--corpus", &corpus, "--encoder", &encoder, "--out", &out];
    let ended = run(&[&needed, options].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended
}

/// A server of one index, which ends with the value, also when a test fails.
struct Served {
    process: Child,
    url: String,
}

impl Served {
    fn start(index: &Path) -> Self {
        let mut process = drgym()
            .args(["serve".as_ref(), "--index".as_ref(), index.as_os_str()])
            .args(["--addr", "127.0.0.1:0", "--quiet"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = process.stdout.take().unwrap();
        let mut served = Self { process, url: String::new() };
        BufReader::new(output).read_line(&mut served.url).unwrap();
        served.url.truncate(served.url.trim_end().len());
        served
    }

    /// What Ctrl-C does.
    #[cfg(unix)]
    fn interrupt(&self) {
        let pid = self.process.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    }

    /// The exit status, once the process has ended; fails after 30 seconds.
    #[cfg(unix)]
    fn ended(&mut self) -> Option<i32> {
        for _ in 0..300 {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("the server has not ended");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn search_from_the_folder_and_from_the_server_agree_and_eval_scores_the_expert() {
    let folder = tempfile::tempdir().unwrap();
    let Some(()) = built(folder.path(), CORPUS) else { return };
    std::fs::write(folder.path().join("tasks.jsonl"), TASKS).unwrap();
    let text = |name: &str| folder.path().join(name).display().to_string();
    let search = |source: &[&str]| {
        let arguments =
            [&["search", "--query", "highest mountain of Kenya", "-k", "2", "--json"], source].concat();
        let found = run(&arguments);
        assert_eq!(found.code, Some(0), "{}", found.stderr);
        serde_json::from_str::<serde_json::Value>(&found.stdout).unwrap()
    };
    let local = search(&["--index", &text("index")]);
    assert_eq!(local["hits"][0]["doc_id"], "ke");
    assert_eq!(local["hits"].as_array().unwrap().len(), 2);

    let server = Served::start(&folder.path().join("index"));
    // Our server asks for no key; one that is set is sent, whatever it is.
    let served = search(&["--url", &server.url, "--api-key-env", "PATH"]);
    let with_server = evaluate(&folder, &["--search", &server.url], "over-http");
    drop(server);
    assert_eq!(served["provenance"], local["provenance"], "the header names the index");
    for (served, local) in served["hits"].as_array().unwrap().iter().zip(local["hits"].as_array().unwrap()) {
        assert_eq!((&served["doc_id"], &served["text"]), (&local["doc_id"], &local["text"]));
    }

    let from_folder = evaluate(&folder, &["--search", &text("index")], "from-folder");
    for results in [&from_folder, &with_server] {
        let accuracy = &results["summary"]["accuracy"];
        assert_eq!((accuracy["correct"].as_u64(), accuracy["n"].as_u64()), (Some(2), Some(3)), "{results}");
        assert_eq!(results["summary"]["failures"]["wrong_answer"], 1);
        assert_eq!(results["summary"]["by_phrasing"]["unseen"]["n"], 1);
    }
    assert_eq!(from_folder["search_hash"], with_server["search_hash"].clone());

    let again = evaluate(&folder, &["--search", &text("index")], "again");
    assert_eq!(again["traces_hash"], from_folder["traces_hash"], "the same seed gives the same traces");
    let compared = run(&["compare", &text("again"), &text("from-folder"), "--json"]);
    let compared: serde_json::Value = serde_json::from_str(&compared.stdout).unwrap();
    assert_eq!((compared["n"].as_u64(), compared["only_first"].as_u64()), (Some(3), Some(0)));
}

#[test]
fn an_index_keeps_how_its_encoder_was_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let Some(encoder) = artefact("models/all-minilm-l6-v2") else { return };
    std::fs::write(folder.path().join("corpus.jsonl"), CORPUS).unwrap();
    build(folder.path(), "plain", &encoder, &[]);
    let prefixes = ["--query-prefix", "query: ", "--passage-prefix", "passage: "];
    let told = build(folder.path(), "told", &encoder, &[&["--pooling", "cls"], &prefixes[..]].concat());
    assert!(!told.stderr.contains("warning"), "{}", told.stderr);
    let json = |arguments: &[&str]| {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        serde_json::from_str::<serde_json::Value>(&ended.stdout).unwrap()
    };
    let path = |name: &str| folder.path().join(name).display().to_string();
    let encoder_of =
        |name: &str| json(&["index", "info", &path(name), "--json"])["manifest"]["encoder"].clone();
    let (plain, told) = (encoder_of("plain"), encoder_of("told"));
    assert_eq!(plain["overrides"], serde_json::Value::Null);
    assert_eq!(
        told["overrides"],
        serde_json::json!({"pooling": "cls", "query_prefix": "query: ", "passage_prefix": "passage: "})
    );
    assert_ne!(plain["fingerprint"], told["fingerprint"]);
    // No option is needed to search: were the encoder loaded otherwise, its fingerprint would be refused.
    let best = |name: &str| {
        json(&["search", "--index", &path(name), "--query", "highest mountain of Kenya", "--json"])["hits"][0]
            .clone()
    };
    assert_ne!(best("plain")["score"], best("told")["score"]);
}

/// A name is a hint: it is told, and nothing is changed.
#[cfg(unix)]
#[test]
fn an_encoder_that_is_named_e5_and_has_no_prefixes_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let Some(encoder) = artefact("models/all-minilm-l6-v2") else { return };
    std::fs::write(folder.path().join("corpus.jsonl"), CORPUS).unwrap();
    let named = folder.path().join("e5-small-v2");
    std::os::unix::fs::symlink(&encoder, &named).unwrap();
    let built = build(folder.path(), "bare", &named, &[]);
    assert!(
        built.stderr.contains("warning: ") && built.stderr.contains("--query-prefix"),
        "{}",
        built.stderr
    );
    let info = run(&["index".as_ref(), "info".as_ref(), folder.path().join("bare").as_os_str()]);
    assert!(!info.stdout.contains("loaded as"), "{}", info.stdout);
    let prefixes = ["--query-prefix", "query: ", "--passage-prefix", "passage: "];
    let built = build(folder.path(), "prefixed", &named, &prefixes);
    assert!(!built.stderr.contains("warning"), "{}", built.stderr);
}

#[cfg(unix)]
#[test]
fn the_first_interrupt_lets_a_server_finish_and_the_second_ends_it() {
    use std::io::{Read, Write};

    let folder = tempfile::tempdir().unwrap();
    // Far more than sockets hold, so that an answer that nobody reads is not over.
    let padding = "x".repeat(24 << 20);
    let corpus = format!("{{\"id\":\"large\",\"text\":\"x\",\"padding\":\"{padding}\"}}\n");
    let Some(()) = built(folder.path(), &corpus) else { return };
    let index = folder.path().join("index");

    let mut idle = Served::start(&index);
    idle.interrupt();
    assert_eq!(idle.ended(), Some(0));

    let mut busy = Served::start(&index);
    let address = busy.url.strip_prefix("http://").unwrap();
    let mut connection = std::net::TcpStream::connect(address).unwrap();
    connection.write_all(b"GET /fetch?doc_id=large HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut status = [0; 12];
    connection.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    busy.interrupt();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(busy.process.try_wait().unwrap().is_none(), "what has begun must be answered");
    busy.interrupt();
    assert_eq!(busy.ended(), Some(130));
}

/// Threads of libtorch go on computing until the process has ended; that must not look like a defect.
#[cfg(all(unix, feature = "train"))]
#[test]
fn a_second_interrupt_ends_a_busy_model_at_once() {
    let Some(model) = artefact("models/smollm2-135m-instruct") else { return };
    let folder = tempfile::tempdir().unwrap();
    let tasks: Vec<String> = (0..200)
        .map(|i| {
            format!(r#"{{"id":"t{i}","question":"What is {i} plus {i}?","answers":["x"],"evidence":[]}}"#)
        })
        .collect();
    std::fs::write(folder.path().join("tasks.jsonl"), tasks.join("\n")).unwrap();
    let mut process = drgym()
        .args(["eval", "--search", "none", "--set", "rollout.concurrency=4", "--policy"])
        .arg(&model)
        .arg("--data")
        .arg(folder.path().join("tasks.jsonl"))
        .arg("--out")
        .arg(folder.path().join("out"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = process.id().to_string();
    let interrupt = || {
        assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    };
    let mut told = Vec::new();
    let mut interrupted = false;
    for line in BufReader::new(process.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        let busy = line.starts_with("episodes: ") && !interrupted;
        if busy || line.starts_with("stopping") {
            interrupt();
            interrupted = true;
        }
        told.push(line);
    }
    let status = process.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{told:?}");
    assert!(!told.iter().any(|line| line.contains("error")), "{told:?}");
}

#[test]
fn with_search_switched_off_the_expert_finds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tasks.jsonl"), TASKS).unwrap();
    let results = evaluate(&folder, &["--search", "none"], "off");
    assert_eq!(results["summary"]["accuracy"]["correct"], 0);
    assert_eq!(results["search"], "none");
}

fn evaluate(folder: &tempfile::TempDir, search: &[&str], out: &str) -> serde_json::Value {
    let text = |name: &str| folder.path().join(name).display().to_string();
    let (data, out) = (text("tasks.jsonl"), text(out));
    let arguments =
        [&["eval", "--data", &data, "--policy", "expert", "--out", &out, "--json"], search].concat();
    let ended = run(&arguments);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let printed: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let written = std::fs::read(folder.path().join(&out).join("results.json")).unwrap();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&written).unwrap(), printed);
    printed
}

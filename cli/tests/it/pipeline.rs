//! From a corpus to results, through the real binary, a real index and a real socket, without any policy model.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::program::{artefact, drgym, run};

const CORPUS: &str = r#"{"id":"ke","url":"doc:ke","title":"Kenya – Elevation","text":"highest point: Mount Kenya 5,199 m"}
{"id":"pe","url":"doc:pe","title":"Peru – Capital","text":"name: Lima"}
{"id":"fr","url":"doc:fr","title":"France – Internet country code","text":".fr"}
"#;

const TASKS: &str = r#"{"id":"t1","question":"What is the highest point of Kenya?","answers":["Mount Kenya"],"evidence":["ke"],"kind":"one_hop","phrasing":"plain","expert":[{"query":"Kenya highest point","finding":"Mount Kenya"}]}
{"id":"t2","question":"What is the capital of Peru?","answers":["Lima"],"evidence":["pe"],"kind":"one_hop","phrasing":"unseen/odd","expert":[{"query":"capital of Peru","finding":"Lima"}]}
{"id":"t3","question":"What is the capital of Atlantis?","answers":["Poseidonis"],"kind":"one_hop","phrasing":"plain","expert":[{"query":"capital of Atlantis","finding":"Poseidonis"}]}
"#;

fn built(folder: &Path) -> Option<()> {
    let encoder = artefact("models/all-minilm-l6-v2")?;
    std::fs::write(folder.join("corpus.jsonl"), CORPUS).unwrap();
    std::fs::write(folder.join("tasks.jsonl"), TASKS).unwrap();
    let text = |name: &str| folder.join(name).display().to_string();
    let encoder = encoder.display().to_string();
    let ended = run(&[
        "index",
        "build",
        "--format",
        "jsonl",
        "--corpus",
        &text("corpus.jsonl"),
        "--encoder",
        &encoder,
        "--out",
        &text("index"),
        "--quiet",
    ]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    Some(())
}

#[test]
fn search_from_the_folder_and_from_the_server_agree_and_eval_scores_the_expert() {
    let folder = tempfile::tempdir().unwrap();
    let Some(()) = built(folder.path()) else { return };
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

    let mut server = drgym()
        .args(["serve", "--index", &text("index"), "--addr", "127.0.0.1:0", "--quiet"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let served = search(&["--url", url.trim()]);
    let with_server = evaluate(&folder, &["--search", url.trim()], "over-http");
    // Only now, so that a failed comparison does not leave the server running.
    server.kill().unwrap();
    server.wait().unwrap();
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

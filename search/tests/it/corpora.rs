//! Corpus readers: every fault names its file and line; packed files and folders read like plain ones.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use drgym_search::corpus::{self, factbook};
use drgym_search::{CorpusError, CorpusFormat, Document};

use crate::support::{CORPUS, real_data, set_up};

fn read(paths: &[&Path]) -> Result<Vec<Document>, CorpusError> {
    let paths: Vec<PathBuf> = paths.iter().map(|path| (*path).to_owned()).collect();
    corpus::read(CorpusFormat::Jsonl, &paths)?.collect()
}

fn error_of(content: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.jsonl");
    fs::write(&file, content).unwrap();
    read(&[&file]).unwrap_err().to_string()
}

#[test]
fn plain_gzip_and_zstd_give_the_same_documents() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("plain.jsonl"), CORPUS).unwrap();
    // Two members in one file, as ClueWeb22 packs its records.
    let (first, second) = CORPUS.split_at(CORPUS.find('\n').unwrap() + 1);
    let mut packed = Vec::new();
    for part in [first, second] {
        let mut gz = flate2::write::GzEncoder::new(&mut packed, flate2::Compression::fast());
        gz.write_all(part.as_bytes()).unwrap();
        gz.finish().unwrap();
    }
    fs::write(path("packed.jsonl.gz"), &packed).unwrap();
    fs::write(path("packed.jsonl.zst"), zstd::encode_all(CORPUS.as_bytes(), 3).unwrap()).unwrap();
    let plain = read(&[&path("plain.jsonl")]).unwrap();
    assert_eq!(plain.len(), 3);
    assert_eq!(plain[0].url, "http://example.org/b?x=1&y=ü");
    assert_eq!(plain[2].url, "doc:c");
    assert_eq!(plain[0].extra.keys().collect::<Vec<_>>(), ["language", "score"]);
    assert_eq!(read(&[&path("packed.jsonl.gz")]).unwrap(), plain);
    assert_eq!(read(&[&path("packed.jsonl.zst")]).unwrap(), plain);

    fs::write(path("torn.jsonl.gz"), &packed[..packed.len() - 20]).unwrap();
    let torn = read(&[&path("torn.jsonl.gz")]).unwrap_err();
    assert!(matches!(torn, CorpusError::Read { .. }), "{torn}");
}

#[test]
fn a_folder_is_read_in_the_order_of_its_paths() {
    let dir = tempfile::tempdir().unwrap();
    for (name, id) in
        [("b.jsonl", "2"), ("a/z.ndjson", "1"), ("c.json", "3"), (".hidden.jsonl", "4"), ("notes.txt", "5")]
    {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{{\"id\": {id}, \"text\": \"x\"}}\n")).unwrap();
    }
    let ids: Vec<String> = read(&[dir.path()]).unwrap().into_iter().map(|document| document.doc_id).collect();
    assert_eq!(ids, ["1", "2", "3"]);
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(read(&[empty.path()]), Err(CorpusError::EmptyFolder { .. })));
    assert!(matches!(read(&[&dir.path().join("none.jsonl")]), Err(CorpusError::Open { .. })));
}

#[test]
fn every_field_name_in_use_is_understood() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.jsonl");
    let lines = [
        r#"{"_id": "1", "title": "T", "text": "x"}"#,
        r#"{"doc_id": "2", "contents": "\"Title\"\nbody"}"#,
        r#"{"docid": "3", "content": "x", "title": null}"#,
        r#"{"ClueWeb22-ID": "clueweb22-en0000-00-00000", "URL": "http://x/\n", "Clean-Text": "x", "Language": "en"}"#,
    ];
    fs::write(&file, format!("\u{feff}{}\r\n\r\n", lines.join("\r\n"))).unwrap();
    let documents = read(&[&file]).unwrap();
    assert_eq!((documents[1].title.as_str(), documents[1].text.as_str()), ("Title", "body"));
    assert_eq!(documents[2].title, "");
    assert_eq!(
        (documents[3].doc_id.as_str(), documents[3].url.as_str()),
        ("clueweb22-en0000-00-00000", "http://x/")
    );
}

#[test]
fn faults_name_the_file_and_the_line() {
    let good = "{\"id\": \"1\", \"text\": \"x\"}\n\n";
    let bad = |line: &str| error_of(format!("{good}{line}\n").as_bytes());
    for (line, expected) in [
        ("{\"id\": \"2\", \"text\": \"x\"", "expected a JSON object"),
        ("[1]", "expected a JSON object"),
        ("{\"text\": \"x\"}", "the record has no identifier"),
        ("{\"id\": \"2\"}", "the record has no text"),
        ("{\"id\": \"2\", \"text\": \" \"}", "the field \"text\" is empty"),
        ("{\"id\": \"\", \"text\": \"x\"}", "the field \"id\" is empty"),
        ("{\"id\": 2.5, \"text\": \"x\"}", "the field \"id\" is a number, expected a string or an integer"),
        ("{\"id\": \"2\", \"text\": [\"x\"]}", "the field \"text\" is a list, expected a string"),
        ("{\"id\": \"1\", \"text\": \"y\"}", "the doc_id \"1\" occurred before"),
    ] {
        let error = bad(line);
        assert!(error.contains("c.jsonl: line 3: ") && error.contains(expected), "{error}");
    }
    let error = error_of(b"{\"id\": \"1\", \"text\": \"x\"}\n{\"id\": \"\xff\"}\n");
    assert!(error.contains("c.jsonl: line 2: not UTF-8: the byte at offset 8"), "{error}");
}

#[test]
fn the_stream_ends_after_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.jsonl");
    fs::write(&file, "x\n{\"id\": \"1\", \"text\": \"x\"}\n").unwrap();
    let mut documents = corpus::read(CorpusFormat::Jsonl, &[file]).unwrap();
    assert!(documents.next().unwrap().is_err());
    assert!(documents.next().is_none());
}

#[test]
fn the_real_factbook_becomes_clean_unique_documents() {
    let Some(dir) = set_up("corpora/factbook") else { return };
    let entities = factbook::read_entities(&dir).unwrap();
    assert!(entities.len() >= 250, "{} entities", entities.len());
    let names: HashSet<&str> = entities.iter().map(|entity| entity.name.as_str()).collect();
    assert_eq!(names.len(), entities.len());
    for name in
        ["Switzerland", "European Union", "World", "Svalbard", "Central African Republic", "Côte d'Ivoire"]
    {
        assert!(names.contains(name), "{name}");
    }
    let documents: Vec<Document> =
        corpus::read(CorpusFormat::Factbook, &[dir]).unwrap().map(Result::unwrap).collect();
    assert!(documents.len() > 30_000, "{} documents", documents.len());
    let markup = regex::Regex::new(r"</?[a-zA-Z][^<]*>|&[a-zA-Z]+;|&#\d+;|\x{a0}|\x{200b}").unwrap();
    for document in &documents {
        assert!(!document.text.trim().is_empty() && !markup.is_match(&document.text), "{document:?}");
        assert!(document.title.contains(" – "), "{document:?}");
    }
    let entity = entities.iter().find(|entity| entity.name == "Switzerland").unwrap();
    let elevation = entity.field("Geography", "Elevation").unwrap();
    assert_eq!(elevation.part("highest point"), Some("Dufourspitze on Monte Rosa 4,634 m"));
    assert_eq!(elevation.doc_id(entity), "factbook/sz/geography/elevation");
}

#[test]
fn real_corpora_are_read_whole() {
    for (place, expected) in [("scifact/corpus.jsonl.zst", 5183), ("wiki/corpus.jsonl.zst", 39_175)] {
        let Some(path) = real_data(place) else { continue };
        let documents =
            corpus::read(CorpusFormat::Jsonl, &[path]).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(documents.len(), expected, "{place}");
        let urls: HashSet<&str> = documents.iter().map(|document| document.url.as_str()).collect();
        assert_eq!(urls.len(), expected, "{place}");
    }
}

#[test]
fn passages_of_one_page_get_addresses_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.jsonl");
    let line = |id: &str, url: &str| format!("{{\"id\": \"{id}\", \"url\": \"{url}\", \"text\": \"x\"}}\n");
    fs::write(&file, line("1", "u") + &line("2", "u") + &line("3", "v")).unwrap();
    let documents = read(&[&file]).unwrap();
    let urls: Vec<&str> = documents.iter().map(|document| document.url.as_str()).collect();
    assert_eq!(urls, ["u", "u#2", "v"]);
    assert_eq!(documents[1].extra["page_url"], "u");
    fs::write(&file, line("1", "u") + &line("3", "u#2") + &line("2", "u")).unwrap();
    let error = read(&[&file]).unwrap_err().to_string();
    assert!(error.contains("line 3: the url \"u#2\" occurred before"), "{error}");
}

//! Index folders: reproducible, atomic, checked; every fault has its own error.

use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use drgym_search::index::{self, build_with_encoder};
use drgym_search::{BertEncoder, Chunking, CorpusError, EncoderError, FlatIndex, IndexError, LocalBackend};
use proptest::prelude::*;

use crate::support::{CORPUS, WordEncoder, build, request};

#[test]
fn the_same_corpus_gives_the_same_index_anywhere() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, out) = build(one.path(), CORPUS).unwrap();
    let (second, _) = build(two.path(), CORPUS).unwrap();
    assert_eq!(first.hash, second.hash);
    assert_eq!((first.documents, first.chunks), (3, 7));
    let info = index::info(&out).unwrap();
    assert_eq!(info.hash, first.hash);
    assert_eq!(index::verify(&out).unwrap(), []);
    let (other, _) = {
        let dir = tempfile::tempdir().unwrap();
        build(dir.path(), &CORPUS.replace("north", "south")).unwrap()
    };
    assert_ne!(first.hash, other.hash);
}

#[test]
fn documents_are_found_by_number_identifier_and_address() {
    let dir = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (0..500)
        .map(|i| format!(r#"{{"id": "d{i}", "url": "http://x/{i}", "text": "text {i}", "n": {i}}}"#))
        .collect();
    let (_, out) = build(dir.path(), &lines.join("\n")).unwrap();
    let index = FlatIndex::open(&out).unwrap();
    let documents = index.documents();
    assert_eq!(documents.len(), 500);
    for i in 0..500 {
        let document = documents.get(i).unwrap();
        assert_eq!((document.doc_id.clone(), &document.extra["n"]), (format!("d{i}"), &serde_json::json!(i)));
        assert_eq!(documents.by_doc_id(&format!("d{i}")).unwrap(), Some((i, document.clone())));
        assert_eq!(documents.by_url(&format!("http://x/{i}")).unwrap(), Some((i, document)));
    }
    assert_eq!(documents.by_doc_id("d500").unwrap(), None);
    assert!(matches!(documents.get(500), Err(IndexError::Damaged { .. })));
}

#[test]
fn chunks_cover_the_text_and_limits_hold() {
    let dir = tempfile::tempdir().unwrap();
    let (_, out) = build(dir.path(), CORPUS).unwrap();
    let index = FlatIndex::open(&out).unwrap();
    let text = index.documents().get(1).unwrap().text;
    let chunks: Vec<&str> = (1..=4).map(|chunk| &text[index.chunk_range(chunk)]).collect();
    assert_eq!(chunks.join(" "), text);
    assert!(chunks.iter().all(|chunk| chunk.split_whitespace().count() <= 8), "{chunks:?}");

    let limited = dir.path().join("limited");
    let mut request = request(&dir.path().join("corpus.jsonl"), &limited);
    (request.limit, request.chunking) = (Some(2), Chunking::None);
    let summary = build_with_encoder(&request, &WordEncoder::new("w1"), &|_| ()).unwrap();
    assert_eq!((summary.documents, summary.chunks), (2, 2));
}

#[test]
fn progress_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = dir.path().join("c.jsonl");
    let lines: Vec<String> = (0..600).map(|i| format!(r#"{{"id": {i}, "text": "t"}}"#)).collect();
    fs::write(&corpus, lines.join("\n")).unwrap();
    let told = std::cell::RefCell::new(Vec::new());
    let note = |progress: index::Progress| told.borrow_mut().push(progress.documents);
    build_with_encoder(&request(&corpus, &dir.path().join("i")), &WordEncoder::new("w"), &note).unwrap();
    assert_eq!(told.into_inner(), [512, 600]);
}

#[test]
fn a_target_that_exists_is_kept_unless_overwriting_an_index() {
    let dir = tempfile::tempdir().unwrap();
    let (first, out) = build(dir.path(), CORPUS).unwrap();
    let encoder = WordEncoder::new("w1");
    let corpus = dir.path().join("corpus.jsonl");
    let mut request = request(&corpus, &out);
    assert!(matches!(build_with_encoder(&request, &encoder, &|_| ()), Err(IndexError::Exists { .. })));

    // A faulty corpus leaves the old index as it was, and nothing beside it.
    request.overwrite = true;
    fs::write(&corpus, format!("{CORPUS}broken\n")).unwrap();
    let error = build_with_encoder(&request, &encoder, &|_| ()).unwrap_err();
    assert!(matches!(error, IndexError::Corpus(CorpusError::NotJson { line: 4, .. })), "{error}");
    assert_eq!(index::info(&out).unwrap().hash, first.hash);
    assert_eq!(names(dir.path()), ["corpus.jsonl", "index"]);

    fs::write(&corpus, CORPUS.replace("north", "south")).unwrap();
    let second = build_with_encoder(&request, &encoder, &|_| ()).unwrap();
    assert_eq!(index::info(&out).unwrap().hash, second.hash);
    assert_eq!(index::verify(&out).unwrap(), []);
    assert_eq!(names(dir.path()), ["corpus.jsonl", "index"]);

    let foreign = dir.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.txt"), "x").unwrap();
    request.out.clone_from(&foreign);
    assert!(matches!(
        build_with_encoder(&request, &encoder, &|_| ()),
        Err(IndexError::NotOverwritten { .. })
    ));
    assert_eq!(names(&foreign), ["thesis.txt"]);
}

/// What a killed build leaves behind is never taken for an index, and does not hinder the next build.
#[test]
fn a_killed_build_leaves_no_index() {
    let dir = tempfile::tempdir().unwrap();
    let left = dir.path().join(".index.part-x1");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("documents.jsonl"), "{\"doc_id\"").unwrap();
    fs::write(left.join("vectors.f32"), [0; 7]).unwrap();
    assert!(matches!(FlatIndex::open(&left), Err(IndexError::NotAnIndex { .. })));
    assert!(matches!(FlatIndex::open(&dir.path().join("index")), Err(IndexError::NotAnIndex { .. })));
    let (_, out) = build(dir.path(), CORPUS).unwrap();
    assert_eq!(index::verify(&out).unwrap(), []);
    assert_eq!(names(dir.path()), ["corpus.jsonl", "index"], "the next build removes what was left");
}

#[test]
fn an_empty_corpus_is_an_error_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(build(dir.path(), "\n\n"), Err(IndexError::EmptyCorpus)));
    assert_eq!(names(dir.path()), ["corpus.jsonl"]);
}

#[test]
fn a_missing_encoder_is_told_before_anything_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let request = request(Path::new("nonexistent.jsonl"), &dir.path().join("index"));
    let error = index::build(&request, &|_| ()).unwrap_err();
    assert!(matches!(error, IndexError::Encoder(EncoderError::Missing { .. })), "{error}");

    let (_, out) = build(dir.path(), CORPUS).unwrap();
    let error = LocalBackend::open(&out, None, None).err().unwrap();
    assert!(matches!(error, IndexError::EncoderNotFound { .. }), "{error}");
    assert!(error.to_string().contains("needs the encoder words"), "{error}");
}

#[test]
fn the_wrong_encoder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_, out) = build(dir.path(), CORPUS).unwrap();
    let open = |fingerprint| {
        LocalBackend::new(FlatIndex::open(&out).unwrap(), Arc::new(WordEncoder::new(fingerprint)))
    };
    assert!(open("w1").is_ok());
    let error = open("w2").err().unwrap();
    assert!(matches!(error, IndexError::WrongEncoder { .. }));
    assert!(
        error.to_string().contains("fingerprint w1") && error.to_string().contains("fingerprint w2"),
        "{error}"
    );
}

#[test]
fn newer_foreign_and_truncated_folders_have_their_own_errors() {
    let dir = tempfile::tempdir().unwrap();
    let (_, out) = build(dir.path(), CORPUS).unwrap();
    let manifest = out.join("manifest.json");
    let original = fs::read_to_string(&manifest).unwrap();
    let error_with = |content: &str| {
        fs::write(&manifest, content).unwrap();
        FlatIndex::open(&out).err().unwrap()
    };
    let newer = error_with(&original.replace("\"version\": 1", "\"version\": 2"));
    assert!(matches!(newer, IndexError::NewerVersion { found: 2, known: 1, .. }), "{newer}");
    let foreign = error_with("{\"name\": \"a web page\"}");
    assert!(matches!(foreign, IndexError::Manifest { .. }), "{foreign}");
    let unknown = error_with(&original.replacen('{', "{\"speed\": 1,", 1));
    assert!(matches!(unknown, IndexError::Manifest { .. }), "{unknown}");
    fs::write(&manifest, &original).unwrap();

    for name in ["vectors.f32", "documents.jsonl", "documents.ids", "chunks.table", "documents.rank"] {
        let path = out.join(name);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        let error = FlatIndex::open(&out).err().unwrap();
        assert!(matches!(error, IndexError::Size { .. }) && error.to_string().contains(name), "{error}");
        fs::remove_file(&path).unwrap();
        let error = FlatIndex::open(&out).err().unwrap();
        assert!(error.to_string().contains("found no file"), "{error}");
        let corruption = index::verify(&out).unwrap();
        assert_eq!(corruption.iter().map(|found| found.file.as_str()).collect::<Vec<_>>(), [name]);
        fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(index::verify(&out).unwrap(), []);
}

static INDEX: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    build(dir.path(), CORPUS).unwrap();
    dir
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn verify_finds_any_flipped_bit(file in any::<prop::sample::Index>(), byte in any::<prop::sample::Index>(), bit in 0u8..8) {
        let dir = tempfile::tempdir().unwrap();
        let source = INDEX.path().join("index");
        let files = names(&source);
        for name in &files {
            fs::copy(source.join(name), dir.path().join(name)).unwrap();
        }
        let name = &files[file.index(files.len())];
        let path = dir.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        let at = byte.index(bytes.len());
        bytes[at] ^= 1 << bit;
        fs::write(&path, bytes).unwrap();
        let found = index::verify(dir.path()).unwrap();
        prop_assert!(!found.is_empty(), "bit {bit} of byte {at} of {name} was not missed");
        // A flipped bit in the hash of the manifest shows as a manifest that does not fit its hash.
        let told = found.iter().any(|corruption| &corruption.file == name || name == "manifest.blake3");
        prop_assert!(told, "{found:?} does not name {name}");
    }
}

#[test]
fn a_real_encoder_builds_and_reopens_by_itself() {
    let Some(model) = crate::support::set_up("models/all-minilm-l6-v2") else { return };
    let dir = tempfile::tempdir().unwrap();
    let corpus = dir.path().join("corpus.jsonl");
    fs::write(&corpus, CORPUS).unwrap();
    let mut request = request(&corpus, &dir.path().join("index"));
    request.encoder.clone_from(&model);
    index::build(&request, &|_| ()).unwrap();
    let backend = LocalBackend::open(&request.out, None, request.encoder_options.threads).unwrap();
    let found = tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(drgym_search::SearchBackend::search(&backend, "What is the biggest lake?", 2))
        .unwrap();
    assert_eq!(found.hits[0].doc_id, "c");
    assert!(BertEncoder::load(&model, &request.encoder_options).is_ok());
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

//! The encoder against PyTorch, and a query's independence of its company.

use std::path::Path;

use drgym_search::encoder::{BertEncoder, Encoder, EncoderError, EncoderOptions, Pooling};
use serde::Deserialize;

use crate::support::set_up;

const MODEL: &str = "models/all-minilm-l6-v2";

#[derive(Deserialize)]
struct Golden {
    text: String,
    tokens: usize,
    vector: Vec<f32>,
}

/// Made by scripts/golden/search_encoder.py with transformers and torch.
fn golden() -> Vec<Golden> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/encoder_golden.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn assert_close(vector: &[f32], expected: &[f32], text: &str) {
    assert_eq!(vector.len(), expected.len());
    for (i, (x, e)) in vector.iter().zip(expected).enumerate() {
        assert!((x - e).abs() < 1e-5, "component {i} of {text:?}: {x}, expected {e}");
    }
}

#[test]
fn vectors_agree_with_pytorch() {
    let Some(dir) = set_up(MODEL) else { return };
    let encoder = BertEncoder::load(&dir, &EncoderOptions::default()).unwrap();
    assert_eq!((encoder.dimension(), encoder.max_tokens()), (384, 254));
    let golden = golden();
    let texts: Vec<&str> = golden.iter().map(|golden| golden.text.as_str()).collect();
    let vectors = encoder.encode_documents(&texts).unwrap();
    for (golden, vector) in golden.iter().zip(vectors.chunks_exact(384)) {
        assert_close(vector, &golden.vector, &golden.text);
        assert_close(&encoder.encode_query(&golden.text).unwrap(), &golden.vector, &golden.text);
        // Two special tokens; a longer text is cut to 256.
        let tokens = encoder.token_ranges(&golden.text).unwrap().len() + 2;
        assert_eq!(tokens.min(256), golden.tokens, "{:?}", golden.text);
    }
}

#[test]
fn a_query_never_depends_on_its_company() {
    let Some(dir) = set_up(MODEL) else { return };
    let options = |threads| EncoderOptions { threads: Some(threads), ..EncoderOptions::default() };
    let one = BertEncoder::load(&dir, &options(1)).unwrap();
    let three = BertEncoder::load(&dir, &options(3)).unwrap();
    let alone = one.encode_query("Which river flows through Basel?").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..5 {
                    assert_eq!(three.encode_query("Which river flows through Basel?").unwrap(), alone);
                }
            });
        }
    });
    let texts: Vec<String> = (0..40).map(|i| format!("text {i} {}", "and on ".repeat(i * 4))).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let bits = |encoder: &BertEncoder| -> Vec<u32> {
        encoder.encode_documents(&texts).unwrap().into_iter().map(f32::to_bits).collect()
    };
    assert_eq!(bits(&one), bits(&three));
}

#[test]
fn settings_change_the_fingerprint_and_threads_do_not() {
    let Some(dir) = set_up(MODEL) else { return };
    let fingerprint =
        |options: EncoderOptions| BertEncoder::load(&dir, &options).unwrap().identity().fingerprint.clone();
    let plain = fingerprint(EncoderOptions::default());
    assert_eq!(plain, fingerprint(EncoderOptions { threads: Some(1), ..EncoderOptions::default() }));
    for changed in [
        EncoderOptions { pooling: Some(Pooling::Cls), ..EncoderOptions::default() },
        EncoderOptions { max_sequence: Some(128), ..EncoderOptions::default() },
        EncoderOptions { query_prefix: Some("query: ".to_owned()), ..EncoderOptions::default() },
    ] {
        assert_ne!(plain, fingerprint(changed));
    }
}

#[test]
fn a_prefix_is_put_before_the_text_and_counts_as_tokens() {
    let Some(dir) = set_up(MODEL) else { return };
    let plain = BertEncoder::load(&dir, &EncoderOptions::default()).unwrap();
    let options = EncoderOptions {
        query_prefix: Some("query: ".to_owned()),
        passage_prefix: Some("passage: ".to_owned()),
        ..EncoderOptions::default()
    };
    let prefixed = BertEncoder::load(&dir, &options).unwrap();
    assert_eq!(prefixed.encode_query("x").unwrap(), plain.encode_query("query: x").unwrap());
    assert_eq!(prefixed.encode_documents(&["x"]).unwrap(), plain.encode_documents(&["passage: x"]).unwrap());
    assert_eq!(prefixed.max_tokens(), plain.max_tokens() - 2);
}

#[test]
fn a_folder_without_an_encoder_is_told_apart_from_a_damaged_one() {
    let load = |dir: &Path| BertEncoder::load(dir, &EncoderOptions::default()).err().unwrap();
    assert!(matches!(load(Path::new("/nonexistent")), EncoderError::Missing { .. }));
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(load(dir.path()), EncoderError::Read { .. }));
    std::fs::write(dir.path().join("config.json"), "{}").unwrap();
    assert!(matches!(load(dir.path()), EncoderError::Malformed { .. }));

    let Some(model) = set_up(MODEL) else { return };
    let config = std::fs::read_to_string(model.join("config.json")).unwrap();
    std::fs::write(dir.path().join("config.json"), config.replace("\"bert\"", "\"llama\"")).unwrap();
    let error = load(dir.path()).to_string();
    assert!(error.contains("model_type is llama, supported: bert"), "{error}");
    for file in ["modules.json", "tokenizer.json", "sentence_bert_config.json", "1_Pooling/config.json"] {
        std::fs::create_dir_all(dir.path().join("1_Pooling")).unwrap();
        std::fs::copy(model.join(file), dir.path().join(file)).unwrap();
    }
    std::fs::write(
        dir.path().join("config.json"),
        config.replace("\"num_hidden_layers\": 6", "\"num_hidden_layers\": 7"),
    )
    .unwrap();
    std::fs::copy(model.join("model.safetensors"), dir.path().join("model.safetensors")).unwrap();
    let error = load(dir.path()).to_string();
    assert!(error.contains("encoder.layer.6.") && error.contains("found none"), "{error}");
    let weights = std::fs::read(model.join("model.safetensors")).unwrap();
    std::fs::write(dir.path().join("model.safetensors"), &weights[..weights.len() / 2]).unwrap();
    assert!(matches!(load(dir.path()), EncoderError::Malformed { .. }));
}

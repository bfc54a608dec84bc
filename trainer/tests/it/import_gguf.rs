//! Import of GGUF files: numbers against the gguf package, a whole model against transformers' own GGUF loader.

use std::path::Path;
use std::sync::Arc;

use drgym_env::{EpisodeKey, OpenRequest, Policy, SamplingParams};
use drgym_trainer::import::dequantise::StoredType;
use drgym_trainer::import::{ImportError, ImportOptions, import_gguf};
use drgym_trainer::model::{Decoder, LoadOptions, ModelError, ModelFolder, ModelThread};
use drgym_trainer::sampler::{LocalPolicy, LocalPolicyOptions, TokenBytes};
use serde_json::Value;

use super::model_support::{data, difference, set_up_folder, tiny};

fn golden(name: &str) -> Value {
    let text = std::fs::read_to_string(data(name)).expect("the golden file is there");
    serde_json::from_str(&text).expect("it is JSON")
}

fn bytes_of(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("text");
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex")).collect()
}

fn ids_of(value: &Value) -> Vec<u32> {
    value.as_array().expect("a list").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

#[test]
fn every_stored_type_gives_the_numbers_that_the_gguf_package_gives() {
    let golden = golden("model_dequantise.json");
    let types = (0..64).filter_map(StoredType::from_code).filter(|stored| stored.name() != "F32");
    let mut seen = 0;
    for stored in types {
        let entry = &golden[stored.name()];
        let found = stored.dequantise(&bytes_of(&entry["bytes"]));
        let expected: Vec<f32> = bytes_of(&entry["f32"])
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four")))
            .collect();
        assert_eq!(found, expected, "{}", stored.name());
        seen += 1;
    }
    assert_eq!(seen, golden.as_object().expect("an object").len());
}

/// A GGUF writer for tests: metadata and tensors as raw parts.
#[derive(Default)]
struct Gguf {
    metadata: Vec<u8>,
    entries: u64,
    table: Vec<u8>,
    tensors: u64,
    data: Vec<u8>,
}

impl Gguf {
    fn text(bytes: &mut Vec<u8>, text: &str) {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }

    fn entry(&mut self, key: &str, kind: u32, value: &[u8]) -> &mut Self {
        Self::text(&mut self.metadata, key);
        self.metadata.extend(kind.to_le_bytes());
        self.metadata.extend(value);
        self.entries += 1;
        self
    }

    fn string(&mut self, key: &str, text: &str) -> &mut Self {
        let mut value = Vec::new();
        Self::text(&mut value, text);
        self.entry(key, 8, &value)
    }

    fn strings(&mut self, key: &str, texts: &[String]) -> &mut Self {
        let mut value = 8u32.to_le_bytes().to_vec();
        value.extend((texts.len() as u64).to_le_bytes());
        for text in texts {
            Self::text(&mut value, text);
        }
        self.entry(key, 9, &value)
    }

    fn tensor(&mut self, name: &str, shape: &[i64], values: &[f32]) {
        Self::text(&mut self.table, name);
        self.table.extend((shape.len() as u32).to_le_bytes());
        for size in shape.iter().rev() {
            self.table.extend((*size as u64).to_le_bytes());
        }
        self.table.extend(0u32.to_le_bytes());
        self.table.extend((self.data.len() as u64).to_le_bytes());
        self.tensors += 1;
        self.data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self.data.resize(self.data.len().next_multiple_of(32), 0);
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(self.tensors.to_le_bytes());
        bytes.extend(self.entries.to_le_bytes());
        bytes.extend(&self.metadata);
        bytes.extend(&self.table);
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend(&self.data);
        bytes
    }
}

/// The tiny llama as GGUF, the rows of its query and key matrices in GGUF's order.
fn tiny_gguf() -> Gguf {
    let decoder = tiny("llama");
    let config = decoder.config();
    let mut file = Gguf::default();
    let count = |number: usize| (number as u32).to_le_bytes();
    file.string("general.architecture", "llama")
        .entry("llama.block_count", 4, &count(config.layers))
        .entry("llama.context_length", 4, &count(config.context_length))
        .entry("llama.embedding_length", 4, &count(config.hidden_size))
        .entry("llama.feed_forward_length", 4, &count(config.intermediate_size))
        .entry("llama.attention.head_count", 4, &count(config.heads))
        .entry("llama.attention.head_count_kv", 4, &count(config.kv_heads))
        .entry("llama.attention.layer_norm_rms_epsilon", 6, &1e-5f32.to_le_bytes())
        .entry("tokenizer.ggml.eos_token_id", 4, &count(2))
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", "smollm");
    let tokens: Vec<String> = (0..config.vocab_size as u32)
        .map(|id| {
            if id == 47 {
                "ab".into()
            } else {
                char::from_u32(0x61 + id).map_or_else(String::new, String::from)
            }
        })
        .collect();
    file.strings("tokenizer.ggml.tokens", &tokens).strings("tokenizer.ggml.merges", &["a b".to_owned()]);
    for (name, tensor) in decoder.parameters().iter() {
        let renamed = name
            .replace("model.embed_tokens", "token_embd")
            .replace("model.norm", "output_norm")
            .replace("lm_head", "output")
            .replace("model.layers", "blk")
            .replace("input_layernorm", "attn_norm")
            .replace("post_attention_layernorm", "ffn_norm")
            .replace("self_attn.o_proj", "attn_output")
            .replace("self_attn.q_proj", "attn_q")
            .replace("self_attn.k_proj", "attn_k")
            .replace("self_attn.v_proj", "attn_v")
            .replace("mlp.gate_proj", "ffn_gate")
            .replace("mlp.up_proj", "ffn_up")
            .replace("mlp.down_proj", "ffn_down");
        let size = tensor.size();
        let heads = match () {
            () if name.contains("q_proj") => Some(config.heads as i64),
            () if name.contains("k_proj") => Some(config.kv_heads as i64),
            () => None,
        };
        // llama.cpp's converter: [heads, 2, d/2, in] → [heads, d/2, 2, in].
        let stored = match heads {
            Some(heads) => {
                tensor.view([heads, 2, size[0] / heads / 2, size[1]]).transpose(1, 2).reshape(&size)
            }
            None => tensor.shallow_clone(),
        };
        let values: Vec<f32> = Vec::try_from(stored.reshape([-1])).expect("numbers");
        file.tensor(&renamed, &size, &values);
    }
    file
}

fn import_bytes(bytes: &[u8]) -> (tempfile::TempDir, Result<(), ImportError>) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("written");
    let result = import_gguf(&path, &dir.path().join("out"), ImportOptions::default()).map(|_| ());
    (dir, result)
}

#[test]
fn an_imported_model_has_the_weights_it_was_made_of() {
    let (dir, result) = import_bytes(&tiny_gguf().bytes());
    result.expect("imported");
    let out = dir.path().join("out");
    let imported = Decoder::load(&out, LoadOptions::default()).expect("loaded");
    for ((name, left), (_, right)) in tiny("llama").parameters().iter().zip(imported.parameters().iter()) {
        assert_eq!(difference(left, right), 0.0, "{name}");
    }
    assert_eq!(imported.config().rms_norm_eps, 1e-5);
    assert_eq!(ModelFolder::open(&out).expect("opened").eos_token_ids, [2]);
    let tokenizer = tokenizers::Tokenizer::from_file(out.join("tokenizer.json")).expect("it loads");
    assert_eq!(tokenizer.encode("abba", false).expect("encoded").get_ids(), [47, 1, 0]);
    let gguf = dir.path().join("model.gguf");
    let again = |overwrite: bool| {
        import_gguf(&gguf, &out, ImportOptions { overwrite, ..ImportOptions::default() })
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let error = again(false).expect_err("the place is occupied");
    assert!(error.ends_with("exists already"), "{error}");
    again(true).expect("an earlier import is replaced");
    std::fs::write(out.join("notes.md"), "mine").expect("written");
    let error = again(true).expect_err("the notes would be lost");
    assert!(error.contains("or besides"), "{error}");
    let names = std::fs::read_dir(dir.path()).expect("listed").count();
    assert_eq!(names, 2, "the file and the model, nothing unfinished");
}

#[test]
fn a_file_cut_anywhere_is_an_error_and_leaves_nothing() {
    let whole = tiny_gguf().bytes();
    for cut in (0..whole.len()).step_by(977).chain([whole.len() - 33]) {
        let (dir, result) = import_bytes(&whole[..cut]);
        assert!(result.is_err(), "cut at {cut}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1, "cut at {cut}");
    }
}

#[test]
fn what_cannot_be_imported_is_said() {
    let message = |file: &Gguf| {
        let (dir, result) = import_bytes(&file.bytes());
        result.expect_err("it cannot").to_string().replace(&dir.path().display().to_string(), "DIR")
    };
    let mut other = Gguf::default();
    other.string("general.architecture", "mamba");
    let expected = "DIR/model.gguf: architecture \"mamba\" cannot be imported; supported: llama";
    assert_eq!(message(&other), expected);

    let mut scaled = tiny_gguf();
    scaled.string("llama.rope.scaling.type", "yarn");
    assert_eq!(message(&scaled), "DIR/model.gguf: rope scaling \"yarn\" cannot be imported; supported: none");

    let mut surplus = tiny_gguf();
    surplus.tensor("blk.0.attn_q.bias", &[16], &[0.0; 16]);
    let expected = "DIR/model.gguf: tensor \"blk.0.attn_q.bias\" cannot be imported; supported: those of llama models \
                    without biases";
    assert_eq!(message(&surplus), expected);

    let mut typed = tiny_gguf();
    let at = typed.table.len();
    typed.tensor("strange", &[32], &[0.0; 32]);
    // The type follows the name (8 + 7 bytes), the dimension count and one dimension.
    typed.table[at + 8 + 7 + 4 + 8] = 16;
    let message = message(&typed);
    assert!(
        message.starts_with("DIR/model.gguf: the type of tensor strange \"ggml type 16\" cannot be imported")
    );

    let (_, result) = import_bytes(b"GGML and more");
    assert!(
        result.expect_err("it cannot").to_string().ends_with("expected the magic GGUF: this is no GGUF file")
    );
}

#[test]
fn the_imported_tokenizer_equals_that_of_transformers() {
    let Some(folder) = set_up_folder("models/smollm2-135m-instruct") else { return };
    let tokenizer = tokenizers::Tokenizer::from_file(folder.join("tokenizer.json")).expect("it loads");
    let bytes = TokenBytes::from_file(&folder.join("tokenizer.json")).expect("it loads");
    for entry in golden("model_import.json")["strings"].as_array().expect("a list") {
        let text = entry["text"].as_str().expect("text");
        let ids = ids_of(&entry["ids"]);
        assert_eq!(tokenizer.encode(text, false).expect("encoded").get_ids(), ids, "{text:?}");
        assert_eq!(tokenizer.encode(text, true).expect("encoded").get_ids(), ids, "{text:?}");
        let joined: Vec<u8> = ids.iter().flat_map(|&id| bytes.get(id).to_vec()).collect();
        assert_eq!(String::from_utf8(joined).expect("UTF-8"), text);
    }
}

#[tokio::test]
async fn greedy_continuations_equal_those_of_transformers() {
    let Some(folder) = set_up_folder("models/smollm2-135m-instruct") else { return };
    let golden = golden("model_import.json");
    let policy = real_policy(&folder);
    for entry in golden["greedy"].as_array().expect("a list") {
        let episode = EpisodeKey { task: "greedy".into(), sample: 0 };
        let request = OpenRequest { prompt_ids: ids_of(&entry["prompt_ids"]), episode, turn: 0 };
        let session = policy.open(request).await.expect("opened");
        let params = SamplingParams { temperature: 0.0, max_tokens: 24, stop: Vec::new(), seed: 0 };
        let sampled = policy.sample(session, params).await.expect("sampled");
        assert_eq!(sampled.ids, ids_of(&entry["ids"]), "{}", entry["text"]);
        policy.close(session).await;
    }
}

fn real_policy(folder: &Path) -> LocalPolicy {
    let decoder = Decoder::load(folder, LoadOptions::default()).expect("loaded");
    let (handle, ()) = ModelThread::spawn(2, || Ok::<_, ModelError>((decoder, ()))).expect("spawned");
    let folder = ModelFolder::open(folder).expect("opened");
    let bytes = TokenBytes::from_file(&folder.tokenizer_path()).expect("it loads");
    let options = LocalPolicyOptions::for_folder(&folder, &bytes);
    LocalPolicy::new(handle, Arc::new(bytes), options).expect("installed")
}

//! A small encoder without weights, a small corpus, and the places of real data.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drgym_search::encoder::{Encoder, EncoderError, EncoderIdentity, EncoderOptions};
use drgym_search::index::{BuildRequest, BuildSummary, IndexError, build_with_encoder};
use drgym_search::{Chunking, CorpusFormat, FlatIndex, LocalBackend};

pub const DIMENSION: usize = 48;

/// Counts of words, hashed into a vector of unit length: texts that share words are close.
pub struct WordEncoder(EncoderIdentity);

impl WordEncoder {
    pub fn new(fingerprint: &str) -> Self {
        Self(EncoderIdentity {
            name: "words".to_owned(),
            fingerprint: fingerprint.to_owned(),
            dimension: DIMENSION,
            max_tokens: 64,
            overrides: drgym_search::EncoderOptions::default(),
        })
    }

    fn encode(text: &str) -> Vec<f32> {
        let mut vector = [0.0f32; DIMENSION];
        for word in text.split_whitespace() {
            let hash = blake3::hash(word.to_lowercase().as_bytes());
            vector[hash.as_bytes()[0] as usize % DIMENSION] += 1.0;
        }
        let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt().max(1.0);
        vector.iter().map(|x| x / norm).collect()
    }
}

impl Encoder for WordEncoder {
    fn identity(&self) -> &EncoderIdentity {
        &self.0
    }

    fn encode_query(&self, query: &str) -> Result<Vec<f32>, EncoderError> {
        Ok(Self::encode(query))
    }

    fn encode_documents(&self, texts: &[&str]) -> Result<Vec<f32>, EncoderError> {
        Ok(texts.iter().flat_map(|text| Self::encode(text)).collect())
    }

    fn token_ranges(&self, text: &str) -> Result<Vec<Range<usize>>, EncoderError> {
        let start = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
        Ok(text.split_whitespace().map(|word| start(word)..start(word) + word.len()).collect())
    }
}

/// Three documents; the second is long enough for several chunks of 8 words.
pub const CORPUS: &str = concat!(
    r#"{"id": "b", "url": "http://example.org/b?x=1&y=ü", "title": "Rivers", "text": "The Rhine flows north.", "language": "en", "score": 0.5}"#,
    "\n",
    r#"{"id": "a", "url": "http://example.org/a", "title": "Mountains", "text": "The Alps are high and the Dufourspitze is the highest of the Swiss peaks while Mont Blanc is higher still and lies in France and Italy."}"#,
    "\n",
    r#"{"id": "c", "title": "", "text": "Lakes are deep.\nLake Geneva is the largest one."}"#,
    "\n",
);

pub fn request(corpus: &Path, out: &Path) -> BuildRequest {
    BuildRequest {
        corpus: vec![corpus.to_owned()],
        format: CorpusFormat::Jsonl,
        encoder: PathBuf::from("nowhere"),
        encoder_options: EncoderOptions::default(),
        chunking: Chunking::Tokens(8),
        out: out.to_owned(),
        overwrite: false,
        limit: None,
    }
}

/// Writes a corpus into `dir` and builds an index of it there.
pub fn build(dir: &Path, corpus: &str) -> Result<(BuildSummary, PathBuf), IndexError> {
    let file = dir.join("corpus.jsonl");
    std::fs::write(&file, corpus).unwrap();
    let out = dir.join("index");
    let summary = build_with_encoder(&request(&file, &out), &WordEncoder::new("w1"), &|_| ())?;
    Ok((summary, out))
}

/// A backend over the small corpus; the folder must outlive it.
pub fn backend() -> (tempfile::TempDir, LocalBackend) {
    let dir = tempfile::tempdir().unwrap();
    let (_, out) = build(dir.path(), CORPUS).unwrap();
    let index = FlatIndex::open(&out).unwrap();
    let backend = LocalBackend::new(index, Arc::new(WordEncoder::new("w1"))).unwrap();
    (dir, backend)
}

/// Says that a test did not run, and why.
#[expect(clippy::print_stdout, reason = "whoever reads the test's output must see that it proved nothing")]
fn skip(needs: &str) {
    println!("skipped: needs {needs}");
}

/// A place under `$DRGYM_HOME`, or nothing with a word about it.
pub fn set_up(place: &str) -> Option<PathBuf> {
    let home = std::env::var_os("DRGYM_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/drgym")))?;
    let path = home.join(place);
    if path.exists() {
        return Some(path);
    }
    skip(&format!("{place} under DRGYM_HOME"));
    None
}

/// A place in the folder of real data, or nothing with a word about it.
pub fn real_data(place: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let data = std::env::var_os("DRGYM_DATA").map_or_else(|| root.join("../shared/data"), PathBuf::from);
    let path = data.join(place);
    if path.exists() {
        return Some(path);
    }
    skip(&format!("{place} under DRGYM_DATA"));
    None
}

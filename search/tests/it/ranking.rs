//! The order of results, against a search written the obvious way.

use std::collections::BTreeMap;
use std::sync::Arc;

use drgym_search::encoder::Encoder;
use drgym_search::{FlatIndex, SearchBackend};
use proptest::prelude::*;

use crate::support::{WordEncoder, backend, build};

const WORDS: [&str; 6] = ["alpha", "beta", "gamma", "delta", "lake", "hill"];

/// Documents of few different words, so that equal scores are common.
fn corpora() -> impl Strategy<Value = Vec<(u32, Vec<usize>)>> {
    let words = prop::collection::vec(0..WORDS.len(), 1..30);
    prop::collection::btree_map(0u32..1000, words, 1..25)
        .prop_map(|documents| documents.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn search_collapses_chunks_and_orders_by_score_then_identifier(
        mut documents in corpora(),
        query in prop::collection::vec(0..WORDS.len(), 1..4),
        k in 1usize..30,
        rotation in any::<prop::sample::Index>(),
    ) {
        // The order of the corpus must not matter.
        let by = rotation.index(documents.len());
        documents.rotate_left(by);
        let text = |words: &[usize]| words.iter().map(|&word| WORDS[word]).collect::<Vec<_>>().join(" ");
        let lines: Vec<String> =
            documents.iter().map(|(id, words)| format!(r#"{{"id": "{id}", "text": "{}"}}"#, text(words))).collect();
        let dir = tempfile::tempdir().unwrap();
        let (_, out) = build(dir.path(), &lines.join("\n")).unwrap();
        let index = FlatIndex::open(&out).unwrap();
        let encoder = WordEncoder::new("w1");
        let query = encoder.encode_query(&text(&query)).unwrap();

        let mut best: BTreeMap<String, f32> = BTreeMap::new();
        for (id, words) in &documents {
            for chunk in words.chunks(8) {
                let vector = encoder.encode_documents(&[&text(chunk)]).unwrap();
                let score: f64 = query.iter().zip(&vector).map(|(q, v)| f64::from(*q) * f64::from(*v)).sum();
                let known = best.entry(id.to_string()).or_insert(f32::NEG_INFINITY);
                *known = known.max(score as f32);
            }
        }
        let found = index.search(&query, k);
        prop_assert_eq!(found.len(), k.min(documents.len()));
        let ids: Vec<String> =
            found.iter().map(|hit| index.documents().get(hit.document).unwrap().doc_id).collect();
        for (hit, id) in found.iter().zip(&ids) {
            prop_assert!((hit.score - best[id]).abs() < 1e-6, "{} has {}, expected {}", id, hit.score, best[id]);
            let text = index.documents().get(hit.document).unwrap().text;
            let chunk = encoder.encode_documents(&[&text[index.chunk_range(hit.chunk)]]).unwrap();
            let score: f32 = query.iter().zip(&chunk).map(|(q, v)| q * v).sum();
            prop_assert!((hit.score - score).abs() < 1e-6, "the chunk told is not the one that scored");
        }
        for (pair, ids) in found.windows(2).zip(ids.windows(2)) {
            let ordered = pair[0].score > pair[1].score || (pair[0].score == pair[1].score && ids[0] < ids[1]);
            prop_assert!(ordered, "{:?} before {:?}", (&pair[0], &ids[0]), (&pair[1], &ids[1]));
        }
        // Nothing that was left out is better than the last one kept.
        let worst = found.last().unwrap();
        for (id, score) in &best {
            prop_assert!(ids.contains(id) || *score <= worst.score + 1e-6);
        }
        // A shorter list is the beginning of a longer one.
        prop_assert_eq!(index.search(&query, k.div_ceil(2)), &found[..k.div_ceil(2).min(found.len())]);
    }
}

#[test]
fn a_large_index_gives_the_same_ranking_on_any_number_of_threads() {
    // More chunks than one task compares, with documents that lie across the borders.
    let lines: Vec<String> = (0..4000)
        .map(|i| {
            format!(
                r#"{{"id": "d{i:04}", "text": "{}"}}"#,
                format!("w{} w{} lake ", i % 97, i % 13).repeat(1 + i % 17)
            )
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let (summary, out) = build(dir.path(), &lines.join("\n")).unwrap();
    assert!(summary.chunks > 8192, "{} chunks", summary.chunks);
    let index = FlatIndex::open(&out).unwrap();
    let query = WordEncoder::new("w1").encode_query("lake w5 w7").unwrap();
    let with_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| index.search(&query, 4000))
    };
    let one = with_threads(1);
    assert_eq!(one.len(), 4000);
    assert_eq!(with_threads(4), one);
}

#[tokio::test]
async fn a_local_search_gives_passages_and_the_same_bytes_every_time() {
    let (_dir, backend) = backend();
    let first = backend.search("highest Swiss peaks", 3).await.unwrap();
    assert_eq!(first.hits[0].doc_id, "a");
    assert!(first.hits[0].text.split_whitespace().count() <= 8, "{:?}", first.hits[0].text);
    assert_eq!(first.hits.len(), 3);
    let again = backend.search("highest Swiss peaks", 3).await.unwrap();
    assert_eq!(serde_json::to_string(&first).unwrap(), serde_json::to_string(&again).unwrap());
    assert_eq!(Some(first.provenance), backend.provenance());
    assert!(backend.search("  ", 3).await.unwrap_err().is_about_request());
    assert!(backend.search("x", 0).await.unwrap_err().is_about_request());
    let _: Arc<dyn SearchBackend> = Arc::new(backend);
}

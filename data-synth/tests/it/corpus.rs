//! Corpora and search engines for the tests.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use drgym_search::corpus::factbook::{Entity, Field, read_entities};
use drgym_search::{
    Document, Page, PageRequest, Provenance, SearchBackend, SearchError, SearchHit, SearchResponse,
};
use serde_json::json;

/// Where the real Factbook lies, if it has been set up.
pub fn factbook_dir() -> Option<PathBuf> {
    let home = std::env::var_os("DRGYM_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache").join("drgym")));
    let set_up = home.map(|home| home.join("corpora").join("factbook"));
    let named = std::env::var_os("DRGYM_FACTBOOK").map(PathBuf::from);
    set_up.into_iter().chain(named).find(|dir| dir.is_dir())
}

/// A country's name, different for every number.
fn country(number: usize) -> String {
    const SYLLABLES: [&str; 12] = ["ba", "ke", "di", "fo", "gu", "ha", "li", "mo", "nu", "pe", "ra", "so"];
    format!("Land{}{}", SYLLABLES[number / 12 % 12], SYLLABLES[number % 12])
}

/// A place's name, different for every number and prefix and without likeness to a country's name.
fn place(prefix: &str, number: usize) -> String {
    const SYLLABLES: [&str; 12] = ["yx", "wz", "vy", "jq", "xw", "zy", "qv", "cj", "yt", "tz", "wv", "xc"];
    format!("{prefix}{}{}", SYLLABLES[number % 12], SYLLABLES[number / 12 % 12])
}

/// Writes a corpus of `count` invented countries, each with six fields.
pub fn write_small(dir: &Path, count: usize) {
    let region = dir.join("europe");
    std::fs::create_dir_all(&region).unwrap();
    for number in 0..count {
        let name = country(number);
        let entity = json!({
            "Government": {
                "Country name": {
                    "conventional long form": {"text": format!("Republic of {name}")},
                    "conventional short form": {"text": name},
                },
                "Capital": {"name": {"text": place("Zw", number)}},
                "Independence": {"text": format!("{} May 19{:02} (from nobody)", number % 28 + 1, number % 90 + 10)},
            },
            "Geography": {
                "Elevation": {
                    "highest point": {"text": format!("{} {} m", place("Vix", number), 1000 + number)},
                    "mean elevation": {"text": format!("{} m", 100 + number)},
                },
                "Coastline": {"text": format!("{} km", 3000 + number)},
            },
            "People and Society": {"Population": {"total": {"text": format!("{} (2024 est.)", 700_000 + number)}}},
        });
        std::fs::write(region.join(format!("c{number:03}.json")), entity.to_string()).unwrap();
    }
}

/// A country with these fields: (section, field, subfield, text).
pub fn entity(code: &str, name: &str, fields: &[(&str, &str, &str, &str)]) -> Entity {
    let fields = fields
        .iter()
        .map(|(section, field, part, text)| Field {
            section: (*section).to_owned(),
            name: (*field).to_owned(),
            parts: vec![((*part).to_owned(), (*text).to_owned())],
        })
        .collect();
    Entity { code: code.to_owned(), region: "test".to_owned(), name: name.to_owned(), fields }
}

/// An engine that ranks documents by how many words of the query they share, shorter ones first.
pub struct WordOverlap {
    documents: Vec<(Document, HashSet<String>)>,
}

impl WordOverlap {
    pub fn over(dir: &Path) -> Self {
        let entities = read_entities(dir).unwrap();
        let documents = entities.iter().flat_map(Entity::documents);
        Self {
            documents: documents
                .map(|document| {
                    let words = words(&format!("{} {}", document.title, document.text));
                    (document, words)
                })
                .collect(),
        }
    }

    /// The same engine without the documents whose identifier ends so.
    pub fn without(mut self, ending: &str) -> Self {
        self.documents.retain(|(document, _)| !document.doc_id.ends_with(ending));
        self
    }

    /// The same engine, showing only so many bytes of a text.
    pub fn showing(mut self, bytes: usize) -> Self {
        for (document, _) in &mut self.documents {
            document.text.truncate(bytes);
        }
        self
    }
}

fn words(text: &str) -> HashSet<String> {
    text.to_lowercase().split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect()
}

#[async_trait]
impl SearchBackend for WordOverlap {
    async fn search(&self, query: &str, k: usize) -> Result<SearchResponse, SearchError> {
        let query = words(query);
        let mut ranked: Vec<_> = self
            .documents
            .iter()
            .map(|(document, words)| (query.intersection(words).count(), words.len(), document))
            .collect();
        ranked.sort_by(|left, right| {
            right.0.cmp(&left.0).then(left.1.cmp(&right.1)).then_with(|| left.2.doc_id.cmp(&right.2.doc_id))
        });
        let hits = ranked
            .into_iter()
            .take(k)
            .map(|(score, _, document)| SearchHit {
                doc_id: document.doc_id.clone(),
                url: document.url.clone(),
                title: document.title.clone(),
                text: document.text.clone(),
                score: Some(score as f32),
            })
            .collect();
        Ok(SearchResponse { hits, provenance: Provenance::Index { hash: "test".to_owned() } })
    }

    async fn fetch(&self, request: &PageRequest) -> Result<Page, SearchError> {
        Err(SearchError::BadRequest(format!("no test fetches {request:?}")))
    }

    fn name(&self) -> String {
        "word-overlap".to_owned()
    }
}

/// An engine that is always down.
pub struct Down;

#[async_trait]
impl SearchBackend for Down {
    async fn search(&self, _query: &str, _k: usize) -> Result<SearchResponse, SearchError> {
        Err(SearchError::Unavailable { engine: self.name(), reason: "connection refused".to_owned() })
    }

    async fn fetch(&self, _request: &PageRequest) -> Result<Page, SearchError> {
        Err(SearchError::Unavailable { engine: self.name(), reason: "connection refused".to_owned() })
    }

    fn name(&self) -> String {
        "down".to_owned()
    }
}

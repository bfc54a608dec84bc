//! Small stand-ins for the tests of this crate.

use async_trait::async_trait;
use drgym_search::{Page, PageRequest, Provenance, SearchBackend, SearchError, SearchHit, SearchResponse};

use crate::task::{ExpertStep, Task, TaskProvenance};

pub fn hit(doc_id: &str, title: &str, text: &str) -> SearchHit {
    SearchHit {
        doc_id: doc_id.into(),
        url: format!("doc:{doc_id}"),
        title: title.into(),
        text: text.into(),
        score: Some(1.0),
    }
}

pub fn toy_task(id: &str) -> Task {
    Task {
        id: id.into(),
        question: "What is the highest point of Kenya?".into(),
        answers: vec!["Mount Kenya".into()],
        evidence: vec!["ke/elevation".into()],
        kind: "one_hop".into(),
        phrasing: "plain".into(),
        entities: vec!["Kenya".into()],
        expert: vec![ExpertStep { query: "Kenya elevation".into(), finding: "Mount Kenya".into() }],
        provenance: TaskProvenance::default(),
        extra: serde_json::Map::new(),
    }
}

/// Two documents; a query finds those that share a word with it, after an optional random delay.
#[derive(Default)]
pub struct ToyBackend {
    pub delays: bool,
}

const DOCUMENTS: [(&str, &str, &str); 2] = [
    ("ke/elevation", "Kenya – Elevation", "highest point: Mount Kenya 5,199 m"),
    ("pe/capital", "Peru – Capital", "name: Lima"),
];

#[async_trait]
impl SearchBackend for ToyBackend {
    async fn search(&self, query: &str, k: usize) -> Result<SearchResponse, SearchError> {
        if self.delays {
            let micros = u64::from(query.bytes().map(u32::from).sum::<u32>() % 7) * 300;
            tokio::time::sleep(std::time::Duration::from_micros(micros)).await;
        }
        let query = query.to_lowercase();
        let matches = |text: &str| text.to_lowercase().split_whitespace().any(|word| query.contains(word));
        let hits = DOCUMENTS
            .iter()
            .filter(|(_, title, _)| matches(title))
            .map(|(id, title, text)| hit(id, title, text));
        Ok(SearchResponse {
            hits: hits.take(k).collect(),
            provenance: Provenance::Index { hash: "toy".into() },
        })
    }

    async fn fetch(&self, request: &PageRequest) -> Result<Page, SearchError> {
        let PageRequest::Url(url) = request else {
            return Err(SearchError::BadRequest("by url only".into()));
        };
        Err(SearchError::NotFound { what: "url", value: url.clone() })
    }

    fn name(&self) -> String {
        "toy".into()
    }
}

/// An engine that is always down.
pub struct FailingBackend;

#[async_trait]
impl SearchBackend for FailingBackend {
    async fn search(&self, _: &str, _: usize) -> Result<SearchResponse, SearchError> {
        Err(SearchError::Unavailable { engine: "down".into(), reason: "refused".into() })
    }

    async fn fetch(&self, _: &PageRequest) -> Result<Page, SearchError> {
        Err(SearchError::Unavailable { engine: "down".into(), reason: "refused".into() })
    }

    fn name(&self) -> String {
        "down".into()
    }
}

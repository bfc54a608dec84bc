//! The local engine: an index folder, its encoder and nothing else.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use crate::backend::{Page, PageRequest, Provenance, SearchBackend, SearchError, SearchHit, SearchResponse};
use crate::document::Document;
use crate::encoder::{BertEncoder, Encoder, EncoderOptions};
use crate::index::{FlatIndex, IndexError, IndexInfo, encoder_hint};

/// Vectors of recent queries that are kept; queries of agents repeat, their distribution is Zipf's.
const CACHED_QUERIES: usize = 4096;

/// A search backend in this process. Cheap to clone.
#[derive(Clone)]
pub struct LocalBackend {
    inner: Arc<Inner>,
}

struct Inner {
    index: FlatIndex,
    encoder: Arc<dyn Encoder>,
    queries: Mutex<QueryCache>,
}

/// A hit with the document it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundDocument {
    /// As [`SearchBackend::search`] gives it.
    pub hit: SearchHit,
    /// The whole document.
    pub document: Document,
}

impl LocalBackend {
    /// Opens an index and its encoder.
    ///
    /// Without `encoder` it is looked for where it lay when the index was built and then, by its name, in `models/`
    /// under `$DRGYM_HOME` (if that is not set, `drgym` in `$XDG_CACHE_HOME` or `~/.cache`). Wherever it is found, its fingerprint must be the
    /// one in the index. It is loaded with the settings that the index was built with, on `threads` threads (all
    /// cores when `None`).
    pub fn open(dir: &Path, encoder: Option<&Path>, threads: Option<usize>) -> Result<Self, IndexError> {
        let index = FlatIndex::open(dir)?;
        let options = EncoderOptions { threads, ..index.info().manifest.encoder.overrides.clone() };
        let folder = match encoder {
            Some(folder) => folder.to_owned(),
            None => find_encoder(&index)?,
        };
        let encoder = BertEncoder::load(&folder, &options)?;
        Self::new(index, Arc::new(encoder))
    }

    /// Joins an open index and an encoder, which must be the one that the index was built with.
    pub fn new(index: FlatIndex, encoder: Arc<dyn Encoder>) -> Result<Self, IndexError> {
        index.check_encoder(encoder.identity())?;
        let queries = Mutex::new(QueryCache::default());
        Ok(Self { inner: Arc::new(Inner { index, encoder, queries }) })
    }

    /// What is searched.
    pub fn info(&self) -> &IndexInfo {
        self.inner.index.info()
    }

    /// Number of documents.
    pub fn document_count(&self) -> usize {
        self.inner.index.documents().len()
    }

    /// As [`SearchBackend::search`], with the documents.
    pub async fn search_documents(&self, query: &str, k: usize) -> Result<Vec<FoundDocument>, SearchError> {
        let query = query.to_owned();
        self.blocking(move |backend| backend.search_blocking(&query, k)).await
    }

    /// The whole document.
    pub async fn fetch_document(&self, request: &PageRequest) -> Result<Document, SearchError> {
        let request = request.clone();
        self.blocking(move |backend| backend.fetch_blocking(&request)).await
    }

    /// As [`search_documents`](Self::search_documents), on a thread that may block.
    pub fn search_blocking(&self, query: &str, k: usize) -> Result<Vec<FoundDocument>, SearchError> {
        check(query, k)?;
        self.inner.search(query, k)
    }

    /// As [`fetch_document`](Self::fetch_document), on a thread that may block.
    pub fn fetch_blocking(&self, request: &PageRequest) -> Result<Document, SearchError> {
        self.inner.fetch(request)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, SearchError> + Send + 'static,
    ) -> Result<T, SearchError> {
        let backend = self.clone();
        tokio::task::spawn_blocking(move || work(&backend))
            .await
            .map_err(|error| SearchError::Internal(format!("the search was not completed: {error}")))?
    }
}

#[async_trait]
impl SearchBackend for LocalBackend {
    async fn search(&self, query: &str, k: usize) -> Result<SearchResponse, SearchError> {
        let found = self.search_documents(query, k).await?;
        let hits = found.into_iter().map(|found| found.hit).collect();
        Ok(SearchResponse { hits, provenance: self.inner.provenance() })
    }

    async fn fetch(&self, request: &PageRequest) -> Result<Page, SearchError> {
        let Document { doc_id, url, title, text, .. } = self.fetch_document(request).await?;
        Ok(Page { doc_id, url, title, text, provenance: self.inner.provenance() })
    }

    fn name(&self) -> String {
        format!("local:{}", self.info().path.display())
    }

    fn provenance(&self) -> Option<Provenance> {
        Some(self.inner.provenance())
    }
}

impl Inner {
    fn provenance(&self) -> Provenance {
        Provenance::Index { hash: self.index.info().hash.clone() }
    }

    fn search(&self, query: &str, k: usize) -> Result<Vec<FoundDocument>, SearchError> {
        let cached = lock(&self.queries).get(query);
        let vector = if let Some(vector) = cached {
            vector
        } else {
            let vector: Arc<[f32]> = self.encoder.encode_query(query).map_err(internal)?.into();
            lock(&self.queries).insert(query, Arc::clone(&vector));
            vector
        };
        let ranked = self.index.search(&vector, k);
        if ranked.first().is_some_and(|best| best.score.is_nan()) {
            let path = self.index.info().path.display();
            return Err(SearchError::Damaged(format!(
                "{path}: vectors that are no numbers; `drgym index verify` tells more"
            )));
        }
        ranked
            .into_iter()
            .map(|ranked| {
                let document =
                    self.index.documents().get(ranked.document).map_err(|error| damaged(&error))?;
                let range = self.index.chunk_range(ranked.chunk);
                let Some(text) = document.text.get(range) else {
                    let reason =
                        format!("chunk {} lies outside the text of {}", ranked.chunk, document.doc_id);
                    return Err(SearchError::Damaged(reason));
                };
                let hit = SearchHit {
                    doc_id: document.doc_id.clone(),
                    url: document.url.clone(),
                    title: document.title.clone(),
                    text: text.to_owned(),
                    score: Some(ranked.score),
                };
                Ok(FoundDocument { hit, document })
            })
            .collect()
    }

    fn fetch(&self, request: &PageRequest) -> Result<Document, SearchError> {
        let documents = self.index.documents();
        let (found, what, value) = match request {
            PageRequest::Url(url) => {
                let url = url.trim_end_matches(['\n', '\r']);
                (documents.by_url(url), "url", url)
            }
            PageRequest::DocId(doc_id) => (documents.by_doc_id(doc_id), "doc_id", doc_id.as_str()),
        };
        match found.map_err(|error| damaged(&error))? {
            Some((_, document)) => Ok(document),
            None => Err(SearchError::NotFound { what, value: value.to_owned() }),
        }
    }
}

fn check(query: &str, k: usize) -> Result<(), SearchError> {
    if query.trim().is_empty() {
        return Err(SearchError::BadRequest("the query is empty".to_owned()));
    }
    if k == 0 {
        return Err(SearchError::BadRequest("k is 0, expected at least 1".to_owned()));
    }
    Ok(())
}

fn damaged(error: &IndexError) -> SearchError {
    SearchError::Damaged(error.to_string())
}

fn internal(error: impl std::fmt::Display) -> SearchError {
    SearchError::Internal(error.to_string())
}

fn find_encoder(index: &FlatIndex) -> Result<PathBuf, IndexError> {
    let info = index.info();
    let name = &info.manifest.encoder.name;
    let set = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("DRGYM_HOME")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("drgym")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/drgym")));
    let places = encoder_hint(&info.path).into_iter().chain(home.map(|home| home.join("models").join(name)));
    let mut tried = Vec::new();
    for place in places {
        if place.is_dir() {
            return Ok(place);
        }
        tried.push(place.display().to_string());
    }
    Err(IndexError::EncoderNotFound { path: info.path.clone(), encoder: name.clone(), tried })
}

/// The cache holds nothing that a panic could leave half done.
fn lock(cache: &Mutex<QueryCache>) -> std::sync::MutexGuard<'_, QueryCache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Vectors by query; when it is full, the half that was not used for longest goes.
#[derive(Default)]
struct QueryCache {
    vectors: HashMap<String, (u64, Arc<[f32]>)>,
    clock: u64,
}

impl QueryCache {
    fn get(&mut self, query: &str) -> Option<Arc<[f32]>> {
        self.clock += 1;
        let (used, vector) = self.vectors.get_mut(query)?;
        *used = self.clock;
        Some(Arc::clone(vector))
    }

    fn insert(&mut self, query: &str, vector: Arc<[f32]>) {
        if self.vectors.len() >= CACHED_QUERIES {
            let mut used: Vec<u64> = self.vectors.values().map(|(used, _)| *used).collect();
            let middle = used.len() / 2;
            let (_, &mut oldest_kept, _) = used.select_nth_unstable(middle);
            self.vectors.retain(|_, (used, _)| *used >= oldest_kept);
        }
        self.clock += 1;
        self.vectors.insert(query.to_owned(), (self.clock, vector));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_forgets_what_was_not_used() {
        let mut cache = QueryCache::default();
        for i in 0..CACHED_QUERIES {
            cache.insert(&i.to_string(), Arc::from([i as f32]));
        }
        assert!(cache.get("0").is_some());
        cache.insert("new", Arc::from([1.0]));
        assert!(cache.get("0").is_some() && cache.get("new").is_some());
        assert!(cache.get("1").is_none());
        assert!(cache.vectors.len() <= CACHED_QUERIES / 2 + 1);
    }
}

//! How good is a search: rankings against relevance judgements.

mod judgements;
pub mod metrics;

use std::collections::BTreeMap;

use futures::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use judgements::{JudgementError, Qrels, Query, read_qrels, read_queries};

use crate::backend::{Provenance, SearchBackend, SearchError};

/// What to do with a query that has no relevant document in the judgements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unjudged {
    /// Leave it out, as BEIR and trec_eval do.
    #[default]
    Skip,
    /// Count it as 0 in every metric, as DeepResearchGym's script does.
    CountAsZero,
}

/// How to evaluate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluateOptions {
    /// Depths for MRR, nDCG, precision and ANN recall.
    pub cutoffs: Vec<usize>,
    /// Depths for recall. MAP looks as deep as the deepest of all.
    pub recall_cutoffs: Vec<usize>,
    /// Queries without judgements.
    pub unjudged: Unjudged,
    /// Searches that run at the same time.
    pub concurrency: usize,
}

impl Default for EvaluateOptions {
    fn default() -> Self {
        let (cutoffs, recall_cutoffs) = (vec![10], vec![10, 100]);
        Self { cutoffs, recall_cutoffs, unjudged: Unjudged::default(), concurrency: 4 }
    }
}

/// The figures of one query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryReport {
    /// The query's identifier.
    pub id: String,
    /// Metric to value.
    pub metrics: BTreeMap<String, f64>,
}

/// The figures of a retrieval run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Means over the evaluated queries: `mrr@10`, `ndcg@10`, `precision@10`, `recall@100`, `map@100` and, where an exact
    /// search was at hand, `ann_recall@10`.
    pub metrics: BTreeMap<String, f64>,
    /// Queries that entered the means.
    pub queries: usize,
    /// Queries that were left out, or counted as 0, because nothing is judged relevant to them.
    pub unjudged: usize,
    /// What happened to those.
    pub unjudged_policy: Unjudged,
    /// What answered.
    pub backend: String,
    /// Where the answers came from, if that was one thing.
    pub provenance: Option<Provenance>,
    /// The same for every query, in the order of the queries.
    pub per_query: Vec<QueryReport>,
}

/// Why there are no figures. A search that failed is never scored as a bad one.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// Nothing to average over.
    #[error(
        "none of the {queries} queries has a relevant document in the judgements; do the identifiers match?"
    )]
    NothingJudged {
        /// Number of queries.
        queries: usize,
    },
    /// A depth of 0 asks for nothing.
    #[error("the cutoffs must be at least 1 and there must be some")]
    Cutoffs,
    /// A search failed.
    #[error("query {id}: {source}")]
    Search {
        /// The query's identifier.
        id: String,
        /// The failure.
        source: SearchError,
    },
}

/// Searches for every query and compares the rankings with the judgements.
///
/// A hit is relevant if the judgements name its `doc_id` or its address. `exact`, if given, answers the same queries
/// without approximation; the share of its top n that the backend found as well is `ann_recall@n`.
pub async fn evaluate(
    backend: &dyn SearchBackend,
    exact: Option<&dyn SearchBackend>,
    queries: &[Query],
    qrels: &Qrels,
    options: &EvaluateOptions,
) -> Result<Report, EvaluateError> {
    let depths = options.cutoffs.iter().chain(&options.recall_cutoffs);
    let depth = depths.clone().copied().max().filter(|_| depths.clone().all(|&depth| depth > 0));
    let depth = depth.ok_or(EvaluateError::Cutoffs)?;
    let judged =
        |query: &&Query| qrels.get(&query.id).is_some_and(|judged| judged.values().any(|&grade| grade > 0));
    let unjudged = queries.iter().filter(|query| !judged(query)).count();
    if unjudged == queries.len() {
        return Err(EvaluateError::NothingJudged { queries: queries.len() });
    }

    let searches = queries
        .iter()
        .filter(|query| options.unjudged == Unjudged::CountAsZero || judged(query))
        .map(|query| score(backend, exact, query, qrels, depth, options));
    let scored: Vec<_> = futures::stream::iter(searches).buffered(options.concurrency.max(1)).collect().await;
    let scored: Vec<(QueryReport, Provenance)> = scored.into_iter().collect::<Result<_, _>>()?;

    let mut metrics: BTreeMap<String, f64> = BTreeMap::new();
    for (report, _) in &scored {
        for (name, value) in &report.metrics {
            *metrics.entry(name.clone()).or_default() += value / scored.len() as f64;
        }
    }
    let (per_query, mut provenances): (Vec<_>, Vec<_>) = scored.into_iter().unzip();
    provenances.dedup();
    Ok(Report {
        metrics,
        queries: per_query.len(),
        unjudged,
        unjudged_policy: options.unjudged,
        backend: backend.name(),
        provenance: if provenances.len() == 1 { provenances.pop() } else { None },
        per_query,
    })
}

async fn score(
    backend: &dyn SearchBackend,
    exact: Option<&dyn SearchBackend>,
    query: &Query,
    qrels: &Qrels,
    depth: usize,
    options: &EvaluateOptions,
) -> Result<(QueryReport, Provenance), EvaluateError> {
    let failed = |source| EvaluateError::Search { id: query.id.clone(), source };
    let response = backend.search(&query.text, depth).await.map_err(failed)?;
    let none = BTreeMap::new();
    let judged = qrels.get(&query.id).unwrap_or(&none);
    let grade = |hit: &crate::SearchHit| judged.get(&hit.doc_id).or_else(|| judged.get(&hit.url)).copied();
    let grades: Vec<u32> = response.hits.iter().map(|hit| grade(hit).unwrap_or(0)).collect();
    let ideal: Vec<u32> = judged.values().copied().filter(|&grade| grade > 0).collect();

    let mut metrics = BTreeMap::new();
    for &k in &options.cutoffs {
        metrics.insert(format!("mrr@{k}"), metrics::reciprocal_rank(&grades, k));
        metrics.insert(format!("ndcg@{k}"), metrics::ndcg(&grades, &ideal, k));
        metrics.insert(format!("precision@{k}"), metrics::precision(&grades, k));
    }
    for &k in &options.recall_cutoffs {
        metrics.insert(format!("recall@{k}"), metrics::recall(&grades, ideal.len(), k));
    }
    metrics.insert(format!("map@{depth}"), metrics::average_precision(&grades, ideal.len(), depth));
    if let Some(exact) = exact {
        let deepest = options.cutoffs.iter().copied().max().unwrap_or(depth);
        let truth = exact.search(&query.text, deepest).await.map_err(failed)?;
        let ids = |hits: &[crate::SearchHit]| hits.iter().map(|hit| hit.doc_id.clone()).collect::<Vec<_>>();
        let (found, truth) = (ids(&response.hits), ids(&truth.hits));
        for &n in &options.cutoffs {
            metrics.insert(format!("ann_recall@{n}"), metrics::ann_recall(&found, &truth, n));
        }
    }
    Ok((QueryReport { id: query.id.clone(), metrics }, response.provenance))
}

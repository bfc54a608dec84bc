//! Faults on purpose: what an agent meets when its engine misbehaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backend::{Page, PageRequest, Provenance, SearchBackend, SearchError, SearchResponse};

/// How often which fault occurs, each a probability between 0 and 1, drawn independently.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FaultRates {
    /// The answer comes late, by `latency_ms`.
    pub late: f64,
    /// Milliseconds of a late answer.
    pub latency_ms: u64,
    /// The engine is unavailable.
    pub unavailable: f64,
    /// A search finds nothing, a page has no text.
    pub empty: f64,
    /// A search gives the first half of its hits, a page the first half of its text.
    pub truncated: f64,
    /// The hits of a search come in random order.
    pub shuffled: f64,
}

/// Why fault rates make no sense.
#[derive(Debug, thiserror::Error)]
#[error("the fault rate {name} is {value}, expected a number from 0 to 1")]
pub struct FaultRateError {
    /// The rate.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
}

/// A backend with faults. The faults of a request depend on the seed and on how many requests came before it.
pub struct Faulty {
    engine: Arc<dyn SearchBackend>,
    rates: FaultRates,
    seed: u64,
    requests: AtomicU64,
}

/// The faults of one answer that did come.
struct Faults {
    empty: bool,
    truncated: bool,
    shuffled: bool,
    random: ChaCha8Rng,
}

impl Faulty {
    /// Wraps a backend.
    pub fn new(engine: Arc<dyn SearchBackend>, rates: FaultRates, seed: u64) -> Result<Self, FaultRateError> {
        for (name, value) in [
            ("late", rates.late),
            ("unavailable", rates.unavailable),
            ("empty", rates.empty),
            ("truncated", rates.truncated),
            ("shuffled", rates.shuffled),
        ] {
            if !(0.0..=1.0).contains(&value) {
                return Err(FaultRateError { name, value });
            }
        }
        Ok(Self { engine, rates, seed, requests: AtomicU64::new(0) })
    }

    /// Draws the faults of the next request, waits if it is late and fails if the engine is unavailable.
    async fn next(&self) -> Result<Faults, SearchError> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(self.requests.fetch_add(1, Ordering::Relaxed));
        let mut draw = |rate: f64| random.random::<f64>() < rate;
        let rates = &self.rates;
        // All are drawn whatever comes of it, so that one rate does not move the faults of another.
        let (late, unavailable) = (draw(rates.late), draw(rates.unavailable));
        let (empty, truncated, shuffled) = (draw(rates.empty), draw(rates.truncated), draw(rates.shuffled));
        let faults = Faults { empty, truncated, shuffled, random };
        if late {
            tokio::time::sleep(Duration::from_millis(rates.latency_ms)).await;
        }
        if unavailable {
            let reason = "injected fault".to_owned();
            return Err(SearchError::Unavailable { engine: self.engine.name(), reason });
        }
        Ok(faults)
    }
}

#[async_trait]
impl SearchBackend for Faulty {
    async fn search(&self, query: &str, k: usize) -> Result<SearchResponse, SearchError> {
        let mut faults = self.next().await?;
        let mut response = self.engine.search(query, k).await?;
        if faults.empty {
            response.hits.clear();
        }
        if faults.truncated {
            response.hits.truncate(response.hits.len() / 2);
        }
        if faults.shuffled {
            response.hits.shuffle(&mut faults.random);
        }
        Ok(response)
    }

    async fn fetch(&self, request: &PageRequest) -> Result<Page, SearchError> {
        let faults = self.next().await?;
        let mut page = self.engine.fetch(request).await?;
        if faults.empty {
            page.text.clear();
        }
        if faults.truncated {
            let half = page.text.chars().count() / 2;
            page.text = page.text.chars().take(half).collect();
        }
        Ok(page)
    }

    fn name(&self) -> String {
        format!("faulty:{}", self.engine.name())
    }

    fn provenance(&self) -> Option<Provenance> {
        self.engine.provenance()
    }
}

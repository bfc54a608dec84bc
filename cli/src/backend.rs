//! From words on the command line or in a configuration to a search engine.

use std::path::Path;
use std::sync::Arc;

use drgym_search::SearchBackend;

use crate::config::SearchConfig;
use crate::failure::{Failure, Outcome, WithHint};
use crate::paths;

/// Opens what the settings name.
pub async fn open(settings: &SearchConfig) -> Outcome<Arc<dyn SearchBackend>> {
    match (&settings.index, &settings.url) {
        (Some(index), None) => open_index(index, settings.encoder.as_deref()).await,
        (None, Some(url)) => open_url(url, settings),
        (Some(_), Some(_)) => Err(Failure::new("both an index and a URL to search are given")),
        (None, None) => Err(Failure::new("nothing to search is named"))
            .hint("name an index folder or the URL of a server"),
    }
}

/// Reads `--search DIR|URL`.
pub fn parse(text: &str) -> SearchConfig {
    if text.starts_with("http://") || text.starts_with("https://") {
        SearchConfig { url: Some(text.to_owned()), ..SearchConfig::default() }
    } else {
        SearchConfig { index: Some(paths::expand(Path::new(text))), ..SearchConfig::default() }
    }
}

#[cfg(feature = "engine")]
async fn open_index(index: &Path, encoder: Option<&Path>) -> Outcome<Arc<dyn SearchBackend>> {
    Ok(Arc::new(open_local(index, encoder).await?))
}

/// Opens an index folder with its encoder.
#[cfg(feature = "engine")]
pub async fn open_local(index: &Path, encoder: Option<&Path>) -> Outcome<drgym_search::local::LocalBackend> {
    use drgym_search::local::LocalBackend;

    let (index, encoder) = (index.to_owned(), encoder.map(Path::to_owned));
    let opened =
        tokio::task::spawn_blocking(move || LocalBackend::open(&index, encoder.as_deref(), None)).await?;
    opened.hint("build an index with `drgym index build`, check one with `drgym index verify`")
}

#[cfg(not(feature = "engine"))]
async fn open_index(_: &Path, _: Option<&Path>) -> Outcome<Arc<dyn SearchBackend>> {
    Err(Failure::new("this build of drgym cannot open an index; it was built without the feature `engine`"))
}

fn open_url(url: &str, settings: &SearchConfig) -> Outcome<Arc<dyn SearchBackend>> {
    let options = drgym_search::client::ClientOptions {
        fetch_base_url: settings.fetch_url.clone(),
        api_key_variable: settings.api_key_env.clone(),
        ..drgym_search::client::ClientOptions::new(url)
    };
    Ok(Arc::new(drgym_search::client::DeepResearchGymBackend::new(options)?))
}

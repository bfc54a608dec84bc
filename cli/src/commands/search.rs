//! `drgym search`.

use crate::arguments::{SearchArguments, SearchSource};
use crate::backend;
use crate::config::SearchConfig;
use crate::failure::Outcome;
use crate::printer::Printer;

/// The settings that the options describe.
pub fn settings(source: &SearchSource) -> SearchConfig {
    SearchConfig {
        index: source.index.clone(),
        url: source.url.clone(),
        // Neither verb fetches pages.
        fetch_url: None,
        api_key_env: source.api_key_env.clone(),
        encoder: source.encoder.clone(),
    }
}

/// Searches once and prints what was found.
pub async fn run(arguments: SearchArguments, printer: Printer) -> Outcome {
    let backend = backend::open(&settings(&arguments.search)).await?;
    let response = backend.search(&arguments.query, arguments.k).await?;
    if arguments.json {
        return printer.json(&response);
    }
    for (rank, hit) in response.hits.iter().enumerate() {
        let score = hit.score.map_or_else(String::new, |score| format!("{score:.4}  "));
        printer.data(&format!("{:>3}. {score}{}  {}", rank + 1, hit.title, hit.url));
        let text: String =
            hit.text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(200).collect();
        printer.data(&format!("     {text}"));
    }
    Ok(())
}

//! The documents of DeepResearchGym's `/search` and `/fetch`: base64 of a JSON object, in one of two dialects.
//!
//! | | identifier | address | text |
//! |---|---|---|---|
//! | ClueWeb22 | `ClueWeb22-ID` | `URL`, may end with a line break | `Clean-Text` |
//! | FineWeb | `id` | `url` | `text` |
//!
//! Our server writes the keys of both, and `title`; the client reads either.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Names the index that answered, on every response of our server.
pub(crate) const INDEX_HEADER: &str = "x-drgym-index";

/// The body of a `/search` answer.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct SearchBody {
    /// base64 of one JSON document each, best first.
    pub(crate) results: Vec<String>,
    /// Inner products, where they were asked for.
    pub(crate) distances: Option<Vec<f32>>,
    /// base64 of the outgoing links, where they were asked for and are known.
    pub(crate) outlinks: Option<Vec<String>>,
}

/// The body of a `/fetch` answer.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct FetchBody {
    /// base64 of the JSON document.
    pub(crate) clean_text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outlink: Option<String>,
}

/// The body of every error.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct ErrorBody {
    pub(crate) detail: String,
}

/// What both dialects have in common.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WireDocument {
    pub(crate) doc_id: String,
    pub(crate) url: String,
    pub(crate) title: String,
    pub(crate) text: String,
}

impl WireDocument {
    /// Base64 of the document with the keys of both dialects; `extra` must not overwrite them.
    #[cfg(feature = "engine")]
    pub(crate) fn encode(&self, extra: &Map<String, Value>) -> String {
        let mut object = Map::new();
        for (key, value) in [
            ("text", &self.text),
            ("id", &self.doc_id),
            ("url", &self.url),
            ("title", &self.title),
            ("URL", &self.url),
            ("ClueWeb22-ID", &self.doc_id),
            ("Clean-Text", &self.text),
        ] {
            object.insert(key.to_owned(), Value::String(value.clone()));
        }
        for (key, value) in extra {
            object.entry(key.clone()).or_insert_with(|| value.clone());
        }
        STANDARD.encode(Value::Object(object).to_string())
    }

    /// Reads either dialect, or says what is wrong.
    pub(crate) fn decode(encoded: &str) -> Result<Self, String> {
        let bytes = STANDARD.decode(encoded.trim()).map_err(|error| format!("not base64: {error}"))?;
        let object: Map<String, Value> =
            serde_json::from_slice(&bytes).map_err(|error| format!("not a JSON object: {error}"))?;
        let get =
            |names: &[&str]| names.iter().find_map(|name| object.get(*name)?.as_str()).map(str::to_owned);
        let need = |names: &[&str]| get(names).ok_or_else(|| format!("has none of the keys {names:?}"));
        let url = need(&["URL", "url"])?.trim_end_matches(['\n', '\r']).to_owned();
        Ok(Self {
            // The address identifies a document as well, where there is no identifier.
            doc_id: get(&["ClueWeb22-ID", "id"]).unwrap_or_else(|| url.clone()),
            title: get(&["title", "Title"]).unwrap_or_default(),
            text: need(&["Clean-Text", "text"])?,
            url,
        })
    }
}

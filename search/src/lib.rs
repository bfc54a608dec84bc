//! Search for agents: documents, backends that find and fetch them, and (feature `engine`) a local engine.
//!
//! ```text
//! corpus files ──readers──▶ Document ──chunk──▶ Chunk ──encoder──▶ vectors ──index──▶ IndexFolder
//!                                                                                    │
//!        SearchBackend ◀── LocalBackend ◀────────────────────────────────────────────┤
//!              ▲                                                                      ▼
//!              └── DeepResearchGymBackend ◀──── HTTP ◀──── server (/search, /fetch) ──┘
//! ```
//!
//! Everything an agent needs is the trait [`SearchBackend`]; which engine answers is a matter of configuration.
//! The feature `corpora` adds the corpus readers, `engine` adds encoders, indexes and the HTTP server.

pub mod backend;
pub mod document;

pub use backend::{Page, PageRequest, Provenance, SearchBackend, SearchError, SearchHit, SearchResponse};
pub use document::{Chunk, Document};

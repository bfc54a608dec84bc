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
#[cfg(feature = "corpora")]
pub mod corpus;
pub mod document;
#[cfg(feature = "engine")]
pub mod encoder;
#[cfg(feature = "engine")]
mod kernels;

pub use backend::{Page, PageRequest, Provenance, SearchBackend, SearchError, SearchHit, SearchResponse};
pub use document::{Chunk, Document};

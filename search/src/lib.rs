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
//!
//! | module | what it is | feature |
//! |---|---|---|
//! | [`document`], [`backend`] | the contracts: documents, chunks, [`SearchBackend`] and its errors | |
//! | [`client`] | [`DeepResearchGymBackend`]: the hosted service or our server, over HTTP | |
//! | [`recorded`] | [`Recorded`]: answers of a live engine, kept and replayed | |
//! | [`faulty`] | [`Faulty`]: faults on purpose | |
//! | [`artefact`] | files and folders that appear when they are whole | |
//! | [`lines`] | lines of JSONL files and their faults | |
//! | [`evaluate`](mod@evaluate) | retrieval metrics, judgements, reports | |
//! | `corpus` | readers of JSONL and of the World Factbook | `corpora` |
//! | `chunk` | cutting documents | `engine` |
//! | `encoder` | the trait `Encoder` and `BertEncoder` | `engine` |
//! | `index` | index folders: build, open, verify; exact search | `engine` |
//! | `local` | `LocalBackend`: an index and its encoder as a backend | `engine` |
//! | `server` | `/search` and `/fetch` over HTTP | `engine` |

pub mod artefact;
pub mod backend;
#[cfg(feature = "engine")]
pub mod chunk;
pub mod client;
#[cfg(feature = "corpora")]
pub mod corpus;
pub mod document;
#[cfg(feature = "engine")]
pub mod encoder;
pub mod evaluate;
pub mod faulty;
#[cfg(feature = "engine")]
pub mod index;
#[cfg(feature = "engine")]
mod kernels;
pub mod lines;
#[cfg(feature = "engine")]
pub mod local;
pub mod recorded;
#[cfg(feature = "engine")]
pub mod server;
mod wire;

pub use backend::{Page, PageRequest, Provenance, SearchBackend, SearchError, SearchHit, SearchResponse};
#[cfg(feature = "engine")]
pub use chunk::Chunking;
pub use client::{ClientError, ClientOptions, DeepResearchGymBackend};
#[cfg(feature = "corpora")]
pub use corpus::{CorpusError, CorpusFormat};
pub use document::{Chunk, Document};
#[cfg(feature = "engine")]
pub use encoder::{BertEncoder, Encoder, EncoderError, EncoderOptions};
pub use evaluate::evaluate;
pub use faulty::{FaultRates, Faulty};
#[cfg(feature = "engine")]
pub use index::{FlatIndex, IndexError};
#[cfg(feature = "engine")]
pub use local::LocalBackend;
pub use recorded::Recorded;
#[cfg(feature = "engine")]
pub use server::{ServeError, ServeOptions, ServerHandle, serve};

//! Query synthesis: questions with answers, evidence and an expert's plan, made from a corpus and checked.
//!
//! ```text
//! Factbook ──extract──▶ Fact ──word──▶ Candidate ──checks──▶ selection ──▶ train.jsonl, dev.jsonl, test.jsonl
//!              │                           │                     │
//!              └──────── rejects ──────────┴── SearchBackend ────┘──▶ rejects.jsonl, report.json, manifest.json
//! ```
//!
//! [`pipeline::run`] does all of it. The generator is driven by rules and needs no language model: [`factbook`] reads
//! single values out of the fields of the CIA World Factbook and words questions of one hop (the entity is named)
//! and two hops (the entity is described by another of its values). [`checks`] refuses what is ambiguous, leaks its
//! answer, cannot be verified in its evidence or cannot be found by search, each with a typed [`Rejection`].
//! [`split`] keeps train, dev and test disjoint by entity, and [`selection`] balances relations and descriptions.

pub mod checks;
pub mod config;
pub mod factbook;
pub mod normal_form;
pub mod pipeline;
pub mod report;
pub mod selection;
pub mod split;

pub use checks::Rejection;
pub use config::SynthConfig;
pub use factbook::candidate::{Candidate, Fact, GENERATOR, UNSEEN, Wording};
pub use factbook::relation::{AnswerKind, Relation, relations};
pub use pipeline::{SynthError, SynthInputs, SynthProgress, run};
pub use report::{RejectRecord, SplitReport, SynthReport};
pub use split::{PerSplit, Split};

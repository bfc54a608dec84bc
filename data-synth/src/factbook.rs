//! Questions about the CIA World Factbook, made by rules.
//!
//! [`extract`] reads one value out of a field's text, [`relation`] lists the relations with their wordings,
//! [`gazetteer`] knows how entities are named, and [`candidate`] turns all of it into candidate tasks.

pub mod candidate;
pub mod extract;
pub mod gazetteer;
pub mod relation;

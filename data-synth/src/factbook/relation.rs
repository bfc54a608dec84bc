//! What can be asked about an entity of the Factbook, and how an entity can be described without naming it.

mod land;
mod society;
mod state;

use super::extract::{Messy, Value};

/// What sort of answer a relation has, for tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnswerKind {
    /// A name or a title.
    Name,
    /// A code of a few letters.
    Code,
    /// A date or a day of the year.
    Date,
    /// A number, with its unit where there is one.
    Number,
    /// A short list.
    List,
}

/// One relation: where its value stands and how it is asked for.
///
/// In the templates `{subject}` is the entity or its description, `{entity}` the entity's name as the corpus writes
/// it, `{noun}` is `country` or `territory`, and `{value}` the describing value.
#[derive(Clone, Copy, Debug)]
pub struct Relation {
    /// Unique, for instance `highest_point`.
    pub id: &'static str,
    /// Section of the Factbook.
    pub section: &'static str,
    /// Field within the section: the evidence document.
    pub field: &'static str,
    /// Subfield, empty for the field's own text.
    pub part: &'static str,
    /// What sort of answer this is.
    pub kind: AnswerKind,
    /// Finds the answer in the text.
    pub extract: fn(&str) -> Result<Value, Messy>,
    /// Wordings for every split, at least four.
    pub questions: &'static [&'static str],
    /// Wordings kept for the test split, at least two.
    pub unseen_questions: &'static [&'static str],
    /// The expert's query, with `{entity}`.
    pub query: &'static str,
    /// How the value describes its entity, if it can.
    pub clue: Option<Clue>,
}

/// A description of an entity by one of its values, instead of its name.
#[derive(Clone, Copy, Debug)]
pub struct Clue {
    /// Wordings for every split, at least two.
    pub phrases: &'static [&'static str],
    /// Wordings kept for the test split, at least one.
    pub unseen_phrases: &'static [&'static str],
    /// The expert's query, with `{value}`.
    pub query: &'static str,
}

/// The relation of that identifier.
pub fn relation(id: &str) -> Option<&'static Relation> {
    relations().find(|relation| relation.id == id)
}

/// Every relation, always in the same order.
pub fn relations() -> impl Iterator<Item = &'static Relation> {
    [land::RELATIONS, state::RELATIONS, society::RELATIONS].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_relation_has_distinct_wordings_with_their_places() {
        let mut ids = HashSet::new();
        let mut wordings = HashSet::new();
        assert!(relations().count() >= 18);
        for relation in relations() {
            assert!(ids.insert(relation.id));
            assert!(relation.questions.len() >= 4, "{}", relation.id);
            assert!(relation.unseen_questions.len() >= 2, "{}", relation.id);
            for question in relation.questions.iter().chain(relation.unseen_questions) {
                assert_eq!(question.matches("{subject}").count(), 1, "{question}");
                assert!(question.ends_with('?'), "{question}");
                assert!(wordings.insert(*question), "{question} stands twice");
            }
            assert!(relation.query.contains("{entity}"), "{}", relation.id);
            if let Some(clue) = relation.clue {
                assert!(clue.phrases.len() >= 2 && !clue.unseen_phrases.is_empty(), "{}", relation.id);
                for phrase in clue.phrases.iter().chain(clue.unseen_phrases) {
                    assert!(phrase.contains("{noun}") && phrase.contains("{value}"), "{phrase}");
                    assert!(wordings.insert(*phrase), "{phrase} stands twice");
                }
                assert!(clue.query.contains("{value}"), "{}", relation.id);
            }
            assert!(relation_is_found(relation.id), "{}", relation.id);
        }
    }

    fn relation_is_found(id: &str) -> bool {
        relation(id).is_some_and(|found| found.id == id)
    }
}

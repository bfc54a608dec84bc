//! Checks that need no language model. Each returns the reason why a candidate is refused.

use std::collections::{BTreeMap, HashMap};

use drgym_env::Task;
use drgym_search::corpus::factbook::Entity;
use drgym_search::{SearchBackend, SearchError};
use serde::{Deserialize, Serialize};

use crate::factbook::candidate::{Candidate, Evidence, Fact};
use crate::factbook::gazetteer::Gazetteer;
use crate::factbook::relation::{Relation, relations};
use crate::normal_form::{contains_words, fold_whitespace, normal_form};
use crate::split::Split;

/// Fewest and most characters of a question.
pub const QUESTION_LENGTH: std::ops::RangeInclusive<usize> = 15..=300;

/// Words that entities share without being alike.
const GENERIC_WORDS: &[&str] = &[
    "british",
    "central",
    "city",
    "democratic",
    "federated",
    "french",
    "island",
    "islands",
    "kingdom",
    "lands",
    "mount",
    "north",
    "northern",
    "republic",
    "saint",
    "south",
    "southern",
    "states",
    "territory",
    "united",
    "west",
    "western",
];

/// Why a candidate is not a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Rejection {
    /// The text holds no single short answer.
    MessyValue {
        /// What the extractor found wrong.
        why: String,
        /// The text.
        value: String,
    },
    /// The entity's name may be taken for another entity.
    AmbiguousName {
        /// The name in the question.
        name: String,
        /// The other entity.
        other: String,
    },
    /// The describing value fits other entities too.
    DescriptionNotUnique {
        /// The value.
        value: String,
        /// Another entity that it fits.
        other: String,
    },
    /// The describing value gives the entity's name away, so that nothing has to be found.
    DescriptionGivesNameAway {
        /// The value.
        value: String,
        /// The name.
        name: String,
    },
    /// The question contains an accepted answer.
    AnswerInQuestion {
        /// The answer.
        answer: String,
    },
    /// The evidence does not contain the answer.
    AnswerNotInEvidence {
        /// The document.
        doc_id: String,
        /// The preferred answer.
        answer: String,
    },
    /// An earlier step's evidence already contains the answer, so that the later ones are not needed.
    AnswerInEarlierStep {
        /// The document.
        doc_id: String,
        /// The answer.
        answer: String,
    },
    /// The evidence of a step does not contain what the expert must see.
    FindingNotInEvidence {
        /// The document.
        doc_id: String,
        /// What must be seen.
        finding: String,
    },
    /// The expert's query does not bring the evidence within the first `k` documents.
    NotRetrievable {
        /// The document.
        doc_id: String,
        /// The query.
        query: String,
        /// How many documents were looked at.
        k: usize,
    },
    /// The evidence is found, but the passage that the engine shows of it lacks what the expert must see.
    FindingNotShown {
        /// The document.
        doc_id: String,
        /// The query.
        query: String,
        /// What must be seen.
        finding: String,
    },
    /// The question is not a well-formed one.
    Malformed {
        /// What is wrong.
        what: String,
    },
    /// The same question stands already.
    Duplicate {
        /// The task that has it.
        of: String,
    },
    /// The task touches entities of several splits.
    CrossSplit {
        /// One entity of each split that is touched.
        entities: Vec<String>,
    },
}

impl Rejection {
    /// The reason as it is counted and written.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::MessyValue { .. } => "messy_value",
            Self::AmbiguousName { .. } => "ambiguous_name",
            Self::DescriptionNotUnique { .. } => "description_not_unique",
            Self::DescriptionGivesNameAway { .. } => "description_gives_name_away",
            Self::AnswerInQuestion { .. } => "answer_in_question",
            Self::AnswerNotInEvidence { .. } => "answer_not_in_evidence",
            Self::AnswerInEarlierStep { .. } => "answer_in_earlier_step",
            Self::FindingNotInEvidence { .. } => "finding_not_in_evidence",
            Self::NotRetrievable { .. } => "not_retrievable",
            Self::FindingNotShown { .. } => "finding_not_shown",
            Self::Malformed { .. } => "malformed",
            Self::Duplicate { .. } => "duplicate",
            Self::CrossSplit { .. } => "cross_split",
        }
    }
}

/// A question that names `entity` must not fit another one.
pub fn unambiguous_name(entity: usize, names: &Gazetteer) -> Result<(), Rejection> {
    match names.confusable_with(entity) {
        None => Ok(()),
        Some(other) => {
            Err(Rejection::AmbiguousName { name: names.spoken(entity).to_owned(), other: other.to_owned() })
        }
    }
}

/// The texts of all subfields that may describe an entity, in normal form, so that each is brought into it once.
#[derive(Clone, Debug)]
pub struct DescribingTexts {
    /// By relation, then by index of the entity; empty where an entity lacks the subfield.
    texts: HashMap<&'static str, Vec<String>>,
}

impl DescribingTexts {
    /// The texts of a corpus.
    pub fn new(entities: &[Entity]) -> Self {
        let text = |entity: &Entity, relation: &Relation| {
            let field = entity.field(relation.section, relation.field);
            field.and_then(|field| field.part(relation.part)).map_or_else(String::new, normal_form)
        };
        let describing = relations().filter(|relation| relation.clue.is_some());
        Self {
            texts: describing
                .map(|relation| (relation.id, entities.iter().map(|entity| text(entity, relation)).collect()))
                .collect(),
        }
    }
}

/// The value of `fact` must describe its entity alone and must not resemble the entity's name.
///
/// Compared with the whole text of the same subfield of every other entity, whether or not a value could be
/// extracted there: no other one may hold all words of the value, in normal form (a `red rampant lion` is a `red
/// lion` too). A value resembles a name when a word of one begins like a
/// word of the other (four letters) or differs from it in at most half of the letters (Levenshtein).
pub fn unique_description(fact: &Fact, texts: &DescribingTexts, names: &Gazetteer) -> Result<(), Rejection> {
    let value = normal_form(&fact.value.answer);
    let others = texts.texts.get(fact.relation.id).map_or(&[][..], Vec::as_slice);
    let fits = |(index, text): &(usize, &String)| {
        *index != fact.entity && value.split(' ').all(|word| contains_words(text, word))
    };
    if let Some((index, _)) = others.iter().enumerate().find(fits) {
        return Err(Rejection::DescriptionNotUnique {
            value: fact.value.answer.clone(),
            other: names.name(index).to_owned(),
        });
    }
    let name = format!("{} {}", normal_form(names.name(fact.entity)), normal_form(names.spoken(fact.entity)));
    let gives_away = name
        .split(' ')
        .filter(|of_name| of_name.len() > 2 && *of_name != "the" && !GENERIC_WORDS.contains(of_name))
        .any(|of_name| value.split(' ').any(|word| resembles(word, of_name)));
    if gives_away {
        return Err(Rejection::DescriptionGivesNameAway {
            value: fact.value.answer.clone(),
            name: names.name(fact.entity).to_owned(),
        });
    }
    Ok(())
}

fn resembles(word: &str, of_name: &str) -> bool {
    word == of_name
        || matches!((word.get(..4), of_name.get(..4)), (Some(left), Some(right)) if left == right)
        || (word.len() > 3 && of_name.len() > 3 && strsim::normalized_levenshtein(word, of_name) >= 0.5)
}

/// The question must contain no accepted answer, as whole words in normal form. An answer that begins with a full
/// stop (an internet code) is looked for as it stands, since `.in` without its stop is an everyday word.
pub fn no_answer_in_question(task: &Task) -> Result<(), Rejection> {
    let lower = task.question.to_lowercase();
    let question = normal_form(&task.question);
    let stands_in_question = |answer: &&String| {
        if answer.starts_with('.') {
            lower.contains(&answer.to_lowercase())
        } else {
            contains_words(&question, &normal_form(answer))
        }
    };
    match task.answers.iter().find(stands_in_question) {
        Some(answer) => Err(Rejection::AnswerInQuestion { answer: answer.clone() }),
        None => Ok(()),
    }
}

/// A question that describes its entity must not name it.
pub fn entity_not_named(candidate: &Candidate, names: &Gazetteer) -> Result<(), Rejection> {
    if candidate.clue.is_some() && names.named_in(&candidate.task.question).contains(&candidate.entity) {
        return Err(Rejection::DescriptionGivesNameAway {
            value: candidate.task.question.clone(),
            name: names.name(candidate.entity).to_owned(),
        });
    }
    Ok(())
}

/// Each step's document must show what the step looks for, and the last one must contain the answer.
///
/// Findings are looked for in the document's title and text as the expert looks for them
/// ([`ExpertStep::is_shown_in`](drgym_env::ExpertStep::is_shown_in)); the answer is compared with the text in normal
/// form, as whole words.
pub fn evidence_holds(task: &Task, evidence: &[Evidence]) -> Result<(), Rejection> {
    for (step, document) in task.expert.iter().zip(evidence) {
        if !step.is_shown_in(&document.seen_text) {
            return Err(Rejection::FindingNotInEvidence {
                doc_id: document.doc_id.clone(),
                finding: fold_whitespace(&step.finding),
            });
        }
    }
    let (Some(document), Some(answer)) = (evidence.last(), task.answers.first()) else {
        return Err(Rejection::Malformed { what: "no evidence or no answer".to_owned() });
    };
    if task.expert.len() != evidence.len() {
        return Err(Rejection::Malformed { what: "steps and evidence differ in number".to_owned() });
    }
    if contains_words(&document.normal_text, &normal_form(answer)) {
        Ok(())
    } else {
        Err(Rejection::AnswerNotInEvidence { doc_id: document.doc_id.clone(), answer: answer.clone() })
    }
}

/// No document but the last may contain an accepted answer, in its title or text, as whole words in normal form.
pub fn every_step_needed(task: &Task, evidence: &[Evidence]) -> Result<(), Rejection> {
    let Some((_, earlier)) = evidence.split_last() else { return Ok(()) };
    for document in earlier {
        let shows = |answer: &&String| {
            let answer = normal_form(answer);
            contains_words(&document.normal_title, &answer) || contains_words(&document.normal_text, &answer)
        };
        if let Some(answer) = task.answers.iter().find(shows) {
            return Err(Rejection::AnswerInEarlierStep {
                doc_id: document.doc_id.clone(),
                answer: answer.clone(),
            });
        }
    }
    Ok(())
}

/// One question of reasonable length, without leftovers of a template.
pub fn well_formed(task: &Task) -> Result<(), Rejection> {
    let question = task.question.as_str();
    let letters = question.chars().count();
    let what = if !QUESTION_LENGTH.contains(&letters) {
        format!("{letters} characters, expected {} to {}", QUESTION_LENGTH.start(), QUESTION_LENGTH.end())
    } else if !question.ends_with('?') {
        "does not end with a question mark".to_owned()
    } else if question.matches('?').count() > 1 {
        "more than one question mark".to_owned()
    } else if !question.starts_with(|letter: char| letter.is_uppercase() || letter.is_ascii_digit()) {
        "does not begin with a capital letter".to_owned()
    } else if question.contains(['{', '}', '\n', '\t', '<', '>']) || question.contains("  ") {
        "holds braces, markup or stray white space".to_owned()
    } else if question.matches('(').count() != question.matches(')').count()
        || question.matches('“').count() != question.matches('”').count()
    {
        "unbalanced parentheses or quotation marks".to_owned()
    } else if task.answers.iter().any(|answer| answer.trim().is_empty()) || task.answers.is_empty() {
        "an empty answer".to_owned()
    } else {
        return Ok(());
    };
    Err(Rejection::Malformed { what })
}

/// Finds questions that stand already, in normal form.
#[derive(Clone, Debug, Default)]
pub struct Duplicates {
    seen: HashMap<String, String>,
}

impl Duplicates {
    /// Remembers the task's question, or names the task that has it.
    pub fn insert(&mut self, task: &Task) -> Result<(), Rejection> {
        let form = normal_form(&task.question);
        if let Some(first) = self.seen.get(&form) {
            return Err(Rejection::Duplicate { of: first.clone() });
        }
        self.seen.insert(form, task.id.clone());
        Ok(())
    }
}

/// The split that all touched entities belong to.
pub fn within_one_split(
    touched: &[usize],
    assigned: &[Split],
    names: &Gazetteer,
) -> Result<Split, Rejection> {
    let mut by_split: BTreeMap<Split, usize> = BTreeMap::new();
    for &entity in touched {
        by_split.entry(assigned[entity]).or_insert(entity);
    }
    match (by_split.len(), by_split.keys().next()) {
        (1, Some(split)) => Ok(*split),
        _ => Err(Rejection::CrossSplit {
            entities: by_split.values().map(|&index| names.name(index).to_owned()).collect(),
        }),
    }
}

/// Every step's document must be among the first `k` for the step's query, and the passage shown of it must contain
/// the step's finding (title and passage) as the expert looks for it.
///
/// A failure of the engine is an error, never a rejection.
pub async fn retrievable(
    task: &Task,
    backend: &dyn SearchBackend,
    k: usize,
) -> Result<Result<(), Rejection>, SearchError> {
    for (step, doc_id) in task.expert.iter().zip(&task.evidence) {
        let response = backend.search(&step.query, k).await?;
        let (doc_id, query) = (doc_id.clone(), step.query.clone());
        let Some(hit) = response.hits.iter().take(k).find(|hit| hit.doc_id == doc_id) else {
            return Ok(Err(Rejection::NotRetrievable { doc_id, query, k }));
        };
        if !step.is_shown_in(&format!("{} {}", hit.title, hit.text)) {
            let finding = fold_whitespace(&step.finding);
            return Ok(Err(Rejection::FindingNotShown { doc_id, query, finding }));
        }
    }
    Ok(Ok(()))
}

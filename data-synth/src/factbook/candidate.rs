//! Facts of the corpus, and the candidate tasks that are worded from them.

use drgym_env::seed::derive_seed;
use drgym_env::{ExpertStep, Task, TaskProvenance};
use drgym_search::corpus::factbook::Entity;
use serde_json::Value as Json;

use super::extract::Value;
use super::gazetteer::Gazetteer;
use super::relation::{Clue, Relation, relations};
use crate::checks::Rejection;
use crate::normal_form::{fold_whitespace, normal_form};

/// Name and version of this generator, part of every task's provenance.
pub const GENERATOR: &str = "factbook-rules/2";

/// Prefix of the `phrasing` of tasks that are worded as no training task is.
pub const UNSEEN: &str = "unseen/";

/// A document that holds what a step looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Identifier of the document.
    pub doc_id: String,
    /// Title and text as an agent sees them, white space folded.
    pub seen_text: String,
    /// Title in normal form.
    pub normal_title: String,
    /// Text in normal form.
    pub normal_text: String,
}

/// One value of one entity.
#[derive(Clone, Debug)]
pub struct Fact {
    /// Index of the entity in the corpus.
    pub entity: usize,
    /// What the value is.
    pub relation: &'static Relation,
    /// The value.
    pub value: Value,
    /// Where it stands.
    pub evidence: Evidence,
}

/// Which wordings a task is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wording {
    /// Wordings that every split uses.
    Seen,
    /// Wordings of the test split alone.
    Unseen,
}

/// A task that has not been checked yet.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The task as it would be written.
    pub task: Task,
    /// Index of the entity that is asked about.
    pub entity: usize,
    /// Indices of all entities that the task touches, ascending.
    pub touched: Vec<usize>,
    /// Identifier of the relation that is asked for.
    pub relation: &'static str,
    /// Identifier of the relation that describes the entity, if it is not named.
    pub clue: Option<&'static str>,
    /// The wordings used.
    pub wording: Wording,
    /// One document for each step of the expert.
    pub evidence: Vec<Evidence>,
}

/// What all tasks of a run share.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Names of the entities.
    pub names: &'a Gazetteer,
    /// Root seed of the run.
    pub seed: u64,
    /// Hash of the corpus.
    pub corpus: &'a str,
    /// Entities of the corpus.
    pub entities: &'a [Entity],
}

/// Reads every fact that can be asked for; values that the extractors refuse come back as rejections, with the
/// entity's index and the relation's identifier. A field or subfield that an entity lacks is neither.
pub fn facts(entities: &[Entity], names: &Gazetteer) -> (Vec<Fact>, Vec<(usize, &'static str, Rejection)>) {
    let (mut facts, mut rejected) = (Vec::new(), Vec::new());
    for (index, entity) in entities.iter().enumerate().filter(|(index, _)| names.is_askable(*index)) {
        for relation in relations() {
            let Some(field) = entity.field(relation.section, relation.field) else { continue };
            let Some(text) = field.part(relation.part) else { continue };
            let title = format!("{} – {}", entity.name, field.name);
            match (relation.extract)(text) {
                Ok(value) => facts.push(Fact {
                    entity: index,
                    relation,
                    value,
                    evidence: Evidence {
                        doc_id: field.doc_id(entity),
                        seen_text: fold_whitespace(&format!("{title} {}", field.text())),
                        normal_title: normal_form(&title),
                        normal_text: normal_form(&field.text()),
                    },
                }),
                Err(why) => rejected.push((
                    index,
                    relation.id,
                    Rejection::MessyValue { why: why.to_owned(), value: text.to_owned() },
                )),
            }
        }
    }
    (facts, rejected)
}

/// The question that names its entity.
pub fn one_hop(fact: &Fact, wording: Wording, context: &Context<'_>) -> Candidate {
    let id = format!("factbook/{}/{}", context.entities[fact.entity].code, fact.relation.id);
    let (number, template) = choose(context.seed, &id, "question", questions(fact.relation, wording));
    let question = capitalised(&template.replace("{subject}", context.names.spoken(fact.entity)));
    let phrasing = format!("{}{}/{number}", prefix(wording), fact.relation.id);
    candidate(Draft { id, question, phrasing, kind: "one_hop", fact, clue: None, wording }, context)
}

/// The question that describes its entity by `clue`, a fact about the same entity in another field.
pub fn two_hop(clue: &Fact, how: &Clue, fact: &Fact, wording: Wording, context: &Context<'_>) -> Candidate {
    let id = format!(
        "factbook/{}/{}/by/{}",
        context.entities[fact.entity].code, fact.relation.id, clue.relation.id
    );
    let phrases = match wording {
        Wording::Seen => how.phrases,
        Wording::Unseen => how.unseen_phrases,
    };
    let (question_number, template) =
        choose(context.seed, &id, "question", questions(fact.relation, wording));
    let (phrase_number, phrase) = choose(context.seed, &id, "clue", phrases);
    let subject =
        phrase.replace("{noun}", context.names.noun(fact.entity)).replace("{value}", &clue.value.answer);
    let question = capitalised(&template.replace("{subject}", &subject));
    let phrasing = format!(
        "{}{}/{question_number}+{}/{phrase_number}",
        prefix(wording),
        fact.relation.id,
        clue.relation.id
    );
    candidate(
        Draft { id, question, phrasing, kind: "two_hop", fact, clue: Some((clue, how)), wording },
        context,
    )
}

struct Draft<'a> {
    id: String,
    question: String,
    phrasing: String,
    kind: &'static str,
    fact: &'a Fact,
    clue: Option<(&'a Fact, &'a Clue)>,
    wording: Wording,
}

fn candidate(draft: Draft<'_>, context: &Context<'_>) -> Candidate {
    let Draft { id, question, phrasing, kind, fact, clue, wording } = draft;
    let name = context.names.name(fact.entity);
    let (mut expert, mut evidence) = (Vec::new(), Vec::new());
    let mut extra = serde_json::Map::new();
    extra.insert("relation".to_owned(), Json::from(fact.relation.id));
    if let Some((clue, how)) = clue {
        extra.insert("clue".to_owned(), Json::from(clue.relation.id));
        expert.push(ExpertStep {
            query: how.query.replace("{value}", &clue.value.answer),
            finding: name.to_owned(),
        });
        evidence.push(clue.evidence.clone());
    }
    expert.push(ExpertStep {
        query: fact.relation.query.replace("{entity}", name),
        finding: fold_whitespace(&fact.value.finding),
    });
    evidence.push(fact.evidence.clone());

    let mut answers = vec![fact.value.answer.clone()];
    answers.extend(fact.value.aliases.iter().cloned());
    let mut touched = context.names.named_in(&question);
    touched.push(fact.entity);
    touched.extend(answers.iter().flat_map(|answer| context.names.named_in(answer)));
    touched.sort_unstable();
    touched.dedup();

    let others = touched.iter().filter(|&&index| index != fact.entity);
    let mut entities = vec![name.to_owned()];
    entities.extend(others.map(|&index| context.names.name(index).to_owned()));

    let task = Task {
        id,
        question,
        answers,
        evidence: evidence.iter().map(|document| document.doc_id.clone()).collect(),
        kind: kind.to_owned(),
        phrasing,
        entities,
        expert,
        provenance: TaskProvenance {
            generator: GENERATOR.to_owned(),
            corpus: context.corpus.to_owned(),
            seed: context.seed,
        },
        extra,
    };
    Candidate {
        task,
        entity: fact.entity,
        touched,
        relation: fact.relation.id,
        clue: clue.map(|(clue, _)| clue.relation.id),
        wording,
        evidence,
    }
}

fn questions(relation: &Relation, wording: Wording) -> &'static [&'static str] {
    match wording {
        Wording::Seen => relation.questions,
        Wording::Unseen => relation.unseen_questions,
    }
}

fn prefix(wording: Wording) -> &'static str {
    match wording {
        Wording::Seen => "seen/",
        Wording::Unseen => UNSEEN,
    }
}

/// A wording that depends on the seed and the task alone, with its number. `wordings` is never empty.
fn choose<'a>(seed: u64, id: &str, what: &str, wordings: &[&'a str]) -> (usize, &'a str) {
    let number = (derive_seed(seed, what, 0, id, 0) % wordings.len() as u64) as usize;
    (number, wordings[number])
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

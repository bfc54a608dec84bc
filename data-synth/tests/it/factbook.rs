//! The real Factbook, where it has been set up.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use drgym_env::Task;
use drgym_judge::{AnswerJudge, JudgeRequest, RuleJudge};
use drgym_search::corpus::factbook::read_entities;
use drgym_synth::factbook::candidate::{Context, Wording, facts, one_hop};
use drgym_synth::factbook::gazetteer::Gazetteer;
use drgym_synth::normal_form::normal_form;
use drgym_synth::{Fact, Split, SynthConfig, SynthInputs, UNSEEN, relations, run};

use crate::corpus::factbook_dir;
use crate::pipeline::{assert_disjoint, bytes_of, read_all};

const SKIPPED: &str = "skipped: needs the Factbook in $DRGYM_HOME/corpora/factbook or DRGYM_FACTBOOK";

/// Lower case, every run of other characters than letters and digits a space, one space on both sides.
fn words(text: &str) -> String {
    let lower = text.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    format!(" {} ", words.join(" "))
}

#[test]
fn known_values_are_extracted() {
    let Some(dir) = factbook_dir() else {
        println!("{SKIPPED}");
        return;
    };
    let entities = read_entities(&dir).unwrap();
    let names = Gazetteer::new(&entities);
    let (facts, _) = facts(&entities, &names);
    let value = |code: &str, relation: &str| {
        facts
            .iter()
            .find(|fact| entities[fact.entity].code == code && fact.relation.id == relation)
            .map(|fact| fact.value.answer.as_str())
    };
    // Read off the files by eye.
    for (code, relation, expected) in [
        ("ke", "highest_point", Some("Mount Kenya")),
        ("ke", "highest_elevation", Some("5,199 m")),
        ("ke", "coastline", Some("536 km")),
        ("ke", "total_area", Some("580,367 sq km")),
        ("ke", "capital", Some("Nairobi")),
        ("ke", "currency", Some("Kenyan shillings")),
        ("ke", "national_holiday", Some("12 December")),
        ("ke", "only_neighbour", None),
        ("gi", "only_neighbour", Some("Spain")),
        ("bn", "capital", None),
        ("bn", "highest_point", None),
        ("lt", "demonym", Some("Mosotho")),
        ("ni", "largest_city", Some("Lagos")),
        // The file gives one of the populations of Thailand as `1.454 Chon Buri`.
        ("th", "largest_city", None),
        ("gh", "largest_city", Some("Kumasi")),
        ("th", "former_name", Some("Siam")),
        ("al", "legislature_seats", Some("140")),
        ("kz", "coastline", None),
        ("za", "aircraft_prefix", Some("9J")),
        ("us", "capital", Some("Washington, D.C.")),
        ("gb", "national_anthem", Some("La Concorde")),
        ("hr", "local_name", Some("Hrvatska")),
        ("br", "independence_date", Some("7 September 1822")),
        ("it", "heritage_sites", Some("61")),
    ] {
        assert_eq!(value(code, relation), expected, "{code} {relation}");
    }
    let mut per_relation: HashMap<&str, usize> = HashMap::new();
    for fact in &facts {
        let text = entities[fact.entity].field(fact.relation.section, fact.relation.field).unwrap();
        assert!(text.part(fact.relation.part).unwrap().contains(&fact.value.finding));
        *per_relation.entry(fact.relation.id).or_default() += 1;
    }
    for relation in relations() {
        let least = if relation.id == "only_neighbour" { 15 } else { 50 };
        let count = per_relation.get(relation.id).copied().unwrap_or(0);
        assert!(count >= least, "{}: only {count} values", relation.id);
    }
}

#[tokio::test]
async fn the_default_run_is_complete_disjoint_balanced_and_repeatable() {
    let Some(dir) = factbook_dir() else {
        println!("{SKIPPED}");
        return;
    };
    let mut runs = Vec::new();
    for _ in 0..2 {
        let out = tempfile::tempdir().unwrap();
        let inputs = SynthInputs {
            corpus_dir: dir.clone(),
            corpus_hash: "c".to_owned(),
            backend: None,
            out_dir: out.path().to_owned(),
        };
        run(&SynthConfig::default(), &inputs, &|_| {}).await.unwrap();
        runs.push((bytes_of(out.path()), read_all(out.path())));
    }
    assert!(runs[0].0 == runs[1].0, "two runs with one seed differ");

    let tasks = &runs[0].1;
    assert_disjoint(tasks);
    let counts: Vec<usize> = Split::ALL.iter().map(|split| tasks[split].len()).collect();
    assert_eq!(counts, [2000, 200, 500]);
    let asked_about = |split: &Split| {
        let codes = tasks[split].iter().map(|task| task.id.split('/').nth(1).unwrap());
        codes.collect::<BTreeSet<_>>().len()
    };
    assert!(asked_about(&Split::Test) >= 60, "{}", asked_about(&Split::Test));
    assert!(asked_about(&Split::Dev) >= 20, "{}", asked_about(&Split::Dev));

    // The documents as a reader of the corpus would see them, independent of what the generator kept.
    let documents: HashMap<String, String> = read_entities(&dir)
        .unwrap()
        .iter()
        .flat_map(|entity| entity.documents().collect::<Vec<_>>())
        .map(|document| (document.doc_id, format!("{} {}", document.title, document.text)))
        .collect();
    let mut wordings: BTreeMap<bool, BTreeSet<&str>> = BTreeMap::new();
    for (split, tasks) in tasks {
        let mut per_relation: BTreeMap<&str, usize> = BTreeMap::new();
        for task in tasks {
            assert_eq!(task.evidence.len(), task.expert.len());
            assert_eq!(task.evidence.len(), if task.kind == "two_hop" { 2 } else { 1 });
            for (doc_id, step) in task.evidence.iter().zip(&task.expert) {
                let text = documents[doc_id].split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(text.contains(&step.finding), "{}: no {:?} in {text}", task.id, step.finding);
            }
            let question = words(&task.question);
            assert!(
                !task
                    .answers
                    .iter()
                    .any(|answer| !answer.starts_with('.') && question.contains(&words(answer))),
                "{}: {} {:?}",
                task.id,
                task.question,
                task.answers
            );
            let relation = task.extra["relation"].as_str().unwrap();
            *per_relation.entry(relation).or_default() += 1;
            let is_unseen = task.phrasing.starts_with(UNSEEN);
            let (_, wording) = task.phrasing.split_once('/').unwrap();
            wordings.entry(is_unseen).or_default().extend(wording.split('+').filter_map(|part| {
                let (relation, number) = part.split_once('/').unwrap();
                let relation = drgym_synth::factbook::relation::relation(relation).unwrap();
                let number: usize = number.parse().unwrap();
                if part == wording.split('+').next().unwrap() {
                    let questions = if is_unseen { relation.unseen_questions } else { relation.questions };
                    questions.get(number).copied()
                } else {
                    let clue = relation.clue.unwrap();
                    let phrases = if is_unseen { clue.unseen_phrases } else { clue.phrases };
                    phrases.get(number).copied()
                }
            }));
        }
        assert!(per_relation.len() >= 30, "{split:?}: {per_relation:?}");
        let most = per_relation.values().max().unwrap();
        assert!(most * 20 <= tasks.len(), "{split:?}: one relation has {most} of {}", tasks.len());
    }
    assert!(wordings[&true].len() >= 30);
    assert!(wordings[&true].is_disjoint(&wordings[&false]));
}

/// A policy that copies what stands in the evidence is right, and one that answers with another country's value of
/// the same relation, or with the right number in another unit, is wrong: to the question as it is asked, in the
/// wordings of every split.
#[tokio::test]
async fn the_rule_judge_tells_the_answers_from_the_others() {
    let Some(dir) = factbook_dir() else {
        println!("{SKIPPED}");
        return;
    };
    let entities = read_entities(&dir).unwrap();
    let names = Gazetteer::new(&entities);
    let context = Context { names: &names, seed: 1, corpus: "c", entities: &entities };
    let (facts, _) = facts(&entities, &names);
    let tasks =
        |fact: &Fact| [Wording::Seen, Wording::Unseen].map(|wording| one_hop(fact, wording, &context).task);
    let judge = |task: &Task, answer: &str| {
        let request = JudgeRequest {
            question: task.question.clone(),
            references: task.answers.clone(),
            answer: answer.to_owned(),
        };
        async move { RuleJudge.judge(&request).await.unwrap().correct }
    };
    let (mut taken_for_another, mut compared, mut in_another_unit) = (Vec::new(), 0, 0);
    for relation in relations() {
        let values: Vec<&Fact> = facts.iter().filter(|fact| fact.relation.id == relation.id).collect();
        for pair in values.windows(2) {
            let [fact, other] = pair else { continue };
            let same = |answer: &String| normal_form(answer) == normal_form(&other.value.answer);
            let differs = !same(&fact.value.answer) && !fact.value.aliases.iter().any(same);
            for task in tasks(fact) {
                assert!(judge(&task, &fact.value.answer).await, "{:?}", fact.value);
                assert!(judge(&task, &fact.value.finding).await, "{:?}", fact.value);
                if differs {
                    compared += 1;
                    if judge(&task, &other.value.answer).await {
                        taken_for_another.push((task.question.clone(), &fact.value, &other.value.answer));
                    }
                }
                let Some((number, unit)) = measured(&fact.value.answer) else { continue };
                assert!(judge(&task, number).await, "{}: {number}", task.question);
                let another = if unit == "km" { "sq km" } else { "km" };
                in_another_unit += 1;
                assert!(!judge(&task, &format!("{number} {another}")).await, "{}: {another}", task.question);
            }
        }
    }
    assert!(compared > 6000 && in_another_unit > 500, "{compared} {in_another_unit}");
    assert!(
        taken_for_another.is_empty(),
        "{} of {compared}: {taken_for_another:#?}",
        taken_for_another.len()
    );
}

/// Number and unit of an answer that has both.
fn measured(answer: &str) -> Option<(&str, &str)> {
    if let Some(number) = answer.strip_suffix('%') {
        return Some((number, "%"));
    }
    let (number, unit) = answer.split_once(' ')?;
    ["sq km", "km", "m", "years"].contains(&unit).then_some((number, unit))
}

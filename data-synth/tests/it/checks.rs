//! Every check finds the flaws planted for it, and lets the sound task beside them pass.

use drgym_env::{ExpertStep, Task};
use drgym_search::corpus::factbook::Entity;
use drgym_synth::checks::{self, DescribingTexts, Duplicates, Rejection};
use drgym_synth::factbook::candidate::{Candidate, Context, Evidence, Fact, Wording, facts, one_hop};
use drgym_synth::factbook::gazetteer::Gazetteer;
use drgym_synth::normal_form::{fold_whitespace, normal_form};
use drgym_synth::split::Split;

use crate::corpus::{WordOverlap, entity, write_small};

fn task(question: &str, answers: &[&str]) -> Task {
    Task {
        id: question.to_owned(),
        question: question.to_owned(),
        answers: answers.iter().map(|answer| (*answer).to_owned()).collect(),
        evidence: vec!["d".to_owned()],
        kind: "one_hop".to_owned(),
        phrasing: String::new(),
        entities: Vec::new(),
        expert: Vec::new(),
        provenance: drgym_env::TaskProvenance::default(),
        extra: serde_json::Map::new(),
    }
}

fn evidence(title: &str, text: &str) -> Evidence {
    Evidence {
        doc_id: "d".to_owned(),
        seen_text: fold_whitespace(&format!("{title} {text}")),
        normal_title: normal_form(title),
        normal_text: normal_form(text),
    }
}

#[test]
fn questions_that_contain_their_answer_are_refused() {
    for (question, answers) in [
        ("What is the capital of the country whose largest city is Nairobi?", &["Nairobi"][..]),
        ("What is the capital of Mexico, that is, mexico city?", &["Mexico City"]),
        ("Is it called “Cote d’Ivoire” locally?", &["Ivory Coast", "Côte d'Ivoire"]),
        ("How long is the 1,572 km coastline of Namibia?", &["1572 km"]),
        ("Which code, .ke or .tz, does Kenya use?", &[".ke"]),
        (
            "What colors are red, white and blue flags of France?",
            &["blue, white, red", "red, white, and blue"],
        ),
    ] {
        let verdict = checks::no_answer_in_question(&task(question, answers));
        assert!(matches!(verdict, Err(Rejection::AnswerInQuestion { .. })), "{question}: {verdict:?}");
    }
    for (question, answers) in [
        ("What is a citizen of Kenya called?", &["Kenyan", "Kenyans"][..]),
        ("Which internet country code is used in India?", &[".in"]),
        ("How many airports are there in Kenya?", &["3"]),
    ] {
        assert_eq!(checks::no_answer_in_question(&task(question, answers)), Ok(()), "{question}");
    }
}

#[test]
fn malformed_questions_are_refused() {
    let long = format!("What is {}?", "very ".repeat(80));
    for question in [
        "What is the capital of Kenya",
        "what is the capital of Kenya?",
        "What is the capital of {subject}?",
        "What is the  capital of Kenya?",
        "Capital of X?",
        "What is the capital? Of which country, Kenya?",
        "What is the anthem “Ee Mungu of Kenya?",
        "What is the capital of Congo (Brazzaville?",
        "What is the <b>capital</b> of Kenya?",
        &long,
    ] {
        let verdict = checks::well_formed(&task(question, &["x"]));
        assert!(matches!(verdict, Err(Rejection::Malformed { .. })), "{question}: {verdict:?}");
    }
    for answers in [&[][..], &[""], &["x", " "]] {
        let verdict = checks::well_formed(&task("What is the capital of Kenya?", answers));
        assert!(matches!(verdict, Err(Rejection::Malformed { .. })), "{answers:?}");
    }
    assert_eq!(checks::well_formed(&task("What is the capital of Kenya?", &["Nairobi"])), Ok(()));
}

#[test]
fn evidence_without_its_answer_or_finding_is_refused() {
    let sound = |answer: &str, finding: &str, text: &str| {
        let mut task = task("What is the capital of Kenya?", &[answer]);
        task.expert = vec![ExpertStep { query: "q".to_owned(), finding: finding.to_owned() }];
        checks::evidence_holds(&task, &[evidence("Kenya – Capital", text)])
    };
    assert_eq!(sound("Nairobi", "Nairobi", "name: Nairobi\nnote: x"), Ok(()));
    assert_eq!(sound("Nairobi", "NAIROBI", "4 million  NAIROBI (capital)"), Ok(()));
    assert_eq!(sound("5,199 m", "5,199 m", "Mount  Kenya 5,199\nm"), Ok(()));
    for (answer, text) in [
        ("Nairobi", "name: Mombasa"),
        ("Nairobi", "Nairobian"),
        ("3", "13 (2024)"),
        ("5,199 m", "5,199"),
        ("", "x"),
    ] {
        let verdict = sound(answer, "Kenya", text);
        assert!(
            matches!(verdict, Err(Rejection::AnswerNotInEvidence { .. })),
            "{answer} in {text}: {verdict:?}"
        );
    }
    for (finding, text) in [
        ("nairobi", "Nairobi"),
        ("Nairobi.", "Nairobi"),
        ("", "Nairobi"),
        ("Nai robi", "Nairobi"),
        ("X", "Nairobi"),
        ("Nairobi", "Nairobian"),
        ("9", "Nairobi (1999)"),
    ] {
        let verdict = sound("Nairobi", finding, text);
        assert!(
            matches!(verdict, Err(Rejection::FindingNotInEvidence { .. })),
            "{finding} in {text}: {verdict:?}"
        );
    }
    let steps = task("What is the capital of Kenya?", &["Nairobi"]);
    assert!(matches!(
        checks::evidence_holds(&steps, &[evidence("Kenya – Capital", "Nairobi")]),
        Err(Rejection::Malformed { .. })
    ));
}

#[test]
fn answers_that_an_earlier_step_shows_are_refused() {
    let verdict = |answers: &[&str], title: &str, text: &str| {
        let task = task("What is the anthem of the country whose capital is Tehran?", answers);
        checks::every_step_needed(&task, &[evidence(title, text), evidence("Iran – Anthem", "Soroud")])
    };
    for (answers, title, text) in [
        (&["Iran"][..], "Iran – Capital", "name: Tehran"),
        (&["Tehran"], "Iran – Capital", "name: Tehran"),
        (&["x", "Teheran"], "Iran – Capital", "name: Tehran (Teheran)"),
        (&["1,572 km"], "Iran – Capital", "1572 km from the sea"),
        (&["Tāq-e Bostān"], "Iran – Capital", "also taq e bostan"),
    ] {
        let verdict = verdict(answers, title, text);
        assert!(matches!(verdict, Err(Rejection::AnswerInEarlierStep { .. })), "{answers:?}: {verdict:?}");
    }
    assert_eq!(verdict(&["Soroud"], "Iran – Capital", "name: Tehran"), Ok(()));
    let one_step = task("What is the capital of Iran?", &["Tehran"]);
    assert_eq!(checks::every_step_needed(&one_step, &[evidence("Iran – Capital", "Tehran")]), Ok(()));
}

#[test]
fn repeated_questions_are_refused() {
    let mut duplicates = Duplicates::default();
    assert_eq!(duplicates.insert(&task("What is the capital of Côte d'Ivoire?", &["x"])), Ok(()));
    for question in [
        "What is the capital of Côte d'Ivoire?",
        "what is the capital of cote d’ivoire?",
        "What is the capital, of Cote dIvoire?",
        "What is the  capital of Côte d'Ivoire ?",
        "What is the capital of “Côte d'Ivoire”?",
    ] {
        let verdict = duplicates.insert(&task(question, &["x"]));
        assert!(matches!(verdict, Err(Rejection::Duplicate { .. })), "{question}: {verdict:?}");
    }
    assert_eq!(duplicates.insert(&task("What is the capital of Kenya?", &["x"])), Ok(()));
}

fn capital(name: &'static str) -> (&'static str, &'static str, &'static str, &'static str) {
    ("Government", "Capital", "name", name)
}

fn fact_of<'a>(facts: &'a [Fact], entity: usize, relation: &str) -> &'a Fact {
    facts.iter().find(|fact| fact.entity == entity && fact.relation.id == relation).unwrap()
}

#[test]
fn descriptions_that_fit_others_or_betray_the_name_are_refused() {
    let symbol = |text| ("Government", "National symbol(s)", "", text);
    let entities: Vec<Entity> = vec![
        entity("jm", "Jamaica", &[capital("Kingston"), symbol("lion")]),
        entity("nf", "Norfolk Island", &[capital("Kingston"), symbol("red lion")]),
        entity("ku", "Kuwait", &[capital("Kuwait City"), symbol("golden rampant lion, of red")]),
        entity("uk", "United Kingdom", &[capital("London"), symbol("oak")]),
        // Refused by the extractor, but it still stands in the way of London.
        entity("io", "Diego Garcia", &[capital("administered from London; and others"), symbol("zebra")]),
        entity("ly", "Libya", &[capital("Libiya"), symbol("hawk")]),
        entity("aj", "Azerbaijan", &[capital("Azarbaycan"), symbol("flame")]),
        entity("ke", "Kenya", &[capital("Nairobi"), symbol("giraffe")]),
    ];
    let names = Gazetteer::new(&entities);
    let (facts, _) = facts(&entities, &names);
    let texts = DescribingTexts::new(&entities);
    let verdict =
        |entity, relation| checks::unique_description(fact_of(&facts, entity, relation), &texts, &names);
    for (entity, relation) in
        [(0, "capital"), (1, "capital"), (3, "capital"), (0, "national_symbol"), (1, "national_symbol")]
    {
        let verdict = verdict(entity, relation);
        assert!(
            matches!(verdict, Err(Rejection::DescriptionNotUnique { .. })),
            "{entity} {relation}: {verdict:?}"
        );
    }
    for entity in [2, 5, 6] {
        let verdict = verdict(entity, "capital");
        assert!(matches!(verdict, Err(Rejection::DescriptionGivesNameAway { .. })), "{entity}: {verdict:?}");
    }
    for (name, capital_name) in [("Guatemala", "Guatemala City"), ("Tunisia", "Tunis")] {
        let entities = [entity("aa", name, &[("Government", "Capital", "name", capital_name)])];
        let names = Gazetteer::new(&entities);
        let (facts, _) = drgym_synth::factbook::candidate::facts(&entities, &names);
        let verdict = checks::unique_description(&facts[0], &DescribingTexts::new(&entities), &names);
        assert!(matches!(verdict, Err(Rejection::DescriptionGivesNameAway { .. })), "{name}: {verdict:?}");
    }
    assert_eq!(verdict(7, "capital"), Ok(()));
    assert_eq!(verdict(7, "national_symbol"), Ok(()));
}

#[test]
fn names_that_fit_several_entities_are_refused() {
    let names = |list: &[&str]| {
        let entities: Vec<Entity> =
            list.iter().enumerate().map(|(index, name)| entity(&format!("z{index}"), name, &[])).collect();
        Gazetteer::new(&entities)
    };
    for list in [
        ["Guinea", "Guinea-Bissau"],
        ["Sudan", "South Sudan"],
        ["Samoa", "American Samoa"],
        ["Congo", "Congo (Brazzaville)"],
        ["Korea", "North Korea"],
        ["Virgin Islands", "British Virgin Islands"],
    ] {
        let names = names(&list);
        let verdict = checks::unambiguous_name(0, &names);
        assert!(matches!(verdict, Err(Rejection::AmbiguousName { .. })), "{list:?}: {verdict:?}");
        assert_eq!(checks::unambiguous_name(1, &names), Ok(()), "{list:?}");
    }
    assert_eq!(checks::unambiguous_name(0, &names(&["Niger", "Nigeria"])), Ok(()));
}

fn described(question: &str) -> Candidate {
    Candidate {
        task: task(question, &["x"]),
        entity: 0,
        touched: vec![0],
        relation: "population",
        clue: Some("capital"),
        wording: Wording::Seen,
        evidence: Vec::new(),
    }
}

#[test]
fn described_entities_must_not_be_named() {
    let entities = [entity("uk", "United Kingdom", &[]), entity("ke", "Kenya", &[])];
    let names = Gazetteer::new(&entities);
    for question in [
        "What is the population of the United Kingdom whose capital is London?",
        "What is the population of the country whose legislature is the UK Parliament?",
        "What is the population of the country called united kingdom?",
        "What is the population of the country “United Kingdom”?",
        "What is the population of Great Britain?",
    ] {
        let verdict = checks::entity_not_named(&described(question), &names);
        assert!(matches!(verdict, Err(Rejection::DescriptionGivesNameAway { .. })), "{question}");
    }
    let sound = described("What is the population of the country that borders Kenya?");
    assert_eq!(checks::entity_not_named(&sound, &names), Ok(()));
}

#[test]
fn tasks_across_splits_are_refused() {
    let entities: Vec<Entity> = ["A", "B", "C", "D"].iter().map(|name| entity(name, name, &[])).collect();
    let names = Gazetteer::new(&entities);
    let assigned = [Split::Train, Split::Train, Split::Dev, Split::Test];
    for touched in [&[0, 2][..], &[0, 3], &[2, 3], &[0, 1, 3], &[0, 2, 3], &[]] {
        let verdict = checks::within_one_split(touched, &assigned, &names);
        assert!(matches!(verdict, Err(Rejection::CrossSplit { .. })), "{touched:?}: {verdict:?}");
    }
    assert_eq!(checks::within_one_split(&[0, 1], &assigned, &names), Ok(Split::Train));
    assert_eq!(checks::within_one_split(&[3], &assigned, &names), Ok(Split::Test));
}

#[tokio::test]
async fn tasks_whose_evidence_is_not_found_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_small(dir.path(), 12);
    let entities = drgym_search::corpus::factbook::read_entities(dir.path()).unwrap();
    let names = Gazetteer::new(&entities);
    let context = Context { names: &names, seed: 1, corpus: "c", entities: &entities };
    let (facts, _) = facts(&entities, &names);
    let whole = WordOverlap::over(dir.path());
    let without = WordOverlap::over(dir.path()).without("/capital");
    let short = WordOverlap::over(dir.path()).showing(7);
    for entity in 0..12 {
        let capital = one_hop(fact_of(&facts, entity, "capital"), Wording::Seen, &context).task;
        assert_eq!(checks::retrievable(&capital, &whole, 1).await.unwrap(), Ok(()));
        let verdict = checks::retrievable(&capital, &without, 3).await.unwrap();
        assert!(matches!(verdict, Err(Rejection::NotRetrievable { k: 3, .. })), "{verdict:?}");
        let verdict = checks::retrievable(&capital, &short, 3).await.unwrap();
        assert!(matches!(verdict, Err(Rejection::FindingNotShown { .. })), "{verdict:?}");
    }
}

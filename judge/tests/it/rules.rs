//! What the rules accept and reject.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use drgym_judge::normalize::normalize;
use drgym_judge::{JudgeError, JudgeRequest, RuleJudge, Verdict, VerdictSource};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    question: String,
    references: Vec<String>,
    answer: String,
    correct: bool,
    rule: String,
}

fn judge(question: &str, references: &[&str], answer: &str) -> Verdict {
    let request = JudgeRequest {
        question: question.into(),
        references: references.iter().map(ToString::to_string).collect(),
        answer: answer.into(),
    };
    RuleJudge.decide(&request).unwrap()
}

#[test]
fn the_table_of_cases() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rule_cases.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let (mut accepted, mut rejected, mut wrong) = (0, 0, Vec::new());
    for (index, line) in text.lines().enumerate() {
        let case: Case = serde_json::from_str(line).unwrap();
        let references: Vec<&str> = case.references.iter().map(String::as_str).collect();
        let verdict = judge(&case.question, &references, &case.answer);
        if (verdict.correct, &verdict.source) != (case.correct, &VerdictSource::Rule(case.rule)) {
            wrong.push(format!("line {}: {line}\n    gave {verdict:?}", index + 1));
        }
        *if case.correct { &mut accepted } else { &mut rejected } += 1;
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
    assert!(accepted >= 100 && rejected >= 100, "{accepted} accepted, {rejected} rejected");
}

#[test]
fn without_a_usable_reference_there_is_no_verdict() {
    for references in [vec![], vec![String::new()], vec!["--".to_owned()]] {
        let request = JudgeRequest { question: "Q?".into(), references, answer: "a".into() };
        assert!(matches!(RuleJudge.decide(&request), Err(JudgeError::NoReference)));
    }
}

/// Answers of public question sets: each is accepted for itself, and other questions' answers, which are wrong unless
/// they happen to say the same in other words, hardly ever: at most once in 2,000.
#[test]
fn answers_of_public_sets_match_themselves_and_hardly_each_other() {
    #[derive(Deserialize)]
    struct Item {
        question: String,
        answers: Vec<String>,
    }
    let root = std::env::var_os("DRGYM_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"), PathBuf::from);
    let mut items: Vec<Item> = Vec::new();
    for name in ["popqa.1000.jsonl", "frames.test.jsonl", "bamboogle.jsonl", "webquestions.test.jsonl"] {
        let Ok(text) = std::fs::read_to_string(root.join("qa").join(name)) else {
            let _ = writeln!(std::io::stderr(), "skipped: needs {name} under DRGYM_DATA/qa");
            return;
        };
        items.extend(text.lines().map(|line| serde_json::from_str::<Item>(line).unwrap()));
    }
    items.retain(|item| item.answers.iter().any(|answer| answer.chars().any(char::is_alphanumeric)));
    let mut crossed = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let references: Vec<&str> = item.answers.iter().map(String::as_str).collect();
        for answer in references.iter().filter(|answer| answer.chars().any(char::is_alphanumeric)) {
            assert!(judge(&item.question, &references, answer).correct, "{answer:?} for {:?}", item.question);
        }
        for shift in 1..=10 {
            let other = &items[(index + shift) % items.len()].answers[0];
            let known = references.iter().any(|reference| normalize(reference) == normalize(other));
            if !known && judge(&item.question, &references, other).correct {
                crossed.push(format!("{other:?} for {references:?}"));
            }
        }
    }
    assert!(crossed.len() * 2000 <= items.len() * 10, "{} of {}: {crossed:#?}", crossed.len(), items.len());
}

proptest! {
    #[test]
    fn every_reference_matches_itself(reference in "\\PC{1,40}", question in "\\PC{0,20}") {
        prop_assume!(reference.chars().any(char::is_alphanumeric));
        prop_assert!(judge(&question, &[&reference], &reference).correct);
    }

    #[test]
    fn case_and_whitespace_do_not_matter(
        reference in "[A-Za-zÀ-ÿŁłŒœΑ-ω0-9 .,;:'’()/%$&+=-]{1,30}",
        answer in "[A-Za-zÀ-ÿ0-9 .,'()-]{1,30}",
        same in any::<bool>(),
    ) {
        prop_assume!(reference.chars().any(char::is_alphanumeric));
        let answer = if same { reference.clone() } else { answer };
        let spaced = format!(" \t{}\u{a0}\n", answer.split(' ').collect::<Vec<_>>().join("  "));
        let verdict = judge("Which?", &[&reference], &answer).correct;
        prop_assert_eq!(verdict, judge("Which?", &[&reference], &spaced).correct);
        if same {
            prop_assert!(verdict);
            // Behind a number case may count: 5 m is not 5 M.
            if !reference.contains(|c: char| c.is_ascii_digit()) {
                prop_assert!(judge("Which?", &[&reference], &answer.to_uppercase()).correct);
                prop_assert!(judge("Which?", &[&reference], &answer.to_lowercase()).correct);
            }
        }
    }

    #[test]
    fn no_answer_makes_the_judge_panic(answer in "\\PC{0,60}", reference in "[0-9a-zA-Z$€£°% ,./-]{1,20}") {
        prop_assume!(reference.chars().any(char::is_alphanumeric));
        judge("How many metres is it?", &[&reference], &answer);
        judge("How many metres is it?", &["5 m"], &reference);
    }

    #[test]
    fn numbers_match_only_their_own_value(a in -10_000_000_i64..10_000_000, b in -10_000_000_i64..10_000_000) {
        let reference = format!("{a} km");
        let metres = (i128::from(b) * 1000).to_string();
        prop_assert_eq!(judge("How far?", &[&reference], &format!("{metres} m")).correct, a == b);
        let own = format!("{} m", i128::from(a) * 1000);
        prop_assert!(judge("How far?", &[&reference], &own).correct);
    }

    #[test]
    fn a_second_candidate_spoils_an_answer(word in "[B-Zb-z][a-z]{2,10}", other in "[B-Zb-z][a-z]{2,10}", joint in 0..5_usize) {
        let joined = [" or ", ", ", "; ", " and ", "\n"][joint];
        prop_assume!(!word.contains("or") && !other.contains("or"));
        let answer = format!("{word}{joined}{other}");
        prop_assert!(!judge("Which?", &[&word], &answer).correct);
    }
}

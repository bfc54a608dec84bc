//! What people put around an answer: lead-ins, restated questions, asides in parentheses.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;

use crate::normalize::{normalize, pattern, ungroup_thousands, unify};

static LEAD_IN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix)^(?:
            (?:so|thus|therefore|hence)\b[,:]?\s+
          | i\s+(?:think|believe)(?:\s+that)?[,:]?\s+
          | (?:(?:the|my)\s+)?(?:(?:final|correct|right|exact|short)\s+)?answer(?:\s+to\s+(?:the|this|your)\s+question)?
            (?:\s+(?:is|was|would\s+be)\s*:?\s+ | \s*[:=]\s*)
          | (?:it|they|he|she)\s+(?:is|are|was|were)\s*:?\s+
          | it['’]s\s+
        )",
    )
});
static PARENTHESES: LazyLock<Regex> = LazyLock::new(|| pattern(r"(^|\s)(?:\(([^()]*)\)|\[([^\[\]]*)\])"));
static HEDGE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\s*(?:or|and|maybe|perhaps|possibly|alternatively|if|unless)\b|^\s*(?:not|no|false|wrong|incorrect)\s*$|\?",
    )
});
static COPULA: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\s+(?:is|are|was|were)(?::?\s+)|:\s+"));
static NEGATION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)^(?:not|no|never|neither|none|isn['’]?t|wasn['’]?t|aren['’]?t)\b"));
static NEGATIVE_WORD: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(?:not|never|no|except|without|neither|nor)\b|n['’]t\b"));
static PLACE_QUESTION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)^\W*(?:where|(?:in|on|at) (?:which|what))\b"));
static PLACE_PREPOSITION: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)^(?:in|on|at)\s+"));
static SEPARATOR: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\s*(?:[,;\n]|\s(?:and|&|or)\s)\s*(?:(?:and|or)\s+)?"));

/// Longer answers are compared as a whole only: nobody answers a short question at this length.
const LONGEST_PHRASE: usize = 600;

/// Every reading of an answer: as written, without lead-ins, without what restates the question, without asides.
pub(super) fn answer_readings(answer: &str, question: &str) -> Vec<String> {
    let mut readings = vec![answer.trim().to_owned()];
    if answer.chars().count() > LONGEST_PHRASE {
        return readings;
    }
    let bare = strip_lead_ins(answer);
    add(&mut readings, bare);
    for restated in without_restatement(bare, question) {
        add(&mut readings, restated);
    }
    if PLACE_QUESTION.is_match(question)
        && let Some(found) = PLACE_PREPOSITION.find(bare)
    {
        add(&mut readings, &bare[found.end()..]);
    }
    for index in 0..readings.len() {
        if let Some(plain) = without_asides(&readings[index], true) {
            add(&mut readings, &plain);
        }
    }
    readings
}

/// A reference as written, and without its parentheses.
pub(super) fn reference_readings(reference: &str) -> Vec<String> {
    let mut readings = vec![reference.trim().to_owned()];
    if let Some(plain) = without_asides(reference, false) {
        add(&mut readings, &plain);
    }
    readings
}

/// Whether an answer, its lead-in aside, begins by denying.
pub(super) fn is_negated(answer: &str) -> bool {
    NEGATION.is_match(strip_lead_ins(answer))
}

/// The parts of an enumeration, normalised; one part where nothing separates.
pub(super) fn parts(text: &str) -> Vec<String> {
    SEPARATOR.split(&ungroup_thousands(&unify(text))).map(normalize).filter(|part| !part.is_empty()).collect()
}

/// Whether a text has anything that could be an answer.
pub(super) fn says_something(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

fn add(readings: &mut Vec<String>, reading: &str) {
    let reading = reading.trim();
    if says_something(reading) && !readings.iter().any(|known| known == reading) {
        readings.push(reading.to_owned());
    }
}

fn strip_lead_ins(answer: &str) -> &str {
    let mut bare = answer.trim().trim_matches(['*', '"', '`']);
    for _ in 0..4 {
        match LEAD_IN.find(bare) {
            Some(found) if says_something(&bare[found.end()..]) => bare = &bare[found.end()..],
            _ => break,
        }
    }
    bare
}

/// `The capital of France is Paris` and `Paris is the capital of France` for a question made of those words.
///
/// The part to leave out may hold only words of the question, so that it says nothing of its own; a question that
/// itself negates is left alone, since there the leaving out could turn the meaning round.
fn without_restatement<'a>(answer: &'a str, question: &str) -> Vec<&'a str> {
    if NEGATIVE_WORD.is_match(question) {
        return Vec::new();
    }
    let normalized = normalize(question);
    let mut known: HashSet<&str> = normalized.split(' ').collect();
    known.extend(["the", "a", "an", "of", "in", "on", "at"]);
    // Whoever repeats these asks back instead of answering.
    known.retain(|word| {
        !["what", "which", "who", "whom", "whose", "where", "when", "why", "how"].contains(word)
    });
    let restates = |text: &str| {
        let words = normalize(text);
        !words.is_empty() && words.split(' ').all(|word| known.contains(word))
    };
    let mut rests = Vec::new();
    for found in COPULA.find_iter(answer) {
        let (before, after) = (&answer[..found.start()], &answer[found.end()..]);
        if restates(before) {
            rests.push(after);
        }
        if restates(after) {
            rests.push(before);
        }
    }
    rests
}

/// The text without parentheses that stand apart (`f(x)` keeps its own); in an answer, parentheses that hedge or deny
/// stay, so that the answer is not taken for a committed one.
fn without_asides(text: &str, is_answer: bool) -> Option<String> {
    let mut hedged = false;
    let plain = PARENTHESES.replace_all(text, |found: &regex::Captures<'_>| {
        let inside = found.get(2).or(found.get(3)).map_or("", |inside| inside.as_str());
        hedged |= HEDGE.is_match(inside);
        found[1].to_owned()
    });
    (plain != text && says_something(&plain) && !(is_answer && hedged)).then(|| plain.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lead_ins_go_one_after_another() {
        for text in [
            "The answer is Paris",
            "So, the final answer is: Paris",
            "I think it is Paris",
            "It's Paris",
            "Answer: Paris",
        ] {
            assert_eq!(strip_lead_ins(text), "Paris", "{text}");
        }
        assert_eq!(strip_lead_ins("It is"), "It is");
        assert_eq!(strip_lead_ins("Italy"), "Italy");
    }

    #[test]
    fn only_the_questions_own_words_may_be_left_out() {
        let question = "What is the capital of France?";
        assert_eq!(without_restatement("The capital of France is Paris", question), ["Paris"]);
        assert_eq!(without_restatement("Paris is the capital of France", question), ["Paris"]);
        assert!(without_restatement("The capital of Spain is Madrid", question).is_empty());
        assert!(without_restatement("Lyon is not the capital", "Which city is not the capital?").is_empty());
    }

    #[test]
    fn asides_are_optional_unless_they_hedge() {
        assert_eq!(without_asides("Burma (Myanmar)", true).as_deref(), Some("Burma"));
        assert_eq!(without_asides("Paris (or London)", true), None);
        assert_eq!(without_asides("Paris (not)", true), None);
        assert_eq!(without_asides("f(x)", true), None);
        assert_eq!(without_asides("(Paris)", true), None);
    }

    #[test]
    fn enumerations_fall_into_parts() {
        assert_eq!(parts("red, white, and blue"), ["red", "white", "blue"]);
        assert_eq!(parts("A or B"), ["a", "b"]);
        assert_eq!(parts("Andorra"), ["andorra"]);
        assert_eq!(parts("1,234"), ["1234"]);
        assert_eq!(parts("5,6"), ["5", "6"]);
    }
}

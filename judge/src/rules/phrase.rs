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

static CHOICE_SEPARATOR: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)[,;:]\s+|\s(?:and|&|or)\s"));

/// Words that restating may add.
const FILLERS: [&str; 7] = ["the", "a", "an", "of", "in", "on", "at"];
const INTERROGATIVES: [&str; 9] = ["what", "which", "who", "whom", "whose", "where", "when", "why", "how"];

/// Longer answers are compared as a whole only: nobody answers a short question at this length.
const LONGEST_PHRASE: usize = 600;

/// One way to read a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// What is compared.
    pub(super) text: String,
    /// The asides in parentheses that were left out of it, in order; empty where none was.
    pub(super) asides: Vec<String>,
}

/// Every reading of an answer: as written, without lead-ins, without what restates the question, without asides.
pub(super) fn answer_readings(answer: &str, question: &str) -> Vec<Reading> {
    let mut readings = vec![Reading { text: answer.trim().to_owned(), asides: Vec::new() }];
    if answer.chars().count() > LONGEST_PHRASE {
        return readings;
    }
    let bare = strip_lead_ins(answer);
    add(&mut readings, bare, Vec::new());
    for restated in without_restatement(bare, question) {
        add(&mut readings, restated, Vec::new());
    }
    if PLACE_QUESTION.is_match(question)
        && let Some(found) = PLACE_PREPOSITION.find(bare)
    {
        add(&mut readings, &bare[found.end()..], Vec::new());
    }
    for index in 0..readings.len() {
        if let Some((plain, asides)) = without_asides(&readings[index].text, true) {
            add(&mut readings, &plain, asides);
        }
    }
    readings
}

/// A reference as written, and without its parentheses.
pub(super) fn reference_readings(reference: &str) -> Vec<Reading> {
    let mut readings = vec![Reading { text: reference.trim().to_owned(), asides: Vec::new() }];
    if let Some((plain, asides)) = without_asides(reference, false) {
        add(&mut readings, &plain, asides);
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

fn add(readings: &mut Vec<Reading>, text: &str, asides: Vec<String>) {
    let text = text.trim();
    if says_something(text) && !readings.iter().any(|known| known.text == text && known.asides == asides) {
        readings.push(Reading { text: text.to_owned(), asides });
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
/// itself negates is left alone, since there the leaving out could turn the meaning round. Where both parts hold only
/// words of the question neither is left out (`Chad: Mali` commits to nothing), unless the question offers a choice
/// and one part alone holds what is offered: `Chad is larger` answers `Which is larger, Chad or Mali?`.
fn without_restatement<'a>(answer: &'a str, question: &str) -> Vec<&'a str> {
    if NEGATIVE_WORD.is_match(question) {
        return Vec::new();
    }
    let normalized = normalize(question);
    let mut known: HashSet<&str> = normalized.split(' ').collect();
    known.extend(FILLERS);
    // Whoever repeats these asks back instead of answering.
    known.retain(|word| !INTERROGATIVES.contains(word));
    let offers = Offers::of(question);
    let restates = |text: &str| {
        let words = normalize(text);
        !words.is_empty() && words.split(' ').all(|word| known.contains(word))
    };
    let mut rests = Vec::new();
    for found in COPULA.find_iter(answer) {
        let (before, after) = (&answer[..found.start()], &answer[found.end()..]);
        match (restates(before), restates(after)) {
            (true, true) => match (offers.touch(before), offers.touch(after)) {
                (true, false) => rests.push(before),
                (false, true) => rests.push(after),
                _ => {}
            },
            (true, false) if !offers.settled_by(before) => rests.push(after),
            (false, true) if !offers.settled_by(after) => rests.push(before),
            _ => {}
        }
    }
    rests
}

/// What a question puts up for choice, as far as its form shows: `Chad` and `Mali` in `Which is larger, Chad or Mali?`
#[derive(Default)]
struct Offers {
    words: HashSet<String>,
    /// Whether there is an `or`; an `and` may just as well belong to one name.
    alternatives: bool,
}

impl Offers {
    fn of(question: &str) -> Self {
        let unified = unify(question);
        let normalized = normalize(&unified);
        let all: Vec<&str> = normalized.split(' ').collect();
        let joins = |word: &str| word == "or" || word == "and";
        if !all.iter().any(|word| joins(word)) {
            return Self::default();
        }
        let asks = |piece: &str| normalize(piece).split(' ').any(|word| INTERROGATIVES.contains(&word));
        let pieces: Vec<&str> = CHOICE_SEPARATOR.split(&unified).collect();
        let any_asks = pieces.iter().any(|piece| asks(piece));
        let (mut words, mut plain) = (HashSet::new(), HashSet::new());
        // Offered are the names (the first word of a question has its capital from its place), and the members of an
        // enumeration that neither ask nor hold a name; what else is written small is what is asked.
        for (index, piece) in pieces.iter().enumerate() {
            let tokens: Vec<(bool, &str)> = piece
                .split_whitespace()
                .enumerate()
                .map(|(position, token)| {
                    let letters = token.trim_start_matches(|c: char| !c.is_alphanumeric());
                    (letters.starts_with(char::is_uppercase) && (index, position) != (0, 0), token)
                })
                .collect();
            let member = any_asks && !asks(piece) && !tokens.iter().any(|(name, _)| *name);
            for (name, token) in tokens {
                let side = if member || name { &mut words } else { &mut plain };
                side.extend(normalize(token).split(' ').map(str::to_owned));
            }
        }
        // The neighbours of `or` are offered too, unless they stand elsewhere in the question.
        for at in (0..all.len()).filter(|at| joins(all[*at])) {
            let neighbours = [at.checked_sub(1), Some(at + 1)].into_iter().flatten();
            for neighbour in neighbours.filter_map(|at| all.get(at)) {
                if all.iter().filter(|word| *word == neighbour).count() == 1 {
                    plain.remove(*neighbour);
                    words.insert((*neighbour).to_owned());
                }
            }
        }
        words.retain(|word| {
            let small = FILLERS.contains(&word.as_str()) || INTERROGATIVES.contains(&word.as_str());
            !plain.contains(word) && !small && !joins(word)
        });
        Self { words, alternatives: all.contains(&"or") }
    }

    /// Whether a text holds anything of what is offered.
    fn touch(&self, text: &str) -> bool {
        normalize(text).split(' ').any(|word| self.words.contains(word))
    }

    /// Whether a text is nothing but one of several alternatives, so that it is an answer and restates nothing.
    fn settled_by(&self, text: &str) -> bool {
        let normalized = normalize(text);
        let mut words = normalized.split(' ').filter(|word| !FILLERS.contains(word)).peekable();
        self.alternatives && words.peek().is_some() && words.all(|word| self.words.contains(word))
    }
}

/// The text without parentheses that stand apart (`f(x)` keeps its own), and what they said; in an answer,
/// parentheses that hedge or deny stay, so that the answer is not taken for a committed one.
fn without_asides(text: &str, is_answer: bool) -> Option<(String, Vec<String>)> {
    let (mut asides, mut hedged) = (Vec::new(), false);
    let plain = PARENTHESES.replace_all(text, |found: &regex::Captures<'_>| {
        let inside = found.get(2).or(found.get(3)).map_or("", |inside| inside.as_str());
        hedged |= HEDGE.is_match(inside);
        if says_something(inside) {
            asides.push(inside.trim().to_owned());
        }
        found[1].to_owned()
    });
    if plain == text || !says_something(&plain) || (is_answer && hedged) {
        return None;
    }
    Some((plain.trim().to_owned(), asides))
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
    fn an_answer_that_names_what_is_offered_twice_is_no_restatement() {
        for (question, answer, rests) in [
            ("Which is larger, Chad or Mali?", "Chad: Mali", &[][..]),
            ("Which is larger, Chad or Mali?", "Mali is Chad", &[]),
            ("Which is larger, Chad or Mali?", "Chad: Mali (bigger)", &[]),
            ("Which is larger, Chad or Mali?", "Chad is larger", &["Chad"]),
            ("Which is larger, Chad or Mali?", "The larger is Mali", &["Mali"]),
            ("Which country is larger: Chad, Mali or Niger?", "Chad: Niger", &[]),
            ("Was Chad or Mali larger?", "Chad was larger", &["Chad"]),
            ("Was Chad or Mali larger?", "Chad: Mali", &[]),
            ("Of Chad and Mali, which is larger?", "Chad is larger", &["Chad"]),
            ("Of Chad and Mali, which is larger?", "Chad: Mali", &[]),
            ("Which is heavier, gold or lead?", "Gold is heavier", &["Gold"]),
            ("Which is heavier gold or lead?", "gold: lead", &[]),
            (
                "Which magazine was started first Arthur's Magazine or First for Women?",
                "Arthur's Magazine was started first",
                &["Arthur's Magazine"],
            ),
            (
                "Which magazine was started first Arthur's Magazine or First for Women?",
                "Arthur's Magazine: First for Women",
                &[],
            ),
            ("Who killed Caesar?", "Caesar: killed", &[]),
            (
                "What is the capital of Trinidad and Tobago?",
                "The capital of Trinidad and Tobago is Port of Spain",
                &["Port of Spain"],
            ),
            (
                "What is the capital of Trinidad and Tobago?",
                "Trinidad and Tobago: Port of Spain",
                &["Port of Spain"],
            ),
            (
                "Which Indian or Pakistani city is the capital of Punjab?",
                "The capital of Punjab is Lahore",
                &["Lahore"],
            ),
        ] {
            assert_eq!(without_restatement(answer, question), rests, "{question} {answer}");
        }
    }

    #[test]
    fn asides_are_optional_unless_they_hedge() {
        let burma = ("Burma".to_owned(), vec!["Myanmar".to_owned()]);
        assert_eq!(without_asides("Burma (Myanmar)", true), Some(burma));
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

//! Judging by rules alone: no model, no cost, the same verdict every time.
//!
//! The rules are made for accepting safely. An answer is accepted only if, as a whole, it says what a reference says;
//! it is never searched for the reference. What the rules reject may still be right in other words: that is for
//! [`SoftMatchJudge`](crate::soft_match::SoftMatchJudge) to find out.
//!
//! Accepting rules, by the name in [`VerdictSource::Rule`]: `exact`, `alias` (exact, but not the first reference),
//! `spacing`, `diacritics`, `list` (same items in the same order, otherwise joined), `date`, `number`. Rejecting
//! ones: `empty`, `negated`, `several_answers`, `unit`, `no_match`.

mod date;
mod phrase;
mod quantity;
mod rational;
mod unit;

use async_trait::async_trait;

use self::date::Date;
use self::phrase::Reading;
use self::quantity::Quantity;
use crate::normalize::{
    is_formula, normalize, normalize_formula, normalize_keeping_case, squash, strip_diacritics,
};
use crate::verdict::{AnswerJudge, JudgeError, JudgeRequest, Verdict, VerdictSource};

/// Name of the rule that rejects an answer without a letter or a digit.
pub const EMPTY_RULE: &str = "empty";

/// The judge of rules. See the module for what it accepts.
#[derive(Clone, Copy, Debug, Default)]
pub struct RuleJudge;

impl RuleJudge {
    /// The verdict, at once. The only error is a request without a usable reference.
    pub fn decide(&self, request: &JudgeRequest) -> Result<Verdict, JudgeError> {
        let references: Vec<&str> = request
            .references
            .iter()
            .map(String::as_str)
            .filter(|text| phrase::says_something(text))
            .collect();
        if references.is_empty() {
            return Err(JudgeError::NoReference);
        }
        let answer = request.answer.as_str();
        if !phrase::says_something(answer) {
            return Ok(verdict(false, EMPTY_RULE, "The answer has neither a letter nor a digit.".into()));
        }
        let readings = phrase::answer_readings(answer, &request.question);
        for (index, reference) in references.iter().enumerate() {
            if let Some(rule) = accepting_rule(&readings, reference, &request.question) {
                let rule = if index > 0 && rule == "exact" { "alias" } else { rule };
                return Ok(verdict(
                    true,
                    rule,
                    format!("The answer agrees with the reference {reference:?}."),
                ));
            }
        }
        Ok(rejection(answer, &readings, &references))
    }
}

#[async_trait]
impl AnswerJudge for RuleJudge {
    async fn judge(&self, request: &JudgeRequest) -> Result<Verdict, JudgeError> {
        self.decide(request)
    }

    fn name(&self) -> String {
        "rules".into()
    }
}

fn verdict(correct: bool, rule: &str, rationale: String) -> Verdict {
    Verdict { correct, source: VerdictSource::Rule(rule.into()), rationale }
}

fn accepting_rule(readings: &[Reading], reference: &str, question: &str) -> Option<&'static str> {
    let references = phrase::reference_readings(reference);
    let pairs = || {
        let all = readings.iter().flat_map(|ours| references.iter().map(move |theirs| (ours, theirs)));
        all.filter(|(ours, theirs)| asides_agree(ours, theirs, question))
            .map(|(ours, theirs)| (ours.text.as_str(), theirs.text.as_str()))
    };
    pairs()
        .find_map(|(ours, theirs)| same_words(ours, theirs, question))
        .or_else(|| pairs().find_map(|(ours, theirs)| same_value(ours, theirs, question)))
}

/// Whether what was left out on both sides says the same: `Congo (Kinshasa)` is not `Congo (Brazzaville)`. Left out
/// on one side only it is compared with all that the other side says.
fn asides_agree(ours: &Reading, theirs: &Reading, question: &str) -> bool {
    if ours.asides.is_empty() || theirs.asides.is_empty() {
        return true;
    }
    ours.asides.len() == theirs.asides.len()
        && ours.asides.iter().zip(&theirs.asides).all(|(ours, theirs)| {
            same_words(ours, theirs, question).or_else(|| same_value(ours, theirs, question)).is_some()
        })
}

/// [`same_text`], unless the two are quantities that differ and look the same only because case was folded: `5 mW` and
/// `5 MW`, `5 m` and `5 M`.
fn same_words(ours: &str, theirs: &str, question: &str) -> Option<&'static str> {
    let rule = same_text(ours, theirs)?;
    if squash(&normalize_keeping_case(ours)) != squash(&normalize_keeping_case(theirs))
        && let (Some(ours), Some(theirs)) = (Quantity::parse(ours), Quantity::parse(theirs))
        && !ours.agrees(&theirs, question)
    {
        return None;
    }
    Some(rule)
}

/// The same date or the same quantity.
fn same_value(ours: &str, theirs: &str, question: &str) -> Option<&'static str> {
    let (ours_date, theirs_date) = (Date::parse(ours), Date::parse(theirs));
    if let (Some(ours), Some(theirs)) = (ours_date, theirs_date)
        && ours.satisfies(&theirs)
    {
        return Some("date");
    }
    // `12 December 1963` is not twelve of anything.
    if [ours_date, theirs_date].into_iter().flatten().any(|date| date.has_month()) {
        return None;
    }
    if let (Some(ours), Some(theirs)) = (Quantity::parse(ours), Quantity::parse(theirs))
        && ours.agrees(&theirs, question)
    {
        return Some("number");
    }
    None
}

fn same_text(ours: &str, theirs: &str) -> Option<&'static str> {
    if ours == theirs {
        return Some("exact");
    }
    if is_formula(ours) || is_formula(theirs) {
        let (ours, theirs) = (normalize_formula(ours), normalize_formula(theirs));
        return (!ours.is_empty() && ours == theirs).then_some("exact");
    }
    let (our_words, their_words) = (normalize(ours), normalize(theirs));
    if our_words.is_empty() || their_words.is_empty() {
        return None;
    }
    if our_words == their_words {
        return Some("exact");
    }
    let (our_letters, their_letters) = (squash(&our_words), squash(&their_words));
    if our_letters == their_letters {
        return Some("spacing");
    }
    if strip_diacritics(&our_letters) == strip_diacritics(&their_letters) {
        return Some("diacritics");
    }
    let (our_parts, their_parts) = (phrase::parts(ours), phrase::parts(theirs));
    let alternatives = |text: &str| normalize(text).split(' ').any(|word| word == "or");
    let list = our_parts.len() > 1 && our_parts == their_parts && alternatives(ours) == alternatives(theirs);
    list.then_some("list")
}

fn rejection(answer: &str, readings: &[Reading], references: &[&str]) -> Verdict {
    if phrase::is_negated(answer) {
        return verdict(false, "negated", "The answer says what it is not.".into());
    }
    let parts = phrase::parts(answer);
    if parts.len() > 1 && references.iter().all(|reference| phrase::parts(reference).len() == 1) {
        let reason = format!("The answer names {} things where the references name one.", parts.len());
        return verdict(false, "several_answers", reason);
    }
    let dimension = |text: &str| Quantity::parse(text).and_then(|quantity| quantity.dimension());
    let theirs = references.iter().find_map(|reference| dimension(reference));
    let ours = readings.iter().find_map(|reading| dimension(&reading.text));
    if let (Some(ours), Some(theirs)) = (ours, theirs)
        && ours != theirs
    {
        return verdict(
            false,
            "unit",
            "The answer is in a unit that the reference's does not convert into.".into(),
        );
    }
    verdict(false, "no_match", "The answer agrees with no reference under any rule.".into())
}

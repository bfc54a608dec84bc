//! Numbers with what they count or measure.
//!
//! A quantity is read only from a text that is a quantity as a whole. Two quantities agree when their values are
//! exactly equal (fractions, no rounding) and their units do not contradict each other:
//!
//! | reference | answer | agree |
//! |---|---|---|
//! | `1234.5 km` | `1,234,500 m` | units of one dimension, converted exactly |
//! | `5199 m` | `5199` | a bare number stands for the reference's unit |
//! | `5199` | `5199 m` | only if the question names the unit |
//! | `12 countries` | `12`, or the other way round | only if the question names what is counted |
//! | `5199 m` | `5199 ft`, `5199 countries` | never |

use std::sync::LazyLock;

use regex::Regex;

use super::rational::Rational;
use super::unit::{Dimension, Unit, leading_currency, leading_unit};
use crate::normalize::{normalize, pattern, unify};

static APPROXIMATELY: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)^(?:(?:about|around|approximately|approx\.?|roughly|circa|ca\.|exactly|in)\s+|[~≈]\s*)")
});
static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x)^(?:
            (?P<grouped> [0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)? | [0-9]{1,3}(?:\ [0-9]{3})+(?:\.[0-9]+)? )
          | (?P<whole>[0-9]+)\ (?P<part>[0-9]+/[0-9]+)
          | (?P<fraction>[0-9]+/[0-9]+)
          | (?P<plain>[0-9]+(?:\.[0-9]+)? | \.[0-9]+)
        )",
    )
});
static POWER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^(?:\s*[x×*]\s*10\s*\^\s*|[eE])(?P<exponent>[+-]?[0-9]{1,3})"));
static BARE_POWER: LazyLock<Regex> = LazyLock::new(|| pattern(r"^10\^(?P<exponent>[+-]?[0-9]{1,3})"));
static SPACES: LazyLock<Regex> = LazyLock::new(|| pattern(r"[^\S\n]+"));
static DECADE: LazyLock<Regex> = LazyLock::new(|| pattern(r"0'?s\b"));
static SCALE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)^\s*(hundred|thousand|million|billion|trillion|mln|mn|bn|tn)s?\b"));
static LETTER_SCALE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(\s?)([kKmMbB])\b"));
static HARMLESS_TAIL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:in )?(?:high|tall|long|wide|deep|old|height|length|width|depth|elevation|total|above sea level|of age)$",
    )
});

/// Words after a number that make it something other than one quantity.
const NOT_ONE_QUANTITY: [&str; 12] =
    ["to", "or", "and", "plus", "minus", "vs", "versus", "x", "point", "through", "until", "not"];

/// A number, its unit if it has one, and the words after it.
#[derive(Clone)]
pub(super) struct Quantity {
    value: Rational,
    unit: Option<&'static Unit>,
    /// What is counted, or what qualifies the unit; normalised, empty where nothing follows.
    noun: String,
}

impl Quantity {
    /// Reads a text that is one quantity and nothing else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let unified = unify(text);
        // Line breaks separate: two numbers on two lines are never one number with a thousands separator.
        let spaced = SPACES.replace_all(unified.trim(), " ");
        let mut rest =
            spaced.trim_matches(['"', '\'', '*', '`']).trim_end_matches(['.', '!', ',', ';']).trim();
        rest = &rest[APPROXIMATELY.find(rest).map_or(0, |found| found.end())..];
        let (mut negative, after_sign) = sign(rest);
        rest = after_sign;
        let mut unit = None;
        if let Some((currency, after)) = leading_currency(rest) {
            unit = Some(currency);
            rest = after.trim_start();
            let (inner, after_sign) = sign(rest);
            if negative && inner {
                return None;
            }
            negative |= inner;
            rest = after_sign;
        }
        let (mut value, after) = number(rest).or_else(|| worded_number(rest))?;
        rest = after;
        (value, rest) = scaled(value, rest, unit.is_some())?;
        if negative {
            value = value.negated();
        }
        let first = rest.chars().next();
        if !first.is_none_or(|c| {
            c.is_whitespace()
                || c.is_alphabetic()
                || matches!(c, '-' | '%' | '°' | '$' | '€' | '£' | '¥' | '₹')
        }) {
            return None;
        }
        // `1960s` is a decade and not a number of seconds.
        if DECADE.is_match(&spaced) {
            return None;
        }
        if rest.contains('\n') || rest.starts_with('-') && !rest[1..].starts_with(char::is_alphabetic) {
            return None;
        }
        rest = rest.trim_start_matches('-').trim_start();
        if let Some((suffix, after)) = leading_unit(rest) {
            if unit.is_some_and(|prefix| prefix.dimension != suffix.dimension) {
                return None;
            }
            unit = Some(suffix);
            rest = after;
        }
        if rest.contains([';', '?', '=', '<', '>']) {
            return None;
        }
        let noun = normalize(rest);
        if noun.split(' ').any(|word| NOT_ONE_QUANTITY.contains(&word))
            || noun.starts_with(|c: char| c.is_ascii_digit())
        {
            return None;
        }
        Some(Self { value, unit, noun })
    }

    /// Whether an answer states the reference's quantity; the table at the top of this file.
    pub(super) fn agrees(&self, reference: &Self, question: &str) -> bool {
        let (values, units) = match (self.unit, reference.unit) {
            (Some(ours), Some(theirs)) => (
                self.in_base_units(ours) == reference.in_base_units(theirs),
                ours.dimension == theirs.dimension,
            ),
            (None, None) => (self.value == reference.value, true),
            // A bare number may leave the unit to the reference; a number of something else may not.
            (None, Some(_)) => (self.value == reference.value, self.noun.is_empty()),
            (Some(ours), None) => {
                (self.value == reference.value, ours.is_named_in(question) && reference.noun.is_empty())
            }
        };
        values && units && self.nouns_agree(reference, question)
    }

    fn in_base_units(&self, unit: &Unit) -> Option<Rational> {
        self.value.times(unit.factor)
    }

    fn nouns_agree(&self, reference: &Self, question: &str) -> bool {
        if singular(&self.noun) == singular(&reference.noun) {
            return true;
        }
        let question = singular(&normalize(question));
        let known: Vec<&str> = question.split(' ').chain(["of", "the", "in"]).collect();
        let needless = |noun: &str| {
            HARMLESS_TAIL.is_match(noun)
                || singular(noun).split_whitespace().all(|word| word.len() > 1 && known.contains(&word))
        };
        needless(&self.noun) && needless(&reference.noun)
    }

    /// The unit's dimension, for telling why two quantities differ.
    pub(super) fn dimension(&self) -> Option<Dimension> {
        self.unit.map(|unit| unit.dimension)
    }
}

fn sign(text: &str) -> (bool, &str) {
    for minus in ["-", "minus ", "Minus ", "negative ", "Negative "] {
        if let Some(rest) = text.strip_prefix(minus) {
            return (true, rest.trim_start());
        }
    }
    (false, text)
}

fn number(text: &str) -> Option<(Rational, &str)> {
    if let Some(found) = BARE_POWER.captures(text) {
        return Some((Rational::power_of_ten(found["exponent"].parse().ok()?)?, &text[found[0].len()..]));
    }
    let found = NUMBER.captures(text)?;
    let mut rest = &text[found[0].len()..];
    let fraction = |text: &str| {
        let (over, under) = text.split_once('/')?;
        Rational::new(over.parse().ok()?, under.parse().ok()?)
    };
    let mut value = if let Some(grouped) = found.name("grouped") {
        Rational::parse_decimal(&grouped.as_str().replace([',', ' '], ""))?
    } else if let (Some(whole), Some(part)) = (found.name("whole"), found.name("part")) {
        Rational::parse_decimal(whole.as_str())?.plus(fraction(part.as_str())?)?
    } else if let Some(part) = found.name("fraction") {
        fraction(part.as_str())?
    } else {
        Rational::parse_decimal(found.name("plain")?.as_str())?
    };
    if let Some(power) = POWER.captures(rest) {
        value = value.times(Rational::power_of_ten(power["exponent"].parse().ok()?)?)?;
        rest = &rest[power[0].len()..];
    }
    Some((value, rest))
}

/// Cardinal numbers in English words, up to the scale words: `twenty-one`, `a hundred and five`.
fn worded_number(text: &str) -> Option<(Rational, &str)> {
    const ONES: [&str; 20] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
    ];
    const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
    let lower = text.to_ascii_lowercase();
    let next = |at: usize| {
        let start = at + lower[at..].find(|c: char| c != ' ' && c != '-').unwrap_or(0);
        let length = lower[start..].find(|c: char| !c.is_alphanumeric()).unwrap_or(lower.len() - start);
        (&lower[start..start + length], start + length)
    };
    let ones = |word: &str| ONES.iter().position(|one| *one == word).map(|index| index as i128);
    let tens = |word: &str| TENS.iter().position(|ten| *ten == word).map(|index| (index as i128 + 2) * 10);
    let below_hundred = |at: usize| {
        let (word, after) = next(at);
        if let Some(value) = ones(word) {
            return Some((value, after));
        }
        let value = tens(word)?;
        let (unit, after_unit) = next(after);
        match ones(unit).filter(|unit| (1..10).contains(unit)) {
            Some(unit) => Some((value + unit, after_unit)),
            None => Some((value, after)),
        }
    };
    let (first, after_first) = next(0);
    let (mut value, mut end) = if first == "a" && SCALE.is_match(&lower[after_first..]) {
        (1, after_first)
    } else {
        below_hundred(0)?
    };
    if next(end).0 == "hundred" {
        value *= 100;
        end = next(end).1;
        let (and, after_and) = next(end);
        let from = if and == "and" { after_and } else { end };
        if let Some((rest, after)) = below_hundred(from) {
            value += rest;
            end = after;
        }
    }
    Some((Rational::integer(value)?, &text[end..]))
}

fn scaled(mut value: Rational, mut rest: &str, money: bool) -> Option<(Rational, &str)> {
    let mut any = false;
    while let Some(found) = SCALE.captures(rest) {
        let exponent = match found[1].to_ascii_lowercase().as_str() {
            "hundred" => 2,
            "thousand" => 3,
            "million" | "mln" | "mn" => 6,
            "billion" | "bn" => 9,
            _ => 12,
        };
        value = value.times(Rational::power_of_ten(exponent)?)?;
        rest = &rest[found[0].len()..];
        any = true;
    }
    if any {
        return Some((value, rest));
    }
    if let Some(found) = LETTER_SCALE.captures(rest) {
        let attached = found[1].is_empty();
        // `300 K` is a temperature and `5 m` a length; `300K`, `5M` and `$5m` are amounts.
        let exponent = match &found[2] {
            "k" | "K" if attached => 3,
            "M" => 6,
            "m" if money => 6,
            "b" | "B" if attached => 9,
            _ => return Some((value, rest)),
        };
        return Some((value.times(Rational::power_of_ten(exponent)?)?, &rest[found[0].len()..]));
    }
    Some((value, rest))
}

/// Words without their plural endings, for comparing what is counted.
fn singular(text: &str) -> String {
    let word = |word: &str| {
        if let Some(stem) = word.strip_suffix("ies").filter(|stem| stem.len() > 1) {
            format!("{stem}y")
        } else if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") {
            word[..word.len() - 1].to_owned()
        } else {
            word.to_owned()
        }
    };
    text.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<Rational> {
        Quantity::parse(text).map(|quantity| quantity.value)
    }

    #[test]
    fn numbers_in_many_spellings() {
        for (text, expected) in [
            ("1,234.5", (12345, 10)),
            ("1 234 567", (1_234_567, 1)),
            ("-5", (-5, 1)),
            ("minus 5", (-5, 1)),
            ("-$5", (-5, 1)),
            ("5 1/2", (11, 2)),
            ("5½", (11, 2)),
            ("1.5e3", (1500, 1)),
            ("1.5 × 10⁶", (1_500_000, 1)),
            ("10⁶", (1_000_000, 1)),
            ("1.5 million", (1_500_000, 1)),
            ("300K", (300_000, 1)),
            ("$5m", (5_000_000, 1)),
            ("two hundred and five thousand", (205_000, 1)),
            ("twenty-one", (21, 1)),
            ("a million", (1_000_000, 1)),
            ("about 7", (7, 1)),
        ] {
            assert_eq!(value(text), Rational::new(expected.0, expected.1), "{text}");
        }
    }

    #[test]
    fn what_is_not_one_quantity_is_refused() {
        for text in [
            "5 or 6",
            "5-6",
            "5 to 6",
            "1,2345",
            "1,234,56",
            "1\n234",
            "",
            "Paris",
            "5, 6",
            "--5",
            "more than 5",
            "$5 euros",
        ] {
            assert!(value(text).is_none(), "{text}");
        }
    }

    #[test]
    fn letters_after_a_number_are_units_or_scales() {
        assert_eq!(Quantity::parse("300 K").unwrap().dimension(), Some(Dimension::Kelvin));
        assert_eq!(Quantity::parse("5 m").unwrap().dimension(), Some(Dimension::Length));
        assert_eq!(Quantity::parse("5 MW").unwrap().dimension(), Some(Dimension::Power));
        assert_eq!(Quantity::parse("5 km²").unwrap().dimension(), Some(Dimension::Area));
        assert_eq!(Quantity::parse("€5").unwrap().dimension(), Some(Dimension::Money("EUR")));
    }
}

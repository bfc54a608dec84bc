//! Dates as people write them.

use std::sync::LazyLock;

use regex::Regex;

use crate::normalize::{pattern, unify};

static WEEKDAY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^(?:mon|tues|wednes|thurs|fri|satur|sun)day,?\s+"));
static LEAD: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(?:(?:in|on|the|year|of)\s+)+"));
static ERA: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\s*\b(b\.?\s?c\.?(?:\s?e\.?)?|a\.?\s?d\.?|c\.\s?e\.|ce)$"));
static LEADING_AD: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(?:a\.?d\.?)\s+"));
static ISO: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(\d{4})([-/.])(\d{1,2})([-/.])(\d{1,2})$"));
static SLASHED: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(\d{1,2})([-/.])(\d{1,2})([-/.])(\d{4})$"));
static YEAR: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d{3,4}$"));
static SHORT_YEAR: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d{1,4}$"));
static DAY: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(\d{1,2})(?:st|nd|rd|th)?$"));

/// A day, a month or a year, as exact as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    /// Negative before Christ, never 0.
    pub(super) year: Option<i32>,
    pub(super) month: Option<u32>,
    pub(super) day: Option<u32>,
}

impl Date {
    /// Reads a text that is a date and nothing else; `None` also where day and month could be exchanged.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let unified = unify(text).to_lowercase();
        let mut rest =
            unified.trim().trim_end_matches(['.', '!', ',', ';']).trim_matches(['"', '*', '\'']).trim();
        rest = &rest[LEAD.find(rest).map_or(0, |found| found.end())..];
        rest = &rest[WEEKDAY.find(rest).map_or(0, |found| found.end())..];
        rest = &rest[LEAD.find(rest).map_or(0, |found| found.end())..];
        let mut era = 0;
        if let Some(found) = ERA.find(rest) {
            era = if found.as_str().trim().starts_with('b') { -1 } else { 1 };
            rest = rest[..found.start()].trim_end();
        } else if let Some(found) = LEADING_AD.find(rest) {
            era = 1;
            rest = &rest[found.end()..];
        }
        let date = numeric(rest).or_else(|| worded(rest, era != 0))?;
        let date = Self { year: date.year.map(|year| if era < 0 { -year } else { year }), ..date };
        (era == 0 || date.year.is_some()).then_some(date).filter(Self::exists)
    }

    /// Whether a month or a day is given, so that the text cannot be a plain number.
    pub(super) fn has_month(&self) -> bool {
        self.month.is_some()
    }

    /// Whether an answer says at least what the reference says: the same year, and the same month and day where the
    /// reference has them. A year alone does not answer for a full date; a full date does answer for its year.
    pub(super) fn satisfies(&self, reference: &Self) -> bool {
        if reference.year.is_none() {
            return self == reference;
        }
        self.year == reference.year
            && (reference.month.is_none() || self.month == reference.month)
            && (reference.day.is_none() || self.day == reference.day)
    }

    fn exists(&self) -> bool {
        let days = match self.month {
            None => return self.day.is_none() && self.year.is_some_and(|year| year != 0),
            Some(2) => {
                let leap = |year: i32| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
                if self.year.is_none_or(|year| year < 0 || leap(year)) { 29 } else { 28 }
            }
            Some(4 | 6 | 9 | 11) => 30,
            Some(1..=12) => 31,
            Some(_) => return false,
        };
        self.day.is_none_or(|day| (1..=days).contains(&day)) && self.year != Some(0)
    }
}

fn numeric(text: &str) -> Option<Date> {
    let date = |year: &str, month: u32, day: u32| {
        Some(Date { year: Some(year.parse().ok()?), month: Some(month), day: Some(day) })
    };
    if let Some(found) = ISO.captures(text) {
        return (found[2] == found[4])
            .then(|| date(&found[1], found[3].parse().ok()?, found[5].parse().ok()?))?;
    }
    let found = SLASHED.captures(text)?;
    let (first, second): (u32, u32) = (found[1].parse().ok()?, found[3].parse().ok()?);
    match (&found[2] == "." && &found[4] == ".", first, second) {
        _ if found[2] != found[4] => None,
        (true, ..) => date(&found[5], second, first), // with points the day comes first everywhere
        (false, day, month) if day > 12 || day == month => date(&found[5], month, day),
        (false, month, day) if day > 12 => date(&found[5], month, day),
        _ => None,
    }
}

fn worded(text: &str, era: bool) -> Option<Date> {
    let spaced = text.replace([',', '-'], " ");
    let words: Vec<&str> = spaced
        .split_whitespace()
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| !["of", "the"].contains(word))
        .collect();
    let year_pattern: &Regex = if era { &SHORT_YEAR } else { &YEAR };
    let year = |word: &str| year_pattern.is_match(word).then(|| word.parse::<i32>().ok()).flatten();
    let day = |word: &str| DAY.captures(word).and_then(|found| found[1].parse::<u32>().ok());
    let built = |year, month, day| Some(Date { year, month, day });
    match words[..] {
        [y] => built(Some(year(y)?), None, None),
        [a, b] => match (month(a), month(b)) {
            (Some(m), None) => match year(b) {
                Some(y) => built(Some(y), Some(m), None),
                None => built(None, Some(m), Some(day(b)?)),
            },
            (None, Some(m)) => built(None, Some(m), Some(day(a)?)),
            _ => None,
        },
        [first, second, third] => match (month(first), month(second), month(third)) {
            (Some(m), None, None) => built(Some(year(third)?), Some(m), Some(day(second)?)),
            (None, Some(m), None) => match year(third) {
                Some(y) => built(Some(y), Some(m), Some(day(first)?)),
                None => built(Some(year(first)?), Some(m), Some(day(third)?)),
            },
            _ => None,
        },
        _ => None,
    }
}

fn month(word: &str) -> Option<u32> {
    const NAMES: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let position = NAMES.iter().position(|name| *name == word || word.len() == 3 && name.starts_with(word));
    position.map(|index| index as u32 + 1).or((word == "sept").then_some(9))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ymd(year: i32, month: u32, day: u32) -> Date {
        Date { year: Some(year), month: Some(month), day: Some(day) }
    }

    #[test]
    fn formats_of_one_day() {
        for text in [
            "12 December 1963",
            "December 12, 1963",
            "1963-12-12",
            "1963/12/12",
            "the 12th of December, 1963",
            "12th Dec. 1963",
            "Dec 12 1963",
            "Thursday, 12 December 1963",
            "on December 12th, 1963.",
            "12/12/1963",
            "1963 December 12",
            "12.12.1963",
            "12-Dec-1963",
        ] {
            assert_eq!(Date::parse(text), Some(ymd(1963, 12, 12)), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "3/4/1999",
            "31 April 2000",
            "29 February 1900",
            "13/13/2000",
            "December",
            "12",
            "Paris",
            "",
            "May",
        ] {
            assert_eq!(Date::parse(text), None, "{text}");
        }
        assert_eq!(Date::parse("29 February 2000"), Some(ymd(2000, 2, 29)));
        assert_eq!(Date::parse("25/12/1999"), Some(ymd(1999, 12, 25)));
        assert_eq!(Date::parse("12/25/1999"), Some(ymd(1999, 12, 25)));
    }

    #[test]
    fn eras() {
        assert_eq!(Date::parse("44 BC").and_then(|date| date.year), Some(-44));
        assert_eq!(Date::parse("44 B.C.").and_then(|date| date.year), Some(-44));
        assert_eq!(Date::parse("15 March 44 BCE"), Some(ymd(-44, 3, 15)));
        assert_eq!(Date::parse("AD 79").and_then(|date| date.year), Some(79));
        assert_eq!(Date::parse("476 CE").and_then(|date| date.year), Some(476));
    }

    #[test]
    fn a_finer_answer_satisfies_a_coarser_reference_only() {
        let [full, month, year] =
            ["12 December 1963", "December 1963", "1963"].map(|text| Date::parse(text).unwrap());
        assert!(full.satisfies(&year) && full.satisfies(&month) && month.satisfies(&year));
        assert!(!year.satisfies(&full) && !year.satisfies(&month) && !month.satisfies(&full));
        let yearless = Date::parse("12 December").unwrap();
        assert!(!full.satisfies(&yearless) && !yearless.satisfies(&full) && yearless.satisfies(&yearless));
    }
}

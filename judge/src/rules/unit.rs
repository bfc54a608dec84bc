//! Units of measure that answers are given in, and the exact factors between them.

use std::sync::LazyLock;

use super::rational::Rational;
use crate::normalize::normalize;

/// What a unit measures. Units convert into one another only within a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dimension {
    Share,
    Length,
    Area,
    Volume,
    Mass,
    /// Fixed spans, in seconds.
    Duration,
    /// Calendar spans, in months; no fixed number of seconds.
    Calendar,
    Speed,
    Power,
    Energy,
    Frequency,
    Celsius,
    Fahrenheit,
    Kelvin,
    Angle,
    /// A currency by its ISO 4217 code.
    Money(&'static str),
}

/// One unit: its dimension, its size in the dimension's base unit, and how it is written.
pub(super) struct Unit {
    pub(super) dimension: Dimension,
    pub(super) factor: Rational,
    /// Spellings in which case counts, since `mW` is not `MW`.
    symbols: &'static [&'static str],
    /// Spellings in which case does not count: words, and symbols that mean nothing else in another case.
    words: &'static [&'static str],
}

struct Row(Dimension, i128, i128, &'static [&'static str], &'static [&'static str]);

/// Dimension, numerator and denominator of the size in base units, symbols, words. Definitions: SI brochure (9th ed.);
/// the international yard and pound agreement of 1959 (1 ft = 0.3048 m, 1 lb = 0.45359237 kg).
#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row(Dimension::Share, 1, 1, &["%"], &["percent", "per cent", "percentage", "pct"]),
    Row(Dimension::Length, 1, 1, &["m"], &["metre", "metres", "meter", "meters"]),
    Row(Dimension::Length, 1000, 1, &["km"], &["kilometre", "kilometres", "kilometer", "kilometers", "km", "kms"]),
    Row(Dimension::Length, 1, 100, &["cm"], &["centimetre", "centimetres", "centimeter", "centimeters", "cm"]),
    Row(Dimension::Length, 1, 1000, &["mm"], &["millimetre", "millimetres", "millimeter", "millimeters"]),
    Row(Dimension::Length, 1, 1_000_000, &["µm", "μm"], &["micrometre", "micrometres", "micrometer", "micrometers", "micron", "microns"]),
    Row(Dimension::Length, 1, 1_000_000_000, &["nm"], &["nanometre", "nanometres", "nanometer", "nanometers"]),
    Row(Dimension::Length, 254, 10_000, &[], &["inch", "inches"]),
    Row(Dimension::Length, 3048, 10_000, &["ft"], &["foot", "feet", "ft"]),
    Row(Dimension::Length, 9144, 10_000, &["yd"], &["yard", "yards", "yd"]),
    Row(Dimension::Length, 1_609_344, 1000, &["mi"], &["mile", "miles", "mi"]),
    Row(Dimension::Length, 1852, 1, &["nmi"], &["nautical mile", "nautical miles", "nm mile"]),
    Row(Dimension::Area, 1, 1, &["m2", "m^2", "sq m"], &["square metre", "square metres", "square meter", "square meters", "sq m", "sq. m"]),
    Row(Dimension::Area, 1_000_000, 1, &["km2", "km^2"], &["square kilometre", "square kilometres", "square kilometer", "square kilometers", "sq km", "sq. km", "sqkm", "km2", "km^2"]),
    Row(Dimension::Area, 10_000, 1, &["ha"], &["hectare", "hectares", "ha"]),
    Row(Dimension::Area, 40_468_564_224, 10_000_000, &[], &["acre", "acres"]),
    Row(Dimension::Area, 2_589_988_110_336, 1_000_000, &["mi2", "mi^2"], &["square mile", "square miles", "sq mi", "sq. mi", "mi2", "mi^2"]),
    Row(Dimension::Area, 9_290_304, 100_000_000, &["ft2", "ft^2"], &["square foot", "square feet", "sq ft", "sq. ft", "ft2", "ft^2"]),
    Row(Dimension::Volume, 1, 1, &["m3", "m^3"], &["cubic metre", "cubic metres", "cubic meter", "cubic meters", "cu m", "cu. m"]),
    Row(Dimension::Volume, 1_000_000_000, 1, &["km3", "km^3"], &["cubic kilometre", "cubic kilometres", "cubic kilometer", "cubic kilometers", "cu km", "cu. km", "km3", "km^3"]),
    Row(Dimension::Volume, 1, 1000, &["l", "L"], &["litre", "litres", "liter", "liters"]),
    Row(Dimension::Volume, 1, 1_000_000, &["ml", "mL"], &["millilitre", "millilitres", "milliliter", "milliliters"]),
    Row(Dimension::Mass, 1, 1, &["g"], &["gram", "grams", "gramme", "grammes"]),
    Row(Dimension::Mass, 1000, 1, &["kg"], &["kilogram", "kilograms", "kilogramme", "kilogrammes", "kg", "kgs", "kilo", "kilos"]),
    Row(Dimension::Mass, 1, 1000, &["mg"], &["milligram", "milligrams"]),
    Row(Dimension::Mass, 1_000_000, 1, &["t"], &["tonne", "tonnes", "metric ton", "metric tons"]),
    Row(Dimension::Mass, 45_359_237, 100_000, &["lb", "lbs"], &["pound mass", "lb", "lbs"]),
    Row(Dimension::Duration, 1, 1, &["s"], &["second", "seconds", "sec", "secs"]),
    Row(Dimension::Duration, 1, 1000, &["ms"], &["millisecond", "milliseconds"]),
    Row(Dimension::Duration, 60, 1, &["min"], &["minute", "minutes", "min", "mins"]),
    Row(Dimension::Duration, 3600, 1, &["h"], &["hour", "hours", "hr", "hrs"]),
    Row(Dimension::Duration, 86_400, 1, &[], &["day", "days"]),
    Row(Dimension::Duration, 604_800, 1, &[], &["week", "weeks"]),
    Row(Dimension::Calendar, 1, 1, &[], &["month", "months"]),
    Row(Dimension::Calendar, 12, 1, &[], &["year", "years", "yr", "yrs"]),
    Row(Dimension::Calendar, 120, 1, &[], &["decade", "decades"]),
    Row(Dimension::Speed, 1, 1, &["m/s"], &["metres per second", "meters per second", "metre per second", "meter per second"]),
    Row(Dimension::Speed, 1000, 3600, &["km/h"], &["km/h", "kmh", "kph", "kilometres per hour", "kilometers per hour", "km per hour"]),
    Row(Dimension::Speed, 1_609_344, 3_600_000, &[], &["mph", "miles per hour"]),
    Row(Dimension::Speed, 1852, 3600, &["kn"], &["knot", "knots"]),
    Row(Dimension::Power, 1, 1, &["W"], &["watt", "watts", "w"]),
    Row(Dimension::Power, 1000, 1, &["kW"], &["kilowatt", "kilowatts", "kw"]),
    Row(Dimension::Power, 1_000_000, 1, &["MW"], &["megawatt", "megawatts"]),
    Row(Dimension::Power, 1_000_000_000, 1, &["GW"], &["gigawatt", "gigawatts", "gw"]),
    Row(Dimension::Energy, 1, 1, &["kWh"], &["kilowatt-hour", "kilowatt-hours", "kilowatt hours", "kwh"]),
    Row(Dimension::Energy, 1000, 1, &["MWh"], &["megawatt-hour", "megawatt-hours", "megawatt hours"]),
    Row(Dimension::Energy, 1_000_000, 1, &["GWh"], &["gigawatt-hour", "gigawatt-hours", "gigawatt hours", "gwh"]),
    Row(Dimension::Energy, 1_000_000_000, 1, &["TWh"], &["terawatt-hour", "terawatt-hours", "terawatt hours", "twh"]),
    Row(Dimension::Frequency, 1, 1, &["Hz"], &["hertz", "hz"]),
    Row(Dimension::Frequency, 1000, 1, &["kHz"], &["kilohertz", "khz"]),
    Row(Dimension::Frequency, 1_000_000, 1, &["MHz"], &["megahertz"]),
    Row(Dimension::Frequency, 1_000_000_000, 1, &["GHz"], &["gigahertz", "ghz"]),
    Row(Dimension::Celsius, 1, 1, &["°C", "° C"], &["degrees celsius", "degree celsius", "celsius", "°c", "degrees c"]),
    Row(Dimension::Fahrenheit, 1, 1, &["°F", "° F"], &["degrees fahrenheit", "degree fahrenheit", "fahrenheit", "°f", "degrees f"]),
    Row(Dimension::Kelvin, 1, 1, &["K"], &["kelvin", "kelvins"]),
    Row(Dimension::Angle, 1, 1, &["°"], &["degree", "degrees"]),
    Row(Dimension::Money("USD"), 1, 1, &["$", "US$"], &["usd", "us$", "dollar", "dollars", "us dollar", "us dollars", "u.s. dollars", "american dollars"]),
    Row(Dimension::Money("AUD"), 1, 1, &["A$", "AU$"], &["aud", "australian dollar", "australian dollars"]),
    Row(Dimension::Money("CAD"), 1, 1, &["C$", "CA$"], &["cad", "canadian dollar", "canadian dollars"]),
    Row(Dimension::Money("EUR"), 1, 1, &["€"], &["eur", "euro", "euros"]),
    Row(Dimension::Money("GBP"), 1, 1, &["£"], &["gbp", "pound", "pounds", "pounds sterling", "pound sterling"]),
    Row(Dimension::Money("JPY"), 1, 1, &["¥"], &["jpy", "yen", "japanese yen"]),
    Row(Dimension::Money("CNY"), 1, 1, &["CN¥"], &["cny", "rmb", "yuan", "renminbi"]),
    Row(Dimension::Money("INR"), 1, 1, &["₹"], &["inr", "rupee", "rupees", "indian rupees"]),
    Row(Dimension::Money("CHF"), 1, 1, &[], &["chf", "swiss franc", "swiss francs"]),
];

static UNITS: LazyLock<Vec<Unit>> = LazyLock::new(|| {
    let unit = |row: &Row| {
        let &Row(dimension, numerator, denominator, symbols, words) = row;
        Rational::new(numerator, denominator).map(|factor| Unit { dimension, factor, symbols, words })
    };
    ROWS.iter().filter_map(unit).collect()
});

/// The unit that a text begins with, the longest spelling winning, and what follows it.
pub(super) fn leading_unit(text: &str) -> Option<(&'static Unit, &str)> {
    let mut best: Option<(&'static Unit, usize)> = None;
    for unit in UNITS.iter() {
        let exact = unit.symbols.iter().filter(|symbol| text.starts_with(**symbol));
        let folded = unit.words.iter().filter(|word| starts_with_folded(text, word));
        for spelling in exact.chain(folded) {
            let rest = &text[spelling.len()..];
            let whole =
                rest.chars().next().is_none_or(|next| !next.is_alphanumeric() && next != '^' && next != '/')
                    || !spelling.ends_with(char::is_alphanumeric);
            if whole && best.is_none_or(|(_, length)| spelling.len() > length) {
                best = Some((unit, spelling.len()));
            }
        }
    }
    best.map(|(unit, length)| (unit, &text[length..]))
}

/// The currency sign or code that a text begins with, and what follows it.
pub(super) fn leading_currency(text: &str) -> Option<(&'static Unit, &str)> {
    let mut best: Option<(&'static Unit, usize)> = None;
    for unit in UNITS.iter().filter(|unit| matches!(unit.dimension, Dimension::Money(_))) {
        let codes = unit.words.iter().filter(|word| word.len() == 3 && starts_with_folded(text, word));
        for spelling in unit.symbols.iter().filter(|symbol| text.starts_with(**symbol)).chain(codes) {
            if best.is_none_or(|(_, length)| spelling.len() > length) {
                best = Some((unit, spelling.len()));
            }
        }
    }
    best.map(|(unit, length)| (unit, &text[length..]))
}

impl Unit {
    /// Whether a question asks for this unit, in any spelling.
    ///
    /// The longest spelling counts, so that `square kilometers` names no kilometres and `A$` no US dollars; and a unit
    /// that is only part of a measure which the table does not know (`people per square kilometer`, `kilometers per
    /// second`) is not named. Money is: `dollars per hour` asks for dollars. Single letters do not count as words.
    pub(super) fn is_named_in(&self, question: &str) -> bool {
        self.is_written_in(question)
            || self.symbols.iter().any(|sign| is_sign(sign) && stands_alone(sign, question))
    }

    fn is_written_in(&self, question: &str) -> bool {
        let normalized = normalize(question);
        let words: Vec<&str> = normalized.split(' ').collect();
        let mut at = 0;
        while at < words.len() {
            let here = SPELLINGS.iter().filter(|(spelling, _)| {
                words.len() - at >= spelling.len()
                    && words[at..].iter().zip(spelling).all(|(ours, theirs)| ours == theirs)
            });
            let Some((spelling, unit)) = here.max_by_key(|(spelling, _)| spelling.len()) else {
                at += 1;
                continue;
            };
            let end = at + spelling.len();
            let part_before = at > 0 && ["per", "square", "cubic", "sq", "cu"].contains(&words[at - 1]);
            let part_after = words.get(end) == Some(&"per") && !matches!(unit.dimension, Dimension::Money(_));
            if std::ptr::eq(*unit, self) && !part_before && !part_after {
                return true;
            }
            at = end;
        }
        false
    }
}

/// Every spelling of more than one letter as the normalised words that a question would hold, with its unit.
static SPELLINGS: LazyLock<Vec<(Vec<String>, &'static Unit)>> = LazyLock::new(|| {
    let mut spellings = Vec::new();
    for unit in UNITS.iter() {
        for spelling in unit.symbols.iter().chain(unit.words) {
            let normalized = normalize(spelling);
            if normalized.chars().count() > 1 {
                spellings.push((normalized.split(' ').map(str::to_owned).collect(), unit));
            }
        }
    }
    spellings
});

/// Whether a spelling is found as it stands, next to digits too: `%`, `$`, `°C`.
fn is_sign(spelling: &str) -> bool {
    spelling.contains(['%', '°', '$', '€', '£', '¥', '₹'])
}

/// Whether a sign occurs in a text where it is not part of another one, as `$` is of `A$` and `°` of `°C`.
fn stands_alone(sign: &str, text: &str) -> bool {
    let symbols = || UNITS.iter().flat_map(|unit| unit.symbols);
    text.match_indices(sign).any(|(place, _)| {
        let begins_a_longer_one = symbols().any(|symbol| {
            symbol.len() > sign.len() && symbol.starts_with(sign) && text[place..].starts_with(symbol)
        });
        !begins_a_longer_one && !text[..place].ends_with(char::is_alphabetic)
    })
}

fn starts_with_folded(text: &str, word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.to_lowercase() == *word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_becomes_a_unit() {
        assert_eq!(UNITS.len(), ROWS.len());
    }

    #[test]
    fn no_spelling_is_ambiguous() {
        let mut seen = std::collections::HashMap::new();
        for (index, unit) in UNITS.iter().enumerate() {
            for spelling in unit.symbols.iter().chain(unit.words) {
                if let Some(first) = seen.insert(*spelling, index) {
                    assert_eq!(first, index, "{spelling}");
                }
                let (found, rest) =
                    leading_unit(spelling).unwrap_or_else(|| panic!("{spelling} is not read"));
                assert!(std::ptr::eq(found, unit) && rest.is_empty(), "{spelling}");
            }
        }
    }

    #[test]
    fn the_longest_spelling_wins_and_words_are_whole() {
        assert_eq!(leading_unit("km per hour today").unwrap().1, " today");
        assert!(leading_unit("metrics").is_none());
        assert!(leading_unit("m/x").is_none());
        assert_eq!(leading_unit("Sq. km of land").unwrap().1, " of land");
        assert_eq!(leading_currency("US$5").unwrap().1, "5");
    }

    #[test]
    fn questions_name_units() {
        let (metre, _) = leading_unit("m").unwrap();
        assert!(metre.is_named_in("How high is it, in metres?"));
        assert!(!metre.is_named_in("I'm asking: how high is it?"));
        let (share, _) = leading_unit("%").unwrap();
        assert!(share.is_named_in("What % of people?") && share.is_named_in("What percentage voted?"));
    }

    #[test]
    fn a_unit_inside_a_longer_one_is_not_named() {
        for (named, other, question) in [
            ("sq km", "km", "How many square kilometers does the total area of Chad measure?"),
            ("sq km", "km", "What total area in sq km does Chad have?"),
            ("sq km", "km", "How large is the square-kilometre area?"),
            ("km/h", "km", "How fast is it in km/h?"),
            ("mph", "mi", "How many miles per hour?"),
            ("nmi", "mi", "How many nautical miles is it?"),
            ("m3", "m", "How many cubic metres of water?"),
            ("kWh", "kW", "How many kilowatt hours?"),
            ("A$", "$", "How much is it in A$?"),
            ("A$", "$", "How many Australian dollars?"),
            ("°C", "°", "How warm is it in °C?"),
            ("US$", "A$", "How much is it in US$ today?"),
            ("$", "€", "Is $5 enough?"),
            ("$", "h", "How many dollars per hour?"),
            ("%", "sq km", "What % of people per square kilometer?"),
        ] {
            assert!(leading_unit(named).unwrap().0.is_named_in(question), "{named}: {question}");
            assert!(!leading_unit(other).unwrap().0.is_named_in(question), "{other}: {question}");
        }
        let (kilometre, _) = leading_unit("km").unwrap();
        assert!(!kilometre.is_named_in("How many kilometers per second?"));
        assert!(!kilometre.is_named_in("How many quadratic or cubic kilometers?"));
        assert!(kilometre.is_named_in("How many km of the 100 square kilometers are road?"));
    }
}

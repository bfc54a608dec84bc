//! Bringing answers into a form in which equal means the same.
//!
//! Two normalisations live here. [`normalize_squad`] is the published one of SQuAD and HotpotQA, behind [`f1`] and
//! [`exact_match`]; it joins `1.5` and `15`, which is what those benchmarks do and why no reward is built on it.
//! [`normalize`] is the one of our judge: it keeps whatever carries meaning in a number or a formula.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use unicode_normalization::UnicodeNormalization;

static ARTICLES: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(a|an|the)\b"));
static PUNCTUATION: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\p{P}$"));
static INVISIBLE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\p{Cf}$"));
static COMMA_NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"\d+(?:,\d+)+"));
static LETTER_MINUS: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:\b[a-z]-[0-9])|(?:[0-9]-[a-z]\b)"));

/// Compiles one of the constant patterns of this crate.
pub(crate) fn pattern(source: &str) -> Regex {
    #[expect(clippy::expect_used, reason = "only constants of this crate come here, each compiled by a test")]
    Regex::new(source).expect("a constant pattern is a valid regular expression")
}

/// The normalisation of the HotpotQA and SQuAD scorers: lower case, ASCII punctuation removed, the words `a`, `an`
/// and `the` replaced by a space, whitespace collapsed.
pub fn normalize_squad(text: &str) -> String {
    let lower: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    collapse(&ARTICLES.replace_all(&lower, " "))
}

/// Whether a prediction equals any reference after [`normalize_squad`].
pub fn exact_match<S: AsRef<str>>(prediction: &str, references: &[S]) -> bool {
    let prediction = normalize_squad(prediction);
    references.iter().any(|reference| normalize_squad(reference.as_ref()) == prediction)
}

/// How far the bags of words of a prediction and a reference overlap; every field lies in [0, 1].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overlap {
    /// Shared words over words of the prediction.
    pub precision: f64,
    /// Shared words over words of the reference.
    pub recall: f64,
    /// Harmonic mean of the two, 0 where nothing is shared.
    pub f1: f64,
}

/// Word overlap as HotpotQA counts it: bags of [`normalize_squad`] words; where either side is `yes`, `no` or
/// `noanswer` and the two differ, everything is 0.
pub fn f1(prediction: &str, reference: &str) -> Overlap {
    let (prediction, reference) = (normalize_squad(prediction), normalize_squad(reference));
    let closed = |text: &str| matches!(text, "yes" | "no" | "noanswer");
    if prediction != reference && (closed(&prediction) || closed(&reference)) {
        return Overlap::default();
    }
    let mut left: HashMap<&str, usize> = HashMap::new();
    for word in reference.split_whitespace() {
        *left.entry(word).or_default() += 1;
    }
    let mut shared = 0_usize;
    for word in prediction.split_whitespace() {
        if let Some(count) = left.get_mut(word).filter(|count| **count > 0) {
            *count -= 1;
            shared += 1;
        }
    }
    if shared == 0 {
        return Overlap::default();
    }
    let precision = shared as f64 / prediction.split_whitespace().count() as f64;
    let recall = shared as f64 / reference.split_whitespace().count() as f64;
    Overlap { precision, recall, f1: 2.0 * precision * recall / (precision + recall) }
}

/// Compatibility forms unified (NFKC) without joining what NFKC would join: `10⁶` becomes `10^6` and not `106`,
/// `5½` becomes `5 1/2`. Dashes and minus signs become `-`, curly quotes straight ones. Case is kept.
pub fn unify(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len());
    let mut in_power = false;
    for c in text.chars() {
        let after_digit = spaced.ends_with(|p: char| p.is_ascii_digit());
        let superscript = matches!(c, '⁰' | '¹' | '²' | '³' | '⁴'..='⁹' | '⁻' | '⁺');
        if superscript && after_digit && !in_power {
            spaced.push('^');
        }
        if matches!(c, '¼'..='¾' | '⅐'..='⅞' | '↉') && after_digit {
            spaced.push(' ');
        }
        // The digits of one power follow one another: a caret stands before the first of them only.
        in_power = superscript && (after_digit || in_power);
        spaced.push(if matches!(c, '⁻') { '-' } else { c });
        if superscript && c.nfkc().all(|d| d.is_ascii_digit()) {
            spaced.pop();
            spaced.extend(c.nfkc());
        }
    }
    spaced
        .nfkc()
        .map(|c| match c {
            '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' => '-',
            '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}' | '\u{2032}' => '\'',
            '\u{201c}'..='\u{201f}' | '\u{2033}' | '«' | '»' => '"',
            '\u{2044}' | '\u{2215}' => '/',
            other => other,
        })
        .filter(|c| c.is_ascii() || !is(&INVISIBLE, *c))
        .collect()
}

/// Case folding: upper case, then lower case, so that `ß` meets `SS` and the two Greek sigmas meet.
pub fn fold_case(text: &str) -> String {
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfkc().collect()
}

/// The normalisation of our judge.
///
/// [`unify`] and [`fold_case`]; a leading article is dropped where something follows; punctuation goes (apostrophes
/// and full stops without a trace, the rest as a space), except where it carries meaning: a sign before a number (at
/// the beginning also one that stands apart, `- 5`), the closing minus of a rating or blood group (`AA-`, `O-`),
/// `. : / -` between digits, symbols such as `% # + $`. Well-formed thousands separators go: `1,234` is `1234`.
/// Articles inside and at the end stay, or `vitamin A` would be `vitamin`.
pub fn normalize(text: &str) -> String {
    without_ornaments(&fold_case(&unify(text)))
}

/// [`normalize`] without the folding of case; a leading article with a capital stays.
pub(crate) fn normalize_keeping_case(text: &str) -> String {
    without_ornaments(&unify(text))
}

fn without_ornaments(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut kept = String::with_capacity(chars.len());
    for (index, &c) in chars.iter().enumerate() {
        let before = index.checked_sub(1).map(|at| chars[at]);
        let after = chars.get(index + 1).copied();
        let digit = |side: Option<char>| side.is_some_and(|c| c.is_ascii_digit());
        let word = |side: Option<char>| side.is_some_and(char::is_alphanumeric);
        let between_digits = digit(before) && digit(after);
        match c {
            _ if c.is_alphanumeric() => kept.push(c),
            // The sign of `- 5` keeps its number.
            _ if (c.is_whitespace() || c.is_control()) && kept.trim_start() == "-" => {}
            _ if c.is_whitespace() || c.is_control() => kept.push(' '),
            '.' | ',' | ':' | '/' | '-' if between_digits => kept.push(c),
            '-' if starts_number(&chars[index + 1..]) && before.is_none_or(opens) => kept.push('-'),
            '-' if kept.trim_start().is_empty() && starts_number_apart(&chars[index + 1..]) => kept.push('-'),
            '-' if closes(&chars[index + 1..]) && ends_in_rating(&kept) => {
                kept.truncate(kept.trim_end().len());
                kept.push('-');
            }
            '.' if digit(after) && !word(before) => kept.push('.'),
            '.' | '\'' | '"' | '`' | '´' => {}
            '&' => kept.push_str(" and "),
            '%' | '#' => kept.push(c),
            '*' if word(before) && word(after) => kept.push('*'),
            '_' => kept.push(' '),
            _ if is(&PUNCTUATION, c) => kept.push(' '),
            _ => kept.push(c),
        }
    }
    // Commas that group nothing separate, as they do between words.
    let collapsed = collapse(&ungroup_thousands(&kept).replace(',', " "));
    for article in ["the ", "a ", "an "] {
        if let Some(rest) = collapsed.strip_prefix(article) {
            return rest.to_owned();
        }
    }
    collapsed
}

/// Spaces removed, except between two digits: `AC DC` meets `ACDC`, but `12 3` never meets `123`.
pub fn squash(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut joined = String::with_capacity(text.len());
    for word in words {
        if joined.ends_with(|c: char| c.is_numeric()) && word.starts_with(char::is_numeric) {
            joined.push(' ');
        }
        joined.push_str(word);
    }
    joined
}

/// Diacritics of Latin and Greek letters removed, and Latin letters that Unicode does not decompose spelt plainly
/// (`ø` → `o`, `æ` → `ae`). Other scripts are left alone: there the marks are vowels or other consonants.
pub fn strip_diacritics(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut strippable = false;
    for c in text.nfd() {
        if matches!(c, '\u{300}'..='\u{36f}') {
            if !strippable {
                plain.push(c);
            }
            continue;
        }
        strippable = c.is_alphabetic()
            && matches!(c, '\0'..='\u{24f}' | '\u{370}'..='\u{3ff}' | '\u{1e00}'..='\u{1fff}');
        match c {
            'ø' => plain.push('o'),
            'ł' => plain.push('l'),
            'đ' | 'ð' => plain.push('d'),
            'ħ' => plain.push('h'),
            'ı' => plain.push('i'),
            'æ' => plain.push_str("ae"),
            'œ' => plain.push_str("oe"),
            'þ' => plain.push_str("th"),
            other => plain.push(other),
        }
    }
    plain.nfc().collect()
}

/// Whether a text is a formula, in which every sign counts: then nothing but case and spacing may differ.
pub fn is_formula(text: &str) -> bool {
    let unified = unify(text);
    unified.contains(['+', '=', '^', '<', '>', '|', '\\', '{', '}', '√', '∞', '∑', '∫', '×', '÷', '±'])
        || LETTER_MINUS.is_match(&unified)
}

/// A formula with case and spacing taken out, surrounding quotes and markdown and a closing full stop removed.
pub fn normalize_formula(text: &str) -> String {
    let folded = fold_case(&unify(text));
    let bare = folded.trim().trim_matches(['"', '\'', '`', '*', '$']).trim_end_matches('.');
    squash(bare)
}

fn collapse(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is(class: &Regex, c: char) -> bool {
    class.is_match(c.encode_utf8(&mut [0; 4]))
}

/// Whether a minus sign here would be the sign of a number: a digit follows, perhaps after a currency sign or a point.
fn starts_number(rest: &[char]) -> bool {
    match rest {
        [first, ..] if first.is_ascii_digit() => true,
        ['.' | '$' | '€' | '£' | '¥' | '₹', second, ..] => second.is_ascii_digit(),
        _ => false,
    }
}

/// Whether white space and then a number follow.
fn starts_number_apart(rest: &[char]) -> bool {
    let spaces = rest.iter().take_while(|c| c.is_whitespace()).count();
    spaces > 0 && starts_number(&rest[spaces..])
}

/// Whether nothing follows, or punctuation that closes; a word after a space would make a minus sign a dash.
fn closes(rest: &[char]) -> bool {
    let next = rest.iter().find(|c| !c.is_whitespace());
    next.is_none_or(|c| matches!(c, '.' | ',' | ';' | ':' | '!' | '?' | ')' | ']' | '"' | '\'' | '`' | '*'))
}

/// Whether a text ends in a word of one to three letters, as ratings, marks and blood groups are.
fn ends_in_rating(text: &str) -> bool {
    let word = text.trim_end().rsplit(char::is_whitespace).next().unwrap_or_default();
    (1..=3).contains(&word.chars().count()) && word.chars().all(char::is_alphabetic)
}

fn opens(before: char) -> bool {
    before.is_whitespace()
        || matches!(before, '^' | '(' | '[' | '"' | '\'' | '`' | '*' | '$' | '€' | '£' | '~' | ':')
}

/// Commas that group thousands taken out, other commas between digits left: `1,234` → `1234`, `5,6` stays.
pub(crate) fn ungroup_thousands(text: &str) -> Cow<'_, str> {
    COMMA_NUMBER.replace_all(text, |found: &Captures<'_>| {
        let mut groups = found[0].split(',');
        let first_fits = groups.next().is_some_and(|first| first.len() <= 3);
        if first_fits && groups.all(|group| group.len() == 3) {
            found[0].replace(',', "")
        } else {
            found[0].to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squad_normalisation_follows_the_published_steps() {
        assert_eq!(normalize_squad("The  Eiffel-Tower, in a (city)!"), "eiffeltower in city");
        assert_eq!(normalize_squad("An apple a day"), "apple day");
        assert_eq!(normalize_squad("Theatre"), "theatre");
        assert_eq!(normalize_squad("1.5"), "15");
        assert_eq!(normalize_squad("the"), "");
    }

    #[test]
    fn overlap_on_hand_worked_bags() {
        // {chief, of, protocol} against {chief, of, staff, of, protocol}: 3 shared of 3 and of 5.
        let overlap = f1("Chief of Protocol", "The chief of staff of protocol");
        assert_eq!(overlap, Overlap { precision: 1.0, recall: 0.6, f1: 2.0 * 0.6 / 1.6 });
        // A repeated word counts as often as it stands on both sides: {b, b, b} against {b, c}: 1 of 3, 1 of 2.
        let repeated = f1("b b b", "b c");
        assert_eq!((repeated.precision, repeated.recall), (1.0 / 3.0, 0.5));
        assert!((repeated.f1 - 0.4).abs() < 1e-12);
        assert_eq!(f1("x", "y"), Overlap::default());
        assert_eq!(f1("", ""), Overlap::default());
    }

    #[test]
    fn closed_answers_give_all_or_nothing() {
        assert_eq!(f1("yes it is", "yes"), Overlap::default());
        assert_eq!(f1("no", "no one"), Overlap::default());
        assert_eq!(f1("Yes.", "yes").f1, 1.0);
    }

    #[test]
    fn exact_match_takes_any_reference() {
        assert!(exact_match("the Beatles!", &["Rolling Stones", "Beatles"]));
        assert!(!exact_match("Beatle", &["Beatles"]));
    }

    #[test]
    fn meaning_in_numbers_survives() {
        for (text, expected) in [
            ("1,234,567", "1234567"),
            ("-5", "-5"),
            ("−5 °C", "-5 °c"),
            ("3.14.", "3.14"),
            (".5", ".5"),
            ("10⁶", "10^6"),
            ("10⁻⁶", "10^-6"),
            ("10¹²", "10^12"),
            ("5½", "5 1/2"),
            ("km²", "km2"),
            ("H₂O", "h2o"),
            ("2019–2020", "2019-2020"),
            ("1,2,3", "1 2 3"),
            ("50%", "50%"),
            ("3:45", "3:45"),
            ("- 5", "-5"),
            ("(− 5)", "-5"),
            ("2019 - 2020", "2019 2020"),
            ("F - 16", "f 16"),
            ("AA-", "aa-"),
            ("O−.", "o-"),
            ("BBB -", "bbb-"),
            ("AA-, stable", "aa- stable"),
        ] {
            assert_eq!(normalize(text), expected, "{text}");
        }
    }

    #[test]
    fn words_lose_what_carries_no_meaning() {
        for (text, expected) in [
            ("The  Beatles", "beatles"),
            ("Vitamin A", "vitamin a"),
            ("A", "a"),
            ("“O’Brien”", "obrien"),
            ("D.C.", "dc"),
            ("Guinea-Bissau", "guinea bissau"),
            ("Al- Qaeda", "al qaeda"),
            ("Paris -", "paris"),
            ("B--A", "b a"),
            ("- Paris", "paris"),
            ("Simon & Garfunkel", "simon and garfunkel"),
            ("Straße", "strasse"),
            ("ﬁne", "fine"),
            ("ＡＢＣ", "abc"),
            ("**Paris**", "paris"),
            ("ΟΔΟΣ", "οδοσ"),
            ("zero\u{200b}width", "zerowidth"),
        ] {
            assert_eq!(normalize(text), expected, "{text}");
        }
        assert_eq!(normalize("ὁδός"), normalize("ὉΔΌΣ"));
    }

    #[test]
    fn diacritics_fold_only_where_they_are_ornaments() {
        assert_eq!(strip_diacritics("são tomé, łódź, øresund, æsir"), "sao tome, lodz, oresund, aesir");
        assert_eq!(strip_diacritics("が"), "が");
        assert_eq!(strip_diacritics("й"), "й");
        assert_eq!(strip_diacritics("हिन्दी"), "हिन्दी");
    }

    #[test]
    fn squashing_never_joins_digits() {
        assert_eq!(squash("guinea bissau"), "guineabissau");
        assert_eq!(squash("12 3"), "12 3");
        assert_eq!(squash("c 3 po"), "c3po");
    }

    #[test]
    fn formulas_are_told_from_names() {
        for formula in ["x-5", "C++", "a = b", "10⁶", "5-x", "<5"] {
            assert!(is_formula(formula), "{formula}");
        }
        for name in ["F-16", "Guinea-Bissau", "AC/DC", "$5", "50%", "COVID-19"] {
            assert!(!is_formula(name), "{name}");
        }
        assert_eq!(normalize_formula(" X = y + 1. "), "x=y+1");
    }
}

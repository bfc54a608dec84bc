//! The form in which texts are compared: answers with evidence, values with values, questions with questions.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Lower case, without diacritics, apostrophes or punctuation, single spaces.
///
/// Digit groups are joined and decimal points kept, so that `1,572.5 km` and `1572.5 km` are the same. Signs are
/// lost: values that differ only in their sign must not be compared in this form.
pub fn normal_form(text: &str) -> String {
    let letters: Vec<char> =
        text.nfkd().filter(|letter| !is_combining_mark(*letter)).flat_map(char::to_lowercase).collect();
    let is_digit =
        |index: Option<usize>| index.and_then(|i| letters.get(i)).is_some_and(char::is_ascii_digit);
    let mut form = String::with_capacity(letters.len());
    for (index, &letter) in letters.iter().enumerate() {
        let between_digits = is_digit(index.checked_sub(1)) && is_digit(Some(index + 1));
        if letter.is_alphanumeric() || (letter == '.' && between_digits) {
            form.push(letter);
        } else if is_apostrophe(letter) || (letter == ',' && between_digits) {
            // Joined: N'Djamena is ndjamena, 1,572 is 1572.
        } else if !form.is_empty() && !form.ends_with(' ') {
            form.push(' ');
        }
    }
    form.truncate(form.trim_end().len());
    form
}

/// Whether `needle` occurs in `haystack` as whole words, both in normal form. An empty needle never does.
pub fn contains_words(haystack: &str, needle: &str) -> bool {
    if needle.is_empty() {
        return false;
    }
    haystack.match_indices(needle).any(|(start, found)| {
        let end = start + found.len();
        haystack[..start].chars().next_back().is_none_or(|letter| letter == ' ')
            && haystack[end..].chars().next().is_none_or(|letter| letter == ' ')
    })
}

/// Every run of white space as one space, none at the ends; letters and punctuation stay as they are.
pub fn fold_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_apostrophe(letter: char) -> bool {
    matches!(letter, '\'' | '\u{2018}' | '\u{2019}' | '\u{02bc}' | '\u{02bb}' | '`')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_variants_have_one_normal_form() {
        for (text, expected) in [
            ("Côte d'Ivoire", "cote divoire"),
            ("Cote d’Ivoire", "cote divoire"),
            ("  1,572.5   km. ", "1572.5 km"),
            ("Guinea-Bissau", "guinea bissau"),
            ("red, white and blue", "red white and blue"),
            (".ke", "ke"),
            ("—", ""),
        ] {
            assert_eq!(normal_form(text), expected, "{text}");
        }
    }

    #[test]
    fn only_whole_words_are_found() {
        assert!(contains_words("the capital of niger", "niger"));
        assert!(!contains_words("the capital of nigeria", "niger"));
        assert!(contains_words("nigeria and niger", "niger"));
        assert!(!contains_words("niger", ""));
        assert!(!contains_words("1572.5 km", "5 km"));
    }
}

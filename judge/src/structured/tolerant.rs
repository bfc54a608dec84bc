//! Finding the JSON object in what a model wrote around it.
//!
//! Fences and prose around the object, trailing commas, single quotes and Python's `True`, `False` and `None` are
//! forgiven. What is not forgiven is doubt: two different objects of the right form, or an object that never ends
//! (what stands inside it may be a quotation of what was to be judged).

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Why no answer could be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableReply {
    /// There is no JSON object.
    #[error("expected a JSON object, found none")]
    NoObject,
    /// An object begins and does not end.
    #[error("the JSON object that begins at byte {0} does not end")]
    Unfinished(usize),
    /// There are objects, none of the right form.
    #[error("the JSON object does not have the required form: {0}")]
    WrongForm(String),
    /// Two objects of the right form differ.
    #[error("expected one JSON object, found several that differ")]
    Ambiguous,
}

/// Reads the one object of type `T` in a reply.
pub fn read<T: DeserializeOwned>(reply: &str) -> Result<T, UnreadableReply> {
    let mut found: Option<(Value, T)> = None;
    let mut wrong = None;
    for object in objects(reply)? {
        let value = match serde_json::from_str(object).or_else(|_| serde_json::from_str(&repair(object))) {
            Ok(value) => value,
            Err(error) => {
                let _ = wrong.get_or_insert_with(|| error.to_string());
                continue;
            }
        };
        match serde_json::from_value::<T>(Value::clone(&value)) {
            Ok(answer) => match &found {
                Some((known, _)) if *known != value => return Err(UnreadableReply::Ambiguous),
                Some(_) => {}
                None => found = Some((value, answer)),
            },
            Err(error) => {
                let _ = wrong.get_or_insert_with(|| error.to_string());
            }
        }
    }
    match (found, wrong) {
        (Some((_, answer)), _) => Ok(answer),
        (None, Some(reason)) => Err(UnreadableReply::WrongForm(reason)),
        (None, None) => Err(UnreadableReply::NoObject),
    }
}

/// The outermost balanced `{…}` of a text, in order. Braces inside double-quoted strings of an object do not count.
fn objects(text: &str) -> Result<Vec<&str>, UnreadableReply> {
    let mut found = Vec::new();
    let (mut start, mut depth, mut in_string, mut escaped) = (0, 0_usize, false, false);
    for (index, byte) in text.bytes().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' if depth > 0 => in_string = true,
            b'{' => {
                if depth == 0 {
                    start = index;
                }
                depth += 1;
            }
            b'}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    found.push(&text[start..=index]);
                }
            }
            _ => {}
        }
    }
    if depth > 0 { Err(UnreadableReply::Unfinished(start)) } else { Ok(found) }
}

/// A second try at an object that is not JSON: single-quoted strings, trailing commas, Python's constants.
fn repair(object: &str) -> String {
    let chars: Vec<char> = object.chars().collect();
    let mut repaired = String::with_capacity(object.len());
    let mut index = 0;
    while index < chars.len() {
        let c = chars[index];
        match c {
            '"' | '\'' => index = copy_string(&chars, index, &mut repaired),
            ',' => {
                let next = chars[index + 1..].iter().find(|next| !next.is_whitespace());
                if !matches!(next, Some('}' | ']')) {
                    repaired.push(',');
                }
                index += 1;
            }
            _ if c.is_alphabetic() => {
                let end = chars[index..]
                    .iter()
                    .position(|c| !c.is_alphanumeric())
                    .map_or(chars.len(), |at| index + at);
                let word: String = chars[index..end].iter().collect();
                repaired.push_str(match word.as_str() {
                    "True" => "true",
                    "False" => "false",
                    "None" => "null",
                    other => other,
                });
                index = end;
            }
            _ => {
                repaired.push(c);
                index += 1;
            }
        }
    }
    repaired
}

/// Copies the string that begins at `start` in double quotes and returns the index after it. A single quote ends a
/// single-quoted string only where JSON goes on after it, so that `'it's'` holds together.
fn copy_string(chars: &[char], start: usize, repaired: &mut String) -> usize {
    let quote = chars[start];
    repaired.push('"');
    let mut index = start + 1;
    while index < chars.len() {
        match chars[index] {
            '\\' if chars.get(index + 1) == Some(&'\'') => {
                repaired.push('\'');
                index += 2;
            }
            '\\' => {
                repaired.push('\\');
                repaired.extend(chars.get(index + 1));
                index += 2;
            }
            c if c == quote && (quote == '"' || ends_string(&chars[index + 1..])) => {
                repaired.push('"');
                return index + 1;
            }
            '"' => {
                repaired.push_str("\\\"");
                index += 1;
            }
            '\n' => {
                repaired.push_str("\\n");
                index += 1;
            }
            c => {
                repaired.push(c);
                index += 1;
            }
        }
    }
    index
}

fn ends_string(rest: &[char]) -> bool {
    matches!(rest.iter().find(|c| !c.is_whitespace()), Some(':' | ',' | '}' | ']'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Answer {
        x: String,
        #[serde(default)]
        ok: Option<bool>,
    }

    fn x(reply: &str) -> Result<String, UnreadableReply> {
        read::<Answer>(reply).map(|answer| answer.x)
    }

    #[test]
    fn what_is_forgiven() {
        for reply in [
            r#"{"x":"a"}"#,
            "```json\n{\"x\": \"a\"}\n```",
            r#"Sure! Here it is: {"x": "a"} Hope it helps."#,
            r#"{"x": "a",}"#,
            "{'x': 'a'}",
            "{'x': 'a', 'ok': True,}",
            r#"{"x": "a"} and once more {"x": "a"}"#,
            r#"The set {1, 2} gives {"x": "a"}"#,
        ] {
            assert_eq!(x(reply).as_deref(), Ok("a"), "{reply}");
        }
        assert_eq!(x(r#"{"x": "a } b { \" c"}"#).as_deref(), Ok("a } b { \" c"));
        assert_eq!(x("{'x': 'it's \"so\"'}").as_deref(), Ok("it's \"so\""));
        assert_eq!(x("{\"x\": \"two\nlines\"}").as_deref(), Ok("two\nlines"));
    }

    #[test]
    fn what_is_not() {
        assert_eq!(x("no object"), Err(UnreadableReply::NoObject));
        assert_eq!(x(""), Err(UnreadableReply::NoObject));
        assert_eq!(x(r#"ab {"x": "a"#), Err(UnreadableReply::Unfinished(3)));
        assert_eq!(x(r#"{"x":"a"} or {"x":"b"}"#), Err(UnreadableReply::Ambiguous));
        assert!(matches!(x(r#"{"y":"a"}"#), Err(UnreadableReply::WrongForm(reason)) if reason.contains('x')));
        assert!(matches!(x(r#"{"x": 1}"#), Err(UnreadableReply::WrongForm(_))));
    }

    #[test]
    fn a_quotation_in_an_unfinished_object_is_no_answer() {
        let reply = r#"{"rationale": {the answer said {"x": "a"}"#;
        assert!(matches!(x(reply), Err(UnreadableReply::Unfinished(_))));
    }
}

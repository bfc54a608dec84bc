//! The key of a server, which is sent and never shown.

use reqwest::header::HeaderValue;

use super::ClientError;

/// Whether this can name an environment variable that holds a key: `[A-Z][A-Z0-9_]*`.
///
/// Keys contain lower-case letters or hyphens, so one that was pasted where its variable belongs is told apart. Whoever
/// reports such a mistake must not repeat the text.
pub fn is_key_variable(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// An API key. Has neither `Debug` nor `Display`.
pub(super) struct Key(String);

impl Key {
    /// Reads it from the environment; surrounding white space is dropped.
    pub(super) fn read(variable: &str) -> Result<Self, ClientError> {
        if !is_key_variable(variable) {
            return Err(ClientError::KeyVariable);
        }
        let wrong = |reason| ClientError::Key { variable: variable.to_owned(), reason };
        let key = std::env::var(variable).map_err(|error| {
            wrong(match error {
                std::env::VarError::NotPresent => "is not set",
                std::env::VarError::NotUnicode(_) => "holds characters no key has",
            })
        })?;
        match key.trim() {
            "" => Err(wrong("is empty")),
            key if HeaderValue::from_str(key).is_err() => Err(wrong("holds characters no key has")),
            key => Ok(Self(key.to_owned())),
        }
    }

    /// The header that carries it.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        let mut header = HeaderValue::from_str(&self.0).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// A text without the key, also where it stands inside quoted JSON: servers like to repeat the key they refuse.
    pub(super) fn redact(&self, text: &str) -> String {
        let quoted = serde_json::Value::from(self.0.as_str()).to_string();
        text.replace(&self.0, "***").replace(quoted.trim_matches('"'), "***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_no_name_of_a_variable() {
        for name in ["DRGYM_KEY", "K", "KEY_2"] {
            assert!(is_key_variable(name), "{name}");
        }
        for text in ["", "sk-live-1", "drg_key", "2KEY", "_KEY", "KEY NAME", "KEY=1", "SCHLÜSSEL"] {
            assert!(!is_key_variable(text), "{text}");
        }
        let error = Key::read("sk-live-1").err().unwrap().to_string();
        assert!(!error.contains("sk-live"), "{error}");
    }

    #[test]
    fn a_key_is_redacted_in_plain_and_in_quoted_text() {
        let key = Key("a\\b-secret".to_owned());
        let quoted = serde_json::json!({"detail": "bad key a\\b-secret!"}).to_string();
        assert_eq!(key.redact("bad key a\\b-secret!"), "bad key ***!");
        assert_eq!(key.redact(&quoted), r#"{"detail":"bad key ***!"}"#);
    }
}

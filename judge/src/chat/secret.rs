//! A key that cannot be printed.

use std::fmt;

/// An API key. `Debug` and `Display` show stars; the text comes out through [`reveal`](Self::reveal) only.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Takes a key; surrounding whitespace, such as the line end of a key file, is dropped.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// The key itself, for the request header and nothing else.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// A text with every occurrence of the key made unreadable: servers like to quote the key they refuse.
    pub fn redact(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&self.0, "***") }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ApiKey(***)")
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_unprintable() {
        let key = ApiKey::new(" sk-secret\n");
        assert_eq!(format!("{key} {key:?} {:#?}", Some(&key)).matches("secret").count(), 0);
        assert_eq!(key.reveal(), "sk-secret");
        assert_eq!(key.redact("bad key sk-secret!"), "bad key ***!");
    }
}

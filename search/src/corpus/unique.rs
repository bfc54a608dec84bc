use std::collections::HashSet;

/// Remembers which identifiers and addresses a corpus has used, 16 bytes each.
///
/// Keys are truncated blake3 hashes: with a billion documents the chance that any two differ and collide is 1e-20.
#[derive(Default)]
pub(super) struct UniqueKeys {
    doc_ids: HashSet<[u8; 16]>,
    urls: HashSet<[u8; 16]>,
}

/// What was found out about a document's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Novelty {
    New,
    DuplicateDocId,
    DuplicateUrl,
}

impl Novelty {
    pub(super) fn is_new(self) -> bool {
        self == Self::New
    }
}

impl UniqueKeys {
    pub(super) fn insert(&mut self, doc_id: &str, url: &str) -> Novelty {
        if !self.doc_ids.insert(key(doc_id)) {
            Novelty::DuplicateDocId
        } else if !self.insert_url(url) {
            Novelty::DuplicateUrl
        } else {
            Novelty::New
        }
    }

    /// Whether the address is new.
    pub(super) fn insert_url(&mut self, url: &str) -> bool {
        self.urls.insert(key(url))
    }
}

fn key(text: &str) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
    key
}

//! How the entities of the Factbook are named in questions, and which of them a text names.

use std::collections::HashMap;

use drgym_search::corpus::factbook::Entity;

use crate::normal_form::{contains_words, normal_form};

/// Aggregates of countries: no questions are asked about them, but their values count when others are compared.
const AGGREGATES: &[&str] = &["xx", "ee"];

/// Names that are everyday words, as in World Heritage Sites; texts that hold them do not speak of the entity.
const EVERYDAY_NAMES: &[&str] = &["world"];

/// Entities whose name in the corpus cannot stand in a sentence: (code, how they are named in questions).
const SPOKEN: &[(&str, &str)] = &[
    ("cf", "the Republic of the Congo (Congo-Brazzaville)"),
    ("cg", "the Democratic Republic of the Congo (DRC)"),
    ("dr", "the Dominican Republic"),
    ("gz", "the Gaza Strip"),
    ("sx", "South Georgia and the South Sandwich Islands"),
    ("vt", "the Holy See (Vatican City)"),
    ("vq", "the US Virgin Islands"),
];

/// Entities that are a list of places rather than one place.
const LISTS: &[&str] = &["um"];

/// Names that take the definite article, beside those that end in a plural noun of place.
const WITH_ARTICLE: &[&str] = &[
    "british indian ocean territory",
    "central african republic",
    "comoros",
    "federated states of micronesia",
    "isle of man",
    "maldives",
    "netherlands",
    "philippines",
    "seychelles",
    "united arab emirates",
    "united kingdom",
    "united states",
    "west bank",
];

/// Other names under which texts of the corpus mention an entity: (code, names).
const OTHER_NAMES: &[(&str, &[&str])] = &[
    ("ae", &["UAE", "United Arab Emirates"]),
    ("cf", &["Republic of the Congo", "Republic of Congo", "Congo-Brazzaville"]),
    ("cg", &["DRC", "Democratic Republic of the Congo", "DROC"]),
    ("dr", &["Dominican Republic"]),
    ("ez", &["Czech Republic"]),
    ("gz", &["Gaza Strip", "Gaza"]),
    ("tu", &["Turkiye"]),
    ("uk", &["UK", "Great Britain"]),
    ("us", &["US", "USA", "United States of America"]),
    ("vq", &["US Virgin Islands"]),
    ("vt", &["Holy See", "Vatican City"]),
];

/// The names of all entities of a corpus.
#[derive(Clone, Debug)]
pub struct Gazetteer {
    entries: Vec<Entry>,
    /// By first word: (words of a name in normal form, index), names of many words first.
    names: HashMap<String, Vec<(Vec<String>, usize)>>,
}

#[derive(Clone, Debug)]
struct Entry {
    name: String,
    spoken: String,
    noun: &'static str,
    is_askable: bool,
    confusable_with: Option<String>,
}

impl Gazetteer {
    /// Names of `entities`, addressed by their index there.
    pub fn new(entities: &[Entity]) -> Self {
        let mut entries: Vec<Entry> = entities.iter().map(entry).collect();
        let mut names: Vec<(String, usize)> = Vec::new();
        for (index, entity) in entities.iter().enumerate() {
            let others =
                OTHER_NAMES.iter().find(|(code, _)| *code == entity.code).map_or(&[][..], |(_, names)| names);
            for name in std::iter::once(entity.name.as_str()).chain(others.iter().copied()) {
                let name = normal_form(name);
                if !EVERYDAY_NAMES.contains(&name.as_str()) {
                    names.push((name, index));
                }
            }
        }
        for (index, entry) in entries.iter_mut().enumerate() {
            let spoken = normal_form(entry.spoken.strip_prefix("the ").unwrap_or(&entry.spoken));
            entry.confusable_with = names
                .iter()
                .find(|(name, other)| *other != index && contains_words(name, &spoken))
                .map(|(_, other)| entities[*other].name.clone());
        }
        let mut by_first_word: HashMap<String, Vec<(Vec<String>, usize)>> = HashMap::new();
        for (name, index) in names {
            let words: Vec<String> = name.split(' ').map(str::to_owned).collect();
            by_first_word.entry(words[0].clone()).or_default().push((words, index));
        }
        for names in by_first_word.values_mut() {
            names.sort_by(|left, right| right.0.len().cmp(&left.0.len()).then_with(|| left.cmp(right)));
        }
        Self { entries, names: by_first_word }
    }

    /// The name as the corpus writes it, unique.
    pub fn name(&self, index: usize) -> &str {
        &self.entries[index].name
    }

    /// The name as it stands in a sentence, with its article.
    pub fn spoken(&self, index: usize) -> &str {
        &self.entries[index].spoken
    }

    /// `country` or `territory`.
    pub fn noun(&self, index: usize) -> &'static str {
        self.entries[index].noun
    }

    /// Whether questions are asked about the entity: not about the world, unions and lists of places.
    pub fn is_askable(&self, index: usize) -> bool {
        self.entries[index].is_askable
    }

    /// Another entity whose name holds this one's spoken name, as `Guinea-Bissau` holds `Guinea`: a question that
    /// names only this one may be taken for the other.
    pub fn confusable_with(&self, index: usize) -> Option<&str> {
        self.entries[index].confusable_with.as_deref()
    }

    /// Which entities a text names, in ascending order of index. Read from the left, the longest name counts: in
    /// `South Sudan` there is no `Sudan`.
    pub fn named_in(&self, text: &str) -> Vec<usize> {
        let form = normal_form(text);
        let words: Vec<&str> = form.split(' ').collect();
        let mut found = Vec::new();
        let mut position = 0;
        while position < words.len() {
            let candidates = self.names.get(words[position]).map_or(&[][..], Vec::as_slice);
            let longest = candidates.iter().find(|(name, _)| {
                words[position..].len() >= name.len()
                    && name.iter().zip(&words[position..]).all(|(a, b)| a == b)
            });
            position += match longest {
                Some((name, index)) => {
                    found.push(*index);
                    name.len()
                }
                None => 1,
            };
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn entry(entity: &Entity) -> Entry {
    let spoken = match SPOKEN.iter().find(|(code, _)| *code == entity.code) {
        Some((_, spoken)) => (*spoken).to_owned(),
        None => with_article(&entity.name),
    };
    let depends = entity.field("Government", "Dependency status").is_some();
    let independence = entity.field("Government", "Independence").and_then(|field| field.part(""));
    let is_country = !depends && independence.is_some_and(|text| !text.starts_with("none"));
    Entry {
        name: entity.name.clone(),
        spoken,
        noun: if is_country { "country" } else { "territory" },
        is_askable: !AGGREGATES.contains(&entity.code.as_str()) && !LISTS.contains(&entity.code.as_str()),
        confusable_with: None,
    }
}

fn with_article(name: &str) -> String {
    if let Some(rest) = name.strip_prefix("The ") {
        return format!("the {rest}");
    }
    let form = normal_form(name);
    let is_plural = ["islands", "lands", "grenadines"].iter().any(|noun| form.ends_with(noun));
    let is_list = form.contains(" and ") && !form.starts_with("turks");
    if WITH_ARTICLE.contains(&form.as_str()) || (is_plural && !is_list) {
        format!("the {name}")
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use drgym_search::corpus::factbook::Field;

    use super::*;

    fn entity(code: &str, name: &str, independence: &str) -> Entity {
        Entity {
            code: code.to_owned(),
            region: "r".to_owned(),
            name: name.to_owned(),
            fields: vec![Field {
                section: "Government".to_owned(),
                name: "Independence".to_owned(),
                parts: vec![(String::new(), independence.to_owned())],
            }],
        }
    }

    fn gazetteer(names: &[(&str, &str)]) -> Gazetteer {
        let entities: Vec<Entity> =
            names.iter().map(|(code, name)| entity(code, name, "1 May 1900")).collect();
        Gazetteer::new(&entities)
    }

    #[test]
    fn longer_names_win_over_the_names_inside_them() {
        let names = gazetteer(&[
            ("su", "Sudan"),
            ("od", "South Sudan"),
            ("ng", "Niger"),
            ("ni", "Nigeria"),
            ("uk", "United Kingdom"),
        ]);
        assert_eq!(names.named_in("What is the capital of South Sudan?"), [1]);
        assert_eq!(names.named_in("Sudan, South Sudan and Nigeria"), [0, 1, 3]);
        assert_eq!(names.named_in("from the UK"), [4]);
        assert_eq!(names.named_in("Sudan Sudan"), [0]);
        assert!(names.named_in("the Sudanese pound").is_empty());
        assert!(
            gazetteer(&[("xx", "World")]).named_in("How many World Heritage Sites are there?").is_empty()
        );
    }

    #[test]
    fn names_inside_other_names_are_confusable() {
        let names = gazetteer(&[
            ("gv", "Guinea"),
            ("pu", "Guinea-Bissau"),
            ("cf", "Congo (Brazzaville)"),
            ("cg", "DRC"),
            ("ke", "Kenya"),
        ]);
        assert_eq!(names.confusable_with(0), Some("Guinea-Bissau"));
        for index in 1..5 {
            assert_eq!(names.confusable_with(index), None, "{}", names.name(index));
        }
        assert_eq!(names.spoken(3), "the Democratic Republic of the Congo (DRC)");
    }

    #[test]
    fn articles_and_nouns() {
        let names = gazetteer(&[
            ("rp", "Philippines"),
            ("bf", "The Bahamas"),
            ("bp", "Solomon Islands"),
            ("hm", "Heard Island and McDonald Islands"),
            ("tk", "Turks and Caicos Islands"),
            ("nl", "Netherlands"),
            ("pl", "Poland"),
            ("ie", "Ireland"),
            ("no", "Norway"),
        ]);
        let spoken: Vec<&str> = (0..9).map(|index| names.spoken(index)).collect();
        let expected = [
            "the Philippines",
            "the Bahamas",
            "the Solomon Islands",
            "Heard Island and McDonald Islands",
            "the Turks and Caicos Islands",
            "the Netherlands",
            "Poland",
            "Ireland",
            "Norway",
        ];
        assert_eq!(spoken, expected);
        let territory =
            Gazetteer::new(&[entity("aa", "Aruba", "none (part of the Kingdom of the Netherlands)")]);
        assert_eq!(territory.noun(0), "territory");
        assert_eq!(names.noun(0), "country");
    }
}

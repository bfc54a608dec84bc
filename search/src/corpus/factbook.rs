//! The CIA World Factbook as JSON, `<folder>/<region>/<code>.json`.
//!
//! A file is one entity (a country, a territory, an ocean, the European Union, the world). It maps sections to
//! fields; a field is either `{"text": …}`, or subfields `{"<name>": {"text": …}, …}`, both possibly with a
//! `"note"`. Texts are fragments of HTML. [`read_entities`] gives the structure with clean text;
//! [`Entity::documents`] makes one document of every field.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use super::error::CorpusError;
use super::markup::plain_text;
use crate::document::Document;

/// One country, territory, ocean or union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// File name without its ending, for instance `sz`.
    pub code: String,
    /// Name of the folder, for instance `europe`.
    pub region: String,
    /// The name in common use, unique in the corpus, for instance `Switzerland`.
    pub name: String,
    /// All fields that say something, in the order of the file.
    pub fields: Vec<Field>,
}

/// One field of an entity, the unit that becomes a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// For instance `Geography`.
    pub section: String,
    /// For instance `Area`.
    pub name: String,
    /// (subfield, text) in the order of the file, at least one. The subfield's name is empty for the field's own
    /// text and `note` for a note; texts are plain and never empty, and do not repeat the subfield's name.
    pub parts: Vec<(String, String)>,
}

impl Entity {
    /// The field of that section and name.
    pub fn field(&self, section: &str, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.section == section && field.name == name)
    }

    /// One document for each field.
    pub fn documents(&self) -> impl Iterator<Item = Document> + '_ {
        self.fields.iter().map(|field| field.document(self))
    }
}

impl Field {
    /// The text of a subfield; the empty name asks for the field's own text.
    pub fn part(&self, name: &str) -> Option<&str> {
        self.parts.iter().find(|(part, _)| part == name).map(|(_, text)| text.as_str())
    }

    /// `factbook/<code>/<section>/<field>`.
    pub fn doc_id(&self, entity: &Entity) -> String {
        format!("factbook/{}/{}/{}", entity.code, slug(&self.section), slug(&self.name))
    }

    /// `factbook://<code>/<section>/<field>`.
    pub fn url(&self, entity: &Entity) -> String {
        format!("factbook://{}/{}/{}", entity.code, slug(&self.section), slug(&self.name))
    }

    /// The parts as lines `subfield: text`, the field's own text without a name.
    pub fn text(&self) -> String {
        let lines: Vec<String> = self
            .parts
            .iter()
            .map(|(name, text)| if name.is_empty() { text.clone() } else { format!("{name}: {text}") })
            .collect();
        lines.join("\n")
    }

    fn document(&self, entity: &Entity) -> Document {
        let mut extra = Map::new();
        for (key, value) in [
            ("entity", &entity.name),
            ("code", &entity.code),
            ("region", &entity.region),
            ("section", &self.section),
            ("field", &self.name),
        ] {
            extra.insert(key.to_owned(), Value::String(value.clone()));
        }
        Document {
            doc_id: self.doc_id(entity),
            url: self.url(entity),
            title: format!("{} – {}", entity.name, self.name),
            text: self.text(),
            extra,
        }
    }
}

/// Reads every entity, ordered by region and code.
pub fn read_entities(dir: &Path) -> Result<Vec<Entity>, CorpusError> {
    const EXPECTED: &str = "files named <region>/<code>.json";
    let mut entities = Vec::new();
    for region in sorted_names(dir)? {
        let region_dir = dir.join(&region);
        if !region_dir.is_dir() || region.starts_with(['.', '_']) {
            continue;
        }
        for file in sorted_names(&region_dir)? {
            if let Some(code) = file.strip_suffix(".json") {
                entities.push(read_entity(&region_dir.join(&file), code, &region)?);
            }
        }
    }
    if entities.is_empty() {
        return Err(CorpusError::EmptyFolder { path: dir.to_owned(), expected: EXPECTED });
    }
    let mut codes = BTreeSet::new();
    for entity in &entities {
        if !codes.insert(entity.code.as_str()) {
            return Err(CorpusError::Factbook {
                path: dir.join(&entity.region).join(format!("{}.json", entity.code)),
                at: "file".to_owned(),
                reason: format!("the code {:?} occurs in two regions", entity.code),
            });
        }
    }
    name_entities(&mut entities);
    Ok(entities)
}

fn sorted_names(dir: &Path) -> Result<Vec<String>, CorpusError> {
    let open = |source| CorpusError::Open { path: dir.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(open)? {
        let name = entry.map_err(open)?.file_name();
        match name.to_str() {
            Some(name) => names.push(name.to_owned()),
            None => {
                return Err(CorpusError::Factbook {
                    path: dir.join(name),
                    at: "file".to_owned(),
                    reason: "the file name is not UTF-8".to_owned(),
                });
            }
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn read_entity(path: &Path, code: &str, region: &str) -> Result<Entity, CorpusError> {
    let wrong = |at: String, reason: String| CorpusError::Factbook { path: path.to_owned(), at, reason };
    let bytes = fs::read(path).map_err(|source| CorpusError::Open { path: path.to_owned(), source })?;
    let sections: Map<String, Value> =
        serde_json::from_slice(&bytes).map_err(|error| wrong("file".to_owned(), error.to_string()))?;
    let mut fields = Vec::new();
    let mut slugs = BTreeSet::new();
    for (section, content) in &sections {
        let Value::Object(content) = content else {
            return Err(wrong(section.clone(), "expected an object of fields".to_owned()));
        };
        for (name, value) in content {
            let at = || format!("{section} / {name}");
            let parts = parts(value).map_err(|reason| wrong(at(), reason))?;
            if parts.is_empty() {
                continue;
            }
            if !slugs.insert((slug(section), slug(name))) {
                return Err(wrong(at(), "another field has the same name but for punctuation".to_owned()));
            }
            fields.push(Field { section: collapse(section), name: collapse(name), parts });
        }
    }
    Ok(Entity { code: code.to_owned(), region: region.to_owned(), name: String::new(), fields })
}

/// The parts of a field, or what is wrong with it.
fn parts(value: &Value) -> Result<Vec<(String, String)>, String> {
    let Value::Object(value) = value else {
        return Err("expected an object with a text or subfields".to_owned());
    };
    let mut parts: Vec<(String, String)> = Vec::new();
    for (key, content) in value {
        let (name, html) = match content {
            Value::String(text) if key == "text" => (String::new(), text),
            Value::String(text) => (collapse(key), text),
            Value::Object(inner) => match (inner.get("text"), inner.len()) {
                (Some(Value::String(text)), 1) => (collapse(key), text),
                _ => return Err(format!("the subfield {key:?} is not an object with nothing but a text")),
            },
            _ => return Err(format!("the subfield {key:?} is neither a text nor an object with a text")),
        };
        let text = without_repeated_name(&name, &plain_text(html));
        if !text.is_empty() {
            parts.push((name, text));
        }
    }
    Ok(parts)
}

/// Many texts start by repeating the subfield's name or the last part of it: `arable land: 10%` under
/// `agricultural land: arable land`, `note: …` under `note`.
fn without_repeated_name(name: &str, text: &str) -> String {
    let last = name.rsplit(": ").next().unwrap_or(name);
    for repeated in [name, last] {
        if let (false, Some(head)) = (repeated.is_empty(), text.get(..repeated.len()))
            && head.eq_ignore_ascii_case(repeated)
            && let Some(rest) = text[repeated.len()..].trim_start().strip_prefix(':')
        {
            return rest.trim_start().to_owned();
        }
    }
    text.to_owned()
}

/// Gives every entity its name and makes the names unique.
fn name_entities(entities: &mut [Entity]) {
    let mut in_region: BTreeMap<String, usize> = BTreeMap::new();
    for entity in entities.iter() {
        *in_region.entry(entity.region.clone()).or_default() += 1;
    }
    for entity in entities.iter_mut() {
        entity.name = official_name(entity).unwrap_or_else(|| {
            // The file of the whole world has no name of its own, but a region to itself.
            if in_region.get(&entity.region) == Some(&1) {
                capitalised(&entity.region.replace('-', " "))
            } else {
                entity.code.to_uppercase()
            }
        });
    }
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for entity in entities.iter() {
        *uses.entry(entity.name.clone()).or_default() += 1;
    }
    for entity in entities.iter_mut() {
        if uses.get(&entity.name).is_some_and(|&count| count > 1) {
            entity.name = format!("{} ({})", entity.name, entity.code);
        }
    }
}

fn official_name(entity: &Entity) -> Option<String> {
    let forms = [
        ("Country name", "conventional short form"),
        ("Country name", "conventional long form"),
        ("Union name", "conventional short form"),
        ("Union name", "conventional long form"),
    ];
    forms.iter().find_map(|(field, form)| {
        let name = entity.field("Government", field)?.part(form)?.lines().next()?;
        let name = without_remark(name);
        (!name.is_empty() && !name.eq_ignore_ascii_case("none")).then(|| name.to_owned())
    })
}

/// Drops a closing remark in parentheses, `Svalbard (sometimes referred to as …)`, but keeps what belongs to a
/// name, `Congo (Brazzaville)`.
fn without_remark(name: &str) -> &str {
    if let Some(open) = name.rfind(" (")
        && let Some(remark) = name[open + 2..].strip_suffix(')')
        && (remark.split_whitespace().count() > 3 || remark.starts_with("abbreviated"))
    {
        return name[..open].trim_end();
    }
    name.trim()
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn collapse(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Lower-case ASCII letters and digits, everything else a single hyphen.
fn slug(name: &str) -> String {
    let mut slug = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.truncate(slug.trim_end_matches('-').len());
    slug
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn write(dir: &Path, file: &str, content: &Value) {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content.to_string()).unwrap();
    }

    #[test]
    fn both_shapes_of_field_become_clean_parts() {
        let dir = tempfile::tempdir().unwrap();
        write(
            dir.path(),
            "europe/sz.json",
            &json!({
                "Geography": {
                    "Area": {"total ": {"text": "41,277 sq km"}, "land": {"text": "39,997 sq km"}},
                    "Land use": {"agricultural land: arable land": {"text": "arable land: 10% (2023 est.)"}},
                    "Location": {"text": "Central Europe&nbsp;<br>", "note": "<strong>note:</strong> x"},
                    "Nothing": {}
                },
                "Government": {"Country name": {
                    "conventional long form": {"text": "Swiss Confederation"},
                    "conventional short form": {"text": "Switzerland"}}}
            }),
        );
        let entities = read_entities(dir.path()).unwrap();
        let entity = &entities[0];
        assert_eq!((entity.code.as_str(), entity.region.as_str()), ("sz", "europe"));
        assert_eq!(entity.name, "Switzerland");
        assert_eq!(entity.fields.len(), 4);
        assert_eq!(entity.field("Geography", "Area").unwrap().part("total"), Some("41,277 sq km"));
        let use_ = entity.field("Geography", "Land use").unwrap();
        assert_eq!(use_.part("agricultural land: arable land"), Some("10% (2023 est.)"));
        let documents: Vec<Document> = entity.documents().collect();
        assert_eq!(documents[0].doc_id, "factbook/sz/geography/area");
        assert_eq!(documents[0].url, "factbook://sz/geography/area");
        assert_eq!(documents[0].title, "Switzerland – Area");
        assert_eq!(documents[0].text, "total: 41,277 sq km\nland: 39,997 sq km");
        assert_eq!(documents[0].extra["section"], "Geography");
        assert_eq!(documents[2].text, "Central Europe\nnote: x");
    }

    #[test]
    fn names_fall_back_and_stay_unique() {
        let dir = tempfile::tempdir().unwrap();
        let named = |short: &str, long: &str| {
            json!({"Government": {"Country name": {
                "conventional long form": {"text": long}, "conventional short form": {"text": short}}}})
        };
        write(dir.path(), "africa/ct.json", &named("none", "Central African Republic"));
        write(dir.path(), "africa/cf.json", &named("Congo (Brazzaville)", "none"));
        write(
            dir.path(),
            "europe/sv.json",
            &named("Svalbard (sometimes referred to as Spitsbergen)", "none"),
        );
        write(dir.path(), "europe/ee.json", &json!({"Introduction": {"A": {"text": "b"}}}));
        write(dir.path(), "asia/aa.json", &named("Twin", "none"));
        write(dir.path(), "asia/bb.json", &named("Twin", "none"));
        write(dir.path(), "world/xx.json", &json!({"Introduction": {"A": {"text": "b"}}}));
        let names: Vec<String> = read_entities(dir.path()).unwrap().into_iter().map(|e| e.name).collect();
        let expected = [
            "Congo (Brazzaville)",
            "Central African Republic",
            "Twin (aa)",
            "Twin (bb)",
            "EE",
            "Svalbard",
            "World",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn an_unknown_shape_is_an_error_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "europe/sz.json", &json!({"Geography": {"Area": {"total": {"number": 3}}}}));
        let error = read_entities(dir.path()).unwrap_err().to_string();
        assert!(error.contains("sz.json: Geography / Area: the subfield \"total\""), "{error}");
        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(read_entities(empty.path()), Err(CorpusError::EmptyFolder { .. })));
    }
}

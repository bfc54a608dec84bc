//! Every problem of a configuration at once, found by walking its JSON schema.
//!
//! serde stops at the first unknown key; a user who mistyped three wants to hear of three.

use regex::Regex;
use serde_json::Value;

/// How far a key may be from a known one to be suggested, as a Jaro–Winkler similarity.
const SIMILAR: f64 = 0.75;

/// What is wrong with one key.
#[derive(Debug)]
pub struct Problem {
    /// The keys from the root on, joined by dots.
    pub path: String,
    /// The whole sentence, which names the path.
    pub text: String,
}

impl Problem {
    fn of_value(path: &str, expected: &str, value: &Value) -> Self {
        // What stands where the name of a variable belongs may be the key itself.
        let found = match value {
            _ if path.ends_with("api_key_env") => "something else".into(),
            // TOML has no null: this is what JSON makes of them.
            Value::Null => "nan or an infinite number".into(),
            value => value.to_string(),
        };
        Self { path: path.to_owned(), text: format!("{path}: expected {expected}, found {found}") }
    }
}

/// Unknown keys, missing keys, and values of another type, out of range or in another form, each with its path.
pub fn against_schema(value: &Value, schema: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    walk(value, schema, schema, "", &mut problems);
    problems
}

fn walk(value: &Value, schema: &Value, root: &Value, path: &str, problems: &mut Vec<Problem>) {
    let schema = resolve(schema, root);
    // `Option<T>` is any of T and null; TOML has no null.
    if let Some(options) = schema["anyOf"].as_array() {
        let mut real = options.iter().filter(|option| option["type"] != "null");
        if let (Some(only), None) = (real.next(), real.next()) {
            walk(value, only, root, path, problems);
        }
        return;
    }
    if let Some(expected) = other_choices(value, schema) {
        problems.push(Problem::of_value(path, &expected, value));
        return;
    }
    match (value, expected_type(schema)) {
        (Value::Object(_), Some("object")) => walk_object(value, schema, root, path, problems),
        (Value::Array(items), Some("array")) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, &schema["items"], root, &format!("{path}[{index}]"), problems);
            }
        }
        (_, Some(expected)) if !has_type(value, expected) => {
            problems.push(Problem::of_value(path, &article(expected), value));
        }
        (_, Some(expected)) => {
            if let Some(expected) = other_range(value, schema, expected).or_else(|| other_form(value, schema))
            {
                problems.push(Problem::of_value(path, &expected, value));
            }
        }
        _ => {}
    }
}

fn walk_object(value: &Value, schema: &Value, root: &Value, path: &str, problems: &mut Vec<Problem>) {
    let none = serde_json::Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let Some(object) = value.as_object() else { return };
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    for (key, item) in object {
        match properties.get(key) {
            Some(property) => walk(item, property, root, &join(key), problems),
            None if schema["additionalProperties"] == false => {
                let nearest = properties
                    .keys()
                    .map(|known| (strsim::jaro_winkler(key, known), known))
                    .max_by(|a, b| a.0.total_cmp(&b.0))
                    .filter(|(similarity, _)| *similarity >= SIMILAR);
                let suggestion = if let Some((_, known)) = nearest {
                    format!("; did you mean {}?", join(known))
                } else {
                    let known: Vec<&str> = properties.keys().map(String::as_str).collect();
                    format!("; known are {}", known.join(", "))
                };
                let path = join(key);
                problems.push(Problem { text: format!("unknown key {path}{suggestion}"), path });
            }
            // A map, whose keys are free.
            None if schema["additionalProperties"].is_object() => {
                walk(item, &schema["additionalProperties"], root, &join(key), problems);
            }
            None => {}
        }
    }
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !object.contains_key(required) {
            let path = join(required);
            problems.push(Problem { text: format!("{path} is missing"), path });
        }
    }
}

/// The choices, if the value is none of them. A string enumeration is `enum`, or `oneOf` of `const` once its values are
/// documented.
fn other_choices(value: &Value, schema: &Value) -> Option<String> {
    let choices: Vec<&Value> = match (schema["enum"].as_array(), schema["oneOf"].as_array()) {
        (Some(values), _) => values.iter().collect(),
        (None, Some(options)) => {
            options.iter().map(|option| option.get("const")).collect::<Option<Vec<_>>>()?
        }
        (None, None) => return None,
    };
    if choices.contains(&value) {
        return None;
    }
    let names: Vec<String> = choices.iter().map(ToString::to_string).collect();
    Some(format!("one of {}", names.join(", ")))
}

/// The range of a number, if the value lies outside.
fn other_range(value: &Value, schema: &Value, expected: &str) -> Option<String> {
    let number = value.as_f64()?;
    // Whole numbers of 64 bits hold whatever TOML can write.
    let widest = match schema["format"].as_str().unwrap_or_default() {
        "uint8" => Some(f64::from(u8::MAX)),
        "uint16" => Some(f64::from(u16::MAX)),
        "uint32" => Some(f64::from(u32::MAX)),
        _ => None,
    };
    let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64().or(widest));
    if least.is_none_or(|least| number >= least) && most.is_none_or(|most| number <= most) {
        return None;
    }
    let range = match (least, most) {
        (Some(least), Some(most)) => format!("from {least} to {most}"),
        (Some(least), None) => format!("of at least {least}"),
        (None, most) => format!("of at most {}", most.unwrap_or(f64::INFINITY)),
    };
    Some(format!("{} {range}", article(expected)))
}

/// The pattern of a text, if the value does not follow it.
fn other_form(value: &Value, schema: &Value) -> Option<String> {
    let (text, pattern) = (value.as_str()?, schema["pattern"].as_str()?);
    // A pattern that is none is a defect of the schema, which a test would show; serde checks the value all the same.
    let follows = Regex::new(pattern).map_or(true, |pattern| pattern.is_match(text));
    if follows { None } else { Some(format!("a text of the form {pattern}")) }
}

/// `type` is one name, or a list of one and `null` for what may be left out.
fn expected_type(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::String(name) => Some(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
        _ => None,
    }
}

fn resolve<'schema>(schema: &'schema Value, root: &'schema Value) -> &'schema Value {
    let mut schema = schema;
    while let Some(reference) = schema["$ref"].as_str() {
        match reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

fn has_type(value: &Value, expected: &str) -> bool {
    match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    }
}

fn article(expected: &str) -> String {
    match expected {
        "object" => "a section".into(),
        "array" => "a list".into(),
        "integer" => "a whole number".into(),
        "boolean" => "true or false".into(),
        other => format!("a {other}"),
    }
}

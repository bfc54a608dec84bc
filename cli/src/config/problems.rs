//! Every problem of a configuration at once, found by walking its JSON schema.
//!
//! serde stops at the first unknown key; a user who mistyped three wants to hear of three.

use serde_json::Value;

/// How far a key may be from a known one to be suggested, as a Jaro–Winkler similarity.
const SIMILAR: f64 = 0.75;

/// Unknown keys, missing keys and values of another type, each with its path.
pub fn against_schema(value: &Value, schema: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    walk(value, schema, schema, "", &mut problems);
    problems
}

fn walk(value: &Value, schema: &Value, root: &Value, path: &str, problems: &mut Vec<String>) {
    let schema = resolve(schema, root);
    // `Option<T>` is any of T and null; TOML has no null.
    if let Some(options) = schema["anyOf"].as_array() {
        let mut real = options.iter().filter(|option| option["type"] != "null");
        if let (Some(only), None) = (real.next(), real.next()) {
            walk(value, only, root, path, problems);
        }
        return;
    }
    if let Some(problem) = choice_problem(value, schema) {
        problems.push(format!("{path}: {problem}"));
        return;
    }
    match (value, schema["type"].as_str()) {
        (Value::Object(_), Some("object")) => walk_object(value, schema, root, path, problems),
        (Value::Array(items), Some("array")) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, &schema["items"], root, &format!("{path}[{index}]"), problems);
            }
        }
        (_, Some(expected)) if !has_type(value, expected) => {
            problems.push(format!("{path}: expected {}, found {value}", article(expected)));
        }
        _ => {}
    }
}

fn walk_object(value: &Value, schema: &Value, root: &Value, path: &str, problems: &mut Vec<String>) {
    let (Some(object), Some(properties)) = (value.as_object(), schema["properties"].as_object()) else {
        return;
    };
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
                problems.push(format!("unknown key {}{suggestion}", join(key)));
            }
            None => {}
        }
    }
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !object.contains_key(required) {
            problems.push(format!("{} is missing", join(required)));
        }
    }
}

/// A string enumeration is `enum`, or `oneOf` of `const` once its values are documented.
fn choice_problem(value: &Value, schema: &Value) -> Option<String> {
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
    Some(format!("expected one of {}, found {value}", names.join(", ")))
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

//! The JSON schema of the configuration (draft 2020-12), and the check of a document against it. The check understands only the
//! keywords that the schema uses.

use serde_json::Value;

use super::tree::{Content, Located, Position};

/// The text of the schema.
pub const SCHEMA: &str = include_str!("schema.json");

/// Why a document does not meet the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub at: Position,
    /// The field, for example `images[0].from`; empty for the whole document.
    pub field: String,
    pub reason: String,
}

/// Similarity above which an unknown field is probably a typing error of a known one.
const SIMILAR: f64 = 0.75;

/// Checks a document. Returns the first fault.
pub(super) fn check(document: &Located) -> Result<(), Fault> {
    let schema: Value = serde_json::from_str(SCHEMA).map_err(|error| Fault {
        at: Position::default(),
        field: String::new(),
        reason: format!("the schema is damaged: {error}"),
    })?;
    check_value(document, &schema, "")
}

fn check_value(found: &Located, schema: &Value, field: &str) -> Result<(), Fault> {
    if let (Some(choices), Content::Scalar(_)) = (schema["anyOf"].as_array(), &found.content) {
        let choices: Vec<String> = choices.iter().map(expected).collect();
        return Err(fault(found, field, &choices.join(", or ")));
    }
    let schema = branch(found, schema);
    if let Some(choices) = schema["enum"].as_array() {
        let is_known = choices.contains(&found.value());
        return if is_known { Ok(()) } else { Err(fault(found, field, &one_of(choices))) };
    }
    let wanted = schema["type"].as_str();
    let is_right = match (wanted, &found.content) {
        (None, _) | (Some("array"), Content::List(_)) | (Some("object"), Content::Map(_)) => true,
        (Some("string"), Content::Scalar(value)) => value.is_string(),
        (Some("number"), Content::Scalar(value)) => value.is_number(),
        (Some("integer"), Content::Scalar(value)) => value.is_u64() || value.is_i64(),
        _ => false,
    };
    if !is_right {
        return Err(fault(found, field, &expected(schema)));
    }
    match &found.content {
        Content::Scalar(value) => check_scalar(found, value, schema, field),
        Content::List(items) => {
            if schema["minItems"] == 1 && items.is_empty() {
                return Err(fault(found, field, "a list with at least one item"));
            }
            let Some(schema) = schema.get("items") else { return Ok(()) };
            let mut items = items.iter().enumerate();
            items.try_for_each(|(index, item)| check_value(item, schema, &format!("{field}[{index}]")))
        }
        Content::Map(pairs) => check_map(found, pairs, schema, field),
    }
}

fn check_scalar(found: &Located, value: &Value, schema: &Value, field: &str) -> Result<(), Fault> {
    if schema["minLength"] == 1 && value == "" {
        return Err(fault(found, field, "a text that is not empty"));
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
        && number < least
    {
        return Err(fault(found, field, &format!("a number of at least {least}")));
    }
    Ok(())
}

fn check_map(
    found: &Located,
    pairs: &[(String, Position, Located)],
    schema: &Value,
    field: &str,
) -> Result<(), Fault> {
    let below = |key: &str| if field.is_empty() { key.to_string() } else { format!("{field}.{key}") };
    let known = schema["properties"].as_object();
    for (key, at, value) in pairs {
        match (known.and_then(|known| known.get(key)), &schema["additionalProperties"]) {
            (Some(schema), _) => check_value(value, schema, &below(key))?,
            (None, Value::Bool(false)) => {
                let names: Vec<&str> = known.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
                return Err(Fault { at: *at, field: below(key), reason: unknown(key, &names) });
            }
            (None, Value::Object(_)) => check_value(value, &schema["additionalProperties"], &below(key))?,
            (None, _) => {}
        }
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut missing = required.filter(|name| !pairs.iter().any(|(key, _, _)| key == name));
    match missing.next() {
        None => Ok(()),
        Some(name) => {
            let reason = format!("the field `{name}` is missing");
            Err(Fault { at: found.at, field: field.to_string(), reason })
        }
    }
}

/// Returns the alternative for this type of value; the schema itself if it has no alternatives.
fn branch<'s>(found: &Located, schema: &'s Value) -> &'s Value {
    let Some(choices) = schema["anyOf"].as_array() else { return schema };
    let is_of_type = |choice: &&Value| match &found.content {
        Content::List(_) => choice["type"] == "array",
        Content::Map(_) => choice["type"] == "object",
        Content::Scalar(_) => false,
    };
    choices.iter().find(is_of_type).or_else(|| choices.first()).unwrap_or(schema)
}

/// Returns the words for the type that a schema expects.
fn expected(schema: &Value) -> String {
    match schema["type"].as_str() {
        Some("array") => "a list".to_string(),
        Some("object") => match schema["properties"].as_object() {
            Some(known) => format!("a map with {}", names(known.keys().map(String::as_str))),
            None => "a map".to_string(),
        },
        Some("string") => "a text".to_string(),
        Some("integer") => "a whole number".to_string(),
        Some("number") => "a number".to_string(),
        _ => "another value".to_string(),
    }
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn one_of(choices: &[Value]) -> String {
    format!("one of {}", names(choices.iter().filter_map(Value::as_str)))
}

fn fault(found: &Located, field: &str, expected: &str) -> Fault {
    let it = match &found.content {
        Content::List(_) => "a list".to_string(),
        Content::Map(_) => "a map".to_string(),
        Content::Scalar(Value::Null) => "no value".to_string(),
        Content::Scalar(Value::String(text)) if text.is_empty() => "an empty text".to_string(),
        Content::Scalar(Value::String(text)) => format!("the text `{text}`"),
        Content::Scalar(value) => format!("`{value}`"),
    };
    Fault { at: found.at, field: field.to_string(), reason: format!("expected {expected}, found {it}") }
}

fn unknown(key: &str, known: &[&str]) -> String {
    let near = known.iter().map(|name| (strsim::jaro_winkler(key, name), name));
    let near = near.filter(|(likeness, _)| *likeness > SIMILAR);
    match near.max_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((_, name)) => format!("the field `{key}` is unknown; did you mean `{name}`?"),
        None => format!("the field `{key}` is unknown; known: {}", names(known.iter().copied())),
    }
}

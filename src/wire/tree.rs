//! Shows any stored object as a readable tree: known fields have names, other fields have numbers.
//!
//! Secret data is replaced with its size before the tree is returned. All annotations of Secrets are replaced, too, because tools
//! keep copies of Secret data in annotations.

use serde_json::{Map, Value as Json};

use super::envelope::Envelope;
use super::protobuf::{self, Content};
use super::schema::{self, FieldType, Fields};
use super::{WireError, cbor, json};

/// Maximum nesting depth to parse. Deeper values are shown as bytes. Kubernetes objects have about a dozen levels.
const DEEPEST: usize = 40;

/// Returns the object as a JSON value, with members in stored order.
///
/// A kind without a message in `proto/` still has a named `metadata`. Its other fields have numbers as names. Their types are
/// guessed, so they are shown as text, message or bytes.
pub fn of(value: &[u8]) -> Result<Json, WireError> {
    match Envelope::of(value)? {
        Envelope::Protobuf { type_meta, raw } => {
            let fields = schema::of(&type_meta);
            let mut tree = Map::new();
            tree.insert("apiVersion".into(), type_meta.api_version.as_ref().into());
            tree.insert("kind".into(), type_meta.kind.as_ref().into());
            if let Json::Object(members) = message(raw, Some(fields), DEEPEST)? {
                tree.extend(members);
            }
            let mut tree = Json::Object(tree);
            redact(&mut tree);
            Ok(tree)
        }
        Envelope::Json(text) => of_json(text),
        Envelope::Cbor => of_json(&cbor::to_json(value)?),
        Envelope::Encrypted { provider, key } => Err(WireError::Encrypted { provider, key }),
    }
}

fn of_json(text: &str) -> Result<Json, WireError> {
    let mut tree = serde_json::from_str(text).map_err(|e| WireError::Json { reason: e.to_string() })?;
    redact(&mut tree);
    Ok(tree)
}

fn message(bytes: &[u8], fields: Option<Fields>, depth: usize) -> Result<Json, WireError> {
    let Some(depth) = depth.checked_sub(1) else { return Ok(json::encode_base64(bytes).into()) };
    let mut tree = Map::new();
    for field in protobuf::fields(bytes) {
        let field = field?;
        let known = fields.and_then(|fields| fields.iter().find(|(number, ..)| *number == field.number));
        let (name, shown) = match known {
            Some((_, name, kind)) => ((*name).to_string(), known_field(&field.content, *kind, depth)?),
            None => (field.number.to_string(), guess(&field.content, depth)),
        };
        put(&mut tree, name, shown, known.map(|(.., kind)| *kind));
    }
    Ok(Json::Object(tree))
}

/// Adds a field to the tree. A map gets one more entry, and a repeated name becomes a list.
fn put(tree: &mut Map<String, Json>, name: String, shown: Json, kind: Option<FieldType>) {
    match (tree.get_mut(&name), shown) {
        (Some(Json::Object(map)), Json::Object(entry))
            if matches!(kind, Some(FieldType::MapOfText | FieldType::MapOfBytes)) =>
        {
            map.extend(entry);
        }
        (Some(Json::Array(list)), shown) => list.push(shown),
        (None, shown) if matches!(kind, Some(FieldType::List(_))) => {
            tree.insert(name, Json::Array(vec![shown]));
        }
        (Some(first), shown) => *first = Json::Array(vec![first.take(), shown]),
        (None, shown) => drop(tree.insert(name, shown)),
    }
}

fn known_field(content: &Content<'_>, kind: FieldType, depth: usize) -> Result<Json, WireError> {
    Ok(match (content, kind) {
        (content, FieldType::List(item)) => known_field(content, *item, depth)?,
        (Content::Varint(value), FieldType::Bool) => Json::Bool(*value != 0),
        (Content::Varint(value), FieldType::Int) => value.cast_signed().into(),
        (Content::Bytes(bytes), FieldType::Text) => String::from_utf8_lossy(bytes).into_owned().into(),
        (Content::Bytes(bytes), FieldType::Bytes) => json::encode_base64(bytes).into(),
        (Content::Bytes(bytes), FieldType::Message("Time")) => time(bytes)?,
        (Content::Bytes(bytes), FieldType::Message(name)) => message(bytes, schema::message(name), depth)?,
        (Content::Bytes(bytes), FieldType::MapOfText | FieldType::MapOfBytes) => entry(bytes, kind)?,
        _ => guess(content, depth),
    })
}

fn entry(bytes: &[u8], kind: FieldType) -> Result<Json, WireError> {
    let (mut key, mut value) = (String::new(), Json::String(String::new()));
    for field in protobuf::fields(bytes) {
        let field = field?;
        let content = field.bytes().unwrap_or_default();
        match (field.number, kind) {
            (1, _) => key = String::from_utf8_lossy(content).into_owned(),
            (2, FieldType::MapOfBytes) => value = json::encode_base64(content).into(),
            (2, _) => value = String::from_utf8_lossy(content).into_owned().into(),
            _ => {}
        }
    }
    Ok(Json::Object(Map::from_iter([(key, value)])))
}

fn time(bytes: &[u8]) -> Result<Json, WireError> {
    for field in protobuf::fields(bytes) {
        let field = field?;
        if let (1, Content::Varint(seconds)) = (field.number, field.content) {
            return Ok(json::format_time(seconds.cast_signed()).into());
        }
    }
    Ok(Json::Null)
}

/// Shows a field of unknown type: as text if it is printable, as a message if it can be parsed as a message, otherwise as base64.
fn guess(content: &Content<'_>, depth: usize) -> Json {
    match content {
        Content::Varint(value) => value.cast_signed().into(),
        Content::Other(bytes) => json::encode_base64(bytes).into(),
        Content::Bytes(bytes) => {
            let text = std::str::from_utf8(bytes).ok();
            if let Some(text) = text.filter(|t| t.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'))
            {
                return text.into();
            }
            message(bytes, None, depth).unwrap_or_else(|_| json::encode_base64(bytes).into())
        }
    }
}

/// Removes the contents of a Secret. Other objects stay as they are.
fn redact(tree: &mut Json) {
    if tree.get("kind").and_then(Json::as_str) != Some("Secret") {
        return;
    }
    for part in ["/data", "/stringData", "/metadata", "/metadata/annotations"] {
        match tree.pointer_mut(part) {
            Some(Json::Object(_)) if part == "/metadata" => {}
            Some(Json::Object(entries)) => {
                for (_, value) in entries.iter_mut() {
                    let size = value.as_str().map_or(0, |text| match part {
                        "/data" => json::decode_base64(text).map_or(0, |bytes| bytes.len()),
                        _ => text.len(),
                    });
                    *value = format!("(redacted, {size} bytes)").into();
                }
            }
            // The part is not an object, for example because a field occurs twice. No API server writes such a value.
            Some(other) => *other = "(redacted)".into(),
            None => {}
        }
    }
    // Fields of a Secret that `proto/` does not define could contain data in a later version.
    if let Some(members) = tree.as_object_mut() {
        members.retain(|name, _| name.parse::<u32>().is_err());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::envelope::{TypeMeta, wrap};
    use crate::wire::protobuf::field;

    #[test]
    fn secret_data_never_enters_the_tree() {
        let entry = [field(1, "password"), field(2, "hunter2")].concat();
        let raw = [field(2, entry), field(9, "hunter2")].concat();
        let meta = TypeMeta { api_version: "v1".into(), kind: "Secret".into() };
        let shown = of(&wrap(&meta, &raw)).unwrap().to_string();
        assert!(shown.contains("(redacted, 7 bytes)") && !shown.contains("hunter2"), "{shown}");
        assert!(!shown.contains(&json::encode_base64(b"hunter2")), "{shown}");
        let text = concat!(
            r#"{"kind":"Secret","data":{"a":"aHVudGVyMg=="},"stringData":{"b":"hunter2"},"#,
            r#""metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"hunter2","#,
            r#""kapp.k14s.io/original":"hunter2"}}}"#
        );
        let shown = of(text.as_bytes()).unwrap().to_string();
        assert!(!shown.contains("hunter2") && !shown.contains("aHVudGVyMg"), "{shown}");
        assert!(shown.contains("kapp.k14s.io/original"), "{shown}");
        let entry = [field(1, "copy"), field(2, "hunter2")].concat();
        let raw = field(1, field(12, entry)).repeat(2);
        let shown = of(&wrap(&meta, &raw)).unwrap().to_string();
        assert!(shown.contains("(redacted)") && !shown.contains("hunter2"), "{shown}");
    }

    /// Tests messages that are nested in a known field, and in an unknown field. The nesting has as many levels as fit into the
    /// largest value that etcd accepts. Each level needs a tag and a length.
    #[test]
    fn deepest_possible_nesting_is_shown() {
        for number in [1u8, 2, 7] {
            let (mut headers, mut length) = (Vec::new(), 1usize);
            while length < 1_500_000 {
                let mut header = vec![number << 3 | 2];
                let mut rest = length;
                while rest >= 0x80 {
                    header.push(0x80 | u8::try_from(rest & 0x7f).unwrap());
                    rest >>= 7;
                }
                header.push(u8::try_from(rest).unwrap());
                length += header.len();
                headers.push(header);
            }
            headers.reverse();
            let raw = [headers.concat(), vec![0]].concat();
            for kind in ["Role", "Service", "CustomThing"] {
                let meta = TypeMeta { api_version: "v1".into(), kind: kind.into() };
                let shown = of(&wrap(&meta, &raw)).unwrap();
                assert!(shown.to_string().len() > 100, "{kind}");
            }
        }
    }
}

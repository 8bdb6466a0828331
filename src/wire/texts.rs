//! Visits every text in a stored object of any kind, with the path of the text. Callers use it to search all fields.
//!
//! The path contains the name of each field that `proto/` defines, and the number of any other field. The type of an unknown
//! field is ambiguous. If its content can be a message, the content is visited as a message. If it can be a text, it is also
//! visited as a text. Any other content is visited as bytes.

use std::fmt;

use serde_json::Value as Json;

use super::envelope::Envelope;
use super::objects::{self, Namespace, ObjectMeta};
use super::protobuf::{self, Content, RawField};
use super::schema::{self, FieldType, Fields};
use super::{TypeMeta, WireError, cbor, json};

/// Maximum nesting depth to parse. Deeper values are visited as bytes. Kubernetes objects have about a dozen levels.
const DEEPEST: usize = 40;

/// Path from an object's root to a text. It is a linked list on the stack, and is formatted only on demand.
#[derive(Debug, Clone, Copy)]
pub struct FieldPath<'a> {
    before: Option<&'a FieldPath<'a>>,
    step: Step<'a>,
}

/// One step of a path.
#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Root,
    /// A field with a known name.
    Name(&'a str),
    /// A field without a known name, identified by its number.
    Number(u32),
    /// An item of a list, identified by its index.
    Index(usize),
    /// An entry of a map, or an item of a list that has a name.
    Entry(&'a str),
}

impl<'a> FieldPath<'a> {
    /// Path of the object itself.
    pub const ROOT: FieldPath<'static> = FieldPath { before: None, step: Step::Root };

    fn then(&'a self, step: Step<'a>) -> FieldPath<'a> {
        FieldPath { before: Some(self), step }
    }
}

/// Format: `spec.template.spec.containers[app].env[NO_PROXY].value`. An unknown field is written as `/` and its number.
impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(before) = self.before {
            before.fmt(f)?;
        }
        let is_first = self.before.is_none_or(|before| matches!(before.step, Step::Root));
        match self.step {
            Step::Root => Ok(()),
            Step::Name(name) if is_first => f.write_str(name),
            Step::Name(name) => write!(f, ".{name}"),
            Step::Number(number) => write!(f, "/{number}"),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Entry(key) => write!(f, "[{key}]"),
        }
    }
}

/// The visitor. It gets the path and the bytes of each text. The bytes are not always UTF-8.
pub type Seen<'v> = dyn FnMut(&FieldPath<'_>, &[u8]) + 'v;

/// The parts that every object has: version, kind, and metadata.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Head {
    /// API version, for example `apps/v1`.
    pub api_version: String,
    /// Kind, for example `DaemonSet`.
    pub kind: String,
    /// Name, namespace, and labels.
    pub metadata: ObjectMeta,
}

/// Returns the head of an object. Fails if the object cannot be read.
pub fn head(value: &[u8]) -> Result<Head, WireError> {
    let TypeMeta { api_version, kind } = objects::type_of(value)?;
    let (api_version, kind) = (api_version.into_owned(), kind.into_owned());
    // The value is read as a Namespace, only for its metadata. Every kind has metadata in the same field.
    let read: Namespace = objects::decode_any(value)?;
    Ok(Head { api_version, kind, metadata: read.metadata.unwrap_or_default() })
}

/// Visits every text in an object, including keys of maps and names of JSON members. Base64 values in the JSON of a Secret or a
/// ConfigMap are decoded first.
///
/// Fails if the value is encrypted or not an object. If the object is broken, all its bytes are visited before the error is
/// returned.
pub fn each(value: &[u8], seen: &mut Seen<'_>) -> Result<(), WireError> {
    match Envelope::of(value)? {
        Envelope::Protobuf { type_meta, raw } => match broken(raw) {
            None => {
                message(raw, Some(schema::of(&type_meta)), &FieldPath::ROOT, DEEPEST, seen);
                Ok(())
            }
            Some(error) => {
                seen(&FieldPath::ROOT, raw);
                Err(error)
            }
        },
        Envelope::Json(text) => of_json(text, seen),
        Envelope::Cbor => match cbor::to_json(value) {
            Ok(text) => of_json(&text, seen),
            Err(error) => {
                seen(&FieldPath::ROOT, value);
                Err(error)
            }
        },
        Envelope::Encrypted { provider, key } => Err(WireError::Encrypted { provider, key }),
    }
}

fn of_json(text: &str, seen: &mut Seen<'_>) -> Result<(), WireError> {
    match serde_json::from_str(text) {
        Ok(tree) => {
            object(&tree, seen);
            Ok(())
        }
        Err(error) => {
            seen(&FieldPath::ROOT, text.as_bytes());
            Err(WireError::Json { reason: error.to_string() })
        }
    }
}

fn broken(bytes: &[u8]) -> Option<WireError> {
    protobuf::fields(bytes).find_map(Result::err).map(WireError::from)
}

fn message(bytes: &[u8], fields: Option<Fields>, way: &FieldPath<'_>, depth: usize, seen: &mut Seen<'_>) {
    let (mut last, mut index): (u32, usize) = (0, 0);
    for field in protobuf::fields(bytes).flatten() {
        index = if field.number == last { index.saturating_add(1) } else { 0 };
        last = field.number;
        let known = fields.and_then(|fields| fields.iter().find(|(number, ..)| *number == field.number));
        let Content::Bytes(content) = field.content else { continue };
        let Some((_, name, kind)) = known else {
            let way = way.then(Step::Number(field.number));
            let way = if index == 0 { way } else { way.then(Step::Index(index)) };
            guess(content, &way, depth, seen);
            continue;
        };
        let way = way.then(Step::Name(name));
        match kind {
            FieldType::List(item) => {
                let step = name_of(content, item).map_or(Step::Index(index), Step::Entry);
                known_field(content, item, &way.then(step), depth, seen);
            }
            kind => known_field(content, kind, &way, depth, seen),
        }
    }
}

/// Returns the name of a list item, if the items have names.
fn name_of<'a>(content: &'a [u8], item: &FieldType) -> Option<&'a str> {
    let FieldType::Message(message) = item else { return None };
    let (number, ..) = schema::message(message)?.iter().find(|(_, name, _)| *name == "name")?;
    let mut fields = protobuf::fields(content).flatten();
    fields.find(|field| field.number == *number)?.text().ok().filter(|name| !name.is_empty())
}

fn known_field(content: &[u8], kind: &FieldType, way: &FieldPath<'_>, depth: usize, seen: &mut Seen<'_>) {
    match kind {
        FieldType::Message(name) if depth > 0 && broken(content).is_none() => {
            message(content, schema::message(name), way, depth.saturating_sub(1), seen);
        }
        FieldType::MapOfText | FieldType::MapOfBytes if broken(content).is_none() => {
            let mut fields = protobuf::fields(content).flatten();
            let key = fields.find(|field| field.number == 1).and_then(|field: RawField<'_>| field.bytes());
            let key = key.unwrap_or_default();
            let shown = String::from_utf8_lossy(key);
            let way = way.then(Step::Entry(&shown));
            seen(&way, key);
            for field in protobuf::fields(content).flatten() {
                match (field.number, field.bytes()) {
                    (1, _) | (_, None) => {}
                    (2, Some(value)) => seen(&way, value),
                    // A map entry has no other fields, unless the value is broken.
                    (number, Some(other)) => guess(other, &way.then(Step::Number(number)), depth, seen),
                }
            }
        }
        _ => seen(way, content),
    }
}

fn guess(content: &[u8], way: &FieldPath<'_>, depth: usize, seen: &mut Seen<'_>) {
    let is_message = depth > 0 && !content.is_empty() && broken(content).is_none();
    if is_message {
        message(content, None, way, depth.saturating_sub(1), seen);
    }
    // A text can also be a valid message by chance.
    let is_control = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t' | '\r');
    let is_text = std::str::from_utf8(content).is_ok_and(|text| !text.contains(is_control));
    if is_text || !is_message {
        seen(way, content);
    }
}

/// Visits the texts of an object. In a Secret or a ConfigMap, decodes the field that contains base64.
fn object(tree: &Json, seen: &mut Seen<'_>) {
    let kind = tree.get("kind").and_then(Json::as_str).unwrap_or_default();
    let bytes = match kind {
        "Secret" => "data",
        "ConfigMap" => "binaryData",
        _ => return texts(tree, &FieldPath::ROOT, seen),
    };
    for (name, value) in tree.as_object().into_iter().flatten() {
        let way = FieldPath::ROOT.then(Step::Name(name));
        if name != bytes {
            texts(value, &way, seen);
            continue;
        }
        for (key, value) in value.as_object().into_iter().flatten() {
            let way = way.then(Step::Entry(key));
            seen(&way, key.as_bytes());
            let text = value.as_str().unwrap_or_default();
            match json::decode_base64(text) {
                Ok(bytes) => seen(&way, &bytes),
                Err(_) => seen(&way, text.as_bytes()),
            }
        }
    }
}

/// Visits every text in a JSON value, including names of members. `way` is the path of the value.
pub fn texts(tree: &Json, way: &FieldPath<'_>, seen: &mut Seen<'_>) {
    match tree {
        Json::String(text) => seen(way, text.as_bytes()),
        Json::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let name = item.get("name").and_then(Json::as_str).filter(|name| !name.is_empty());
                texts(item, &way.then(name.map_or(Step::Index(index), Step::Entry)), seen);
            }
        }
        Json::Object(members) => {
            let is_map = matches!(way.step, Step::Name("annotations" | "data" | "labels"));
            for (name, value) in members {
                let is_key = is_map || !name.bytes().all(|byte| byte.is_ascii_alphanumeric());
                let way = way.then(if is_key { Step::Entry(name) } else { Step::Name(name) });
                seen(&way, name.as_bytes());
                texts(value, &way, seen);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::envelope::wrap;
    use crate::wire::protobuf::field;

    fn told(value: &[u8]) -> Vec<(String, String)> {
        let mut all = Vec::new();
        let mut seen = |way: &FieldPath<'_>, text: &[u8]| {
            all.push((way.to_string(), String::from_utf8_lossy(text).into_owned()));
        };
        each(value, &mut seen).unwrap();
        all
    }

    fn of_kind(kind: &str, raw: &[u8]) -> Vec<u8> {
        wrap(&TypeMeta { api_version: "v1".into(), kind: kind.to_string().into() }, raw)
    }

    #[test]
    fn paths_have_names_of_known_fields_and_numbers_of_others() {
        let env = [field(1, b"NO_PROXY"), field(2, b"10.96.0.0/16")].concat();
        let container = [field(1, b"app"), field(7, &env), field(99, field(3, b"there"))].concat();
        let value = of_kind("Pod", &field(2, field(2, &container)));
        let told = told(&value);
        let has = |way: &str, text: &str| told.contains(&(way.to_string(), text.to_string()));
        assert!(has("spec.containers[app].env[NO_PROXY].value", "10.96.0.0/16"), "{told:?}");
        assert!(has("spec.containers[app]/99/3", "there"), "{told:?}");
    }

    #[test]
    fn map_entries_have_their_keys_in_the_path() {
        let entry = [field(1, b"a.b/c"), field(2, b"text")].concat();
        let raw = [field(1, field(12, &entry)), field(2, &entry)].concat();
        let told = told(&of_kind("Secret", &raw));
        assert!(told.contains(&("metadata.annotations[a.b/c]".into(), "text".into())), "{told:?}");
        assert!(told.contains(&("data[a.b/c]".into(), "text".into())), "{told:?}");
    }

    #[test]
    fn unknown_kinds_have_numbers_and_repeated_fields_an_index() {
        let raw = [field(2, b"one"), field(2, b"two"), field(4, field(1, field(7, b"deep")))].concat();
        let told = told(&of_kind("Whatever", &raw));
        assert!(told.contains(&("/2[1]".into(), "two".into())), "{told:?}");
        assert!(told.contains(&("/4/1/7".into(), "deep".into())), "{told:?}");
    }

    #[test]
    fn bytes_in_json_are_decoded_and_texts_are_not() {
        let text = r#"{"kind":"Secret","data":{"k":"MTAuOTYuMC4x"},"items":[{"name":"n","v":"x"}]}"#;
        let told = told(text.as_bytes());
        assert!(told.contains(&("data[k]".into(), "10.96.0.1".into())), "{told:?}");
        assert!(told.contains(&("items[n].v".into(), "x".into())), "{told:?}");
    }

    #[test]
    fn unreadable_values_are_an_error_after_all_bytes_are_visited() {
        let mut count = 0;
        let mut seen = |_: &FieldPath<'_>, _: &[u8]| count += 1;
        assert!(each(b"k8s:enc:aescbc:v1:key:xyz", &mut seen).is_err());
        assert!(each(b"\xd9\xd9\xf7\xa1", &mut seen).is_err());
        assert!(each(&of_kind("Pod", b"\x0a\x7f10.96.0.1"), &mut seen).is_err());
        assert_eq!(count, 2);
        let mut texts = Vec::new();
        let cbor = b"\xd9\xd9\xf7\xa1\x41a\x4910.96.0.1";
        each(cbor, &mut |_, text| texts.push(text.to_vec())).unwrap();
        assert!(texts.contains(&b"10.96.0.1".to_vec()), "{texts:?}");
    }

    proptest! {
        /// The innermost field has a number that no message uses. With a known number, the content could be read as a message.
        #[test]
        fn every_text_is_visited_at_any_depth(text in "[a-z0-9.:/]{1,60}", numbers in proptest::collection::vec(1_u32..40, 0..12)) {
            let innermost = field(1000, text.as_bytes());
            let raw = numbers.iter().fold(innermost, |inner, number| field(*number, &inner));
            for kind in ["Whatever", "Pod", "Service", "ConfigMap", "EndpointSlice"] {
                let told = told(&of_kind(kind, &raw));
                prop_assert!(told.iter().any(|(_, found)| found.contains(&text)), "{kind} {told:?}");
            }
        }
    }
}

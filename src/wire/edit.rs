//! Changing single fields of a stored object, whatever its encoding, and nothing else.
//!
//! A [`FieldEdit`] says what the field holds before and after. It is applied to the object as it is *now*:
//! other fields may have changed since the edit was planned and survive, but if this field does not hold
//! what the edit expects, the edit is refused. Its inverse is the same edit the other way round.

use serde::{Deserialize, Serialize};

use super::WireError;
use super::bitmap::Bitmap;
use super::envelope::{self, Envelope};
use super::field::{Field, FieldKind, Segment, Value};
use super::json;
use super::protobuf::{self, Content};

/// One field's change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldEdit {
    /// Which field.
    pub field: Field,
    /// What becomes of it.
    pub change: FieldChange,
}

/// What becomes of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldChange {
    /// Holds `before` and shall hold `after`. Where it holds `after` already there is nothing to do, so
    /// that carrying out an edit twice is the same as once.
    Replace {
        /// What must be there.
        before: Value,
        /// What shall be there.
        after: Value,
    },
    /// Shall hold this, whatever is there: for values made at the moment of the change, such as a uid.
    Set(Value),
    /// Bits of a bitmap: the ones to set must be clear, the ones to clear must be set.
    Bits {
        /// Number of items in the bitmap's range.
        capacity: u64,
        /// Bits to set.
        set: Vec<u64>,
        /// Bits to clear.
        clear: Vec<u64>,
    },
}

/// Why an edit was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The object cannot be read.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The field does not hold what the edit expects.
    #[error("`{field}` is {found}, expected {expected}")]
    Differs {
        /// The field.
        field: String,
        /// What the edit expects.
        expected: String,
        /// What is there.
        found: String,
    },
}

impl FieldEdit {
    /// Returns an edit that replaces one value by another.
    pub fn replace(field: Field, before: Value, after: Value) -> Self {
        Self { field, change: FieldChange::Replace { before, after } }
    }

    /// Returns the edit that undoes this one. A value made at the moment of the change stays.
    #[must_use]
    pub fn inverse(&self) -> Option<Self> {
        let change = match &self.change {
            FieldChange::Replace { before, after } => {
                FieldChange::Replace { before: after.clone(), after: before.clone() }
            }
            FieldChange::Bits { capacity, set, clear } => {
                FieldChange::Bits { capacity: *capacity, set: clear.clone(), clear: set.clone() }
            }
            FieldChange::Set(_) => return None,
        };
        Some(Self { field: self.field.clone(), change })
    }
}

/// Something that must hold of an object for a change to be right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// A field holds this value.
    Holds(Field, Value),
    /// These bits of a bitmap are set.
    BitsSet {
        /// The field with the bitmap.
        field: Field,
        /// Number of items in the bitmap's range.
        capacity: u64,
        /// The bits.
        bits: Vec<u64>,
    },
}

/// Checks a condition on a stored object.
pub fn check(value: &[u8], condition: &Condition) -> Result<(), EditError> {
    match condition {
        Condition::Holds(field, expected) => {
            let found = read(value, field)?;
            if found == *expected { Ok(()) } else { Err(differs(field, expected, &found)) }
        }
        Condition::BitsSet { field, capacity, bits } => {
            let bitmap = read_bitmap(value, field, *capacity)?;
            match bits.iter().find(|bit| !bitmap.is_set(**bit)) {
                None => Ok(()),
                Some(bit) => Err(EditError::Differs {
                    field: format!("{field} bit {bit}"),
                    expected: "set".into(),
                    found: "clear".into(),
                }),
            }
        }
    }
}

fn differs(field: &Field, expected: &Value, found: &Value) -> EditError {
    EditError::Differs { field: field.to_string(), expected: expected.to_string(), found: found.to_string() }
}

fn read_bitmap(value: &[u8], field: &Field, capacity: u64) -> Result<Bitmap, EditError> {
    let data = match read(value, field)? {
        Value::Bytes(bytes) => bytes,
        _ => Vec::new(),
    };
    Ok(Bitmap::from_bytes(&data, capacity)?)
}

/// Returns the stored value with all the edits applied, every other byte as it was.
pub fn apply(value: &[u8], edits: &[FieldEdit]) -> Result<Vec<u8>, EditError> {
    let mut edited = value.to_vec();
    for edit in edits {
        edited = apply_one(&edited, edit)?;
    }
    Ok(edited)
}

fn apply_one(value: &[u8], edit: &FieldEdit) -> Result<Vec<u8>, EditError> {
    match &edit.change {
        FieldChange::Set(after) => Ok(write(value, &edit.field, after)?),
        FieldChange::Replace { before, after } => {
            let found = read(value, &edit.field)?;
            if found == *after {
                return Ok(value.to_vec());
            }
            if found != *before {
                return Err(differs(&edit.field, before, &found));
            }
            Ok(write(value, &edit.field, after)?)
        }
        FieldChange::Bits { capacity, set, clear } => {
            let mut bitmap = read_bitmap(value, &edit.field, *capacity)?;
            for (bits, allocated) in [(set, true), (clear, false)] {
                for bit in bits {
                    change_bit(&mut bitmap, &edit.field, *bit, allocated)?;
                }
            }
            Ok(write(value, &edit.field, &Value::Bytes(bitmap.to_bytes()))?)
        }
    }
}

fn change_bit(bitmap: &mut Bitmap, field: &Field, bit: u64, allocated: bool) -> Result<(), EditError> {
    let word = |set: bool| if set { "set" } else { "clear" };
    if bitmap.is_set(bit) == allocated || !bitmap.set(bit, allocated) {
        return Err(EditError::Differs {
            field: format!("{field} bit {bit}"),
            expected: word(!allocated).to_string(),
            found: word(allocated).to_string(),
        });
    }
    Ok(())
}

/// Returns what a field of a stored object holds.
pub fn read(value: &[u8], field: &Field) -> Result<Value, WireError> {
    match Envelope::of(value)? {
        Envelope::Protobuf { raw, .. } => read_protobuf(raw, field),
        Envelope::Json(text) => read_json(text, field),
        Envelope::Cbor => Err(WireError::Cbor),
        Envelope::Encrypted { provider, key } => Err(WireError::Encrypted { provider, key }),
    }
}

/// Returns the stored object with one field holding another value.
fn write(value: &[u8], field: &Field, new: &Value) -> Result<Vec<u8>, WireError> {
    match Envelope::of(value)? {
        Envelope::Protobuf { raw, .. } => {
            envelope::with_raw(value, &write_protobuf(raw, &field.path, field.kind, new)?)
        }
        Envelope::Json(text) => write_json(text, field, new).map(String::into_bytes),
        Envelope::Cbor => Err(WireError::Cbor),
        Envelope::Encrypted { provider, key } => Err(WireError::Encrypted { provider, key }),
    }
}

fn read_protobuf(message: &[u8], field: &Field) -> Result<Value, WireError> {
    let mut here = message;
    let mut path = field.path.as_slice();
    while let [Segment::Member(number, _), rest @ ..] = path {
        let occurrences = occurrences(here, *number)?;
        match rest {
            [] => return value_of(field.kind, &occurrences),
            [Segment::Entry(key)] => {
                // Where a key occurs twice the last one counts, as for every protobuf decoder.
                for entry in occurrences.into_iter().rev() {
                    if entry_part(entry, 1)? == key.as_bytes() {
                        return value_of(FieldKind::Text, &[entry_part(entry, 2)?]);
                    }
                }
                return Ok(Value::Absent);
            }
            _ => match occurrences.last() {
                Some(message) => here = message,
                None => return Ok(Value::Absent),
            },
        }
        path = rest;
    }
    Ok(Value::Absent)
}

fn occurrences(message: &[u8], number: u32) -> Result<Vec<&[u8]>, WireError> {
    let mut found = Vec::new();
    for field in protobuf::fields(message) {
        let field = field?;
        if field.number == number {
            found.extend(field.bytes());
        }
    }
    Ok(found)
}

fn entry_part(entry: &[u8], number: u32) -> Result<&[u8], WireError> {
    Ok(occurrences(entry, number)?.last().copied().unwrap_or_default())
}

fn value_of(kind: FieldKind, occurrences: &[&[u8]]) -> Result<Value, WireError> {
    let Some(last) = occurrences.last() else { return Ok(Value::Absent) };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(match kind {
        FieldKind::Text => Value::Text(text(last)),
        FieldKind::Texts => Value::Texts(occurrences.iter().map(|bytes| text(bytes)).collect()),
        FieldKind::Bytes => Value::Bytes(last.to_vec()),
        FieldKind::Time => {
            let mut seconds = 0;
            for field in protobuf::fields(last) {
                let field = field?;
                if let (1, Content::Varint(value)) = (field.number, field.content) {
                    seconds = value.cast_signed();
                }
            }
            Value::Time(seconds)
        }
    })
}

fn write_protobuf(
    message: &[u8],
    path: &[Segment],
    kind: FieldKind,
    new: &Value,
) -> Result<Vec<u8>, WireError> {
    match path {
        [Segment::Member(number, _)] => protobuf::replace(message, *number, &encode(*number, new)),
        [Segment::Member(number, _), Segment::Entry(key)] => write_entry(message, *number, key, new),
        [Segment::Member(number, _), rest @ ..] => {
            let inner = occurrences(message, *number)?;
            if inner.len() > 1 {
                return Err(WireError::Protobuf { offset: 0, reason: "a single message occurs twice" });
            }
            let Some(inner) = inner.first().copied().or_else(|| (*new != Value::Absent).then_some(&[][..]))
            else {
                return Ok(message.to_vec());
            };
            let inner = write_protobuf(inner, rest, kind, new)?;
            let mut field = Vec::with_capacity(inner.len().saturating_add(6));
            protobuf::put_bytes(&mut field, *number, &inner);
            protobuf::replace(message, *number, &field)
        }
        _ => Err(WireError::Protobuf { offset: 0, reason: "a path must begin with a field" }),
    }
}

/// Writes one entry of a map of texts; a new entry goes to its place in the order of keys, in which the API
/// server writes maps.
fn write_entry(message: &[u8], number: u32, key: &str, new: &Value) -> Result<Vec<u8>, WireError> {
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for entry in occurrences(message, number)? {
        entries.push((entry_part(entry, 1)?.to_vec(), entry.to_vec()));
    }
    let place = entries.iter().rposition(|(found, _)| found == key.as_bytes());
    match (place, new) {
        (Some(index), Value::Text(text)) => {
            let mut value = Vec::new();
            protobuf::put_bytes(&mut value, 2, text.as_bytes());
            if let Some((_, entry)) = entries.get_mut(index) {
                *entry = protobuf::replace(entry, 2, &value)?;
            }
        }
        (Some(_), _) => entries.retain(|(found, _)| found != key.as_bytes()),
        (None, Value::Text(text)) => {
            let mut entry = Vec::new();
            protobuf::put_bytes(&mut entry, 1, key.as_bytes());
            protobuf::put_bytes(&mut entry, 2, text.as_bytes());
            let index = entries.iter().position(|(found, _)| found.as_slice() > key.as_bytes());
            entries.insert(index.unwrap_or(entries.len()), (key.as_bytes().to_vec(), entry));
        }
        (None, _) => {}
    }
    let mut encoded = Vec::new();
    for (_, entry) in &entries {
        protobuf::put_bytes(&mut encoded, number, entry);
    }
    protobuf::replace(message, number, &encoded)
}

fn encode(number: u32, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Absent => {}
        Value::Text(text) => protobuf::put_bytes(&mut out, number, text.as_bytes()),
        Value::Texts(texts) => {
            for text in texts {
                protobuf::put_bytes(&mut out, number, text.as_bytes());
            }
        }
        Value::Bytes(bytes) => protobuf::put_bytes(&mut out, number, bytes),
        Value::Time(seconds) => {
            let mut time = Vec::new();
            protobuf::put_number(&mut time, 1, seconds.cast_unsigned());
            protobuf::put_number(&mut time, 2, 0);
            protobuf::put_bytes(&mut out, number, &time);
        }
    }
    out
}

fn json_path(field: &Field) -> Vec<&str> {
    field
        .path
        .iter()
        .map(|segment| match segment {
            Segment::Member(_, name) => name.as_ref(),
            Segment::Entry(key) => key.as_str(),
        })
        .collect()
}

fn read_json(text: &str, field: &Field) -> Result<Value, WireError> {
    let Some(found) = json::get(text, &json_path(field))? else { return Ok(Value::Absent) };
    let broken = |e: serde_json::Error| WireError::Json { reason: format!("`{field}`: {e}") };
    Ok(match field.kind {
        FieldKind::Text => Value::Text(serde_json::from_str(found).map_err(broken)?),
        FieldKind::Texts => Value::texts(serde_json::from_str(found).map_err(broken)?),
        FieldKind::Bytes => {
            let text: String = serde_json::from_str(found).map_err(broken)?;
            Value::Bytes(json::decode_base64(&text)?)
        }
        FieldKind::Time => {
            let text: String = serde_json::from_str(found).map_err(broken)?;
            json::parse_time(&text).map_or(Value::Absent, Value::Time)
        }
    })
}

fn write_json(text: &str, field: &Field, new: &Value) -> Result<String, WireError> {
    let value = match new {
        Value::Absent => None,
        Value::Text(text) => Some(json::quote(text)),
        Value::Texts(texts) => {
            Some(format!("[{}]", texts.iter().map(|t| json::quote(t)).collect::<Vec<_>>().join(",")))
        }
        Value::Bytes(bytes) => Some(json::quote(&json::encode_base64(bytes))),
        Value::Time(seconds) => Some(json::quote(&json::format_time(*seconds))),
    };
    json::set(text, &json_path(field), value.as_deref())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::TypeMeta;
    use crate::wire::protobuf::tests::any_message;

    fn fields_and_values() -> Vec<(Field, Value)> {
        vec![
            (Field::cluster_ip(), Value::Text("10.200.0.7".into())),
            (Field::cluster_ips(), Value::Texts(vec!["10.200.0.7".into(), "fd00::7".into()])),
            (Field::external_ips(), Value::Texts(vec!["10.96.0.7".into()])),
            (Field::external_traffic_policy(), Value::Text(String::new())),
            (Field::label("ipaddress.kubernetes.io/managed-by"), Value::Text("netsurgeon".into())),
            (Field::uid(), Value::Text("u".into())),
            (Field::creation_timestamp(), Value::Time(1_795_247_950)),
            (Field::parent_name(), Value::Text("web".into())),
            (Field::data(), Value::Bytes(vec![1, 2, 3])),
        ]
    }

    #[test]
    fn of_map_entries_that_occur_twice_the_last_counts_and_all_are_removed() {
        let mut labels = Vec::new();
        for value in ["old", "new"] {
            let mut entry = Vec::new();
            protobuf::put_bytes(&mut entry, 1, b"a");
            protobuf::put_bytes(&mut entry, 2, value.as_bytes());
            protobuf::put_bytes(&mut labels, 11, &entry);
        }
        let mut raw = Vec::new();
        protobuf::put_bytes(&mut raw, 1, &labels);
        let value = envelope::wrap(&TypeMeta { api_version: "v1".into(), kind: "Service".into() }, &raw);
        assert_eq!(read(&value, &Field::label("a")), Ok(Value::Text("new".into())));
        for after in [Value::Text("newer".into()), Value::Absent] {
            let edit = FieldEdit { field: Field::label("a"), change: FieldChange::Set(after.clone()) };
            assert_eq!(read(&apply(&value, &[edit]).unwrap(), &Field::label("a")), Ok(after));
        }
    }

    const JSON: &str = concat!(
        r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","labels":{"b":"2"}},"#,
        r#""spec":{"clusterIP":"10.96.0.7","clusterIPs":["10.96.0.7"],"later":{"x":[1]}},"status":{}}"#,
        "\n"
    );

    #[test]
    fn json_edits_undo_to_the_very_bytes() {
        for (field, new) in fields_and_values() {
            let before = read(JSON.as_bytes(), &field).unwrap();
            let edit = FieldEdit::replace(field.clone(), before, new.clone());
            let edited = apply(JSON.as_bytes(), std::slice::from_ref(&edit)).unwrap();
            assert_eq!(read(&edited, &field).unwrap(), new, "{field}");
            let back = apply(&edited, &[edit.inverse().unwrap()]).unwrap();
            // An object added on the way (`labels` and the like exist here) would stay: none is.
            let parents_exist = !matches!(field.to_string().as_str(), "spec.parentRef.name");
            assert!(!parents_exist || back == JSON.as_bytes(), "{field}: {}", String::from_utf8_lossy(&back));
        }
    }

    #[test]
    fn an_edit_is_refused_when_the_field_holds_something_else() {
        let edit = FieldEdit::replace(
            Field::cluster_ip(),
            Value::Text("10.96.0.8".into()),
            Value::Text("10.200.0.8".into()),
        );
        let error = apply(JSON.as_bytes(), &[edit]).unwrap_err();
        assert_eq!(error.to_string(), "`spec.clusterIP` is \"10.96.0.7\", expected \"10.96.0.8\"");
    }

    #[test]
    fn bits_are_set_once_and_cleared_once() {
        let meta = TypeMeta { api_version: "v1".into(), kind: "RangeAllocation".into() };
        let value = envelope::wrap(&meta, &[]);
        let bits = |set: Vec<u64>, clear: Vec<u64>| FieldEdit {
            field: Field::data(),
            change: FieldChange::Bits { capacity: 254, set, clear },
        };
        let once = apply(&value, &[bits(vec![0, 9], vec![])]).unwrap();
        assert_eq!(read(&once, &Field::data()).unwrap(), Value::Bytes(vec![2, 1]));
        assert!(apply(&once, &[bits(vec![9], vec![])]).is_err());
        assert!(apply(&once, &[bits(vec![400], vec![])]).is_err());
        let back = apply(&once, &[bits(vec![], vec![9])]).unwrap();
        assert_eq!(read(&back, &Field::data()).unwrap(), Value::Bytes(vec![1]));
    }

    proptest! {
        /// An arbitrary object, unknown fields everywhere: after an edit every other field has its bytes,
        /// and the inverse brings back the whole value byte for byte.
        #[test]
        fn protobuf_edits_touch_nothing_else(
            outer in any_message(), spec in any_message(), which in 0_usize..9,
        ) {
            let mut message = outer.clone();
            for number in [1, 2] {
                let mut field = Vec::new();
                protobuf::put_bytes(&mut field, number, &spec);
                message = protobuf::replace(&message, number, &field).unwrap();
            }
            let value = envelope::wrap(&TypeMeta::default(), &message);
            let (field, new) = fields_and_values().swap_remove(which);
            let Ok(before) = read(&value, &field) else { return Ok(()) };
            // A single field that occurs twice, or in the place of a list an odd one, is not put back as it was.
            let single = protobuf::fields(&spec).flatten().all(|f| {
                protobuf::fields(&spec).flatten().filter(|g| g.number == f.number).count() == 1
            });
            let text = !matches!(&before, Value::Text(t) if t.contains('\u{fffd}'))
                && !matches!(&before, Value::Texts(t) if t.iter().any(|t| t.contains('\u{fffd}')));
            let edit = FieldEdit::replace(field.clone(), before.clone(), new.clone());
            let Ok(edited) = apply(&value, std::slice::from_ref(&edit)) else { return Ok(()) };
            prop_assert_eq!(read(&edited, &field).unwrap(), new);
            if single && text && !matches!(before, Value::Time(_)) && (before != Value::Absent || which < 3) {
                let sorted = |m: &[u8]| protobuf::fields(m).flatten().map(|f| f.number).is_sorted();
                if before != Value::Absent || sorted(&spec) {
                    let back = apply(&edited, &[edit.inverse().unwrap()]).unwrap();
                    prop_assert_eq!(back, value);
                }
            }
        }

        #[test]
        fn arbitrary_values_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            for prefix in [&b"k8s\0"[..], b"{", b""] {
                let mut value = prefix.to_vec();
                value.extend_from_slice(&bytes);
                for (field, new) in fields_and_values() {
                    let _ = read(&value, &field);
                    let _ = apply(&value, &[FieldEdit { field, change: FieldChange::Set(new) }]);
                }
            }
        }
    }
}

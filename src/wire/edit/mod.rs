//! Changes single fields of a stored object, in any encoding. All other fields stay as they are.
//!
//! A [`FieldEdit`] contains the values of a field before and after the change. It is applied to the *present* object, so changes
//! to other fields after planning are kept. The edit is refused if the field to change does not have the expected value. The
//! inverse edit swaps the two values.

use serde::{Deserialize, Serialize};

use super::bitmap::Bitmap;
use super::envelope::{self, Envelope};
use super::field::{Field, FieldKind, Segment, Value};
use super::json;
use super::protobuf::{self, Content};
use super::yaml::{Part, Yaml, YamlError};
use super::{WireError, cbor};

/// A change to one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldEdit {
    /// Field to change.
    pub field: Field,
    /// The change.
    pub change: FieldChange,
}

/// How a field changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldChange {
    /// Changes `before` to `after`. If the field already has the value `after`, nothing changes, so the edit is idempotent.
    Replace {
        /// The expected value.
        before: Value,
        /// The new value.
        after: Value,
    },
    /// Sets the field regardless of its present value. Used for values that are created together with the change, such as a uid.
    Set(Value),
    /// Sets and clears bits of a bitmap. The bits to set must be clear, and the bits to clear must be set.
    Bits {
        /// Number of items in the bitmap's range.
        capacity: u64,
        /// Bits to set.
        set: Vec<u64>,
        /// Bits to clear.
        clear: Vec<u64>,
    },
    /// Clears bits of a bitmap, whether they are set or not.
    Free {
        /// Number of items in the bitmap's range.
        capacity: u64,
        /// Bits to clear.
        bits: Vec<u64>,
    },
    /// Sets bits of a bitmap, whether they are set or not.
    Mark {
        /// Number of items in the bitmap's range.
        capacity: u64,
        /// Bits to set.
        bits: Vec<u64>,
    },
    /// Adds an item at the end of a list of texts, or removes it. Other items are kept.
    Item {
        /// The item.
        item: String,
        /// Whether the list contains the item after the change.
        listed: bool,
    },
    /// Replaces a part of a YAML text. A path of keys selects a scalar or a list of scalars, and each scalar contains parts that
    /// are separated by commas. The part `before` is replaced with `after`. All other characters stay as they are. If `after` is
    /// already present and `before` is not, nothing changes.
    Part {
        /// Keys of the path, starting with the outermost key.
        path: Vec<String>,
        /// The expected part.
        before: String,
        /// The new part.
        after: String,
    },
}

/// Reason why an edit was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The object cannot be read.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The field does not have the expected value.
    #[error("`{field}` is {found}, expected {expected}")]
    Differs {
        /// The field.
        field: String,
        /// The expected value.
        expected: String,
        /// The value that was found.
        found: String,
    },
    /// The text of the field cannot be read or changed.
    #[error("`{field}`: {reason}")]
    Yaml {
        /// The field.
        field: String,
        /// Why the text cannot be read or changed.
        reason: YamlError,
    },
}

impl FieldEdit {
    /// Returns an edit that adds an item to a list, or removes it.
    pub fn item(field: Field, item: &str, listed: bool) -> Self {
        Self { field, change: FieldChange::Item { item: item.to_string(), listed } }
    }

    /// Returns an edit that replaces one value with another value.
    pub fn replace(field: Field, before: Value, after: Value) -> Self {
        Self { field, change: FieldChange::Replace { before, after } }
    }

    /// Returns the edit that reverts this edit. Returns `None` for [`FieldChange::Set`], [`FieldChange::Free`] and [`FieldChange::Mark`], because these
    /// changes are not reverted.
    #[must_use]
    pub fn inverse(&self) -> Option<Self> {
        let change = match &self.change {
            FieldChange::Replace { before, after } => {
                FieldChange::Replace { before: after.clone(), after: before.clone() }
            }
            FieldChange::Bits { capacity, set, clear } => {
                FieldChange::Bits { capacity: *capacity, set: clear.clone(), clear: set.clone() }
            }
            FieldChange::Part { path, before, after } => {
                FieldChange::Part { path: path.clone(), before: after.clone(), after: before.clone() }
            }
            FieldChange::Item { item, listed } => FieldChange::Item { item: item.clone(), listed: !listed },
            FieldChange::Set(_) | FieldChange::Free { .. } | FieldChange::Mark { .. } => return None,
        };
        Some(Self { field: self.field.clone(), change })
    }
}

/// A precondition on an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// The field has this value.
    Holds(Field, Value),
    /// These bits of a bitmap are set.
    BitsSet {
        /// The field with the bitmap.
        field: Field,
        /// Number of items in the bitmap's range.
        capacity: u64,
        /// Bits that must be set.
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

/// Returns the stored value with all edits applied and every other byte unchanged.
pub fn apply(value: &[u8], edits: &[FieldEdit]) -> Result<Vec<u8>, EditError> {
    let mut edited = value.to_vec();
    for edit in edits {
        edited = apply_one(&edited, edit)?;
    }
    Ok(edited)
}

/// Sets or clears bits of a bitmap, whether they are set or not.
fn with_bits(
    value: &[u8],
    field: &Field,
    capacity: u64,
    bits: &[u64],
    allocated: bool,
) -> Result<Vec<u8>, EditError> {
    let mut bitmap = read_bitmap(value, field, capacity)?;
    for bit in bits {
        if bitmap.is_set(*bit) != allocated {
            change_bit(&mut bitmap, field, *bit, allocated)?;
        }
    }
    Ok(write(value, field, &Value::Bytes(bitmap.to_bytes()))?)
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
        FieldChange::Free { capacity, bits } => with_bits(value, &edit.field, *capacity, bits, false),
        FieldChange::Mark { capacity, bits } => with_bits(value, &edit.field, *capacity, bits, true),
        FieldChange::Item { item, listed } => {
            let mut list = match read(value, &edit.field)? {
                Value::Texts(list) => list,
                _ => Vec::new(),
            };
            if list.contains(item) == *listed {
                return Ok(value.to_vec());
            }
            if *listed {
                list.push(item.clone());
            } else {
                list.retain(|found| found != item);
            }
            Ok(write(value, &edit.field, &Value::texts(&list))?)
        }
        FieldChange::Part { path, before, after } => {
            let text = match read(value, &edit.field)? {
                Value::Text(text) => text,
                _ => String::new(),
            };
            match with_part(&text, &edit.field, path, (before, after))? {
                Some(text) => Ok(write(value, &edit.field, &Value::Text(text))?),
                None => Ok(value.to_vec()),
            }
        }
    }
}

/// Returns the text with the part replaced; `None` if the part is already replaced.
fn with_part(
    text: &str,
    field: &Field,
    path: &[String],
    (before, after): (&str, &str),
) -> Result<Option<String>, EditError> {
    let broken = |reason| EditError::Yaml { field: field.to_string(), reason };
    let yaml = Yaml::parse(text).map_err(broken)?;
    match yaml.with_part(path, before, after).map_err(broken)? {
        Part::Changed(text) => Ok(Some(text)),
        Part::There => Ok(None),
        Part::Other(found) => Err(EditError::Differs {
            field: format!("{field} {}", path.join(".")),
            expected: format!("\"{before}\""),
            found: format!("[{}]", found.join(", ")),
        }),
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

/// Returns the value of a field of a stored object.
pub fn read(value: &[u8], field: &Field) -> Result<Value, WireError> {
    match Envelope::of(value)? {
        Envelope::Protobuf { raw, .. } => read_protobuf(raw, field),
        Envelope::Json(text) => read_json(text, field),
        Envelope::Cbor => read_json(&cbor::to_json(value)?, field),
        Envelope::Encrypted { provider, key } => Err(WireError::Encrypted { provider, key }),
    }
}

/// Returns the stored object with a new value for one field.
fn write(value: &[u8], field: &Field, new: &Value) -> Result<Vec<u8>, WireError> {
    match Envelope::of(value)? {
        Envelope::Protobuf { raw, .. } => envelope::with_raw(value, &write_protobuf(raw, &field.path, new)?),
        Envelope::Json(text) => write_json(text, field, new).map(String::into_bytes),
        Envelope::Cbor => Err(WireError::CborUnchanged),
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
                // If a key occurs twice, the last entry is used, as in every protobuf decoder.
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

/// Returns the content of every occurrence of a length-delimited field. Another wire type is an error, as in every protobuf
/// decoder for this message. If the reader skipped such a field, a later write would lose its content.
fn occurrences(message: &[u8], number: u32) -> Result<Vec<&[u8]>, WireError> {
    let mut found = Vec::new();
    for field in protobuf::fields(message) {
        let field = field?;
        if field.number == number {
            found.push(field.message()?);
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

fn write_protobuf(message: &[u8], path: &[Segment], new: &Value) -> Result<Vec<u8>, WireError> {
    match path {
        [Segment::Member(number, _)] => {
            occurrences(message, *number)?;
            protobuf::replace(message, *number, &encode(*number, new))
        }
        [Segment::Member(number, _), Segment::Entry(key)] => write_entry(message, *number, key, new),
        [Segment::Member(number, _), rest @ ..] => {
            let inner = occurrences(message, *number)?;
            if inner.len() > 1 {
                return Err(WireError::Protobuf {
                    offset: 0,
                    reason: "a message field that is not repeated occurs twice",
                });
            }
            let Some(inner) = inner.first().copied().or_else(|| (*new != Value::Absent).then_some(&[][..]))
            else {
                return Ok(message.to_vec());
            };
            let inner = write_protobuf(inner, rest, new)?;
            protobuf::replace(message, *number, &protobuf::field(*number, inner))
        }
        _ => Err(WireError::Protobuf { offset: 0, reason: "a path must start with a field" }),
    }
}

/// Writes one entry of a map of strings. A new entry is inserted in key order, as the API server writes maps.
fn write_entry(message: &[u8], number: u32, key: &str, new: &Value) -> Result<Vec<u8>, WireError> {
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for entry in occurrences(message, number)? {
        entries.push((entry_part(entry, 1)?.to_vec(), entry.to_vec()));
    }
    let place = entries.iter().rposition(|(found, _)| found == key.as_bytes());
    match (place, new) {
        (Some(index), Value::Text(text)) => {
            if let Some((_, entry)) = entries.get_mut(index) {
                *entry = protobuf::replace(entry, 2, &protobuf::field(2, text))?;
            }
        }
        (Some(_), _) => entries.retain(|(found, _)| found != key.as_bytes()),
        (None, Value::Text(text)) => {
            let entry = [protobuf::field(1, key), protobuf::field(2, text)].concat();
            let index = entries.iter().position(|(found, _)| found.as_slice() > key.as_bytes());
            entries.insert(index.unwrap_or(entries.len()), (key.as_bytes().to_vec(), entry));
        }
        (None, _) => {}
    }
    let encoded: Vec<Vec<u8>> = entries.iter().map(|(_, entry)| protobuf::field(number, entry)).collect();
    protobuf::replace(message, number, &encoded.concat())
}

fn encode(number: u32, value: &Value) -> Vec<u8> {
    match value {
        Value::Absent => Vec::new(),
        Value::Text(text) => protobuf::field(number, text),
        Value::Texts(texts) => texts.iter().flat_map(|text| protobuf::field(number, text)).collect(),
        Value::Bytes(bytes) => protobuf::field(number, bytes),
        Value::Time(seconds) => {
            let mut time = Vec::new();
            protobuf::put_number(&mut time, 1, seconds.cast_unsigned());
            protobuf::put_number(&mut time, 2, 0);
            protobuf::field(number, time)
        }
    }
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
        FieldKind::Texts => Value::texts(&serde_json::from_str::<Vec<String>>(found).map_err(broken)?),
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
mod tests;

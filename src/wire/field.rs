//! Names and values of single fields of stored objects.
//!
//! A [`Field`] has its path in both encodings: field numbers for protobuf, member names for JSON. It is plain data, so that the
//! journal can store it in a step of an operation.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The path to one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Segments of the path, from the object's root. Never empty.
    pub path: Vec<Segment>,
    /// The type of the field.
    pub kind: FieldKind,
}

/// One segment of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Segment {
    /// A field of a message: its number in protobuf, its name in JSON.
    #[serde(rename = "field")]
    Member(u32, Cow<'static, str>),
    /// An entry of the text map that the previous segment names. Allowed only as the last segment.
    #[serde(rename = "entry")]
    Entry(String),
}

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldKind {
    /// A text.
    Text,
    /// A list of texts.
    Texts,
    /// Bytes, encoded as base64 in JSON.
    Bytes,
    /// `metav1.Time`: whole seconds, written as RFC 3339 in JSON.
    Time,
}

/// The value of a field.
///
/// `Absent` and an empty text are different: the API server writes most texts of a Service even if they
/// are empty, and a rollback must restore the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Value {
    /// The field does not occur. For a list: it has no element.
    Absent,
    /// A text.
    Text(String),
    /// A list of at least one text.
    Texts(Vec<String>),
    /// Bytes.
    Bytes(#[serde(with = "super::json::base64_text")] Vec<u8>),
    /// Seconds since 1970-01-01T00:00:00Z.
    Time(i64),
}

impl Value {
    /// Returns the text as a value; `Absent` for `None`.
    pub fn text(text: Option<&str>) -> Self {
        text.map_or(Self::Absent, |text| Self::Text(text.to_string()))
    }

    /// Returns the list as a value; `Absent` for an empty list, because neither encoding distinguishes the two.
    pub fn texts<T: AsRef<str>>(texts: &[T]) -> Self {
        if texts.is_empty() {
            Self::Absent
        } else {
            Self::Texts(texts.iter().map(|text| text.as_ref().to_string()).collect())
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("(absent)"),
            Self::Text(text) => write!(f, "\"{text}\""),
            Self::Texts(texts) => write!(f, "[{}]", texts.join(", ")),
            Self::Bytes(bytes) => write!(f, "({} bytes)", bytes.len()),
            Self::Time(seconds) => write!(f, "{seconds} s"),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.path.iter().enumerate() {
            match segment {
                Segment::Member(_, name) if index == 0 => f.write_str(name)?,
                Segment::Member(_, name) => write!(f, ".{name}")?,
                Segment::Entry(key) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}

fn at(path: &[(u32, &'static str)], kind: FieldKind) -> Field {
    let path = path.iter().map(|(number, name)| Segment::Member(*number, Cow::Borrowed(name))).collect();
    Field { path, kind }
}

const METADATA: (u32, &str) = (1, "metadata");
const SPEC: (u32, &str) = (2, "spec");

impl Field {
    /// Returns the field `metadata.uid`.
    pub fn uid() -> Self {
        at(&[METADATA, (5, "uid")], FieldKind::Text)
    }

    /// Returns the field `metadata.creationTimestamp`.
    pub fn creation_timestamp() -> Self {
        at(&[METADATA, (8, "creationTimestamp")], FieldKind::Time)
    }

    /// Returns the field `metadata.deletionTimestamp`.
    pub fn deletion_timestamp() -> Self {
        at(&[METADATA, (9, "deletionTimestamp")], FieldKind::Time)
    }

    /// Returns the field `metadata.finalizers`.
    pub fn finalizers() -> Self {
        at(&[METADATA, (14, "finalizers")], FieldKind::Texts)
    }

    /// Returns the field `metadata.labels[KEY]`.
    pub fn label(key: &str) -> Self {
        let mut field = at(&[METADATA, (11, "labels")], FieldKind::Text);
        field.path.push(Segment::Entry(key.to_string()));
        field
    }

    /// Returns the field `spec.type` of a Service.
    pub fn service_type() -> Self {
        at(&[SPEC, (4, "type")], FieldKind::Text)
    }

    /// Returns the field `spec.clusterIP` of a Service.
    pub fn cluster_ip() -> Self {
        at(&[SPEC, (3, "clusterIP")], FieldKind::Text)
    }

    /// Returns the field `spec.clusterIPs` of a Service.
    pub fn cluster_ips() -> Self {
        at(&[SPEC, (18, "clusterIPs")], FieldKind::Texts)
    }

    /// Returns the field `spec.externalIPs` of a Service.
    pub fn external_ips() -> Self {
        at(&[SPEC, (5, "externalIPs")], FieldKind::Texts)
    }

    /// Returns the field `spec.externalTrafficPolicy` of a Service.
    pub fn external_traffic_policy() -> Self {
        at(&[SPEC, (11, "externalTrafficPolicy")], FieldKind::Text)
    }

    /// Returns the field `spec.parentRef.namespace` of an IPAddress.
    pub fn parent_namespace() -> Self {
        at(&[SPEC, (1, "parentRef"), (3, "namespace")], FieldKind::Text)
    }

    /// Returns the field `spec.parentRef.name` of an IPAddress.
    pub fn parent_name() -> Self {
        at(&[SPEC, (1, "parentRef"), (4, "name")], FieldKind::Text)
    }

    /// Returns the field `range` of a RangeAllocation.
    pub fn range() -> Self {
        at(&[(2, "range")], FieldKind::Text)
    }

    /// Returns the field `data[KEY]` of a ConfigMap.
    pub fn config_map_entry(key: &str) -> Self {
        let mut field = at(&[(2, "data")], FieldKind::Text);
        field.path.push(Segment::Entry(key.to_string()));
        field
    }

    /// Returns the field `data` of a RangeAllocation, which contains the bitmap.
    pub fn data() -> Self {
        at(&[(3, "data")], FieldKind::Bytes)
    }
}

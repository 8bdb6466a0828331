//! Paths and values of single fields in stored objects.
//!
//! A [`Field`] contains its path for both encodings: field numbers for protobuf, and member names for JSON. It is plain data, so
//! that the journal can store it in a step of an operation.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The path to one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Segments of the path, starting at the object's root. There is at least one segment.
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
/// `Absent` and an empty text are different values, because the API server writes most texts of a Service even if they are empty,
/// and a rollback must restore the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Value {
    /// The field is missing, or it is a list without elements.
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

    /// Returns the list as a value; `Absent` for an empty list, because an empty list and a missing list have the same meaning in
    /// both encodings.
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

/// Defines functions of [`Field`] from the name, the path and the type of each field.
macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident = $path:tt $kind:ident;)*) => {
        impl Field {
            $($(#[$doc])* pub fn $name() -> Self { at(&$path, FieldKind::$kind) })*
        }
    };
}
fields! {
    /// Returns the field `metadata.uid`.
    uid = [METADATA, (5, "uid")] Text;
    /// Returns the field `metadata.creationTimestamp`.
    creation_timestamp = [METADATA, (8, "creationTimestamp")] Time;
    /// Returns the field `metadata.deletionTimestamp`.
    deletion_timestamp = [METADATA, (9, "deletionTimestamp")] Time;
    /// Returns the field `metadata.finalizers`.
    finalizers = [METADATA, (14, "finalizers")] Texts;
    /// Returns the field `spec.type` of a Service.
    service_type = [SPEC, (4, "type")] Text;
    /// Returns the field `spec.clusterIP` of a Service.
    cluster_ip = [SPEC, (3, "clusterIP")] Text;
    /// Returns the field `spec.clusterIPs` of a Service.
    cluster_ips = [SPEC, (18, "clusterIPs")] Texts;
    /// Returns the field `spec.externalIPs` of a Service.
    external_ips = [SPEC, (5, "externalIPs")] Texts;
    /// Returns the field `spec.externalTrafficPolicy` of a Service.
    external_traffic_policy = [SPEC, (11, "externalTrafficPolicy")] Text;
    /// Returns the field `spec.parentRef.namespace` of an IPAddress.
    parent_namespace = [SPEC, (1, "parentRef"), (3, "namespace")] Text;
    /// Returns the field `spec.parentRef.name` of an IPAddress.
    parent_name = [SPEC, (1, "parentRef"), (4, "name")] Text;
    /// Returns the field `range` of a RangeAllocation.
    range = [(2, "range")] Text;
    /// Returns the field `data` of a RangeAllocation, which contains the bitmap.
    data = [(3, "data")] Bytes;
}

/// Defines functions of [`Field`] for the entries of a text map, from the name and the path of each map.
macro_rules! entries {
    ($($(#[$doc:meta])* $name:ident = $path:tt;)*) => {
        impl Field {
            $($(#[$doc])* pub fn $name(key: &str) -> Self {
                let mut field = at(&$path, FieldKind::Text);
                field.path.push(Segment::Entry(key.to_string()));
                field
            })*
        }
    };
}
entries! {
    /// Returns the field `metadata.labels[KEY]`.
    label = [METADATA, (11, "labels")];
    /// Returns the field `metadata.annotations[KEY]`.
    annotation = [METADATA, (12, "annotations")];
    /// Returns the field `data[KEY]` of a ConfigMap.
    config_map_entry = [(2, "data")];
}

//! Names for field numbers: a table generated from `proto/`, for showing objects.

pub use super::generated::SCHEMA;

/// The type of a field as far as showing it needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// A text.
    Text,
    /// Bytes.
    Bytes,
    /// true or false.
    Bool,
    /// A whole number.
    Int,
    /// A map from text to text.
    MapOfText,
    /// A map from text to bytes.
    MapOfBytes,
    /// Another message of the table.
    Message(&'static str),
    /// Any number of these.
    List(&'static FieldType),
}

/// The fields of a message: number, JSON name, type.
pub type Fields = &'static [(u32, &'static str, FieldType)];

/// A message of the table: its name and its fields.
pub type Message = (&'static str, Fields);

/// Returns the fields of a message of the table.
pub fn message(name: &str) -> Option<Fields> {
    SCHEMA.iter().find(|(found, _)| *found == name).map(|(_, fields)| *fields)
}

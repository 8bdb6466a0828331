//! Names of protobuf fields by number, in a table that is generated from `proto/`. They are used to show objects.

pub use super::generated::SCHEMA;

use super::TypeMeta;

/// Type of a field, with the details that are needed to show the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// A text.
    Text,
    /// Bytes.
    Bytes,
    /// True or false.
    Bool,
    /// A whole number.
    Int,
    /// A map from text to text.
    MapOfText,
    /// A map from text to bytes.
    MapOfBytes,
    /// Another message in the table.
    Message(&'static str),
    /// A list of values of this type.
    List(&'static FieldType),
}

/// Fields of a message, each with its number, JSON name and type.
pub type Fields = &'static [(u32, &'static str, FieldType)];

/// A message in the table: its name and its fields.
pub type Message = (&'static str, Fields);

/// The only field that is defined for a kind without a message in the table.
const METADATA_ONLY: Fields = &[(1, "metadata", FieldType::Message("ObjectMeta"))];

/// Returns the fields of a message. The table is sorted by message name.
pub fn message(name: &str) -> Option<Fields> {
    let place = SCHEMA.binary_search_by(|(found, _)| (*found).cmp(name)).ok()?;
    SCHEMA.get(place).map(|(_, fields)| *fields)
}

/// Returns the fields of an object of this kind.
pub fn of(type_meta: &TypeMeta<'_>) -> Fields {
    // CustomResourceDefinition is the only kind that API servers store in two versions with different fields.
    let old = "CustomResourceDefinitionV1beta1";
    let is_old = type_meta.kind == "CustomResourceDefinition" && type_meta.api_version.ends_with("/v1beta1");
    message(if is_old { old } else { &type_meta.kind }).unwrap_or(METADATA_ONLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_of_the_table_is_found() {
        for (name, fields) in SCHEMA {
            assert_eq!(message(name).map(<[_]>::len), Some(fields.len()), "{name}");
        }
        assert!(message("Nothing").is_none());
    }
}

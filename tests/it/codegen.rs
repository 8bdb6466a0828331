//! `src/wire/generated.rs` matches `proto/`: it is generated here, compared, and rewritten on request.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use prost_build::Config;

const UPDATE: &str = "NETSURGEON_UPDATE_GENERATED";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn generated_code_is_up_to_date() {
    let proto = [root().join("proto")];
    let descriptors = protox::compile(["stored.proto"], &proto).unwrap();
    let shown = protox::compile(["stored.proto", "shown.proto"], &proto).unwrap();
    let out = tempfile::tempdir().unwrap();
    let mut config = Config::new();
    config.out_dir(out.path()).btree_map(["."]);
    config.type_attribute(".", "#[derive(serde::Deserialize)] #[serde(default, rename_all = \"camelCase\")]");
    config.type_attribute(".", "#[allow(missing_docs, clippy::pedantic)]");
    let mut schema = String::from(
        "/// Every message of `proto/`: name, then number, JSON name and type of each field.\n\
         pub static SCHEMA: &[Message] = &[\n",
    );
    for message in descriptors.file.iter().flat_map(|file| &file.message_type) {
        attributes(&mut config, message);
    }
    describe_all(&mut schema, &shown);
    schema.push_str("];\n");
    config.compile_fds(descriptors).unwrap();
    let messages = std::fs::read_to_string(out.path().join("netsurgeon.stored.rs")).unwrap();
    let wanted = format!(
        "// Generated from proto/stored.proto by tests/it/codegen.rs; do not edit.\n\
         // To regenerate: {UPDATE}=1 cargo test --test it codegen\n\n\
         use super::schema::{{FieldType, Message}};\n\n{messages}\n{schema}"
    );
    let path = root().join("src/wire/generated.rs");
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "src/wire/generated.rs differs from proto/: run `{UPDATE}=1 cargo test --test it codegen`"
    );
}

fn attributes(config: &mut Config, message: &protox_types::DescriptorProto) {
    for field in &message.field {
        let path = format!(".netsurgeon.stored.{}.{}", message.name(), field.name());
        if !is_camel_case(field) {
            config.field_attribute(&path, format!("#[serde(rename = \"{}\")]", field.json_name()));
        }
        let reader = match field_type(message, field).as_str() {
            "FieldType::Message(\"Time\")" => Some("crate::wire::json::time"),
            "FieldType::Bytes" => Some("crate::wire::json::bytes"),
            "FieldType::MapOfBytes" => Some("crate::wire::json::map_of_bytes"),
            "FieldType::Message(\"IntOrString\")" => Some("crate::wire::json::int_or_string"),
            _ => None,
        };
        if let Some(reader) = reader {
            config.field_attribute(&path, format!("#[serde(deserialize_with = \"{reader}\")]"));
        }
    }
}

/// Whether serde's `camelCase` turns prost's name of a field into its JSON name: not if two capitals follow each other, as in
/// `clusterIP`, which is `cluster_ip` in Rust.
fn is_camel_case(field: &protox_types::FieldDescriptorProto) -> bool {
    let name = field.name().as_bytes();
    field.name() == field.json_name() && !name.windows(2).any(|pair| pair.iter().all(u8::is_ascii_uppercase))
}

/// Writes the table of names: messages of the same name in several files are merged.
fn describe_all(schema: &mut String, files: &prost_types::FileDescriptorSet) {
    let mut messages: BTreeMap<&str, Vec<(i32, String)>> = BTreeMap::new();
    for message in files.file.iter().flat_map(|file| &file.message_type) {
        let fields = messages.entry(message.name()).or_default();
        for field in &message.field {
            let kind = field_type(message, field);
            fields.push((field.number(), format!("({}, \"{}\", {kind})", field.number(), field.json_name())));
        }
        fields.sort();
    }
    for (name, fields) in messages {
        let _ = writeln!(schema, "    (\"{name}\", &[");
        for (_, field) in fields {
            let _ = writeln!(schema, "        {field},");
        }
        schema.push_str("    ]),\n");
    }
}

mod protox_types {
    pub(super) use prost_types::DescriptorProto;
    pub(super) use prost_types::FieldDescriptorProto;
    pub(super) use prost_types::field_descriptor_proto::{Label, Type};
}

fn field_type(message: &protox_types::DescriptorProto, field: &protox_types::FieldDescriptorProto) -> String {
    let kind = item_type(message, field);
    let is_list = field.label() == protox_types::Label::Repeated && !kind.starts_with("FieldType::MapOf");
    if is_list { format!("FieldType::List(&{kind})") } else { kind }
}

fn item_type(message: &protox_types::DescriptorProto, field: &protox_types::FieldDescriptorProto) -> String {
    use protox_types::Type;
    match field.r#type() {
        Type::String => "FieldType::Text".into(),
        Type::Bytes => "FieldType::Bytes".into(),
        Type::Bool => "FieldType::Bool".into(),
        Type::Int32 | Type::Int64 => "FieldType::Int".into(),
        Type::Message => {
            let name = field.type_name().rsplit('.').next().unwrap();
            match message.nested_type.iter().find(|nested| nested.name() == name) {
                Some(entry) if entry.field[1].r#type() == Type::Bytes => "FieldType::MapOfBytes".into(),
                Some(_) => "FieldType::MapOfText".into(),
                None => format!("FieldType::Message(\"{name}\")"),
            }
        }
        other => panic!("proto/ uses a field type that the schema does not know: {other:?}"),
    }
}

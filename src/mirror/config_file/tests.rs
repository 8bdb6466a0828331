//! Tests of the configuration file: its errors, its example, and the equality of schema and parser.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::mirror::config::{
    AttachTo, HostRule, ImagePath, ImageRule, Kinds, NamespaceSelector, Namespaces, Passive, PatchRule,
    PullSecret, Replicas, TextRule,
};

/// A configuration in which every field of every type has a value. A new field does not compile until it is here.
fn complete(namespaces: Namespaces, patch: Value) -> Config {
    let text = |text: &str| text.to_string();
    Config {
        namespaces: Some(namespaces),
        rename: [(text("a"), text("b"))].into(),
        kinds: Kinds { exclude: vec![text("Role")], include: vec![text("Nightly")] },
        images: vec![ImageRule { from: text("a.io/"), to: text("b.io/") }],
        image_paths: vec![ImagePath { kind: text("Rollout"), path: text("/spec/image") }],
        pull_secrets: vec![PullSecret {
            name: text("a"),
            from_file: text("a.json"),
            attach_to: Some(AttachTo::PodTemplates),
        }],
        hosts: vec![
            HostRule { suffix: text("a.org"), add: Some(text("b.org")), replace: None },
            HostRule { suffix: text("c.org"), add: None, replace: Some(text("d.org")) },
        ],
        passive: Passive { workloads: vec![text("a=b")] },
        run: vec![text("c=d")],
        replicas: Some(Replicas { factor: 0.5, minimum: Some(1) }),
        patches: vec![PatchRule {
            kinds: vec![text("Service")],
            names: Some(text("a*")),
            namespaces: vec![text("a")],
            patch,
        }],
        text: vec![TextRule { kinds: vec![text("ConfigMap")], from: text("a"), to: text("b") }],
    }
}

fn all() -> Vec<Config> {
    let operation =
        json!([{"op": "move", "path": "/a", "from": "/b"}, {"op": "add", "path": "/a", "value": 1}]);
    let selected = Namespaces::Selected(NamespaceSelector { selector: "a=b".to_string() });
    vec![
        complete(Namespaces::Names(vec!["a".to_string()]), operation),
        complete(selected, json!({"metadata": {"labels": {"a": "b"}}})),
    ]
}

/// Collects the fields of the schema, each with its path.
fn of_schema(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        of_schema(below, &path, found);
        found.insert(path);
    }
    if schema["items"].is_object() {
        of_schema(&schema["items"], &format!("{path}[]"), found);
    }
    for choice in schema["anyOf"].as_array().into_iter().flatten() {
        of_schema(choice, path, found);
    }
}

/// Collects the fields of a value, without the content of free maps.
fn of_value(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, below) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if !path.starts_with(".rename.") && !path.starts_with(".patches[].patch.") {
            of_value(below, &path, found);
            found.insert(path);
        }
    }
    for item in value.as_array().into_iter().flatten() {
        of_value(item, &format!("{path}[]"), found);
    }
}

#[test]
fn schema_and_parser_have_the_same_fields() {
    let (mut schema, mut parser) = (BTreeSet::new(), BTreeSet::new());
    of_schema(&serde_json::from_str(SCHEMA).unwrap(), "", &mut schema);
    for config in all() {
        of_value(&json!(config), "", &mut parser);
    }
    assert_eq!(schema, parser);
}

#[test]
fn every_field_is_read_and_written() {
    for config in all() {
        // JSON is YAML.
        assert_eq!(parse_config(&json!(config).to_string()), Ok(config));
    }
    assert_eq!(json!(Config::default()), json!({}));
    for text in ["", "  \n", "# only a comment\n"] {
        assert!(parse_config(text).is_err(), "{text:?}");
    }
}

/// What the schema accepts, the parser reads: each field of the schema alone.
#[test]
fn parser_reads_what_the_schema_requires() {
    for (text, is_valid) in [
        ("replicas: {factor: 1}", true),
        ("replicas: {factor: 0.5, minimum: 2}", true),
        ("replicas: {minimum: 2}", false),
        ("pullSecrets: [{name: a, fromFile: b}]", true),
        ("namespaces: {selector: a}", true),
        ("kinds: {}", true),
        ("passive: {}", true),
        ("text: [{kinds: [ConfigMap], from: a, to: ''}]", true),
        ("patches: [{kinds: [Service], patch: {}}]", true),
    ] {
        assert_eq!(parse_config(text).is_ok(), is_valid, "{text}: {:?}", parse_config(text));
    }
}

#[test]
fn example_of_the_documentation_is_complete() {
    let config = parse_config(example()).unwrap();
    let (mut schema, mut used) = (BTreeSet::new(), BTreeSet::new());
    of_schema(&serde_json::from_str(SCHEMA).unwrap(), "", &mut schema);
    of_value(&json!(config), "", &mut used);
    let missing: Vec<&String> = schema.difference(&used).collect();
    assert_eq!(missing, [".namespaces.selector", ".patches[].patch[].from"]);
}

#[test]
fn error_has_a_position_and_a_reason() {
    for (text, expected) in [
        (
            "namespaces: shop\n",
            "1:13: namespaces: expected a list, or a map with `selector`, found the text `shop`",
        ),
        ("namespaces: []\n", "1:13: namespaces: expected a list with at least one item, found a list"),
        ("namespaces: [shop, 3]\n", "1:20: namespaces[1]: expected a text, found `3`"),
        (
            "namespaces: [a]\nimags:\n- {from: a}\n",
            "2:1: imags: the field `imags` is unknown; did you mean `images`?",
        ),
        (
            "images:\n- from: a.io/\n  too: b.io/\n",
            "3:3: images[0].too: the field `too` is unknown; did you mean `to`?",
        ),
        ("images:\n- from: a.io/\n", "2:3: images[0]: the field `to` is missing"),
        ("images: {from: a}\n", "1:9: images: expected a list, found a map"),
        ("zzz: 1\n", "1:1: zzz: the field `zzz` is unknown; known: `namespaces`, `rename`, "),
        ("hosts: [{suffix: a.org}]\n", "1:9: hosts[0]: exactly one of `add` and `replace` is needed"),
        (
            "hosts: [{suffix: A.org, add: b.org}]\n",
            "1:18: hosts[0].suffix: `A.org` is no domain name in lower case",
        ),
        ("replicas: {factor: -1}\n", "1:20: replicas.factor: expected a number of at least 0, found `-1`"),
        (
            "replicas: {factor: 1, minimum: 0.5}\n",
            "1:32: replicas.minimum: expected a whole number, found `0.5`",
        ),
        (
            "pullSecrets: [{name: a, fromFile: b, attachTo: pods}]\n",
            "1:48: pullSecrets[0].attachTo: expected one of `serviceAccounts`, `podTemplates`, found the text `pods`",
        ),
        (
            "images: [{from: a.io/, to: mirror/}]\n",
            "1:28: images[0].to: `mirror/` does not start with the host of a registry",
        ),
        (
            "images: [{from: a.io/, to: b.io/}, {from: b.io/, to: c.io/}]\n",
            "1:28: images[0].to: images[1] would change the result of images[0] again",
        ),
        (
            "images: [{from: a.io/, to: b.io}]\n",
            "1:28: images[0].to: `from` and `to` must both end with `/`, or neither",
        ),
        (
            "images: [{from: '', to: b.io/}]\n",
            "1:17: images[0].from: expected a text that is not empty, found an empty text",
        ),
        (
            "text: [{kinds: [A], from: '', to: b}]\n",
            "1:27: text[0].from: expected a text that is not empty, found an empty text",
        ),
        ("rename: {a: c, b: c}\n", "1:19: rename.b: `a` and `b` have the same new name `c`"),
        (
            "namespaces: [a, b]\nrename: {a: b}\n",
            "2:13: rename.a: `b` is also copied, so two namespaces would have this name",
        ),
        ("namespaces: [a]\nrename: {b: c}\n", "2:13: rename.b: `namespaces` does not contain `b`"),
        ("rename: {a: B_}\n", "1:13: rename.a: `B_` is no name of a namespace"),
        ("run: ['a=b', 'a like b']\n", "1:14: run[1]: `a like b` is no requirement"),
        ("kinds: {exclude: [Namespace]}\n", "1:19: kinds.exclude[0]: a Namespace is always copied"),
        (
            "patches:\n- kinds: [Service]\n  patch:\n  - {op: add, path: /a}\n",
            "4:5: patches[0].patch[0]: this operation needs `value`",
        ),
        (
            "patches:\n- kinds: [Service]\n  patch:\n  - {op: put, path: /a}\n",
            "4:10: patches[0].patch[0].op: expected one of `add`, `remove`, ",
        ),
        ("a: [\n", "it is not valid YAML"),
        ("run: [a]\nrun: [b]\n", "it is not valid YAML"),
    ] {
        let found = parse_config(text).unwrap_err();
        assert!(found.contains(expected) && found.starts_with(char::is_numeric), "{text}: {found}");
    }
}

#[test]
fn names_of_two_namespaces_can_be_exchanged() {
    let config = parse_config("namespaces: [a, b]\nrename: {a: b, b: a}\n").unwrap();
    assert_eq!((config.renamed("a"), config.renamed("b"), config.renamed("c")), ("b", "a", "c"));
}

#[test]
fn path_of_a_file_counts_from_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mirror.yaml");
    std::fs::write(&path, "pullSecrets: [{name: a, fromFile: b.json}, {name: c, fromFile: /d.json}]")
        .unwrap();
    let config = read_config(&path).unwrap();
    assert_eq!(config.pull_secrets[0].from_file, folder.path().join("b.json").display().to_string());
    assert_eq!(config.pull_secrets[1].from_file, "/d.json");
    std::fs::write(&path, "\nimags: 1\n").unwrap();
    let error = read_config(&path).unwrap_err();
    assert!(error.starts_with(&format!("{}:2:1: ", path.display())), "{error}");
    assert!(read_config(&folder.path().join("none")).unwrap_err().contains("cannot be read"));
}

//! `netsurgeon mirror plan --config`: errors of the file, before any cluster is contacted, and the schema.

use std::path::Path;

use serde_json::Value;

use crate::program::{run, run_in};

fn refused(config: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("mirror.yaml"), config).expect("a file");
    let output = run_in(folder.path(), "mirror plan --config mirror.yaml --mirror-kubeconfig none.conf", b"");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn error_of_the_configuration_has_a_position() {
    for (config, expected) in [
        (
            "namespaces: [shop]\nimags:\n- {from: a}\n",
            "mirror.yaml:2:1: imags: the field `imags` is unknown; did you mean `images`?",
        ),
        (
            "namespaces: shop\n",
            "mirror.yaml:1:13: namespaces: expected a list, or a map with `selector`, found the text `shop`",
        ),
        (
            "namespaces: [a, b]\nrename: {a: c, b: c}\n",
            "mirror.yaml:2:19: rename.b: `a` and `b` have the same new name `c`",
        ),
        (
            "replicas:\n  factor: many\n",
            "mirror.yaml:2:11: replicas.factor: expected a number, found the text `many`",
        ),
        ("run: [\n", "it is not valid YAML"),
    ] {
        let (status, text) = refused(config);
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains(expected) && text.contains("--print-schema"), "{text}");
    }
}

/// Names of certificates come only from rules that add a name, and this is found before any cluster is contacted.
#[test]
fn names_of_certificates_need_a_rule_that_adds() {
    let folder = tempfile::tempdir().expect("a folder");
    let replaces = "hosts: [{suffix: example.com, replace: example.net}]\n";
    for (config, expected) in [
        (replaces, "no rule that adds a name"),
        ("namespaces: [shop]\n", "no rule that adds a name"),
        ("hosts: [{sufix: example.com}]\n", "mirror.yaml:1:"),
    ] {
        std::fs::write(folder.path().join("mirror.yaml"), config).expect("a file");
        for command in ["plan", "apply"] {
            let words = format!("mirror sans {command} --config mirror.yaml -n shop --kubeconfig none.conf");
            let output = run_in(folder.path(), &words, b"");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{words}: {text}");
            assert!(text.contains(expected), "{words}: {text}");
        }
    }
}

#[test]
fn missing_file_is_named() {
    let output = run("mirror plan --config testdata/none.yaml --mirror-kubeconfig none.conf");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("testdata/none.yaml"));
}

#[test]
fn schema_is_printed_without_a_cluster() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for arguments in ["mirror plan --print-schema", "mirror plan --print-schema -o json"] {
        let output = run_in(root, arguments, b"");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments}: {text}");
        let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        // A document of `-o json` has a version.
        let schema = if arguments.ends_with("json") { &printed["schema"] } else { &printed };
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert!(schema["properties"]["images"].is_object());
    }
}

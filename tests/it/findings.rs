//! `docs/findings.md` explains every code of a finding, and no other code.

use std::collections::BTreeSet;
use std::path::Path;

use netsurgeon::preflight::{CNI, DNS, MIRROR, RENUMBER};

use crate::architecture::files_below;

fn codes(folder: &Path, found: &mut BTreeSet<String>) {
    for path in files_below(folder, &["rs"]).into_iter().filter(|path| !path.ends_with("tests.rs")) {
        let text = std::fs::read_to_string(&path).expect("a source");
        for call in ["Finding::error(", "Finding::warning(", "Finding::info(", "Finding::new("] {
            for rest in text.split(call).skip(1) {
                let code = rest.split('"').nth(1).expect("a code in quotes");
                assert!(rest.trim_start().starts_with('"'), "a code must be a literal: {rest:.40}");
                found.insert(code.to_string());
            }
        }
    }
}

#[test]
fn every_code_is_explained() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut used = BTreeSet::new();
    codes(&root.join("src/survey"), &mut used);
    codes(&root.join("src/renumber"), &mut used);
    codes(&root.join("src/cli/certs"), &mut used);
    codes(&root.join("src/controlplane"), &mut used);
    assert!(used.len() >= 29, "the codes are found: {used:?}");
    let text = std::fs::read_to_string(root.join("docs/findings.md")).expect("docs/findings.md");
    let explained: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'))
        .map(String::from)
        .collect();
    assert_eq!(used, explained, "the codes in the sources (left) and in docs/findings.md (right)");
    for section in text.split("### ").skip(1) {
        assert!(section.contains("**Do:**"), "what to do is missing: {section}");
    }
}

#[test]
fn every_check_is_explained() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("docs/preflight.md")).expect("docs/preflight.md");
    let explained: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`')).collect();
    let all = RENUMBER.iter().map(|check| check.name).chain(CNI.iter().map(|check| check.name));
    let all = all.chain(MIRROR.iter().map(|check| check.name)).chain(DNS.iter().map(|check| check.name));
    let mut named: Vec<&str> = Vec::new();
    for name in all {
        // A check that runs before several commands is explained once.
        if !named.contains(&name) {
            named.push(name);
        }
    }
    assert_eq!(explained, named);
}

//! `docs/findings.md` explains every code of a finding, and no other code.

use std::collections::BTreeSet;
use std::path::Path;

use netsurgeon::preflight::{Check, cni, dns, mirror, renumber};

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

/// The names of the checks of each `preflight` command, in display order.
fn checks() -> [(&'static str, Vec<&'static str>); 4] {
    fn names<C>(checks: &[Check<C>]) -> Vec<&'static str> {
        checks.iter().map(|check| check.name).collect()
    }
    [
        ("renumber", names(renumber::CHECKS)),
        ("cni", names(cni::CHECKS)),
        ("mirror", names(mirror::CHECKS)),
        ("dns", names(dns::CHECKS)),
    ]
}

#[test]
fn every_check_is_explained() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("docs/preflight.md")).expect("docs/preflight.md");
    let explained: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`')).collect();
    let mut named: Vec<&str> = Vec::new();
    for name in checks().into_iter().flat_map(|(_, names)| names) {
        // A check that several commands share is explained once.
        if !named.contains(&name) {
            named.push(name);
        }
    }
    assert_eq!(explained, named);
}

#[test]
fn every_check_has_its_own_file() {
    let room = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/preflight");
    let files = |folder: &str| -> BTreeSet<String> {
        let entries = std::fs::read_dir(room.join(folder)).expect("a folder of checks");
        let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
        let names = names.filter(|name| name != "mod.rs");
        names.map(|name| name.trim_end_matches(".rs").replace('_', "-")).collect()
    };
    let mut shared = files("shared");
    for (command, names) in checks() {
        let own = files(command);
        let listed: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
        assert!(own.is_subset(&listed), "files of {command} that are no listed checks: {own:?}");
        for name in listed.difference(&own) {
            assert!(files("shared").contains(name), "`{name}` of {command} has no file");
            shared.remove(name);
        }
    }
    assert!(shared.is_empty(), "shared checks that no command lists: {shared:?}");
}

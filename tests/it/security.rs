//! Every test that SECURITY.md names exists.

use std::fs;
use std::path::Path;

#[test]
fn tests_named_in_security_md_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let named: Vec<(&str, &str)> = text.split('`').filter_map(|word| word.split_once(".rs::")).collect();
    assert!(named.len() > 20, "{named:?}");
    for (file, test) in named {
        let file = root.join(format!("{file}.rs"));
        let source = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let at = source.find(&format!("fn {test}(")).unwrap_or_else(|| panic!("{}: {test}", file.display()));
        let before = &source[..at];
        let lines: Vec<&str> = before.lines().rev().take(4).collect();
        assert!(lines.iter().any(|line| line.contains("test]")), "{test} is not a test: {lines:?}");
    }
}

//! Every test that SECURITY.md names exists. Every tool that the Makefile installs has a version or a digest.

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

/// Another release of a tool cannot change what CI runs.
#[test]
fn tools_are_installed_in_one_version() {
    let read = |name: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let makefile = read("Makefile");
    let installs: Vec<&str> = makefile.lines().filter(|line| line.contains(" install ")).collect();
    assert!(installs.len() > 1, "{installs:?}");
    for line in installs {
        let mut modules = line.split(' ').filter(|word| word.contains('/')).peekable();
        let is_fixed_module = |word: &str| word.contains("@v$(") && word.ends_with("_VERSION)");
        let is_fixed = line.contains(" --version $(2) ")
            || line.contains(" --require-hashes ")
            || line.contains(" go install ") && modules.peek().is_some() && modules.all(is_fixed_module);
        assert!(is_fixed, "{line}");
    }
    for tool in ["FUZZ", "DENY", "ABOUT", "CYCLONEDX"] {
        assert!(makefile.contains(&format!("$(CARGO_{tool}_VERSION)")), "{tool}");
    }
    let lists = read("tests/ministack/requirements.txt") + &read("release/requirements.txt");
    let packages = lists.replace("\\\n", " ");
    let packages: Vec<&str> = packages.lines().filter(|line| line.contains("==")).collect();
    assert!(packages.len() > 10, "{packages:?}");
    assert!(packages.iter().all(|line| line.contains(" --hash=sha256:")), "{packages:?}");
}

//! The words that a person reads are plain: phrases that the glossary of docs/development.md replaces occur nowhere in the sources'
//! comments and strings, in the documentation, or in what is deployed.

use std::path::{Path, PathBuf};

/// What is written instead stands behind it.
const BANNED: &[(&str, &str)] = &[
    ("whoever", "the owner, the holder, the client, you"),
    ("somebody", "another client, another process, you"),
    ("someone", "another client, another process, you"),
    ("nobody", "no client, no process"),
    ("anybody", "any client"),
    ("everybody", "every client"),
    ("anew", "again"),
    ("mend", "repair"),
    ("mends", "repairs"),
    ("mended", "repaired"),
    ("way back", "rollback"),
    ("way forward", "forward"),
    ("left alone", "skipped"),
    ("put right", "repair"),
    ("puts right", "repairs"),
    ("carry out", "run"),
    ("carries out", "runs"),
    ("carried out", "run"),
    ("carrying out", "running"),
    ("goes on", "continues"),
    ("go on", "continue"),
    ("went on", "continued"),
    ("is told", "receives, is notified"),
    ("are told", "receive, are notified"),
    ("be told", "receive, be notified"),
    ("looked at", "checked"),
    ("looks at", "checks"),
    ("look at", "check"),
    ("begun", "started"),
    ("began", "started"),
    ("who has", "the owner, the holder"),
    ("may not", "must not, is not allowed to, might not"),
    ("of ours", "managed by netsurgeon"),
    ("stands on", "depends on"),
    ("as good as", "almost, in effect"),
    ("in its tracks", "(leave out)"),
    ("taken for", "treated as"),
    ("put into words", "printed, described"),
];

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = vec![root.join("README.md"), root.join("SECURITY.md")];
    for folder in ["src", "docs", "deploy"] {
        collect(&root.join(folder), &mut found);
    }
    assert!(found.len() > 100, "the files are found");
    found
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_dir() {
            collect(&path, found);
        } else if matches!(extension, Some("rs" | "md" | "yaml")) && !path.ends_with("wire/generated.rs") {
            found.push(path);
        }
    }
}

/// The words of a line, each with one blank before and after it, and nothing between them.
fn words(line: &str) -> String {
    let parts =
        line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').filter(|word| !word.is_empty());
    let words: Vec<String> = parts.map(str::to_lowercase).collect();
    format!(" {} ", words.join(" "))
}

#[test]
fn no_text_has_a_banned_phrase() {
    let mut faults = Vec::new();
    for file in files() {
        let text = std::fs::read_to_string(&file).expect("a file");
        // The glossary names what it replaces.
        let is_glossary = |line: &str| file.ends_with("docs/development.md") && line.starts_with('|');
        let lines = text.lines().enumerate().filter(|(_, line)| !is_glossary(line));
        for (index, line) in lines {
            let words = words(line);
            for (phrase, instead) in
                BANNED.iter().filter(|(phrase, _)| words.contains(&format!(" {phrase} ")))
            {
                let place = format!("{}:{}", file.display(), index + 1);
                faults.push(format!("{place}: `{phrase}`; write: {instead}: {}", line.trim()));
            }
        }
    }
    assert!(faults.is_empty(), "{} banned phrases\n{}\n", faults.len(), faults.join("\n"));
}

#[test]
fn a_phrase_is_found_in_a_line() {
    assert!(words("/// Whoever asks, may-not.").contains(" whoever "));
    assert!(words("    // is carried out; then").contains(" carried out "));
    assert!(!words("recommended").contains(" mended "));
}

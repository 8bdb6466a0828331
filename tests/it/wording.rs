//! All text is plain English: the phrases that the glossary of docs/development.md replaces occur nowhere in the comments and
//! strings of the sources, in the documentation, or in `deploy/`.

use std::path::{Path, PathBuf};

use crate::architecture::files_below;

/// Phrases, each with what to write instead.
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
        found.extend(files_below(&root.join(folder), &["rs", "md", "yaml"]));
    }
    found.retain(|path| !path.ends_with("wire/generated.rs"));
    assert!(found.len() > 100, "the files are found");
    found
}

/// The words of a line, in lower case, with one blank before and after each.
fn words(line: &str) -> String {
    let parts =
        line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').filter(|word| !word.is_empty());
    let words: Vec<String> = parts.map(str::to_lowercase).collect();
    format!(" {} ", words.join(" "))
}

/// What a person reads of a line of Rust: a comment, or what stands between quotes. Names in code are not text.
fn text_of_rust(line: &str) -> String {
    if line.trim_start().starts_with("//") {
        return without_code(line);
    }
    let line = line.replace("\\\"", "'");
    line.split('"').skip(1).step_by(2).map(without_code).collect::<Vec<_>>().join(" . ")
}

/// Omits what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" . ")
}

#[test]
fn texts_have_no_banned_phrase() {
    let mut faults = Vec::new();
    for file in files() {
        let text = std::fs::read_to_string(&file).expect("a file");
        let is_rust = file.extension().is_some_and(|extension| extension == "rs");
        for (index, line) in text.lines().enumerate().take_while(|(_, line)| *line != "#[cfg(test)]") {
            let words = words(&if is_rust { text_of_rust(line) } else { without_code(line) });
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
fn phrase_is_found_in_a_line() {
    assert!(words("/// Whoever asks, may-not.").contains(" whoever "));
    assert!(words("    // is carried out; then").contains(" carried out "));
    assert!(!words("recommended").contains(" mended "));
    assert_eq!(words(&text_of_rust("let begun = \"is `begun` now\";")), " is now ");
}

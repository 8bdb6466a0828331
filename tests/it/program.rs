//! Runs the real binary in an empty environment, and formats its output for snapshots.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs netsurgeon in the repository's root.
pub fn run(arguments: &str) -> Output {
    run_in(Path::new(env!("CARGO_MANIFEST_DIR")), arguments, b"")
}

/// Runs netsurgeon in a folder, with a given stdin. The arguments are separated by spaces.
pub fn run_in(folder: &Path, arguments: &str, stdin: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_netsurgeon"))
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary");
    child.stdin.take().expect("a pipe").write_all(stdin).expect("the program reads its stdin");
    child.wait_with_output().expect("an end")
}

/// Formats stdout, stderr and status, without the values that change with new fixtures.
pub fn told(output: &Output) -> String {
    let part = |name: &str, bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        if text.is_empty() { String::new() } else { format!("--- {name}\n{}\n", text.trim_end()) }
    };
    let status = output.status.code().map_or("none".to_string(), |code| code.to_string());
    let whole = format!(
        "{}{}--- exit status {status}",
        part("stdout", &output.stdout),
        part("stderr", &output.stderr)
    );
    scrub(&whole)
}

/// Runs netsurgeon and formats its output.
pub fn tell(arguments: &str) -> String {
    told(&run(arguments))
}

/// Replaces revisions and checksums.
pub fn scrub(text: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for character in text.chars().chain(['\n']) {
        if character.is_ascii_alphanumeric() {
            word.push(character);
            continue;
        }
        let number = word.chars().all(|c| c.is_ascii_digit()) && !word.is_empty();
        let before = ["revision ", "revision\": ", "revision\":", "revision is ", "changed at "];
        let revision = before.iter().any(|before| out.ends_with(before));
        let hash = word.len() == 64 && word.chars().all(|c| c.is_ascii_hexdigit());
        match () {
            () if number && revision => out.push('N'),
            () if hash => out.push_str("HASH"),
            () => out.push_str(&word),
        }
        word.clear();
        out.push(character);
    }
    out.pop();
    out
}

//! Every command that the program or its documentation prints in backticks exists, with its options and its number of arguments.

use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory as _};

use netsurgeon::cli::Cli;

use crate::architecture::files_below;

/// Returns the sources and documents. A string that continues on the next line is joined into one line.
fn texts() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![root.join("README.md"), root.join("SECURITY.md")];
    files.extend(files_below(&root.join("src"), &["rs"]));
    files.extend(files_below(&root.join("docs"), &["md"]));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| line.trim().trim_start_matches("///").trim_start_matches("//!"));
        let mut joined = String::new();
        for line in lines {
            match line.strip_suffix('\\') {
                Some(start) => joined.push_str(start),
                None => joined.extend([line, "\n"]),
            }
        }
        (path, joined)
    };
    files.into_iter().map(read).collect()
}

/// Returns the words of each command of a text, with `X` for each placeholder. Omits commands with shell quotes.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for line in text.lines() {
        for piece in line.split('`').skip(1).step_by(2) {
            let Some(words) = piece.strip_prefix("netsurgeon ") else { continue };
            if words.contains(['\'', '"']) {
                continue;
            }
            let mut plain = String::new();
            let mut depth = 0_usize;
            for letter in words.chars() {
                match letter {
                    '{' if depth == 0 => {
                        depth = 1;
                        // The value begins with a space.
                        if plain.ends_with(|last: char| last.is_ascii_lowercase()) {
                            plain.push(' ');
                        }
                        plain.push('X');
                    }
                    '{' => depth += 1,
                    '}' => depth = depth.saturating_sub(1),
                    _ if depth == 0 => plain.push(letter),
                    _ => {}
                }
            }
            // Tables of Markdown escape a bar.
            let plain = plain.replace("\\|", "|");
            let words = plain.split_whitespace().map(str::to_string);
            found.push(words.take_while(|word| !matches!(word.as_str(), "|" | "&&" | ">" | "...")).collect());
        }
    }
    found
}

fn option<'c>(root: &'c Command, command: &'c Command, word: &str) -> Option<&'c Arg> {
    let mut all = command.get_arguments().chain(root.get_arguments().filter(|arg| arg.is_global_set()));
    match word.strip_prefix("--") {
        Some(name) => all.find(|arg| arg.get_long() == name.split('=').next()),
        None => all.find(|arg| arg.get_short() == word.chars().nth(1)),
    }
}

/// Returns what is wrong with a command. A placeholder can stand for options, so it is not counted as an argument.
fn fault(root: &Command, words: &[String]) -> Option<String> {
    let mut command = root;
    let mut positionals = 0;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--help" || word == "-h" {
            return None;
        }
        if word.starts_with('-') {
            let Some(arg) = option(root, command, word) else {
                return Some(format!("`{}` has no option `{word}`", command.get_name()));
            };
            if arg.get_action().takes_values() && !word.contains('=') {
                words.next();
            }
        } else if command.has_subcommands() {
            for name in word.split('|') {
                if command.find_subcommand(name).is_none() && !name.starts_with('X') {
                    return Some(format!("`{}` has no command `{name}`", command.get_name()));
                }
            }
            let first = word.split('|').next().unwrap_or_default();
            command = command.find_subcommand(first)?;
        } else if word != "X" {
            positionals += 1;
            let allowed = command.get_positionals().count();
            let is_repeated =
                command.get_positionals().any(|arg| matches!(arg.get_action(), clap::ArgAction::Append));
            if positionals > allowed && !is_repeated {
                return Some(format!("`{}` has no argument `{word}`", command.get_name()));
            }
        }
    }
    None
}

/// Returns the required option that a command lacks. A command without options is only a name, and a placeholder that is not the
/// value of an option can stand for options.
fn lacking(root: &Command, words: &[String]) -> Option<String> {
    let mut command = root;
    let (mut given, mut is_open) = (Vec::new(), false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if let Some(name) = word.strip_prefix("--") {
            let arg = option(root, command, word)?;
            given.extend(name.split('=').next());
            if arg.get_action().takes_values() && !word.contains('=') {
                words.next();
            }
        } else if let Some(next) = command.find_subcommand(word) {
            command = next;
        } else {
            is_open |= word.contains('X');
        }
    }
    let required = command.get_arguments().filter(|arg| arg.is_required_set()).filter_map(Arg::get_long);
    let missing = required.into_iter().find(|name| !given.contains(name))?;
    (!given.is_empty() && !is_open && given != ["help"]).then(|| format!("it needs `--{missing}`"))
}

#[test]
fn printed_commands_exist() {
    let root = Cli::command();
    let mut count = 0;
    let mut faults = Vec::new();
    for (path, text) in texts() {
        for words in commands(&text) {
            count += 1;
            if let Some(fault) = fault(&root, &words).or_else(|| lacking(&root, &words)) {
                faults.push(format!("{}: `netsurgeon {}`: {fault}", path.display(), words.join(" ")));
            }
        }
    }
    assert!(count > 150, "{count} commands were found");
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn wrong_commands_are_noticed() {
    let root = Cli::command();
    let found = |text: &str| {
        commands(text).iter().find_map(|words| fault(&root, words).or_else(|| lacking(&root, words)))
    };
    assert!(found("`netsurgeon controlplane set-range CIDR`").is_some());
    assert!(found("`netsurgeon operation resume {id} --confrim flags`").is_some());
    assert!(found("`netsurgeon renumber resume`").is_some());
    assert!(found("`netsurgeon lock --force`").is_some());
    assert_eq!(found("`netsurgeon operation resume {id} --confirm flags -o json | jq .`"), None);
}

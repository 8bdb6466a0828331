//! Inside a room, too, imports have one direction: no two files import each other, directly or through others. A file and those
//! in its own folder (`a.rs`, `a/b.rs`) count as one, and may.

use std::collections::{BTreeMap, BTreeSet};

use crate::architecture::{Source, sources};

type Edges = BTreeMap<String, BTreeSet<String>>;

/// `wire/yaml.rs` is `wire::yaml`.
fn module(source: &Source) -> String {
    let path = source.path.trim_end_matches(".rs").replace('/', "::");
    path.trim_end_matches("::mod").to_string()
}

/// Splits a tree of a `use`: `a::{b, c::{d, e}}` into `a::b`, `a::c::d`, `a::c::e`.
fn flatten(prefix: &str, tree: &str, found: &mut BTreeSet<String>) {
    let (mut depth, mut start) = (0_usize, 0);
    let mut parts = Vec::new();
    for (at, letter) in tree.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&tree[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&tree[start..]);
    for part in parts.into_iter().map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once('{') {
            Some((head, rest)) => {
                let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
                flatten(&format!("{prefix}{head}"), inner, found);
            }
            None => {
                found.insert(format!("{prefix}{}", part.split(" as ").next().unwrap_or_default()));
            }
        }
    }
}

/// Returns the paths that a file names: in its imports, and written out.
fn paths(source: &Source) -> BTreeSet<String> {
    let code = source.code.join(" ");
    let mut found = BTreeSet::new();
    for rest in code.split("use ").skip(1) {
        flatten("", rest.split(';').next().unwrap_or_default(), &mut found);
    }
    let is_of_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    found.extend(
        code.split(|letter| !is_of_path(letter)).filter(|word| word.contains("::")).map(String::from),
    );
    found
}

/// Returns the module that a path in a file refers to, if it is one of this crate.
fn target(from: &str, path: &str, edges: &Edges) -> Option<String> {
    let (mut up, mut rest) = (from.split("::").collect::<Vec<_>>(), path);
    if let Some(absolute) = rest.strip_prefix("crate::") {
        (up, rest) = (Vec::new(), absolute);
    } else if rest.starts_with("super::") {
        while let Some(above) = rest.strip_prefix("super::") {
            up.pop();
            rest = above;
        }
    } else if let Some(own) = rest.strip_prefix("self::") {
        rest = own;
    } else {
        return None;
    }
    up.extend(rest.split("::"));
    (1..=up.len()).rev().map(|length| up[..length].join("::")).find(|module| edges.contains_key(module))
}

#[test]
fn files_of_a_room_have_no_import_cycle() {
    let sources = sources();
    let mut edges: Edges = sources.iter().map(|source| (module(source), BTreeSet::new())).collect();
    for source in &sources {
        let from = module(source);
        let is_within = |one: &str, other: &str| one == other || one.starts_with(&format!("{other}::"));
        let named: BTreeSet<String> = paths(source)
            .iter()
            .filter_map(|path| target(&from, path, &edges))
            .filter(|to| !is_within(to, &from) && !is_within(&from, to))
            .collect();
        edges.insert(from, named);
    }
    assert!(edges.values().map(BTreeSet::len).sum::<usize>() > 500, "the imports are found");
    // A file without imports is in no cycle, and neither is a file that no other imports.
    loop {
        let known: BTreeSet<String> = edges.keys().cloned().collect();
        let reached: BTreeSet<String> = edges.values().flatten().cloned().collect();
        edges.retain(|from, to| {
            to.retain(|to| known.contains(to));
            !to.is_empty() && reached.contains(from)
        });
        if edges.len() == known.len() {
            break;
        }
    }
    assert!(edges.is_empty(), "import cycles: {edges:#?}");
}

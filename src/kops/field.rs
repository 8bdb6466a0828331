//! The fields of a document, with the paths by which people and the table of rules name them.

use crate::wire::yaml::{Node, Yaml};

/// A step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    /// The key of a map; of an item, its `name`, or its number if it has no name.
    pub text: String,
    pub is_item: bool,
}

/// A field of a document.
#[derive(Debug, Clone)]
pub(super) struct FieldNode {
    pub segments: Vec<Segment>,
    /// The key; for an item of a list, the item itself.
    pub key: Node,
    pub node: Node,
    /// The list or the map that contains the field.
    pub parent: Node,
    /// The path for people, and for `--set`: without `spec`, and with the group.
    pub path: String,
}

impl FieldNode {
    /// Returns whether this field is in another one, or is the other one.
    pub fn is_within(&self, other: &Self) -> bool {
        self.segments.starts_with(&other.segments)
    }

    /// Returns whether the value is a secret that is not printed.
    pub fn is_secret(&self) -> bool {
        const SECRETS: [&str; 6] = ["secret", "password", "token", "apikey", "content", "manifest"];
        let last = self.segments.last().map(|last| last.text.to_lowercase()).unwrap_or_default();
        SECRETS.iter().any(|secret| last.ends_with(secret))
            || self.segments.iter().any(|segment| segment.text == "environment" || segment.text == "env")
    }
}

/// Returns all fields below a document, parents before their fields.
pub(super) fn fields(yaml: &Yaml<'_>, root: Node, prefix: &str) -> Vec<FieldNode> {
    let mut found = Vec::new();
    walk(yaml, root, &[], prefix, &mut found);
    found
}

fn walk(yaml: &Yaml<'_>, parent: Node, above: &[Segment], prefix: &str, found: &mut Vec<FieldNode>) {
    let entries = yaml.entries(parent).into_iter().map(|(key, node)| {
        let text = yaml.scalar(key).unwrap_or_default().to_string();
        (Segment { text, is_item: false }, key, node)
    });
    let items = yaml.items(parent).iter().enumerate().map(|(number, node)| {
        let name = yaml.get(*node, "name").and_then(|name| yaml.scalar(name)).filter(|name| !name.is_empty());
        let text = name.map_or_else(|| number.to_string(), str::to_string);
        (Segment { text, is_item: true }, *node, *node)
    });
    for (segment, key, node) in entries.chain(items).collect::<Vec<_>>() {
        let mut segments = above.to_vec();
        segments.push(segment);
        let path = format!("{prefix}{}", shown(&segments));
        found.push(FieldNode { segments: segments.clone(), key, node, parent, path });
        walk(yaml, node, &segments, prefix, found);
    }
}

fn shown(segments: &[Segment]) -> String {
    let from = usize::from(segments.first().is_some_and(|first| first.text == "spec") && segments.len() > 1);
    let names: Vec<&str> = segments.iter().skip(from).map(|segment| segment.text.as_str()).collect();
    names.join(".")
}

/// Returns the keys and names that a pattern leaves open, if it matches a path. In a pattern, `[]` after a key means each item of
/// a list, `*` means each key of a map, and `~` a dot in a key.
pub(super) fn matched<'s>(pattern: &str, segments: &'s [Segment]) -> Option<Vec<&'s str>> {
    let mut open = Vec::new();
    let mut rest = segments.iter();
    for part in pattern.split('.') {
        let (key, is_list) = part.strip_suffix("[]").map_or((part, false), |key| (key, true));
        let segment = rest.next().filter(|segment| !segment.is_item)?;
        if key == "*" {
            open.push(segment.text.as_str());
        } else if key.replace('~', ".") != segment.text {
            return None;
        }
        if is_list {
            open.push(rest.next().filter(|segment| segment.is_item)?.text.as_str());
        }
    }
    rest.next().is_none().then_some(open)
}

/// Returns the path of a pattern for people, with the keys and names that it leaves open.
pub(super) fn rendered(pattern: &str, open: &[&str], prefix: &str) -> String {
    let mut open = open.iter();
    let mut parts = Vec::new();
    for part in pattern.strip_prefix("spec.").unwrap_or(pattern).split('.') {
        let (key, is_list) = part.strip_suffix("[]").map_or((part, false), |key| (key, true));
        let mut next = || (*open.next().unwrap_or(&"")).to_string();
        parts.push(if key == "*" { next() } else { key.to_string() });
        if is_list {
            parts.push(next());
        }
    }
    format!("{prefix}{}", parts.join("."))
}

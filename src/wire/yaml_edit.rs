//! Several changes to one YAML text. Every byte that no change concerns stays as it is, including comments, order and quotes.
//!
//! Each change is a patch of the text, and also a change of the values. [`YamlEdit::finish`] parses the new text, and compares its
//! values with the expected ones. So a patch that would also change another value is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::yaml::{Node, Notation, Yaml, YamlError};

/// Changes to a YAML text without anchors and aliases.
#[derive(Debug)]
pub struct YamlEdit<'y> {
    yaml: &'y Yaml<'y>,
    patches: Vec<(Range<usize>, String)>,
    values: BTreeMap<Node, String>,
    /// Keys of removed entries, and removed items of lists.
    removed: BTreeSet<Node>,
    added: BTreeMap<Node, Vec<(String, String)>>,
    /// Entries that another entry replaces, by their keys.
    replaced: BTreeMap<Node, (String, String)>,
}

/// A text with its changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedText {
    /// The new text.
    pub text: String,
    /// The patches, in order: the place in the old text, and the length in the new text.
    patches: Vec<(Range<usize>, usize)>,
}

impl EditedText {
    /// Returns the place in the old text of a place in the new text. A place in a patch is at the start of the patch.
    pub fn origin(&self, offset: usize) -> usize {
        let (mut old, mut new) = (0_usize, 0_usize);
        for (place, length) in &self.patches {
            let start = new.saturating_add(place.start.saturating_sub(old));
            if offset < start {
                break;
            }
            let end = start.saturating_add(*length);
            if offset < end {
                return place.start;
            }
            (old, new) = (place.end, end);
        }
        old.saturating_add(offset.saturating_sub(new))
    }
}

/// Values without their notation.
#[derive(Debug, PartialEq, Eq)]
enum Tree {
    Scalar(String),
    List(Vec<Tree>),
    Map(Vec<(Tree, Tree)>),
}

impl<'y> YamlEdit<'y> {
    /// Returns an edit without changes.
    pub fn new(yaml: &'y Yaml<'y>) -> Self {
        let (patches, values, removed) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        Self { yaml, patches, values, removed, added: BTreeMap::new(), replaced: BTreeMap::new() }
    }

    /// Returns whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.patches.is_empty() && self.removed.is_empty() && self.added.is_empty()
    }

    /// Returns whether an entry or an item is removed.
    pub fn is_removed(&self, key: Node) -> bool {
        self.removed.contains(&key)
    }

    /// Sets a scalar. Quotes stay; a plain value gets quotes if it needs them. `key` is the key of the value, if it has one.
    pub fn set(&mut self, key: Option<Node>, node: Node, value: &str) -> Result<(), YamlError> {
        let place = self.yaml.place(node);
        let refused = || YamlError::Written(self.yaml.scalar(node).unwrap_or_default().to_string());
        if self.yaml.scalar(node).is_none() || self.yaml.notation(node) == Notation::Block {
            return Err(refused());
        }
        if place.is_empty() {
            let colon = key.and_then(|key| self.after_colon(key)).ok_or_else(refused)?;
            self.patches.push((colon..colon, format!(" {}", written(Notation::Plain, value))));
        } else {
            self.patches.push((place, written(self.yaml.notation(node), value)));
        }
        self.values.insert(node, value.to_string());
        Ok(())
    }

    /// Changes the text of a scalar with a function, which can run on the written form and on the value.
    pub fn rewrite(&mut self, node: Node, change: &dyn Fn(&str) -> String) -> Result<(), YamlError> {
        let Some(value) = self.yaml.scalar(node) else { return Ok(()) };
        let wanted = change(value);
        let mut place = self.yaml.place(node);
        // The place of a block scalar reaches to the next key, which can have a patch of its own.
        place.end = self.end(node).max(place.start);
        let source = self.yaml.text().get(place.clone()).unwrap_or_default();
        let candidate = change(source);
        let notation = self.yaml.notation(node);
        let is_meant = |text: &str| {
            Yaml::parse(text).is_ok_and(|yaml| {
                yaml.documents().first().and_then(|node| yaml.scalar(*node)) == Some(wanted.as_str())
            })
        };
        // A block scalar has no meaning without its indicator, so `finish` checks it.
        let text = if notation == Notation::Block || is_meant(&candidate) {
            candidate
        } else {
            written(notation, &wanted)
        };
        self.patches.push((place, text));
        self.values.insert(node, wanted);
        Ok(())
    }

    /// Removes the entry of a key, or an item of a list.
    pub fn remove(&mut self, key: Node) {
        self.removed.insert(key);
    }

    /// Adds an entry to a map. `value` is YAML on one line.
    pub fn add(&mut self, map: Node, key: &str, value: &str) {
        self.added.entry(map).or_default().push((key.to_string(), value.to_string()));
    }

    /// Replaces an entry with another one. `value` is YAML on one line.
    pub fn replace_entry(&mut self, key: Node, value_node: Node, new: (&str, &str)) {
        let end = self.end(value_node).max(self.after_colon(key).unwrap_or_default());
        let range = self.yaml.place(key).start..end;
        self.patches.push((range, format!("{}: {}", new.0, new.1)));
        self.replaced.insert(key, (new.0.to_string(), new.1.to_string()));
    }

    /// Replaces a comment.
    pub fn set_comment(&mut self, place: Range<usize>, text: String) {
        self.patches.push((place, text));
    }

    /// Returns the changed text, after a check that only the meant values changed.
    pub fn finish(mut self) -> Result<EditedText, YamlError> {
        let mut cuts = Vec::new();
        for document in self.yaml.documents() {
            self.cut(*document, &mut cuts);
        }
        self.insert(&cuts);
        self.patches.retain(|(place, _)| {
            let is_in = |cut: &Range<usize>| {
                cut.start <= place.start && place.end <= cut.end && place.start < cut.end
            };
            !cuts.iter().any(|(cut, _)| is_in(cut))
        });
        self.patches.extend(cuts);
        self.patches.sort_by_key(|(place, _)| (place.start, place.end));
        let refused = || YamlError::Written("a value".to_string());
        let (mut text, mut from, mut patches) = (String::new(), 0, Vec::new());
        for (place, new) in &self.patches {
            text.push_str(self.yaml.text().get(from..place.start).ok_or_else(refused)?);
            text.push_str(new);
            patches.push((place.clone(), new.len()));
            from = place.end;
        }
        text.push_str(self.yaml.text().get(from..).ok_or_else(refused)?);
        let after = Yaml::parse(&text)?;
        let expected: Vec<Tree> = self.yaml.documents().iter().map(|node| self.expected(*node)).collect();
        let found: Vec<Tree> = after.documents().iter().map(|node| tree(&after, *node)).collect();
        match expected.iter().zip(&found).find_map(|(one, other)| difference(one, other)) {
            None if expected.len() == found.len() => Ok(EditedText { text, patches }),
            place => Err(YamlError::Written(place.unwrap_or_default())),
        }
    }

    /// Returns the byte after the colon of a key.
    fn after_colon(&self, key: Node) -> Option<usize> {
        let end = self.yaml.place(key).end;
        let rest = self.yaml.text().get(end..)?;
        Some(end.saturating_add(rest.find(':')?).saturating_add(1))
    }

    /// Returns where a value ends, without blanks.
    fn end(&self, node: Node) -> usize {
        let place = self.yaml.place(node);
        let before = self.yaml.text().get(..place.end).unwrap_or_default();
        before.trim_end().len().max(place.start.min(place.end))
    }

    fn line_start(&self, offset: usize) -> usize {
        let before = self.yaml.text().get(..offset).unwrap_or_default();
        before.rfind('\n').map_or(0, |end| end.saturating_add(1))
    }

    fn line_end(&self, offset: usize) -> usize {
        let rest = self.yaml.text().get(offset..).unwrap_or_default();
        rest.find('\n').map_or(self.yaml.text().len(), |end| offset.saturating_add(end).saturating_add(1))
    }

    /// Collects the places to cut below a value.
    fn cut(&self, node: Node, cuts: &mut Vec<(Range<usize>, String)>) {
        let entries = self.yaml.entries(node);
        let parts: Vec<(Node, Node)> = if self.yaml.is_map(node) {
            entries
        } else {
            self.yaml.items(node).iter().map(|item| (*item, *item)).collect()
        };
        for (key, value) in &parts {
            if !self.removed.contains(key) {
                self.cut(*value, cuts);
            }
        }
        if parts.iter().all(|(key, _)| !self.removed.contains(key)) {
            return;
        }
        let Some(kept) = parts.iter().position(|(key, _)| !self.removed.contains(key)) else {
            cuts.push(self.emptied(node));
            return;
        };
        let is_flow = self.yaml.notation(node) == Notation::Flow;
        let first_kept = parts.get(kept).map_or(0, |(key, _)| self.part_start(node, *key));
        let first = parts.first().map_or(0, |(key, _)| self.part_start(node, *key));
        let is_at_line_start = self.text_is_blank(self.line_start(first), first);
        let starts_at_line = !is_flow && is_at_line_start;
        if kept > 0 && !starts_at_line {
            cuts.push((first..first_kept, String::new()));
        }
        let from = if starts_at_line { 0 } else { kept };
        let mut before = 0;
        for (key, value) in parts.iter().skip(from) {
            let end = self.end(*value).max(self.yaml.place(*key).end);
            if self.removed.contains(key) {
                let range = if is_flow {
                    before..end
                } else {
                    self.line_start(self.part_start(node, *key))..self.line_end(end)
                };
                cuts.push((range, String::new()));
            }
            before = end;
        }
    }

    /// Returns the patch that leaves nothing of a list or a map.
    fn emptied(&self, node: Node) -> (Range<usize>, String) {
        let empty = if self.yaml.is_map(node) { "{}" } else { "[]" };
        let (start, end) = (self.yaml.place(node).start, self.end(node));
        if self.yaml.notation(node) == Notation::Flow {
            return (start..end, empty.to_string());
        }
        let first = self.yaml.items(node).first().copied();
        let start = first.map_or(start, |first| self.part_start(node, first));
        let before = self.yaml.text().get(..start).unwrap_or_default().trim_end().len();
        let is_comment =
            self.yaml.comments().iter().any(|comment| comment.start < before && before <= comment.end);
        // An item of a list can have the column of the key above, where brackets are not allowed.
        if is_comment { (start..end, format!("  {empty}")) } else { (before..end, format!(" {empty}")) }
    }

    /// Returns where an entry or an item starts. An item of an indented list starts with its dash.
    fn part_start(&self, parent: Node, key: Node) -> usize {
        let start = self.yaml.place(key).start;
        if self.yaml.is_map(parent) || self.yaml.notation(parent) == Notation::Flow {
            return start;
        }
        let before = self.yaml.text().get(..start).unwrap_or_default();
        before.rfind('-').unwrap_or(start)
    }

    fn text_is_blank(&self, from: usize, to: usize) -> bool {
        self.yaml.text().get(from..to).is_some_and(|text| text.trim().is_empty())
    }

    /// Adds the patches of added entries.
    fn insert(&mut self, cuts: &[(Range<usize>, String)]) {
        let line_end = if self.yaml.text().contains("\r\n") { "\r\n" } else { "\n" };
        let mut patches = Vec::new();
        for (map, entries) in &self.added {
            let text: Vec<String> = entries.iter().map(|(key, value)| format!("{key}: {value}")).collect();
            let kept = self.yaml.entries(*map).into_iter().find(|(key, _)| !self.removed.contains(key));
            let (start, patch) = match (self.yaml.notation(*map), kept) {
                (Notation::Flow, None) => (self.yaml.place(*map).start.saturating_add(1), text.join(", ")),
                (Notation::Flow, Some((key, _))) => (self.yaml.place(key).start, text.join(", ") + ", "),
                (_, Some((key, _))) => {
                    let start = self.yaml.place(key).start;
                    let column = start.saturating_sub(self.line_start(start));
                    let next = format!("{line_end}{}", " ".repeat(column));
                    (start, text.join(&next) + &next)
                }
                (_, None) => continue,
            };
            if cuts.iter().all(|(cut, _)| !(cut.start <= start && start < cut.end)) {
                patches.push((start..start, patch));
            }
        }
        self.patches.extend(patches);
    }

    /// Returns the values after the changes.
    fn expected(&self, node: Node) -> Tree {
        if let Some(value) = self.values.get(&node) {
            return Tree::Scalar(value.clone());
        }
        if let Some(value) = self.yaml.scalar(node) {
            return Tree::Scalar(value.to_string());
        }
        if !self.yaml.is_map(node) {
            let items = self.yaml.items(node).iter().filter(|item| !self.removed.contains(item));
            return Tree::List(items.map(|item| self.expected(*item)).collect());
        }
        let new = |(key, value): &(String, String)| (Tree::Scalar(key.clone()), parsed(value));
        let mut entries: Vec<(Tree, Tree)> = self.added.get(&node).into_iter().flatten().map(new).collect();
        for (key, value) in self.yaml.entries(node) {
            if let Some(entry) = self.replaced.get(&key) {
                entries.push(new(entry));
            } else if !self.removed.contains(&key) {
                entries.push((self.expected(key), self.expected(value)));
            }
        }
        Tree::Map(entries)
    }
}

/// Returns a text as a YAML value on one line, with quotes if it needs them.
pub fn plain_or_quoted(value: &str) -> String {
    written(Notation::Plain, value)
}

/// Returns the form of a scalar in a notation.
fn written(notation: Notation, value: &str) -> String {
    let is_safe = |letter: char| letter.is_ascii_alphanumeric() || "-._/+=:".contains(letter);
    let is_plain = value.chars().all(is_safe)
        && value.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '/')
        && !value.ends_with(':');
    match notation {
        Notation::Plain if is_plain => value.to_string(),
        Notation::Double => serde_json::Value::from(value).to_string(),
        _ => format!("'{}'", value.replace('\'', "''")),
    }
}

fn parsed(text: &str) -> Tree {
    match Yaml::parse(text) {
        Ok(yaml) => yaml.documents().first().map_or(Tree::Scalar(String::new()), |node| tree(&yaml, *node)),
        Err(_) => Tree::Scalar(text.to_string()),
    }
}

fn tree(yaml: &Yaml<'_>, node: Node) -> Tree {
    if let Some(value) = yaml.scalar(node) {
        return Tree::Scalar(value.to_string());
    }
    if yaml.is_map(node) {
        let entries = yaml.entries(node).into_iter();
        return Tree::Map(entries.map(|(key, value)| (tree(yaml, key), tree(yaml, value))).collect());
    }
    Tree::List(yaml.items(node).iter().map(|item| tree(yaml, *item)).collect())
}

/// Returns the first value that differs: the last key of its path.
fn difference(one: &Tree, other: &Tree) -> Option<String> {
    match (one, other) {
        (one, other) if one == other => None,
        (Tree::Map(one), Tree::Map(other)) if one.len() == other.len() => {
            let mut pairs = one.iter().zip(other);
            pairs.find_map(|((key, value), (other_key, other_value))| {
                let name = match key {
                    Tree::Scalar(name) => name.clone(),
                    _ => "a key".to_string(),
                };
                if key != other_key {
                    return Some(name);
                }
                let inner = difference(value, other_value)?;
                Some(if inner.is_empty() { name } else { inner })
            })
        }
        (Tree::List(one), Tree::List(other)) if one.len() == other.len() => {
            one.iter().zip(other).find_map(|(one, other)| difference(one, other))
        }
        _ => Some(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "# head\nmetadata:\n  creationTimestamp: \"2019\"  # old\n  generation: 3\n  name: a.example.com # the name\nspec:\n  \
        subnets:\n  - id: subnet-1\n    name: one\n    egress: nat-1\n\n    # below\n    cidr: 10.0.0.0/24\n  - {name: 'two', id: subnet-2, cidr: \"10.0.1.0/24\"}\n  \
        networking:\n    weave:\n      mtu: 8912\n  empty:\n  only:\n    key: value\n  script: |\n    echo a.example.com\n\n  end: 1\n";

    fn edited(text: &str, change: impl Fn(&mut YamlEdit<'_>, &Yaml<'_>)) -> Result<EditedText, YamlError> {
        let yaml = Yaml::parse(text).unwrap();
        let mut edit = YamlEdit::new(&yaml);
        change(&mut edit, &yaml);
        edit.finish()
    }

    fn entry(yaml: &Yaml<'_>, path: &[&str]) -> (Node, Node) {
        let (last, parents) = path.split_last().unwrap();
        let parent = parents.iter().fold(yaml.documents()[0], |node, key| match key.parse::<usize>() {
            Ok(index) => yaml.items(node)[index],
            Err(_) => yaml.get(node, key).unwrap(),
        });
        let mut entries = yaml.entries(parent).into_iter();
        entries.find(|(key, _)| yaml.scalar(*key) == Some(last)).unwrap()
    }

    #[test]
    fn entries_are_removed_in_every_notation() {
        for text in [TEXT.to_string(), TEXT.replace('\n', "\r\n")] {
            let after = edited(&text, |edit, yaml| {
                for path in [
                    &["metadata", "creationTimestamp"][..],
                    &["metadata", "generation"],
                    &["spec", "subnets", "0", "id"],
                    &["spec", "subnets", "0", "egress"],
                    &["spec", "subnets", "1", "id"],
                    &["spec", "only", "key"],
                ] {
                    edit.remove(entry(yaml, path).0);
                }
            })
            .unwrap();
            let line_end = if text.contains('\r') { "\r\n" } else { "\n" };
            let expected = TEXT
                .replace("  creationTimestamp: \"2019\"  # old\n  generation: 3\n", "")
                .replace("- id: subnet-1\n    name", "- name")
                .replace("    egress: nat-1\n", "")
                .replace(", id: subnet-2", "")
                .replace("only:\n    key: value\n", "only: {}\n");
            assert_eq!(after.text, expected.replace('\n', line_end));
        }
    }

    #[test]
    fn entries_are_set_added_and_replaced() {
        let after = edited(TEXT, |edit, yaml| {
            let (key, node) = entry(yaml, &["spec", "empty"]);
            edit.set(Some(key), node, "s3://x/y").unwrap();
            let (_, node) = entry(yaml, &["spec", "subnets", "1", "cidr"]);
            edit.set(None, node, "10.1.1.0/24").unwrap();
            let (_, node) = entry(yaml, &["spec", "end"]);
            edit.set(None, node, "a: b").unwrap();
            let (key, node) = entry(yaml, &["spec", "networking", "weave"]);
            edit.replace_entry(key, node, ("cilium", "{}"));
            let (_, node) = entry(yaml, &["spec", "script"]);
            edit.rewrite(node, &|text| text.replace("a.example", "b.example")).unwrap();
            let item = yaml.items(entry(yaml, &["spec", "subnets"]).1)[0];
            edit.add(item, "id", "subnet-9");
            edit.remove(entry(yaml, &["spec", "subnets", "0", "id"]).0);
        });
        let expected = TEXT
            .replace("empty:", "empty: s3://x/y")
            .replace("10.0.1.0/24", "10.1.1.0/24")
            .replace("end: 1", "end: 'a: b'")
            .replace("weave:\n      mtu: 8912", "cilium: {}")
            .replace("echo a.", "echo b.")
            .replace("- id: subnet-1\n", "- id: subnet-9\n");
        assert_eq!(after.unwrap().text, expected);
    }

    #[test]
    fn origin_is_the_place_in_the_old_text() {
        let after = edited(TEXT, |edit, yaml| {
            edit.remove(entry(yaml, &["metadata", "generation"]).0);
            let (_, node) = entry(yaml, &["metadata", "name"]);
            edit.set(None, node, "a-much-longer-name.example.com").unwrap();
        })
        .unwrap();
        for word in ["# head", "# the name", "mtu", "end"] {
            assert_eq!(after.origin(after.text.find(word).unwrap()), TEXT.find(word).unwrap(), "{word}");
        }
        assert_eq!(after.origin(after.text.find("longer").unwrap()), TEXT.find("a.example").unwrap());
    }

    #[test]
    fn change_that_would_change_another_value_is_refused() {
        let after = edited("a: one # {\nb: >-\n  x\n  y\n", |edit, yaml| {
            let (_, node) = entry(yaml, &["b"]);
            edit.rewrite(node, &|text| text.replace("x y", "z")).unwrap();
        });
        assert_eq!(after, Err(YamlError::Written("b".to_string())));
    }
    proptest! {
        #[test]
        fn any_edit_is_made_or_refused(text in "[-a-c:\\[\\]{}#'\"|> ,\n]{0,40}", number in 0..6_usize, new in "[d:' #]{1,3}") {
            let Ok(yaml) = Yaml::parse(&text) else { return Ok(()) };
            let maps: Vec<Node> = (0..20).filter(|node| yaml.is_map(*node)).collect();
            let entries: Vec<(Node, Node)> = maps.iter().flat_map(|map| yaml.entries(*map)).collect();
            let Some((key, value)) = entries.get(number).copied() else { return Ok(()) };
            let mut edit = YamlEdit::new(&yaml);
            match number % 3 {
                0 => edit.remove(key),
                1 => edit.replace_entry(key, value, ("d", "{e: f}")),
                _ => drop(edit.set(Some(key), value, &new)),
            }
            if let Ok(after) = edit.finish() {
                prop_assert!(Yaml::parse(&after.text).is_ok());
                prop_assert!((0..=after.text.len()).all(|at| after.origin(at) <= text.len()));
            }
        }
    }
}

//! Shows what a plan changes, field by field: what the copy changes of the object of the source, what the mirror's API server adds, and
//! what changes in the mirror. Of Secrets, only the names of fields are shown.

use serde::Serialize;
use serde_json::{Map, Value};

use super::difference::Change;
use super::strip::declared;
use super::work::{Planned, Reference};

/// The differences of one planned object.
#[derive(Debug, Clone, Serialize)]
pub struct ContentDiff {
    /// The object, with its namespace in the source.
    #[serde(flatten)]
    pub object: Reference,
    /// Its action.
    pub action: Planned,
    /// What the copy changes of the object of the source: rules, and fields that belong to one cluster.
    pub copy: Vec<FieldDiff>,
    /// What the mirror's API server adds to the copy or changes in it: defaults, and changes of admission webhooks. Empty if there was no
    /// dry run.
    pub mirror: Vec<FieldDiff>,
    /// What changes in the object of the mirror. For a conflict: what would change.
    pub change: Vec<FieldDiff>,
}

impl ContentDiff {
    /// Returns an empty difference.
    pub(super) fn new(object: &Reference) -> Self {
        let (copy, mirror, change) = Default::default();
        Self { object: object.clone(), action: Planned::Same, copy, mirror, change }
    }

    /// Returns whether nothing differs.
    pub(super) fn is_empty(&self) -> bool {
        self.copy.is_empty() && self.mirror.is_empty() && self.change.is_empty()
    }

    /// Notes what the copy changes of the object of the source.
    pub(super) fn note_copy(&mut self, found: &Value, manifest: &Value) {
        self.copy = self.between(found, manifest);
    }

    /// Notes what the mirror's API server changes in the copy.
    pub(super) fn note_mirror(&mut self, manifest: &Value, tried: &Value) {
        self.mirror = self.between(manifest, tried);
    }

    /// Notes what an apply changes in the object of the mirror. `tried`: the result of the dry run; `None` if it was refused.
    pub(super) fn note_change(&mut self, live: &Value, tried: Option<&Value>, changes: &[Change]) {
        self.change = match tried {
            Some(tried) => self.between(live, tried),
            None => changes.iter().map(|change| self.of_change(change)).collect(),
        };
    }

    fn between(&self, from: &Value, to: &Value) -> Vec<FieldDiff> {
        let kind = &self.object.resource;
        let (from, to) = (declared(kind, from), declared(kind, to));
        let mut found = Vec::new();
        compare(Some(&from), Some(&to), "", &mut found);
        found.into_iter().map(|diff| self.shown(diff)).collect()
    }

    fn of_change(&self, change: &Change) -> FieldDiff {
        let path = change.path.iter().fold(String::new(), |path, name| field_path(&path, name));
        self.shown(FieldDiff { path, from: change.from.clone(), to: change.to.clone(), is_hidden: false })
    }

    /// Hides the values of a Secret.
    fn shown(&self, diff: FieldDiff) -> FieldDiff {
        if !self.object.is_secret() {
            return diff;
        }
        let hidden = |value: Option<Value>| value.map(|_| Value::Null);
        FieldDiff { from: hidden(diff.from), to: hidden(diff.to), is_hidden: true, ..diff }
    }
}

/// A field with two values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldDiff {
    /// The path, for example `spec.template.spec.containers[name=web].image`.
    pub path: String,
    /// The value before; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// The value after; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
    /// Whether the values are not shown, because they are of a Secret. Then `from` and `to` are `null` where there is a value.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_hidden: bool,
}

/// Longest value for people, in characters.
const LONGEST: usize = 120;

/// Formats the difference for people.
impl std::fmt::Display for FieldDiff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = &self.path;
        match (&self.from, &self.to) {
            (Some(_), Some(_)) if self.is_hidden => write!(f, "~ {path}: differs"),
            (None, Some(_)) if self.is_hidden => write!(f, "+ {path}"),
            (_, None) if self.is_hidden => write!(f, "- {path}"),
            (Some(Value::String(from)), Some(Value::String(to))) => {
                let (from, to) = part(from, to);
                write!(f, "~ {path}: {} -> {}", short(&from.into()), short(&to.into()))
            }
            (Some(from), Some(to)) => write!(f, "~ {path}: {} -> {}", short(from), short(to)),
            (None, Some(to)) => write!(f, "+ {path}: {}", short(to)),
            (Some(from), None) => write!(f, "- {path}: {}", short(from)),
            (None, None) => write!(f, "~ {path}"),
        }
    }
}

/// Returns the lines in which two texts differ: without their first and last lines that are equal.
fn part<'t>(from: &'t str, to: &'t str) -> (&'t str, &'t str) {
    let (mut from, mut to) = (from, to);
    while let (Some((one, rest)), Some((other, others))) = (from.split_once('\n'), to.split_once('\n'))
        && one == other
    {
        (from, to) = (rest, others);
    }
    while let (Some((rest, one)), Some((others, other))) = (from.rsplit_once('\n'), to.rsplit_once('\n'))
        && one == other
    {
        (from, to) = (rest, others);
    }
    (from, to)
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= LONGEST {
        return text;
    }
    text.chars().take(LONGEST).chain(['…']).collect()
}

/// Returns the path of a field. A name with other characters is quoted.
fn field_path(path: &str, name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(is_plain) {
        return format!("{path}[{}]", Value::from(name));
    }
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}

/// Finds the fields that differ. A `null` and an empty map are no value.
fn compare(from: Option<&Value>, to: Option<&Value>, path: &str, found: &mut Vec<FieldDiff>) {
    let (from, to) = (from.filter(|value| is_value(value)), to.filter(|value| is_value(value)));
    if from == to {
        return;
    }
    match (from, to) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            for name in names(one, other) {
                compare(one.get(name), other.get(name), &field_path(path, name), found);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => match items(one, other) {
            Some(pairs) => {
                for (key, from, to) in pairs {
                    compare(from, to, &format!("{path}[{key}]"), found);
                }
            }
            None => found.push(FieldDiff::of(path, from, to)),
        },
        (from, to) => found.push(FieldDiff::of(path, from, to)),
    }
}

impl FieldDiff {
    fn of(path: &str, from: Option<&Value>, to: Option<&Value>) -> Self {
        Self { path: path.to_string(), from: from.cloned(), to: to.cloned(), is_hidden: false }
    }
}

fn is_value(value: &Value) -> bool {
    !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty())
}

fn names<'m>(one: &'m Map<String, Value>, other: &'m Map<String, Value>) -> Vec<&'m String> {
    let added = other.keys().filter(|name| !one.contains_key(*name));
    one.keys().chain(added).collect()
}

/// An item of two lists: its key, and both values.
type Item<'v> = (String, Option<&'v Value>, Option<&'v Value>);

/// Returns the items of two lists in pairs: by `name` if every item has one, else by index. `None` if the lists are shown as a whole,
/// because items are no maps, or only their order differs.
fn items<'v>(one: &'v [Value], other: &'v [Value]) -> Option<Vec<Item<'v>>> {
    if !one.iter().chain(other).all(Value::is_object) {
        return None;
    }
    let by_name = |list: &'v [Value]| {
        let named = list.iter().map(|item| Some((item.get("name")?.as_str()?, item)));
        let named: Option<Vec<_>> = named.collect();
        let mut known = std::collections::BTreeSet::new();
        named.filter(|named| named.iter().all(|(name, _)| known.insert(*name)))
    };
    let (Some(one_named), Some(other_named)) = (by_name(one), by_name(other)) else {
        let indexes = 0..one.len().max(other.len());
        return Some(indexes.map(|index| (index.to_string(), one.get(index), other.get(index))).collect());
    };
    let find = |list: &[(&str, &'v Value)], name: &str| {
        list.iter().find(|(known, _)| *known == name).map(|(_, item)| *item)
    };
    let added = other_named.iter().filter(|(name, _)| find(&one_named, name).is_none());
    let pairs: Vec<Item<'v>> = (one_named.iter().chain(added))
        .map(|(name, _)| (format!("name={name}"), find(&one_named, name), find(&other_named, name)))
        .collect();
    pairs.iter().any(|(_, from, to)| from != to).then_some(pairs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn diff(resource: &str, from: &Value, to: &Value) -> Vec<String> {
        let object = Reference {
            resource: resource.to_string(),
            api_version: "v1".to_string(),
            kind: "Any".to_string(),
            namespace: None,
            name: "a".to_string(),
        };
        ContentDiff::new(&object).between(from, to).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn fields_are_named_with_both_values() {
        let from = json!({
            "metadata": {"name": "a", "uid": "1", "labels": {"app": "web"}},
            "spec": {"replicas": 4, "containers": [{"name": "web", "image": "a:1"}, {"name": "log", "image": "b"}],
                "rules": [{"host": "x"}], "ips": ["192.0.2.1"], "gone": true},
            "status": {"x": 1},
        });
        let to = json!({
            "metadata": {"name": "a", "labels": {"app": "web", "team.io/b": "c"}},
            "spec": {"replicas": 2, "containers": [{"name": "log", "image": "b"}, {"name": "web", "image": "c:1"}],
                "rules": [{"host": "x"}, {"host": "y"}], "ips": [], "empty": {}, "none": null},
        });
        let expected = [
            "+ metadata.labels[\"team.io/b\"]: \"c\"",
            "~ spec.containers[name=web].image: \"a:1\" -> \"c:1\"",
            "- spec.gone: true",
            "~ spec.ips: [\"192.0.2.1\"] -> []",
            "~ spec.replicas: 4 -> 2",
            "+ spec.rules[1]: {\"host\":\"y\"}",
        ];
        let mut shown: Vec<String> = diff("example.com/as", &from, &to);
        shown.sort_by(|one, other| one[2..].cmp(&other[2..]));
        assert_eq!(shown, expected);
    }

    #[test]
    fn order_of_a_list_is_a_difference() {
        let list = |names: [&str; 2]| json!({"env": names.map(|name| json!({"name": name}))});
        let found = diff("/pods", &list(["a", "b"]), &list(["b", "a"]));
        assert_eq!(
            found,
            ["~ env: [{\"name\":\"a\"},{\"name\":\"b\"}] -> [{\"name\":\"b\"},{\"name\":\"a\"}]"]
        );
    }

    #[test]
    fn only_lines_that_differ_are_shown() {
        let text = |line: &str| json!({"data": {"conf": format!("first\n{line}\nlast\n")}});
        let found = diff("/configmaps", &text("db.blue"), &text("db.green"));
        assert_eq!(found, ["~ data.conf: \"db.blue\" -> \"db.green\""]);
        let long = diff("/configmaps", &json!({}), &json!({"data": {"a": "x".repeat(500)}}));
        assert!(long.first().is_some_and(|line| line.len() < 200 && line.ends_with('…')), "{long:?}");
    }

    #[test]
    fn values_of_secrets_are_hidden() {
        let from = json!({"data": {"a": "c2VjcmV0", "b": "c2VjcmV0", "same": "x"}, "metadata": {"labels": {"l": "secret"}}});
        let to = json!({"data": {"a": "b3RoZXI=", "c": "c2VjcmV0", "same": "x"}, "metadata": {"labels": {"m": "secret"}}});
        let found = diff("/secrets", &from, &to);
        assert_eq!(
            found,
            ["~ data.a: differs", "- data.b", "+ data.c", "- metadata.labels.l", "+ metadata.labels.m"]
        );
    }
}

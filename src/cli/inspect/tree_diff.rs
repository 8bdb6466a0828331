//! Compares two trees, leaf by leaf.

use serde::Serialize;
use serde_json::Value as Json;

/// The difference in one field. If a side does not have the field, the value of this side is absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct FieldChange {
    /// Path of the field, for example `.spec.ports[0].port` or `.metadata.labels["k8s-app"]`.
    pub(super) path: String,
    /// The old value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) old: Option<Json>,
    /// The new value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) new: Option<Json>,
}

/// Paths of the API server's record of field managers. The record changes with every write and is long, so it is shown as one
/// difference without values. In protobuf the record is field 17 of ObjectMeta, which `proto/` omits.
const BOOK_KEEPING: [&str; 2] = [".metadata.managedFields", ".metadata.17"];

/// Returns the differences in the order of the old tree. In each object, fields that exist only in the new tree are last.
pub(super) fn compare(old: &Json, new: &Json) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    walk(String::new(), Some(old), Some(new), &mut changes);
    changes
}

fn walk(path: String, old: Option<&Json>, new: Option<&Json>, changes: &mut Vec<FieldChange>) {
    if old == new {
        return;
    }
    if BOOK_KEEPING.contains(&path.as_str()) {
        let path = ".metadata.managedFields".to_string();
        changes.push(FieldChange { path, old: None, new: None });
        return;
    }
    match (old, new) {
        (Some(Json::Object(before)), Some(Json::Object(after))) => {
            for (name, value) in before {
                walk(member(&path, name), Some(value), after.get(name), changes);
            }
            for (name, value) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
                walk(member(&path, name), None, Some(value), changes);
            }
        }
        (Some(Json::Array(before)), Some(Json::Array(after))) => {
            for index in 0..before.len().max(after.len()) {
                walk(format!("{path}[{index}]"), before.get(index), after.get(index), changes);
            }
        }
        _ => changes.push(FieldChange { path, old: old.cloned(), new: new.cloned() }),
    }
}

fn member(path: &str, name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain { format!("{path}.{name}") } else { format!("{path}[{}]", Json::from(name)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_have_their_path() {
        let old = json!({"a": [1, 2], "same": 1, "l": {"x/y": "1"}, "metadata": {"managedFields": [1]}});
        let new =
            json!({"a": [1, 3, 4], "same": 1, "l": {}, "metadata": {"managedFields": [2]}, "n": {"z": 1}});
        let lines: Vec<String> = compare(&old, &new)
            .into_iter()
            .map(|c| {
                format!("{} {:?} {:?}", c.path, c.old.map(|v| v.to_string()), c.new.map(|v| v.to_string()))
            })
            .collect();
        assert_eq!(
            lines,
            [
                r#".a[1] Some("2") Some("3")"#,
                r#".a[2] None Some("4")"#,
                r#".l["x/y"] Some("\"1\"") None"#,
                ".metadata.managedFields None None",
                r#".n None Some("{\"z\":1}")"#,
            ]
        );
    }
}

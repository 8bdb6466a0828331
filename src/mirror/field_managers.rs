//! The managers of fields (`metadata.managedFields`): which of them an adoption takes fields from, and how they get these fields back.
//! The sets of fields have the format of `FieldsV1` (`structured-merge-diff/fieldpath/serialize.go`).

use serde_json::{Map, Value, json};

use super::difference::{Change, MANAGER};

fn managers_of(object: &Value) -> &[Value] {
    object.pointer("/metadata/managedFields").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_own(entry: &Value) -> bool {
    entry["manager"] == MANAGER && entry["operation"] == "Update" && entry.get("subresource").is_none()
}

/// Returns the entries of `metadata.managedFields` of other managers, with only the fields at these paths.
pub(super) fn managers(live: &Value, changes: &[Change]) -> Vec<Value> {
    let of = |entry: &Value| {
        let owned = entry.get("fieldsV1")?.as_object()?;
        let mut kept = Map::new();
        for change in changes {
            if let Some(part) = part(owned, &change.path) {
                merge(&mut kept, &part);
            }
        }
        let mut entry = entry.clone();
        *entry.get_mut("fieldsV1")? = Value::Object(kept.clone());
        (!kept.is_empty()).then_some(entry)
    };
    managers_of(live).iter().filter(|entry| !is_own(entry)).filter_map(of).collect()
}

/// Returns the part of a set of fields that is at a path; `None` if the set has no such field.
fn part(owned: &Map<String, Value>, path: &[String]) -> Option<Map<String, Value>> {
    let (name, rest) = path.split_first()?;
    let key = format!("f:{name}");
    let below = owned.get(&key)?.as_object()?;
    let kept = if rest.is_empty() || below.is_empty() { below.clone() } else { part(below, rest)? };
    Some([(key, Value::Object(kept))].into_iter().collect())
}

fn merge(into: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (key, value) in more {
        let place = into.entry(key.clone()).or_insert_with(|| json!({}));
        if let (Some(place), Some(value)) = (place.as_object_mut(), value.as_object()) {
            merge(place, value);
        }
    }
}

fn remove(from: &mut Map<String, Value>, path: &[String]) {
    let Some((name, rest)) = path.split_first() else { return };
    let key = format!("f:{name}");
    let Some(below) = from.get_mut(&key).and_then(Value::as_object_mut) else { return };
    if !rest.is_empty() && !below.is_empty() {
        remove(below, rest);
        if below.keys().any(|key| key != ".") {
            return;
        }
    }
    from.remove(&key);
}

/// Returns the change of `metadata.managedFields` after which recorded managers own the fields at these paths again, and netsurgeon does not; `None`
/// if this is so already.
pub(super) fn restored(live: &Value, recorded: &[Value], paths: &[&[String]]) -> Option<Change> {
    let now = managers_of(live);
    let mut entries = now.to_vec();
    for own in entries.iter_mut().filter(|entry| is_own(entry)) {
        if let Some(owned) = own.get_mut("fieldsV1").and_then(Value::as_object_mut) {
            for path in paths {
                remove(owned, path);
            }
        }
    }
    entries
        .retain(|entry| !is_own(entry) || entry["fieldsV1"].as_object().is_some_and(|left| !left.is_empty()));
    for old in recorded {
        let is_same = |entry: &&mut Value| {
            ["manager", "operation", "apiVersion", "subresource"]
                .iter()
                .all(|key| entry.get(key) == old.get(key))
        };
        match entries.iter_mut().find(is_same) {
            Some(entry) => {
                let owned = entry.get_mut("fieldsV1").and_then(Value::as_object_mut);
                if let (Some(owned), Some(more)) = (owned, old["fieldsV1"].as_object()) {
                    merge(owned, more);
                }
            }
            None => entries.push(old.clone()),
        }
    }
    let path = vec!["metadata".to_string(), "managedFields".to_string()];
    (entries != now).then(|| Change { path, from: None, to: Some(Value::Array(entries)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, fields: impl Into<Value>) -> Value {
        let fields = fields.into();
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn object(entries: &[Value]) -> Value {
        json!({"metadata": {"managedFields": entries}})
    }

    fn change(path: &[&str]) -> Change {
        Change { path: path.iter().map(|name| (*name).to_string()).collect(), from: None, to: None }
    }

    #[test]
    fn managers_of_changed_fields_are_recorded() {
        let labels = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}, "f:b": {}}}, "f:data": {}});
        let live = object(&[
            entry("kubectl", labels),
            entry("other", json!({"f:spec": {}})),
            entry(MANAGER, json!({"f:data": {}})),
        ]);
        let found = managers(&live, &[change(&["metadata", "labels", "a"]), change(&["data", "x"])]);
        let expected = json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:data": {}});
        assert_eq!(found, [entry("kubectl", expected)]);
    }

    #[test]
    fn managers_own_their_fields_again() {
        let before = [entry("kubectl", json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}, "f:b": {}}}}))];
        let changes = [change(&["metadata", "labels", "a"]), change(&["metadata", "labels", "new"])];
        let recorded = managers(&object(&before), &changes);
        let after = [
            entry("kubectl", json!({"f:metadata": {"f:labels": {".": {}, "f:b": {}}}})),
            entry(MANAGER, json!({"f:metadata": {"f:labels": {"f:a": {}}}})),
        ];
        let paths: Vec<&[String]> = changes.iter().map(|change| change.path.as_slice()).collect();
        let found = restored(&object(&after), &recorded, &paths).unwrap();
        assert_eq!(found.to, Some(json!(before)));
        assert_eq!(restored(&object(&before), &recorded, &paths), None, "nothing is left to do");
        let gone = [entry(MANAGER, json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:data": {"f:x": {}}}))];
        let found = restored(&object(&gone), &recorded, &paths).unwrap();
        let own = entry(MANAGER, json!({"f:data": {"f:x": {}}}));
        assert_eq!(found.to, Some(json!([own, recorded[0]])), "an entry that disappeared comes back");
    }
}

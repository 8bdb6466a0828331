//! Compares a copy with an object of the mirror. Only the fields of the copy count, and the fields that netsurgeon applied before:
//! the API server adds defaults, and controllers add fields of their own.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A field with another value in the mirror.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The names of the fields from the root of the object. A list is one value.
    pub path: Vec<String>,
    /// The value in the mirror; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// The value of the copy; `None` if the copy does not have the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
}

impl Change {
    /// Returns the change back.
    pub(super) fn reversed(&self) -> Self {
        Self { path: self.path.clone(), from: self.to.clone(), to: self.from.clone() }
    }

    /// Returns the path as text, for example `spec.replicas`.
    pub fn field(&self) -> String {
        self.path.join(".")
    }
}

/// The field manager of the copies.
pub const MANAGER: &str = "netsurgeon-mirror";

/// The annotation of an object whose `managedFields` might not name netsurgeon. Contains the id of the operation.
pub(super) const CREATED_BY: &str = "mirror.netsurgeon.io/created-by";

/// Returns the fields of `live` that an apply of `copy` changes: fields with another value, and fields that an earlier apply of
/// netsurgeon set and the copy does not have. Where another client can have added something to a value, only a dry run shows
/// whether an apply changes it.
pub(super) fn changes(copy: &Value, live: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    compare(copy, Some(live), Owned::of(live), &mut Vec::new(), &mut found);
    if let Some(owned) = owned_fields(live) {
        dropped(owned, Some(copy), live, &mut Vec::new(), &mut found);
    }
    found
}

/// Which fields of a value netsurgeon owns in the mirror. Another client that changes an atomic value, such as a selector or most
/// lists, takes the whole value over (`x-kubernetes-map-type`, `x-kubernetes-list-type`).
#[derive(Clone, Copy)]
enum Owned<'v> {
    Nothing,
    Whole,
    /// The fields in the two entries of netsurgeon: of applies, and of other writes.
    Fields([Option<&'v Map<String, Value>>; 2]),
}

impl<'v> Owned<'v> {
    fn of(live: &'v Value) -> Self {
        let fields = |operation: &str| entry_of(live, operation)?.get("fieldsV1")?.as_object();
        Self::Fields([fields("Apply"), fields("Update")])
    }

    fn below(self, name: &str) -> Self {
        let Self::Fields(entries) = self else { return self };
        let key = format!("f:{name}");
        let found = entries.map(|entry| entry?.get(&key)?.as_object());
        match found {
            // Controllers add labels and annotations to any object.
            [None, None] if name == "metadata" => Self::Whole,
            [None, None] => Self::Nothing,
            found if found.iter().flatten().any(|fields| fields.is_empty()) => Self::Whole,
            found => Self::Fields(found),
        }
    }
}

/// Compares a value with the value in the mirror. A `null` is no difference.
fn compare(
    copy: &Value,
    live: Option<&Value>,
    owned: Owned<'_>,
    path: &mut Vec<String>,
    found: &mut Vec<Change>,
) {
    let is_foreign = matches!(owned, Owned::Nothing);
    match (copy, live) {
        (Value::Null, _) => {}
        // With more fields, an atomic value of another client means something else: a selector, or the rules of a NetworkPolicy.
        (copy, Some(live)) if is_foreign && contains(copy, live) && contains(live, copy) => {}
        (Value::Object(fields), Some(other @ Value::Object(others)))
            if !is_foreign || !contains(copy, other) =>
        {
            for (name, value) in fields {
                path.push(name.clone());
                compare(value, others.get(name), owned.below(name), path, found);
                path.pop();
            }
        }
        (copy, Some(live)) if !is_foreign && contains(copy, live) => {}
        (copy, live) => {
            found.push(Change { path: path.clone(), from: live.cloned(), to: Some(copy.clone()) });
        }
    }
}

/// Returns whether a value has every field of the copy. Lists have the same length and order.
fn contains(copy: &Value, live: &Value) -> bool {
    match (copy, live) {
        (Value::Null, _) => true,
        (Value::Object(fields), Value::Object(others)) => {
            fields.iter().all(|(name, value)| contains(value, others.get(name).unwrap_or(&Value::Null)))
        }
        (Value::Array(items), Value::Array(others)) => {
            items.len() == others.len() && items.iter().zip(others).all(|(one, other)| contains(one, other))
        }
        (copy, live) => copy == live,
    }
}

/// Returns whether a field of the mirror has the value of a copy. The API server can have added defaults.
pub(super) fn has_value(live: Option<&Value>, copy: Option<&Value>) -> bool {
    match (live, copy) {
        (Some(live), Some(copy)) => contains(copy, live),
        (None, None) => true,
        _ => false,
    }
}

/// Returns the entry of netsurgeon in `metadata.managedFields`: of its applies, or of its other writes if server-side apply refused
/// the object.
fn entry(live: &Value) -> Option<&Value> {
    entry_of(live, "Apply").or_else(|| entry_of(live, "Update"))
}

fn entry_of<'v>(live: &'v Value, operation: &str) -> Option<&'v Value> {
    live.pointer("/metadata/managedFields")?.as_array()?.iter().find(|entry| {
        entry["manager"] == MANAGER && entry["operation"] == operation && entry.get("subresource").is_none()
    })
}

fn owned_fields(live: &Value) -> Option<&Map<String, Value>> {
    entry(live)?.get("fieldsV1")?.as_object()
}

/// Returns whether `managedFields` say that netsurgeon wrote an object of the mirror.
pub(super) fn is_applied(live: &Value) -> bool {
    entry(live).is_some()
}

/// Finds the fields that netsurgeon owns in the mirror and the copy does not have. A list in which an item is missing is one value.
fn dropped(
    owned: &Map<String, Value>,
    copy: Option<&Value>,
    live: &Value,
    path: &mut Vec<String>,
    found: &mut Vec<Change>,
) {
    for (key, below) in owned {
        let Some(name) = key.strip_prefix("f:").filter(|name| *name != CREATED_BY) else { continue };
        let Some(value) = live.get(name) else { continue };
        let wanted = copy.and_then(|copy| copy.get(name));
        path.push(name.to_string());
        match (wanted, below.as_object()) {
            (None, below) if below.is_none_or(Map::is_empty) => {
                found.push(Change { path: path.clone(), from: Some(value.clone()), to: None });
            }
            (_, Some(below)) if below.keys().any(|key| !key.starts_with("f:") && key != ".") => {
                let is_whole =
                    |wanted: &Value| below.iter().all(|(key, owned)| keeps_item(key, owned, wanted, value));
                let is_known = found.iter().any(|change| change.path == *path);
                if !wanted.is_some_and(is_whole) && !is_known {
                    found.push(Change { path: path.clone(), from: Some(value.clone()), to: wanted.cloned() });
                }
            }
            (wanted, Some(below)) => dropped(below, wanted, value, path, found),
            (_, None) => {}
        }
        path.pop();
    }
}

/// Returns whether the list of a copy has an item of the mirror's list that netsurgeon owns, with every owned field of the item.
/// `key` describes the item in `fieldsV1`: `k:{"name":"a"}` or `v:"a"`.
fn keeps_item(key: &str, owned: &Value, copy: &Value, live: &Value) -> bool {
    if let Some(value) = key.strip_prefix("v:") {
        let Ok(value) = serde_json::from_str::<Value>(value) else { return true };
        return copy.as_array().is_some_and(|items| items.contains(&value));
    }
    let Some(fields) = key.strip_prefix("k:") else { return true };
    let Ok(Value::Object(fields)) = serde_json::from_str(fields) else { return true };
    let item = |list: &'_ Value| {
        let is_it = |item: &&Value| {
            // A key field can be missing in the item if it has the default value, such as `protocol: TCP`.
            fields.iter().all(|(name, value)| item.get(name).is_none_or(|found| found == value))
        };
        list.as_array().and_then(|items| items.iter().find(is_it)).cloned()
    };
    let (Some(copy), live) = (item(copy), item(live)) else { return false };
    let (Some(live), Some(owned)) = (live, owned.as_object()) else { return true };
    let mut found = Vec::new();
    dropped(owned, Some(&copy), &live, &mut Vec::new(), &mut found);
    found.is_empty()
}

/// Returns whether two objects are equal, apart from what every write changes.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for name in ["managedFields", "resourceVersion", "generation"] {
                metadata.remove(name);
            }
        }
        object
    };
    bare(one) == bare(other)
}

/// Sets or removes a field of an object.
pub(super) fn set(object: &mut Value, path: &[String], value: Option<&Value>) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut place = object;
    for name in parents {
        let Some(map) = place.as_object_mut() else { return };
        if value.is_none() && !map.contains_key(name) {
            return;
        }
        place = map.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()));
    }
    let Some(map) = place.as_object_mut() else { return };
    match value {
        Some(value) => drop(map.insert(last.clone(), value.clone())),
        None => drop(map.remove(last)),
    }
}

/// Returns the value of a field.
pub(super) fn get<'v>(object: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(object, |place, name| place.get(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(copy: &Value, live: &Value) -> Vec<String> {
        changes(copy, live).iter().map(Change::field).collect()
    }

    #[test]
    fn only_fields_of_the_copy_count() {
        let copy = json!({"spec": {"replicas": 2, "ports": [{"port": 80}], "selector": null}});
        let owned = json!({"f:spec": {"f:replicas": {}, "f:ports": {}}});
        for (live, expected) in [
            (json!({"spec": {"replicas": 2, "ports": [{"port": 80, "protocol": "TCP"}], "x": 1}}), vec![]),
            (json!({"spec": {"replicas": 3, "ports": [{"port": 80}]}}), vec!["spec.replicas"]),
            (json!({"spec": {"replicas": 2, "ports": [{"port": 80}, {"port": 81}]}}), vec!["spec.ports"]),
            (json!({"spec": {"replicas": 2, "ports": [{"port": 81}]}}), vec!["spec.ports"]),
            (json!({"spec": {"replicas": 2}}), vec!["spec.ports"]),
            (json!({}), vec!["spec"]),
        ] {
            assert_eq!(fields(&copy, &applied(live.clone(), &owned)), expected, "{live}");
        }
    }

    /// Another client has changed the copy, or created the object.
    #[test]
    fn atomic_value_of_another_client_is_a_difference() {
        let selector = json!({"app": "web"});
        let copy = json!({"metadata": {"name": "a", "labels": {"x": "1"}},
                          "spec": {"selector": selector, "egress": [{}], "podSelector": {}, "type": "A"}});
        let owned = json!({"f:metadata": {"f:labels": {".": {}, "f:x": {}}},
                           "f:spec": {"f:selector": {}, "f:egress": {}, "f:podSelector": {}, "f:type": {}}});
        let live = |change: &dyn Fn(&mut Value), owned: &Value| {
            let mut live = copy.clone();
            change(&mut live);
            let metadata = live["metadata"].clone();
            let mut live = applied(live, owned);
            live["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
            live
        };
        let without = |name: &str| {
            let mut owned = owned.clone();
            owned["f:spec"].as_object_mut().unwrap().remove(name);
            owned
        };
        assert_eq!(
            fields(&copy, &live(&|_| {}, &json!({}))),
            Vec::<String>::new(),
            "equal values are no difference"
        );
        for (field, taken, more) in [
            ("selector", "f:selector", json!({"app": "web", "track": "canary"})),
            ("egress", "f:egress", json!([{"ports": [{"port": 53}]}])),
            ("podSelector", "f:podSelector", json!({"matchLabels": {"a": "b"}})),
        ] {
            let change = |live: &mut Value| live["spec"][field] = more.clone();
            assert_eq!(fields(&copy, &live(&change, &without(taken))), [format!("spec.{field}")]);
            assert_eq!(
                fields(&copy, &live(&change, &owned)),
                Vec::<String>::new(),
                "a default of the mirror"
            );
            assert_eq!(fields(&copy, &live(&change, &json!({}))), ["spec"], "an object of another client");
        }
        let labels = |live: &mut Value| live["metadata"]["labels"]["y"] = json!("2");
        assert_eq!(
            fields(&copy, &live(&labels, &json!({}))),
            Vec::<String>::new(),
            "a label of a controller"
        );
    }

    fn applied(object: Value, owned: &Value) -> Value {
        let mut object = object;
        object["metadata"] = json!({"managedFields": [
            {"manager": "other", "operation": "Update", "fieldsV1": {"f:data": {"f:theirs": {}}}},
            {"manager": MANAGER, "operation": "Apply", "fieldsV1": owned},
        ]});
        object
    }

    #[test]
    fn fields_that_the_source_dropped_are_removed() {
        let live = applied(
            json!({"data": {"a": "1", "b": "2", "theirs": "3"}}),
            &json!({"f:data": {"f:a": {}, "f:b": {}}}),
        );
        assert_eq!(fields(&json!({"data": {"a": "1"}}), &live), ["data.b"]);
        assert_eq!(fields(&json!({"data": {"a": "1", "b": "2"}}), &live), Vec::<String>::new());
        assert_eq!(fields(&json!({}), &live), ["data.a", "data.b"]);
        let ports = json!([{"port": 80, "protocol": "TCP"}, {"port": 81, "protocol": "TCP"}]);
        let owned = |port: &str| json!({"f:spec": {"f:ports": {port: {".": {}, "f:port": {}}}}});
        let live =
            applied(json!({"spec": {"ports": ports.clone()}}), &owned(r#"k:{"port":82,"protocol":"TCP"}"#));
        assert_eq!(fields(&json!({"spec": {"ports": ports.clone()}}), &live), ["spec.ports"]);
        let live =
            applied(json!({"spec": {"ports": ports.clone()}}), &owned(r#"k:{"port":81,"protocol":"TCP"}"#));
        assert_eq!(fields(&json!({"spec": {"ports": ports}}), &live), Vec::<String>::new());
        let containers = json!([{"name": "a", "command": ["x"], "image": "i"}]);
        let owned = json!({"f:spec": {"f:containers": {r#"k:{"name":"a"}"#: {".": {}, "f:name": {}, "f:image": {}, "f:command": {}}}}});
        let live = applied(json!({"spec": {"containers": containers.clone()}}), &owned);
        assert_eq!(fields(&json!({"spec": {"containers": containers}}), &live), Vec::<String>::new());
        let without = json!([{"name": "a", "image": "i"}]);
        assert_eq!(fields(&json!({"spec": {"containers": without}}), &live), ["spec.containers"]);
    }

    #[test]
    fn object_is_written_only_by_its_manager() {
        assert!(is_applied(&applied(json!({}), &json!({}))));
        let written = |manager: &str| json!({"metadata": {"managedFields": [{"manager": manager, "operation": "Update"}]}});
        assert!(is_applied(&written(MANAGER)), "server-side apply refused the object");
        assert!(!is_applied(&written("kubectl-edit")));
        assert!(!is_applied(&json!({"metadata": {"labels": {"manager": MANAGER}}})));
    }

    #[test]
    fn changes_are_reversible() {
        let copy = json!({"data": {"a": "2", "c": "3"}, "spec": {"x": {"y": 1}}});
        let live = json!({"data": {"a": "1", "b": "0"}});
        let mut object = live.clone();
        let found = changes(&copy, &live);
        for change in &found {
            set(&mut object, &change.path, change.to.as_ref());
        }
        assert_eq!(object, json!({"data": {"a": "2", "b": "0", "c": "3"}, "spec": {"x": {"y": 1}}}));
        for change in &found {
            assert_eq!(get(&object, &change.path), change.to.as_ref());
            set(&mut object, &change.path, change.from.as_ref());
        }
        assert_eq!(object, live);
    }
}

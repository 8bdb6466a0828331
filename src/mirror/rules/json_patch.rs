//! JSON patches (RFC 6902) and merge patches (RFC 7396). An error contains no value of the patched object.

use serde_json::{Map, Value};

/// The index of the operation, if there is one, and the reason.
pub(in crate::mirror) type PatchFault = (Option<usize>, String);

/// Checks a patch without an object.
pub(in crate::mirror) fn check_patch(patch: &Value) -> Result<(), PatchFault> {
    for (index, operation) in patch.as_array().into_iter().flatten().enumerate() {
        let fault = |reason: &str| Err((Some(index), reason.to_string()));
        let text = |field: &str| operation.get(field).and_then(Value::as_str);
        let is_pointer = |text: &str| text.is_empty() || text.starts_with('/');
        if !text("path").is_some_and(is_pointer) {
            return fault("`path` is no JSON pointer: it does not start with `/`");
        }
        match text("op") {
            Some("add" | "replace" | "test") if operation.get("value").is_none() => {
                return fault("this operation needs `value`");
            }
            Some("move" | "copy") if !text("from").is_some_and(is_pointer) => {
                return fault("this operation needs `from`, a JSON pointer");
            }
            Some("add" | "replace" | "test" | "move" | "copy" | "remove") => {}
            _ => return fault("`op` is unknown"),
        }
    }
    Ok(())
}

/// Applies a patch: a list is a JSON patch, and any other value a merge patch. If an operation fails, the object is not changed.
pub(super) fn apply_patch(object: &mut Value, patch: &Value) -> Result<(), PatchFault> {
    let Some(operations) = patch.as_array() else {
        merge(object, patch);
        return Ok(());
    };
    let mut copy = object.clone();
    for (index, operation) in operations.iter().enumerate() {
        run(&mut copy, operation).map_err(|reason| (Some(index), reason))?;
    }
    *object = copy;
    Ok(())
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (name, value) in fields {
        if value.is_null() {
            map.remove(name);
        } else {
            merge(map.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

fn run(object: &mut Value, operation: &Value) -> Result<(), String> {
    let text = |field: &str| operation.get(field).and_then(Value::as_str).unwrap_or_default();
    let (path, from) = (text("path"), text("from"));
    let value = || operation.get("value").cloned().unwrap_or_default();
    match text("op") {
        "add" => add(object, path, value()),
        "remove" => remove(object, path).map(drop),
        "replace" => {
            *object.pointer_mut(path).ok_or_else(|| missing(path))? = value();
            Ok(())
        }
        "copy" => {
            let found = object.pointer(from).cloned().ok_or_else(|| missing(from))?;
            add(object, path, found)
        }
        "move" if path.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) => {
            Err(format!("`{from}` cannot be moved into itself"))
        }
        "move" => {
            let found = remove(object, from)?;
            add(object, path, found)
        }
        "test" if object.pointer(path).is_some_and(|found| is_equal(found, &value())) => Ok(()),
        "test" => Err(format!("`{path}` does not have the value of the test")),
        other => Err(format!("the operation `{other}` is unknown")),
    }
}

/// Compares values as RFC 6902 requires: numbers by their value.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| is_equal(one, other)))
        }
        (one, other) => one == other,
    }
}

fn missing(path: &str) -> String {
    format!("there is no `{path}`")
}

fn split(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

/// Parses the index of an item. A number has no sign and no leading zero.
fn index(text: &str) -> Option<usize> {
    let is_index = text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
    is_index.then(|| text.parse().ok()).flatten()
}

fn add(object: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let Some((parent, last)) = split(path) else {
        *object = value;
        return Ok(());
    };
    match object.pointer_mut(parent) {
        Some(Value::Object(map)) => drop(map.insert(last, value)),
        Some(Value::Array(items)) => {
            let at = if last == "-" { Some(items.len()) } else { index(&last) };
            let at = at.filter(|at| *at <= items.len()).ok_or_else(|| missing(path))?;
            items.insert(at, value);
        }
        _ => return Err(missing(parent)),
    }
    Ok(())
}

fn remove(object: &mut Value, path: &str) -> Result<Value, String> {
    let (parent, last) = split(path).ok_or_else(|| "the whole object cannot be removed".to_string())?;
    match object.pointer_mut(parent) {
        Some(Value::Object(map)) => map.remove(&last).ok_or_else(|| missing(path)),
        Some(Value::Array(items)) => {
            let at = index(&last).filter(|at| *at < items.len()).ok_or_else(|| missing(path))?;
            Ok(items.remove(at))
        }
        _ => Err(missing(path)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Examples of RFC 6902, appendix A, and RFC 7396, section 3.
    #[test]
    fn examples_of_the_standards() {
        let one = |op: &str, path: &str, value: Value| json!([{"op": op, "path": path, "value": value}]);
        let moved = |op: &str, from: &str, path: &str| json!([{"op": op, "path": path, "from": from}]);
        for (object, patch, expected) in [
            (
                json!({"foo": "bar"}),
                one("add", "/baz", json!("qux")),
                Some(json!({"foo": "bar", "baz": "qux"})),
            ),
            (
                json!({"foo": ["a", "b"]}),
                one("add", "/foo/1", json!("x")),
                Some(json!({"foo": ["a", "x", "b"]})),
            ),
            (json!({"foo": ["a"]}), one("add", "/foo/-", json!("x")), Some(json!({"foo": ["a", "x"]}))),
            (json!({"foo": ["a"]}), one("add", "/foo/2", json!("x")), None),
            (json!({"foo": ["a"]}), one("add", "/foo/01", json!("x")), None),
            (json!({"foo": 1, "baz": 2}), json!([{"op": "remove", "path": "/baz"}]), Some(json!({"foo": 1}))),
            (json!({"foo": 1}), json!([{"op": "remove", "path": "/baz"}]), None),
            (json!({"foo": 1}), one("replace", "/foo", json!(2)), Some(json!({"foo": 2}))),
            (json!({"foo": 1}), one("replace", "/baz", json!(2)), None),
            (
                json!({"a": {"b": 1}, "c": {}}),
                moved("move", "/a/b", "/c/d"),
                Some(json!({"a": {}, "c": {"d": 1}})),
            ),
            (json!({"a": {"b": 1}}), moved("move", "/a", "/a/b"), None),
            (json!({"a": [1, 2, 3]}), moved("move", "/a/0", "/a/2"), Some(json!({"a": [2, 3, 1]}))),
            (json!({"a": 1}), moved("copy", "/a", "/b"), Some(json!({"a": 1, "b": 1}))),
            (json!({"a/b": 1, "~": 2}), one("test", "/a~1b", json!(1.0)), Some(json!({"a/b": 1, "~": 2}))),
            (json!({"~1": 10}), one("test", "/~01", json!(10)), Some(json!({"~1": 10}))),
            (json!({"a": "1"}), one("test", "/a", json!(1)), None),
            (json!({"a": 1}), one("add", "/b/c", json!(1)), None),
            (json!({"a": "b"}), json!({"a": "c"}), Some(json!({"a": "c"}))),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), Some(json!({"b": "c"}))),
            (json!({"a": ["b"]}), json!({"a": "c"}), Some(json!({"a": "c"}))),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), Some(json!({"a": {"b": "d"}}))),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), Some(json!({"a": {"bb": {}}}))),
        ] {
            let mut found = object.clone();
            let result = apply_patch(&mut found, &patch);
            assert_eq!(result.is_ok(), expected.is_some(), "{object} {patch}: {result:?}");
            assert_eq!(found, expected.unwrap_or(object), "{patch}");
        }
    }

    #[test]
    fn failed_operation_changes_nothing() {
        let mut object = json!({"secret": "canary"});
        let patch =
            json!([{"op": "add", "path": "/a", "value": 1}, {"op": "test", "path": "/secret", "value": "x"}]);
        let (index, reason) = apply_patch(&mut object, &patch).unwrap_err();
        assert_eq!((index, object), (Some(1), json!({"secret": "canary"})));
        assert!(!reason.contains("canary"), "{reason}");
    }

    #[test]
    fn invalid_patches_are_found_without_an_object() {
        for (patch, is_valid) in [
            (json!([{"op": "add", "path": "/a", "value": null}]), true),
            (json!([{"op": "add", "path": "/a"}]), false),
            (json!([{"op": "add", "path": "a", "value": 1}]), false),
            (json!([{"op": "move", "path": "/a"}]), false),
            (json!([{"op": "remove", "path": "/a"}]), true),
            (json!([{"op": "rename", "path": "/a"}]), false),
            (json!({"a": 1}), true),
        ] {
            assert_eq!(check_patch(&patch).is_ok(), is_valid, "{patch}");
        }
    }
}

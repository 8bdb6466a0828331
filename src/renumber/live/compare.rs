//! Whether an object that is there is the one that would be made.

use serde_json::Value;

/// Set by whoever makes the object, so no part of what is asked for.
const OF_THE_SERVER: [&str; 4] =
    ["metadata.uid", "metadata.creationTimestamp", "metadata.resourceVersion", "metadata.generation"];

/// Returns the first field of a manifest that the object does not have so, in words; `None` when the object has
/// everything that the manifest asks for. What else it has are defaults.
pub(super) fn difference(manifest: &Value, object: &Value) -> Option<String> {
    differs("", manifest, object)
}

fn differs(path: &str, wanted: &Value, found: &Value) -> Option<String> {
    match (wanted, found) {
        _ if OF_THE_SERVER.contains(&path) => None,
        (Value::Null, _) => None,
        // What is empty is left out where it is stored (`omitempty`).
        (Value::String(wanted), Value::Null) if wanted.is_empty() => None,
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().find_map(|(name, value)| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            differs(&path, value, found.get(name).unwrap_or(&Value::Null))
        }),
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            let pairs = wanted.iter().zip(found).enumerate();
            pairs.into_iter().find_map(|(index, (a, b))| differs(&format!("{path}[{index}]"), a, b))
        }
        _ if wanted == found => None,
        _ => Some(format!("`{path}` is `{found}`, expected `{wanted}`")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_no_difference() {
        let manifest = json!({
            "metadata": {"name": "a", "uid": "", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"ports": [{"port": 80, "name": null}, {"port": 81, "name": ""}], "selector": {"app": "a"}},
        });
        let object = json!({
            "metadata": {"name": "a", "uid": "x", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 81}], "selector": {"app": "a"}, "type": "ClusterIP"},
        });
        assert_eq!(difference(&manifest, &object), None);
    }

    #[test]
    fn a_difference_is_named_by_its_path() {
        let manifest = json!({"spec": {"ports": [{"port": 80}], "selector": {"app": "a"}}});
        for (object, words) in [
            (
                json!({"spec": {"ports": [{"port": 81}], "selector": {"app": "a"}}}),
                "`spec.ports[0].port` is `81`",
            ),
            (json!({"spec": {"ports": [], "selector": {"app": "a"}}}), "`spec.ports` is `[]`"),
            (json!({"spec": {"ports": [{"port": 80}]}}), "`spec.selector` is `null`"),
        ] {
            let found = difference(&manifest, &object).unwrap();
            assert!(found.starts_with(words), "{found}");
        }
    }
}

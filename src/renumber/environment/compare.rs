//! Compares an existing object with the manifest that would be created.

use serde_json::Value;

/// Fields that the API server sets. They are not compared.
const OF_THE_SERVER: [&str; 4] =
    ["metadata.uid", "metadata.creationTimestamp", "metadata.resourceVersion", "metadata.generation"];

/// Path of the selector. The whole selector is compared, because an additional term selects other Pods.
const SELECTOR: &str = "spec.selector";

/// Returns a message about the first field that differs between the manifest and the object. Returns `None` if the object has all
/// values of the manifest. Other values of the object are treated as defaults.
pub(super) fn difference(manifest: &Value, object: &Value) -> Option<String> {
    differs("", manifest, object)
}

fn differs(path: &str, wanted: &Value, found: &Value) -> Option<String> {
    match (wanted, found) {
        _ if OF_THE_SERVER.contains(&path) => None,
        (Value::Null, _) => None,
        (wanted, Value::Null) if is_empty(wanted) => None,
        (Value::Object(wanted), Value::Object(found)) if path != SELECTOR => {
            wanted.iter().find_map(|(name, value)| {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                differs(&path, value, found.get(name).unwrap_or(&Value::Null))
            })
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            let pairs = wanted.iter().zip(found).enumerate();
            pairs.into_iter().find_map(|(index, (a, b))| differs(&format!("{path}[{index}]"), a, b))
        }
        _ if wanted == found => None,
        _ => Some(format!("`{path}` is `{found}`, expected `{wanted}`")),
    }
}

/// Returns whether a value is omitted when it is stored (`omitempty`).
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn difference_ignores_defaults() {
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

    /// The API server (1.32.2 and 1.36.3) omits empty members when it returns a Service without a selector.
    #[test]
    fn difference_ignores_omitted_empty_members() {
        let manifest = json!({"spec": {
            "selector": {}, "externalIPs": [], "publishNotReadyAddresses": false, "healthCheckNodePort": 0,
            "ports": [{"port": 80, "nodePort": 0}],
        }});
        assert_eq!(difference(&manifest, &json!({"spec": {"ports": [{"port": 80}]}})), None);
        for (member, value) in [
            ("selector", json!({"app": "other"})),
            ("externalIPs", json!(["192.0.2.1"])),
            ("publishNotReadyAddresses", json!(true)),
            ("healthCheckNodePort", json!(30000)),
        ] {
            let found = difference(&manifest, &json!({"spec": {"ports": [{"port": 80}], member: value}}));
            assert!(found.is_some_and(|found| found.starts_with(&format!("`spec.{member}` is"))), "{member}");
        }
    }

    #[test]
    fn difference_reports_selector_with_additional_term() {
        let manifest = json!({"spec": {"selector": {"app": "a"}}});
        let object = json!({"spec": {"selector": {"app": "a", "tier": "b"}}});
        assert!(difference(&manifest, &object).is_some_and(|found| found.starts_with("`spec.selector` is")));
    }

    #[test]
    fn difference_names_path_of_field() {
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

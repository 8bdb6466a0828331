//! The copy of an object: what the mirror gets.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::activation::MovedCopy;
use super::strip::strip;

/// The annotation that contains whether the source has suspended a CronJob. The copy is always suspended.
pub(super) const SUSPEND: &str = "mirror.netsurgeon.io/suspend";

/// What changes the copy of an object, in addition to the object itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Whether the copy of a Service has the same node ports.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_node_ports: bool,
    /// Whether an autoscaler sets the replicas. The copy then has no number of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_scaled: bool,
    /// What an activation has made of the copy; `None` if it has not moved the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<MovedCopy>,
}

/// Returns the copy of an object. `kind`: `GROUP/PLURAL`.
pub(super) fn copy(kind: &str, object: &Value, shape: Shape) -> Value {
    let mut copy = strip(kind, object, shape.keep_node_ports);
    if kind == "batch/cronjobs" {
        suspend(&mut copy);
    }
    if let Some(moved) = shape.moved {
        moved.awaken(&mut copy);
    }
    if shape.is_scaled
        && let Some(spec) = copy.pointer_mut("/spec").and_then(Value::as_object_mut)
    {
        spec.remove("replicas");
    }
    copy
}

/// Returns whether the copies of a kind do nothing until they are activated, and whether this object is active. `None` for other
/// kinds.
pub(super) fn is_active(kind: &str, live: &Value) -> Option<bool> {
    (kind == "batch/cronjobs").then(|| live.pointer("/spec/suspend") != Some(&Value::Bool(true)))
}

/// Returns what the source wants of an object that is passive in the mirror; `None` for other kinds.
pub(super) fn wish(kind: &str, object: &Value) -> Option<Value> {
    (kind == "batch/cronjobs").then(|| json!({"suspend": is_suspended(object)}))
}

fn is_suspended(object: &Value) -> bool {
    object.pointer("/spec/suspend") == Some(&Value::Bool(true))
}

fn suspend(copy: &mut Value) {
    let wanted = is_suspended(copy).to_string();
    if let Some(spec) = copy.pointer_mut("/spec").and_then(Value::as_object_mut) {
        spec.insert("suspend".to_string(), true.into());
    }
    if let Some(metadata) = copy.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(SUSPEND.to_string(), wanted.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cron_job_is_suspended_and_its_wish_is_kept() {
        for (suspend, wanted) in [(json!(true), true), (json!(false), false), (Value::Null, false)] {
            let object =
                json!({"metadata": {"name": "a"}, "spec": {"schedule": "* * * * *", "suspend": suspend}});
            let copied = copy("batch/cronjobs", &object, Shape::default());
            assert_eq!(copied["spec"]["suspend"], true);
            assert_eq!(copied["metadata"]["annotations"], json!({SUSPEND: wanted.to_string()}));
            assert_eq!(wish("batch/cronjobs", &object), Some(json!({"suspend": wanted})));
            assert_eq!(is_active("batch/cronjobs", &copied), Some(false));
            assert_eq!(is_active("batch/cronjobs", &object), Some(!wanted));
        }
        assert_eq!((wish("/services", &json!({})), is_active("/services", &json!({}))), (None, None));
    }

    #[test]
    fn replicas_belong_to_the_autoscaler() {
        let object = json!({"spec": {"replicas": 4, "paused": false}});
        let shape = Shape { is_scaled: true, ..Shape::default() };
        assert_eq!(copy("apps/deployments", &object, shape), json!({"spec": {"paused": false}}));
        assert_eq!(copy("apps/deployments", &object, Shape::default()), object);
    }
}

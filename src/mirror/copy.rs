//! The copy of an object: what the mirror gets.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::activation::MovedCopy;
use super::rules::{RuleFault, Rules, has_replicas, make_passive};
use super::strip::strip;
use super::wish;

/// What changes the copy of an object, in addition to the object itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Whether the copy of a Service has the same node ports.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_node_ports: bool,
    /// Whether an autoscaler sets the replicas. The copy then has no number of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_scaled: bool,
    /// Whether the configuration makes the workload passive: the copy has 0 replicas.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_passive: bool,
    /// What an activation has made of the copy; `None` if it has not moved the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<MovedCopy>,
}

/// Returns the copy of an object. `kind`: `GROUP/PLURAL`.
pub(super) fn copy(kind: &str, object: &Value, shape: Shape, rules: Rules<'_>) -> Result<Value, RuleFault> {
    let mut copy = strip(kind, object, shape.keep_node_ports);
    rules.apply(kind, &mut copy)?;
    if shape.is_passive {
        make_passive(&mut copy, shape.is_scaled);
        if shape.moved.is_none() {
            return Ok(copy);
        }
    }
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
    Ok(copy)
}

/// Returns whether the copies of a kind do nothing until they are activated, and whether this object is active. `None` for other
/// kinds.
pub(super) fn is_active(kind: &str, live: &Value, shape: Shape) -> Option<bool> {
    if shape.is_passive {
        return Some(has_replicas(live));
    }
    (kind == "batch/cronjobs").then(|| live.pointer("/spec/suspend") != Some(&Value::Bool(true)))
}

/// Returns what an object that is passive in the mirror gets when it becomes active; `None` for other objects.
pub(super) fn wished(kind: &str, object: &Value, shape: Shape, rules: Rules<'_>) -> Option<Value> {
    if shape.is_passive {
        let copy = copy(kind, object, shape, rules).ok()?;
        let wanted = copy.pointer("/metadata/annotations").and_then(|all| all.get(wish::REPLICAS))?;
        return Some(json!({"replicas": wanted.as_str()?.parse::<u64>().ok()?}));
    }
    (kind == "batch/cronjobs").then(|| json!({"suspend": is_suspended(object)}))
}

fn is_suspended(object: &Value) -> bool {
    object.pointer("/spec/suspend") == Some(&Value::Bool(true))
}

fn suspend(copy: &mut Value) {
    let wanted = is_suspended(copy).to_string();
    wish::set(copy, ("suspend", true.into()), (wish::SUSPEND, wanted));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::config::Config;
    use crate::mirror::rules::Uses;

    fn copy(kind: &str, object: &Value, shape: Shape) -> Value {
        super::copy(kind, object, shape, Rules { config: &Config::default(), uses: &Uses::default() })
            .unwrap()
    }

    fn wish(kind: &str, object: &Value, shape: Shape) -> Option<Value> {
        super::wished(kind, object, shape, Rules { config: &Config::default(), uses: &Uses::default() })
    }

    #[test]
    fn cron_job_is_suspended_and_its_wish_is_kept() {
        for (suspend, wanted) in [(json!(true), true), (json!(false), false), (Value::Null, false)] {
            let object =
                json!({"metadata": {"name": "a"}, "spec": {"schedule": "* * * * *", "suspend": suspend}});
            let copied = copy("batch/cronjobs", &object, Shape::default());
            assert_eq!(copied["spec"]["suspend"], true);
            assert_eq!(copied["metadata"]["annotations"], json!({(wish::SUSPEND): wanted.to_string()}));
            assert_eq!(wish("batch/cronjobs", &object, Shape::default()), Some(json!({"suspend": wanted})));
            assert_eq!(is_active("batch/cronjobs", &copied, Shape::default()), Some(false));
            assert_eq!(is_active("batch/cronjobs", &object, Shape::default()), Some(!wanted));
        }
        assert_eq!(
            (
                wish("/services", &json!({}), Shape::default()),
                is_active("/services", &json!({}), Shape::default())
            ),
            (None, None)
        );
    }

    #[test]
    fn replicas_belong_to_the_autoscaler() {
        let object = json!({"spec": {"replicas": 4, "paused": false}});
        let shape = Shape { is_scaled: true, ..Shape::default() };
        assert_eq!(copy("apps/deployments", &object, shape), json!({"spec": {"paused": false}}));
        assert_eq!(copy("apps/deployments", &object, Shape::default()), object);
    }

    #[test]
    fn passive_workload_has_no_replicas() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"replicas": 4}});
        for (is_scaled, wanted) in [(false, 4), (true, 1)] {
            let shape = Shape { is_passive: true, is_scaled, ..Shape::default() };
            let copied = copy("apps/deployments", &object, shape);
            assert_eq!(copied["spec"]["replicas"], 0);
            assert_eq!(copied["metadata"]["annotations"], json!({(wish::REPLICAS): wanted.to_string()}));
            assert_eq!(wish("apps/deployments", &object, shape), Some(json!({"replicas": wanted})));
            assert_eq!(is_active("apps/deployments", &copied, shape), Some(false));
            assert_eq!(is_active("apps/deployments", &object, shape), Some(true));
        }
    }
}

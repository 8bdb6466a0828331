//! The number of replicas of copies: the rule for all workloads, and 0 for passive ones.

use serde_json::Value;

use super::kind_names::Kind;
use super::uses::Uses;
use crate::mirror::config::{Config, Replicas};
use crate::mirror::wish;

/// Kinds with a number of replicas at `/spec/replicas` (`apps/v1` and `core/v1` of k8s.io/api). Other kinds cannot be passive in this
/// way.
pub(in crate::mirror) const SCALABLE: [&str; 4] =
    ["apps/deployments", "apps/statefulsets", "apps/replicasets", "/replicationcontrollers"];

/// Applies the rule for replicas.
pub(super) fn change_replicas(config: &Config, kind: &Kind<'_>, object: &mut Value, uses: &Uses) {
    let Some(rule) = &config.replicas else { return };
    if !SCALABLE.contains(&kind.resource) {
        return;
    }
    uses.mark("replicas", 0);
    let found = replicas(object);
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("replicas".to_string(), scaled(rule, found).into());
    }
}

/// Returns the number of replicas. Without a number, the API server sets 1.
fn replicas(object: &Value) -> u64 {
    object.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a number of replicas is a positive 32-bit integer, and casts of floats saturate"
)]
fn scaled(rule: &Replicas, found: u64) -> u64 {
    if found == 0 {
        return 0;
    }
    // A product such as 0.1 * 30 is a little more than 3.
    let product = (found as f64 * rule.factor - 1e-9).ceil() as u64;
    product.max(u64::from(rule.minimum.unwrap_or(0))).min(i32::MAX as u64)
}

/// Makes a workload passive: it has 0 replicas, and the annotation contains the wanted number. An autoscaler leaves 0 replicas as
/// they are. `is_scaled`: whether an autoscaler sets the number; then it starts with 1.
pub(in crate::mirror) fn make_passive(object: &mut Value, is_scaled: bool) {
    let wanted = if is_scaled { 1 } else { replicas(object) };
    wish::set(object, ("replicas", 0.into()), (wish::REPLICAS, wanted.to_string()));
}

/// Returns whether a workload of the mirror has replicas.
pub(in crate::mirror) fn has_replicas(live: &Value) -> bool {
    replicas(live) > 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replicas_are_multiplied() {
        for (factor, minimum, found, expected) in [
            (0.5, None, 4, 2),
            (0.5, None, 3, 2),
            (0.5, None, 1, 1),
            (0.1, None, 30, 3),
            (0.1, Some(2), 1, 2),
            (2.0, Some(1), 3, 6),
            (0.0, Some(1), 3, 1),
            (0.5, Some(1), 0, 0),
            (1e300, None, 3, i32::MAX as u64),
        ] {
            let rule = Replicas { factor, minimum };
            assert_eq!(scaled(&rule, found), expected, "{factor} {minimum:?} {found}");
        }
        let config = Config { replicas: Some(Replicas { factor: 2.0, minimum: None }), ..Config::default() };
        for (resource, object, expected) in [
            ("apps/deployments", json!({"spec": {"replicas": 3}}), json!({"spec": {"replicas": 6}})),
            ("apps/deployments", json!({"spec": {}}), json!({"spec": {"replicas": 2}})),
            ("apps/daemonsets", json!({"spec": {}}), json!({"spec": {}})),
            ("/services", json!({"spec": {"replicas": 3}}), json!({"spec": {"replicas": 3}})),
        ] {
            let (mut copy, uses) = (object.clone(), Uses::default());
            change_replicas(&config, &Kind { resource, kind: "X" }, &mut copy, &uses);
            assert_eq!(copy, expected, "{resource} {object}");
        }
    }

    #[test]
    fn passive_workload_remembers_its_number() {
        for (spec, is_scaled, wanted) in [
            (json!({"replicas": 3}), false, "3"),
            (json!({}), false, "1"),
            (json!({"replicas": 0}), false, "0"),
            (json!({"replicas": 9}), true, "1"),
        ] {
            let mut object = json!({"metadata": {"name": "a"}, "spec": spec});
            make_passive(&mut object, is_scaled);
            assert_eq!(object["spec"]["replicas"], 0);
            assert_eq!(object["metadata"]["annotations"], json!({(wish::REPLICAS): wanted}));
            assert!(!has_replicas(&object));
        }
        assert!(has_replicas(&json!({"spec": {}})) && has_replicas(&json!({"spec": {"replicas": 1}})));
    }
}

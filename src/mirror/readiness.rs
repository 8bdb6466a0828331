//! Whether the Pods of a workload are ready, from the status of the workload: the rules of `kubectl rollout status`
//! (k8s.io/kubectl/pkg/polymorphichelpers/rollout_status.go, 0.37).

use serde_json::Value;

use crate::inventory::{list, text};

/// Fields of the status of a kind.
struct Row {
    /// Kind of the objects, as `GROUP/PLURAL`.
    kind: &'static str,
    /// Field with the number of Pods that the workload should have; `None` for `spec.replicas`.
    wanted: Option<&'static str>,
    /// Field with the number of Pods of the newest template; `None` if the kind has no templates of its own age.
    updated: Option<&'static str>,
    /// Field with the number of Pods that are available.
    available: &'static str,
}

/// Kinds with Pods. (k8s.io/api/apps/v1/types.go and core/v1/types.go)
const ROWS: [Row; 5] = [
    Row {
        kind: "apps/deployments",
        wanted: None,
        updated: Some("updatedReplicas"),
        available: "availableReplicas",
    },
    Row {
        kind: "apps/statefulsets",
        wanted: None,
        updated: Some("updatedReplicas"),
        available: "readyReplicas",
    },
    Row {
        kind: "apps/daemonsets",
        wanted: Some("desiredNumberScheduled"),
        updated: Some("updatedNumberScheduled"),
        available: "numberAvailable",
    },
    Row { kind: "apps/replicasets", wanted: None, updated: None, available: "availableReplicas" },
    Row { kind: "/replicationcontrollers", wanted: None, updated: None, available: "availableReplicas" },
];

/// Returns why the Pods of a workload are not ready; `None` if they are ready, or if the object has no Pods. `kind`: `GROUP/PLURAL`.
pub(super) fn why_not_ready(kind: &str, live: &Value) -> Option<String> {
    let row = ROWS.iter().find(|row| row.kind == kind)?;
    let number = |path: &str| live.pointer(path).and_then(Value::as_u64);
    let status = |field: &str| number(&format!("/status/{field}")).unwrap_or_default();
    let replicas = number("/spec/replicas").unwrap_or(1);
    let is_stopped = row.wanted.is_none() && replicas == 0;
    let is_left_alone = live.pointer("/spec/paused") == Some(&Value::Bool(true))
        || text(live, "/spec/updateStrategy/type") == "OnDelete";
    if is_stopped {
        return None;
    }
    if status("observedGeneration") < number("/metadata/generation").unwrap_or_default() {
        return Some("its controller has not seen it yet".to_string());
    }
    let wanted = row.wanted.map_or(replicas, status);
    let (available, updated) = (status(row.available), row.updated.filter(|_| !is_left_alone).map(status));
    let reason = match updated {
        _ if available < wanted => format!("{available} of {wanted} Pods are available"),
        Some(updated) if updated < wanted => format!("{updated} of {wanted} Pods have the new template"),
        _ => return None,
    };
    Some(match trouble(live) {
        Some(trouble) => format!("{reason}: {trouble}"),
        None => reason,
    })
}

/// Returns what the controller says about a failure: that Pods are refused, or that there is no progress
/// (pkg/controller/deployment/util/deployment_util.go).
fn trouble(live: &Value) -> Option<&str> {
    let conditions = list(live, "/status/conditions");
    let has = |kind: &str, status: &str| {
        let found =
            conditions.iter().find(|one| text(one, "/type") == kind && text(one, "/status") == status);
        found.map(|one| text(one, "/message")).filter(|message| !message.is_empty())
    };
    has("ReplicaFailure", "True").or_else(|| has("Progressing", "False"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(spec: impl Into<Value>, status: impl Into<Value>) -> Option<String> {
        let (spec, status) = (spec.into(), status.into());
        why_not_ready(
            "apps/deployments",
            &json!({"metadata": {"generation": 2}, "spec": spec, "status": status}),
        )
    }

    #[test]
    fn deployment_is_ready_when_every_pod_is() {
        let status = |updated: u64, available: u64| json!({"observedGeneration": 2, "updatedReplicas": updated, "availableReplicas": available});
        let spec = json!({"replicas": 3});
        assert_eq!(deployment(spec.clone(), status(3, 3)), None);
        assert_eq!(deployment(spec.clone(), status(3, 1)).as_deref(), Some("1 of 3 Pods are available"));
        assert_eq!(
            deployment(spec.clone(), status(2, 3)).as_deref(),
            Some("2 of 3 Pods have the new template")
        );
        let old = json!({"observedGeneration": 1, "updatedReplicas": 3, "availableReplicas": 3});
        assert_eq!(deployment(spec.clone(), old).as_deref(), Some("its controller has not seen it yet"));
        assert_eq!(deployment(spec, Value::Null).as_deref(), Some("its controller has not seen it yet"));
        assert_eq!(deployment(json!({"replicas": 0}), Value::Null), None, "it has no Pods");
        assert_eq!(deployment(json!({"replicas": 3, "paused": true}), status(0, 3)), None);
    }

    #[test]
    fn refused_pods_are_explained() {
        let conditions = json!([{"type": "Progressing", "status": "True", "message": "fine"},
            {"type": "ReplicaFailure", "status": "True", "message": "violates PodSecurity"}]);
        let found = deployment(json!({}), json!({"observedGeneration": 2, "conditions": conditions}));
        assert_eq!(found.as_deref(), Some("0 of 1 Pods are available: violates PodSecurity"));
    }

    #[test]
    fn other_kinds_have_their_own_fields() {
        let daemons = |available: u64| {
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "desiredNumberScheduled": 2,
                "updatedNumberScheduled": 2, "numberAvailable": available}})
        };
        assert_eq!(why_not_ready("apps/daemonsets", &daemons(2)), None);
        assert_eq!(
            why_not_ready("apps/daemonsets", &daemons(0)).as_deref(),
            Some("0 of 2 Pods are available")
        );
        let set = json!({"metadata": {"generation": 1}, "spec": {"replicas": 1, "updateStrategy": {"type": "OnDelete"}},
            "status": {"observedGeneration": 1, "readyReplicas": 1, "updatedReplicas": 0}});
        assert_eq!(why_not_ready("apps/statefulsets", &set), None);
        assert_eq!(why_not_ready("/services", &json!({})), None);
    }
}

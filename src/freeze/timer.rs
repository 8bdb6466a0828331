//! What ends a freeze by itself: a Job of the cluster's own, without Pods. Pure.
//!
//! An admission policy knows no time: CEL has no clock, and a deletion carries none. But a policy can have a parameter, and
//! its binding is ignored while that does not exist. So the parameter is a Job that wants no Pods and has a deadline:
//! the controller manager marks it as failed when that has passed (`pastActiveDeadline`, `pkg/controller/job/job_controller.go`,
//! v1.36.3) and deletes it an instant later (`ttlSecondsAfterFinished`). Either opens the lock, whoever of ours still runs.

use serde_json::{Value, json};

use super::{Freeze, NAME};

/// Where timers are: a namespace that is there in every cluster, and that no freeze covers unless it is named.
pub const NAMESPACE: &str = "kube-system";
/// As policies name the kind of their parameter.
pub const API_VERSION: &str = "batch/v1";
/// See [`API_VERSION`].
pub const KIND: &str = "Job";

/// Whether the timer has run out, in CEL; true only of a parameter that is there.
pub const HAS_ENDED: &str = "params != null && has(params.status) && has(params.status.conditions) && \
    params.status.conditions.exists(c, c.type in [\"Failed\", \"FailureTarget\", \"Complete\"] && c.status == \"True\")";

/// The name of a freeze's timer: another one for every change, so that a binding changes from one to the next in one write.
pub fn name(freeze: &Freeze) -> String {
    format!("{NAME}-{}", freeze.id)
}

/// Returns the timer of a freeze that ends by itself.
pub fn timer(freeze: &Freeze) -> Option<Value> {
    let seconds = freeze.seconds?;
    Some(json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "metadata": freeze.metadata(&name(freeze), Some(NAMESPACE)),
        "spec": {
            "parallelism": 0, "completions": 1, "activeDeadlineSeconds": seconds, "ttlSecondsAfterFinished": 0,
            // Never started: no Pods are wanted.
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "none", "image": "none"}]}},
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::freeze;
    use super::*;

    #[test]
    fn only_a_freeze_with_an_end_has_a_timer() {
        assert_eq!(timer(&freeze()), None);
        let timer = timer(&Freeze { seconds: Some(7200), ..freeze() }).unwrap();
        assert_eq!(
            (&timer["spec"]["activeDeadlineSeconds"], &timer["spec"]["parallelism"]),
            (&json!(7200), &json!(0))
        );
        assert_eq!(timer["metadata"]["name"], "netsurgeon-lock-f1");
    }
}

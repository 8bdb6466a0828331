//! The timer that ends a deploy lock: a Job without Pods. Pure.
//!
//! An admission policy has no time: CEL has no clock, and a deletion carries none. But a policy can have a parameter, and its
//! binding is ignored while the parameter does not exist. So the parameter is a Job without Pods that has a deadline. The
//! controller manager marks it as failed after the deadline (`pastActiveDeadline`, `pkg/controller/job/job_controller.go`,
//! v1.36.3) and deletes it at once (`ttlSecondsAfterFinished`). Either ends the deploy lock, even if netsurgeon does not run.

use serde_json::{Value, json};

use super::{Freeze, NAME};

/// The namespace of timers: it exists in every cluster, and no deploy lock covers it unless it is named.
pub const NAMESPACE: &str = "kube-system";
/// The API version of the policy's parameter.
pub const API_VERSION: &str = "batch/v1";
/// See [`API_VERSION`].
pub const KIND: &str = "Job";

/// Whether the timer has expired, in CEL; true only for an existing parameter.
pub const HAS_ENDED: &str = "params != null && has(params.status) && has(params.status.conditions) && \
    params.status.conditions.exists(c, c.type in [\"Failed\", \"FailureTarget\", \"Complete\"] && c.status == \"True\")";

/// Returns the name of a timer: every change of the deploy lock gets another one, so that one write switches the binding to it.
pub fn name(freeze: &Freeze) -> String {
    format!("{NAME}-{}", freeze.id)
}

/// Returns the timer of a deploy lock that ends by itself.
pub fn timer(freeze: &Freeze) -> Option<Value> {
    let seconds = freeze.seconds?;
    Some(json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "metadata": freeze.metadata(&name(freeze), Some(NAMESPACE)),
        "spec": {
            "parallelism": 0, "completions": 1, "activeDeadlineSeconds": seconds, "ttlSecondsAfterFinished": 0,
            // Never started: it has no Pods.
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "none", "image": "none"}]}},
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::freeze;
    use super::*;

    #[test]
    fn only_a_lock_with_an_end_has_a_timer() {
        assert_eq!(timer(&freeze()), None);
        let timer = timer(&Freeze { seconds: Some(7200), ..freeze() }).unwrap();
        assert_eq!(
            (&timer["spec"]["activeDeadlineSeconds"], &timer["spec"]["parallelism"]),
            (&json!(7200), &json!(0))
        );
        assert_eq!(timer["metadata"]["name"], "netsurgeon-lock-f1");
    }
}

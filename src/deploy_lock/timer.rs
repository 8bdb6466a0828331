//! The timer that ends a deploy lock: a Job without Pods. Does no I/O.
//!
//! An admission policy cannot check the time, because CEL has no clock, and a delete request contains no time. But a policy can
//! have a parameter object, and the API server ignores the binding of the policy while this object does not exist. Therefore the
//! parameter is a Job with a deadline and without Pods. After the deadline, the controller manager marks the Job as failed
//! (`pastActiveDeadline`, `pkg/controller/job/job_controller.go`, v1.36.3) and deletes it immediately
//! (`ttlSecondsAfterFinished`). The deploy lock ends when the Job has failed or is deleted, even if netsurgeon does not run.

use serde_json::{Value, json};

use super::{DeployLock, NAME};

/// Namespace of timers. It exists in every cluster, and a deploy lock covers it only if it is named explicitly.
pub const NAMESPACE: &str = "kube-system";
/// API version of the policy's parameter.
pub const API_VERSION: &str = "batch/v1";
/// Kind of the policy's parameter.
pub const KIND: &str = "Job";

/// CEL expression for an expired timer. It is true only for an existing Job.
pub const HAS_ENDED: &str = "params != null && has(params.status) && has(params.status.conditions) && \
    params.status.conditions.exists(c, c.type in [\"Failed\", \"FailureTarget\", \"Complete\"] && c.status == \"True\")";

/// Returns the name of a timer. Every change of the deploy lock gets a timer with a new name, so one write switches the binding
/// to the new timer.
pub fn name(freeze: &DeployLock) -> String {
    format!("{NAME}-{}", freeze.id)
}

/// Returns the timer Job of a deploy lock; `None` if the lock has no time limit.
pub fn timer(freeze: &DeployLock) -> Option<Value> {
    let seconds = freeze.seconds?;
    Some(json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "metadata": freeze.metadata(&name(freeze), Some(NAMESPACE)),
        "spec": {
            "parallelism": 0, "completions": 1, "activeDeadlineSeconds": seconds, "ttlSecondsAfterFinished": 0,
            // The template is required but never used, because the Job starts no Pods.
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
        let timer = timer(&DeployLock { seconds: Some(7200), ..freeze() }).unwrap();
        assert_eq!(
            (&timer["spec"]["activeDeadlineSeconds"], &timer["spec"]["parallelism"]),
            (&json!(7200), &json!(0))
        );
        assert_eq!(timer["metadata"]["name"], "netsurgeon-lock-f1");
    }
}

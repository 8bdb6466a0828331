//! `budgets`: whether every PodDisruptionBudget allows an eviction.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};

use super::Cni;
use crate::inventory::drain::is_drained;
use crate::inventory::pod::{TrimmedPod, is_ready, phase};
use crate::inventory::selectors::selects;
use crate::kube_api::accessors::{labels, namespace, subject};
use crate::preflight::{Check, Judged, Source, first_few};
use crate::words::all_of;

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "budgets",
    why: "a drain never ends if a PodDisruptionBudget allows no eviction",
    needs: &[Source::Api],
    judge: |input| Box::pin(async { Ok(judge(&input.read.objects().await?, input.read.pods().await?)) }),
};

/// Checks PodDisruptionBudgets. A budget blocks a drain if it allows no eviction, or if the disruption controller has not
/// observed the last change of the budget. A Pod with two budgets cannot be evicted (`EvictionREST.Create`,
/// `pkg/registry/core/pod/storage/eviction.go`, v1.36.3).
fn judge(budgets: &[PodDisruptionBudget], pods: &[TrimmedPod]) -> Judged {
    // Pods that have not started can be evicted even if a budget allows no eviction (`canIgnorePDB`).
    let pods = pods.iter().filter(|pod| is_drained(pod) && phase(pod) != "Pending");
    let (mut held, mut blocking) = (BTreeMap::<usize, Vec<&TrimmedPod>>::new(), Vec::new());
    for pod in pods {
        let is_its = |(_, budget): &(usize, &PodDisruptionBudget)| {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            // A missing selector selects no Pod, but an empty selector selects every Pod (`policy/v1`).
            namespace(*budget) == namespace(pod) && selector.is_some() && selects(selector, labels(pod))
        };
        let its: Vec<(usize, _)> = budgets.iter().enumerate().filter(is_its).collect();
        if its.len() > 1 {
            blocking.push(format!(
                "Pod {} cannot be evicted, because it has {} budgets",
                subject(pod),
                its.len()
            ));
        }
        for (index, _) in its {
            held.entry(index).or_default().push(pod);
        }
    }
    let count = held.len();
    for (index, pods) in held {
        let Some(budget) = budgets.get(index) else { continue };
        blocking.extend(blocks(budget, &pods).map(|why| format!("{} ({why})", subject(budget))));
    }
    if blocking.is_empty() {
        return Judged::pass(match count {
            0 => "no PodDisruptionBudget selects a started Pod that a drain evicts".to_string(),
            count => {
                all_of(count, "budget with Pods allows an eviction", "budgets with Pods allow an eviction")
            }
        });
    }
    Judged::fail(
        format!("a drain would never end: {}", first_few(&blocking)),
        "add replicas, repair unhealthy Pods, or relax the budget; if the disruption controller has not observed the budget, check the controller manager",
    )
}

/// Returns why a budget allows no eviction of these Pods; `None` if it allows an eviction.
fn blocks(budget: &PodDisruptionBudget, pods: &[&TrimmedPod]) -> Option<String> {
    let status = budget.status.as_ref();
    let observed = status.and_then(|status| status.observed_generation).unwrap_or_default();
    if observed < budget.metadata.generation.unwrap_or_default() {
        return Some("the disruption controller has not observed its last change".to_string());
    }
    let number = |of: fn(&PodDisruptionBudgetStatus) -> Option<i32>| status.and_then(of).unwrap_or_default();
    let (healthy, desired) =
        (number(|status| status.current_healthy), number(|status| status.desired_healthy));
    // A Pod that is not ready can be evicted if the policy is `AlwaysAllow`, or if enough other Pods are healthy.
    let policy = budget.spec.as_ref().and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    let lets_unready_go = policy == Some("AlwaysAllow") || healthy >= desired && desired > 0;
    let is_blocked = number(|status| status.disruptions_allowed) == 0
        && pods.iter().any(|pod| !lets_unready_go || is_ready(pod));
    is_blocked.then(|| format!("{healthy} healthy, {desired} required"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::preflight::Verdict;
    use crate::preflight::cni::testing::{owned, pod, typed};

    #[test]
    fn budget_blocks_if_its_pods_cannot_be_evicted() {
        let budget = |allowed: u8, desired: u8, more: Value| {
            let mut budget = json!({
                "metadata": {"namespace": "shop", "name": "web", "generation": 1}, "spec": {"selector": {}},
                "status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": desired},
            });
            budget["spec"]["unhealthyPodEvictionPolicy"] = more;
            budget
        };
        let of = |phase: &str, ready: &str| {
            let mut pod = pod(&owned("ReplicaSet"), &json!({}));
            pod.status = typed(&json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}));
            pod
        };
        let judged = |budget: Value, pod: TrimmedPod| judge(&[typed(&budget)], &[pod]);
        let up = || of("Running", "True");
        assert_eq!(judged(budget(1, 1, Value::Null), up()).observed, "1 budget with Pods allows an eviction");
        let blocked = judged(budget(0, 1, Value::Null), up());
        assert_eq!(blocked.verdict, Verdict::Fail);
        assert!(blocked.observed.ends_with("`shop/web` (1 healthy, 1 required)"), "{blocked:?}");
        let down =
            |more: Value, desired: u8| judged(budget(0, desired, more), of("Running", "False")).verdict;
        assert_eq!(down(Value::Null, 2), Verdict::Fail);
        assert_eq!(down(Value::Null, 1), Verdict::Pass, "the budget is met without it");
        assert_eq!(down(json!("AlwaysAllow"), 2), Verdict::Pass);
        assert_eq!(judged(budget(0, 1, Value::Null), of("Pending", "False")).verdict, Verdict::Pass);
        let mut unseen = budget(1, 1, Value::Null);
        unseen["metadata"]["generation"] = json!(2);
        assert!(judged(unseen, up()).observed.contains("has not observed its last change"));
        let two = judge(&[(); 2].map(|()| typed(&budget(1, 1, Value::Null))), &[up()]);
        assert!(two.observed.contains("`shop/web`") && two.observed.contains("2 budgets"), "{two:?}");
        let mut of_none = budget(0, 1, Value::Null);
        of_none["spec"] = json!({});
        assert_eq!(judged(of_none, up()).verdict, Verdict::Pass, "a budget without a selector has no Pods");
    }
}

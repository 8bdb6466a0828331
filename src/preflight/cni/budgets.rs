//! `budgets`: whether every PodDisruptionBudget allows an eviction.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::Cni;
use crate::inventory::budgets::{ClosedBudget, DrainBudgets, REMEDY, SeveralBudgets};
use crate::inventory::pod::TrimmedPod;
use crate::preflight::{Check, Judged, Source, first_few};
use crate::words::all_of;

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "budgets",
    why: "a drain never ends if a PodDisruptionBudget allows no eviction",
    needs: &[Source::Api],
    judge: |input| Box::pin(async { Ok(judge(&input.read.objects().await?, input.read.pods().await?)) }),
};

/// Checks the PodDisruptionBudgets.
fn judge(budgets: &[PodDisruptionBudget], pods: &[TrimmedPod]) -> Judged {
    let found = DrainBudgets::of(budgets, pods);
    let mut blocking: Vec<String> = found.several.iter().map(SeveralBudgets::told).collect();
    blocking.extend(found.closed.iter().map(ClosedBudget::told));
    if blocking.is_empty() {
        return Judged::pass(match found.with_pods {
            0 => "no PodDisruptionBudget selects a started Pod that a drain evicts".to_string(),
            count => {
                all_of(count, "budget with Pods allows an eviction", "budgets with Pods allow an eviction")
            }
        });
    }
    Judged::fail(format!("a drain would never end: {}", first_few(&blocking)), REMEDY)
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

//! Which PodDisruptionBudgets block a drain.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};

use super::drain::is_drained;
use super::pod::{TrimmedPod, is_ready, node_of, phase};
use super::selectors::selects;
use crate::kube_api::accessors::{labels, namespace, subject};

/// What to do about budgets that block a drain.
pub const REMEDY: &str = "add replicas, repair unhealthy Pods, or relax the budget; if the disruption controller has not observed the budget, check the controller manager";

/// A budget that allows no eviction of its Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedBudget {
    /// Namespace and name of the budget.
    pub budget: String,
    /// Why it allows no eviction.
    pub reason: String,
    /// Nodes with a Pod of this budget.
    pub nodes: Vec<String>,
}

/// A Pod that more than one budget selects. It cannot be evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeveralBudgets {
    /// Namespace and name of the Pod.
    pub pod: String,
    /// Its node.
    pub node: String,
    /// Namespaces and names of the budgets.
    pub budgets: Vec<String>,
}

/// The budgets of the Pods that a drain evicts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainBudgets {
    /// Number of budgets that select such a Pod.
    pub with_pods: usize,
    /// The budgets that allow no eviction.
    pub closed: Vec<ClosedBudget>,
    /// The Pods with several budgets.
    pub several: Vec<SeveralBudgets>,
}

impl ClosedBudget {
    /// Returns the budget and the reason.
    pub fn told(&self) -> String {
        format!("{} ({})", self.budget, self.reason)
    }
}

impl SeveralBudgets {
    /// Returns the Pod and the number of its budgets.
    pub fn told(&self) -> String {
        format!("Pod {} cannot be evicted, because it has {} budgets", self.pod, self.budgets.len())
    }
}

impl DrainBudgets {
    /// Returns the budgets that block a drain. A budget blocks a drain if it allows no eviction, or if the disruption controller has
    /// not observed the last change of the budget. A Pod with two budgets cannot be evicted (`EvictionREST.Create`,
    /// `pkg/registry/core/pod/storage/eviction.go`, v1.36.3).
    pub fn of(budgets: &[PodDisruptionBudget], pods: &[TrimmedPod]) -> Self {
        // Pods that have not started can be evicted even if a budget allows no eviction (`canIgnorePDB`).
        let pods = pods.iter().filter(|pod| is_drained(pod) && phase(pod) != "Pending");
        let (mut held, mut several) = (BTreeMap::<usize, Vec<&TrimmedPod>>::new(), Vec::new());
        for pod in pods {
            let is_its = |(_, budget): &(usize, &PodDisruptionBudget)| {
                let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
                // A missing selector selects no Pod, but an empty selector selects every Pod (`policy/v1`).
                namespace(*budget) == namespace(pod) && selector.is_some() && selects(selector, labels(pod))
            };
            let its: Vec<(usize, _)> = budgets.iter().enumerate().filter(is_its).collect();
            if its.len() > 1 {
                several.push(SeveralBudgets {
                    pod: subject(pod),
                    node: node_of(pod).to_string(),
                    budgets: its.iter().map(|(_, budget)| subject(*budget)).collect(),
                });
            }
            for (index, _) in its {
                held.entry(index).or_default().push(pod);
            }
        }
        let with_pods = held.len();
        let closed = held.into_iter().filter_map(|(index, pods)| {
            let budget = budgets.get(index)?;
            let mut nodes: Vec<String> = pods.iter().map(|pod| node_of(pod).to_string()).collect();
            nodes.sort();
            nodes.dedup();
            Some(ClosedBudget { budget: subject(budget), reason: blocks(budget, &pods)?, nodes })
        });
        Self { with_pods, closed: closed.collect(), several }
    }
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

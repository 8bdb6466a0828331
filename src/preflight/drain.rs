//! Checks whether every node can be drained, one after the other: what blocks a drain, and which Pods and data it interrupts or
//! deletes.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};

use super::objects::{
    controller, has_condition, is_alive, is_ready, labels, name, namespace, phase, subject,
};
use super::placing::is_closed;
use super::selectors::selects;
use super::{Judged, first_few};
use crate::words::counted;

/// Checks the Nodes: each must be ready, without pressure, and schedulable.
pub fn nodes(nodes: &[Node]) -> Judged {
    let unready = nodes.iter().filter(|node| !has_condition(node, "Ready"));
    let unready: Vec<String> = unready.map(|node| format!("`{}`", name(node))).collect();
    if nodes.is_empty() {
        return Judged::fail("there are no Nodes", "is this the right cluster?");
    }
    if !unready.is_empty() {
        return Judged::fail(
            format!("{} of {} are not ready: {}", unready.len(), nodes.len(), first_few(&unready)),
            "repair them, or delete Nodes that no longer exist, before the change",
        );
    }
    let troubled = nodes.iter().filter_map(|node| {
        let list = ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];
        let trouble = list.into_iter().find(|of| has_condition(node, of));
        Some(format!("`{}` ({})", name(node), trouble.or(is_closed(node).then_some("cordoned"))?))
    });
    let troubled: Vec<String> = troubled.collect();
    if troubled.is_empty() {
        return Judged::pass(format!("all {} are ready", nodes.len()));
    }
    Judged::warn(
        format!("{} of {}: {}", troubled.len(), nodes.len(), first_few(&troubled)),
        "find out why, and `kubectl uncordon` Nodes that should run Pods: Pods of a drained node must run elsewhere",
    )
}

/// Checks for pending CertificateSigningRequests. A node that joins creates such a request
/// (`KubeAPIServerClientKubeletSignerName`, `k8s.io/api/certificates/v1/types.go`, v1.36.3).
pub fn requests(requests: &[CertificateSigningRequest]) -> Judged {
    const JOINS: &str = "kubernetes.io/kube-apiserver-client-kubelet";
    let is_open = |request: &&CertificateSigningRequest| {
        let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.is_none_or(Vec::is_empty)
    };
    let open: Vec<_> = requests.iter().filter(is_open).collect();
    if open.is_empty() {
        return Judged::pass("none is pending");
    }
    let words = open.iter().map(|request| format!("`{}` ({})", name(*request), request.spec.signer_name));
    let seen = format!("{} pending: {}", open.len(), first_few(&words.collect::<Vec<_>>()));
    let remedy = "check the requester, then `kubectl certificate approve NAME` or `deny`";
    if open.iter().any(|request| request.spec.signer_name == JOINS) {
        return Judged::fail(seen, format!("{remedy}: the node cannot join until then"));
    }
    Judged::warn(seen, remedy)
}

/// Checks PodDisruptionBudgets. A budget blocks a drain if it allows no eviction or is not observed. A Pod with two budgets
/// cannot be evicted (`EvictionREST.Create`, `pkg/registry/core/pod/storage/eviction.go`, v1.36.3).
pub fn budgets(budgets: &[PodDisruptionBudget], pods: &[Pod]) -> Judged {
    // Pods that have not started can be evicted regardless of a budget (`canIgnorePDB`).
    let pods = pods.iter().filter(|pod| is_drained(pod) && phase(pod) != "Pending");
    let (mut held, mut blocking) = (BTreeMap::<usize, Vec<&Pod>>::new(), Vec::new());
    for pod in pods {
        let is_its = |(_, budget): &(usize, &PodDisruptionBudget)| {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            // A missing selector selects no Pod, an empty selector selects every Pod (`policy/v1`).
            namespace(*budget) == namespace(pod) && selector.is_some() && selects(selector, labels(pod))
        };
        let its: Vec<(usize, _)> = budgets.iter().enumerate().filter(is_its).collect();
        if its.len() > 1 {
            blocking.push(format!("Pod {} has {} budgets, and cannot be evicted", subject(pod), its.len()));
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
        return Judged::pass(format!("all {count} with Pods allow an eviction"));
    }
    Judged::fail(
        format!("a drain would never end: {}", first_few(&blocking)),
        "add replicas, repair unhealthy Pods, or relax the budget; if the budget is not observed, check \
         the disruption controller of the controller manager",
    )
}

/// Returns why a budget allows no eviction of these Pods; `None` if it allows an eviction.
fn blocks(budget: &PodDisruptionBudget, pods: &[&Pod]) -> Option<String> {
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
    is_blocked.then(|| format!("{healthy} healthy, {desired} wanted"))
}

/// Returns whether a drain evicts a Pod. Pods of DaemonSets and static Pods stay.
pub fn is_drained(pod: &Pod) -> bool {
    is_alive(pod) && !matches!(maker(pod), Some("DaemonSet" | "Node"))
}

/// Returns whether a controller recreates a Pod after its deletion.
pub fn is_made_anew(pod: &Pod) -> bool {
    maker(pod).is_some()
}

/// Returns the kind of the controller that recreates a Pod; `Node` for static Pods, which a drain skips.
fn maker(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref();
    if annotations.is_some_and(|all| all.contains_key("kubernetes.io/config.mirror")) {
        return Some("Node");
    }
    controller(pod).map(|owner| owner.kind.as_str())
}

/// Checks for Pods without a controller that recreates them.
pub fn bare(pods: &[Pod]) -> Judged {
    let found = pods.iter().filter(|pod| is_alive(pod) && !is_made_anew(pod));
    let found: Vec<String> = found.map(subject).collect();
    if found.is_empty() {
        return Judged::pass("every Pod has a controller");
    }
    Judged::warn(
        format!("{} no controller: {}", counted(found.len(), "Pod has", "Pods have"), first_few(&found)),
        "give them a controller (such as a Deployment), or accept that a drain deletes them (`kubectl drain --force`)",
    )
}

/// Checks for Pods with data on their node, and volumes on one node. `kubectl drain` stops at every `emptyDir`, in memory or not
/// (`localStorageFilter`, `k8s.io/kubectl/pkg/drain/filters.go`, v0.36.3).
pub fn local(pods: &[Pod], volumes: &[PersistentVolume]) -> Judged {
    let keeps = |pod: &&Pod| {
        let mut list = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        is_drained(pod) && list.any(|volume| volume.empty_dir.is_some())
    };
    let is_local = |volume: &&PersistentVolume| {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let is_on_one =
            volume.spec.as_ref().is_some_and(|spec| spec.local.is_some() || spec.host_path.is_some());
        is_on_one && phase == Some("Bound")
    };
    let pods: Vec<String> = pods.iter().filter(keeps).map(subject).collect();
    let bound = volumes.iter().filter(is_local).map(|volume| format!("`{}`", name(volume)));
    let bound: Vec<String> = bound.collect();
    let (mut seen, mut remedy) = (Vec::new(), Vec::new());
    if !bound.is_empty() {
        let volumes = counted(bound.len(), "PersistentVolume is", "PersistentVolumes are");
        seen.push(format!("{volumes} on one node: {}", first_few(&bound)));
        remedy.push("Pods that use these volumes cannot run elsewhere: back the volumes up, and schedule the drain of their nodes");
    }
    if !pods.is_empty() {
        let with = counted(pods.len(), "Pod has", "Pods have");
        seen.push(format!("{with} an `emptyDir`, which is lost: {}", first_few(&pods)));
        remedy.push("make sure that each `emptyDir` has only temporary data; a drain needs `--delete-emptydir-data` for these Pods");
    }
    if seen.is_empty() {
        return Judged::pass("no Pod stores data on its node");
    }
    Judged::warn(seen.join("; "), remedy.join("; "))
}

/// Checks for workloads with one replica. They are unavailable while their Pod moves.
pub fn single(deployments: &[Deployment], stateful_sets: &[StatefulSet]) -> Judged {
    let deployments = deployments.iter().map(|one| (subject(one), replicas(one)));
    let stateful_sets =
        stateful_sets.iter().map(|one| (subject(one), one.spec.as_ref().and_then(|spec| spec.replicas)));
    let all: Vec<(String, Option<i32>)> = deployments.chain(stateful_sets).collect();
    let found = all.iter().filter(|(_, replicas)| replicas.is_none_or(|count| count == 1));
    let found: Vec<String> = found.map(|(subject, _)| subject.clone()).collect();
    if found.is_empty() {
        return Judged::pass(format!("all {} have two replicas or more, or none", all.len()));
    }
    Judged::warn(
        format!("{} of {} have one replica: {}", found.len(), all.len(), first_few(&found)),
        "scale workloads that must stay available to two replicas on different nodes during the change",
    )
}

fn replicas(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.replicas
}

/// Checks for autoscalers, which add and remove nodes.
pub fn autoscalers(deployments: &[Deployment], has_karpenter: bool) -> Judged {
    let is_one = |deployment: &&Deployment| {
        replicas(deployment) != Some(0) && name(*deployment).contains("cluster-autoscaler")
    };
    let mut found: Vec<String> = deployments.iter().filter(is_one).map(subject).collect();
    if has_karpenter {
        found.push("Karpenter".to_string());
    }
    if found.is_empty() {
        return Judged::pass("no known autoscaler was found");
    }
    Judged::warn(
        format!("nodes are added and removed by {}", found.join(", ")),
        "pause it during the change: scale it to 0; for Karpenter, set `limits` of the NodePool to prevent \
         new nodes, and `disruption.budgets` with `nodes: \"0\"` to prevent removals. Otherwise it removes \
         drained nodes, and adds nodes with the old network",
    )
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::preflight::Verdict;

    fn typed<K: DeserializeOwned>(object: &Value) -> K {
        serde_json::from_value(object.clone()).unwrap()
    }

    fn pod(owner: &Value, volume: &Value) -> Pod {
        typed(&json!({
            "metadata": {"namespace": "shop", "name": "web", "ownerReferences": owner},
            "spec": {"volumes": [volume]}, "status": {"phase": "Running"},
        }))
    }

    fn owned(kind: &str) -> Value {
        json!([{"kind": kind, "controller": true}])
    }

    #[test]
    fn nodes_must_be_ready_and_schedulable() {
        let node = |ready: &str, pressure: &str, closed: bool| {
            typed(&json!({
                "metadata": {"name": "a"}, "spec": {"unschedulable": closed},
                "status": {"conditions": [
                    {"type": "Ready", "status": ready}, {"type": "DiskPressure", "status": pressure},
                ]},
            }))
        };
        assert_eq!(nodes(&[node("True", "False", false)]).verdict, Verdict::Pass);
        assert_eq!(nodes(&[node("Unknown", "False", false)]).verdict, Verdict::Fail);
        assert_eq!(nodes(&[node("True", "True", false)]).observed, "1 of 1: `a` (DiskPressure)");
        assert_eq!(nodes(&[node("True", "False", true)]).observed, "1 of 1: `a` (cordoned)");
        assert_eq!(nodes(&[]).verdict, Verdict::Fail);
    }

    #[test]
    fn pod_without_controller_is_a_warning() {
        let volume = json!({"configMap": {}});
        assert_eq!(bare(&[pod(&owned("ReplicaSet"), &volume)]).verdict, Verdict::Pass);
        assert_eq!(bare(&[pod(&Value::Null, &volume)]).observed, "1 Pod has no controller: `shop/web`");
        let mut mirrored = pod(&Value::Null, &volume);
        mirrored.metadata.annotations = typed(&json!({"kubernetes.io/config.mirror": "x"}));
        assert_eq!(bare(&[mirrored]).verdict, Verdict::Pass, "the kubelet recreates it");
        let mut over = pod(&Value::Null, &volume);
        over.status = typed(&json!({"phase": "Succeeded"}));
        assert_eq!(bare(&[over]).verdict, Verdict::Pass);
    }

    #[test]
    fn data_on_a_node_is_a_warning() {
        let (disk, secret) = (json!({"emptyDir": {"medium": "Memory"}}), json!({"secret": {}}));
        assert_eq!(local(&[pod(&owned("ReplicaSet"), &disk)], &[]).verdict, Verdict::Warn);
        assert_eq!(local(&[pod(&owned("ReplicaSet"), &secret)], &[]).verdict, Verdict::Pass);
        assert_eq!(local(&[pod(&owned("DaemonSet"), &disk)], &[]).verdict, Verdict::Pass, "it stays");
        let volume = |phase: &str| {
            typed(
                &json!({"metadata": {"name": "disk"}, "spec": {"local": {"path": "/x"}}, "status": {"phase": phase}}),
            )
        };
        assert_eq!(local(&[], &[volume("Available")]).verdict, Verdict::Pass);
        let both = local(&[pod(&owned("ReplicaSet"), &disk)], &[volume("Bound")]);
        assert!(
            both.observed.starts_with("1 PersistentVolume is on one node: `disk`; 1 Pod has"),
            "{both:?}"
        );
    }

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
        let judged = |budget: Value, pod: Pod| budgets(&[typed(&budget)], &[pod]);
        let up = || of("Running", "True");
        assert_eq!(judged(budget(1, 1, Value::Null), up()).observed, "all 1 with Pods allow an eviction");
        let blocked = judged(budget(0, 1, Value::Null), up());
        assert_eq!(blocked.verdict, Verdict::Fail);
        assert!(blocked.observed.ends_with("`shop/web` (1 healthy, 1 wanted)"), "{blocked:?}");
        let down =
            |more: Value, desired: u8| judged(budget(0, desired, more), of("Running", "False")).verdict;
        assert_eq!(down(Value::Null, 2), Verdict::Fail);
        assert_eq!(down(Value::Null, 1), Verdict::Pass, "the budget is met without it");
        assert_eq!(down(json!("AlwaysAllow"), 2), Verdict::Pass);
        assert_eq!(judged(budget(0, 1, Value::Null), of("Pending", "False")).verdict, Verdict::Pass);
        let mut unseen = budget(1, 1, Value::Null);
        unseen["metadata"]["generation"] = json!(2);
        assert!(judged(unseen, up()).observed.contains("has not observed its last change"));
        let two = budgets(&[(); 2].map(|()| typed(&budget(1, 1, Value::Null))), &[up()]);
        assert!(two.observed.contains("Pod `shop/web` has 2 budgets"), "{two:?}");
        let mut of_none = budget(0, 1, Value::Null);
        of_none["spec"] = json!({});
        assert_eq!(judged(of_none, up()).verdict, Verdict::Pass, "a budget without a selector has no Pods");
    }
}

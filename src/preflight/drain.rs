//! Whether every node can be emptied and filled again, one after the other: what would block a drain, and what would not
//! come through one.

use std::collections::BTreeMap;

use serde_json::Value;

use super::selectors::{labels, selects};
use super::{Judged, first_few, is_alive, subject, text};

/// Every Node must be ready, and without troubles of its own.
pub fn nodes(nodes: &[Value]) -> Judged {
    let name = |node: &Value| format!("`{}`", text(node, "/metadata/name"));
    let is_ready = |node: &&Value| condition(node, "Ready") == Some("True");
    let unready: Vec<String> = nodes.iter().filter(|node| !is_ready(node)).map(name).collect();
    if nodes.is_empty() {
        return Judged::fail("there are no Nodes", "is this the right cluster?");
    }
    if !unready.is_empty() {
        return Judged::fail(
            format!("{} of {} are not ready: {}", unready.len(), nodes.len(), first_few(&unready)),
            "bring them back, or remove Nodes that are gone, before the network of the others is changed",
        );
    }
    let troubled = nodes.iter().filter_map(|node| {
        let list = ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];
        let trouble = list.into_iter().find(|of| condition(node, of) == Some("True"));
        let is_closed = node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true);
        Some(format!("{} ({})", name(node), trouble.or(is_closed.then_some("cordoned"))?))
    });
    let troubled: Vec<String> = troubled.collect();
    if troubled.is_empty() {
        return Judged::pass(format!("all {} are ready", nodes.len()));
    }
    Judged::warn(
        format!("{} of {}: {}", troubled.len(), nodes.len(), first_few(&troubled)),
        "find out why, and `kubectl uncordon` what should take Pods: what is drained elsewhere must go somewhere",
    )
}

/// CertificateSigningRequests that nobody has decided about. A node that joins asks for one (`KubeAPIServerClientKubeletSignerName`,
/// `k8s.io/api/certificates/v1/types.go`, v1.36.3).
pub fn requests(requests: &[Value]) -> Judged {
    const JOINS: &str = "kubernetes.io/kube-apiserver-client-kubelet";
    let is_decided = |request: &&Value| {
        let list = request.pointer("/status/conditions").and_then(Value::as_array);
        list.is_some_and(|list| !list.is_empty())
    };
    let open: Vec<&Value> = requests.iter().filter(|request| !is_decided(request)).collect();
    if open.is_empty() {
        return Judged::pass("none waits for an approval");
    }
    let words = |request: &&Value| {
        format!("`{}` ({})", text(request, "/metadata/name"), text(request, "/spec/signerName"))
    };
    let seen = format!("{} wait: {}", open.len(), first_few(&open.iter().map(words).collect::<Vec<_>>()));
    let todo = "look who asks, then `kubectl certificate approve NAME` or `deny`";
    if open.iter().any(|request| text(request, "/spec/signerName") == JOINS) {
        return Judged::fail(seen, format!("{todo}: a node that waits for one cannot join"));
    }
    Judged::warn(seen, todo)
}

/// PodDisruptionBudgets that a drain waits for: none of their Pods may go, nobody looks after them, or a Pod has two
/// (`EvictionREST.Create`, `pkg/registry/core/pod/storage/eviction.go`, v1.36.3).
pub fn budgets(budgets: &[Value], pods: &[Value]) -> Judged {
    // What has not been started goes whatever a budget says (`canIgnorePDB`).
    let pods = pods.iter().filter(|pod| is_drained(pod) && text(pod, "/status/phase") != "Pending");
    let (mut held, mut blocking) = (BTreeMap::<usize, Vec<&Value>>::new(), Vec::new());
    for pod in pods {
        let own = labels(pod);
        let is_its = |(_, budget): &(usize, &Value)| {
            let selector = budget.pointer("/spec/selector");
            let is_near = text(budget, "/metadata/namespace") == text(pod, "/metadata/namespace");
            // One that is left out selects nothing, an empty one everything (`policy/v1`).
            is_near && selector.is_some() && selects(selector, &own)
        };
        let its: Vec<(usize, &Value)> = budgets.iter().enumerate().filter(is_its).collect();
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
        return Judged::pass(format!("all {count} that have Pods allow one to go"));
    }
    Judged::fail(
        format!("a drain would wait for ever: {}", first_few(&blocking)),
        "have more replicas, or mend those that are not healthy, or loosen the budget; one that is not observed needs the controller \
         manager's disruption controller",
    )
}

/// Why a budget lets none of these Pods go; `None` if it lets one go.
fn blocks(budget: &Value, pods: &[&Value]) -> Option<String> {
    let number = |path: &str| budget.pointer(path).and_then(Value::as_i64).unwrap_or_default();
    if number("/status/observedGeneration") < number("/metadata/generation") {
        return Some("nobody has looked at it since it was changed".to_string());
    }
    let (healthy, desired) = (number("/status/currentHealthy"), number("/status/desiredHealthy"));
    // Pods that are not ready may go all the same, if the budget says so or is met without them.
    let lets_unready_go = text(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow"
        || healthy >= desired && desired > 0;
    let stays = |pod: &&&Value| !lets_unready_go || condition(pod, "Ready") == Some("True");
    let is_blocked = number("/status/disruptionsAllowed") == 0 && pods.iter().any(|pod| stays(&pod));
    is_blocked.then(|| format!("{healthy} healthy, {desired} wanted"))
}

/// The status of a condition of a Node or a Pod.
pub fn condition<'v>(object: &'v Value, of: &str) -> Option<&'v str> {
    let list = object.pointer("/status/conditions").and_then(Value::as_array)?;
    list.iter().find(|one| text(one, "/type") == of).map(|one| text(one, "/status"))
}

/// Whether a drain would have it go: those of DaemonSets and static Pods stay.
pub fn is_drained(pod: &Value) -> bool {
    is_alive(pod) && !matches!(controller(pod), Some("DaemonSet" | "Node"))
}

/// Whether somebody makes it anew once it is gone.
pub fn is_made_anew(pod: &Value) -> bool {
    controller(pod).is_some()
}

/// The kind of the controller that would make a Pod anew; `Node` for static Pods, which a drain leaves alone.
fn controller(pod: &Value) -> Option<&str> {
    if pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some() {
        return Some("Node");
    }
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array)?;
    let is_controller = |owner: &&Value| owner.get("controller").and_then(Value::as_bool) == Some(true);
    owners.iter().find(is_controller).map(|owner| text(owner, "/kind"))
}

/// Pods that nobody makes anew.
pub fn bare(pods: &[Value]) -> Judged {
    let is_bare = |pod: &&Value| is_alive(pod) && controller(pod).is_none();
    let found: Vec<String> = pods.iter().filter(is_bare).map(subject).collect();
    if found.is_empty() {
        return Judged::pass("every Pod has a controller that makes it anew");
    }
    Judged::warn(
        format!("{} have no controller: {}", found.len(), first_few(&found)),
        "give them one (a Deployment), or know that they are gone once their node is drained (`kubectl drain --force`)",
    )
}

/// Pods that keep something on their node, and volumes that are on one. `kubectl drain` stops at every `emptyDir`, in memory or not
/// (`localStorageFilter`, `k8s.io/kubectl/pkg/drain/filters.go`, v0.36.3).
pub fn local(pods: &[Value], volumes: &[Value]) -> Judged {
    let keeps = |pod: &&Value| {
        let list = pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
        is_drained(pod) && list.filter_map(|volume| volume.get("emptyDir")).count() > 0
    };
    let is_local = |volume: &&Value| {
        let spec = volume.get("spec");
        ["local", "hostPath"].into_iter().any(|kind| spec.and_then(|spec| spec.get(kind)).is_some())
            && text(volume, "/status/phase") == "Bound"
    };
    let pods: Vec<String> = pods.iter().filter(keeps).map(subject).collect();
    let volume = |volume: &Value| format!("`{}`", text(volume, "/metadata/name"));
    let bound: Vec<String> = volumes.iter().filter(is_local).map(volume).collect();
    let (mut seen, mut todo) = (Vec::new(), Vec::new());
    if !bound.is_empty() {
        seen.push(format!("{} PersistentVolumes are on one node: {}", bound.len(), first_few(&bound)));
        todo.push("what needs those volumes cannot run elsewhere: back them up, and see when their nodes are drained");
    }
    if !pods.is_empty() {
        seen.push(format!("{} Pods have an `emptyDir`, which is lost: {}", pods.len(), first_few(&pods)));
        todo.push("see that each `emptyDir` is a cache and no more; a drain needs `--delete-emptydir-data` for them");
    }
    if seen.is_empty() {
        return Judged::pass("no Pod keeps anything on its node");
    }
    Judged::warn(seen.join("; "), todo.join("; "))
}

/// What runs once is away while its Pod moves.
pub fn single(workloads: &[Value]) -> Judged {
    let is_single =
        |one: &&Value| one.pointer("/spec/replicas").and_then(Value::as_i64).is_none_or(|count| count == 1);
    let found: Vec<String> = workloads.iter().filter(is_single).map(subject).collect();
    if found.is_empty() {
        return Judged::pass(format!("all {} have two replicas or more, or none", workloads.len()));
    }
    Judged::warn(
        format!("{} of {} have one replica: {}", found.len(), workloads.len(), first_few(&found)),
        "scale what serves somebody to two, on different nodes, for the time of the change",
    )
}

/// Who adds and removes nodes by itself.
pub fn autoscalers(deployments: &[Value], has_karpenter: bool) -> Judged {
    let is_one = |deployment: &&Value| {
        let runs = deployment.pointer("/spec/replicas").and_then(Value::as_i64) != Some(0);
        runs && text(deployment, "/metadata/name").contains("cluster-autoscaler")
    };
    let mut found: Vec<String> = deployments.iter().filter(is_one).map(subject).collect();
    if has_karpenter {
        found.push("Karpenter".to_string());
    }
    if found.is_empty() {
        return Judged::pass("none is known by its name");
    }
    Judged::warn(
        format!("nodes are added and removed by {}", found.join(", ")),
        "pause it for the time of the change: scale it to 0; Karpenter: a NodePool's `limits` against new nodes, and `disruption.budgets` with \
         `nodes: \"0\"` against removals. It removes nodes that are emptied, and adds some with the old network",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;

    fn pod(owner: &Value, volume: &Value) -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": "web", "ownerReferences": owner},
            "spec": {"volumes": [volume]}, "status": {"phase": "Running"},
        })
    }

    fn owned(kind: &str) -> Value {
        json!([{"kind": kind, "controller": true}])
    }

    #[test]
    fn nodes_are_ready_and_take_pods() {
        let node = |ready: &str, pressure: &str, closed: bool| {
            json!({
                "metadata": {"name": "a"}, "spec": {"unschedulable": closed},
                "status": {"conditions": [
                    {"type": "Ready", "status": ready}, {"type": "DiskPressure", "status": pressure},
                ]},
            })
        };
        assert_eq!(nodes(&[node("True", "False", false)]).verdict, Verdict::Pass);
        assert_eq!(nodes(&[node("Unknown", "False", false)]).verdict, Verdict::Fail);
        assert_eq!(nodes(&[node("True", "True", false)]).seen, "1 of 1: `a` (DiskPressure)");
        assert_eq!(nodes(&[node("True", "False", true)]).seen, "1 of 1: `a` (cordoned)");
        assert_eq!(nodes(&[]).verdict, Verdict::Fail);
    }

    #[test]
    fn what_has_no_controller_is_not_made_anew() {
        let volume = json!({"configMap": {}});
        assert_eq!(bare(&[pod(&owned("ReplicaSet"), &volume)]).verdict, Verdict::Pass);
        assert_eq!(bare(&[pod(&Value::Null, &volume)]).seen, "1 have no controller: `shop/web`");
        let mut mirrored = pod(&Value::Null, &volume);
        mirrored["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        assert_eq!(bare(&[mirrored]).verdict, Verdict::Pass, "its node makes it");
        let mut over = pod(&Value::Null, &volume);
        over["status"]["phase"] = json!("Succeeded");
        assert_eq!(bare(&[over]).verdict, Verdict::Pass);
    }

    #[test]
    fn what_is_kept_on_a_node_is_lost_with_it() {
        let (disk, secret) = (json!({"emptyDir": {"medium": "Memory"}}), json!({"secret": {}}));
        assert_eq!(local(&[pod(&owned("ReplicaSet"), &disk)], &[]).verdict, Verdict::Warn);
        assert_eq!(local(&[pod(&owned("ReplicaSet"), &secret)], &[]).verdict, Verdict::Pass);
        assert_eq!(local(&[pod(&owned("DaemonSet"), &disk)], &[]).verdict, Verdict::Pass, "it stays");
        let volume = |phase: &str| json!({"metadata": {"name": "disk"}, "spec": {"local": {"path": "/x"}}, "status": {"phase": phase}});
        assert_eq!(local(&[], &[volume("Available")]).verdict, Verdict::Pass);
        let both = local(&[pod(&owned("ReplicaSet"), &disk)], &[volume("Bound")]);
        assert!(
            both.seen.starts_with("1 PersistentVolumes are on one node: `disk`; 1 Pods have"),
            "{both:?}"
        );
    }

    #[test]
    fn a_budget_blocks_by_the_pods_that_it_has() {
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
            pod["status"] = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
            pod
        };
        let judged = |budget: Value, pod: Value| budgets(&[budget], &[pod]);
        let up = || of("Running", "True");
        assert_eq!(judged(budget(1, 1, Value::Null), up()).seen, "all 1 that have Pods allow one to go");
        let blocked = judged(budget(0, 1, Value::Null), up());
        assert_eq!(blocked.verdict, Verdict::Fail);
        assert!(blocked.seen.ends_with("`shop/web` (1 healthy, 1 wanted)"), "{blocked:?}");
        let down =
            |more: Value, desired: u8| judged(budget(0, desired, more), of("Running", "False")).verdict;
        assert_eq!(down(Value::Null, 2), Verdict::Fail);
        assert_eq!(down(Value::Null, 1), Verdict::Pass, "it is met without it");
        assert_eq!(down(json!("AlwaysAllow"), 2), Verdict::Pass);
        assert_eq!(judged(budget(0, 1, Value::Null), of("Pending", "False")).verdict, Verdict::Pass);
        let mut unseen = budget(1, 1, Value::Null);
        unseen["metadata"]["generation"] = json!(2);
        assert!(judged(unseen, up()).seen.contains("nobody has looked at it"));
        let two = budgets(&[budget(1, 1, Value::Null), budget(1, 1, Value::Null)], &[up()]);
        assert!(two.seen.contains("Pod `shop/web` has 2 budgets"), "{two:?}");
        let mut of_none = budget(0, 1, Value::Null);
        of_none["spec"] = json!({});
        assert_eq!(judged(of_none, up()).verdict, Verdict::Pass, "without a selector it has none");
    }
}

//! Whether every node can be emptied and filled again, one after the other: what would block a drain, and what would not
//! come through one.

use serde_json::Value;

use super::{Judged, first_few, text};

fn named(object: &Value) -> String {
    format!("`{}/{}`", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// Every Node must be ready, and without troubles of its own.
pub fn nodes(nodes: &[Value]) -> Judged {
    let condition = |node: &Value, of: &str| {
        let list = node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        list.clone().find(|one| text(one, "/type") == of).map(|one| text(one, "/status").to_string())
    };
    let name = |node: &Value| format!("`{}`", text(node, "/metadata/name"));
    let is_ready = |node: &&Value| condition(node, "Ready").as_deref() == Some("True");
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
        let trouble = list.into_iter().find(|of| condition(node, of).as_deref() == Some("True"));
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

/// A PodDisruptionBudget that allows none blocks a drain for ever.
pub fn budgets(budgets: &[Value]) -> Judged {
    let number =
        |budget: &Value, path: &str| budget.pointer(path).and_then(Value::as_i64).unwrap_or_default();
    let blocks = |budget: &&Value| {
        number(budget, "/status/expectedPods") > 0 && number(budget, "/status/disruptionsAllowed") == 0
    };
    let of = |budget: &Value| {
        let (healthy, desired) =
            (number(budget, "/status/currentHealthy"), number(budget, "/status/desiredHealthy"));
        format!("{} ({healthy} healthy, {desired} wanted)", named(budget))
    };
    let blocking: Vec<String> = budgets.iter().filter(blocks).map(of).collect();
    if blocking.is_empty() {
        return Judged::pass(format!("all {} allow a Pod to go", budgets.len()));
    }
    Judged::fail(
        format!("{} allow no Pod to go: {}", blocking.len(), first_few(&blocking)),
        "have more replicas, or mend those that are not healthy, or loosen the budget: a drain waits for it for ever",
    )
}

fn is_alive(pod: &Value) -> bool {
    !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
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
    let found: Vec<String> = pods.iter().filter(is_bare).map(named).collect();
    if found.is_empty() {
        return Judged::pass("every Pod has a controller that makes it anew");
    }
    Judged::warn(
        format!("{} have no controller: {}", found.len(), first_few(&found)),
        "give them one (a Deployment), or know that they are gone once their node is drained (`kubectl drain --force`)",
    )
}

/// Pods that keep something on their node, and volumes that are on one.
pub fn local(pods: &[Value], volumes: &[Value]) -> Judged {
    let keeps = |pod: &&Value| {
        let list = pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
        let is_drained = is_alive(pod) && !matches!(controller(pod), Some("DaemonSet" | "Node"));
        // In memory it does not outlive its container's node anyway, and nobody takes it for storage.
        is_drained
            && list
                .filter_map(|volume| volume.get("emptyDir"))
                .any(|empty| text(empty, "/medium") != "Memory")
    };
    let is_local = |volume: &&Value| {
        let spec = volume.get("spec");
        ["local", "hostPath"].into_iter().any(|kind| spec.and_then(|spec| spec.get(kind)).is_some())
            && text(volume, "/status/phase") == "Bound"
    };
    let found: Vec<String> = pods.iter().filter(keeps).map(named).collect();
    let bound: Vec<String> = volumes
        .iter()
        .filter(is_local)
        .map(|volume| format!("PersistentVolume `{}`", text(volume, "/metadata/name")))
        .collect();
    if !bound.is_empty() {
        return Judged::warn(
            format!("{} are on one node: {}", bound.len(), first_few(&bound)),
            "what needs them cannot run elsewhere: back them up, and see when their nodes are drained",
        );
    }
    if found.is_empty() {
        return Judged::pass("no Pod keeps anything on its node");
    }
    Judged::warn(
        format!("{} have an `emptyDir`, which is lost: {}", found.len(), first_few(&found)),
        "see that it is a cache and no more; a drain needs `--delete-emptydir-data` for them",
    )
}

/// What runs once is away while its Pod moves.
pub fn single(workloads: &[Value]) -> Judged {
    let is_single =
        |one: &&Value| one.pointer("/spec/replicas").and_then(Value::as_i64).is_none_or(|count| count == 1);
    let found: Vec<String> = workloads.iter().filter(is_single).map(named).collect();
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
    let is_one = |deployment: &&Value| text(deployment, "/metadata/name").contains("cluster-autoscaler");
    let mut found: Vec<String> = deployments.iter().filter(is_one).map(named).collect();
    if has_karpenter {
        found.push("Karpenter".to_string());
    }
    if found.is_empty() {
        return Judged::pass("none is known by its name");
    }
    Judged::warn(
        format!("nodes are added and removed by {}", found.join(", ")),
        "pause it for the time of the change (scale it to 0; Karpenter: a NodePool's `limits`): it removes nodes that are emptied, and adds \
         some with the old network",
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
        let (disk, memory) = (json!({"emptyDir": {}}), json!({"emptyDir": {"medium": "Memory"}}));
        assert_eq!(local(&[pod(&owned("ReplicaSet"), &disk)], &[]).verdict, Verdict::Warn);
        assert_eq!(local(&[pod(&owned("ReplicaSet"), &memory)], &[]).verdict, Verdict::Pass);
        assert_eq!(local(&[pod(&owned("DaemonSet"), &disk)], &[]).verdict, Verdict::Pass, "it stays");
        let volume = |phase: &str| json!({"metadata": {"name": "disk"}, "spec": {"local": {"path": "/x"}}, "status": {"phase": phase}});
        assert_eq!(local(&[], &[volume("Bound")]).seen, "1 are on one node: PersistentVolume `disk`");
        assert_eq!(local(&[], &[volume("Available")]).verdict, Verdict::Pass);
    }

    #[test]
    fn a_budget_that_allows_nothing_blocks() {
        let budget = |expected: u8, allowed: u8| {
            json!({
                "metadata": {"namespace": "shop", "name": "web"},
                "status": {"expectedPods": expected, "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1},
            })
        };
        assert_eq!(budgets(&[budget(2, 1)]).verdict, Verdict::Pass);
        assert_eq!(budgets(&[budget(0, 0)]).verdict, Verdict::Pass, "there is nothing to go");
        let blocked = budgets(&[budget(1, 0)]);
        assert_eq!(blocked.verdict, Verdict::Fail);
        assert_eq!(blocked.seen, "1 allow no Pod to go: `shop/web` (1 healthy, 1 wanted)");
    }
}

//! Whether what runs in the source has room on the mirror, by what containers request.

use serde_json::Value;

use super::super::quantity::Quantity;
use super::super::{Judged, is_alive, text};
use super::placement::untolerated;
use super::templates::{Template, is_of_copy};

/// From this share on, in percent, there is no room for a node that fails or a rollout that takes more for a while.
const CLOSE: i128 = 80;

/// CPU and memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Room {
    cpu: Quantity,
    memory: Quantity,
}

impl Room {
    fn at(value: Option<&Value>) -> Self {
        let of = |name: &str| {
            let amount = value.and_then(|value| value.get(name));
            let text =
                amount.map(|amount| amount.as_str().map_or_else(|| amount.to_string(), str::to_string));
            text.and_then(|text| Quantity::parse(&text)).unwrap_or_default()
        };
        Self { cpu: of("cpu"), memory: of("memory") }
    }

    fn both(self, other: Self, of: impl Fn(Quantity, Quantity) -> Quantity) -> Self {
        Self { cpu: of(self.cpu, other.cpu), memory: of(self.memory, other.memory) }
    }

    fn plus(self, other: Self) -> Self {
        self.both(other, Quantity::plus)
    }

    fn told(self) -> String {
        format!("{} cores and {}", self.cpu.cores(), self.memory.bytes())
    }
}

/// What a Pod requests (`PodRequests`, `k8s.io/component-helpers/resource/helpers.go`, v1.36.3): the sum of its containers, or what it
/// needs while it is initialised if that is more; what the Pod itself says in place of that; and its overhead.
fn requested(spec: &Value) -> Room {
    let list = |name: &str| spec.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let of = |container: &Value| Room::at(container.pointer("/resources/requests"));
    let running = list("containers").iter().map(of).fold(Room::default(), Room::plus);
    let (mut beside, mut most) = (Room::default(), Room::default());
    for container in list("initContainers") {
        let now = if text(container, "/restartPolicy") == "Always" {
            beside = beside.plus(of(container));
            beside
        } else {
            beside.plus(of(container))
        };
        most = most.both(now, Ord::max);
    }
    let sum = running.plus(beside).both(most, Ord::max);
    let own = spec.pointer("/resources/requests");
    let said = Room::at(own);
    let is_said = |name: &str| own.is_some_and(|own| own.get(name).is_some());
    let sum = Room {
        cpu: if is_said("cpu") { said.cpu } else { sum.cpu },
        memory: if is_said("memory") { said.memory } else { sum.memory },
    };
    sum.plus(Room::at(spec.get("overhead")))
}

/// What is compared.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    /// Pods of the chosen namespaces.
    pub pods: &'a [Value],
    /// The templates of what is copied: DaemonSets have a Pod on every node.
    pub templates: &'a [Template],
    /// Nodes of the mirror.
    pub nodes: &'a [Value],
    /// Pods of the mirror, of all namespaces.
    pub taken: &'a [Value],
}

/// What is requested against what the mirror's nodes have left. A node counts that is ready, takes Pods, and whose taints some Pod
/// tolerates.
pub fn judge(compared: &Compared<'_>) -> Judged {
    let spec = |pod: &Value| pod.get("spec").cloned().unwrap_or_default();
    let moved: Vec<Value> = compared.pods.iter().filter(|pod| is_of_copy(pod)).map(spec).collect();
    let sets = || compared.templates.iter().filter(|one| one.kind == "DaemonSet");
    let tolerations: Vec<&[Value]> = moved
        .iter()
        .chain(sets().map(|one| &one.spec))
        .map(|spec| spec.get("tolerations").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default())
        .collect();
    let is_open_to_some = |node: &&Value| {
        let is_closed = node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true);
        let is_open =
            tolerations.is_empty() || tolerations.iter().any(|one| untolerated(one, node).is_none());
        !is_closed && is_ready(node) && is_open
    };
    let nodes: Vec<&Value> = compared.nodes.iter().filter(is_open_to_some).collect();
    let names: Vec<&str> = nodes.iter().map(|node| text(node, "/metadata/name")).collect();
    let each = sets().map(|one| requested(&one.spec)).fold(Room::default(), Room::plus);
    let of_sets = Room { cpu: each.cpu.times(nodes.len()), memory: each.memory.times(nodes.len()) };
    let wanted = moved.iter().map(requested).fold(of_sets, Room::plus);
    let all = nodes
        .iter()
        .map(|node| Room::at(node.pointer("/status/allocatable")))
        .fold(Room::default(), Room::plus);
    let is_there = |pod: &&Value| is_alive(pod) && names.contains(&text(pod, "/spec/nodeName"));
    let taken = compared.taken.iter().filter(is_there).map(|pod| requested(&spec(pod)));
    let left = all.both(taken.fold(Room::default(), Room::plus), Quantity::without);
    told(wanted, left, nodes.len())
}

fn told(wanted: Room, left: Room, nodes: usize) -> Judged {
    let seen = format!(
        "{} requested in the source; {nodes} nodes of the mirror have {} left",
        wanted.told(),
        left.told()
    );
    let is_more = wanted.cpu > left.cpu || wanted.memory > left.memory;
    let shares = [wanted.cpu.percent_of(left.cpu), wanted.memory.percent_of(left.memory)];
    let share = shares.into_iter().flatten().max().unwrap_or_default();
    if is_more {
        Judged::fail(
            seen,
            "add nodes to the mirror, or mirror fewer namespaces: what has no room stays Pending",
        )
    } else if share > CLOSE {
        Judged::warn(
            format!("{seen}: {share} % of it"),
            "add nodes to the mirror: there must be room for a rollout, and for a node that fails",
        )
    } else {
        Judged::pass(seen)
    }
}

fn is_ready(node: &Value) -> bool {
    let list = node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    list.into_iter().any(|one| text(one, "/type") == "Ready" && text(one, "/status") == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::templates::templates;
    use super::*;
    use crate::preflight::Verdict;

    fn container(cpu: &str, memory: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn room(cpu: &str, memory: &str) -> Room {
        Room { cpu: Quantity::parse(cpu).unwrap(), memory: Quantity::parse(memory).unwrap() }
    }

    #[test]
    fn a_pod_requests_what_it_needs_at_most() {
        let mut sidecar = container("50m", "10Mi");
        sidecar["restartPolicy"] = json!("Always");
        let spec = json!({
            "containers": [container("100m", "64Mi"), container("1", "0")],
            "initContainers": [container("2", "1Mi"), sidecar, container("100m", "1Gi")],
            "overhead": {"cpu": "10m", "memory": "1Mi"},
        });
        assert_eq!(requested(&spec), room("2.01", "1035Mi"));
        let mut said = spec;
        said["resources"] = json!({"requests": {"cpu": "3"}});
        assert_eq!(requested(&said), room("3.01", "1035Mi"), "the Pod itself says its CPU");
        assert_eq!(requested(&json!({"containers": [{}]})), Room::default());
    }

    #[test]
    fn there_is_room_or_not() {
        let owner = |kind: &str| json!([{"kind": kind, "controller": true}]);
        let pod = |kind: &str, cpu: &str| {
            json!({
                "metadata": {"ownerReferences": owner(kind)}, "status": {"phase": "Running"},
                "spec": {"containers": [container(cpu, "1Gi")], "nodeName": "a"},
            })
        };
        let node = |status: &str, taints: Value| {
            json!({
                "metadata": {"name": "a"}, "spec": {"taints": taints},
                "status": {
                    "allocatable": {"cpu": "4", "memory": "8Gi"}, "conditions": [{"type": "Ready", "status": status}],
                },
            })
        };
        let up = || node("True", json!([]));
        let of = |pods: &[Value], nodes: &[Value], taken: &[Value]| {
            judge(&Compared { pods, templates: &[], nodes, taken })
        };
        let fits = of(&[pod("ReplicaSet", "3"), pod("StatefulSet", "100")], &[up()], &[]);
        assert_eq!(fits.verdict, Verdict::Pass, "what is not copied needs nothing");
        assert_eq!(
            fits.seen,
            "3 cores and 1 GiB requested in the source; 1 nodes of the mirror have 4 cores and 8 GiB left"
        );
        assert_eq!(of(&[pod("ReplicaSet", "3.5")], &[up()], &[]).verdict, Verdict::Warn);
        let taken = of(&[pod("ReplicaSet", "3.5")], &[up()], &[pod("DaemonSet", "1")]);
        assert_eq!(taken.verdict, Verdict::Fail);
        assert_eq!(of(&[pod("ReplicaSet", "1")], &[node("Unknown", json!([]))], &[]).verdict, Verdict::Fail);
        let tainted = node("True", json!([{"key": "x", "effect": "NoSchedule"}]));
        assert_eq!(of(&[pod("ReplicaSet", "1")], &[tainted], &[]).verdict, Verdict::Fail);
        let spec = json!({"containers": [container("3", "1Gi")]});
        let agents = templates("DaemonSet", &[json!({"metadata": {}, "spec": {"template": {"spec": spec}}})]);
        let compared =
            Compared { pods: &[pod("ReplicaSet", "2")], templates: &agents, nodes: &[up()], taken: &[] };
        assert_eq!(judge(&compared).verdict, Verdict::Fail, "an agent on every node");
    }
}

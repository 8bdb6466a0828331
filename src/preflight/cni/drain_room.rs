//! `drain-room`: whether the other nodes have room for the Pods of a drained node.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;

use super::Cni;
use crate::inventory::drain_room::{Place, Places, Why, is_guest};
use crate::inventory::pod::{TrimmedPod, node_of};
use crate::kube_api::accessors::{name, subject};
use crate::preflight::{Check, Judged, Source, first_few};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "drain-room",
    why: "a Pod that no other node can run is unavailable until its node returns",
    needs: &[Source::Api],
    judge: |input| Box::pin(async { Ok(judge(input.read.nodes().await?, input.read.pods().await?)) }),
};

/// The check stops when it has found this number of nodes with Pods that have no room elsewhere.
const MANY: usize = 20;

/// Checks for each node whether the other nodes have room for its Pods while the node is drained. Compares requests, node
/// selectors, required node affinity, taints, required anti-affinity and host ports.
///
/// The Pod that the smallest number of nodes accepts is placed first. If this number is equal for several Pods, the largest of
/// these Pods is placed first. Each Pod is placed on the emptiest node that accepts it and has room. Pods with a negative
/// priority make room for other Pods.
fn judge(nodes: &[Node], pods: &[TrimmedPod]) -> Judged {
    let places = Places::of(nodes, pods);
    match places.all.as_slice() {
        [] => return Judged::fail("there are no Nodes", "is this the right cluster?"),
        [only] => {
            return Judged::warn(
                format!("`{}` is the only node", name(only.node)),
                "add a node before the change: while the only node is drained, every Pod is unavailable",
            );
        }
        _ => {}
    }
    let mut found = Found::default();
    for (drained, place) in places.all.iter().enumerate() {
        found.add(place, &places.left_behind(drained, place));
        if found.crowded.len() >= MANY {
            break;
        }
    }
    let waits = pods.iter().filter(|pod| is_guest(pod) && node_of(pod).is_empty());
    found.told(places.all.len(), &waits.map(subject).collect::<Vec<String>>())
}

/// The results of draining each node.
#[derive(Default)]
struct Found {
    /// Nodes with Pods that have no room elsewhere. Each text names one of these Pods.
    crowded: Vec<String>,
    homeless: BTreeSet<String>,
    apart: usize,
}

impl Found {
    fn add(&mut self, place: &Place<'_>, behind: &[(&TrimmedPod, Why)]) {
        let told = behind.iter().filter_map(|(pod, why)| match why {
            Why::Crowded(of) => Some(format!("{} lacks {}", subject(*pod), of.join(" and "))),
            _ => None,
        });
        let told: Vec<String> = told.collect();
        if let Some(first) = told.first() {
            let others = match told.len().saturating_sub(1) {
                0 => String::new(),
                more => format!("; {} no room", counted(more, "more Pod has", "more Pods have")),
            };
            self.crowded.push(format!("`{}` ({first}{others})", name(place.node)));
        }
        let of = |wanted: Why| behind.iter().filter(move |(_, why)| *why == wanted);
        self.homeless.extend(of(Why::Homeless).map(|(pod, _)| subject(*pod)));
        self.apart = self.apart.saturating_add(of(Why::Apart).count());
    }

    fn told(self, nodes: usize, waiting: &[String]) -> Judged {
        let least =
            if self.crowded.len() >= MANY { format!("at least {MANY} nodes, ") } else { String::new() };
        if !self.crowded.is_empty() {
            return Judged::fail(
                format!(
                    "draining these nodes leaves Pods unschedulable: {least}{}",
                    first_few(&self.crowded)
                ),
                "add a node during the change (or double the nodes, and remove the old ones afterwards), or scale down less important \
                 workloads",
            );
        }
        if !self.homeless.is_empty() {
            let homeless: Vec<String> = self.homeless.into_iter().collect();
            return Judged::warn(
                format!("no other ready node accepts {}", first_few(&homeless)),
                "these Pods are unavailable until their node returns: check their requirements (`nodeSelector`, affinity, tolerations); if they \
                 must stay available, add a matching node during the change",
            );
        }
        if !waiting.is_empty() {
            return Judged::warn(
                format!(
                    "{} for a node before the change: {}",
                    counted(waiting.len(), "Pod waits", "Pods wait"),
                    first_few(waiting)
                ),
                "find out why (`kubectl describe pod`): while a node is drained, the cluster has less capacity",
            );
        }
        let apart = match self.apart {
            0 => String::new(),
            count => format!(
                "; {} because of anti-affinity or a used host port, but other replicas run",
                counted(count, "Pod fits on none of them", "Pods fit on none of them")
            ),
        };
        Judged::pass(format!(
            "if one of {} is drained, the others have room for its Pods{apart}",
            counted(nodes, "node", "nodes")
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;
    use crate::preflight::Verdict;

    fn judge(nodes: &[Value], pods: &[Value]) -> Judged {
        let (nodes, pods): (Vec<Node>, Vec<TrimmedPod>) = from_value(json!([nodes, pods])).unwrap();
        super::judge(&nodes, &pods)
    }

    fn node(name: &str, cpu: &str) -> Value {
        json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": name[..1]}}, "spec": {},
            "status": {
                "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        })
    }

    /// Returns a Pod of a ReplicaSet. `more`: other fields of its spec.
    fn pod(name: &str, on: &str, cpu: &str, more: &Value) -> Value {
        let mut spec = json!({"nodeName": on, "containers": [{"resources": {"requests": {"cpu": cpu}}}]});
        for (key, value) in more.as_object().expect("an object") {
            spec[key] = value.clone();
        }
        json!({
            "metadata": {
                "namespace": "shop", "name": name, "labels": {"app": "web"},
                "ownerReferences": [{"kind": "ReplicaSet", "controller": true, "uid": "u1"}],
            },
            "spec": spec, "status": {"phase": "Running"},
        })
    }

    fn plain(name: &str, on: &str, cpu: &str) -> Value {
        pod(name, on, cpu, &json!({}))
    }

    #[test]
    fn pods_of_a_drained_node_must_fit_on_the_others() {
        let nodes = [node("a1", "4"), node("a2", "4"), node("b1", "4")];
        let pods = [plain("one", "a1", "2"), plain("two", "a2", "2"), plain("three", "b1", "2")];
        assert_eq!(
            judge(&nodes, &pods),
            Judged::pass("if one of 3 nodes is drained, the others have room for its Pods")
        );
        // Each of the other nodes has two free cores. This is enough in total, but not for a Pod that requests three cores.
        let large = [plain("one", "a1", "3"), plain("two", "a2", "2"), plain("three", "b1", "2")];
        let judged = judge(&nodes, &large);
        assert_eq!(
            (judged.verdict, judged.observed.as_str()),
            (Verdict::Fail, "draining these nodes leaves Pods unschedulable: `a1` (`shop/one` lacks `cpu`)")
        );
        // Placed Pods use room. Two Pods with two cores each need more than the three free cores of the other node.
        let two = [plain("one", "a1", "2"), plain("two", "a1", "2"), plain("three", "a2", "1")];
        assert_eq!(judge(&nodes[..2], &two).verdict, Verdict::Fail);
        assert_eq!(judge(&nodes, &two).verdict, Verdict::Pass);
        let mut ill = nodes.clone();
        ill[2]["status"]["conditions"][0]["status"] = json!("Unknown");
        assert_eq!(judge(&ill, &two).verdict, Verdict::Fail, "no room on a node that is not ready");
    }

    #[test]
    fn pods_that_a_drain_keeps_are_not_moved() {
        let nodes = [node("a1", "4"), node("a2", "4")];
        let mut agents = [plain("one", "a1", "3"), plain("two", "a2", "3")];
        for agent in &mut agents {
            agent["metadata"]["ownerReferences"][0]["kind"] = json!("DaemonSet");
        }
        assert_eq!(judge(&nodes, &agents).verdict, Verdict::Pass);
        let mut with = agents.to_vec();
        with.push(plain("web", "a1", "1100m"));
        assert_eq!(judge(&nodes, &with).verdict, Verdict::Fail, "their requests count all the same");
        with[2]["status"]["phase"] = json!("Succeeded");
        assert_eq!(judge(&nodes, &with).verdict, Verdict::Pass);
    }

    #[test]
    fn pod_without_another_matching_node_is_a_warning() {
        let alone = judge(&[node("a1", "4")], &[plain("one", "a1", "1")]);
        assert_eq!((alone.verdict, alone.observed.as_str()), (Verdict::Warn, "`a1` is the only node"));
        let nodes = [node("a1", "4"), node("a2", "4"), node("b1", "4")];
        let choosy = pod("one", "b1", "1", &json!({"nodeSelector": {"zone": "b"}}));
        let judged = judge(&nodes, std::slice::from_ref(&choosy));
        assert_eq!(
            (judged.verdict, judged.observed.as_str()),
            (Verdict::Warn, "no other ready node accepts `shop/one`")
        );
        let mut fitting = nodes.clone();
        fitting[0]["metadata"]["labels"]["zone"] = json!("b");
        assert_eq!(judge(&fitting, std::slice::from_ref(&choosy)).verdict, Verdict::Pass);
        fitting[0]["spec"]["unschedulable"] = json!(true);
        assert_eq!(judge(&fitting, &[choosy]).verdict, Verdict::Warn);
    }

    #[test]
    fn anti_affinity_excludes_nodes_in_both_directions() {
        let apart = |key: &str, selector: Value| {
            let term = json!({"topologyKey": key, "labelSelector": selector});
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
        };
        let web = || json!({"matchLabels": {"app": "web"}});
        let nodes = [node("a1", "4"), node("a2", "4"), node("b1", "4")];
        let of = |more: &Value, count: usize| {
            let pods: Vec<Value> =
                ["a1", "a2", "b1"].iter().take(count).map(|on| pod(on, on, "1", more)).collect();
            judge(&nodes, &pods).observed
        };
        let has_room = |seen: &str| seen.ends_with("the others have room for its Pods");
        let by_host = apart("kubernetes.io/hostname", web());
        assert!(has_room(&of(&by_host, 2)), "one node is free");
        let all = of(&by_host, 3);
        assert!(
            all.ends_with("; 3 Pods fit on none of them because of anti-affinity or a used host port, but other replicas run"),
            "{all}"
        );
        assert!(has_room(&of(&apart("kubernetes.io/hostname", json!({"matchLabels": {"app": "db"}})), 3)));
        assert!(
            has_room(&of(&apart("kubernetes.io/hostname", Value::Null), 3)),
            "a term without a selector selects none"
        );
        assert!(has_room(&of(&apart("rack", web()), 3)), "no node has the label");
        // The anti-affinity is by zone, and each zone has one Pod. The Pod on `b1` can only move to the other zone, but another
        // Pod already runs there.
        let by_zone = apart("zone", web());
        let pods = [pod("one", "a1", "1", &by_zone), pod("two", "b1", "1", &by_zone)];
        let judged = judge(&nodes, &pods).observed;
        assert!(
            judged.ends_with("; 1 Pod fits on none of them because of anti-affinity or a used host port, but other replicas run"),
            "{judged}"
        );
        assert_eq!(judge(&nodes, &pods[..1]).verdict, Verdict::Pass);
        let mut elsewhere = pods.clone();
        elsewhere[0]["metadata"]["namespace"] = json!("till");
        assert!(has_room(&judge(&nodes, &elsewhere).observed));
        // The rule of the other Pod also applies to the Pod without a rule.
        let other = [pod("one", "a1", "1", &by_zone), plain("two", "b1", "1")];
        assert!(
            judge(&nodes, &other).observed.contains("; 1 Pod fits on none"),
            "{:?}",
            judge(&nodes, &other)
        );
        let mut strangers = other;
        strangers[1]["metadata"]["ownerReferences"][0]["uid"] = json!("u2");
        assert_eq!(
            judge(&nodes, &strangers).observed,
            "no other ready node accepts `shop/two`",
            "no sibling runs"
        );
    }

    #[test]
    fn used_host_port_excludes_a_node() {
        let nodes = [node("a1", "4"), node("a2", "4")];
        let ports = json!({"containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}]});
        let pods = [pod("one", "a1", "1", &ports), pod("two", "a2", "1", &ports)];
        assert!(judge(&nodes, &pods).observed.contains("; 2 Pods fit on none"), "{:?}", judge(&nodes, &pods));
        assert!(!judge(&nodes, &pods[..1]).observed.contains("fit on none"));
    }

    #[test]
    fn pods_with_fewest_possible_nodes_are_placed_first() {
        let mut nodes = [node("a1", "4"), node("a2", "4"), node("b1", "4")];
        for node in &mut nodes[..2] {
            node["metadata"]["labels"]["gpu"] = json!("yes");
        }
        let picky = pod("picky", "a1", "1", &json!({"nodeSelector": {"gpu": "yes"}}));
        // `a2` is the emptiest node. If the larger Pod were placed first, it would use the room that the other Pod needs.
        let pods =
            [plain("large", "a1", "3"), picky, plain("agent", "b1", "1"), plain("beside", "a2", "500m")];
        assert_eq!(judge(&nodes, &pods).verdict, Verdict::Pass, "{:?}", judge(&nodes, &pods));
    }

    #[test]
    fn pods_of_negative_priority_make_room() {
        let nodes = [node("a1", "4"), node("a2", "4")];
        let mut pods = [plain("one", "a1", "3"), plain("buffer", "a2", "3")];
        assert_eq!(judge(&nodes, &pods).verdict, Verdict::Fail);
        pods[1]["spec"]["priority"] = json!(-10);
        assert_eq!(judge(&nodes, &pods).verdict, Verdict::Pass);
        let mut bare = [plain("one", "a1", "3"), plain("two", "a2", "3")];
        for pod in &mut bare {
            pod["metadata"].as_object_mut().expect("metadata").remove("ownerReferences");
        }
        assert_eq!(judge(&nodes, &bare).verdict, Verdict::Pass, "no controller recreates them");
    }

    #[test]
    fn pod_that_waits_for_a_node_is_a_warning() {
        let nodes = [node("a1", "4"), node("a2", "4")];
        let judged = judge(&nodes, &[plain("one", "", "1")]);
        assert_eq!(
            (judged.verdict, judged.observed.as_str()),
            (Verdict::Warn, "1 Pod waits for a node before the change: `shop/one`")
        );
        assert_eq!(judge(&[], &[]).verdict, Verdict::Fail);
    }
}

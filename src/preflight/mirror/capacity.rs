//! `capacity`: whether the mirror has enough free CPU, memory, Pods and other resources for the copied workloads.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;

use super::Mirror;
use crate::inventory::node_fit::{takes, wish, would_take};
use crate::inventory::pod::{TrimmedPod, TrimmedPodSpec, is_alive};
use crate::inventory::pod_templates::Template;
use crate::inventory::resources::{CLOSE, Resources, requested};
use crate::kube_api::accessors::{controller, has_condition, name, namespace};
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "capacity",
    why: "Pods without enough resources stay Pending",
    needs: &[Source::Api, Source::Mirror],
    judge: |input| Box::pin(read(input)),
};

async fn read(input: &Mirror) -> Read<Judged> {
    let (pods, nodes, on_mirror) =
        tokio::try_join!(input.source.selected(), input.target.nodes(), input.target.pods())?;
    Ok(judge(&input.source.names().await?, &pods, input.source.templates().await?, nodes, on_mirror))
}

/// A node, its free resources, and the requests of the copied DaemonSets that run on it.
struct Place<'a> {
    node: &'a Node,
    left: Resources,
    of_sets: Resources,
}

/// Compares the requests with the free resources of the mirror's nodes. A node counts if it is ready, is schedulable, and accepts
/// at least one of the copied Pods. The requests of a DaemonSet count once for each of these nodes that it selects. A DaemonSet
/// must have room on every ready node that it selects.
///
/// `pods`: Pods of the mirrored namespaces in the source. `on_mirror`: Pods on the mirror, in all namespaces.
fn judge(
    namespaces: &[String],
    pods: &[TrimmedPod],
    templates: &[Template],
    nodes: &[Node],
    on_mirror: &[TrimmedPod],
) -> Judged {
    let moved: Vec<&TrimmedPodSpec> =
        pods.iter().filter(|pod| is_of_copy(pod)).filter_map(|pod| pod.spec.as_ref()).collect();
    let sets: Vec<&Template> = templates.iter().filter(|one| one.kind == "DaemonSet").collect();
    let (ready, taken) =
        (nodes.iter().filter(|node| has_condition(node, "Ready")), taken(namespaces, on_mirror));
    let places: Vec<Place<'_>> = ready.map(|node| place(node, &sets, &taken)).collect();
    let wishes: Vec<&TrimmedPodSpec> = if moved.is_empty() {
        sets.iter().map(|one| &one.spec).collect()
    } else {
        moved.iter().map(|spec| (wish(spec), *spec)).collect::<BTreeMap<_, _>>().into_values().collect()
    };
    let is_open = |place: &&Place<'_>| wishes.iter().any(|spec| would_take(place.node, spec));
    let open: Vec<&Place<'_>> = places.iter().filter(is_open).collect();
    let wanted = moved.iter().fold(Resources::default(), |sum, spec| sum.plus(&requested(spec)));
    let wanted = open.iter().fold(wanted, |sum, place| sum.plus(&place.of_sets));
    if open.is_empty() && (!moved.is_empty() || sets.iter().any(|one| !one.is_idle)) {
        return Judged::fail(
            format!(
                "{} requested in the source, but the mirror has no ready node that accepts any of these Pods",
                wanted.told(&wanted)
            ),
            "repair the mirror's nodes, or add nodes that match the node selectors and tolerations of the copied Pods (see `placement`)",
        );
    }
    let crowded: Vec<String> = places.iter().filter_map(Place::crowded).collect();
    if !crowded.is_empty() {
        return Judged::fail(
            format!("DaemonSets have no room on {}", first_few(&crowded)),
            "free resources on these nodes, or let the DaemonSets select other nodes: without room, their Pods stay Pending",
        );
    }
    let left = open.iter().fold(Resources::default(), |sum, place| sum.plus(&place.left));
    told(&wanted, &left, open.len())
}

/// Returns the resources that the Pods on each node of the mirror request. Pods of an earlier copy are omitted, because the
/// requests of the same Pods in the source are already counted.
fn taken<'a>(namespaces: &[String], on_mirror: &'a [TrimmedPod]) -> BTreeMap<&'a str, Resources> {
    let is_copy = |pod: &TrimmedPod| {
        namespaces.iter().any(|chosen| chosen == namespace(pod)) && (is_of_copy(pod) || is_of_daemon_set(pod))
    };
    let mut taken: BTreeMap<&str, Resources> = BTreeMap::new();
    let staying = on_mirror.iter().filter(|pod| is_alive(pod) && !is_copy(pod));
    for spec in staying.filter_map(|pod| pod.spec.as_ref()) {
        let room = taken.entry(spec.node_name.as_deref().unwrap_or_default()).or_default();
        *room = std::mem::take(room).plus(&requested(spec));
    }
    taken
}

fn place<'a>(node: &'a Node, sets: &[&Template], taken: &BTreeMap<&str, Resources>) -> Place<'a> {
    let nothing = Resources::default();
    let taken = taken.get(name(node)).unwrap_or(&nothing);
    let on_it = sets.iter().filter(|one| takes(node, &one.spec));
    Place {
        node,
        left: Resources::given(node).without(taken),
        of_sets: on_it.fold(Resources::default(), |sum, one| sum.plus(&requested(&one.spec))),
    }
}

impl Place<'_> {
    /// Returns the name of the node, and the resources that are insufficient for its DaemonSets alone. Returns `None` if all
    /// resources are sufficient.
    fn crowded(&self) -> Option<String> {
        let more = self.of_sets.more_than(&self.left);
        (!more.is_empty()).then(|| format!("`{}` ({})", name(self.node), more.join(", ")))
    }
}

fn told(wanted: &Resources, left: &Resources, nodes: usize) -> Judged {
    let seen = format!(
        "{} requested in the source; {} {} left",
        wanted.told(wanted),
        counted(nodes, "node of the mirror has", "nodes of the mirror have"),
        left.told(wanted)
    );
    let more = wanted.more_than(left);
    if !more.is_empty() {
        return Judged::fail(
            format!("{seen}: not enough {}", more.join(", ")),
            "add nodes to the mirror, or mirror fewer namespaces: Pods without room stay Pending",
        );
    }
    match wanted.closest(left) {
        Some((share, name)) if share > CLOSE => Judged::warn(
            format!("{seen}; the requests need {share} % of the free `{name}`"),
            "add nodes to the mirror: a rollout, or the failure of a node, needs room",
        ),
        _ => Judged::pass(seen),
    }
}

/// Returns the kind of a Pod's controller; empty if the Pod has no controller.
fn maker(pod: &TrimmedPod) -> &str {
    controller(pod).map(|owner| owner.kind.as_str()).unwrap_or_default()
}

/// Returns whether a Pod belongs to a DaemonSet.
fn is_of_daemon_set(pod: &TrimmedPod) -> bool {
    maker(pod) == "DaemonSet"
}

/// Returns whether a copied object other than a DaemonSet recreates the Pod.
fn is_of_copy(pod: &TrimmedPod) -> bool {
    is_alive(pod) && !matches!(maker(pod), "" | "Node" | "DaemonSet" | "StatefulSet")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::DaemonSet;
    use serde_json::{Value, json};

    use super::*;
    use crate::inventory::pod_templates::templates;
    use crate::inventory::pod_templates::testing::typed;
    use crate::preflight::Verdict;

    fn container(cpu: &str, memory: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    /// Returns a Pod with a controller, in the namespace `shop` and on the node `a`.
    fn pod(kind: &str, requests: &Value) -> TrimmedPod {
        typed(json!({
            "metadata": {"namespace": "shop", "ownerReferences": [{"kind": kind, "controller": true}]},
            "spec": {"containers": [{"resources": {"requests": requests}}], "nodeName": "a"},
            "status": {"phase": "Running"},
        }))
    }

    fn cores(kind: &str, cpu: &str) -> TrimmedPod {
        pod(kind, &json!({"cpu": cpu, "memory": "1Gi"}))
    }

    fn node(name: &str, status: &str, taints: &Value) -> Node {
        typed(json!({
            "metadata": {"name": name, "labels": {"name": name}}, "spec": {"taints": taints},
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": status}],
            },
        }))
    }

    fn up() -> Node {
        node("a", "True", &json!([]))
    }

    fn closed() -> Node {
        node("b", "True", &json!([{"key": "x", "effect": "NoSchedule"}]))
    }

    fn of(pods: &[TrimmedPod], agents: &[Template], nodes: &[Node], taken: &[TrimmedPod]) -> Judged {
        judge(&["shop".to_string()], pods, agents, nodes, taken)
    }

    fn agent(cpu: &str, more: &[(&str, Value)]) -> Vec<Template> {
        let mut spec = json!({"containers": [container(cpu, "1Gi")]});
        for (name, value) in more {
            spec[*name] = value.clone();
        }
        templates::<DaemonSet>(vec![typed(json!({"metadata": {}, "spec": {"template": {"spec": spec}}}))])
    }

    #[test]
    fn requests_above_the_free_resources_fail() {
        let fits = of(&[cores("ReplicaSet", "3"), cores("StatefulSet", "100")], &[], &[up()], &[]);
        assert_eq!(fits.verdict, Verdict::Pass, "Pods that are not copied do not count");
        assert_eq!(
            fits.observed,
            "3 cores, 1 GiB, 1 Pod requested in the source; 1 node of the mirror has 4 cores, 8 GiB, 10 Pods left"
        );
        let close = of(&[cores("ReplicaSet", "3.5")], &[], &[up()], &[]);
        assert_eq!(close.verdict, Verdict::Warn);
        assert!(
            close.observed.ends_with(" left; the requests need 88 % of the free `cpu`"),
            "{}",
            close.observed
        );
        let mut other = cores("DaemonSet", "1");
        other.metadata.namespace = Some("system".to_string());
        let taken = of(&[cores("ReplicaSet", "3.5")], &[], &[up()], &[other]);
        assert_eq!(taken.verdict, Verdict::Fail);
        assert!(taken.observed.ends_with(" left: not enough `cpu`"), "{}", taken.observed);
        let both = of(&[cores("ReplicaSet", "2")], &agent("3", &[]), &[up()], &[]);
        assert_eq!(both.verdict, Verdict::Fail, "a DaemonSet runs on every node");
    }

    #[test]
    fn pods_of_an_earlier_copy_do_not_count() {
        let copied = [cores("ReplicaSet", "3"), cores("DaemonSet", "1")];
        assert_eq!(of(&[cores("ReplicaSet", "3")], &[], &[up()], &copied).verdict, Verdict::Pass);
        let data = [cores("StatefulSet", "3")];
        assert_eq!(of(&[cores("ReplicaSet", "3")], &[], &[up()], &data).verdict, Verdict::Fail);
    }

    #[test]
    fn only_nodes_open_to_copied_pods_count() {
        let moved = [cores("ReplicaSet", "3"), cores("ReplicaSet", "3")];
        let everywhere = agent("100m", &[("tolerations", json!([{"operator": "Exists"}]))]);
        let nodes = [up(), closed()];
        assert_eq!(
            of(&moved, &everywhere, &nodes, &[]).verdict,
            Verdict::Fail,
            "only the agent can run on `b`"
        );
        let small = of(&moved[..1], &everywhere, &nodes, &[]);
        assert!(small.observed.starts_with("3.1 cores, 2 GiB, 2 Pods"), "{}", small.observed);
        let elsewhere = agent("3", &[("nodeSelector", json!({"name": "c"}))]);
        assert_eq!(of(&moved[..1], &elsewhere, &[up()], &[]).verdict, Verdict::Pass, "it selects no node");
        let mut choosy = moved.clone();
        for pod in &mut choosy {
            pod.spec.as_mut().unwrap().node_selector = typed(json!({"name": "a"}));
        }
        let two = [up(), node("b", "True", &json!([]))];
        assert_eq!(of(&moved, &[], &two, &[]).verdict, Verdict::Pass);
        assert_eq!(of(&choosy, &[], &two, &[]).verdict, Verdict::Fail, "both select `a`");
        let large = agent(
            "5",
            &[("tolerations", json!([{"operator": "Exists"}])), ("nodeSelector", json!({"name": "b"}))],
        );
        let crowded = of(&moved[..1], &large, &nodes, &[]);
        assert_eq!(
            (crowded.verdict, crowded.observed.as_str()),
            (Verdict::Fail, "DaemonSets have no room on `b` (`cpu`)")
        );
    }

    #[test]
    fn mirror_without_a_matching_node_fails() {
        let idle = pod("ReplicaSet", &json!({}));
        for nodes in [vec![], vec![node("a", "Unknown", &json!([]))], vec![closed()]] {
            let judged = of(std::slice::from_ref(&idle), &[], &nodes, &[]);
            assert_eq!(judged.verdict, Verdict::Fail, "{}", judged.observed);
            assert_eq!(of(&[], &agent("1m", &[]), &nodes, &[]).verdict, Verdict::Fail);
            assert_eq!(of(&[], &[], &nodes, &[]).verdict, Verdict::Pass, "there is nothing to run");
        }
    }

    #[test]
    fn every_resource_is_compared() {
        let many: Vec<TrimmedPod> = (0..11).map(|_| pod("ReplicaSet", &json!({}))).collect();
        let crowd = of(&many, &[], &[up()], &[]);
        assert!(
            crowd.verdict == Verdict::Fail && crowd.observed.ends_with("not enough `pods`"),
            "{}",
            crowd.observed
        );
        let wants = pod("ReplicaSet", &json!({"nvidia.com/gpu": "2", "ephemeral-storage": "2Gi"}));
        let mut large = up();
        let give = |node: &mut Node, resource: &str, amount: &str| {
            let given = node.status.as_mut().unwrap().allocatable.as_mut().unwrap();
            given.insert(resource.to_string(), typed(json!(amount)));
        };
        give(&mut large, "ephemeral-storage", "10Gi");
        let without = of(std::slice::from_ref(&wants), &[], std::slice::from_ref(&large), &[]);
        assert_eq!(without.verdict, Verdict::Fail);
        assert!(
            without.observed.contains("2 GiB `ephemeral-storage`, 2 `nvidia.com/gpu` requested")
                && without.observed.ends_with("0 `nvidia.com/gpu` left: not enough `nvidia.com/gpu`"),
            "{}",
            without.observed
        );
        give(&mut large, "nvidia.com/gpu", "4");
        assert_eq!(of(&[wants], &[], &[large], &[]).verdict, Verdict::Pass);
    }

    #[test]
    fn only_pods_that_a_copy_recreates_count() {
        let pod = |kind: &str, phase: &str| {
            let owners = json!([{"kind": kind, "controller": true}]);
            typed(json!({"metadata": {"ownerReferences": owners}, "status": {"phase": phase}}))
        };
        assert!(is_of_copy(&pod("ReplicaSet", "Running")) && is_of_copy(&pod("Job", "Pending")));
        assert!(!is_of_copy(&pod("Job", "Succeeded")) && !is_of_copy(&pod("StatefulSet", "Running")));
        assert!(!is_of_copy(&pod("DaemonSet", "Running")) && !is_of_copy(&TrimmedPod::default()));
    }
}

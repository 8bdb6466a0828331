//! Whether what one node has finds room on the others, as it must while that node is drained.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::drain::{condition, is_drained};
use super::super::placing::{takes, unbound};
use super::super::room::{Room, requested};
use super::super::selectors::{labels, selects};
use super::super::{Judged, first_few, is_alive, list, subject, text};
use super::host_ports::ports;

/// Nodes that leave Pods behind, of which no more are looked for.
const MANY: usize = 20;
const ANTI_AFFINITY: &str = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";

/// A node, and the Pods that are alive on it.
struct Place<'a> {
    node: &'a Value,
    left: Room,
    pods: Vec<&'a Value>,
}

/// Nodes by the value of a label.
type Domains<'a> = BTreeMap<&'a str, Vec<usize>>;

/// All nodes, and who may go where.
struct Places<'a> {
    all: Vec<Place<'a>>,
    /// Those that are ready, the emptiest first.
    open: Vec<usize>,
    /// Which nodes take Pods of one wish.
    taken_by: BTreeMap<String, Vec<bool>>,
    /// The nodes of each domain, by the label that some anti-affinity names.
    domains: BTreeMap<&'a str, Domains<'a>>,
}

/// Why a Pod finds no place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// There is too little of these, by name.
    Crowded(Vec<String>),
    /// No other node takes it.
    Homeless,
}

/// Judges whether, whichever node is drained, the others take its Pods: by what these request, and by node selectors, required affinity to
/// nodes, taints, required anti-affinity and ports of the node. Pods go, the largest first, to the emptiest node that takes them.
pub fn judge(nodes: &[Value], pods: &[Value]) -> Judged {
    let places = Places::of(nodes, pods);
    if let [only] = places.all.as_slice() {
        return Judged::warn(
            format!("`{}` is the only node", text(only.node, "/metadata/name")),
            "add a node before the change: everything is away while the only one is drained",
        );
    }
    let (mut crowded, mut homeless) = (Vec::new(), BTreeSet::new());
    for drained in 0..places.all.len() {
        let behind = places.left_behind(drained);
        let told = behind.iter().filter_map(|(pod, why)| match why {
            Why::Crowded(of) => Some(format!("{} wants more {}", subject(pod), of.join(", "))),
            Why::Homeless => None,
        });
        let told: Vec<String> = told.collect();
        if let (Some(first), Some(place)) = (told.first(), places.all.get(drained)) {
            crowded.push(format!("`{}` ({} Pods: {first})", text(place.node, "/metadata/name"), told.len()));
        }
        let alone = behind.iter().filter(|(_, why)| *why == Why::Homeless);
        homeless.extend(alone.map(|(pod, _)| subject(pod)));
        if crowded.len() >= MANY {
            break;
        }
    }
    told(places.all.len(), &crowded, homeless)
}

fn told(nodes: usize, crowded: &[String], homeless: BTreeSet<String>) -> Judged {
    if !crowded.is_empty() {
        return Judged::fail(
            format!("drained, these leave Pods without room on the others: {}", first_few(crowded)),
            "add a node for the time of the change (or double the nodes, and take the old ones away afterwards), or scale down what can wait",
        );
    }
    if !homeless.is_empty() {
        let homeless: Vec<String> = homeless.into_iter().collect();
        return Judged::warn(
            format!("no other node takes {}", first_few(&homeless)),
            "they are away until their node is back: label another node as theirs, or add one of that kind",
        );
    }
    Judged::pass(format!("whichever of {nodes} nodes is drained, the others have room for its Pods"))
}

impl<'a> Places<'a> {
    fn of(nodes: &'a [Value], pods: &'a [Value]) -> Self {
        let mut on: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| is_alive(pod)) {
            on.entry(text(pod, "/spec/nodeName")).or_default().push(pod);
        }
        let all: Vec<Place<'a>> = nodes
            .iter()
            .map(|node| {
                let pods = on.remove(text(node, "/metadata/name")).unwrap_or_default();
                let taken = pods.iter().filter_map(|pod| pod.get("spec")).map(requested);
                let taken = taken.fold(Room::default(), |sum, wanted| sum.plus(&wanted));
                let given = Room::at(node.pointer("/status/allocatable"));
                Place { node, left: given.without(&taken), pods }
            })
            .collect();
        let mut open: Vec<usize> = Vec::new();
        for (index, place) in all.iter().enumerate() {
            if condition(place.node, "Ready") == Some("True") {
                open.push(index);
            }
        }
        open.sort_by_key(|index| all.get(*index).map(|place| std::cmp::Reverse(place.emptiness())));
        let (taken_by, domains) = (taken_by(&all), domains(&all));
        Self { all, open, taken_by, domains }
    }

    /// The Pods of a node that find no place elsewhere once it is drained, and why.
    fn left_behind(&self, drained: usize) -> Vec<(&'a Value, Why)> {
        let Some(place) = self.all.get(drained) else { return Vec::new() };
        let mut guests: Vec<(&Value, Room)> = place
            .pods
            .iter()
            .filter(|pod| is_drained(pod))
            .filter_map(|pod| Some((*pod, requested(pod.get("spec")?))))
            .collect();
        guests.sort_by_key(|(_, wanted)| std::cmp::Reverse(wanted.size()));
        let (mut come, mut behind) = (BTreeMap::<usize, Room>::new(), Vec::new());
        for (pod, wanted) in guests {
            match self.find(pod, &wanted, drained, &come) {
                Ok(index) => {
                    let before = come.remove(&index).unwrap_or_default();
                    come.insert(index, before.plus(&wanted));
                }
                Err(why) => behind.push((pod, why)),
            }
        }
        behind
    }

    /// Where a Pod goes; `come`: what others of its node have taken up by then.
    fn find(
        &self,
        pod: &Value,
        wanted: &Room,
        drained: usize,
        come: &BTreeMap<usize, Room>,
    ) -> Result<usize, Why> {
        let taken_by = self.taken_by.get(&wish(pod));
        let own_ports = ports(pod);
        let mut why = Why::Homeless;
        for index in self.open.iter().copied().filter(|index| *index != drained) {
            let takes = taken_by.and_then(|nodes| nodes.get(index).copied()).unwrap_or(false);
            let Some(place) = self.all.get(index).filter(|_| takes) else { continue };
            if place.has_one_of(&own_ports) || self.keeps_away(pod, place, drained) {
                continue;
            }
            let wanted = come.get(&index).map_or_else(|| wanted.clone(), |come| come.clone().plus(wanted));
            let more = wanted.more_than(&place.left);
            if more.is_empty() {
                return Ok(index);
            }
            // The emptiest comes first: what is missing there is the least.
            if why == Why::Homeless {
                why = Why::Crowded(more);
            }
        }
        Err(why)
    }

    /// Whether a Pod must not be where others are (`satisfyPodAntiAffinity`,
    /// `pkg/scheduler/framework/plugins/interpodaffinity/filtering.go`, v1.36.3). A selector of namespaces is taken for all of them.
    fn keeps_away(&self, pod: &Value, from: &Place<'_>, drained: usize) -> bool {
        list(pod, ANTI_AFFINITY).iter().any(|term| {
            let key = text(term, "/topologyKey");
            let domain = label(from.node, key).and_then(|value| self.domains.get(key)?.get(value));
            let near = domain.into_iter().flatten().filter(|index| **index != drained);
            let mut others = near.filter_map(|index| self.all.get(*index)).flat_map(|place| &place.pods);
            others.any(|other| is_meant(term, pod, other))
        })
    }
}

impl Place<'_> {
    /// What is left of CPU and memory, in percent of what there was, together.
    fn emptiness(&self) -> i128 {
        let given = Room::at(self.node.pointer("/status/allocatable"));
        let shares = ["cpu", "memory"].map(|name| self.left.of(name).percent_of(given.of(name)));
        shares.into_iter().flatten().sum()
    }

    fn has_one_of(&self, wanted: &BTreeSet<(u64, String)>) -> bool {
        !wanted.is_empty() && self.pods.iter().any(|pod| !ports(pod).is_disjoint(wanted))
    }
}

/// Whether a term of a Pod's anti-affinity means another Pod. One without a selector means none.
fn is_meant(term: &Value, pod: &Value, other: &Value) -> bool {
    let (named, theirs) = (list(term, "/namespaces"), text(other, "/metadata/namespace"));
    let is_own = named.is_empty() && theirs == text(pod, "/metadata/namespace");
    let is_near = is_own
        || named.iter().any(|one| one.as_str() == Some(theirs))
        || term.get("namespaceSelector").is_some_and(|selector| !selector.is_null());
    let selector = term.get("labelSelector").filter(|selector| !selector.is_null());
    is_near && selector.is_some() && selects(selector, &labels(other))
}

/// What decides where a Pod may go, as one text.
fn wish(pod: &Value) -> String {
    pod.get("spec").map(|spec| unbound(spec).to_string()).unwrap_or_default()
}

fn taken_by(all: &[Place<'_>]) -> BTreeMap<String, Vec<bool>> {
    let mut found = BTreeMap::new();
    for spec in all.iter().flat_map(|place| &place.pods).filter_map(|pod| pod.get("spec")) {
        let wish = unbound(spec);
        let nodes = || all.iter().map(|place| takes(place.node, &wish)).collect();
        found.entry(wish.to_string()).or_insert_with(nodes);
    }
    found
}

fn domains<'a>(all: &[Place<'a>]) -> BTreeMap<&'a str, Domains<'a>> {
    let terms = all.iter().flat_map(|place| &place.pods).flat_map(|pod| list(pod, ANTI_AFFINITY));
    let keys: BTreeSet<&'a str> = terms.map(|term| text(term, "/topologyKey")).collect();
    let of = |key: &'a str| {
        let mut domains = Domains::new();
        for (index, place) in all.iter().enumerate() {
            if let Some(value) = label(place.node, key) {
                domains.entry(value).or_default().push(index);
            }
        }
        (key, domains)
    };
    keys.into_iter().map(of).collect()
}

fn label<'v>(node: &'v Value, key: &str) -> Option<&'v str> {
    node.pointer("/metadata/labels")?.get(key)?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;

    fn node(name: &str, cpu: &str) -> Value {
        json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": name[..1]}}, "spec": {},
            "status": {
                "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        })
    }

    /// A Pod of a ReplicaSet, with more in its spec.
    fn pod(name: &str, on: &str, cpu: &str, more: &Value) -> Value {
        let mut spec = json!({"nodeName": on, "containers": [{"resources": {"requests": {"cpu": cpu}}}]});
        for (key, value) in more.as_object().expect("an object") {
            spec[key] = value.clone();
        }
        json!({
            "metadata": {
                "namespace": "shop", "name": name, "labels": {"app": "web"},
                "ownerReferences": [{"kind": "ReplicaSet", "controller": true}],
            },
            "spec": spec, "status": {"phase": "Running"},
        })
    }

    fn plain(name: &str, on: &str, cpu: &str) -> Value {
        pod(name, on, cpu, &json!({}))
    }

    #[test]
    fn what_one_node_has_fits_on_the_others_or_not() {
        let nodes = [node("a1", "4"), node("a2", "4"), node("b1", "4")];
        let pods = [plain("one", "a1", "2"), plain("two", "a2", "2"), plain("three", "b1", "2")];
        assert_eq!(
            judge(&nodes, &pods),
            Judged::pass("whichever of 3 nodes is drained, the others have room for its Pods")
        );
        // Two cores are left on each of the others: together enough, for one Pod not.
        let large = [plain("one", "a1", "3"), plain("two", "a2", "2"), plain("three", "b1", "2")];
        let judged = judge(&nodes, &large);
        assert_eq!(
            (judged.verdict, judged.seen.as_str()),
            (
                Verdict::Fail,
                "drained, these leave Pods without room on the others: `a1` (1 Pods: `shop/one` wants more `cpu`)"
            )
        );
        // What has come takes up its room: two of two cores each have one node with three.
        let two = [plain("one", "a1", "2"), plain("two", "a1", "2"), plain("three", "a2", "1")];
        assert_eq!(judge(&nodes[..2], &two).verdict, Verdict::Fail);
        assert_eq!(judge(&nodes, &two).verdict, Verdict::Pass);
        let mut ill = nodes.clone();
        ill[2]["status"]["conditions"][0]["status"] = json!("Unknown");
        assert_eq!(judge(&ill, &two).verdict, Verdict::Fail, "no room where the kubelet is gone");
    }

    #[test]
    fn what_a_drain_leaves_is_not_moved() {
        let nodes = [node("a1", "4"), node("a2", "4")];
        let mut agents = [plain("one", "a1", "3"), plain("two", "a2", "3")];
        for agent in &mut agents {
            agent["metadata"]["ownerReferences"][0]["kind"] = json!("DaemonSet");
        }
        assert_eq!(judge(&nodes, &agents).verdict, Verdict::Pass);
        let mut with = agents.to_vec();
        with.push(plain("web", "a1", "1100m"));
        assert_eq!(judge(&nodes, &with).verdict, Verdict::Fail, "it takes up room all the same");
        with[2]["status"]["phase"] = json!("Succeeded");
        assert_eq!(judge(&nodes, &with).verdict, Verdict::Pass);
    }

    #[test]
    fn a_node_that_is_alone_is_told() {
        let alone = judge(&[node("a1", "4")], &[plain("one", "a1", "1")]);
        assert_eq!((alone.verdict, alone.seen.as_str()), (Verdict::Warn, "`a1` is the only node"));
        let nodes = [node("a1", "4"), node("a2", "4"), node("b1", "4")];
        let choosy = pod("one", "b1", "1", &json!({"nodeSelector": {"zone": "b"}}));
        let judged = judge(&nodes, std::slice::from_ref(&choosy));
        assert_eq!((judged.verdict, judged.seen.as_str()), (Verdict::Warn, "no other node takes `shop/one`"));
        let mut fitting = nodes.clone();
        fitting[0]["metadata"]["labels"]["zone"] = json!("b");
        assert_eq!(judge(&fitting, std::slice::from_ref(&choosy)).verdict, Verdict::Pass);
        fitting[0]["spec"]["unschedulable"] = json!(true);
        assert_eq!(judge(&fitting, &[choosy]).verdict, Verdict::Warn);
    }

    #[test]
    fn pods_keep_away_from_each_other() {
        let apart = |key: &str, selector: Value| {
            let term = json!({"topologyKey": key, "labelSelector": selector});
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
        };
        let web = || json!({"matchLabels": {"app": "web"}});
        let nodes = [node("a1", "4"), node("a2", "4"), node("b1", "4")];
        let of = |more: &Value, count: usize| {
            let pods: Vec<Value> =
                ["a1", "a2", "b1"].iter().take(count).map(|on| pod(on, on, "1", more)).collect();
            judge(&nodes, &pods).verdict
        };
        let by_host = apart("kubernetes.io/hostname", web());
        assert_eq!(
            (of(&by_host, 2), of(&by_host, 3)),
            (Verdict::Pass, Verdict::Warn),
            "one is free, or none"
        );
        assert_eq!(
            of(&apart("kubernetes.io/hostname", json!({"matchLabels": {"app": "db"}})), 3),
            Verdict::Pass
        );
        assert_eq!(
            of(&apart("kubernetes.io/hostname", Value::Null), 3),
            Verdict::Pass,
            "without a selector none"
        );
        assert_eq!(of(&apart("rack", web()), 3), Verdict::Pass, "no node has the label");
        // One in each zone: that of `b1` can only go to the other zone, where one is.
        let by_zone = apart("zone", web());
        let pods = [pod("one", "a1", "1", &by_zone), pod("two", "b1", "1", &by_zone)];
        assert_eq!(judge(&nodes, &pods).seen, "no other node takes `shop/two`");
        assert_eq!(judge(&nodes, &pods[..1]).verdict, Verdict::Pass);
        let mut elsewhere = pods.clone();
        elsewhere[0]["metadata"]["namespace"] = json!("till");
        assert_eq!(judge(&nodes, &elsewhere).verdict, Verdict::Pass);
    }

    #[test]
    fn a_port_of_a_node_has_one_pod() {
        let nodes = [node("a1", "4"), node("a2", "4")];
        let ports = json!({"containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}]});
        let pods = [pod("one", "a1", "1", &ports), pod("two", "a2", "1", &ports)];
        assert_eq!(judge(&nodes, &pods).verdict, Verdict::Warn);
        assert_eq!(judge(&nodes, &pods[..1]).verdict, Verdict::Pass);
    }
}

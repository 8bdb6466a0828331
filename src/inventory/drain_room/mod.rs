//! Which Pods of a drained node have no room on the other nodes.

mod anti_affinity;
mod node_room;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;

use self::anti_affinity::Rules;
pub use self::node_room::Place;
use super::drain::{is_drained, is_made_anew};
use super::host_ports::{Port, ports};
use super::node_fit::{wish, would_take};
use super::pod::{TrimmedPod, is_alive, node_of};
use super::resources::{Resources, requested};
use crate::kube_api::accessors::{controller, has_condition, name};

/// All nodes, and the nodes that accept each Pod.
pub struct Places<'a> {
    /// The nodes.
    pub all: Vec<Place<'a>>,
    /// For each set of Pod requirements, the ready nodes that accept a Pod with these requirements. The emptiest node comes
    /// first.
    taken_by: BTreeMap<String, Vec<usize>>,
    rules: Rules<'a>,
    /// Nodes that run Pods of a controller, by the uid of the controller.
    kin: BTreeMap<&'a str, BTreeSet<usize>>,
}

/// Reason why a Pod is unschedulable. If different nodes reject the Pod for different reasons, the last of these reasons in this
/// list counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// No other node accepts the Pod.
    Homeless,
    /// Anti-affinity or a used host port excludes every node that accepts the Pod. Other replicas run.
    Apart,
    /// Names of the resources that are insufficient, on the node that lacks the fewest resources.
    Crowded(Vec<String>),
}

/// Returns whether a Pod needs room on another node: a drain evicts it, a controller recreates it, and it does not make room for
/// other Pods.
pub fn is_guest(pod: &TrimmedPod) -> bool {
    is_drained(pod) && is_made_anew(pod) && !makes_room(pod)
}

/// Returns whether a Pod has a negative priority, for example a placeholder Pod of a cluster autoscaler. Pods with a negative
/// priority can wait until there is room.
fn makes_room(pod: &TrimmedPod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.priority).is_some_and(|priority| priority < 0)
}

fn controller_uid(pod: &TrimmedPod) -> Option<&str> {
    controller(pod).map(|owner| owner.uid.as_str())
}

impl<'a> Places<'a> {
    /// Returns the nodes with their Pods and free resources.
    pub fn of(nodes: &'a [Node], pods: &'a [TrimmedPod]) -> Self {
        let mut on: BTreeMap<&str, Vec<&TrimmedPod>> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| is_alive(pod) && !makes_room(pod)) {
            on.entry(node_of(pod)).or_default().push(pod);
        }
        let place = |node: &'a Node| {
            let pods = on.remove(name(node)).unwrap_or_default();
            let taken = pods.iter().filter_map(|pod| pod.spec.as_ref()).map(requested);
            let taken = taken.fold(Resources::default(), |sum, wanted| sum.plus(&wanted));
            Place { node, left: Resources::given(node).without(&taken), pods }
        };
        let all: Vec<Place<'a>> = nodes.iter().map(place).collect();
        let mut kin: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (index, place) in all.iter().enumerate() {
            for uid in place.pods.iter().filter_map(|pod| controller_uid(pod)) {
                kin.entry(uid).or_default().insert(index);
            }
        }
        let (taken_by, rules) = (taken_by(&all), Rules::of(&all));
        Self { all, taken_by, rules, kin }
    }

    /// Returns the Pods of a node that are unschedulable while this node is drained, and why.
    pub fn left_behind(&self, drained: usize, place: &Place<'a>) -> Vec<(&'a TrimmedPod, Why)> {
        let guests = place.pods.iter().filter(|pod| is_guest(pod));
        let mut guests: Vec<(&TrimmedPod, Resources, &[usize])> = guests
            .filter_map(|pod| {
                let spec = pod.spec.as_ref()?;
                let takers = self.taken_by.get(&wish(spec)).map(Vec::as_slice);
                Some((*pod, requested(spec), takers.unwrap_or_default()))
            })
            .collect();
        guests.sort_by_key(|(_, wanted, takers)| (takers.len(), Reverse(wanted.size())));
        let (mut come, mut behind) = (BTreeMap::<usize, Resources>::new(), Vec::new());
        for (pod, wanted, takers) in guests {
            match self.find((pod, &wanted), takers, drained, &come) {
                Ok(index) => {
                    let before = come.remove(&index).unwrap_or_default();
                    come.insert(index, before.plus(&wanted));
                }
                // Every other node excludes the Pod, and no other replica runs. So the Pod counts as a Pod that no other node
                // accepts.
                Err(Why::Apart) if !self.has_siblings(pod, drained) => behind.push((pod, Why::Homeless)),
                Err(why) => behind.push((pod, why)),
            }
        }
        behind
    }

    /// Returns whether another node runs a Pod of the same controller.
    fn has_siblings(&self, pod: &TrimmedPod, drained: usize) -> bool {
        let nodes = controller_uid(pod).and_then(|uid| self.kin.get(uid));
        nodes.is_some_and(|nodes| nodes.iter().any(|index| *index != drained))
    }

    /// Finds a node for a Pod. `come`: for each node, the requests of the evicted Pods that are already placed there.
    fn find(
        &self,
        (pod, wanted): (&TrimmedPod, &Resources),
        takers: &[usize],
        drained: usize,
        come: &BTreeMap<usize, Resources>,
    ) -> Result<usize, Why> {
        let (own_ports, apart) = (ports(pod), self.rules.about(pod, drained));
        let mut why = Why::Homeless;
        for index in takers.iter().copied().filter(|index| *index != drained) {
            let Some(place) = self.all.get(index) else { continue };
            if place.has_one_of(&own_ports) || apart.keeps_away(index) {
                why = why.max(Why::Apart);
                continue;
            }
            let more = match come.get(&index) {
                None => wanted.more_than(&place.left),
                Some(come) => come.clone().plus(wanted).more_than(&place.left),
            };
            if more.is_empty() {
                return Ok(index);
            }
            why = match why {
                Why::Crowded(less) if less.len() <= more.len() => Why::Crowded(less),
                _ => Why::Crowded(more),
            };
        }
        Err(why)
    }
}

impl Place<'_> {
    /// Returns the sum of free CPU and free memory, each as a percentage of the allocatable amount.
    fn emptiness(&self) -> i128 {
        let given = Resources::given(self.node);
        let shares = ["cpu", "memory"].map(|name| self.left.of(name).percent_of(given.of(name)));
        shares.into_iter().flatten().sum()
    }

    fn has_one_of(&self, wanted: &BTreeSet<Port<'_>>) -> bool {
        !wanted.is_empty() && self.pods.iter().any(|pod| !ports(pod).is_disjoint(wanted))
    }
}

/// Returns, for each set of Pod requirements, the ready nodes that accept a Pod with these requirements.
fn taken_by(all: &[Place<'_>]) -> BTreeMap<String, Vec<usize>> {
    let is_ready = |place: &Place<'_>| has_condition(place.node, "Ready");
    let mut open: Vec<(usize, &Place<'_>)> =
        all.iter().enumerate().filter(|(_, place)| is_ready(place)).collect();
    open.sort_by_key(|(_, place)| Reverse(place.emptiness()));
    let mut found = BTreeMap::new();
    let guests = all.iter().flat_map(|place| &place.pods).filter(|pod| is_guest(pod));
    for spec in guests.filter_map(|pod| pod.spec.as_ref()) {
        let takers = open.iter().filter(|(_, place)| would_take(place.node, spec));
        found.entry(wish(spec)).or_insert_with(|| takers.map(|(index, _)| *index).collect());
    }
    found
}

//! The Pod network before a change of the CNI: the present CNI, its own kinds of policies, the ranges for the new CNI, and
//! webhooks that must answer before the new CNI can start.

mod anti_affinity;
pub mod drain_capacity;
pub mod host_ports;
mod place;
pub mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::apps::v1::DaemonSet;

use super::nodes::Route;
use super::objects::{containers, subject};
use super::webhooks::Called;
use super::{Judged, first_few};
use crate::ip::ServiceCidr;
use crate::words::counted;

/// Names of agent containers in the CNIs' own DaemonSets, each with the CNI.
const AGENTS: [(&str, &str); 11] = [
    ("calico-node", "Calico"),
    ("cilium-agent", "Cilium"),
    ("kube-flannel", "Flannel"),
    ("weave", "Weave Net"),
    ("antrea-agent", "Antrea"),
    ("kube-router", "kube-router"),
    ("aws-node", "Amazon VPC CNI"),
    ("ovn-controller", "OVN-Kubernetes"),
    ("cni-server", "Kube-OVN"),
    ("kindnet-cni", "kindnet"),
    ("cns-container", "Azure CNI"),
];

/// Kinds of policies that not every CNI supports: API version, kind, and the CNI that enforces them.
pub const OWN_POLICIES: [(&str, &str, &str); 8] = [
    ("crd.projectcalico.org/v1", "NetworkPolicy", "Calico's"),
    ("crd.projectcalico.org/v1", "GlobalNetworkPolicy", "Calico's"),
    ("cilium.io/v2", "CiliumNetworkPolicy", "Cilium's"),
    ("cilium.io/v2", "CiliumClusterwideNetworkPolicy", "Cilium's"),
    ("crd.antrea.io/v1beta1", "NetworkPolicy", "Antrea's"),
    ("crd.antrea.io/v1beta1", "ClusterNetworkPolicy", "Antrea's"),
    ("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy", "some CNIs'"),
    ("policy.networking.k8s.io/v1alpha1", "BaselineAdminNetworkPolicy", "some CNIs'"),
];

/// Checks which CNI is installed, by the DaemonSets of its agents.
pub fn present(daemon_sets: &[DaemonSet]) -> Judged {
    let (mut found, mut short) = (BTreeMap::<&str, (&str, i32)>::new(), Vec::new());
    for daemon_set in daemon_sets {
        let Some((whose, image)) = agent(daemon_set) else { continue };
        let wanted = wanted(daemon_set);
        if wanted == 0 {
            // The DaemonSet is a leftover, or is for nodes that do not exist.
            continue;
        }
        let ready = daemon_set.status.as_ref().map_or(0, |status| status.number_ready);
        if ready < wanted {
            short.push(format!("{whose} is ready on {ready} of {wanted} nodes ({})", subject(daemon_set)));
        }
        // Some CNIs have one DaemonSet for each kind of node.
        let (_, nodes) = found.entry(whose).or_insert((image, 0));
        *nodes = nodes.saturating_add(wanted);
    }
    let told: Vec<String> = found
        .iter()
        .map(|(whose, (image, nodes))| {
            format!(
                "{whose} (`{image}`), on {}",
                counted(usize::try_from(*nodes).unwrap_or_default(), "node", "nodes")
            )
        })
        .collect();
    let seen = told.join(", ");
    if !short.is_empty() {
        return Judged::fail(
            short.join(", "),
            "repair it first: existing faults look like faults of the change",
        );
    }
    match found.len() {
        0 => Judged::warn(
            "no DaemonSet of a known CNI",
            "find out which CNI is in use: check `/etc/cni/net.d` on a node",
        ),
        1 => Judged::pass(seen),
        _ => Judged::warn(
            seen,
            "complete or clean up the earlier change of the CNI: `/etc/cni/net.d` on each node shows which one is in use",
        ),
    }
}

/// Returns on how many nodes a DaemonSet should run.
fn wanted(daemon_set: &DaemonSet) -> i32 {
    daemon_set.status.as_ref().map_or(0, |status| status.desired_number_scheduled)
}

/// Returns the CNI whose agent a DaemonSet runs, and the image of the agent.
fn agent(daemon_set: &DaemonSet) -> Option<(&'static str, &str)> {
    let mut agents = containers(daemon_set).iter().filter_map(|container| {
        let (_, whose) = AGENTS.iter().find(|(agent, _)| container.name == *agent)?;
        Some((*whose, container.image.as_deref().unwrap_or_default()))
    });
    let (whose, image) = agents.next()?;
    // Calico's policies on Flannel's network are one CNI (Canal), in one DaemonSet.
    Some((if agents.any(|(other, _)| other != whose) { "Canal" } else { whose }, image))
}

/// Checks the policies that are enforced now. `own`: kinds that only some CNIs support, the CNI, and the number of policies.
pub fn policies(standard: usize, own: &[(&str, &str, usize)]) -> Judged {
    let own: Vec<String> = own
        .iter()
        .filter(|(.., count)| *count > 0)
        .map(|(kind, whose, count)| format!("{count} {kind}, {whose}"))
        .collect();
    if !own.is_empty() {
        return Judged::warn(
            format!("{}; {}", counted(standard, "NetworkPolicy", "NetworkPolicies"), own.join(", ")),
            "another CNI does not enforce them: create equivalent NetworkPolicies, or policies of the new CNI's kind, before the change",
        );
    }
    match standard {
        0 => Judged::pass("no NetworkPolicies"),
        count => Judged::pass(format!(
            "{}: the new CNI must enforce them, too (Flannel alone does not)",
            counted(count, "NetworkPolicy", "NetworkPolicies")
        )),
    }
}

/// Ranges in use, each with its user as text.
pub type Taken = Vec<(String, ServiceCidr)>;

/// Compares the new ranges for Pods with ranges and addresses in use. `new` is empty if the ranges do not change.
pub fn ranges(
    new: &[ServiceCidr],
    taken: &Taken,
    addresses: &[(String, IpAddr)],
    routes: &[Route],
) -> Judged {
    if new.is_empty() {
        let pods: BTreeSet<String> = taken
            .iter()
            .filter(|(who, _)| who.starts_with("Pods"))
            .map(|(_, range)| format!("`{range}`"))
            .collect();
        let pods: Vec<String> = pods.into_iter().collect();
        return Judged::pass(format!(
            "no new range given (`--pod-cidr`); Pods have {}",
            if pods.is_empty() { "addresses from their CNI".to_string() } else { first_few(&pods) }
        ));
    }
    let remedy = "choose another range: both networks exist during the change, and overlapping routes send traffic to the wrong one";
    let mut met = Vec::new();
    for (index, range) in new.iter().enumerate() {
        let others = new.iter().skip(index.saturating_add(1)).filter(|other| other.overlaps(range));
        met.extend(others.map(|other| format!("`{range}` overlaps `{other}`, also from `--pod-cidr`")));
        let overlapping = taken.iter().filter(|(_, other)| other.overlaps(range));
        met.extend(overlapping.map(|(who, other)| format!("`{range}` overlaps `{other}` ({who})")));
        let inside = addresses.iter().filter(|(_, address)| range.contains(*address));
        met.extend(inside.map(|(who, address)| format!("`{range}` contains `{address}` ({who})")));
        let is_met =
            |route: &&Route| route.range.overlaps(range) && route.range.prefix_len() >= range.prefix_len();
        let inside = routes.iter().filter(is_met);
        met.extend(inside.map(|route| {
            format!("this host has a route into `{range}`: `{}` by `{}`", route.range, route.device)
        }));
    }
    if met.is_empty() {
        let new = new.iter().map(|range| format!("`{range}`")).collect::<Vec<_>>().join(", ");
        return Judged::pass(format!("no other use of {new} was found"));
    }
    Judged::fail(first_few(&met), remedy)
}

/// Checks the webhooks that must admit Pods. `own`: webhooks that are called for Pods of the CNI itself. `all`: webhooks that are
/// called for any Pod. `on_the_host`: namespace and name of Services whose endpoints are all node addresses, which are reachable
/// without a CNI.
pub fn webhooks(own: &[Called], all: &[Called], on_the_host: &BTreeSet<(String, String)>) -> Judged {
    let is_over_it = |webhook: &&Called| {
        let is_on_host = webhook.service.as_ref().is_some_and(|service| on_the_host.contains(service));
        webhook.is_needed() && webhook.service.is_some() && !is_on_host
    };
    let told = |list: &[Called]| list.iter().filter(is_over_it).map(Called::told).collect::<Vec<String>>();
    // `matchConditions` may exclude the CNI's Pods. They are not evaluated.
    let sure: Vec<Called> = own.iter().filter(|webhook| !webhook.has_conditions).cloned().collect();
    let (own, all) = (told(&sure), told(all));
    if !own.is_empty() {
        return Judged::fail(
            format!(
                "webhooks that are reached over the Pod network must admit the Pods of a CNI: {}",
                first_few(&own)
            ),
            "exclude the namespaces of both CNIs (`namespaceSelector`), or set `failurePolicy: Ignore` during the change: without a network \
             neither CNI can start",
        );
    }
    if all.is_empty() {
        return Judged::pass("no webhook that must admit Pods is reached over the Pod network");
    }
    Judged::warn(
        format!("webhooks that are reached over the Pod network must admit Pods: {}", first_few(&all)),
        "set `failurePolicy: Ignore` during the change, or run the webhook's backend in the host network",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;

    fn daemon_set(containers: &[&str], ready: u8) -> DaemonSet {
        let images = ["x:1", "y:2"].iter();
        let containers =
            containers.iter().zip(images).map(|(name, image)| json!({"name": name, "image": image}));
        let object = json!({
            "metadata": {"namespace": "kube-system", "name": "agent"},
            "spec": {"template": {"spec": {"containers": containers.collect::<Vec<_>>()}}},
            "status": {"desiredNumberScheduled": 2, "numberReady": ready},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn cni_is_recognized_by_its_agents() {
        let one = |container: &str, ready: u8| daemon_set(&[container], ready);
        assert_eq!(present(&[one("cilium-agent", 2)]), Judged::pass("Cilium (`x:1`), on 2 nodes"));
        assert_eq!(present(&[one("cilium-agent", 1)]).verdict, Verdict::Fail);
        assert_eq!(present(&[one("fluentd", 1)]).verdict, Verdict::Warn);
        let canal = daemon_set(&["calico-node", "kube-flannel"], 2);
        assert_eq!(present(&[canal]), Judged::pass("Canal (`x:1`), on 2 nodes"));
        let by_architecture = present(&[one("kube-flannel", 2), one("kube-flannel", 2)]);
        assert_eq!(by_architecture, Judged::pass("Flannel (`x:1`), on 4 nodes"));
        let two = present(&[one("weave", 2), one("calico-node", 2)]);
        assert_eq!(two.verdict, Verdict::Warn);
        assert!(two.observed.starts_with("Calico (`x:1`), on 2 nodes, Weave"), "{two:?}");
    }

    #[test]
    fn new_pod_range_must_not_be_in_use() {
        let range = |text: &str| -> ServiceCidr { text.parse().unwrap() };
        let taken = vec![("Pods of node `a`".to_string(), range("10.244.0.0/24"))];
        let node = [("node `a`".to_string(), "192.0.2.1".parse().unwrap())];
        let judged = |new: &str| ranges(&[range(new)], &taken, &node, &[]);
        assert_eq!(judged("10.100.0.0/16").verdict, Verdict::Pass);
        assert_eq!(
            judged("10.244.0.0/16").observed,
            "`10.244.0.0/16` overlaps `10.244.0.0/24` (Pods of node `a`)"
        );
        assert_eq!(judged("192.0.2.0/24").observed, "`192.0.2.0/24` contains `192.0.2.1` (node `a`)");
        let both = ranges(&[range("10.100.0.0/16"), range("10.100.3.0/24")], &Vec::new(), &[], &[]);
        assert_eq!(both.observed, "`10.100.0.0/16` overlaps `10.100.3.0/24`, also from `--pod-cidr`");
        let route = |text: &str| [Route { range: range(text), device: "eth0".into() }];
        let by = |text: &str| ranges(&[range("10.100.0.0/16")], &Vec::new(), &[], &route(text)).verdict;
        assert_eq!((by("10.100.3.0/24"), by("0.0.0.0/0")), (Verdict::Fail, Verdict::Pass));
        let stays = ranges(&[], &taken, &node, &[]);
        assert!(
            stays.verdict == Verdict::Pass && stays.observed.ends_with("Pods have `10.244.0.0/24`"),
            "{stays:?}"
        );
    }

    #[test]
    fn policies_of_one_cni_are_a_warning() {
        assert_eq!(policies(0, &[]).verdict, Verdict::Pass);
        assert_eq!(policies(3, &[("CiliumNetworkPolicy", "Cilium's", 0)]).verdict, Verdict::Pass);
        let own = policies(3, &[("CiliumNetworkPolicy", "Cilium's", 2)]);
        assert_eq!(own.verdict, Verdict::Warn);
        assert_eq!(own.observed, "3 NetworkPolicies; 2 CiliumNetworkPolicy, Cilium's");
    }
}

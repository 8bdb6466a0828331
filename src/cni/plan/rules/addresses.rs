//! Rules about ranges, routes, MTUs and kube-proxy.

use super::{Input, Observation, Rule};
use crate::cni::plan::newcomer::known_ports;
use crate::cni::plan::present::{Present, links_of};
use crate::cni::plan::strategy::Strategy;
use crate::inventory::used_ranges::{conflicts, used_addresses};
use crate::ip::ServiceCidr;
use crate::words::first_few;

/// The rules.
pub const RULES: &[Rule] = &[
    Rule {
        name: "shared-range",
        why: "both networks give out addresses of this range: two Pods can get one address, and a route sends traffic to the wrong network",
        judge: shared_range,
    },
    Rule {
        name: "two-networks",
        why: "without routes, Pods reach only Pods of their own network: Services with endpoints in both fail in part, and DNS fails where no \
              DNS Pod runs",
        judge: two_networks,
    },
    Rule {
        name: "range-conflict",
        why: "addresses of Services, nodes or routes in the new range become unreachable from Pods",
        judge: range_conflict,
    },
    Rule {
        name: "node-ranges",
        why: "the controller manager gives each Node a range, and knows one range for each address family",
        judge: node_ranges,
    },
    Rule {
        name: "kube-proxy-range",
        why: "kube-proxy masquerades traffic that it does not detect as local: servers see addresses of nodes, and NetworkPolicies fail",
        judge: kube_proxy_range,
    },
    Rule {
        name: "kube-proxy-missing",
        why: "on a changed node nothing routes Services: its Pods reach neither DNS nor the API server",
        judge: kube_proxy_missing,
    },
    Rule {
        name: "kube-proxy-replaced",
        why: "the rules of kube-proxy stay on the nodes, and route Services to endpoints that no longer exist",
        judge: kube_proxy_replaced,
    },
    Rule {
        name: "cloud-routes",
        why: "routes of the cloud to the old ranges of Nodes send traffic to the wrong network, and a new range has none",
        judge: cloud_routes,
    },
    Rule {
        name: "mtu",
        why: "packets larger than the MTU of the path are dropped: small requests work, and large responses hang",
        judge: mtu,
    },
    Rule {
        name: "node-local-dns",
        why: "Pods that use a name server on their node have no DNS if the new network does not route its link-local address",
        judge: node_local_dns,
    },
    Rule {
        name: "bgp-speaker",
        why: "a router accepts one BGP session from each node address",
        judge: bgp_speaker,
    },
];

fn shared_range(input: &Input<'_>) -> Option<Observation> {
    if input.overlap.is_empty() {
        return None;
    }
    let seen = first_few(input.overlap);
    let new = input.new.plugin;
    if input.new.uses_node_ranges && input.old.uses_node_ranges {
        return Some(Observation::accept(
            format!("{seen}; both CNIs use the range of each Node, so each node keeps its addresses"),
            "accept this only if every Pod of a node is recreated while the node is drained; routes of the old network must be removed \
             on that node before the new agent starts",
        ));
    }
    Some(match input.strategy {
        Strategy::InPlace => Observation::blocks(
            seen,
            format!(
                "give {new} a range of its own that overlaps no range of the cluster; or use `--strategy roll` while no client uses this cluster"
            ),
        ),
        Strategy::Roll => Observation::accept(
            seen,
            format!(
                "give {new} a range of its own; accept this only if no client uses this cluster (for example, its mirror has the traffic), \
                 because Pods of the old nodes and Pods of the new nodes can have equal addresses until the last old node is removed"
            ),
        ),
    })
}

fn two_networks(input: &Input<'_>) -> Option<Observation> {
    let is_other = !input.old.plugins.contains(input.new.plugin);
    (is_other && input.overlap.is_empty()).then(|| {
        Observation::accept(
            format!(
                "until the last node has changed, Pods of {} and Pods of {} are in two networks",
                input.old.name(),
                input.new.plugin
            ),
            "for this time, route the range of each network to its nodes, on all nodes; exempt the other range from masquerade on both \
             sides (otherwise NetworkPolicies see addresses of nodes); and keep a Pod of cluster DNS in each network. Or accept that Pods \
             of the two networks do not reach each other",
        )
    })
}

fn range_conflict(input: &Input<'_>) -> Option<Observation> {
    let new: Vec<ServiceCidr> = input.new.ranges.iter().map(|(_, range)| *range).collect();
    let taken = input.view.ranges.iter().filter(|(at, _)| at.starts_with("Services")).cloned().collect();
    // Addresses of Pods belong to the old range, which `shared-range` compares.
    let addresses = used_addresses(&input.view.nodes, &input.view.services, &[]);
    let met = conflicts(&new, &taken, &addresses, &[]);
    (!met.is_empty())
        .then(|| Observation::blocks(first_few(&met), "choose another range for the Pods of the new CNI"))
}

fn node_ranges(input: &Input<'_>) -> Option<Observation> {
    let of_nodes = input.view.ranges.iter().filter(|(at, _)| at.starts_with("Pods: "));
    let of_nodes: Vec<ServiceCidr> = of_nodes.map(|(_, range)| *range).collect();
    let has_ranges = input.view.nodes.iter().any(|node| {
        node.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_ref()).is_some_and(|ranges| !ranges.is_empty())
    });
    if input.new.uses_node_ranges && !has_ranges {
        return Some(Observation::blocks(
            format!("{} needs a range of each Node, and the Nodes have none", input.new.plugin),
            "set `--allocate-node-cidrs` and `--cluster-cidr` of the controller manager, and check that every Node gets `spec.podCIDR`",
        ));
    }
    let is_in = |range: &ServiceCidr| of_nodes.iter().any(|whole| whole.overlaps(range));
    let outside: Vec<String> = input
        .new
        .ranges
        .iter()
        .filter(|(_, range)| !is_in(range))
        .map(|(_, range)| format!("`{range}`"))
        .collect();
    if of_nodes.is_empty() || outside.is_empty() {
        return None;
    }
    let seen = format!(
        "the controller manager has `--cluster-cidr` {}, but the new range is {}",
        told(&of_nodes),
        first_few(&outside)
    );
    Some(if input.new.uses_node_ranges {
        Observation::blocks(
            seen,
            format!(
                "{} uses the ranges of Nodes: give it the range of the controller manager, or change `--cluster-cidr` and recreate each Node",
                input.new.plugin
            ),
        )
    } else {
        Observation::note(
            seen,
            format!(
                "{} does not use the ranges of Nodes; change `--cluster-cidr` after the change, so that other components know the range",
                input.new.plugin
            ),
        )
    })
}

fn told(ranges: &[ServiceCidr]) -> String {
    ranges.iter().map(|range| format!("`{range}`")).collect::<Vec<_>>().join(", ")
}

fn kube_proxy_range(input: &Input<'_>) -> Option<Observation> {
    if input.new.replaces_kube_proxy || kube_proxy_missing(input).is_some() {
        return None;
    }
    let Some(detector) = &input.view.detector else {
        return Some(Observation::note(
            "no configuration of kube-proxy was found",
            "find out what routes Services, and by what it detects local traffic",
        ));
    };
    let ranges: Vec<ServiceCidr> = input.new.ranges.iter().map(|(_, range)| *range).collect();
    let restart = "and restart kube-proxy on each node after the node's change";
    match detector.mode.as_str() {
        "ClusterCIDR" => {
            let local: Vec<ServiceCidr> =
                detector.by.split(',').filter_map(|text| text.trim().parse().ok()).collect();
            let is_local = |range: &ServiceCidr| {
                local
                    .iter()
                    .any(|one| one.contains(range.network()) && one.prefix_len() <= range.prefix_len())
            };
            let outside: Vec<String> =
                ranges.iter().filter(|range| !is_local(range)).map(|range| format!("`{range}`")).collect();
            (!outside.is_empty() && !local.is_empty()).then(|| {
                Observation::accept(
                    format!("kube-proxy has `clusterCIDR` {}, which does not contain the new range {}", told(&local), first_few(&outside)),
                    format!(
                        "for the time of the change, set `clusterCIDR` to one range that contains the old and the new one (kube-proxy refuses two \
                         ranges of one family), {restart}; afterwards, set it to the new range"
                    ),
                )
            })
        }
        "NodeCIDR" => (!input.new.uses_node_ranges).then(|| {
            Observation::accept(
                format!(
                    "kube-proxy detects local traffic by `spec.podCIDR` of the Node, which {} does not use",
                    input.new.plugin
                ),
                format!("set `detectLocalMode: ClusterCIDR` with the new range, {restart}"),
            )
        }),
        mode => {
            let is_old =
                |links: &str| detector.by.starts_with(links) || links.starts_with(detector.by.as_str());
            let new = links_of(input.new.plugin).filter(|links| is_old(links));
            new.is_none().then(|| {
                Observation::accept(
                    format!("kube-proxy detects local traffic by links `{}` (`{mode}`), which are not those of {}", detector.by, input.new.plugin),
                    format!("set `detectLocal` to the links of the new CNI, or `detectLocalMode: ClusterCIDR`, {restart}"),
                )
            })
        }
    }
}

fn kube_proxy_missing(input: &Input<'_>) -> Option<Observation> {
    let old = Present::service_proxies(input.view);
    let new = input.new.plugin;
    (!old.is_empty() && !input.new.replaces_kube_proxy).then(|| {
        Observation::blocks(
            format!("{} routes Services, and no kube-proxy was found; {new} does not route them", old.join(" and ")),
            format!(
                "start kube-proxy on each changed node: create its DaemonSet with a node selector for a label that each node gets in its \
                 turn, and its ConfigMap `kube-system/kube-proxy`; or let {new} route Services, if it can"
            ),
        )
    })
}

fn kube_proxy_replaced(input: &Input<'_>) -> Option<Observation> {
    (input.new.replaces_kube_proxy && input.view.detector.is_some()).then(|| {
        Observation::accept(
            format!("{} replaces kube-proxy, which runs on the nodes", input.new.plugin),
            "the steps remove kube-proxy from each node in its turn, and its rules after the new agent routes Services; they need a \
             node affinity in its DaemonSet",
        )
    })
}

fn cloud_routes(input: &Input<'_>) -> Option<Observation> {
    let reasons = ["RouteCreated", "NoRouteCreated"];
    let is_routed = input.view.nodes.iter().any(|node| {
        let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|one| {
            one.type_ == "NetworkUnavailable"
                && one.reason.as_deref().is_some_and(|reason| reasons.contains(&reason))
        })
    });
    (is_routed || input.view.has_route_controller).then(|| {
        Observation::accept(
            "a route controller creates routes in the cloud for the ranges of Nodes",
            "turn it off (`--configure-cloud-routes=false`) if the new CNI needs no such routes, and delete the old routes after the change",
        )
    })
}

fn mtu(input: &Input<'_>) -> Option<Observation> {
    let told = |list: &[(String, u64)]| {
        first_few(&list.iter().map(|(at, mtu)| format!("{mtu} ({at})")).collect::<Vec<_>>())
    };
    let (old, new) = (&input.view.settings.mtus, &input.new.mtus);
    let least = |list: &[(String, u64)]| list.iter().map(|(_, mtu)| *mtu).min();
    match (least(old), least(new)) {
        (None, None) => None,
        (Some(before), Some(after)) if before == after => None,
        (Some(before), Some(after)) => {
            let (what, remedy) = if after < before {
                (
                    "smaller",
                    "check applications with a fixed packet size; connections that are open during the change keep the old size",
                )
            } else {
                (
                    "larger",
                    "check paths that leave the cluster (VPN, peering): a path of 1500 bytes fails now, and did not before",
                )
            };
            Some(Observation::accept(
                format!("the MTU gets {what}: {} before, {} after", told(old), told(new)),
                format!(
                    "use the smaller MTU while both networks exist; {remedy}. The path `full-size` of `netsurgeon network test` tests both directions"
                ),
            ))
        }
        (Some(_), None) => Some(Observation::accept(
            format!("the old MTU is set by hand: {}; the new CNI detects its own", told(old)),
            "find out why (an underlying tunnel or VPN, jumbo frames), and configure the new CNI: the nodes' MTU minus 50 for VXLAN and \
             Geneve, 20 for IP-in-IP or 60 for WireGuard, and minus 20 more over IPv6",
        )),
        (None, Some(_)) => Some(Observation::note(
            format!("the new MTU is set by hand: {}; the old CNI detected its own", told(new)),
            "compare it with the MTU of a Pod: `kubectl exec POD -- cat /sys/class/net/eth0/mtu`",
        )),
    }
}

fn node_local_dns(input: &Input<'_>) -> Option<Observation> {
    let is_one = |name: Option<&String>| {
        name.is_some_and(|name| name.contains("node-local-dns") || name.contains("nodelocaldns"))
    };
    let found = input.view.daemon_sets.iter().any(|one| is_one(one.metadata.name.as_ref()));
    found.then(|| {
        Observation::note(
            "a DNS cache runs on each node",
            "test it on the canary node, too: `netsurgeon network test --name-server ADDRESS`, by default 169.254.20.10",
        )
    })
}

fn bgp_speaker(input: &Input<'_>) -> Option<Observation> {
    let has_speaker = input.view.daemon_sets.iter().any(|one| {
        crate::kube_api::accessors::containers(one).iter().any(|container| container.name == "speaker")
    });
    (has_speaker
        && input.view.groups.contains("metallb.io")
        && known_ports(input.new.plugin).is_some_and(|ports| ports.own.0.contains(&179)))
    .then(|| {
        Observation::accept(
            format!("MetalLB runs on the nodes, and {} speaks BGP, too", input.new.plugin),
            "give only one of them sessions with each router",
        )
    })
}

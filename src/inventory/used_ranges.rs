//! Ranges and addresses that Pods, Services and nodes use, and what a new range conflicts with.

use std::net::IpAddr;
use std::str::FromStr;

use k8s_openapi::api::core::v1::Node;

use super::Route;
use super::network_settings::UsedRanges;
use super::pod::TrimmedPod;
use super::service::TrimmedService;
use crate::ip::ServiceCidr;
use crate::kube_api;
use crate::kube_api::accessors::{name, subject};

/// Parses the texts, and drops invalid texts.
fn parsed<T: FromStr>(texts: impl Iterator<Item = impl AsRef<str>>) -> impl Iterator<Item = T> {
    texts.filter_map(|text| text.as_ref().parse().ok())
}

/// Returns the ranges for Pods in the Nodes.
pub fn node_ranges(nodes: &[Node]) -> UsedRanges {
    let mut ranges = UsedRanges::new();
    for node in nodes {
        let whose = format!("Pods of node `{}`", name(node));
        let found = node.spec.iter().flat_map(|spec| spec.pod_cidrs.iter().flatten());
        ranges.extend(parsed(found).map(|range| (whose.clone(), range)));
    }
    ranges
}

/// Returns the addresses of nodes, Services and Pods.
pub fn used_addresses(
    nodes: &[Node],
    services: &[TrimmedService],
    pods: &[TrimmedPod],
) -> Vec<(String, IpAddr)> {
    let mut addresses: Vec<(String, IpAddr)> = Vec::new();
    for node in nodes.iter().map(kube_api::Node::of) {
        addresses.extend(node.internal_ips.iter().map(|ip| (format!("node `{}`", node.name), *ip)));
    }
    for service in services {
        let found = service.spec.iter().flat_map(|spec| spec.cluster_ips.iter().flatten());
        addresses.extend(parsed(found).map(|address| (format!("Service {}", subject(service)), address)));
    }
    for pod in pods {
        let found = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
        let found = parsed(found.map(|one| &one.ip));
        addresses.extend(found.map(|address| (format!("Pod {}", subject(pod)), address)));
    }
    addresses
}

/// Returns the conflicts of new ranges for Pods with each other, and with ranges, addresses and routes in use.
pub fn conflicts(
    new: &[ServiceCidr],
    taken: &UsedRanges,
    addresses: &[(String, IpAddr)],
    routes: &[Route],
) -> Vec<String> {
    let mut met = Vec::new();
    for (index, range) in new.iter().enumerate() {
        let others = new.iter().skip(index.saturating_add(1)).filter(|other| other.overlaps(range));
        met.extend(others.map(|other| format!("`{range}` overlaps `{other}`, which is new, too")));
        let overlapping = taken.iter().filter(|(_, other)| other.overlaps(range));
        met.extend(overlapping.map(|(who, other)| format!("`{range}` overlaps `{other}` ({who})")));
        let inside = addresses.iter().filter(|(_, address)| range.contains(*address));
        met.extend(inside.map(|(who, address)| format!("`{range}` contains `{address}` ({who})")));
        let is_met =
            |route: &&Route| route.range.overlaps(range) && route.range.prefix_len() >= range.prefix_len();
        let inside = routes.iter().filter(is_met);
        met.extend(inside.map(|route| {
            format!("this host has a route into `{range}`: `{}` on device `{}`", route.range, route.device)
        }));
    }
    met
}

//! `pod-ranges`: whether the new ranges for Pods are already in use.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::str::FromStr;

use serde_json::Value;

use super::Cni;
use crate::controlplane::{API_SERVER, CONTROLLER_MANAGER};
use crate::inventory::network_settings::UsedRanges;
use crate::inventory::{Route, list, own_routes};
use crate::ip::ServiceCidr;
use crate::kube_api::Node;
use crate::kube_api::accessors::{name, subject};
use crate::preflight::{Check, Judged, Read, Source, first_few};

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "pod-ranges",
    why: "both networks exist during the change, so their ranges must not overlap",
    needs: &[Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Compares the new ranges with ranges and addresses of Pods, Services and nodes.
async fn read(input: &Cni) -> Read<Judged> {
    let mut taken = flags(input).await?;
    taken.extend(input.settings().await?.pools.iter().cloned());
    let nodes = input.read.nodes().await?;
    for node in nodes {
        let whose = format!("Pods of node `{}`", name(node));
        let found = node.spec.iter().flat_map(|spec| spec.pod_cidrs.iter().flatten());
        taken.extend(parsed(found).map(|range| (whose.clone(), range)));
    }
    // API servers serve `v1` from 1.33 on.
    for version in ["networking.k8s.io/v1", "networking.k8s.io/v1beta1"] {
        if let Some(found) = input.read.list_if_served(version, "ServiceCIDR").await? {
            let found = found.iter().flat_map(|object| list(object, "/spec/cidrs"));
            let found = parsed(found.filter_map(Value::as_str));
            taken.extend(found.map(|range| ("Services".to_string(), range)));
            break;
        }
    }
    let mut addresses: Vec<(String, IpAddr)> = Vec::new();
    for node in nodes.iter().map(Node::of) {
        addresses.extend(node.internal_ips.iter().map(|ip| (format!("node `{}`", node.name), *ip)));
    }
    for service in input.read.services().await? {
        let found = service.spec.iter().flat_map(|spec| spec.cluster_ips.iter().flatten());
        addresses.extend(parsed(found).map(|address| (format!("Service {}", subject(service)), address)));
    }
    for pod in input.read.pods().await? {
        let found = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
        let found = parsed(found.map(|one| &one.ip));
        addresses.extend(found.map(|address| (format!("Pod {}", subject(pod)), address)));
    }
    Ok(judge(&input.pod_cidr, &taken, &addresses, &own_routes()?))
}

/// Reads the ranges from the flags in the Pods of API servers and controller managers.
async fn flags(input: &Cni) -> Read<UsedRanges> {
    let told =
        [(API_SERVER, "service-cluster-ip-range", "Services"), (CONTROLLER_MANAGER, "cluster-cidr", "Pods")];
    let mut taken = UsedRanges::new();
    for (component, flag, whose) in told {
        let found = input.read.ranges_told(component, flag).await?;
        taken.extend(found.into_iter().map(|(at, range)| (format!("{whose}: {at}"), range)));
    }
    Ok(taken)
}

/// Parses the texts, and drops invalid texts.
fn parsed<T: FromStr>(texts: impl Iterator<Item = impl AsRef<str>>) -> impl Iterator<Item = T> {
    texts.filter_map(|text| text.as_ref().parse().ok())
}

/// Compares the new ranges for Pods with ranges and addresses in use. `new` is empty if the ranges do not change.
fn judge(
    new: &[ServiceCidr],
    taken: &UsedRanges,
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
    let remedy = "choose another range: both networks exist during the change, and overlapping routes send traffic to the wrong network";
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
            format!("this host has a route into `{range}`: `{}` on device `{}`", route.range, route.device)
        }));
    }
    if met.is_empty() {
        let new = new.iter().map(|range| format!("`{range}`")).collect::<Vec<_>>().join(", ");
        return Judged::pass(format!("no other use of {new} was found"));
    }
    Judged::fail(first_few(&met), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn new_pod_range_must_not_be_in_use() {
        let range = |text: &str| -> ServiceCidr { text.parse().unwrap() };
        let taken = vec![("Pods of node `a`".to_string(), range("10.244.0.0/24"))];
        let node = [("node `a`".to_string(), "192.0.2.1".parse().unwrap())];
        let judged = |new: &str| judge(&[range(new)], &taken, &node, &[]);
        assert_eq!(judged("10.100.0.0/16").verdict, Verdict::Pass);
        assert_eq!(
            judged("10.244.0.0/16").observed,
            "`10.244.0.0/16` overlaps `10.244.0.0/24` (Pods of node `a`)"
        );
        assert_eq!(judged("192.0.2.0/24").observed, "`192.0.2.0/24` contains `192.0.2.1` (node `a`)");
        let both = judge(&[range("10.100.0.0/16"), range("10.100.3.0/24")], &Vec::new(), &[], &[]);
        assert_eq!(both.observed, "`10.100.0.0/16` overlaps `10.100.3.0/24`, also from `--pod-cidr`");
        let route = |text: &str| [Route { range: range(text), device: "eth0".into() }];
        let by = |text: &str| judge(&[range("10.100.0.0/16")], &Vec::new(), &[], &route(text)).verdict;
        assert_eq!((by("10.100.3.0/24"), by("0.0.0.0/0")), (Verdict::Fail, Verdict::Pass));
        let stays = judge(&[], &taken, &node, &[]);
        assert!(
            stays.verdict == Verdict::Pass && stays.observed.ends_with("Pods have `10.244.0.0/24`"),
            "{stays:?}"
        );
    }
}

//! `pod-ranges`: whether the new ranges for Pods are already in use.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Cni;
use crate::inventory::network_settings::UsedRanges;
use crate::inventory::plugin_reader::control_plane_ranges;
use crate::inventory::used_ranges::{conflicts, node_ranges, used_addresses};
use crate::inventory::{Route, own_routes};
use crate::ip::ServiceCidr;
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
    let (nodes, pods) = (input.read.nodes().await?, input.read.pods().await?);
    let mut taken = control_plane_ranges(&input.read.read_only()?).await?;
    taken.extend(input.settings().await?.pools.iter().cloned());
    taken.extend(node_ranges(nodes));
    let addresses = used_addresses(nodes, input.read.services().await?, pods);
    Ok(judge(&input.pod_cidr, &taken, &addresses, &own_routes()?))
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
    let met = conflicts(new, taken, addresses, routes);
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
        assert_eq!(both.observed, "`10.100.0.0/16` overlaps `10.100.3.0/24`, which is new, too");
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

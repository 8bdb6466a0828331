//! `zones`: whether etcd keeps its quorum if a zone fails, according to the zone labels of the members' Nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;

use crate::inventory::ClusterReader;
use crate::kube_api::accessors::label;
use crate::preflight::{Check, Judged, Read, Source};
use crate::store::etcd::Member;
use crate::words::counted;

/// Returns the check. `why`: why the check matters before this change.
pub const fn check<C: AsRef<ClusterReader>>(why: &'static str) -> Check<C> {
    Check {
        name: "zones",
        why,
        needs: &[Source::Etcd, Source::Api],
        judge: |input| Box::pin(read(input.as_ref())),
    }
}

async fn read(reading: &ClusterReader) -> Read<Judged> {
    Ok(judge(reading.members().await?, reading.nodes().await?))
}

/// Well-known zone label (`LabelTopologyZone`, k8s.io/api/core/v1/well_known_labels.go, v1.36.3), and the older label that it
/// replaced.
const ZONE: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];

/// Checks the zones of the voting members. If a zone fails, its members fail with it. The other members must have a quorum.
fn judge(members: &[Member], nodes: &[Node]) -> Judged {
    let zones = by_address(nodes);
    let voting: Vec<&Member> = members.iter().filter(|member| !member.is_learner).collect();
    let zone_of = |member: &&Member| member.addresses.iter().find_map(|address| zones.get(address).copied());
    let found: Vec<&str> = voting.iter().filter_map(zone_of).collect();
    let unknown = voting.len().saturating_sub(found.len());
    if found.is_empty() {
        return Judged::pass(format!(
            "unknown zones: no Node of {} has a zone label",
            members_of(voting.len())
        ));
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for zone in found {
        let count = counts.entry(zone).or_default();
        *count = count.saturating_add(1);
    }
    let mut seen: Vec<String> = counts.iter().map(|(zone, count)| format!("{count} in `{zone}`")).collect();
    if unknown > 0 {
        seen.push(format!("{unknown} on Nodes without a zone label"));
    }
    let seen = format!("{}: {}", members_of(voting.len()), seen.join(", "));
    let quorum = voting.len().checked_div(2).unwrap_or_default().saturating_add(1);
    // Members with an unknown zone can be in the largest zone.
    let most = counts.values().copied().max().unwrap_or_default().saturating_add(unknown);
    if voting.len().saturating_sub(most) >= quorum {
        return Judged::pass(seen);
    }
    Judged::warn(
        format!("{seen}; if the largest zone fails, etcd loses its quorum of {quorum}"),
        "run at least three members in at least three zones: otherwise the loss of the largest zone stops all writes",
    )
}

fn members_of(count: usize) -> String {
    counted(count, "voting member", "voting members")
}

/// Returns the zones of Nodes, by node address.
fn by_address(nodes: &[Node]) -> BTreeMap<IpAddr, &str> {
    let mut zones = BTreeMap::new();
    for node in nodes {
        let Some(zone) = ZONE.iter().find_map(|name| label(node, name)) else { continue };
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let addresses = addresses.filter_map(|address| address.address.parse().ok());
        zones.extend(addresses.map(|address: IpAddr| (address, zone)));
    }
    zones
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;

    fn judged(zones_of: &[Option<&str>]) -> Judged {
        let address = |number: usize| format!("192.0.2.{number}");
        let member = |number: usize| Member {
            id: 1,
            name: format!("etcd-{number}"),
            is_learner: false,
            addresses: vec![address(number).parse().unwrap()],
            status: Err("not asked".into()),
        };
        let node = |(number, zone): (usize, Option<&str>)| {
            let labels = zone.map_or(json!({}), |zone| json!({"topology.kubernetes.io/zone": zone}));
            let addresses = json!([{"type": "InternalIP", "address": address(number)}]);
            let node = json!({"metadata": {"labels": labels}, "status": {"addresses": addresses}});
            serde_json::from_value(node).unwrap()
        };
        let members: Vec<Member> = (0..zones_of.len()).map(member).collect();
        let nodes: Vec<Node> = zones_of.iter().copied().enumerate().map(node).collect();
        judge(&members, &nodes)
    }

    #[test]
    fn quorum_must_survive_the_loss_of_any_zone() {
        let three = judged(&[Some("a"), Some("b"), Some("c")]);
        assert_eq!(three.verdict, Verdict::Pass);
        assert_eq!(three.observed, "3 voting members: 1 in `a`, 1 in `b`, 1 in `c`");
        let two = judged(&[Some("a"), Some("a"), Some("b")]);
        assert_eq!(two.verdict, Verdict::Warn);
        assert!(
            two.observed
                .ends_with("2 in `a`, 1 in `b`; if the largest zone fails, etcd loses its quorum of 2")
        );
        assert_eq!(judged(&[Some("a")]).verdict, Verdict::Warn, "one member is in one zone");
        assert_eq!(judged(&[Some("a"), Some("a"), Some("b"), Some("b"), Some("c")]).verdict, Verdict::Pass);
    }

    #[test]
    fn members_without_zone_labels_have_an_unknown_zone() {
        let none = judged(&[None, None, None]);
        assert_eq!(none.verdict, Verdict::Pass);
        assert_eq!(none.observed, "unknown zones: no Node of 3 voting members has a zone label");
        let some = judged(&[Some("a"), None, None]);
        assert_eq!(some.verdict, Verdict::Warn, "all may be in `a`");
        assert!(some.observed.contains("1 in `a`, 2 on Nodes without a zone label; if the"), "{some:?}");
        assert_eq!(judged(&[Some("a"), Some("b"), None]).verdict, Verdict::Warn);
    }
}

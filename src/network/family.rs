//! Address families that an agent lacks: its paths of such a family are not probed, so nothing else would show the fault.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::cell::{CellKey, Cells, FaultClass, Observation};
use super::member::{Member, Role};
use super::path::Path;

/// Records the address families that Pods of other nodes, or the ranges of the Node, have and an agent does not. `is_wanted` chooses
/// the nodes by their index.
pub(super) fn record_families(members: &[Member], is_wanted: impl Fn(usize) -> bool, cells: &mut Cells) {
    let agents = members.iter().filter_map(|member| member.agent(Role::Pod));
    let everywhere: BTreeSet<bool> =
        agents.flat_map(|agent| agent.addresses.iter().map(IpAddr::is_ipv4)).collect();
    for (_, member) in members.iter().enumerate().filter(|(index, _)| is_wanted(*index)) {
        let Some(agent) = member.agent(Role::Pod) else { continue };
        let mut wanted = everywhere.clone();
        wanted.extend(member.pod_cidrs.iter().map(IpNetwork::is_ipv4));
        for is_v4 in wanted.into_iter().filter(|is_v4| agent.address_of(*is_v4).is_none()) {
            let family = if is_v4 { "IPv4" } else { "IPv6" };
            let key = CellKey {
                path: Path::Agent,
                from: member.node.as_str().into(),
                to: "".into(),
                variant: family.into(),
            };
            let observation = Observation {
                tried: format!("Pod `{}`", agent.name),
                seen: format!("the Pod has no {family} address"),
                fault: Some(FaultClass::NotStarted),
            };
            cells.record(key, observation);
        }
    }
}

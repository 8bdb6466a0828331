//! How many addresses of a range are in use, and which networks overlap the range.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::Serialize;

use super::Survey;
use crate::ip::ServiceCidr;

/// Usage of one range, counted from the addresses of the Services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// The range.
    pub range: ServiceCidr,
    /// Number of addresses that Services can have.
    pub capacity: u128,
    /// Number of addresses that Services have.
    pub used: u128,
    /// Number of addresses in the static band: the low end of the range, reserved for static allocation.
    pub band: u128,
    /// Number of addresses of the static band that are in use.
    pub band_used: u128,
    /// Offsets in use, counted from the network address, ascending.
    #[serde(skip)]
    pub offsets: Vec<u128>,
}

impl Usage {
    /// Counts the addresses in a range that Services have.
    pub fn of(survey: &Survey, range: &ServiceCidr) -> Self {
        let offsets: BTreeSet<u128> = survey
            .services
            .iter()
            .flat_map(|service| &service.addresses)
            .filter_map(|address| range.offset(*address))
            .collect();
        let band = range.static_band();
        Self {
            range: *range,
            capacity: range.capacity(),
            used: offsets.len() as u128,
            band,
            band_used: offsets.iter().filter(|offset| **offset <= band).count() as u128,
            offsets: offsets.into_iter().collect(),
        }
    }
}

impl Survey {
    /// Returns the networks and addresses that overlap a Service range, as text: Pod ranges, addresses of Nodes, and addresses of
    /// Pods. For Pods, the text contains only the first address and the number of addresses.
    pub fn conflicts_with(&self, range: &ServiceCidr) -> Vec<String> {
        let mut conflicts = BTreeSet::new();
        for node in &self.nodes {
            for pods in node.pod_cidrs.iter().filter(|pods| pods.overlaps(range)) {
                conflicts.insert(format!("the Pod range `{pods}` of Node `{}`", node.name));
            }
            for address in node.addresses.iter().filter(|address| range.contains(**address)) {
                conflicts.insert(format!("the address `{address}` of Node `{}`", node.name));
            }
        }
        if let Some(kubeadm) = &self.kubeadm {
            for subnet in &kubeadm.pod_subnets {
                if subnet.parse::<ServiceCidr>().is_ok_and(|pods| pods.overlaps(range)) {
                    conflicts.insert(format!("`podSubnet` `{subnet}` of kubeadm-config"));
                }
            }
        }
        let pods: Vec<IpAddr> = self.pods.iter().copied().filter(|ip| range.contains(*ip)).collect();
        if let Some(first) = pods.first() {
            conflicts.insert(match pods.len() {
                1 => format!("the Pod address `{first}`"),
                count => format!("{count} Pod addresses, including `{first}`"),
            });
        }
        conflicts.into_iter().collect()
    }
}

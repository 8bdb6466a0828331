//! Splits the Services of a cluster: the Services that move, the Services that stay because the new range has their address, and
//! the Services without an address of the family.

use std::net::IpAddr;

use super::{PlanOptions, flag, in_use, turn_of};
use crate::ip::ServiceCidr;
use crate::renumber::intention::{Skipped, Turn};
use crate::survey::{Era, ServiceRecord, Survey};

/// Position of the cluster's DNS in the range, if kubeadm chose it (`GetDNSIP`, `cmd/kubeadm/app/constants/constants.go`,
/// v1.36.3). `kubeadm upgrade` requests this address again.
const DNS_OFFSET: u128 = 10;

/// The Services of a cluster, without the sentinels of killed processes, because the operation removes them.
pub(super) struct Split<'s> {
    /// The Services that move.
    pub(super) leaving: Vec<&'s ServiceRecord>,
    /// The Services that stay at an address of the new range, each with the address.
    pub(super) staying: Vec<(&'s ServiceRecord, IpAddr)>,
    /// The Services without an address of the family.
    pub(super) skipped: Vec<Skipped>,
}

/// Splits the Services.
pub(super) fn split<'s>(survey: &'s Survey, options: &PlanOptions) -> Split<'s> {
    let family = options.to.family();
    let mut split = Split { leaving: Vec::new(), staying: Vec::new(), skipped: Vec::new() };
    for service in survey.services.iter().filter(|service| !service.is_sentinel()) {
        let reason = match service.address(family) {
            Some(address) if stays(survey, options, service, address) => {
                split.staying.push((service, address));
                continue;
            }
            Some(_) => {
                split.leaving.push(service);
                continue;
            }
            None if service.kind() == "ExternalName" => "ExternalName".to_string(),
            None if service.spec.cluster_ip.as_deref() == Some("None") => "headless".to_string(),
            None => format!("without an {family} address"),
        };
        let (namespace, name) = (service.namespace.clone(), service.name.clone());
        split.skipped.push(Skipped { namespace, name, reason });
    }
    split
}

/// Returns whether a Service keeps its address.
fn stays(survey: &Survey, options: &PlanOptions, service: &ServiceRecord, address: IpAddr) -> bool {
    let to = options.to;
    if !to.is_allocatable(address, survey.era.era != Era::Objects) {
        return false;
    }
    match turn_of(survey, service) {
        // An API server that creates this Service gives it the first address of its range, and its certificate covers this address.
        Turn::Kubernetes => to.first() == Some(address),
        Turn::ClusterDns if survey.kubeadm.is_some() && to.nth(DNS_OFFSET) == Some(address) => true,
        Turn::ClusterDns if moves_with_base(survey, options, address) => false,
        Turn::ClusterDns | Turn::Any => !(options.move_all && old_range_of(survey, &to, address).is_some()),
    }
}

/// Returns whether kubeadm gave the cluster's DNS its address, and would give it another, free address of the new range.
fn moves_with_base(survey: &Survey, options: &PlanOptions, address: IpAddr) -> bool {
    let Some(wanted) = options.to.nth(DNS_OFFSET) else { return false };
    let own = flag(survey).into_iter().find(|range| range.family() == options.to.family());
    let is_kubeadms = survey.kubeadm.is_some() && own.and_then(|own| own.offset(address)) == Some(DNS_OFFSET);
    let is_free = || !in_use(survey, &options.to).contains(&wanted);
    is_kubeadms && is_free() && !options.pins.values().any(|pin| *pin == wanted)
}

fn old_range_of(survey: &Survey, to: &ServiceCidr, address: IpAddr) -> Option<ServiceCidr> {
    survey.service_ranges().into_iter().find(|range| range != to && range.contains(address))
}

/// Returns the Services that stay at an address of the static band of their old range, and that the new range has in its dynamic
/// band. Each text has the Service and the address.
pub(super) fn out_of_band(
    survey: &Survey,
    to: &ServiceCidr,
    staying: &[(&ServiceRecord, IpAddr)],
) -> Vec<String> {
    let ranges = survey.service_ranges();
    let is_in_band = |range: &ServiceCidr, address: IpAddr| {
        range.offset(address).is_some_and(|offset| offset <= range.static_band())
    };
    let is_out = |address: IpAddr| {
        !is_in_band(to, address) && ranges.iter().any(|range| range != to && is_in_band(range, address))
    };
    let out = staying.iter().filter(|(_, address)| is_out(*address));
    out.map(|(service, address)| format!("{} at {address}", service.subject())).collect()
}

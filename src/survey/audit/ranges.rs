//! Compares the Service ranges with each other and with Pods and Nodes, and checks how full the ranges are.

use std::net::IpAddr;

use super::{Finding, Ours};
use crate::ip::{ServiceCidr, is_link_local};
use crate::survey::{CidrRecord, ServiceRecord, Survey, Usage};

/// Checks that ranges do not overlap each other or the addresses of Pods and Nodes, and that kubeadm-config contains the ranges.
pub(super) fn ranges(survey: &Survey, ours: &Ours, findings: &mut Vec<Finding>) {
    let mut named: Vec<(&str, ServiceCidr)> = Vec::new();
    for cidr in &survey.service_cidrs {
        named.extend(cidr.ranges.iter().map(|range| (cidr.name.as_str(), *range)));
    }
    let is_ending = |cidr: &&CidrRecord| cidr.terminating && !ours.closed.contains(&cidr.name);
    for cidr in survey.service_cidrs.iter().filter(is_ending) {
        findings.push(
            Finding::warning("range-terminating", format!("ServiceCIDR {}", cidr.name))
                .says("is being deleted, so Services get no new addresses from it")
                .values("deletion requested", "in use"),
        );
    }
    for (index, (name, range)) in named.iter().enumerate() {
        for (other, overlapping) in
            named.iter().take(index).filter(|(_, other)| other != range && other.overlaps(range))
        {
            findings.push(
                Finding::info("ranges-overlap", format!("ServiceCIDR {name}"))
                    .says(format!("`{range}` overlaps `{overlapping}` of ServiceCIDR `{other}`"))
                    .values(range, "a range of its own"),
            );
        }
    }
    for range in survey.service_ranges() {
        for conflict in survey.conflicts_with(&range) {
            findings.push(
                Finding::error("range-overlaps-network", format!("range {range}"))
                    .says(format!("overlaps {conflict}"))
                    .values(conflict, "no overlap"),
            );
        }
    }
    kubeadm(survey, findings);
    kubelets(survey, findings);
}

fn kubeadm(survey: &Survey, findings: &mut Vec<Finding>) {
    let Some(kubeadm) = &survey.kubeadm else { return };
    let ranges: Vec<String> = survey.service_ranges().iter().map(ToString::to_string).collect();
    for subnet in kubeadm.service_subnets.iter().filter(|subnet| !ranges.contains(subnet)) {
        findings.push(
            Finding::warning("kubeadm-config-differs", "ConfigMap kube-system/kubeadm-config")
                .says(format!("`serviceSubnet` is `{subnet}`: the next `kubeadm upgrade` writes this range into the API \
                               servers' flag"))
                .values(subnet, ranges.join(", ")),
        );
    }
}

/// Checks the address of the cluster's DNS in kubelet-config, which new nodes use.
fn kubelets(survey: &Survey, findings: &mut Vec<Finding>) {
    let dns: Vec<&ServiceRecord> =
        survey.services.iter().filter(|service| service.is_named_as_dns()).collect();
    // A shadow or an external IP can also hold the address.
    let has = |service: &ServiceRecord, address: &IpAddr| {
        let mut external = service.spec.external_ips.iter().filter_map(|text| text.parse::<IpAddr>().ok());
        service.addresses.contains(address) || external.any(|external| external == *address)
    };
    let answers = |address: &IpAddr| {
        let mut system = survey.services.iter().filter(|service| service.namespace == "kube-system");
        is_link_local(address) || system.any(|service| has(service, address))
    };
    let told: Vec<IpAddr> = survey.cluster_dns.iter().filter_map(|text| text.parse().ok()).collect();
    if dns.is_empty() || told.is_empty() || told.iter().any(answers) {
        return;
    }
    let expected = dns.iter().flat_map(|service| &service.addresses).map(ToString::to_string);
    findings.push(
        Finding::warning("kubelet-config-differs", "ConfigMap kube-system/kubelet-config")
            .says(
                "`clusterDNS` is not an address of the cluster's DNS: Pods on new nodes cannot resolve names",
            )
            .values(survey.cluster_dns.join(", "), expected.collect::<Vec<_>>().join(", ")),
    );
}

/// Checks how full the ranges are.
pub(super) fn capacity(survey: &Survey, findings: &mut Vec<Finding>) {
    for range in survey.service_ranges() {
        let usage = Usage::of(survey, &range);
        let subject = format!("range {range}");
        if usage.used >= usage.capacity {
            findings.push(
                Finding::error("range-exhausted", subject)
                    .says(format!("all {} addresses are in use", usage.capacity))
                    .values(usage.used, format!("fewer than {}", usage.capacity)),
            );
        } else if usage.band > 0 && usage.band_used >= usage.band {
            findings.push(
                Finding::warning("static-band-exhausted", subject)
                    .says(format!(
                        "all {} addresses of the static band are in use: a requested address can conflict with a randomly allocated address",
                        usage.band
                    ))
                    .values(usage.band_used, format!("fewer than {}", usage.band)),
            );
        } else if usage.used.saturating_mul(10) >= usage.capacity.saturating_mul(9) {
            findings.push(
                Finding::warning("range-nearly-full", subject)
                    .says(format!("{} of {} addresses are in use", usage.used, usage.capacity))
                    .values(usage.used, format!("at most 90 % of {}", usage.capacity)),
            );
        }
    }
}

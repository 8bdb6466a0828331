//! Checks whether a range can become a cluster's Service range.

use std::net::IpAddr;

use crate::ip::{Family, ServiceCidr};
use crate::survey::{Era, ServiceRecord, Survey};

/// Smallest number of addresses that the API server accepts in a range (`pkg/controlplane/apiserver/options/options.go`,
/// v1.36.3).
const FEWEST_ADDRESSES: u128 = 8;
/// Largest number of host bits that the API server accepts in a range with a bitmap
/// (`cmd/kube-apiserver/app/options/validation.go`, v1.36.3).
const MOST_BITMAP_HOST_BITS: u32 = 20;
/// Shortest IPv6 prefix that the allocator accepts (`ipallocator.go`, v1.36.3).
const SHORTEST_IPV6_PREFIX: u8 = 64;

/// Reason why a range cannot be the target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The cluster has no range of that family.
    #[error("`{to}` is {family}, but {}", known(ranges))]
    WrongFamily {
        /// The target.
        to: ServiceCidr,
        /// Family of the target.
        family: Family,
        /// The cluster's ranges.
        ranges: Vec<ServiceCidr>,
    },
    /// The cluster already has this range, and no other range of the family.
    #[error("the cluster's {} Service range is already `{to}`", to.family())]
    Same {
        /// The target.
        to: ServiceCidr,
    },
    /// `default/kubernetes` must get the first address of the range, but another Service has it, and keeps it.
    #[error(
        "`{first}`, the first address of `{to}`, belongs to Service `{owner}`; `default/kubernetes` must get this address"
    )]
    FirstTaken {
        /// The target.
        to: ServiceCidr,
        /// The first address of the target.
        first: IpAddr,
        /// The Service that has this address, as `namespace/name`.
        owner: String,
    },
    /// The range overlaps a range of a ServiceCIDR that is being deleted.
    #[error("`{to}` overlaps `{existing}` of ServiceCIDR `{name}`, which is being deleted")]
    Leaving {
        /// The target.
        to: ServiceCidr,
        /// The range that is being deleted.
        existing: ServiceCidr,
        /// Name of the ServiceCIDR that has this range.
        name: String,
        /// The Services that have an address of `existing`, as `namespace/name`.
        kept_by: Vec<String>,
    },
    /// The range overlaps addresses of Pods or Nodes.
    #[error("`{to}` overlaps {conflict}; traffic to those addresses would be lost")]
    OverlapsNetwork {
        /// The target.
        to: ServiceCidr,
        /// The conflicting addresses.
        conflict: String,
    },
    /// The API server would not start with this range.
    #[error("`{to}` cannot be a Service range: {reason}")]
    Unusable {
        /// The target.
        to: ServiceCidr,
        /// The reason.
        reason: String,
    },
}

impl TargetError {
    /// Returns whether the overlapping range is only a matter of time: its ServiceCIDR is being deleted, and no Service has one of
    /// its addresses.
    pub fn is_ending(&self) -> bool {
        matches!(self, Self::Leaving { kept_by, .. } if kept_by.is_empty())
    }
}

/// Special-purpose ranges (RFC 6890 and its IANA registries). Holds use external IPs, which are not allowed in most of these
/// ranges (`pkg/apis/core/validation/validation.go` `ValidateEndpointIP`, v1.36.3).
const SPECIAL: [(&str, &str); 10] = [
    ("0.0.0.0/8", "is \"this network\""),
    ("127.0.0.0/8", "is loopback"),
    ("169.254.0.0/16", "is link-local"),
    ("224.0.0.0/4", "is multicast"),
    ("240.0.0.0/4", "is reserved"),
    ("::/127", "is unspecified and loopback"),
    ("::ffff:0:0/96", "is IPv4-mapped IPv6"),
    ("fe80::/10", "is link-local"),
    ("fec0::/10", "is site-local and deprecated"),
    ("ff00::/8", "is multicast"),
];

fn known(ranges: &[ServiceCidr]) -> String {
    let each: Vec<String> = ranges.iter().map(|range| format!("`{range}`")).collect();
    match each.as_slice() {
        [] => "the cluster has no Service range: it has no ServiceCIDR, and no allocation bitmap".to_string(),
        [one] => format!("the cluster's Service range is {one}"),
        all => format!("the cluster's Service ranges are {}", all.join(", ")),
    }
}

/// Checks a target range against the survey.
pub fn check(survey: &Survey, to: &ServiceCidr) -> Result<(), TargetError> {
    let ranges = survey.service_ranges();
    if !ranges.iter().any(|range| range.family() == to.family()) {
        return Err(TargetError::WrongFamily { to: *to, family: to.family(), ranges });
    }
    usable(survey.era.era, to)?;
    if ranges.iter().filter(|range| range.family() == to.family()).eq([to]) {
        return Err(TargetError::Same { to: *to });
    }
    if let Some(leaving) = leaving(survey, to) {
        return Err(leaving);
    }
    first_is_free(survey, to)?;
    if let Some(conflict) = survey.conflicts_with(to).into_iter().next() {
        return Err(TargetError::OverlapsNetwork { to: *to, conflict });
    }
    Ok(())
}

/// Returns the error if the range is that of ServiceCIDRs which are all being deleted. The operation could not create its own
/// ServiceCIDR until they are gone. Other ranges that are being deleted do not matter.
fn leaving(survey: &Survey, to: &ServiceCidr) -> Option<TargetError> {
    let mut owners = survey.service_cidrs.iter().filter(|owner| owner.ranges.contains(to));
    let name = owners.clone().next()?.name.clone();
    if !owners.all(|owner| owner.terminating) {
        return None;
    }
    let others: Vec<&ServiceCidr> =
        survey.service_cidrs.iter().filter(|cidr| cidr.name != name).flat_map(|cidr| &cidr.ranges).collect();
    let keeps =
        |address: &IpAddr| to.is_usable(*address) && !others.iter().any(|range| range.is_usable(*address));
    // Services managed by netsurgeon are not listed, because the operator does not have to recreate them.
    let has = |service: &&ServiceRecord| !service.is_labelled_ours() && service.addresses.iter().any(keeps);
    let kept_by = survey.services.iter().filter(has).map(ServiceRecord::subject).collect();
    Some(TargetError::Leaving { to: *to, existing: *to, name, kept_by })
}

/// Checks that no other Service has the first address of the range, which is the address of `default/kubernetes`. The address of
/// a Service that moves away is held until the old addresses are retired, so it is not free either.
fn first_is_free(survey: &Survey, to: &ServiceCidr) -> Result<(), TargetError> {
    // Only the family of `default/kubernetes` has this rule.
    let is_its = |service: &ServiceRecord| service.is_kubernetes() && service.address(to.family()).is_some();
    let Some(first) = to.first().filter(|_| survey.services.iter().any(is_its)) else { return Ok(()) };
    let has = |service: &&ServiceRecord| {
        !service.is_kubernetes()
            && !service.is_sentinel()
            && (service.addresses.contains(&first) || service.has_external_ip(first))
    };
    if let Some(owner) = survey.services.iter().find(has) {
        return Err(TargetError::FirstTaken { to: *to, first, owner: owner.subject() });
    }
    Ok(())
}

/// Checks that the API server accepts the range in a cluster of this storage era.
pub fn usable(era: Era, to: &ServiceCidr) -> Result<(), TargetError> {
    let refuse = |reason: String| Err(TargetError::Unusable { to: *to, reason });
    for (special, what) in SPECIAL {
        if special.parse().is_ok_and(|special: ServiceCidr| special.overlaps(to)) {
            return refuse(format!("it overlaps `{special}`, which {what}"));
        }
    }
    if to.size() < FEWEST_ADDRESSES {
        return refuse(format!(
            "its size is {}, but at least {FEWEST_ADDRESSES} addresses are needed",
            to.size()
        ));
    }
    if to.family() == Family::V6 && to.prefix_len() < SHORTEST_IPV6_PREFIX {
        return refuse(format!("an IPv6 prefix must be /{SHORTEST_IPV6_PREFIX} or longer"));
    }
    if era != Era::Objects && to.size() > 1 << MOST_BITMAP_HOST_BITS {
        return refuse(format!(
            "in a cluster with allocation bitmaps a range has at most {MOST_BITMAP_HOST_BITS} host bits"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranges_are_words_and_not_an_empty_list() {
        let range = |text: &str| text.parse::<ServiceCidr>().unwrap();
        assert!(known(&[]).starts_with("the cluster has no Service range"));
        assert_eq!(known(&[range("10.96.0.0/16")]), "the cluster's Service range is `10.96.0.0/16`");
        let both = known(&[range("10.96.0.0/16"), range("fd00::/112")]);
        assert_eq!(both, "the cluster's Service ranges are `10.96.0.0/16`, `fd00::/112`");
    }

    #[test]
    fn special_ranges_are_refused() {
        let check = |text: &str| usable(Era::Objects, &text.parse().unwrap());
        for (special, _) in SPECIAL {
            assert!(check(special).is_err(), "{special}");
        }
        for special in ["127.0.0.0/16", "::/64", "::ffff:10.96.0.0/112", "128.0.0.0/1"] {
            assert!(check(special).is_err(), "{special}");
        }
        for fine in ["10.200.0.0/16", "100.64.0.0/16", "172.20.0.0/16", "fd00:200::/112", "2001:db8::/112"] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
    }
}

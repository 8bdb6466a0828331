//! Whether a range may become a cluster's Service range.

use crate::ip::{Family, ServiceCidr};
use crate::survey::{Era, Survey};

/// The API server refuses ranges with fewer addresses (`pkg/controlplane/apiserver/options/options.go`, v1.36.3).
const FEWEST_ADDRESSES: u128 = 8;
/// The API server refuses ranges of a bitmap with more host bits
/// (`cmd/kube-apiserver/app/options/validation.go`, v1.36.3).
const MOST_BITMAP_HOST_BITS: u32 = 20;
/// The allocator refuses shorter IPv6 prefixes (`ipallocator.go`, v1.36.3).
const SHORTEST_IPV6_PREFIX: u8 = 64;

/// Why a range cannot be the target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The cluster has no range of that family.
    #[error("`{to}` is {family}, the cluster's Service ranges are {ranges}")]
    WrongFamily {
        /// The target.
        to: ServiceCidr,
        /// Its family.
        family: Family,
        /// The cluster's ranges.
        ranges: String,
    },
    /// The range shares addresses with one of the cluster's Service ranges.
    #[error(
        "`{to}` overlaps the cluster's Service range `{existing}`; the new range must share no address with it"
    )]
    OverlapsServices {
        /// The target.
        to: ServiceCidr,
        /// The range in use.
        existing: ServiceCidr,
    },
    /// The range shares addresses with Pods or Nodes.
    #[error("`{to}` overlaps {conflict}; traffic to those addresses would be lost")]
    OverlapsNetwork {
        /// The target.
        to: ServiceCidr,
        /// With what.
        conflict: String,
    },
    /// The API server would not start with it.
    #[error("the API server refuses `{to}` as a Service range: {reason}")]
    Unusable {
        /// The target.
        to: ServiceCidr,
        /// Why.
        reason: String,
    },
}

/// Checks a target range against what the survey knows. A target that is one of the cluster's ServiceCIDRs
/// already, with no overlap with another, is fine: an operation may have been stopped there.
pub fn check(survey: &Survey, to: &ServiceCidr) -> Result<(), TargetError> {
    let ranges = survey.service_ranges();
    if !ranges.iter().any(|range| range.family() == to.family()) {
        let known = ranges.iter().map(|range| format!("`{range}`")).collect::<Vec<_>>().join(", ");
        return Err(TargetError::WrongFamily { to: *to, family: to.family(), ranges: known });
    }
    usable(survey.era.era, to)?;
    if let Some(existing) = ranges.iter().find(|range| range.overlaps(to)) {
        return Err(TargetError::OverlapsServices { to: *to, existing: *existing });
    }
    if let Some(conflict) = survey.conflicts_with(to).into_iter().next() {
        return Err(TargetError::OverlapsNetwork { to: *to, conflict });
    }
    Ok(())
}

fn usable(era: Era, to: &ServiceCidr) -> Result<(), TargetError> {
    let refuse = |reason: String| Err(TargetError::Unusable { to: *to, reason });
    if to.size() < FEWEST_ADDRESSES {
        return refuse(format!("it has {} addresses, at least {FEWEST_ADDRESSES} are needed", to.size()));
    }
    if to.family() == Family::V6 && to.prefix_len() < SHORTEST_IPV6_PREFIX {
        return refuse(format!("an IPv6 prefix must be /{SHORTEST_IPV6_PREFIX} or longer"));
    }
    if era != Era::Objects && to.size() > 1 << MOST_BITMAP_HOST_BITS {
        return refuse(format!(
            "with a bitmap of allocations a range has at most {MOST_BITMAP_HOST_BITS} host bits"
        ));
    }
    Ok(())
}

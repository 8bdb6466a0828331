//! Errors of planning.

use std::net::IpAddr;

use crate::ip::Family;
use crate::ip::remap::RemapError;
use crate::renumber::target::TargetError;
use crate::words::counted;

/// Reason why a plan cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The range cannot be the target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The addresses cannot be mapped.
    #[error(transparent)]
    Remap(#[from] RemapError),
    /// A pin names a Service that does not exist or does not move.
    #[error("the pin for `{subject}` matches no Service that moves")]
    UnknownPin {
        /// The Service, as given in the pin.
        subject: String,
    },
    /// `default/kubernetes` is pinned to an address other than the first address of the new range.
    #[error("`default/kubernetes` cannot be pinned to `{pin}`: the API server gives it the first address{}", first.map(|a| format!(", `{a}`")).unwrap_or_default())]
    KubernetesPin {
        /// The pin.
        pin: IpAddr,
        /// The first address of the new range.
        first: Option<IpAddr>,
    },
    /// The old address of some Services cannot be held as requested.
    #[error(
        "the old address of {} cannot be held by an external IP; the first is `{first}`: {reason}",
        counted(*count, "Service", "Services")
    )]
    CannotHold {
        /// The number of Services.
        count: usize,
        /// The first of these Services.
        first: String,
        /// The reason.
        reason: &'static str,
    },
    /// A Service has a tier that is not in the list of tiers.
    #[error("Service `{subject}` is of tier `{tier}`; the tiers are {known}")]
    UnknownTier {
        /// The Service.
        subject: String,
        /// Its tier.
        tier: String,
        /// The list of tiers.
        known: String,
    },
    /// Some Services have no tier.
    #[error("{} no tier; the first is `{first}`", counted(*count, "Service has", "Services have"))]
    NoTier {
        /// The number of Services.
        count: usize,
        /// The first of these Services.
        first: String,
    },
    /// The new range has too few free addresses for the shadow Services.
    #[error(
        "the shadow Services of a batch need {} of the new range, but only {} free",
        counted(*needed, "more address", "more addresses"),
        counted(*free, "is", "are")
    )]
    NoRoomForShadows {
        /// Number of addresses needed.
        needed: usize,
        /// Number of free addresses.
        free: usize,
    },
    /// The data plane was not tested.
    #[error("the old addresses cannot be held: {reason}")]
    DataPlane {
        /// The reason why the data plane is not supported.
        reason: String,
    },
    /// The survey has no cluster identity.
    #[error("the namespace `kube-system` does not exist; its uid identifies the cluster")]
    NoIdentity,
    /// The allocations of a Service are inconsistent.
    #[error("Service `{subject}` must be repaired before it can move: {reason}")]
    Broken {
        /// The Service.
        subject: String,
        /// The error, as text.
        reason: String,
    },
    /// The RangeAllocation cannot be read.
    #[error("the RangeAllocation for {family} cannot be used: {reason}")]
    Bitmap {
        /// Address family of the RangeAllocation.
        family: Family,
        /// The error, as text.
        reason: String,
    },
}

//! Errors of planning.

use std::net::IpAddr;

use crate::ip::Family;
use crate::ip::remap::RemapError;
use crate::renumber::target::TargetError;
use crate::session::counted;

/// Why a plan cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The range cannot be the target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The addresses cannot be mapped.
    #[error(transparent)]
    Remap(#[from] RemapError),
    /// A pin names no Service that moves.
    #[error("the pin for `{subject}` matches no Service that moves")]
    UnknownPin {
        /// As given.
        subject: String,
    },
    /// `default/kubernetes` is pinned to another address than the first.
    #[error("`default/kubernetes` cannot be pinned to `{pin}`: the API server gives it the first address{}", first.map(|a| format!(", `{a}`")).unwrap_or_default())]
    KubernetesPin {
        /// The pin.
        pin: IpAddr,
        /// The first address.
        first: Option<IpAddr>,
    },
    /// Services whose old address cannot be held as requested.
    #[error(
        "the old address of {} cannot be held by an external IP; the first is `{first}`: {reason}",
        counted(*count, "Service", "Services")
    )]
    CannotHold {
        /// The number of Services.
        count: usize,
        /// The first.
        first: String,
        /// Why.
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
    /// Services without a tier.
    #[error("{} no tier; the first is `{first}`", counted(*count, "Service has", "Services have"))]
    NoTier {
        /// The number of Services.
        count: usize,
        /// The first.
        first: String,
    },
    /// The new range has too few free addresses to create shadow Services with.
    #[error(
        "the shadow Services of a batch need {needed} more addresses of the new range, but only {free} are free"
    )]
    NoRoomForShadows {
        /// Addresses needed.
        needed: usize,
        /// Addresses left.
        free: usize,
    },
    /// The data plane was not tested.
    #[error("the old addresses cannot be held: {reason}")]
    DataPlane {
        /// The data plane.
        reason: String,
    },
    /// The survey has no cluster identity.
    #[error("there is no namespace `kube-system`: its uid identifies the cluster")]
    NoIdentity,
    /// The allocations of a Service are inconsistent.
    #[error("Service `{subject}` must be repaired before it can move: {reason}")]
    Broken {
        /// The Service.
        subject: String,
        /// What is wrong.
        reason: String,
    },
    /// The bitmap cannot be read.
    #[error("the RangeAllocation for {family} cannot be used: {reason}")]
    Bitmap {
        /// The family.
        family: Family,
        /// What is wrong.
        reason: String,
    },
}

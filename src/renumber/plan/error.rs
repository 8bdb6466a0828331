//! Why there is no plan.

use std::net::IpAddr;

use crate::ip::Family;
use crate::ip::remap::RemapError;
use crate::renumber::target::TargetError;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The range cannot be the target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// There is no such mapping.
    #[error(transparent)]
    Remap(#[from] RemapError),
    /// A pin names no Service that moves.
    #[error("the pin for `{subject}` fits no Service that moves")]
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
    /// Services whose old address cannot be held as it is asked for.
    #[error(
        "the old address of {count} Services cannot be held by an external IP; the first is `{first}`: {reason}"
    )]
    CannotHold {
        /// How many.
        count: usize,
        /// The first.
        first: String,
        /// Why.
        reason: &'static str,
    },
    /// A Service says that it is of a tier that was not named.
    #[error("Service `{subject}` is of tier `{tier}`; the tiers are {known}")]
    UnknownTier {
        /// The Service.
        subject: String,
        /// Its tier.
        tier: String,
        /// The tiers that were named.
        known: String,
    },
    /// Services of which nothing says the tier.
    #[error("{count} Services have no tier; the first is `{first}`")]
    NoTier {
        /// How many.
        count: usize,
        /// The first.
        first: String,
    },
    /// The new range has too few addresses left for shadow Services to be made under.
    #[error("the shadow Services of a batch need {needed} more addresses of the new range, {free} are left")]
    NoRoomForShadows {
        /// Addresses needed.
        needed: usize,
        /// Addresses left.
        free: usize,
    },
    /// What routes Services was not tested.
    #[error("the old addresses cannot be held: {reason}")]
    DataPlane {
        /// What it is.
        reason: String,
    },
    /// The survey has no cluster identity.
    #[error("there is no namespace `kube-system`, whose uid would name the cluster")]
    NoIdentity,
    /// The allocations are not in order.
    #[error("Service `{subject}` cannot be moved before it is repaired: {reason}")]
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

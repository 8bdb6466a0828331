//! Adds a hint to each error of a renumbering. The hint explains what to do about the error.

use super::rewrite::RewriteError;
use super::target::TargetError;
use super::{PlanError, RehearsalError};
use crate::ip::remap::RemapError;
use crate::session::failure::{ExitKind, Failure};
use crate::words::counted;

/// Returns a hint that explains when the deletion of a ServiceCIDR completes. `kept_by` lists the Services with an address of
/// that ServiceCIDR.
fn goes_when(kept_by: &[String]) -> String {
    let [first, rest @ ..] = kept_by else {
        return "the controller manager completes the deletion within seconds; then try again (`renumber apply` waits for it)".to_string();
    };
    let (count, them) =
        (kept_by.len(), if rest.is_empty() { "it and create it" } else { "them and create them" });
    let have = counted(count, "Service has", "Services have");
    format!(
        "the deletion completes when no Service has an address in that range; now {have} such an address (first: `{first}`): delete {them} again without an address"
    )
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        let hint = match error {
            PlanError::Remap(error) => return error.into(),
            PlanError::Target(TargetError::WrongFamily { .. }) => {
                "choose a range of a family that the cluster has; renumber each family separately"
            }
            PlanError::Target(TargetError::Leaving { ref kept_by, .. }) => {
                let hint = goes_when(kept_by);
                return Self::new(ExitKind::Refused, error).hint(hint);
            }
            PlanError::Target(TargetError::Same { .. }) => "choose another range",
            PlanError::Target(TargetError::FirstTaken { .. }) => {
                "delete that Service and create it again with another address, or choose another range"
            }
            PlanError::Target(_) => {
                "choose a private range that nothing else uses, with room for every Service"
            }
            PlanError::UnknownPin { .. } => {
                "run `renumber plan` without the pin: it lists the Services that move"
            }
            PlanError::KubernetesPin { .. } => "remove that pin",
            PlanError::CannotHold { .. } => {
                "remove `--hold external-ip`, so that a shadow Service holds the address; if the data plane is the reason, \
                 `--accept-gap` continues anyway, and connections to old addresses can then fail"
            }
            PlanError::DataPlane { .. } => {
                "`--accept-gap` continues anyway; connections to old addresses can then fail"
            }
            PlanError::UnknownTier { .. } => "add that tier to `--tiers`, or change the tier of the Service",
            PlanError::NoTier { .. } => {
                "assign a tier to each of them, or set a default tier: `--default-tier NAME`"
            }
            PlanError::NoRoomForShadows { .. } => {
                "choose a larger range, or smaller batches with `--batch-size`"
            }
            PlanError::NoIdentity => {
                "check that this is the complete etcd of a cluster, and that `--etcd-prefix` is right"
            }
            PlanError::Broken { .. } | PlanError::Bitmap { .. } => {
                "`netsurgeon ranges check` reports what is wrong"
            }
        };
        Self::new(ExitKind::Refused, error).hint(hint)
    }
}

impl From<RemapError> for Failure {
    fn from(error: RemapError) -> Self {
        let hint = match &error {
            RemapError::TooSmall { .. } => "choose a larger range: a shorter prefix, such as /16",
            RemapError::PinOutside { .. } => {
                "pin it to an address of the range that is neither the first nor the last one, or omit the pin"
            }
            RemapError::Taken { .. } => "free that address first, or pin another one",
        };
        Self::new(ExitKind::Refused, error).hint(hint)
    }
}

impl From<RehearsalError> for Failure {
    fn from(error: RehearsalError) -> Self {
        match error {
            RehearsalError::Store(error) => error.into(),
            RehearsalError::Survey(error) => error.into(),
            RehearsalError::Plan(error) => error.into(),
            RehearsalError::Journal(error) => error.into(),
            RehearsalError::Step { phase, failure } => {
                Self::from(failure).context(format!("the rehearsal stopped during the {phase}"))
            }
        }
    }
}

impl From<RewriteError> for Failure {
    fn from(error: RewriteError) -> Self {
        let hint = match &error {
            RewriteError::Missing { .. } | RewriteError::Leftover { .. } => {
                "`netsurgeon ranges show` prints how this cluster keeps its allocations"
            }
            RewriteError::Range { .. } => "see `netsurgeon ranges rewrite --help`",
            RewriteError::NoIdentity => {
                "check that this is the complete etcd of a cluster, and that `--etcd-prefix` is right"
            }
            RewriteError::Unchanged { .. } => "`netsurgeon ranges check` checks everything else",
        };
        Self::new(ExitKind::Refused, error).hint(hint)
    }
}

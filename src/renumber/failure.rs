//! What to do about what goes wrong with a renumbering.

use super::ranges::RewriteError;
use super::target::TargetError;
use super::{PlanError, RehearsalError};
use crate::session::counted;
use crate::session::failure::{Failure, Kind};

/// Says when a ServiceCIDR goes that is being deleted; `kept_by`: the Services that have an address of it.
fn goes_when(kept_by: &[String]) -> String {
    let [first, rest @ ..] = kept_by else {
        return "it goes within seconds, once the controller manager has looked; then try again".to_string();
    };
    let (count, them) = (kept_by.len(), if rest.is_empty() { "create it" } else { "create them" });
    let have = counted(count, "Service has", "Services have");
    format!(
        "it goes once no Service has an address of it: {have}, the first is `{first}`; {them} again without an address"
    )
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        let hint = match error {
            PlanError::Remap(error) => return error.into(),
            PlanError::Target(TargetError::WrongFamily { .. }) => {
                "give a range of a family that the cluster has; each family is renumbered by itself"
            }
            PlanError::Target(TargetError::Leaving { ref kept_by, .. }) => {
                let hint = goes_when(kept_by);
                return Self::new(Kind::Refused, error).hint(hint);
            }
            PlanError::Target(_) => {
                "choose a private range that nothing else uses, with room for every Service"
            }
            PlanError::UnknownPin { .. } => "`renumber plan` without the pin lists the Services that move",
            PlanError::KubernetesPin { .. } => "leave that pin out",
            PlanError::CannotHold { .. } => {
                "leave out `--hold external-ip`, and a shadow Service holds it; where the reason is not the Service itself, \
                 `--accept-gap` goes on all the same, and connections to old addresses may then fail"
            }
            PlanError::DataPlane { .. } => {
                "`--accept-gap` goes on all the same; connections to old addresses may then fail"
            }
            PlanError::UnknownTier { .. } => "name that tier in `--tiers`, or give the Service another one",
            PlanError::NoTier { .. } => "give them one, or name one for all of them: `--default-tier NAME`",
            PlanError::NoRoomForShadows { .. } => {
                "choose a larger range, or smaller batches with `--batch-size`"
            }
            PlanError::NoIdentity => "is this the whole etcd of a cluster, and is `--etcd-prefix` right?",
            PlanError::Broken { .. } | PlanError::Bitmap { .. } => {
                "`netsurgeon ranges check` says what is wrong"
            }
        };
        Self::new(Kind::Refused, error).hint(hint)
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
                Self::from(failure).context(format!("the rehearsal stopped on the way {phase}"))
            }
        }
    }
}

impl From<RewriteError> for Failure {
    fn from(error: RewriteError) -> Self {
        let hint = match &error {
            RewriteError::Missing { .. } | RewriteError::Leftover { .. } => {
                "`netsurgeon ranges show` says how this cluster keeps its allocations"
            }
            RewriteError::Range { .. } => "see `netsurgeon ranges rewrite --help`",
            RewriteError::NoIdentity => "is this the whole etcd of a cluster, and is `--etcd-prefix` right?",
            RewriteError::Unchanged { .. } => "`netsurgeon ranges check` looks at everything else",
        };
        Self::new(Kind::Refused, error).hint(hint)
    }
}

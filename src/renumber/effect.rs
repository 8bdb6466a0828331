//! The effects of renumbering steps: changes outside etcd, and transactions that are computed only when the step runs.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::intention::Renumbering;
use crate::operation;

/// The effect of a step. [`super::environment`] executes it on a cluster, [`super::simulate`] in a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Creates an object through the API. The undo deletes the object.
    Create {
        /// The object, with `apiVersion`, `kind` and `metadata`.
        manifest: Value,
    },
    /// Adds items to a list in an object, removes other items, and keeps all remaining items. The undo does the reverse. An
    /// object that does not exist, or has no such list, needs no change.
    List(List),
    /// In the bitmap era: sets the bits of a batch's new addresses. The undo frees these bits, except the bits of addresses that
    /// were allocated to other Services meanwhile.
    ReserveBits {
        /// The batch, from 0.
        batch: usize,
    },
    /// In the bitmap era: sets the bits of a batch's new addresses again, just before the batch moves, if an API server freed
    /// them.
    KeepBits {
        /// The batch, from 0.
        batch: usize,
    },
    /// Under dual write: writes the new range and the bits of the current Services to the RangeAllocation.
    RewriteBitmap,
    /// In a rollback: writes the old range to the RangeAllocation again.
    RestoreBitmap,
    /// Aligns the RangeAllocation with the addresses of the operation. Frees their bits if no Service and no IPAddress has them. Under
    /// dual write, also sets the missing bits of all Services and IPAddress objects. The undo only frees the bits of addresses that the operation
    /// has taken.
    AlignBits,
    /// Closes the old range, so that new Services get no addresses from it.
    CloseRange,
    /// In a rollback: opens the old range again, so that new Services can get addresses from it.
    ReopenRange,
    /// Waits until the API servers' own ServiceCIDR has the new range. Deletes this ServiceCIDR if it has other ranges.
    ReplaceRange,
    /// Deletes the ServiceCIDR that was created for the new range. When this effect runs, the API servers' own ServiceCIDR
    /// already has the new range.
    RemoveTemporaryRange,
}

/// Changes to a list in an API object that netsurgeon does not own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct List {
    /// API version, for example `crd.projectcalico.org/v1`.
    pub api_version: String,
    /// Kind, for example `BGPConfiguration`.
    pub kind: String,
    /// Name of the object, which has no namespace.
    pub name: String,
    /// JSON pointer to the list (RFC 6901).
    pub pointer: String,
    /// Items that the list must contain.
    pub with: Vec<Value>,
    /// Items that the list must not contain.
    pub without: Vec<Value>,
    /// Whether a rollback undoes the change.
    pub is_undone: bool,
}

/// The condition that a step waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Awaited {
    /// Every API server is ready and has observed the addresses of a batch, and every kube-proxy has applied all writes.
    Barrier,
    /// The shadows of a Service have the endpoints of this Service.
    Endpoints,
    /// The deletion of a Service, which a finalizer delayed, is complete.
    Released,
    /// Every API server is ready and has observed the current addresses and Services.
    Seen,
    /// Clients no longer connect to addresses that they resolved before the rollback.
    Linger,
    /// The ServiceCIDR of the new range is ready on every API server.
    RangeReady,
}

impl operation::WaitKind for Awaited {
    fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Endpoints => "endpoints",
            Self::Released => "released",
            Self::Seen => "seen",
            Self::Linger => "linger",
            Self::RangeReady => "range-ready",
        }
    }
}

impl operation::Effect for Effect {
    type Wait = Awaited;

    fn has_way_back(&self) -> bool {
        match self {
            Self::Create { .. }
            | Self::ReserveBits { .. }
            | Self::RestoreBitmap
            | Self::AlignBits
            | Self::ReopenRange => true,
            Self::List(list) => list.is_undone,
            Self::KeepBits { .. }
            | Self::RewriteBitmap
            | Self::CloseRange
            | Self::ReplaceRange
            | Self::RemoveTemporaryRange => false,
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { manifest } => {
                let text = |path: &str| manifest.pointer(path).and_then(Value::as_str).unwrap_or_default();
                write!(f, "create {} `{}`", text("/kind"), text("/metadata/name"))
            }
            Self::List(List { kind, name, .. }) => write!(f, "change {kind} `{name}`"),
            Self::ReserveBits { .. } => f.write_str("set the bits of the addresses of a batch"),
            Self::KeepBits { .. } => f.write_str("restore the bits that an API server freed"),
            Self::RewriteBitmap => f.write_str("rewrite the RangeAllocation for the new range"),
            Self::RestoreBitmap => f.write_str("rewrite the RangeAllocation for the old range"),
            Self::AlignBits => f.write_str("align the RangeAllocation with the addresses of the operation"),
            Self::CloseRange => f.write_str("delete ServiceCIDR `kubernetes`"),
            Self::ReopenRange => f.write_str("restore the old range of ServiceCIDR `kubernetes`"),
            Self::ReplaceRange => f.write_str("wait until ServiceCIDR `kubernetes` has the new range"),
            Self::RemoveTemporaryRange => f.write_str("delete the ServiceCIDR of the new range"),
        }
    }
}

impl Effect {
    /// Returns the action that a rehearsal skips and assumes to be done, and the reason for the action. Returns `None` for an
    /// effect that a rehearsal executes.
    pub(super) fn cannot_be_rehearsed(&self, work: &Renumbering) -> Option<[String; 2]> {
        let [what, why] = match self {
            Self::CloseRange if work.is_growth() => [
                "netsurgeon deletes ServiceCIDR `kubernetes`: an API server creates it again with the new range from its flag"
                    .to_string(),
                "an API server does not change the range of this ServiceCIDR".to_string(),
            ],
            Self::CloseRange => [
                "netsurgeon deletes ServiceCIDR `kubernetes`: it stays terminating until the old addresses are retired"
                    .to_string(),
                "new Services would still get addresses of the old range".to_string(),
            ],
            Self::ReplaceRange => [
                "netsurgeon waits until ServiceCIDR `kubernetes` is deleted, and an API server recreates it with the new range from its flag"
                    .to_string(),
                "the API servers' own ServiceCIDR must have the new range".to_string(),
            ],
            Self::RemoveTemporaryRange => [
                format!(
                    "netsurgeon deletes ServiceCIDR `{}` when `kubernetes` has the new range",
                    work.range_name()
                ),
                "this ServiceCIDR is needed only until `kubernetes` has the new range".to_string(),
            ],
            _ => return None,
        };
        Some([what, why])
    }
}

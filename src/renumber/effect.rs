//! What steps of a renumbering do outside etcd, or in a transaction that is built when the step runs.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::intention::Renumbering;
use crate::operation;

/// An effect. [`super::live`] executes it on a cluster, [`super::simulate`] in a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// An object is created through the API; undone, it is deleted.
    Create {
        /// The object, with `apiVersion`, `kind` and `metadata`.
        manifest: Value,
    },
    /// Items are added to a list in an object, and others removed; the rest of the list stays. Undone, the reverse. An object
    /// that does not exist, or has no such list, needs no change.
    List(List),
    /// In the bitmap era: the bits of a batch's new addresses are set. Undone, they are freed, except those of addresses
    /// that other Services have by then.
    ReserveBits {
        /// The batch, from 0.
        batch: usize,
    },
    /// The same bits are set again if an API server freed them, just before the batch moves.
    KeepBits {
        /// The batch, from 0.
        batch: usize,
    },
    /// Under dual write: the RangeAllocation gets the new range, with the bits of the current Services.
    RewriteBitmap,
    /// In a rollback: the RangeAllocation gets the old range again.
    RestoreBitmap,
    /// New Services no longer get addresses of the old range.
    CloseRange,
    /// In a rollback: new Services get addresses of the old range again.
    ReopenRange,
    /// The API servers' own ServiceCIDR gets the new range.
    ReplaceRange,
    /// The ServiceCIDR that was created for the new range is deleted; the API servers' own one has that range by then.
    RemoveTemporaryRange,
}

/// Items of a list in an object that netsurgeon does not own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct List {
    /// As in `crd.projectcalico.org/v1`.
    pub api_version: String,
    /// As in `BGPConfiguration`.
    pub kind: String,
    /// The object's name; it has no namespace.
    pub name: String,
    /// Where the list is (RFC 6901).
    pub pointer: String,
    /// The items that it must have.
    pub with: Vec<Value>,
    /// The items that it must not have.
    pub without: Vec<Value>,
    /// Whether a rollback undoes it.
    pub is_undone: bool,
}

/// The condition that a step waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Awaited {
    /// Every API server is ready and has observed the addresses of a batch, and every kube-proxy has applied all writes.
    Barrier,
    /// Shadows have the endpoints of their Service.
    Endpoints,
    /// A Service that was deleted while a finalizer kept it no longer exists.
    Released,
    /// Every API server is ready and has observed the addresses and Services.
    Seen,
    /// No client connects any more to an address that it resolved before the rollback.
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
            Self::Create { .. } | Self::ReserveBits { .. } | Self::RestoreBitmap | Self::ReopenRange => true,
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
            Self::KeepBits { .. } => f.write_str("set the bits again that an API server freed"),
            Self::RewriteBitmap => f.write_str("rewrite the RangeAllocation for the new range"),
            Self::RestoreBitmap => f.write_str("rewrite the RangeAllocation for the old range"),
            Self::CloseRange => f.write_str("delete ServiceCIDR `kubernetes`"),
            Self::ReopenRange => f.write_str("give ServiceCIDR `kubernetes` the old range again"),
            Self::ReplaceRange => f.write_str("wait until ServiceCIDR `kubernetes` has the new range"),
            Self::RemoveTemporaryRange => f.write_str("delete the ServiceCIDR of the new range"),
        }
    }
}

impl Effect {
    /// The action that a rehearsal assumes to be done, and why it is necessary; `None` for an effect that it executes.
    pub(super) fn cannot_be_rehearsed(&self, work: &Renumbering) -> Option<[String; 2]> {
        let [what, why] = match self {
            Self::CloseRange => [
                "netsurgeon deletes ServiceCIDR `kubernetes`: it stays in deletion until the old addresses are retired"
                    .to_string(),
                "new Services would still get addresses of the old range".to_string(),
            ],
            Self::ReplaceRange => [
                "ServiceCIDR `kubernetes` is deleted once no address needs it, and an API server recreates it from its flag"
                    .to_string(),
                "the API servers' own ServiceCIDR must have the new range".to_string(),
            ],
            Self::RemoveTemporaryRange => [
                format!(
                    "`renumber retire` deletes ServiceCIDR `{}` once `kubernetes` has the new range",
                    work.range_name()
                ),
                "it is only needed until the API servers' own ServiceCIDR has the range".to_string(),
            ],
            _ => return None,
        };
        Some([what, why])
    }
}

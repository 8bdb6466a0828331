//! What steps of a renumbering do outside etcd, or in a transaction that is made at the moment when it is carried out.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::intention::Renumbering;
use crate::operation;

/// An effect. [`super::live`] carries it out on a cluster, [`super::simulate`] in a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// An object is created through the API; undone, it is deleted.
    Create {
        /// The object, with `apiVersion`, `kind` and `metadata`.
        manifest: Value,
    },
    /// A list in an object gets items and loses others, whatever else is in it; undone, the other way round. An object that
    /// is not there, or has no such list, needs none of them.
    List(List),
    /// Where allocations are bits: those of the new addresses of a batch are set; undone, freed, but for those of
    /// addresses that other Services have by then.
    ReserveBits {
        /// The batch, from 0.
        batch: usize,
    },
    /// The same bits are set again where an API server has freed them, just before the batch moves.
    KeepBits {
        /// The batch, from 0.
        batch: usize,
    },
    /// Under dual write: the RangeAllocation gets the new range, with the bits of the Services of that moment.
    RewriteBitmap,
    /// On the way back: it gets the old range again.
    RestoreBitmap,
    /// New Services get no address of the old range any more.
    CloseRange,
    /// On the way back: they get addresses of the old range again.
    ReopenRange,
    /// The API servers' own ServiceCIDR gets the new range.
    ReplaceRange,
    /// The ServiceCIDR that was made for the new range goes, the API servers' own one having that by then.
    RemoveTemporaryRange,
}

/// Items of a list that somebody else owns.
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
    /// What it must have.
    pub with: Vec<Value>,
    /// What it must not have.
    pub without: Vec<Value>,
    /// Whether it is undone.
    pub is_undone: bool,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Awaited {
    /// Every API server is ready and has seen the addresses of a batch, and every kube-proxy has applied what was written.
    Barrier,
    /// Shadows have the endpoints of their Service.
    Endpoints,
    /// What was deleted while a finalizer kept it is gone.
    Released,
    /// Every API server is ready and has seen the addresses and Services.
    Seen,
    /// Nobody connects any more to an address that a name was resolved to.
    Linger,
    /// Every API server has seen the ServiceCIDR of the new range to be ready.
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
            Self::KeepBits { .. } => f.write_str("set the bits again that an API server has freed"),
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
    /// What a rehearsal takes as done, in words, and why it is necessary; `None` for what it carries out.
    pub(super) fn cannot_be_rehearsed(&self, work: &Renumbering) -> Option<[String; 2]> {
        let [what, why] = match self {
            Self::CloseRange => [
                "netsurgeon deletes ServiceCIDR `kubernetes`: it stays, terminating, until the old addresses are retired"
                    .to_string(),
                "new Services would still get addresses of the old range".to_string(),
            ],
            Self::ReplaceRange => [
                "ServiceCIDR `kubernetes` ends once no address needs it, and an API server creates it again from its flag"
                    .to_string(),
                "the API servers' own ServiceCIDR must have the new range".to_string(),
            ],
            Self::RemoveTemporaryRange => [
                format!(
                    "`renumber retire` deletes ServiceCIDR `{}` once `kubernetes` has the new range",
                    work.range_name()
                ),
                "it was only needed until the API servers' own ServiceCIDR has the range".to_string(),
            ],
            _ => return None,
        };
        Some([what, why])
    }
}

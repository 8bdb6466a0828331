//! The intention of a renumbering: the value that a plan stores and prints, and that the operator approves.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::hold::Hold;
use crate::ip::{Family, ServiceCidr};
use crate::operation::{State, StepId};
use crate::survey::{Era, Ours};
use crate::wire::Text;
use crate::wire::objects::Encoding;

/// The intention of a renumbering.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Renumbering {
    /// The API server's prefix in etcd.
    pub prefix: String,
    /// How the cluster keeps its allocations.
    pub era: Era,
    /// The family that is renumbered.
    pub family: Family,
    /// The ranges that Services leave.
    pub from: Vec<ServiceCidr>,
    /// The range that they move to.
    pub to: ServiceCidr,
    /// The full value of `--service-cluster-ip-range` now: one range, or one of each family, in their order.
    pub flag_before: Vec<ServiceCidr>,
    /// The full value afterwards.
    pub flag: Vec<ServiceCidr>,
    /// ServiceCIDRs of old ranges, other than the API servers' own. Their owners must delete them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherRange>,
    /// Services moved together.
    pub batch_size: usize,
    /// The tiers, from least to most critical; empty without tiers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Text>,
    /// How new objects are stored.
    pub encoding: Encoding,
    /// API version of IPAddress and ServiceCIDR objects.
    pub api_version: String,
    /// The RangeAllocation, in the eras that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bitmap: Option<BitmapChange>,
    /// Values in kubeadm's ConfigMaps that record the range or the address of the cluster's DNS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<RecordChange>,
    /// Lists that must have both ranges for a time: those of routers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlaps: Vec<Overlap>,
    /// Objects that may record the range and cannot be read, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// Whether there is a NodeLocal DNSCache.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub node_local_dns: bool,
    /// A description of the data plane; `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_plane: Option<String>,
    /// Why old addresses cannot be held everywhere; `None` if they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<String>,
    /// Whether the operator accepts that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gap_accepted: bool,
    /// Whether the data plane cannot hold addresses by external IPs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadows_only: bool,
    /// The hold that the operator requested for every Service; sweeps use it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_asked: Option<Hold>,
    /// The Services that move, in order; last those that were created meanwhile, sweep by sweep.
    pub moves: Vec<Move>,
    /// The Services that do not.
    pub skipped: Vec<Skipped>,
    /// How often the plan was amended ([`Renumbering::amend`]); not a part of the plan.
    #[serde(skip)]
    pub amendments: usize,
}

impl Renumbering {
    /// Returns the moves of the cluster's DNS that kubelets may give to Pods: those with the usual name or, if an
    /// installer uses another name (`rke2-coredns-rke2-coredns`), all except the one through which a NodeLocal DNSCache
    /// reaches it (`kube-dns-upstream`, which has the same label).
    pub fn dns(&self) -> impl Iterator<Item = &Move> {
        let is_dns = |candidate: &&Move| candidate.turn == Turn::ClusterDns;
        let is_usual = |candidate: &Move| matches!(candidate.name.as_str(), "kube-dns" | "coredns");
        let has_usual = self.moves.iter().filter(is_dns).any(is_usual);
        self.moves.iter().filter(is_dns).filter(move |candidate| {
            if has_usual { is_usual(candidate) } else { candidate.name != "kube-dns-upstream" }
        })
    }

    /// Returns namespace and name of every shadow Service.
    pub fn shadows(&self) -> impl Iterator<Item = (&str, &str)> {
        let with_shadow = self.moves.iter().filter_map(|moved| Some((moved, moved.shadow.as_deref()?)));
        with_shadow.flat_map(|(moved, shadow)| shadow.names().map(|name| (moved.namespace.as_str(), name)))
    }

    /// Returns the objects that the operation creates and keeps, according to its plan.
    pub fn ours(&self) -> Ours {
        let addresses = self.moves.iter().flat_map(|moved| {
            let of = (moved.namespace.clone(), moved.name.clone());
            [(moved.old_address, of.clone()), (moved.new_address, of)]
        });
        let services = self.shadows().map(|(namespace, name)| (namespace.into(), name.into()));
        let closed = ["kubernetes".to_string(), self.range_name(), self.back_range_name()];
        Ours { addresses: addresses.collect(), services: services.collect(), closed: closed.into() }
    }

    /// Returns the move of the API servers' own Service.
    pub fn kubernetes(&self) -> Option<&Move> {
        self.moves.iter().find(|candidate| candidate.turn == Turn::Kubernetes)
    }
}

/// The change of the RangeAllocation when the API servers get the new range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BitmapChange {
    /// Its name: `serviceips` or `secondaryserviceips`.
    pub name: String,
    /// Its range now.
    pub from: String,
    /// Its bits now.
    #[serde(with = "crate::wire::base64_text")]
    pub data_before: Vec<u8>,
    /// Its bits for the new range: those of Services that already have addresses of it.
    #[serde(with = "crate::wire::base64_text")]
    pub data_after: Vec<u8>,
}

/// A ServiceCIDR that a user created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherRange {
    /// Its name.
    pub name: String,
    /// Its old ranges of the family.
    pub ranges: Vec<ServiceCidr>,
}

/// A list of ranges in an API object, which has the new range beside the old one while both are in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlap {
    /// As in `crd.projectcalico.org/v1`.
    pub api_version: String,
    /// As in `BGPConfiguration`.
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// Where the list is (RFC 6901).
    pub pointer: String,
    /// The items that are removed at the end.
    pub old: Vec<serde_json::Value>,
    /// The items that are added.
    pub new: Vec<serde_json::Value>,
}

/// A value in a ConfigMap of `kube-system` that follows the range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordChange {
    /// The ConfigMap's name.
    pub config_map: Text,
    /// The entry, which is YAML.
    pub entry: Text,
    /// The path of keys to the value.
    pub path: Vec<String>,
    /// The value, or a part of it, before.
    pub before: String,
    /// The value, or the part, afterwards.
    pub after: String,
}

/// A Service that moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Namespace.
    pub namespace: Text,
    /// Name.
    pub name: Text,
    /// uid: a recreated Service is another one.
    pub uid: Text,
    /// `clusterIPs` before.
    pub old: Vec<Text>,
    /// `clusterIPs` after.
    pub new: Vec<Text>,
    /// How the old address is held.
    pub hold: Hold,
    /// Why it is held so.
    pub hold_reason: Cow<'static, str>,
    /// The address that changes.
    pub old_address: IpAddr,
    /// What it changes to.
    pub new_address: IpAddr,
    /// The original `externalTrafficPolicy`, to restore; absent and empty are different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_policy: Option<Text>,
    /// Its tier, one of the plan's; empty without a tier.
    #[serde(default, skip_serializing_if = "Text::is_empty")]
    pub tier: Text,
    /// When it moves.
    #[serde(default, skip_serializing_if = "Turn::is_any")]
    pub turn: Turn,
    /// The number of the sweep that found it, from 1; 0 if it was planned.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sweep: usize,
    /// Whether the object has only `clusterIP`, without a list (last written before Kubernetes 1.20).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_list: bool,
    /// Whether the IPAddress object of the old address is missing: one is created to hold the address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub old_object_missing: bool,
    /// When the IPAddress object of the old address was created, in seconds since 1970: a rollback restores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_object_created: Option<i64>,
    /// The shadow Services, if the hold is a shadow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Box<Shadow>>,
}

impl Move {
    /// Returns `namespace/name`.
    pub fn subject(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the unique id of this move in the plan: `namespace/name`, with the sweep after a `+`, because a swept
    /// Service may have the name of a planned one that was deleted.
    pub fn id(&self) -> String {
        match self.sweep {
            0 => self.subject(),
            sweep => format!("{}+{sweep}", self.subject()),
        }
    }

    /// Whether its shadows have copies of the Service's endpoints.
    pub fn has_copies(&self) -> bool {
        self.shadow.as_ref().is_some_and(|shadow| shadow.has_copies())
    }

    /// Whether a Service of its namespace has the name of one of its shadows.
    pub fn has_shadow(&self, name: &str) -> bool {
        self.shadow.as_deref().is_some_and(|shadow| shadow.names().contains(&name))
    }

    /// Whether the subject of a step is this Service or one of its shadows.
    pub fn has_step(&self, step: &StepId) -> bool {
        let Some((_, subject)) = step.0.split_once('/') else { return false };
        let is_shadow = |name: &str| {
            subject.strip_prefix(&*self.namespace).is_some_and(|rest| rest.strip_prefix('/') == Some(name))
        };
        subject == self.id()
            || self.shadow.as_deref().is_some_and(|shadow| shadow.names().into_iter().any(is_shadow))
    }

    /// Returns the id of one of its steps, by the step's name: `flip`, `retire`, ...
    pub fn step(&self, name: &str) -> StepId {
        StepId(format!("{name}/{}", self.id()))
    }

    /// Whether the Service has moved, and not moved back; `state` returns the state of a step.
    pub fn has_moved(&self, state: impl Fn(&StepId) -> Option<State>) -> bool {
        state(&self.step("flip")).is_some_and(State::is_in_force)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires it")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// When a Service moves. Services that everything else depends on move last, each in a batch of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Turn {
    /// In a batch with others.
    #[default]
    Any,
    /// The cluster's DNS: after all others.
    ClusterDns,
    /// The API servers' own Service: last.
    Kubernetes,
}

impl Turn {
    /// Whether the Service may move with others.
    pub fn is_any(&self) -> bool {
        *self == Self::Any
    }
}

/// The two shadow Services of a move: one holds the old address until it is retired, the other serves the new address
/// until the Service itself has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shadow {
    /// Name of the shadow that holds the old address.
    pub hold_name: String,
    /// Name of the shadow that serves the new address in advance (warming).
    pub warm_name: String,
    /// Addresses of the new range with which the two are created.
    pub temporary: [IpAddr; 2],
    /// The part of the Service's spec that they copy.
    pub spec: serde_json::Value,
}

impl Shadow {
    /// Both names: the holding shadow, then the warming shadow.
    pub fn names(&self) -> [&str; 2] {
        [&self.hold_name, &self.warm_name]
    }

    /// Whether they have copies of the Service's endpoints: without a selector no controller creates endpoints for them.
    pub fn has_copies(&self) -> bool {
        let selector = self.spec.get("selector").and_then(serde_json::Value::as_object);
        selector.is_none_or(serde_json::Map::is_empty)
    }
}

/// A Service that does not move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Namespace.
    pub namespace: Text,
    /// Name.
    pub name: Text,
    /// Why not.
    pub reason: String,
}

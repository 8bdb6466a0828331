//! The content of a renumbering plan, which is stored and printed, and which the operator approves.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::hold::Hold;
use crate::ip::{Family, ServiceCidr};
use crate::operation::{State, StepId};
use crate::survey::{Era, Ours};
use crate::wire::Text;
use crate::wire::objects::Encoding;

/// Largest number of ranges that a command names.
const MOST_SEARCHED: usize = 8;

/// The content of a renumbering plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Renumbering {
    /// Prefix of the API server's keys in etcd.
    pub prefix: String,
    /// How the cluster stores its allocations.
    pub era: Era,
    /// The address family that is renumbered.
    pub family: Family,
    /// The old ranges, which Services leave.
    pub from: Vec<ServiceCidr>,
    /// The new range, to which Services move.
    pub to: ServiceCidr,
    /// The full value of `--service-cluster-ip-range` before the renumbering: one range, or one for each family, in the order of
    /// the flag.
    pub flag_before: Vec<ServiceCidr>,
    /// The full value of `--service-cluster-ip-range` after the renumbering.
    pub flag: Vec<ServiceCidr>,
    /// ServiceCIDRs with old ranges, except the API servers' own ServiceCIDR. Their owners must delete them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherRange>,
    /// Largest number of Services in a batch.
    pub batch_size: usize,
    /// The tiers, from least to most critical; empty if the plan has no tiers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Text>,
    /// Encoding of new objects in etcd.
    pub encoding: Encoding,
    /// API version of IPAddress and ServiceCIDR objects.
    pub api_version: String,
    /// The change of the RangeAllocation, in the eras that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bitmap: Option<BitmapChange>,
    /// Values in kubeadm's ConfigMaps that record the Service range, or the address of the cluster's DNS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<RecordChange>,
    /// Lists in router configurations. Each list must contain both ranges while both are in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlaps: Vec<Overlap>,
    /// Objects that cannot be read, although they may contain the range. Each entry contains the key of the object and the
    /// reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// Whether the cluster has a NodeLocal DNSCache.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub node_local_dns: bool,
    /// A description of the data plane; `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_plane: Option<String>,
    /// Why old addresses cannot be held everywhere; `None` if they can be held everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<String>,
    /// Whether the operator accepts that old addresses cannot be held everywhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gap_accepted: bool,
    /// Whether the data plane cannot hold addresses by external IPs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadows_only: bool,
    /// The hold that the operator requested for every Service. Sweeps also use this hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_asked: Option<Hold>,
    /// The Services that move, in order. Services that sweeps found come last, in the order of the sweeps.
    pub moves: Vec<Move>,
    /// The Services that do not move, except the Services that stay at an address of the new range.
    pub skipped: Vec<Skipped>,
    /// Number of Services that stay, because their address is also in the new range. Nothing is written to them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stays: usize,
    /// The Services that stay at an address which leaves the static band: it is in the static band of its old range, but not of the
    /// new range. Each entry has the Service and the address. Clients that requested this address expect that no other Service gets
    /// it while their Service is recreated, but the allocator can now give it to any Service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out_of_band: Vec<String>,
    /// Number of amendments to the plan ([`Renumbering::amend`]). This number is not stored in the plan.
    #[serde(skip)]
    pub amendments: usize,
}

impl Renumbering {
    /// Returns the number of Services that do not move.
    pub fn staying(&self) -> usize {
        self.skipped.len().saturating_add(self.stays)
    }

    /// Returns whether the new range contains all old ranges. Then the cluster only gets more addresses.
    pub fn is_growth(&self) -> bool {
        self.from.iter().all(|range| self.to.covers(range))
    }

    /// Returns whether the new range shares addresses with an old range.
    pub fn is_overlapping(&self) -> bool {
        self.from.iter().any(|range| self.to.overlaps(range))
    }

    /// Returns whether a Service can have this address in the new range. The network address and the broadcast address of the new
    /// range can be ordinary addresses of an old range.
    pub fn accepts(&self, address: IpAddr) -> bool {
        self.to.is_allocatable(address, self.era != Era::Objects)
    }

    /// Returns whether Services leave this address: it is in an old range, and no Service can have it in the new range.
    pub fn is_left(&self, address: IpAddr) -> bool {
        self.from.iter().any(|range| range.contains(address)) && !self.accepts(address)
    }

    /// Returns the ranges of the addresses that the operation retires: what the new range does not have of the old ranges, and
    /// single addresses of the new range that a Service leaves.
    pub fn retired_ranges(&self) -> Vec<ServiceCidr> {
        let mut ranges: Vec<ServiceCidr> =
            self.from.iter().flat_map(|range| range.without(&self.to)).collect();
        ranges.sort_unstable();
        ranges.dedup();
        let all = ranges.clone();
        ranges.retain(|range| !all.iter().any(|other| other != range && other.covers(range)));
        let within = self.moves.iter().map(|moved| moved.old_address).filter(|old| self.to.contains(*old));
        ranges.extend(within.map(ServiceCidr::single));
        ranges
    }

    /// Returns the ranges to search for clients of the old addresses: [`Self::retired_ranges`] or, if these are many, the whole old
    /// ranges, which also contain addresses that Services keep.
    pub fn searched_ranges(&self) -> Vec<ServiceCidr> {
        let retired = self.retired_ranges();
        if retired.len() > MOST_SEARCHED { self.from.clone() } else { retired }
    }

    /// Returns the moves of the DNS Services whose address kubelets can write into Pods. These are the DNS Services with a
    /// standard name (`kube-dns`, `coredns`). If an installer uses another name (`rke2-coredns-rke2-coredns`), these are all DNS
    /// Services except `kube-dns-upstream`. A NodeLocal DNSCache reaches the DNS through `kube-dns-upstream`, which has the same
    /// label.
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

    /// Returns the addresses that the operation keeps, the Services that it creates, and the ServiceCIDRs that it deletes,
    /// according to its plan.
    pub fn ours(&self) -> Ours {
        let addresses = self.moves.iter().flat_map(|moved| {
            let of = (moved.namespace.clone(), moved.name.clone());
            [(moved.old_address, of.clone()), (moved.new_address, of)]
        });
        let services = self.shadows().map(|(namespace, name)| (namespace.into(), name.into()));
        let closed = ["kubernetes".to_string(), self.range_name(), self.back_range_name()];
        Ours { addresses: addresses.collect(), services: services.collect(), closed: closed.into() }
    }

    /// Returns the move of the API servers' own Service, `default/kubernetes`.
    pub fn kubernetes(&self) -> Option<&Move> {
        self.moves.iter().find(|candidate| candidate.turn == Turn::Kubernetes)
    }
}

/// The change of the RangeAllocation when the API servers get the new range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BitmapChange {
    /// Name of the RangeAllocation: `serviceips` or `secondaryserviceips`.
    pub name: String,
    /// Range before the change.
    pub from: String,
    /// Bits before the change.
    #[serde(with = "crate::wire::base64_text")]
    pub data_before: Vec<u8>,
    /// Bits after the change: the bits of Services that already have addresses of the new range.
    #[serde(with = "crate::wire::base64_text")]
    pub data_after: Vec<u8>,
}

/// A ServiceCIDR that a user created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherRange {
    /// Name of the ServiceCIDR.
    pub name: String,
    /// Ranges of the ServiceCIDR in the renumbered family.
    pub ranges: Vec<ServiceCidr>,
    /// Ranges of the ServiceCIDR in the other family, which Services keep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<ServiceCidr>,
}

/// A list of ranges in an API object. It contains both the old and the new range while both are in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlap {
    /// API version, for example `crd.projectcalico.org/v1`.
    pub api_version: String,
    /// Kind, for example `BGPConfiguration`.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// JSON pointer to the list (RFC 6901).
    pub pointer: String,
    /// Items with old ranges, which are removed at the end of the renumbering.
    pub old: Vec<serde_json::Value>,
    /// Items with the new range, which are added.
    pub new: Vec<serde_json::Value>,
}

/// A value in a ConfigMap of `kube-system` that must change with the range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordChange {
    /// Name of the ConfigMap.
    pub config_map: Text,
    /// Entry of the ConfigMap that contains the value, as YAML.
    pub entry: Text,
    /// Path of YAML keys to the value.
    pub path: Vec<String>,
    /// The value before the change, or only the part of the value that changes.
    pub before: String,
    /// The value after the change, or only the part of the value that changes.
    pub after: String,
}

/// A Service that moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Namespace.
    pub namespace: Text,
    /// Name.
    pub name: Text,
    /// uid. A recreated Service has another uid.
    pub uid: Text,
    /// `clusterIPs` before the move.
    pub old: Vec<Text>,
    /// `clusterIPs` after the move.
    pub new: Vec<Text>,
    /// How the old address is held.
    pub hold: Hold,
    /// The reason for this hold.
    pub hold_reason: Cow<'static, str>,
    /// The old address: the address in `old` that changes.
    pub old_address: IpAddr,
    /// The new address, which replaces `old_address`.
    pub new_address: IpAddr,
    /// The original `externalTrafficPolicy`, which is restored later. An absent value and an empty value are different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_policy: Option<Text>,
    /// The Service's tier, from the tiers of the plan; empty without a tier.
    #[serde(default, skip_serializing_if = "Text::is_empty")]
    pub tier: Text,
    /// The Service's place in the order of moves.
    #[serde(default, skip_serializing_if = "Turn::is_any")]
    pub turn: Turn,
    /// Number of the sweep that found the Service, from 1; 0 if the Service was planned.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sweep: usize,
    /// Whether the stored Service has only `clusterIP` and no `clusterIPs`. Kubernetes before 1.20 wrote such Services.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_list: bool,
    /// Whether the IPAddress object of the old address is missing. The operation then creates this object to hold the address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub old_object_missing: bool,
    /// Creation time of the IPAddress object of the old address, in seconds since 1970. A rollback restores this time.
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

    /// Returns the unique id of this move in the plan: `namespace/name`, or `namespace/name+2` if sweep 2 found the Service. A
    /// swept Service can have the same name as a planned Service that was deleted.
    pub fn id(&self) -> String {
        match self.sweep {
            0 => self.subject(),
            sweep => format!("{}+{sweep}", self.subject()),
        }
    }

    /// Returns whether the shadows have copies of the Service's endpoints.
    pub fn has_copies(&self) -> bool {
        self.shadow.as_ref().is_some_and(|shadow| shadow.has_copies())
    }

    /// Returns whether one of the shadows has this name. The shadows are in the Service's namespace.
    pub fn has_shadow(&self, name: &str) -> bool {
        self.shadow.as_deref().is_some_and(|shadow| shadow.names().contains(&name))
    }

    /// Returns whether the subject of a step is this Service or one of its shadows.
    pub fn has_step(&self, step: &StepId) -> bool {
        let Some((_, subject)) = step.0.split_once('/') else { return false };
        let is_shadow = |name: &str| {
            subject.strip_prefix(&*self.namespace).is_some_and(|rest| rest.strip_prefix('/') == Some(name))
        };
        subject == self.id()
            || self.shadow.as_deref().is_some_and(|shadow| shadow.names().into_iter().any(is_shadow))
    }

    /// Returns the id of the step of this move that has the given name, for example `flip` or `retire`.
    pub fn step(&self, name: &str) -> StepId {
        StepId(format!("{name}/{}", self.id()))
    }

    /// Returns whether the Service has moved and has not moved back. `state` returns the state of a step.
    pub fn has_moved(&self, state: impl Fn(&StepId) -> Option<State>) -> bool {
        state(&self.step("flip")).is_some_and(State::is_in_force)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires it")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The place of a Service in the order of moves. A Service moves last, in its own batch, if all other Services depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Turn {
    /// In a batch with other Services.
    #[default]
    Any,
    /// The cluster's DNS, after all other Services.
    ClusterDns,
    /// The API servers' own Service, after the cluster's DNS.
    Kubernetes,
}

impl Turn {
    /// Returns whether the Service can be in a batch with other Services.
    pub fn is_any(&self) -> bool {
        *self == Self::Any
    }
}

/// The two shadow Services of a move. One shadow holds the old address until this address is retired. The other shadow serves the
/// new address until the Service itself has the new address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shadow {
    /// Name of the shadow that holds the old address.
    pub hold_name: String,
    /// Name of the shadow that serves the new address in advance (warming).
    pub warm_name: String,
    /// Temporary addresses of the new range, for the creation of the two shadows.
    pub temporary: [IpAddr; 2],
    /// The part of the Service's spec that the shadows copy.
    pub spec: serde_json::Value,
}

impl Shadow {
    /// Returns the names of both shadows: first the shadow that holds the old address, then the shadow that serves the new
    /// address.
    pub fn names(&self) -> [&str; 2] {
        [&self.hold_name, &self.warm_name]
    }

    /// Returns whether the shadows have copies of the Service's endpoints. Without a selector, no controller creates endpoints
    /// for the shadows.
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
    /// The reason why the Service does not move.
    pub reason: String,
}

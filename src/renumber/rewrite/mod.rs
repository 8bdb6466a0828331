//! Rewrites a RangeAllocation for its current range or for another range. The bits are computed from the Services.
//!
//! The API server reads the object again at its next allocation (`pkg/registry/core/service/allocator/storage/storage.go`,
//! v1.36.3), so no restart is needed. Under dual write, no other component repairs the object.

pub mod run;

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::guard::is_the_planned;
use super::index::Index;
use super::intention::Renumbering;
use super::target;
use crate::ip::{Item, Items, ServiceCidr};
use crate::operation::{self, Action, KeyChange, KeyEdit, NoEffect, Plan, Stage, Step, StepId, Swap, Work};
use crate::store::Key;
use crate::survey::{BitmapRecord, Era, ServiceRecord, Survey};
use crate::wire::bitmap::Bitmap;
use crate::wire::edit::Condition;
use crate::wire::objects::{ALLOCATOR, new_range_allocation};
use crate::wire::{Field, FieldEdit, Value};

/// The kind of plan, as written in the plan's header.
pub const KIND: &str = "rewrite-range";

/// The RangeAllocation of node ports.
const NODE_PORTS: &str = "servicenodeports";

/// Reason why a RangeAllocation cannot be rewritten, or needs no rewrite.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// The cluster has no such RangeAllocation.
    #[error("there is no RangeAllocation `{name}`{why}")]
    Missing {
        /// Name of the RangeAllocation.
        name: String,
        /// The reason, or what to do; empty if unknown.
        why: &'static str,
    },
    /// No API server reads the RangeAllocation, because it is a leftover.
    #[error(
        "RangeAllocation `{name}` is a leftover that no API server reads; a rewrite would have no effect"
    )]
    Leftover {
        /// Name of the RangeAllocation.
        name: String,
    },
    /// The range is invalid, or of the wrong kind.
    #[error("`{range}` cannot be the range of RangeAllocation `{name}`: {reason}")]
    Range {
        /// Name of the RangeAllocation.
        name: String,
        /// The range.
        range: String,
        /// The reason.
        reason: String,
    },
    /// The survey has no cluster identity.
    #[error("the namespace `kube-system` does not exist; its uid identifies the cluster")]
    NoIdentity,
    /// The RangeAllocation already matches the Services.
    #[error("RangeAllocation `{name}` matches the Services: there is nothing to rewrite")]
    Unchanged {
        /// Name of the RangeAllocation.
        name: String,
    },
}

/// The content of a plan that rewrites a RangeAllocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeRewrite {
    /// Name of the RangeAllocation.
    pub name: String,
    /// Key of the RangeAllocation in etcd.
    pub key: Key,
    /// Range and bits before the rewrite; `None` if the RangeAllocation does not exist.
    pub before: Option<Content>,
    /// Range and bits after the rewrite.
    pub after: Content,
    /// Number of Services with an address outside the range.
    #[serde(default)]
    pub outside: usize,
}

impl RangeRewrite {
    /// Returns whether a new plan from the current state would be the same rewrite.
    #[must_use]
    pub fn is_still_right(&self, survey: &Survey) -> bool {
        let range = self.before.as_ref().map(|before| &before.range);
        let to = match self.after.range.parse::<ServiceCidr>() {
            Ok(to) if range != Some(&self.after.range) => Some(to),
            _ => None,
        };
        plan_rewrite(survey, &self.name, to.as_ref()).is_ok_and(|plan| plan.work == *self)
    }

    /// Returns two lists of addresses or ports: the items that the rewrite allocates, and the items that it frees.
    #[must_use]
    pub fn difference(&self) -> (Vec<String>, Vec<String>) {
        let before = self.before.as_ref().map(Content::marked).unwrap_or_default();
        let after = self.after.marked();
        let only =
            |a: &BTreeSet<Item>, b: &BTreeSet<Item>| a.difference(b).map(ToString::to_string).collect();
        (only(&after, &before), only(&before, &after))
    }

    /// Returns whether the rewrite frees addresses or ports.
    #[must_use]
    pub fn frees(&self) -> bool {
        !self.difference().1.is_empty()
    }

    /// Returns the reverse rewrite, for display. If the rewrite created the object, the reverse rewrite writes an empty bitmap.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let nothing = Content { range: self.after.range.clone(), data: Vec::new() };
        Self {
            name: self.name.clone(),
            key: self.key.clone(),
            before: Some(self.after.clone()),
            after: self.before.clone().unwrap_or(nothing),
            outside: 0,
        }
    }
}

/// The content of a RangeAllocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The range: a CIDR, or `FIRST-LAST` for node ports.
    pub range: String,
    /// The bitmap.
    #[serde(with = "crate::wire::base64_text")]
    pub data: Vec<u8>,
}

impl Content {
    /// Returns the allocated addresses or ports. Ignores bits beyond the range.
    pub fn marked(&self) -> BTreeSet<Item> {
        let Some(items) = Items::parse(&self.range) else { return BTreeSet::new() };
        let Ok(bits) = Bitmap::from_bytes(&self.data, (self.data.len() as u64).saturating_mul(8)) else {
            return BTreeSet::new();
        };
        bits.iter_set().filter_map(|bit| items.item(bit)).collect()
    }
}

/// Counts the Services that have an address of the range's family, but outside the range.
fn outside(survey: &Survey, range: &ServiceCidr) -> usize {
    let addresses = survey.services.iter().filter_map(|service| service.address(range.family()));
    addresses.filter(|address| Items::Addresses(*range).bit(Item::Address(*address)).is_none()).count()
}

/// Returns the bits that must be set: for the addresses or node ports of the Services, and for the allocator's IPAddress objects.
/// `found` is the current RangeAllocation, if its range does not change.
///
/// If `found` is given, an IPAddress that no Service lists requires a bit only if this bit is set in `found`. An API server
/// allocates or releases the bit before it changes the IPAddress. So the bit is set if the Service is being created, and free if
/// the Service was just deleted.
pub(in crate::renumber) fn wanted(items: &Items, survey: &Survey, found: Option<&BitmapRecord>) -> Bitmap {
    let mut bits = Bitmap::empty(items.capacity());
    let there = found.and_then(|found| Bitmap::from_bytes(&found.data, items.capacity()).ok());
    let has_bit = |address: &IpAddr| {
        let bit = items.bit(Item::Address(*address));
        there.as_ref().is_none_or(|there| bit.is_some_and(|bit| there.is_set(bit)))
    };
    let addresses = survey.services.iter().flat_map(|service| service.addresses.iter().copied());
    let objects = survey.addresses.iter().filter(|object| object.managed_by == ALLOCATOR);
    let addresses = addresses.chain(objects.filter_map(|object| object.address).filter(has_bit));
    let ports = survey.services.iter().flat_map(ServiceRecord::node_ports);
    for item in addresses.map(Item::Address).chain(ports.map(Item::Port)) {
        if let Some(bit) = items.bit(item) {
            bits.set(bit, true);
        }
    }
    bits
}

/// Returns the addresses of an operation, each with a flag. The flag shows whether the address needs its bit when the
/// RangeAllocation gets the new range (with `back`, the old range). An address that a planned Service has or gets needs its bit.
/// An address that is only kept does not need its bit.
pub fn wanted_meanwhile(work: &Renumbering, survey: &Survey, back: bool) -> Vec<(IpAddr, bool)> {
    let index = Index::of(survey);
    let of_services = work.moves.iter().map(|candidate| {
        let address = if back { candidate.old_address } else { candidate.new_address };
        // No address is kept for a Service that was deleted, or has another address or no address.
        let planned = index.service(candidate).filter(|service| is_the_planned(candidate, service));
        (address, planned.is_some() || index.is_listed(address))
    });
    // After a shadow gets its final address, the IPAddress of its temporary address still exists. If the shadow was skipped, that
    // IPAddress exists for a long time.
    let shadows = work.moves.iter().filter_map(|candidate| candidate.shadow.as_ref());
    let temporary = shadows.flat_map(|it| it.temporary).map(|address| (address, index.is_listed(address)));
    of_services.chain(temporary).collect()
}

/// Plans the rewrite of a RangeAllocation for the range `to`, or for its current range if `to` is `None`.
///
/// Fails if there is nothing to do, if the range is not valid, or if no API server reads the RangeAllocation.
pub fn plan_rewrite(
    survey: &Survey,
    name: &str,
    to: Option<&ServiceCidr>,
) -> Result<Plan<RangeRewrite>, RewriteError> {
    let cluster = survey.cluster_id.clone().ok_or(RewriteError::NoIdentity)?;
    let found = survey.bitmaps.iter().find(|bitmap| bitmap.name == name);
    if found.is_some() && name != NODE_PORTS && survey.era.bitmap_is_leftover {
        return Err(RewriteError::Leftover { name: name.to_string() });
    }
    let range = new_range(survey, name, found, to)?;
    let refuse = |reason: &str| RewriteError::Range {
        name: name.to_string(),
        range: range.clone(),
        reason: reason.to_string(),
    };
    if let Some(to) = to {
        check_target(survey, name, found, to).map_err(|reason| refuse(&reason))?;
    }
    let items = Items::parse(&range);
    let items =
        items.ok_or_else(|| refuse("it is neither a CIDR with at most 20 host bits nor a port range"))?;
    let same = found.filter(|found| found.range == range);
    let after = Content { data: wanted(&items, survey, same).to_bytes(), range };
    let before = found.map(|b| Content { range: b.range.clone(), data: b.data.clone() });
    if before.as_ref() == Some(&after) {
        return Err(RewriteError::Unchanged { name: name.to_string() });
    }
    let outside = match items {
        Items::Addresses(cidr) => outside(survey, &cidr),
        Items::Ports(..) => 0,
    };
    let key = survey.layout.range(name);
    let work = RangeRewrite { name: name.to_string(), key, before, after, outside };
    Ok(Plan::new(&cluster, survey.revision, work))
}

/// Checks a new range of addresses against the range that it replaces, and against other ranges.
fn check_target(
    survey: &Survey,
    name: &str,
    found: Option<&BitmapRecord>,
    to: &ServiceCidr,
) -> Result<(), String> {
    target::usable(survey.era.era, to).map_err(|error| error.to_string())?;
    let now = found.and_then(BitmapRecord::cidr);
    if let Some(now) = now.filter(|now| now.family() != to.family()) {
        return Err(format!("it is for {} and has the range `{now}`", now.family()));
    }
    let others = survey.bitmaps.iter().filter(|bitmap| bitmap.name != name).filter_map(BitmapRecord::cidr);
    if let Some(other) = others.into_iter().find(|other| other.overlaps(to)) {
        return Err(format!("it overlaps `{other}`, the range of another RangeAllocation"));
    }
    let configured = survey.service_ranges();
    if survey.era.era == Era::DualWrite && !configured.contains(to) {
        return Err("no ServiceCIDR has that range: create it first".to_string());
    }
    Ok(())
}

fn new_range(
    survey: &Survey,
    name: &str,
    found: Option<&BitmapRecord>,
    to: Option<&ServiceCidr>,
) -> Result<String, RewriteError> {
    if survey.era.era == Era::Objects && found.is_none() {
        let why =
            "; this cluster keeps its allocations as IPAddress objects, which the API server repairs itself";
        return Err(RewriteError::Missing { name: name.to_string(), why });
    }
    match (to, found) {
        (Some(to), _) if name == NODE_PORTS => Err(RewriteError::Range {
            name: name.to_string(),
            range: to.to_string(),
            reason: "it is for node ports, whose range is the API server's `--service-node-port-range`"
                .to_string(),
        }),
        (Some(to), _) => Ok(to.to_string()),
        (None, Some(found)) => Ok(found.range.clone()),
        (None, None) => {
            Err(RewriteError::Missing { name: name.to_string(), why: "; give its range with `--to`" })
        }
    }
}

impl operation::OperationKind for RangeRewrite {
    const NAME: &'static str = KIND;
    const VERSION: u32 = 4;
}

impl Work for RangeRewrite {
    type Effect = NoEffect;

    fn stages(&self) -> Vec<Stage> {
        let title = format!("rewrite RangeAllocation `{}`", self.name);
        vec![Stage { index: 0, name: "rewrite".into(), batch: None, title }]
    }

    fn steps(&self, _stage: &Stage) -> Vec<Step<NoEffect>> {
        let change =
            |change| Swap { edits: vec![KeyEdit { key: self.key.clone(), change }], checks: Vec::new() };
        let (forward, backward) = match &self.before {
            None => {
                let value = new_range_allocation(&self.after.range, self.after.data.clone());
                let require = vec![
                    Condition::Holds(Field::range(), Value::Text(self.after.range.clone())),
                    Condition::Holds(Field::data(), Value::Bytes(self.after.data.clone())),
                ];
                (KeyChange::Create { value, fill: Vec::new() }, KeyChange::Delete { require })
            }
            Some(before) => (edit(before, &self.after), edit(&self.after, before)),
        };
        let action = Action::Swap { forward: change(forward), backward: Some(change(backward)) };
        vec![Step {
            id: StepId(format!("rewrite/{}", self.name)),
            subject: String::new(),
            action,
            independent: false,
            back_of: Vec::new(),
        }]
    }
}

fn edit(before: &Content, after: &Content) -> KeyChange {
    let text = |content: &Content| Value::Text(content.range.clone());
    let data = |content: &Content| Value::Bytes(content.data.clone());
    let edits = vec![
        FieldEdit::replace(Field::range(), text(before), text(after)),
        FieldEdit::replace(Field::data(), data(before), data(after)),
    ];
    KeyChange::Edit { require: Vec::new(), edits, fill: Vec::new() }
}

//! The single steps of a renumbering.
//!
//! Every step names, in both directions, what must be there and what shall be there, so that it works on
//! the objects as they are when it is carried out, and refuses where someone else has changed an address.

mod around;
mod edits;
mod mend;
mod range;
mod shadow;

use std::net::IpAddr;

use edits::{both, create, date_now, inverse, managed_by, one, relabel, reparent, swap, text};

pub(super) use range::{REWRITE_BITMAP, bits_step};

use super::hold::Hold;
use super::intention::{Move, Renumbering};
use crate::operation::{Action, KeyChange, KeyCheck, KeyEdit, State, Step, StepId, Swap, Wait};
use crate::survey::{Era, Layout};
use crate::wire::edit::Condition;
use crate::wire::objects::{ALLOCATOR, NETSURGEON, NewIpAddress};
use crate::wire::{Field, FieldEdit, Text, Value};

/// How far ahead of now an address is dated that is handed to the allocator before its Service has it: the
/// repair loop leaves younger ones alone (`repairip.go`, 1.33.6 and later). Long enough for a batch, its shadows
/// included, whatever stalls.
const AHEAD_SECONDS: i64 = 300;

/// Compiles the steps of one renumbering.
pub(super) struct Compiler<'a> {
    pub(super) work: &'a Renumbering,
    pub(super) layout: &'a Layout,
}

fn step(name: &str, subject: &str, action: Action) -> Step {
    Step { id: StepId(format!("{name}/{subject}")), about: String::new(), action, apart: false }
}

/// A step that belongs to one Service: it is left alone on the way back once another of that Service cannot
/// be undone.
fn step_of(candidate: &Move, name: &str, action: Action) -> Step {
    Step { id: candidate.step(name), about: candidate.id(), action, apart: false }
}

/// A transaction that belongs to the way back of a Service's flip.
fn way_back(name: &str, candidate: &Move, swap: Swap) -> Step {
    step_of(candidate, name, Action::WayBack { of: candidate.step("flip"), swap })
}

/// Words for what is waited for, which a [`Wait`] carries to whoever waits.
pub(super) mod word {
    pub(in crate::renumber) const BARRIER: &str = "barrier";
    pub(in crate::renumber) const ENDPOINTS: &str = "endpoints";
    pub(in crate::renumber) const SEEN: &str = "seen";
    pub(in crate::renumber) const LINGER: &str = "linger";
    pub(in crate::renumber) const ALLOCATION: &str = "allocation";
    pub(in crate::renumber) const ALLOCATION_BACK: &str = "allocation-back";
    pub(in crate::renumber) const RANGE_READY: &str = "range-ready";
    pub(in crate::renumber) const RANGE_REPLACED: &str = "range-replaced";
    pub(in crate::renumber) const TEMPORARY_GONE: &str = "temporary-gone";
}

/// Waiting for every API server to know the addresses of a batch, and for every kube-proxy to have applied
/// what was written.
pub(super) fn barrier(name: &str, batch: usize) -> Step {
    waiting(name, batch, routed(batch))
}

/// What [`barrier`] waits for.
pub(super) fn routed(batch: usize) -> Wait {
    let until = "every API server is ready and has seen the addresses of the batch, and every kube-proxy has \
                 applied everything written so far";
    wait(batch, word::BARRIER, until)
}

fn wait(batch: usize, what: &str, until: &str) -> Wait {
    Wait { name: what.to_string(), batch: Some(batch), until: until.to_string() }
}

fn waiting(name: &str, batch: usize, wait: Wait) -> Step {
    step(name, &format!("{batch:05}"), Action::Wait(wait))
}

/// Leaving the new addresses routed when their Services have moved back.
pub(super) fn linger(batch: usize, moves: &[Move]) -> Step {
    let until = "nobody connects any more to a new address that a name was resolved to";
    let wait = wait(batch, word::LINGER, until);
    let of = moves.iter().map(|candidate| candidate.step("flip")).collect();
    step("linger", &format!("{batch:05}"), Action::WaitBack { of, wait })
}

/// Waiting for every API server to know what its repair loop must not misunderstand.
pub(super) fn seen(name: &str, batch: usize) -> Step {
    let until = "every API server is ready and has seen the addresses and shadow Services of the batch";
    waiting(name, batch, wait(batch, word::SEEN, until))
}

/// Waiting for shadow Services to have the endpoints of the Services that they stand in for.
pub(super) fn endpoints(name: &str, batch: usize) -> Step {
    let until = "the shadow Services have the endpoints of the Services that they stand in for";
    waiting(name, batch, wait(batch, word::ENDPOINTS, until))
}

/// The step after which there is no way back.
pub(super) fn no_return() -> Step {
    step("no-return", "all", Action::PointOfNoReturn)
}

/// Whether that step was begun; `state` tells the state of a step.
pub fn is_past_no_return(state: impl Fn(&StepId) -> Option<State>) -> bool {
    state(&no_return().id).is_some()
}

impl Compiler<'_> {
    /// Makes the IPAddress of a target address, ours: the allocator does not give it away, the repair loop
    /// leaves it alone.
    pub(super) fn reserve(&self, candidate: &Move) -> Step {
        let key = self.layout.ip_address(candidate.new_address);
        let value = self.new_ip_address(candidate.new_address, candidate, &candidate.name, NETSURGEON);
        let forward = vec![create(key.clone(), value, 0)];
        let backward =
            vec![KeyEdit { key, change: KeyChange::Delete { require: vec![managed_by(NETSURGEON)] } }];
        step_of(candidate, "reserve", both(forward, backward))
    }

    pub(super) fn new_ip_address(
        &self,
        address: IpAddr,
        candidate: &Move,
        parent: &str,
        managed_by: &str,
    ) -> Vec<u8> {
        let new = NewIpAddress {
            api_version: &self.work.api_version,
            address,
            parent: (&candidate.namespace, parent),
            managed_by,
            uid: "",
            created: 0,
        };
        new.encode(self.work.encoding)
    }

    /// Adds the new address as an external IP, so that every node routes it before any DNS answer names it.
    pub(super) fn prewarm(&self, candidate: &Move) -> Option<Step> {
        if candidate.hold != Hold::ExternalIp {
            return None;
        }
        let policy = Value::text(candidate.traffic_policy.as_deref());
        let edits = vec![
            FieldEdit::replace(Field::external_ips(), Value::Absent, one(candidate.new_address)),
            FieldEdit::replace(Field::external_traffic_policy(), policy, text("Local")),
        ];
        Some(step_of(candidate, "prewarm", self.edit_service(candidate, edits)))
    }

    fn edit_service(&self, candidate: &Move, edits: Vec<FieldEdit>) -> Action {
        let back = inverse(&edits);
        both(vec![self.service_edit(candidate, edits)], vec![self.service_edit(candidate, back)])
    }

    fn service_edit(&self, candidate: &Move, edits: Vec<FieldEdit>) -> KeyEdit {
        let key = self.layout.service(&candidate.namespace, &candidate.name);
        let require = vec![Condition::Holds(Field::uid(), text(&candidate.uid))];
        KeyEdit { key, change: KeyChange::Edit { require, edits, fill: Vec::new() } }
    }

    /// Hands the new address to the allocator ahead of the flip; taken back on the way back.
    /// A shadow that warms the address up was lent it before.
    pub(super) fn hand_over(&self, candidate: &Move) -> Option<Step> {
        if candidate.hold != Hold::ExternalIp {
            return None;
        }
        let key = self.layout.ip_address(candidate.new_address);
        let forward = vec![relabel(key.clone(), NETSURGEON, ALLOCATOR, Some(AHEAD_SECONDS))];
        let backward = vec![relabel(key, ALLOCATOR, NETSURGEON, None)];
        Some(step_of(candidate, "hand-over", both(forward, backward)))
    }

    /// The counterpart of [`Self::hand_over`] for the way back: the old address goes to the allocator ahead
    /// of the flip back. Forward there is nothing to do.
    pub(super) fn hand_back(&self, candidate: &Move) -> Option<Step> {
        if candidate.hold != Hold::ExternalIp || candidate.old_object_missing {
            return None;
        }
        let key = self.layout.ip_address(candidate.old_address);
        let mut back = swap(vec![relabel(key, NETSURGEON, ALLOCATOR, Some(AHEAD_SECONDS))]);
        back.checks.push(self.is_as_moved(candidate));
        Some(way_back("hand-back", candidate, back))
    }

    /// What the first change on a Service's way back makes sure of: that the Service is still as it was moved,
    /// so that its flip can be undone, and nothing needs to be touched if not.
    fn is_as_moved(&self, candidate: &Move) -> KeyCheck {
        let mut conditions = vec![
            Condition::Holds(Field::uid(), text(&candidate.uid)),
            Condition::Holds(Field::cluster_ip(), Value::text(candidate.new.first().map(Text::as_str))),
            Condition::Holds(Field::cluster_ips(), Value::texts(&candidate.new)),
        ];
        if candidate.hold == Hold::ExternalIp {
            conditions.push(Condition::Holds(Field::external_ips(), one(candidate.old_address)));
        }
        KeyCheck { key: self.layout.service(&candidate.namespace, &candidate.name), conditions }
    }

    /// Dates the new address as made now, once its Service has it. The shadow that warmed it up gives it back.
    pub(super) fn settle(&self, candidate: &Move) -> Step {
        let key = self.layout.ip_address(candidate.new_address);
        let (forward, backward) = match &candidate.shadow {
            None => (date_now(key), None),
            Some(shadow) => {
                let (name, warm) = (&candidate.name, &shadow.warm_name);
                (reparent(key.clone(), warm, name, 0), Some(reparent(key, name, warm, AHEAD_SECONDS)))
            }
        };
        let backward = backward.map(|edit| swap(vec![edit]));
        step_of(candidate, "settle", Action::Swap { forward: swap(vec![forward]), backward })
    }

    /// The same for the old address on the way back.
    pub(super) fn settle_old(&self, candidate: &Move) -> Option<Step> {
        let key = self.layout.ip_address(candidate.old_address);
        let edit = if candidate.old_object_missing {
            if candidate.hold != Hold::ExternalIp {
                return None;
            }
            KeyEdit { key, change: KeyChange::Delete { require: vec![managed_by(NETSURGEON)] } }
        } else {
            date_now(key)
        };
        Some(way_back("settle-old", candidate, swap(vec![edit])))
    }

    /// The move itself: the Service gets the new address, and what holds the old one takes it, in one
    /// transaction.
    pub(super) fn flip(&self, candidate: &Move) -> Step {
        let mut edits = Vec::new();
        if let (Some(before), Some(after)) = (candidate.old.first(), candidate.new.first()) {
            edits.push(FieldEdit::replace(Field::cluster_ip(), text(before), text(after)));
        }
        let before = if candidate.without_list { Value::Absent } else { Value::texts(&candidate.old) };
        let lists = (before, Value::texts(&candidate.new));
        edits.push(FieldEdit::replace(Field::cluster_ips(), lists.0, lists.1));
        if candidate.hold == Hold::ExternalIp {
            let (new, old) = (one(candidate.new_address), one(candidate.old_address));
            edits.push(FieldEdit::replace(Field::external_ips(), new, old));
        }
        let back = inverse(&edits);
        let mut forward = swap(vec![self.service_edit(candidate, edits)]);
        let mut backward = swap(vec![self.service_edit(candidate, back)]);
        if self.work.era == Era::Bitmap {
            forward.checks.push(self.bit_is_ours(candidate));
        } else {
            forward.edits.extend(self.release_old(candidate, true));
            forward.checks.push(self.is_handed_over(candidate.new_address));
            backward.edits.extend(self.release_old(candidate, false));
            if candidate.hold == Hold::ExternalIp && !candidate.old_object_missing {
                backward.checks.push(self.is_handed_over(candidate.old_address));
            }
        }
        step_of(candidate, "flip", Action::Swap { forward, backward: Some(backward) })
    }

    /// A repair loop may have deleted an address that was handed over and came too late to its Service.
    fn is_handed_over(&self, address: IpAddr) -> KeyCheck {
        KeyCheck { key: self.layout.ip_address(address), conditions: vec![managed_by(ALLOCATOR)] }
    }

    /// A repair round of an API server may have freed a bit that no Service had yet.
    fn bit_is_ours(&self, candidate: &Move) -> KeyCheck {
        let bits = vec![self.bit(candidate.new_address)];
        let capacity = self.bitmap_capacity();
        let conditions = vec![
            Condition::Holds(Field::range(), text(&self.work.to.to_string())),
            Condition::BitsSet { field: Field::data(), capacity, bits },
        ];
        KeyCheck { key: self.range_key(), conditions }
    }

    /// What happens to the IPAddress objects in the transaction of a flip, forward or back.
    fn release_old(&self, candidate: &Move, forward: bool) -> Vec<KeyEdit> {
        let old = self.layout.ip_address(candidate.old_address);
        match (&candidate.shadow, forward) {
            (None, true) if candidate.old_object_missing => {
                let address = candidate.old_address;
                vec![create(old, self.new_ip_address(address, candidate, &candidate.name, NETSURGEON), 0)]
            }
            (Some(shadow), true) if candidate.old_object_missing => {
                let address = candidate.old_address;
                vec![create(old, self.new_ip_address(address, candidate, &shadow.hold_name, ALLOCATOR), 0)]
            }
            (Some(shadow), false) if candidate.old_object_missing => {
                let require = vec![Condition::Holds(Field::parent_name(), text(&shadow.hold_name))];
                vec![KeyEdit { key: old, change: KeyChange::Delete { require } }]
            }
            (None, true) => vec![relabel(old, ALLOCATOR, NETSURGEON, None)],
            (None, false) => {
                vec![relabel(self.layout.ip_address(candidate.new_address), ALLOCATOR, NETSURGEON, None)]
            }
            (Some(shadow), true) => vec![reparent(old, &candidate.name, &shadow.hold_name, 0)],
            (Some(shadow), false) => vec![reparent(old, &shadow.hold_name, &candidate.name, AHEAD_SECONDS)],
        }
    }

    /// Stops holding an old address.
    pub(super) fn retire(&self, candidate: &Move) -> Step {
        let mut edits = match &candidate.shadow {
            None => {
                let policy = Value::text(candidate.traffic_policy.as_deref());
                vec![self.service_edit(
                    candidate,
                    vec![
                        FieldEdit::replace(Field::external_ips(), one(candidate.old_address), Value::Absent),
                        FieldEdit::replace(Field::external_traffic_policy(), text("Local"), policy),
                    ],
                )]
            }
            Some(shadow) => {
                let key = self.layout.service(&candidate.namespace, &shadow.hold_name);
                let require = vec![Condition::Holds(Field::cluster_ips(), one(candidate.old_address))];
                vec![KeyEdit { key, change: KeyChange::Delete { require } }]
            }
        };
        if self.work.era != Era::Bitmap {
            let key = self.layout.ip_address(candidate.old_address);
            let require = match &candidate.shadow {
                None => managed_by(NETSURGEON),
                Some(shadow) => Condition::Holds(Field::parent_name(), text(&shadow.hold_name)),
            };
            edits.push(KeyEdit { key, change: KeyChange::Delete { require: vec![require] } });
        }
        let forward = swap(edits);
        step_of(candidate, "retire", Action::Swap { forward, backward: None })
    }
}

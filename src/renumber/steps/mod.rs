//! The single steps of a renumbering, for example reserve, prewarm, flip, settle and retire. `stages` defines their order.
//!
//! Every step defines, for both directions, the values that it requires and the values that it writes. So a step works on the
//! current objects, and fails if another client has changed an address.

mod edits;
mod other_objects;
mod range;
mod repair;
mod shadow;

use std::net::IpAddr;

use edits::{both, create, dated, discard, inverse, one, only_if, owned_by, swap, text};

pub(super) use range::{FLAGS, OTHER_RANGES, bits_step};

use super::effect::{Awaited, Effect};
use super::hold::Hold;
use super::intention::{Move, Renumbering};
use crate::operation::{self, KeyChange, KeyCheck, KeyEdit, State, StepId};
use crate::store::Key;
use crate::survey::{Era, Layout};
use crate::wire::edit::{Condition, FieldChange};
use crate::wire::objects::NewIpAddress;
use crate::wire::{Field, FieldEdit, Text, Value};

/// A step of a renumbering.
pub type Step = operation::Step<Effect>;
/// The action of a renumbering step.
pub type Action = operation::Action<Effect>;

/// The wait of a renumbering step.
pub type Wait = operation::Wait<Awaited>;

/// How far in the future netsurgeon sets the creation timestamps of the two IPAddress objects of a moving Service, in seconds.
/// The timestamps are set before the flip, and stay in the future until the old address is retired. This offset is longer than
/// any soak. When half of this time has passed, the guard and every resume renew the timestamps.
///
/// A repair loop does not delete an IPAddress whose creation timestamp is in the future, even if its Service does not list the
/// address (`syncIPAddress`, `pkg/registry/core/service/ipallocator/controller/repairip.go`, v1.33.6 and later). This protects
/// both IPAddress objects when a frozen API server resumes and reads Services and IPAddresses in any order.
pub(super) const AHEAD_SECONDS: i64 = 60 * 24 * 60 * 60;

/// Compiles the steps of one renumbering.
pub(super) struct Compiler<'a> {
    pub(super) work: &'a Renumbering,
    pub(super) layout: &'a Layout,
}

fn step(name: &str, subject: &str, action: Action) -> Step {
    let id = StepId(format!("{name}/{subject}"));
    Step { id, subject: String::new(), action, independent: false, back_of: Vec::new() }
}

/// Returns a step of one Service. A rollback skips this step once another step of the same Service cannot be undone.
fn step_of(candidate: &Move, name: &str, action: Action) -> Step {
    Step {
        id: candidate.step(name),
        subject: candidate.id(),
        action,
        independent: false,
        back_of: Vec::new(),
    }
}

/// Waits until every API server has observed the addresses of a batch, and every kube-proxy has applied all writes.
pub(super) fn barrier(name: &str, batch: usize) -> Step {
    waiting(name, batch, routed(batch))
}

/// Returns the condition of [`barrier`].
pub(super) fn routed(batch: usize) -> Wait {
    let until = "every API server is ready and has observed the addresses of the batch, and every kube-proxy has \
                 applied all writes so far";
    wait(batch, Awaited::Barrier, until)
}

fn wait(batch: usize, kind: Awaited, until: &str) -> Wait {
    Wait { kind, batch: Some(batch), subject: None, until: until.to_string() }
}

fn waiting(name: &str, batch: usize, wait: Wait) -> Step {
    step(name, &format!("{batch:05}"), Action::Wait(wait))
}

/// Keeps the new addresses routed for a while after their Services have moved back.
pub(super) fn linger(batch: usize, moves: &[Move]) -> Step {
    let until = "no client uses a cached new address any more";
    let wait = wait(batch, Awaited::Linger, until);
    let back_of = moves.iter().map(|candidate| candidate.step("flip")).collect();
    Step { back_of, ..waiting("linger", batch, wait) }
}

/// Waits until every API server has observed the objects that its repair loop would otherwise misinterpret.
pub(super) fn seen(name: &str, batch: usize) -> Step {
    let until = "every API server is ready and has observed the addresses and shadow Services of the batch";
    waiting(name, batch, wait(batch, Awaited::Seen, until))
}

/// Waits until every API server has observed the addresses and Services of all batches. An API server that has not observed a
/// flip would delete the IPAddress of the new address once its creation timestamp is set to now.
pub(super) fn all_seen() -> Step {
    let until =
        "every API server is ready and has observed the addresses and Services of all batches".to_string();
    step("seen", "all", Action::Wait(Wait { kind: Awaited::Seen, batch: None, subject: None, until }))
}

/// Waits until the shadows of a Service have the Service's endpoints; `None` if the Service has no shadows.
pub(super) fn endpoints(name: &str, batch: usize, candidate: &Move) -> Option<Step> {
    let until = format!("the shadow Services of `{}` have its endpoints", candidate.subject());
    with_shadow(name, candidate, wait(batch, Awaited::Endpoints, &until))
}

/// If a Service was deleted and its finalizer delayed the deletion, waits until the deletion is complete. Returns `None` if the
/// Service has no shadows.
pub(super) fn released(name: &str, batch: usize, candidate: &Move) -> Option<Step> {
    let until = format!("`{}` is removed, if it was deleted during its move", candidate.subject());
    with_shadow(name, candidate, wait(batch, Awaited::Released, &until))
}

/// Returns a wait for one Service; `None` if the Service has no shadows.
fn with_shadow(name: &str, candidate: &Move, wait: Wait) -> Option<Step> {
    candidate.shadow.as_ref()?;
    Some(step_of(candidate, name, Action::Wait(Wait { subject: Some(candidate.id()), ..wait })))
}

/// Returns the step after which no rollback is possible.
pub(super) fn no_return() -> Step {
    step("no-return", "all", Action::PointOfNoReturn)
}

/// Returns whether the step after which no rollback is possible was started. `state` returns the state of a step.
pub fn is_past_no_return(state: impl Fn(&StepId) -> Option<State>) -> bool {
    state(&no_return().id).is_some()
}

impl Compiler<'_> {
    /// Creates the IPAddress of a Service's new address, with a creation timestamp in the future. So the allocator does not
    /// allocate the address, and the repair loop keeps the IPAddress although the Service does not list the address yet.
    pub(super) fn reserve(&self, candidate: &Move) -> Step {
        let key = self.layout.ip_address(candidate.new_address);
        let value = self.new_ip_address(candidate.new_address, candidate);
        let mut forward = vec![create(key.clone(), value, AHEAD_SECONDS)];
        // The bits of a sweep are reserved together, because the RangeAllocation has the new range then. A rollback frees the bits at
        // its end.
        forward.extend(self.set_old_bit(candidate.new_address).filter(|_| candidate.sweep == 0));
        step_of(candidate, "reserve", both(forward, vec![discard(key, owned_by(candidate))]))
    }

    pub(super) fn new_ip_address(&self, address: IpAddr, candidate: &Move) -> Vec<u8> {
        let new = NewIpAddress {
            api_version: &self.work.api_version,
            address,
            parent: (&candidate.namespace, &candidate.name),
            uid: "",
            created: 0,
        };
        new.encode(self.work.encoding)
    }

    /// Sets the creation timestamp of the old address's IPAddress to the future. So the repair loop keeps the IPAddress when the
    /// Service no longer lists the address. The undo restores the original timestamp.
    pub(super) fn date(&self, candidate: &Move) -> Step {
        let key = self.layout.ip_address(candidate.old_address);
        let action = if candidate.old_object_missing {
            let value = self.new_ip_address(candidate.old_address, candidate);
            let forward = vec![create(key.clone(), value, AHEAD_SECONDS)];
            both(forward, vec![discard(key, owned_by(candidate))])
        } else {
            let forward = vec![dated(key.clone(), owned_by(candidate), AHEAD_SECONDS)];
            both(forward, vec![only_if(owned_by(candidate), Self::dated_as_before(key, candidate))])
        };
        step_of(candidate, "date", action)
    }

    fn dated_as_before(key: Key, candidate: &Move) -> KeyEdit {
        let change = FieldChange::Set(candidate.old_object_created.map_or(Value::Absent, Value::Time));
        let edits = vec![FieldEdit { field: Field::creation_timestamp(), change }];
        KeyEdit { key, change: KeyChange::Edit { require: Vec::new(), edits, fill: Vec::new() } }
    }

    /// Adds the new address as an external IP, so that every node routes the address before any DNS answer contains it.
    pub(super) fn prewarm(&self, candidate: &Move) -> Option<Step> {
        if candidate.hold != Hold::ExternalIp {
            return None;
        }
        let policy = Value::text(candidate.traffic_policy.as_deref());
        let edits = vec![
            FieldEdit::replace(Field::external_ips(), Value::Absent, one(candidate.new_address)),
            FieldEdit::replace(Field::external_traffic_policy(), policy, text("Local")),
        ];
        // If the Service's type has changed, the Service still needs its traffic policy. So the undo fails, and a repair removes
        // the added fields.
        let mut back = swap(vec![self.service_edit(candidate, inverse(&edits))]);
        let is_plain = Condition::Holds(Field::service_type(), text("ClusterIP"));
        let key = self.layout.service(&candidate.namespace, &candidate.name);
        back.checks.push(KeyCheck { key, conditions: vec![is_plain] });
        let mut forward = swap(vec![self.service_edit(candidate, edits)]);
        forward.checks.push(self.has_old_addresses(candidate));
        Some(step_of(candidate, "prewarm", Action::Swap { forward, backward: Some(back) }))
    }

    /// Returns the check that the Service is the planned Service and has its old addresses.
    fn has_old_addresses(&self, candidate: &Move) -> KeyCheck {
        let list = if candidate.without_list { Value::Absent } else { Value::texts(&candidate.old) };
        self.has_addresses(candidate, &candidate.old, list)
    }

    /// Returns the check that the Service is the planned Service, that its ClusterIP is the first of `addresses`, and that its
    /// `clusterIPs` is `list`.
    fn has_addresses(&self, candidate: &Move, addresses: &[Text], list: Value) -> KeyCheck {
        let conditions = vec![
            Condition::Holds(Field::uid(), text(&candidate.uid)),
            Condition::Holds(Field::cluster_ip(), Value::text(addresses.first().map(Text::as_str))),
            Condition::Holds(Field::cluster_ips(), list),
        ];
        KeyCheck { key: self.layout.service(&candidate.namespace, &candidate.name), conditions }
    }

    fn service_edit(&self, candidate: &Move, edits: Vec<FieldEdit>) -> KeyEdit {
        let key = self.layout.service(&candidate.namespace, &candidate.name);
        let require = vec![Condition::Holds(Field::uid(), text(&candidate.uid))];
        KeyEdit { key, change: KeyChange::Edit { require, edits, fill: Vec::new() } }
    }

    /// Returns the precondition of the first change in a Service's rollback: the Service is the planned Service and still has its
    /// new addresses. Otherwise its flip cannot be undone, and the rollback does not change the Service.
    fn is_as_moved(&self, candidate: &Move) -> KeyCheck {
        self.has_addresses(candidate, &candidate.new, Value::texts(&candidate.new))
    }

    /// Sets the creation timestamp of the new address's IPAddress to now, once the old address is retired.
    pub(super) fn settle(&self, candidate: &Move) -> Step {
        let key = self.layout.ip_address(candidate.new_address);
        let forward = only_if(owned_by(candidate), dated(key, Vec::new(), 0));
        let action = Action::Swap { forward: swap(vec![forward]), backward: None };
        step_of(candidate, "settle", action)
    }

    /// Moves the Service. In one transaction, the Service gets the new address, and in the Service's external IPs the old address
    /// replaces the new address. If the hold is a shadow, the shadow already has the old address, and the external IPs do not
    /// change.
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
            // Without its shadow, an API server may have given the old address to another Service.
            let is_open = self.work.accepts(candidate.old_address);
            backward.checks.extend(self.shadow_holds(candidate).filter(|_| is_open));
        } else {
            forward.checks.extend(self.addresses_are_ours(candidate));
            backward.checks.extend(self.addresses_are_ours(candidate));
        }
        forward.checks.extend(self.shadow_holds(candidate));
        step_of(candidate, "flip", Action::Swap { forward, backward: Some(backward) })
    }

    /// Returns the checks that both addresses still belong to the Service. While the operation was interrupted, an IPAddress may
    /// have been deleted, and its address may have been allocated to another Service.
    pub(super) fn addresses_are_ours(&self, candidate: &Move) -> impl Iterator<Item = KeyCheck> {
        [candidate.old_address, candidate.new_address]
            .into_iter()
            .map(|address| KeyCheck { key: self.layout.ip_address(address), conditions: owned_by(candidate) })
    }

    /// Returns the check that the shadow that holds the old address already has this address.
    fn shadow_holds(&self, candidate: &Move) -> Option<KeyCheck> {
        let shadow = candidate.shadow.as_ref()?;
        let conditions = vec![Condition::Holds(Field::cluster_ips(), one(candidate.old_address))];
        Some(KeyCheck { key: self.layout.service(&candidate.namespace, &shadow.hold_name), conditions })
    }

    /// Returns the check that the bit of the new address is still set. A repair round of an API server may have freed a bit
    /// without a Service.
    fn bit_is_ours(&self, candidate: &Move) -> KeyCheck {
        let bits = vec![self.bit(candidate.new_address)];
        let capacity = self.bitmap_capacity();
        let conditions = vec![
            Condition::Holds(Field::range(), text(&self.work.to.to_string())),
            Condition::BitsSet { field: Field::data(), capacity, bits },
        ];
        KeyCheck { key: self.range_key(), conditions }
    }

    /// Ends the hold of an old address.
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
            edits.push(discard(self.layout.ip_address(candidate.old_address), owned_by(candidate)));
        }
        let forward = swap(edits);
        step_of(candidate, "retire", Action::Swap { forward, backward: None })
    }
}

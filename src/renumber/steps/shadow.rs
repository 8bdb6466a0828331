//! The steps of Services with an old address that a shadow Service holds.

use std::net::IpAddr;

use super::edits::{both, create, discard, one, only_if, owned_as, owned_by, swap, text};
use super::{Action, Compiler, Step, endpoints, released, step_of};
use crate::operation::{KeyChange, KeyCheck, KeyEdit, StepId, Swap};
use crate::renumber::effect::Effect;
use crate::renumber::intention::{Move, Shadow};
use crate::survey::Era;
use crate::wire::edit::{Condition, FieldChange};
use crate::wire::objects::MOVING;
use crate::wire::{Field, FieldEdit, Value};

impl Compiler<'_> {
    /// Returns the steps that create the shadow Services of a batch, add the finalizer to the planned Services, wait for the
    /// endpoints of the shadows, and give the shadows their addresses.
    pub(in crate::renumber) fn shadows(&self, batch: usize, moves: &[Move]) -> Vec<Step> {
        let with_shadow = || moves.iter().filter_map(|m| m.shadow.as_ref().map(|shadow| (m, shadow)));
        let mut steps = Vec::new();
        // In a rollback, this step comes after the shadows have lost their addresses.
        if self.work.era == Era::DualWrite {
            let given = with_shadow().flat_map(|(candidate, shadow)| {
                shadow.names().map(|name| shadow_step_id(candidate, "give-address", name))
            });
            steps.push(Self::aligned_back(&format!("{batch:05}"), given.collect()));
        }
        for (candidate, shadow) in with_shadow() {
            for (name, temporary) in parts_of(shadow) {
                steps.push(Self::make_shadow(candidate, shadow, name, temporary));
            }
        }
        steps.extend(moves.iter().filter_map(|candidate| released("released-back", batch, candidate)));
        // A deletion that started before the finalizer was added does not check the finalizer. Such a deletion completes before
        // the shadows get their addresses.
        steps.extend(with_shadow().map(|(candidate, _)| self.pin(candidate)));
        steps.extend(moves.iter().filter_map(|candidate| endpoints("endpoints", batch, candidate)));
        for (candidate, shadow) in with_shadow() {
            let addresses = [candidate.old_address, candidate.new_address];
            for ((name, temporary), address) in parts_of(shadow).into_iter().zip(addresses) {
                steps.push(self.give_address(candidate, name, temporary, address));
            }
        }
        steps
    }

    fn make_shadow(candidate: &Move, shadow: &Shadow, name: &str, temporary: IpAddr) -> Step {
        let manifest = manifest(candidate, shadow, name, temporary, &[]);
        shadow_step(candidate, "make-shadow", name, Action::Do(Effect::Create { manifest }))
    }

    /// Replaces the temporary address of a shadow with its final address, in etcd. In the bitmap era, the bit of the temporary address
    /// is freed immediately. Otherwise its IPAddress and its bit are freed together, when every API server has observed the change:
    /// an API server that gets a free bit whose IPAddress exists refuses the creation of a Service (`AllocateNextService`,
    /// `cidrallocator.go`, v1.36.3).
    ///
    /// The undo deletes the shadow in etcd. A deletion through the API would release the address, which the planned Service has
    /// by then. So a rollback needs no temporary address. If a temporary address is not freed yet, the undo also frees this
    /// address.
    pub(super) fn give_address(
        &self,
        candidate: &Move,
        name: &str,
        temporary: IpAddr,
        address: IpAddr,
    ) -> Step {
        let key = self.layout.service(&candidate.namespace, name);
        let edits = vec![
            FieldEdit::replace(Field::cluster_ip(), text(&temporary.to_string()), text(&address.to_string())),
            FieldEdit::replace(Field::cluster_ips(), one(temporary), one(address)),
            finalizer(true),
        ];
        let change = KeyChange::Edit { require: Vec::new(), edits, fill: Vec::new() };
        let mut forward = vec![KeyEdit { key: key.clone(), change }];
        if self.work.era == Era::Bitmap {
            forward.extend(self.free_bit(temporary));
        }
        let forward = Swap { edits: forward, checks: self.is_to_move(candidate, address) };
        let require = vec![Condition::Holds(Field::cluster_ips(), one(address))];
        let mut backward = vec![KeyEdit { key, change: KeyChange::Delete { require } }];
        if self.work.era != Era::Bitmap {
            backward.push(discard(self.layout.ip_address(temporary), owned_as(candidate, name)));
        }
        let action = Action::Swap { forward, backward: Some(swap(backward)) };
        shadow_step(candidate, "give-address", name, action)
    }

    /// Returns the checks that the Service exists, has its old address, and still owns this address. A Service that was deleted
    /// while the shadow waited for endpoints has released the address.
    fn is_to_move(&self, candidate: &Move, address: IpAddr) -> Vec<KeyCheck> {
        let mut checks = vec![self.has_old_addresses(candidate)];
        let is_missing = candidate.old_object_missing && address == candidate.old_address;
        if self.work.era != Era::Bitmap && !is_missing {
            let key = self.layout.ip_address(address);
            checks.push(KeyCheck { key, conditions: owned_by(candidate) });
        }
        checks
    }

    /// Frees the temporary addresses of a Service's shadows.
    pub(in crate::renumber) fn free_temporaries(&self, candidate: &Move) -> Vec<Step> {
        let Some(shadow) = candidate.shadow.as_ref().filter(|_| self.work.era != Era::Bitmap) else {
            return Vec::new();
        };
        let free = |(name, temporary): (&str, IpAddr)| {
            let mut edits = vec![discard(self.layout.ip_address(temporary), owned_as(candidate, name))];
            edits.extend(self.free_bits_now(&[temporary]));
            let action = Action::Swap { forward: swap(edits), backward: None };
            shadow_step(candidate, "free-temporary", name, action)
        };
        parts_of(shadow).map(free).to_vec()
    }

    /// Removes the warming shadows of a batch, and the finalizers of the Services and of the other shadows.
    pub(in crate::renumber) fn unwarmed(&self, batch: usize, moves: &[Move]) -> Vec<Step> {
        let mut steps: Vec<Step> = moves.iter().filter_map(|candidate| self.unwarm(candidate)).collect();
        steps.extend(moves.iter().filter_map(|candidate| self.unpin_shadow(candidate)));
        steps.extend(moves.iter().filter_map(|candidate| self.unpin(candidate)));
        steps.extend(moves.iter().filter_map(|candidate| released("released", batch, candidate)));
        steps
    }

    /// Removes the warming shadow in etcd. A deletion through the API would release the new address, which the Service now has.
    fn unwarm(&self, candidate: &Move) -> Option<Step> {
        let shadow = candidate.shadow.as_ref()?;
        let key = self.layout.service(&candidate.namespace, &shadow.warm_name);
        let require = vec![Condition::Holds(Field::cluster_ips(), one(candidate.new_address))];
        let forward = vec![KeyEdit { key: key.clone(), change: KeyChange::Delete { require } }];
        let value = manifest(candidate, shadow, &shadow.warm_name, candidate.new_address, &[MOVING]);
        let backward = vec![create(key, format!("{value}\n").into_bytes(), 0)];
        let backward = Swap { edits: backward, checks: vec![self.is_as_moved(candidate)] };
        let action = Action::Swap { forward: swap(forward), backward: Some(backward) };
        Some(step_of(candidate, "unwarm", action))
    }
}

/// The finalizer that keeps a Service and its shadow while both have the same address.
///
/// A deletion through the API releases the address, even if another Service has the same address. The allocator could then give
/// the address to a third Service while nodes still route it to the other Service (`AfterDelete` and `releaseAllocatedResources`,
/// `pkg/registry/core/service/storage/storage.go` and `alloc.go`, v1.36.3). With a finalizer, the deleted object stays and keeps
/// its address until the move is complete.
impl Compiler<'_> {
    /// Adds the finalizer to a Service, before a shadow gets its address.
    fn pin(&self, candidate: &Move) -> Step {
        let mut forward = swap(vec![self.pinned(candidate, true)]);
        forward.checks.push(self.has_old_addresses(candidate));
        let backward = Some(swap(vec![self.pinned(candidate, false)]));
        step_of(candidate, "pin", Action::Swap { forward, backward })
    }

    /// Removes the finalizer from a Service once no shadow has its address. If the Service was deleted meanwhile, [`released`]
    /// then waits until its deletion completes.
    fn unpin(&self, candidate: &Move) -> Option<Step> {
        candidate.shadow.as_ref()?;
        let [on, off] = [true, false].map(|listed| self.pinned(candidate, listed));
        let backward = Swap { edits: vec![on], checks: vec![self.is_as_moved(candidate)] };
        let action = Action::Swap { forward: swap(vec![off]), backward: Some(backward) };
        Some(step_of(candidate, "unpin", action))
    }

    /// Removes the finalizer from the shadow that holds the old address. If a client has deleted the shadow meanwhile, also
    /// removes its deletion timestamp, because no other object owns the address now.
    fn unpin_shadow(&self, candidate: &Move) -> Option<Step> {
        let shadow = candidate.shadow.as_ref()?;
        let edit = |edits| {
            let key = self.layout.service(&candidate.namespace, &shadow.hold_name);
            let change = KeyChange::Edit { require: Vec::new(), edits, fill: Vec::new() };
            let holds = vec![Condition::Holds(Field::cluster_ips(), one(candidate.old_address))];
            vec![only_if(holds, KeyEdit { key, change })]
        };
        let stays = FieldEdit { field: Field::deletion_timestamp(), change: FieldChange::Set(Value::Absent) };
        let action = both(edit(vec![finalizer(false), stays]), edit(vec![finalizer(true)]));
        Some(shadow_step(candidate, "unpin", &shadow.hold_name, action))
    }

    /// Adds the finalizer to the planned Service, or removes it. Another Service with the same name is not changed.
    pub(in crate::renumber) fn pinned(&self, candidate: &Move, listed: bool) -> KeyEdit {
        let key = self.layout.service(&candidate.namespace, &candidate.name);
        let change =
            KeyChange::Edit { require: Vec::new(), edits: vec![finalizer(listed)], fill: Vec::new() };
        let holds = vec![Condition::Holds(Field::uid(), text(&candidate.uid))];
        only_if(holds, KeyEdit { key, change })
    }
}

fn finalizer(listed: bool) -> FieldEdit {
    FieldEdit::item(Field::finalizers(), MOVING, listed)
}

fn shadow_step_id(candidate: &Move, name: &str, shadow: &str) -> StepId {
    StepId(format!("{name}/{}/{shadow}", candidate.namespace))
}

/// Returns a step on a shadow. The subject of the step is the Service that the shadow belongs to.
fn shadow_step(candidate: &Move, name: &str, shadow: &str, action: Action) -> Step {
    Step { id: shadow_step_id(candidate, name, shadow), ..step_of(candidate, name, action) }
}

fn parts_of(shadow: &Shadow) -> [(&str, IpAddr); 2] {
    let ([hold, warm], [of_hold, of_warm]) = (shadow.names(), shadow.temporary);
    [(hold, of_hold), (warm, of_warm)]
}

pub(super) fn manifest(
    candidate: &Move,
    shadow: &Shadow,
    name: &str,
    address: IpAddr,
    finalizers: &[&str],
) -> serde_json::Value {
    let mut spec = shadow.spec.clone();
    if let Some(members) = spec.as_object_mut() {
        members.insert("clusterIP".into(), address.to_string().into());
        members.insert("clusterIPs".into(), serde_json::json!([address.to_string()]));
    }
    let mut metadata = serde_json::json!({
        "name": name, "namespace": candidate.namespace, "uid": "", "creationTimestamp": "1970-01-01T00:00:00Z",
        "labels": {"app.kubernetes.io/managed-by": "netsurgeon"},
        "annotations": {"netsurgeon.io/stands-in-for": candidate.name},
    });
    if let Some(members) = metadata.as_object_mut().filter(|_| !finalizers.is_empty()) {
        members.insert("finalizers".into(), finalizers.into());
    }
    serde_json::json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
}

//! Plans a move again if its Service changed after planning. The new move is planned from the current state of the Service.
//!
//! First, the changes of the previous move that do not match the new move are undone. The steps that made these changes count as
//! never started. The new move keeps the batch and, if possible, the addresses.

use std::collections::HashSet;
use std::net::IpAddr;

use super::guard::holds_as_it_did;
use super::hold::{Choice, Hold, choose};
use super::index::{Index, as_seen};
use super::intention::{Move, Renumbering, Shadow, Turn};
use super::plan::{PlanError, capacity, in_use, make_shadow, renamed, spare_addresses};
use super::steps::{Compiler, bits_step};
use super::sweep::AS_PLANNED;
use crate::ip::Family;
use crate::ip::remap::{Rank, Wanted, remap};
use crate::operation::{KeyCheck, KeyEdit, Repair, State, StepId, Swap};
use crate::store::Key;
use crate::survey::{Era, Layout, ServiceRecord, Survey};
use crate::wire::Text;

/// A move that was planned again.
#[derive(Debug, Clone, PartialEq)]
pub struct Replanned {
    /// The new move.
    pub made: Move,
    /// The reason why the move was planned again.
    pub why: String,
    /// The steps of the previous move that count as never started.
    pub steps: Vec<StepId>,
    /// The repair that undoes these steps.
    pub repair: Repair,
}

/// Compares a survey with the moves that are not retired yet. Plans a move again if a change of its Service affects the move. In
/// a rollback (`back`), plans a move again only if the change would prevent the undo. Writes nothing. `state` returns the state
/// of a step.
///
/// A Service that was deleted, or no longer has an address of the family, is not planned again. The second list of the result
/// contains the Services that cannot be planned again because no address is free. Each entry contains the Service, as
/// `namespace/name`, and the error.
pub fn replan(
    work: &Renumbering,
    survey: &Survey,
    back: bool,
    state: impl Fn(&StepId) -> Option<State>,
) -> (Vec<Replanned>, Vec<(String, PlanError)>) {
    let layout = Layout::new(&work.prefix);
    let mut planner = Planner {
        work,
        survey,
        back,
        state: &state,
        compiler: Compiler { work, layout: &layout },
        index: Index::of(survey),
        shadows: work.shadows().map(|(namespace, name)| layout.service(namespace, name)).collect(),
        taken: None,
    };
    let (mut all, mut refused) = (Vec::new(), Vec::new());
    for (batch, range) in work.batches().into_iter().enumerate() {
        for candidate in work.moves.get(range).unwrap_or_default() {
            match planner.again(candidate, batch) {
                Ok(again) => all.extend(again),
                Err(error) => refused.push((candidate.subject(), error)),
            }
        }
    }
    (all, refused)
}

struct Planner<'a> {
    work: &'a Renumbering,
    survey: &'a Survey,
    back: bool,
    state: &'a dyn Fn(&StepId) -> Option<State>,
    compiler: Compiler<'a>,
    index: Index<'a>,
    /// The keys of all shadows of the plan.
    shadows: HashSet<Key>,
    /// The addresses of the new range that are in use or planned; computed on first use.
    taken: Option<HashSet<IpAddr>>,
}

/// A move that is being planned again.
struct Draft {
    made: Move,
    why: Vec<String>,
    steps: Vec<StepId>,
    edits: Vec<KeyEdit>,
    checks: Vec<KeyCheck>,
}

impl Draft {
    fn of(candidate: &Move) -> Self {
        let (why, steps, edits, checks) = Default::default();
        Self { made: candidate.clone(), why, steps, edits, checks }
    }

    fn take_back(&mut self, step: StepId, edits: impl IntoIterator<Item = KeyEdit>) {
        self.steps.push(step);
        self.edits.extend(edits);
    }
}

impl Planner<'_> {
    fn again(&mut self, candidate: &Move, batch: usize) -> Result<Option<Replanned>, PlanError> {
        let found = self.index.service(candidate).filter(|service| service.uid == candidate.uid);
        let is_over = (self.state)(&candidate.step("retire")).is_some();
        let (Some(service), false) = (found, is_over) else { return Ok(None) };
        let Some(address) = service.address(self.work.family) else { return Ok(None) };
        let mut draft = Draft::of(candidate);
        if candidate.has_moved(self.state) {
            if address == candidate.new_address {
                lists_after(candidate, service, &mut draft);
                self.hold_after(candidate, service, &mut draft);
            }
        } else {
            self.old_address(candidate, address, &mut draft);
            // If the function `old_address` has not accepted the current address of the Service, the Service cannot move.
            if address != draft.made.old_address {
                return Ok(None);
            }
            lists_before(candidate, service, &mut draft);
            self.new_address(candidate, batch, &mut draft)?;
            self.hold(candidate, service, &mut draft);
            self.shadows(candidate, &mut draft)?;
            self.pin(candidate, service, &mut draft);
            if self.back && draft.steps.is_empty() {
                return Ok(None);
            }
        }
        Ok(self.replanned(candidate, service, draft))
    }

    fn replanned(&self, candidate: &Move, service: &ServiceRecord, draft: Draft) -> Option<Replanned> {
        if draft.why.is_empty() {
            return None;
        }
        let Draft { made, why, mut steps, edits, checks } = draft;
        // Steps that were skipped in the previous move are started again in the new move.
        let names = ["reserve", "prewarm", "date", "flip"].map(|name| candidate.step(name));
        let is_failed = |step: &StepId| (self.state)(step) == Some(State::Failed);
        steps.extend(names.into_iter().filter(|step| !self.back && is_failed(step)));
        let flip = Some(candidate.step("flip")).filter(|flip| !steps.contains(flip));
        let why = why.join("; ");
        let repair = Repair {
            subject: candidate.subject(),
            code: "planned-again",
            says: why.clone(),
            swap: Swap { edits, checks },
            steps: flip.into_iter().collect(),
            guards: vec![as_seen(service)],
        };
        Some(Replanned { made, why, steps, repair })
    }

    fn is_in_force(&self, step: &StepId) -> bool {
        (self.state)(step).is_some_and(State::is_in_force)
    }

    /// Changes the old address of the move if the Service had no address for a while and now has a different address.
    fn old_address(&self, candidate: &Move, address: IpAddr, draft: &mut Draft) {
        let is_left = self.work.is_left(address);
        let has_shadow = candidate.shadow.as_deref().is_some_and(|shadow| {
            shadow.names().into_iter().any(|name| self.index.named(candidate, name).is_some())
        });
        if address == candidate.old_address || !is_left || has_shadow {
            return;
        }
        let object = self.index.object(address);
        draft.made.old_address = address;
        draft.made.old_object_missing = self.work.era != Era::Bitmap && object.is_none();
        draft.made.old_object_created = object.and_then(|object| object.created);
        draft.why.push(format!("its address is now `{address}`"));
        let date = candidate.step("date");
        if self.is_in_force(&date) {
            draft.take_back(date, self.freed(candidate, candidate.old_address));
        }
    }

    /// Returns the edit that removes the IPAddress of one of the Service's addresses.
    fn freed(&self, candidate: &Move, address: IpAddr) -> Option<KeyEdit> {
        let object = self.index.own_object(candidate, address)?;
        Some(self.compiler.free(candidate, address, &object.parent.1, None))
    }

    /// Chooses the next free address if the planned new address was allocated to another Service.
    fn new_address(&mut self, candidate: &Move, batch: usize, draft: &mut Draft) -> Result<(), PlanError> {
        let Some(owner) = self.owner(candidate) else { return Ok(()) };
        let old_range = self.work.from.iter().copied().find(|range| range.contains(candidate.old_address));
        let rank = if candidate.turn == Turn::Kubernetes { Rank::First } else { Rank::Ordinary };
        let wanted = Wanted { old: candidate.old_address, old_range, rank, pin: None };
        let found = remap(&self.work.to, capacity(self.survey, &self.work.to), self.taken(), &[wanted])?;
        let Some(address) = found.first().copied() else { return Ok(()) };
        self.taken().insert(address);
        let before = candidate.new_address;
        draft.made.new_address = address;
        draft.made.new = renamed(&draft.made.old, draft.made.old_address, address);
        draft
            .why
            .push(format!("`{before}` was allocated to Service `{owner}`, so this Service gets `{address}`"));
        let reserve = candidate.step("reserve");
        if self.work.era != Era::Bitmap && self.is_in_force(&reserve) {
            draft.take_back(reserve, []);
        }
        // If the bits of the batch are not reserved yet, the step that reserves these bits will include this address. If the
        // RangeAllocation keeps its range, the step that reserves a planned address sets its bit.
        let has_bits = match candidate.sweep {
            0 => self.work.flag != self.work.flag_before,
            _ => self.is_in_force(&bits_step(batch)),
        };
        if self.work.era == Era::DualWrite && has_bits {
            draft.edits.push(self.compiler.set_bit_if_new(address));
        }
        Ok(())
    }

    /// Returns the other Service that now owns the planned new address, as `namespace/name`.
    fn owner(&self, candidate: &Move) -> Option<String> {
        let address = candidate.new_address;
        let warm = candidate.shadow.as_deref().and_then(|it| self.index.named(candidate, &it.warm_name));
        if warm.is_some_and(|warm| warm.addresses.contains(&address)) {
            return None;
        }
        if let Some(other) = self.index.other_owner(candidate, address) {
            return Some(other.subject());
        }
        let object = self.index.object(address)?;
        let is_own = self.index.own_object(candidate, address).is_some();
        (!is_own).then(|| format!("{}/{}", object.parent.0, object.parent.1))
    }

    fn taken(&mut self) -> &mut HashSet<IpAddr> {
        let (work, survey) = (self.work, self.survey);
        self.taken.get_or_insert_with(|| {
            let shadows = work.moves.iter().filter_map(|planned| planned.shadow.as_deref());
            let mut taken = in_use(survey, &work.to);
            taken.extend(work.moves.iter().map(|planned| planned.new_address));
            taken.extend(shadows.flat_map(|shadow| shadow.temporary));
            taken
        })
    }

    /// Chooses the hold again. The hold stays an external IP if the Service still supports external IPs.
    fn hold(&self, candidate: &Move, service: &ServiceRecord, draft: &mut Draft) {
        if candidate.hold != Hold::ExternalIp {
            return;
        }
        let (new, prewarm) = (candidate.new_address, candidate.step("prewarm"));
        let is_prewarmed = self.is_in_force(&prewarm);
        let is_listed = service.has_external_ip(new);
        let is_routed = is_listed && service.spec.external_traffic_policy.as_deref() == Some("Local");
        if self.back {
            // A Service that has moved back still routes its new address, for clients that cached the address. So for such a
            // Service, the external IP is changed here only if the undo of `prewarm` has failed.
            let is_moved_back = (self.state)(&candidate.step("flip")) == Some(State::UndoDone);
            let is_time = !is_moved_back || (self.state)(&prewarm) == Some(State::UndoFailed);
            let is_as_prewarmed =
                is_routed && service.kind() == "ClusterIP" && service.spec.external_ips.len() == 1;
            if is_prewarmed && is_time && !is_as_prewarmed {
                draft.why.push(format!("another client changed the external IP `{new}`"));
                let edit = is_listed.then(|| self.compiler.route_no_more(candidate, service, &[new]));
                draft.take_back(prewarm, edit);
            }
            return;
        }
        let own = without_ours(candidate, service, is_prewarmed);
        match choose(&own, None, self.work.shadows_only.then_some(AS_PLANNED)) {
            Choice::Hold(Hold::Shadow, reason) | Choice::Refuse(reason) => {
                let shadow = make_shadow(&own, self.work.family, draft.made.new_address);
                draft.made.hold = Hold::Shadow;
                draft.made.hold_reason = reason.into();
                draft.made.shadow = Some(Box::new(shadow));
                draft.why.push(format!("a shadow Service holds its old address: {reason}"));
            }
            Choice::Hold(Hold::ExternalIp, _) => {
                if own.spec.external_traffic_policy != candidate.traffic_policy {
                    draft.made.traffic_policy = own.spec.external_traffic_policy;
                    draft.why.push("its `externalTrafficPolicy` changed".to_string());
                }
                if is_prewarmed && !is_routed {
                    draft.why.push(format!("another client changed the external IP `{new}`"));
                }
            }
        }
        let made = &draft.made;
        let fits = is_routed
            && (made.hold, made.new_address, &made.traffic_policy)
                == (candidate.hold, new, &candidate.traffic_policy);
        if is_prewarmed && !fits {
            let edit = is_listed.then(|| self.compiler.route_no_more(candidate, service, &[new]));
            draft.take_back(prewarm, edit);
        }
    }

    /// In a rollback: undoes the flip with another edit if the owner has changed the external IPs that hold the old address.
    fn hold_after(&self, candidate: &Move, service: &ServiceRecord, draft: &mut Draft) {
        if !self.back || candidate.hold != Hold::ExternalIp || holds_as_it_did(candidate, service) {
            return;
        }
        draft.why.push("its external IPs changed after its move".to_string());
        let edit = self.compiler.flip_back(&draft.made, service);
        draft.take_back(candidate.step("flip"), [edit]);
        if self.work.era != Era::Bitmap {
            draft.checks.extend(self.compiler.addresses_are_ours(candidate));
        }
    }

    /// Plans deleted shadows again, and replaces a temporary address that now belongs to another Service.
    fn shadows(&mut self, candidate: &Move, draft: &mut Draft) -> Result<(), PlanError> {
        let Some(shadow) = draft.made.shadow.clone() else { return Ok(()) };
        let is_new = candidate.shadow.is_none();
        let names = shadow.names();
        let mut temporary = shadow.temporary;
        for (name, address) in names.into_iter().zip(&mut temporary) {
            // An existing shadow no longer needs its temporary address.
            if self.index.named(candidate, name).is_some() {
                continue;
            }
            let steps = ["make-shadow", "give-address"];
            let steps = steps.map(|step| StepId(format!("{step}/{}/{name}", candidate.namespace)));
            let has_yet_to_get_it = !self.back && (self.state)(&steps[1]) != Some(State::UndoDone);
            let is_lost = self.is_in_force(&steps[1]) || (has_yet_to_get_it && self.is_in_force(&steps[0]));
            if is_lost {
                draft.why.push(format!("its shadow Service `{name}` was deleted"));
                draft.edits.extend(self.released_with(candidate, name));
                draft.steps.extend(steps.into_iter().filter(|step| self.is_in_force(step)));
            }
            // Shadows of several batches use the same temporary address, one batch after the other.
            let is_others = |owner: &ServiceRecord| !self.shadows.contains(&owner.key);
            let is_taken = self.index.other_owner(candidate, *address).is_some_and(is_others);
            if is_taken && !is_new {
                draft.why.push(format!("another Service has `{address}`, a temporary address of its shadow"));
            }
            if is_new || is_taken || is_lost {
                let range = capacity(self.survey, &self.work.to);
                let spare = spare_addresses(self.taken().clone(), self.work, range).next();
                *address = spare.ok_or(PlanError::NoRoomForShadows { needed: 1, free: 0 })?;
                self.taken().insert(*address);
            }
        }
        draft.made.shadow = Some(Box::new(Shadow { temporary, ..*shadow }));
        Ok(())
    }

    /// Plans the step that adds the finalizer again, if the finalizer was removed. A finalizer is removed if steps were skipped,
    /// or if a client replaced the Service.
    fn pin(&self, candidate: &Move, service: &ServiceRecord, draft: &mut Draft) {
        let pin = candidate.step("pin");
        if !self.back && self.is_in_force(&pin) && !service.is_moving() {
            draft.why.push("its finalizer was removed".to_string());
            draft.steps.push(pin);
        }
    }

    /// Returns the edit that recreates the IPAddress of the old address after the shadow that holds this address was deleted
    /// through the API. This deletion releases the address. Without this edit, an API server would recreate the IPAddress later.
    /// The IPAddress of the new address is repaired with all other kept IPAddresses.
    fn released_with(&self, candidate: &Move, shadow: &str) -> Option<KeyEdit> {
        let is_held = candidate.shadow.as_ref().is_some_and(|it| it.hold_name == shadow);
        let old = candidate.old_address;
        let is_missing = self.work.era != Era::Bitmap
            && !candidate.old_object_missing
            && self.index.object(old).is_none()
            && self.index.service(candidate).is_some_and(|service| service.addresses.contains(&old));
        (is_held && is_missing).then(|| self.compiler.allocate_again(candidate, old))
    }
}

/// Returns the Service without the fields that the operation added.
fn without_ours(candidate: &Move, service: &ServiceRecord, is_prewarmed: bool) -> ServiceRecord {
    let mut own = service.clone();
    if !is_prewarmed {
        return own;
    }
    own.spec.external_ips.retain(|text| text.parse() != Ok(candidate.new_address));
    // A ClusterIP Service without external IPs has no traffic policy of its own.
    if own.kind() == "ClusterIP" && own.spec.external_ips.is_empty() {
        own.spec.external_traffic_policy.clone_from(&candidate.traffic_policy);
    }
    own
}

fn families(list: &[Text]) -> Vec<Family> {
    list.iter().filter_map(|text| text.parse().ok()).map(Family::of).collect()
}

/// Updates the address lists of a move before its flip, if the Service got or lost an address of another family.
fn lists_before(candidate: &Move, service: &ServiceRecord, draft: &mut Draft) {
    let list = service.listed();
    let without_list = service.spec.cluster_ips.is_empty();
    if list == candidate.old && without_list == candidate.without_list {
        return;
    }
    if families(&list) != families(&candidate.old) {
        draft.why.push(format!("its addresses are now {}", list.join(", ")));
    } else if draft.why.is_empty() {
        draft.why.push("its `clusterIPs` changed".to_string());
    }
    draft.made.without_list = without_list;
    draft.made.new = renamed(&list, draft.made.old_address, draft.made.new_address);
    draft.made.old = list;
}

/// If a Service gained or lost an address of another family after its flip, updates the address lists of the move, so that a
/// rollback uses the current lists.
fn lists_after(candidate: &Move, service: &ServiceRecord, draft: &mut Draft) {
    let list = service.listed();
    if list == candidate.new {
        return;
    }
    draft.why.push(format!("its addresses are now {}", list.join(", ")));
    draft.made.without_list = false;
    draft.made.old = renamed(&list, candidate.new_address, candidate.old_address);
    draft.made.new = list;
}

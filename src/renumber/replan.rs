//! Services that changed after they were planned: their moves are planned again, as the Services are now.
//!
//! What was done for the move before and does not fit the new one is taken back first, and its steps count as never
//! begun. Everything else stays: the batch, and the addresses wherever they can.

use std::collections::HashSet;
use std::net::IpAddr;

use compact_str::format_compact;

use super::hold::{Choice, Hold, choose};
use super::index::{Index, as_seen};
use super::intention::{Move, Renumbering, Shadow, Turn};
use super::plan::{PlanError, capacity, in_use, make_shadow, spare_addresses};
use super::steps::Compiler;
use super::sweep::AS_PLANNED;
use crate::ip::Family;
use crate::ip::remap::{Rank, Wanted, remap};
use crate::operation::{KeyEdit, Mend, State, StepId, Swap};
use crate::store::Key;
use crate::survey::{Era, Layout, ServiceRecord, Survey};
use crate::wire::Text;

/// A move that was planned again.
#[derive(Debug, Clone, PartialEq)]
pub struct Replanned {
    /// The move as it is planned now.
    pub made: Move,
    /// Why it was planned again.
    pub why: String,
    /// The steps of the move before that count as never begun.
    pub steps: Vec<StepId>,
    /// What takes back what they did.
    pub mend: Mend,
}

/// Compares the moves that are not retired yet with a survey, and plans again those whose Services have changed in a way
/// that matters; `state` tells the state of a step. Changes nothing.
///
/// A Service that was deleted, or has no address of the family any more, is none of them.
///
/// # Errors
/// [`PlanError`] if the new range has no free address for one that another Service has taken.
pub fn replan(
    work: &Renumbering,
    survey: &Survey,
    state: impl Fn(&StepId) -> Option<State>,
) -> Result<Vec<Replanned>, PlanError> {
    let layout = Layout::new(&work.prefix);
    let others = survey.services.iter().filter(|service| !service.is_sentinel());
    let external = others.flat_map(|service| {
        let listed = service.spec.external_ips.iter();
        listed.filter_map(move |text| Some((text.parse::<IpAddr>().ok()?, service.uid.as_str())))
    });
    let external: HashSet<(IpAddr, &str)> =
        external.filter(|(address, _)| work.to.contains(*address)).collect();
    let lists: HashSet<IpAddr> = external.iter().map(|(address, _)| *address).collect();
    let mut planner = Planner {
        work,
        survey,
        compiler: Compiler { work, layout: &layout },
        index: Index::of(survey),
        shadows: work.shadows().map(|(namespace, name)| layout.service(namespace, name)).collect(),
        lists,
        external,
        taken: None,
    };
    let mut all = Vec::new();
    for candidate in &work.moves {
        if state(&candidate.step("retire")).is_none() {
            all.extend(planner.again(candidate, &|step: &str| state(&candidate.step(step)))?);
        }
    }
    Ok(all)
}

struct Planner<'a> {
    work: &'a Renumbering,
    survey: &'a Survey,
    compiler: Compiler<'a>,
    index: Index<'a>,
    /// The keys of all shadows of the plan.
    shadows: HashSet<Key>,
    /// The external IPs of the new range, and with them the uids of the Services that list them.
    lists: HashSet<IpAddr>,
    external: HashSet<(IpAddr, &'a str)>,
    /// The addresses of the new range that nothing else may get; computed once it is needed.
    taken: Option<HashSet<IpAddr>>,
}

/// How a step of the move stands.
type StateOf<'s> = dyn Fn(&str) -> Option<State> + 's;

fn is_in_force(state: &StateOf<'_>, step: &str) -> bool {
    state(step).is_some_and(State::is_in_force)
}

/// A move that is being planned again.
struct Draft {
    made: Move,
    why: Vec<String>,
    steps: Vec<StepId>,
    edits: Vec<KeyEdit>,
}

impl Draft {
    fn take_back(&mut self, candidate: &Move, step: &str, edits: impl IntoIterator<Item = KeyEdit>) {
        self.steps.push(candidate.step(step));
        self.edits.extend(edits);
    }
}

impl Planner<'_> {
    fn again(&mut self, candidate: &Move, state: &StateOf<'_>) -> Result<Option<Replanned>, PlanError> {
        let Some(service) = self.index.service(candidate).filter(|service| service.uid == candidate.uid)
        else {
            return Ok(None);
        };
        let Some(address) = service.address(self.work.family) else { return Ok(None) };
        let mut draft =
            Draft { made: candidate.clone(), why: Vec::new(), steps: Vec::new(), edits: Vec::new() };
        if is_in_force(state, "flip") {
            if address == candidate.new_address {
                lists_after(candidate, service, &mut draft);
            }
        } else if address != candidate.new_address {
            self.old_address(candidate, address, state, &mut draft);
            lists_before(candidate, service, &mut draft);
            self.new_address(candidate, state, &mut draft)?;
            self.hold(candidate, service, state, &mut draft);
            self.temporaries(candidate, &mut draft)?;
        }
        if draft.why.is_empty() {
            return Ok(None);
        }
        let why = draft.why.join("; ");
        let mend = Mend {
            subject: candidate.subject(),
            code: "planned-again",
            says: why.clone(),
            swap: Swap { edits: draft.edits, checks: Vec::new() },
            steps: vec![candidate.step("flip")],
            guards: vec![as_seen(service)],
        };
        Ok(Some(Replanned { made: draft.made, why, steps: draft.steps, mend }))
    }

    /// A Service that was without an address for a while has another one.
    fn old_address(&self, candidate: &Move, address: IpAddr, state: &StateOf<'_>, draft: &mut Draft) {
        let is_left = self.work.from.iter().any(|range| range.contains(address));
        if address == candidate.old_address || !is_left || candidate.shadow.is_some() {
            return;
        }
        let object = self.index.object(address);
        draft.made.old_address = address;
        draft.made.old_object_missing = self.work.era != Era::Bitmap && object.is_none();
        draft.made.old_object_created = object.and_then(|object| object.created);
        draft.why.push(format!("its address is `{address}` now"));
        if is_in_force(state, "date") {
            let object = self.index.own_object(candidate, candidate.old_address);
            let free =
                object.map(|object| self.compiler.free(candidate, candidate.old_address, &object.parent.1));
            draft.take_back(candidate, "date", free);
        }
    }

    /// The address that it is to get is another Service's by now: it gets the next free one.
    fn new_address(
        &mut self,
        candidate: &Move,
        state: &StateOf<'_>,
        draft: &mut Draft,
    ) -> Result<(), PlanError> {
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
        draft.why.push(format!("`{before}` was allocated to {owner}: it gets `{address}`"));
        if self.work.era != Era::Bitmap && is_in_force(state, "reserve") {
            draft.take_back(candidate, "reserve", []);
        }
        if self.work.era == Era::DualWrite {
            let bits = self.compiler.bits(vec![self.compiler.bit(address)], Vec::new());
            draft.edits.extend(self.compiler.if_of_the_new_range(bits));
        }
        Ok(())
    }

    /// Who has the address that a Service is to get.
    fn owner(&self, candidate: &Move) -> Option<String> {
        let address = candidate.new_address;
        if let Some(other) = self.index.other_owner(candidate, address) {
            return Some(format!("Service `{}`", other.subject()));
        }
        let object =
            self.index.object(address).filter(|_| self.index.own_object(candidate, address).is_none());
        if let Some(object) = object {
            return Some(format!("Service `{}/{}`", object.parent.0, object.parent.1));
        }
        let is_listed = self.lists.contains(&address)
            && self.external.iter().any(|(listed, uid)| *listed == address && *uid != candidate.uid);
        is_listed.then(|| "another Service as an external IP".to_string())
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

    /// What holds its addresses: an external IP where that still can.
    fn hold(&self, candidate: &Move, service: &ServiceRecord, state: &StateOf<'_>, draft: &mut Draft) {
        if candidate.hold != Hold::ExternalIp {
            return;
        }
        let new = candidate.new_address;
        let is_prewarmed = is_in_force(state, "prewarm");
        let is_listed = service.spec.external_ips.iter().any(|text| text.parse() == Ok(new));
        let is_routed = is_listed && service.spec.external_traffic_policy.as_deref() == Some("Local");
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
                    draft.why.push("its `externalTrafficPolicy` has changed".to_string());
                }
                if is_prewarmed && !is_routed {
                    draft.why.push(format!("another client has removed the external IP `{new}`"));
                }
            }
        }
        let made = &draft.made;
        let fits = is_routed
            && (made.hold, made.new_address, &made.traffic_policy)
                == (candidate.hold, new, &candidate.traffic_policy);
        if is_prewarmed && !fits {
            let edit = is_listed.then(|| self.compiler.route_no_more(candidate, service, &[new]));
            draft.take_back(candidate, "prewarm", edit);
        }
    }

    /// The addresses under which its shadows are created: others than before, where another Service has one of them.
    fn temporaries(&mut self, candidate: &Move, draft: &mut Draft) -> Result<(), PlanError> {
        let Some(shadow) = draft.made.shadow.clone() else { return Ok(()) };
        let is_new = candidate.shadow.is_none();
        let names = [&shadow.hold_name, &shadow.warm_name];
        let mut temporary = shadow.temporary;
        for (name, address) in names.into_iter().zip(&mut temporary) {
            // One that was created has had its address.
            let is_made = self.index.named(candidate, name).is_some();
            // Shadows of other batches are created under the same one after the other.
            let is_others = |owner: &ServiceRecord| !self.shadows.contains(&owner.key);
            let is_taken = !is_made && self.index.other_owner(candidate, *address).is_some_and(is_others);
            if is_new || is_taken {
                let range = capacity(self.survey, &self.work.to);
                let spare = spare_addresses(self.taken().clone(), self.work, range).next();
                *address = spare.ok_or(PlanError::NoRoomForShadows { needed: 1, free: 0 })?;
                self.taken().insert(*address);
            }
        }
        if !is_new && temporary != shadow.temporary {
            draft.why.push("another Service has the temporary address of its shadow".to_string());
        }
        draft.made.shadow = Some(Box::new(Shadow { temporary, ..*shadow }));
        Ok(())
    }
}

/// A Service as it would be without what the operation has added to it.
fn without_ours(candidate: &Move, service: &ServiceRecord, is_prewarmed: bool) -> ServiceRecord {
    let mut own = service.clone();
    if !is_prewarmed {
        return own;
    }
    own.spec.external_ips.retain(|text| text.parse() != Ok(candidate.new_address));
    if own.kind() == "ClusterIP"
        && own.spec.external_ips.is_empty()
        && own.spec.external_traffic_policy.as_deref() == Some("Local")
    {
        own.spec.external_traffic_policy.clone_from(&candidate.traffic_policy);
    }
    own
}

fn listed(service: &ServiceRecord) -> Vec<Text> {
    match service.spec.cluster_ips.as_slice() {
        [] => service.spec.cluster_ip.iter().cloned().collect(),
        list => list.to_vec(),
    }
}

fn renamed(list: &[Text], from: IpAddr, to: IpAddr) -> Vec<Text> {
    let other = |text: &Text| if text.parse() == Ok(from) { format_compact!("{to}") } else { text.clone() };
    list.iter().map(other).collect()
}

fn families(list: &[Text]) -> Vec<Family> {
    list.iter().filter_map(|text| text.parse().ok()).map(Family::of).collect()
}

/// Before its flip: another address beside, or one fewer.
fn lists_before(candidate: &Move, service: &ServiceRecord, draft: &mut Draft) {
    let list = listed(service);
    let without_list = service.spec.cluster_ips.is_empty();
    if list == candidate.old && without_list == candidate.without_list {
        return;
    }
    if families(&list) != families(&candidate.old) {
        draft.why.push(format!("its addresses are {} now", list.join(", ")));
    } else if draft.why.is_empty() {
        draft.why.push("its `clusterIPs` have changed".to_string());
    }
    draft.made.without_list = without_list;
    draft.made.new = renamed(&list, draft.made.old_address, draft.made.new_address);
    draft.made.old = list;
}

/// After its flip: the same, for its way back.
fn lists_after(candidate: &Move, service: &ServiceRecord, draft: &mut Draft) {
    let list = listed(service);
    if list == candidate.new {
        return;
    }
    draft.why.push(format!("its addresses are {} now", list.join(", ")));
    draft.made.without_list = false;
    draft.made.old = renamed(&list, candidate.new_address, candidate.old_address);
    draft.made.new = list;
}

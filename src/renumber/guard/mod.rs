//! The repairs of the guard, which runs during the soak. Clients can remove a hold by accident when they replace, delete or
//! recreate an object, and these repairs restore the hold. The repairs are computed only from the plan, a survey and the states
//! of the steps; [`crate::operation::repair`] executes them.
//!
//! The guard respects changes by the owner of a Service. A Service that now has external IPs of its own, or another type, is
//! reported and not changed. A deleted Service loses its hold, so that its owner can recreate the Service at any address. The
//! guard changes only objects that netsurgeon created, the IPAddress objects of the old and new addresses, bits of the
//! RangeAllocation, and the two fields by which a Service holds its old address.

mod abandoned_moves;
mod lost_services;
mod shadow_updates;

use std::net::IpAddr;

pub use abandoned_moves::{deserted, left_over};
use lost_services::Settled;
pub use lost_services::given_up;
pub(super) use shadow_updates::behind;
use shadow_updates::copies;
pub use shadow_updates::{Follow, Followed};

use super::creation_times::kept;
use super::hold::{Choice, Hold, choose};
use super::index::{Index, as_seen, is_own};
use super::intention::{Move, Renumbering, Shadow};
use super::plan::shadow_spec;
use super::steps::{Compiler, is_past_no_return, no_return};
use crate::ip::Family;
use crate::operation::{KeyEdit, Repair, State, StepId, Swap};
use crate::store::Guard;
use crate::survey::{Era, Finding, Layout, ServiceRecord, Survey};
use crate::wire::Value;

/// The codes of the repairs that [`watch`] returns.
pub const REPAIRS: &[&str] =
    &["address-kept", "hold-put-back", "hold-by-name", "hold-given-up", "shadow-put-back", "shadow-follows"];

/// Maximum number of seconds that the clock of an API server may be ahead of this host's clock. The creation timestamps of kept
/// objects are weeks in the future.
const CLOCKS_DIFFER: i64 = 60 * 60;

/// The result of a check by the guard: repairs and findings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Watched {
    /// Number of Services whose old address must be held.
    pub held: usize,
    /// Repairs of holds and of IPAddress objects.
    pub repairs: Vec<Repair>,
    /// Shadows to change through the API.
    pub follows: Vec<Follow>,
    /// Shadows that have copies of their Service's endpoints. The caller must compare the endpoints.
    pub copies: Vec<Follow>,
    /// Findings that the operator must check.
    pub findings: Vec<Finding>,
}

/// Checks every Service whose old address must be held, and the IPAddress objects that are kept. `state` returns the state of a
/// step; `now` is in seconds since 1970.
///
/// During a rollback, a hold is kept until its Service has moved back. Past the point of no return, the guard repairs nothing.
pub fn watch(
    work: &Renumbering,
    survey: &Survey,
    state: impl Fn(&StepId) -> Option<State>,
    now: i64,
) -> Watched {
    let mut watched = Watched::default();
    if is_past_no_return(&state) {
        return watched;
    }
    let (wrong, taken) = kept(work, survey, &state, now);
    watched.repairs.extend(wrong.into_iter().map(|kept| kept.repair));
    watched.findings.extend(taken.into_iter().map(|taken| {
        Finding::error("kept-address-taken", format!("Service {}", taken.whose)).says(taken.to_string())
    }));
    let layout = Layout::new(&work.prefix);
    let guard = Watch::of(work, &layout, survey, now);
    for candidate in &work.moves {
        let is_moved = candidate.has_moved(&state);
        if !is_moved {
            // Without the finalizer, a deletion of the Service releases addresses that its shadows may still have.
            watched.repairs.extend(guard.deserted(candidate, is_the_planned));
        }
        if !is_moved || state(&candidate.step("retire")).is_some() {
            continue;
        }
        watched.held = watched.held.saturating_add(1);
        watched.copies.extend(copies(candidate, guard.index.service(candidate)));
        match guard.look(candidate) {
            Seen::Fine => {}
            Seen::Repair(repair) => watched.repairs.push(*repair),
            Seen::Follow(follow) => watched.follows.push(*follow),
            Seen::Wrong(finding) => watched.findings.push(*finding),
        }
    }
    watched
}

/// Returns the repairs that retire the old addresses of deleted or recreated Services, each with the planned steps that the
/// repair replaces. `now` is in seconds since 1970.
pub fn strays(
    work: &Renumbering,
    survey: &Survey,
    state: impl Fn(&StepId) -> Option<State>,
    now: i64,
) -> Vec<(Vec<StepId>, Repair)> {
    let layout = Layout::new(&work.prefix);
    let guard = Watch::of(work, &layout, survey, now);
    let mut strays = Vec::new();
    for candidate in &work.moves {
        let retire = candidate.step("retire");
        if state(&retire) == Some(State::Done) {
            continue;
        }
        let is_flipped = state(&candidate.step("flip")) == Some(State::Done);
        let stray = if is_flipped { guard.stray(candidate) } else { guard.never_moved(candidate) };
        strays.extend(stray.map(|settled| match settled {
            Settled::Shadow(repair) => (Vec::new(), repair),
            Settled::Rest(repair) => (vec![retire], repair),
        }));
    }
    strays
}

enum Seen {
    Fine,
    Repair(Box<Repair>),
    Follow(Box<Follow>),
    Wrong(Box<Finding>),
}

/// Inputs of a check by the guard.
struct Watch<'a> {
    compiler: Compiler<'a>,
    index: Index<'a>,
    now: i64,
}

/// The owner of the IPAddress of an old address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// The IPAddress does not exist.
    Nobody,
    /// The Service, or one of its shadows, because a repair loop may have recreated the IPAddress for a shadow.
    Own,
    Other,
}

impl<'a> Watch<'a> {
    fn of(work: &'a Renumbering, layout: &'a Layout, survey: &'a Survey, now: i64) -> Self {
        Self { compiler: Compiler { work, layout }, index: Index::of(survey), now }
    }

    fn with_objects(&self) -> bool {
        self.compiler.work.era != Era::Bitmap
    }

    /// Returns the precondition that the Service is unchanged since it was read. If the Service was missing, it must still be
    /// missing.
    fn as_it_was(&self, candidate: &Move) -> Guard {
        let gone = || Guard::Absent(self.compiler.layout.service(&candidate.namespace, &candidate.name));
        self.index.service(candidate).map_or_else(gone, as_seen)
    }

    fn look(&self, candidate: &Move) -> Seen {
        let found = self.index.service(candidate);
        let Some(service) = found else { return self.gone(candidate, None) };
        let family = self.compiler.work.family;
        let Some(address) = service.address(family).filter(|_| service.kind() != "ExternalName") else {
            return self.gone(candidate, Some(service));
        };
        let same = service.uid == candidate.uid;
        if address == candidate.old_address {
            let says = if same { "has its old address again" } else { "was recreated with its old address" };
            return wrong(
                Finding::error("held-service-at-old-address", about(candidate)),
                format!(
                    "{says} `{address}`: delete the Service and recreate it without an address, before `retire`"
                ),
            );
        }
        if same && address != candidate.new_address {
            return wrong(
                Finding::error("moved-service-elsewhere", about(candidate)),
                format!("has `{address}`, which is neither its old nor its new address"),
            );
        }
        match &candidate.shadow {
            None => self.held_by_itself(candidate, service),
            Some(shadow) => self.held_by_shadow(candidate, shadow, service),
        }
    }

    fn holder(&self, candidate: &Move) -> Holder {
        match self.index.object(candidate.old_address) {
            None => Holder::Nobody,
            Some(object) if is_own(candidate, object) => Holder::Own,
            Some(_) => Holder::Other,
        }
    }

    /// Returns the edit that removes the IPAddress of one of the Service's addresses, if the creation timestamp of the IPAddress
    /// is in the future, or if the IPAddress belongs to a shadow. Any other IPAddress may belong to a Service that an API server
    /// is creating now (`beginCreate`, `pkg/registry/core/service/storage/storage.go`, v1.36.3). The repair loop of the API
    /// server removes an IPAddress that belongs to no Service.
    fn freed(&self, candidate: &Move, address: IpAddr) -> Option<KeyEdit> {
        let object = self.index.own_object(candidate, address)?;
        let ahead = self.now.saturating_add(CLOCKS_DIFFER);
        let kept = object.created.filter(|created| *created > ahead);
        let parent = &object.parent.1;
        (kept.is_some() || candidate.has_shadow(parent))
            .then(|| self.compiler.free(candidate, address, parent, kept))
    }

    /// Returns the edits that remove the IPAddresses of some addresses, in the same way as `freed`. Under dual write, the edits also
    /// free the bits of these addresses, if the present range of the RangeAllocation has them.
    fn all_freed(&self, candidate: &Move, addresses: impl IntoIterator<Item = IpAddr>) -> Vec<KeyEdit> {
        let (mut edits, mut freed) = (Vec::new(), Vec::new());
        for address in addresses {
            if let Some(edit) = self.freed(candidate, address) {
                edits.push(edit);
                freed.push(address);
            }
        }
        edits.extend(self.compiler.free_bits_now(&freed));
        edits
    }

    fn held_by_itself(&self, candidate: &Move, service: &ServiceRecord) -> Seen {
        let old = candidate.old_address;
        let mut edits = Vec::new();
        let mut done = Vec::new();
        let listed = &service.spec.external_ips;
        let holds = service.has_external_ip(candidate.old_address);
        let policy = service.spec.external_traffic_policy.as_deref();
        if !holds || policy != Some("Local") {
            if let Some(reason) = cannot_hold(service, holds) {
                let about = about(candidate);
                return if holds {
                    let finding = Finding::warning("hold-masquerades", about);
                    wrong(
                        finding,
                        format!("is held at `{old}` without `externalTrafficPolicy: Local`: {reason}"),
                    )
                } else {
                    let finding = Finding::error("hold-missing", about);
                    wrong(finding, format!("no longer answers at its old address `{old}`: {reason}"))
                };
            }
            edits.push(self.compiler.hold_again(candidate, &service.uid, (Value::texts(listed), policy)));
            done.push(format!("holds `{old}` again"));
        }
        if edits.is_empty() && !holds_as_it_did(candidate, service) {
            return wrong(Finding::info("hold-changed", about(candidate)), changed(candidate));
        }
        match self.holder(candidate) {
            // A missing IPAddress is recreated by `kept`, like the IPAddress of any other kept address.
            _ if !self.with_objects() => {}
            Holder::Own | Holder::Nobody => {}
            Holder::Other => return taken(candidate),
        }
        let code = if service.uid == candidate.uid { "hold-put-back" } else { "hold-by-name" };
        repair(candidate, code, &done, edits, vec![as_seen(service)])
    }

    fn held_by_shadow(&self, candidate: &Move, shadow: &Shadow, service: &ServiceRecord) -> Seen {
        let old = candidate.old_address;
        let stands_in = self.index.named(candidate, &shadow.hold_name);
        let family = self.compiler.work.family;
        let wanted = shadow_spec(service, family);
        match stands_in {
            Some(found) if !found.addresses.contains(&old) => wrong(
                Finding::error("hold-missing", about(candidate)),
                format!("the shadow Service `{}` does not have the old address `{old}`", found.name),
            ),
            // The API server's repair loop repairs an IPAddress that a Service lists.
            Some(found) => behind(candidate, service, found, family)
                .map_or(Seen::Fine, |follow| Seen::Follow(Box::new(follow))),
            None => {
                let made = Shadow { spec: wanted, ..shadow.clone() };
                if self.holder(candidate) == Holder::Other {
                    return taken(candidate);
                }
                // If the API server released the IPAddress with the shadow, `kept` recreates the IPAddress.
                let mut edits = vec![self.compiler.shadow_again(candidate, &made)];
                // Without IPAddress objects, an API server can give the address to another Service, if the new range has it, too.
                if !self.with_objects() && self.compiler.work.accepts(old) {
                    if self.index.other_owner(candidate, old).is_some() {
                        return taken(candidate);
                    }
                    edits.push(self.compiler.take_bit(old));
                }
                let done = format!("the shadow `{}` holds `{old}` again", shadow.hold_name);
                repair(candidate, "shadow-put-back", &[done], edits, vec![as_seen(service)])
            }
        }
    }

    /// Returns the repair for a Service that the planned `retire` step cannot retire; `None` if the planned step can retire it.
    fn stray(&self, candidate: &Move) -> Option<Settled> {
        let found = self.index.service(candidate);
        let is_as_held = |service: &ServiceRecord| match candidate.shadow {
            Some(_) => true,
            None => holds_as_it_did(candidate, service),
        };
        if found.is_some_and(|service| is_the_planned(candidate, service) && is_as_held(service)) {
            return None;
        }
        if let Some(shadow) = self.shadow_given_up(candidate) {
            return Some(Settled::Shadow(shadow));
        }
        let mut edits = self.all_freed(candidate, [candidate.old_address]);
        let left = found.and_then(|service| {
            self.let_go(candidate, service).or_else(|| self.with_its_own_policy(candidate, service))
        });
        edits.extend(left);
        let says = format!("`{}` is no longer held", candidate.old_address);
        Some(Settled::Rest(self.retired(candidate, says, edits)))
    }

    /// Returns the edit that removes the external IPs of a hold from a recreated Service, or from a Service that its owner has
    /// changed. A recreated Service holds the old address because it has the planned name. For a Service with shadows, the edit
    /// removes the finalizer instead.
    fn let_go(&self, candidate: &Move, service: &ServiceRecord) -> Option<KeyEdit> {
        if candidate.shadow.is_some() {
            return (service.uid == candidate.uid).then(|| self.compiler.pinned(candidate, false));
        }
        let is_held =
            service.has_external_ip(candidate.old_address) || service.has_external_ip(candidate.new_address);
        let addresses = [candidate.old_address, candidate.new_address];
        is_held.then(|| self.compiler.route_no_more(candidate, service, &addresses))
    }

    /// Returns the edit that restores the traffic policy of a Service after its owner has replaced the external IP that held the
    /// old address.
    fn with_its_own_policy(&self, candidate: &Move, service: &ServiceRecord) -> Option<KeyEdit> {
        let has_ours = candidate.shadow.is_none()
            && service.uid == candidate.uid
            && service.kind() == "ClusterIP"
            && !service.spec.external_ips.is_empty()
            && service.spec.external_traffic_policy.as_deref() == Some("Local");
        has_ours.then(|| self.compiler.route_no_more(candidate, service, &[]))
    }

    fn retired(&self, candidate: &Move, says: String, edits: Vec<KeyEdit>) -> Repair {
        Repair {
            subject: candidate.subject(),
            code: "retired-stray",
            says,
            swap: Swap { edits, checks: Vec::new() },
            steps: vec![candidate.step("flip")],
            guards: vec![self.as_it_was(candidate)],
        }
    }

    /// Returns the repair that frees the new address of a Service that was deleted or recreated before it moved.
    fn never_moved(&self, candidate: &Move) -> Option<Settled> {
        let found = self.index.service(candidate);
        if found.is_some_and(|service| is_the_planned(candidate, service)) {
            return None;
        }
        if let Some(shadow) = self.shadow_given_up(candidate) {
            return Some(Settled::Shadow(shadow));
        }
        let new = candidate.new_address;
        // A Service that was recreated with one of the addresses keeps that address.
        let is_its = |address: &IpAddr| found.is_some_and(|service| service.addresses.contains(address));
        let addresses = [new, candidate.old_address];
        let mut edits = self.all_freed(candidate, addresses.into_iter().filter(|address| !is_its(address)));
        edits.extend(found.and_then(|service| self.let_go(candidate, service)));
        Some(Settled::Rest(self.retired(candidate, format!("`{new}` is no longer reserved"), edits)))
    }

    /// Returns the repair for a Service that was deleted or no longer has an address. The repair first removes the Service's
    /// shadows, one at a time. Then it removes the IPAddress of the old address.
    fn gone(&self, candidate: &Move, found: Option<&ServiceRecord>) -> Seen {
        let what = if found.is_some() { "no longer has an address" } else { "was deleted" };
        let (shadow, edits) = self.first_shadow(candidate).unzip();
        let done = match shadow {
            Some(shadow) => format!("{what}; its shadow `{shadow}` was removed"),
            None => format!("{what}; `{}` is no longer held", candidate.old_address),
        };
        let mut edits = edits.unwrap_or_default();
        // With two or more edits, this repair also frees a temporary address. Then a later repair frees the old address.
        if edits.len() <= 1 {
            edits.extend(self.all_freed(candidate, [candidate.old_address]));
        }
        repair(candidate, "hold-given-up", &[done], edits, vec![self.as_it_was(candidate)])
    }
}

/// Returns why a Service cannot hold its old address by an external IP; `None` if the Service can hold its old address.
fn cannot_hold(service: &ServiceRecord, holds: bool) -> Option<String> {
    let own = service.spec.external_ips.len().saturating_sub(usize::from(holds));
    if own > 0 {
        return Some("it has its own external IPs, and their traffic policy must not change".to_string());
    }
    let mut without = service.clone();
    without.spec.external_ips.clear();
    match choose(&without, Some(Hold::ExternalIp), None) {
        Choice::Hold(Hold::ExternalIp, _) => None,
        Choice::Hold(Hold::Shadow, reason) | Choice::Refuse(reason) => Some(reason.to_string()),
    }
}

/// Returns whether a Service is the planned Service (by uid) and has its old or its new address.
pub(super) fn is_the_planned(candidate: &Move, service: &ServiceRecord) -> bool {
    let address = service.address(Family::of(candidate.old_address));
    let is_its = |address: IpAddr| [candidate.old_address, candidate.new_address].contains(&address);
    service.uid == candidate.uid && address.is_some_and(is_its)
}

/// Returns whether a Service still holds its old address exactly as it did directly after its flip.
pub(super) fn holds_as_it_did(candidate: &Move, service: &ServiceRecord) -> bool {
    service.kind() == "ClusterIP"
        && service.spec.external_ips.len() == 1
        && service.has_external_ip(candidate.old_address)
        && service.spec.external_traffic_policy.as_deref() == Some("Local")
}

/// Returns the message for a Service whose owner has changed its type, or has added external IPs.
pub(super) fn changed(candidate: &Move) -> String {
    format!(
        "is held at `{}`, but its owner has changed the Service: `retire` removes only that address, and keeps the `externalTrafficPolicy` that the owner needs",
        candidate.old_address
    )
}

fn repair(
    candidate: &Move,
    code: &'static str,
    done: &[String],
    edits: Vec<KeyEdit>,
    guards: Vec<Guard>,
) -> Seen {
    if edits.is_empty() {
        return Seen::Fine;
    }
    Seen::Repair(Box::new(repair_of(candidate, code, done.join("; "), edits, guards)))
}

fn repair_of(
    candidate: &Move,
    code: &'static str,
    says: String,
    edits: Vec<KeyEdit>,
    guards: Vec<Guard>,
) -> Repair {
    Repair {
        subject: candidate.subject(),
        code,
        says,
        swap: Swap { edits, checks: Vec::new() },
        steps: vec![candidate.step("flip"), candidate.step("retire"), no_return().id],
        guards,
    }
}

fn about(candidate: &Move) -> String {
    format!("Service {}", candidate.subject())
}

fn wrong(finding: Finding, says: String) -> Seen {
    Seen::Wrong(Box::new(finding.says(says)))
}

fn taken(candidate: &Move) -> Seen {
    let old = candidate.old_address;
    wrong(
        Finding::error("held-address-taken", about(candidate)),
        format!("its old address `{old}` is now allocated to another Service"),
    )
}

//! Checks that every Service of a renumbering is in the state that the journal records: before its move, while its old address is
//! held, or after its old address was retired. The check reads the cluster only through a survey.

use std::net::IpAddr;

use serde::Serialize;

use super::guard::{behind, changed, holds_as_it_did, is_the_planned};
use super::hold::Hold;
use super::index::Index;
use super::intention::{Move, Renumbering};
use crate::ip::Family;
use crate::operation::{State, StepId};
use crate::survey::audit::Finding;
use crate::survey::{AddressRecord, Era, ServiceRecord, Survey};
use crate::wire::objects::ALLOCATOR;

/// The phase of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The Service has its old address.
    Waiting,
    /// The Service has its new address, and its old address is held.
    Held,
    /// The Service has its new address, and its old address is free.
    Retired,
}

impl Phase {
    /// Returns the phase of a move from the states of its steps.
    pub fn of(candidate: &Move, state: impl Fn(&StepId) -> Option<State>) -> Self {
        match () {
            () if is_done(candidate, "retire", &state) => Self::Retired,
            () if is_done(candidate, "flip", &state) => Self::Held,
            () => Self::Waiting,
        }
    }
}

fn is_done(candidate: &Move, step: &str, state: &impl Fn(&StepId) -> Option<State>) -> bool {
    state(&candidate.step(step)).is_some_and(State::is_in_force)
}

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Number of Services in each phase: waiting, held, retired.
    pub counts: [usize; 3],
    /// Deviations from the expected state.
    pub findings: Vec<Finding>,
}

impl Verified {
    /// Replaces the findings: a later renumbering has changed the cluster, so differences from this one are not faults.
    #[must_use]
    pub fn superseded_by(self, later: &str) -> Self {
        let finding = Finding::info("superseded", format!("operation {later}"))
            .says("started after this renumbering had ended, so the Services are not compared with this one");
        Self { findings: vec![finding], ..self }
    }
}

/// Compares every move with the survey. `state` returns the state of a step.
pub fn verify(work: &Renumbering, survey: &Survey, state: impl Fn(&StepId) -> Option<State>) -> Verified {
    let cluster = Cluster::of(work, survey);
    let mut verified = Verified::default();
    for candidate in &work.moves {
        let phase = Phase::of(candidate, &state);
        let [waiting, held, retired] = &mut verified.counts;
        let count = match phase {
            Phase::Waiting => waiting,
            Phase::Held => held,
            Phase::Retired => retired,
        };
        // A Service that was deleted or got another address before its move is not counted as waiting.
        let is_there =
            || cluster.index.service(candidate).is_some_and(|service| is_the_planned(candidate, service));
        let is_counted = phase != Phase::Waiting || is_there();
        *count = count.saturating_add(usize::from(is_counted));
        let is_kept = is_done(candidate, "reserve", &state);
        cluster.check(candidate, (phase, is_kept), &mut verified.findings);
    }
    verified
}

/// The inputs of a verification.
struct Cluster<'a> {
    with_objects: bool,
    family: Family,
    index: Index<'a>,
}

impl<'a> Cluster<'a> {
    fn of(work: &Renumbering, survey: &'a Survey) -> Self {
        Self { with_objects: work.era != Era::Bitmap, family: work.family, index: Index::of(survey) }
    }

    /// Returns the Service of a move, if it is still the planned Service and has an address of the family.
    fn service(&self, candidate: &Move) -> Option<&'a ServiceRecord> {
        let found = self.index.service(candidate);
        found.filter(|service| service.uid == candidate.uid && service.address(self.family).is_some())
    }

    /// Checks the Service of one move. `is_kept` means that the new address is reserved.
    fn check(&self, candidate: &Move, (phase, is_kept): (Phase, bool), findings: &mut Vec<Finding>) {
        let subject = format!("Service {}", candidate.subject());
        let Some(service) = self.service(candidate) else {
            findings.push(
                Finding::warning("moved-service-gone", subject)
                    .says(
                        "was deleted or recreated, or lost its addresses, after the plan was created"
                            .to_string(),
                    )
                    .values("another uid, or none", &candidate.uid),
            );
            return;
        };
        // Owners can add and remove the address of the other family at any time.
        let (found, waits) = (service.address(self.family), phase == Phase::Waiting);
        let expected = if waits { candidate.old_address } else { candidate.new_address };
        if found != Some(expected) {
            let found = found.map_or_else(|| "no address".to_string(), |address| address.to_string());
            findings.push(
                Finding::error("moved-service-elsewhere", subject)
                    .says(format!("has {found}, but must have {expected} according to the journal"))
                    .values(found, expected),
            );
            return;
        }
        if is_kept || phase != Phase::Waiting {
            self.check_object(candidate, candidate.new_address, findings);
        }
        match phase {
            Phase::Waiting => {}
            Phase::Held => self.check_held(candidate, service, findings),
            Phase::Retired => self.check_retired(candidate, service, findings),
        }
    }

    /// Checks that the IPAddress of an address is managed by the allocator and refers to the Service.
    fn check_object(&self, candidate: &Move, address: IpAddr, findings: &mut Vec<Finding>) {
        if !self.with_objects {
            return;
        }
        let expected = format!("for {}, managed by {ALLOCATOR}", candidate.subject());
        let found = self.index.object(address).map_or_else(
            || "no object".to_string(),
            |object| format!("for {}/{}, managed by {}", object.parent.0, object.parent.1, object.managed_by),
        );
        if found != expected {
            findings.push(
                Finding::error("moved-address-unprotected", format!("IPAddress {address}"))
                    .says(format!(
                        "must belong to Service `{}` during its move, but does not (found: {found})",
                        candidate.subject()
                    ))
                    .values(found, expected),
            );
        }
    }

    fn check_held(&self, candidate: &Move, service: &ServiceRecord, findings: &mut Vec<Finding>) {
        let old = candidate.old_address;
        let missing = |what: String, findings: &mut Vec<Finding>| {
            findings.push(
                Finding::error("hold-missing", format!("Service {}", candidate.subject()))
                    .says(format!("no longer answers at its old address `{old}`: {what}"))
                    .values("not held", format!("{old} held ({})", candidate.hold)),
            );
        };
        if let (Some(shadow), Hold::Shadow) = (&candidate.shadow, candidate.hold) {
            let found = self.index.named(candidate, &shadow.hold_name);
            match found.filter(|shadow| shadow.addresses.contains(&old)) {
                None => {
                    missing(format!("the shadow Service `{}` lacks the address", shadow.hold_name), findings);
                }
                Some(found) => findings
                    .extend(behind(candidate, service, found, self.family).map(|follow| follow.finding)),
            }
        } else {
            let policy = service.spec.external_traffic_policy.as_deref().unwrap_or("none");
            if !service.has_external_ip(old) {
                missing("this address is not one of its external IPs".to_string(), findings);
            } else if policy != "Local" {
                findings.push(masquerades(candidate, policy));
            } else if !holds_as_it_did(candidate, service) {
                let finding = Finding::info("hold-changed", format!("Service {}", candidate.subject()));
                findings.push(finding.says(changed(candidate)));
            }
        }
        self.check_object(candidate, old, findings);
    }

    fn check_retired(&self, candidate: &Move, service: &ServiceRecord, findings: &mut Vec<Finding>) {
        let old = candidate.old_address;
        let shadow = candidate.shadow.as_ref();
        let shadow = shadow.and_then(|shadow| self.index.named(candidate, &shadow.hold_name));
        let is_its =
            |object: &&AddressRecord| object.parent == (candidate.namespace.clone(), candidate.name.clone());
        let object = self.index.object(old).filter(is_its);
        if service.has_external_ip(old) || shadow.is_some() || object.is_some() {
            findings.push(
                Finding::error("hold-left-over", format!("Service {}", candidate.subject()))
                    .says(format!("its old address `{old}` was retired, but is still held"))
                    .values("held", "free"),
            );
        }
    }
}

fn masquerades(candidate: &Move, policy: &str) -> Finding {
    let text = format!(
        "is held at `{}` without `externalTrafficPolicy: Local`: backends see the address of a node instead of the client's",
        candidate.old_address
    );
    Finding::warning("hold-masquerades", format!("Service {}", candidate.subject()))
        .says(text)
        .values(policy, "Local")
}

//! Compares a plan with the current cluster. Between `plan` and `apply`, Services can be created, deleted, recreated or changed.
//! The result depends only on the plan and a survey.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;

use super::intention::{Move, Renumbering};
use crate::survey::{ServiceRecord, Survey};

/// A difference between the plan and the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The Service, as `namespace/name`.
    pub subject: String,
    /// The change of the Service.
    pub what: Change,
}

/// How a Service changed since the plan was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The Service was deleted.
    Gone,
    /// The Service was deleted, and another Service was created with its name.
    Recreated,
    /// The Service now has these addresses, which are not the planned old addresses.
    Addresses(Vec<IpAddr>),
    /// The planned new address is already in use. Contains this address.
    Taken(IpAddr),
    /// A field of the Service changed, and the planned hold no longer matches the Service.
    Kind,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service `{}` ", self.subject)?;
        match &self.what {
            Change::Gone => f.write_str("was deleted"),
            Change::Recreated => f.write_str("was deleted and recreated"),
            Change::Addresses(now) => {
                let now = now.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                write!(f, "now has other addresses: {now}")
            }
            Change::Taken(address) => write!(f, "cannot get `{address}`: the address is already in use"),
            Change::Kind => f.write_str("has changed: the planned hold of its old address no longer fits"),
        }
    }
}

/// Result of comparing a plan with the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fit {
    /// Services that differ from the plan. If a Service differs, a new plan is necessary.
    pub drifts: Vec<Drift>,
    /// Services that have an address of an old range, but are not in the plan. They were created after planning, and keep their
    /// address until a sweep moves them. Sentinels and the shadows of the plan are not listed.
    pub newcomers: Vec<String>,
}

/// Compares a plan with the current cluster, before the first step of the plan is executed.
pub fn compare(work: &Renumbering, survey: &Survey) -> Fit {
    let services: HashMap<(&str, &str), &ServiceRecord> = survey
        .services
        .iter()
        .map(|service| ((service.namespace.as_str(), service.name.as_str()), service))
        .collect();
    let in_use: HashSet<IpAddr> = super::plan::in_use(survey, &work.to);
    let mut fit = Fit::default();
    for candidate in &work.moves {
        let name = (candidate.namespace.as_str(), candidate.name.as_str());
        if let Some(what) = drift(candidate, services.get(&name).copied(), &in_use) {
            fit.drifts.push(Drift { subject: candidate.subject(), what });
        }
    }
    fit.newcomers = newcomer_names(work, survey);
    fit
}

/// Returns the same Services as [`Fit::newcomers`].
pub fn newcomer_names(work: &Renumbering, survey: &Survey) -> Vec<String> {
    newcomers(work, survey).into_iter().map(ServiceRecord::subject).collect()
}

/// Returns the Services that have an address of an old range, but are not in the plan.
pub(super) fn newcomers<'s>(work: &Renumbering, survey: &'s Survey) -> Vec<&'s ServiceRecord> {
    let known: HashSet<(&str, &str, &str)> = work
        .moves
        .iter()
        .map(|moved| (moved.namespace.as_str(), moved.name.as_str(), moved.uid.as_str()))
        .collect();
    let shadows: HashSet<(&str, &str)> = work.shadows().collect();
    let is_left = |address: &IpAddr| work.is_left(*address);
    let is_new = |service: &&ServiceRecord| {
        !known.contains(&(service.namespace.as_str(), service.name.as_str(), service.uid.as_str()))
            && !service.is_sentinel()
            && !shadows.contains(&(service.namespace.as_str(), service.name.as_str()))
            && service.addresses.iter().any(is_left)
    };
    survey.services.iter().filter(is_new).collect()
}

/// Returns the moves of Services that were deleted or recreated after planning, or that have neither their old nor their new
/// address.
pub fn deleted<'w>(work: &'w Renumbering, survey: &Survey) -> impl Iterator<Item = &'w Move> {
    let of_family = |service: &ServiceRecord| Some((service.uid.to_string(), service.address(work.family)?));
    let there: HashSet<(String, IpAddr)> = survey.services.iter().filter_map(of_family).collect();
    let has = move |moved: &Move, address: IpAddr| there.contains(&(moved.uid.to_string(), address));
    work.moves.iter().filter(move |moved| !has(moved, moved.old_address) && !has(moved, moved.new_address))
}

fn drift(candidate: &Move, service: Option<&ServiceRecord>, in_use: &HashSet<IpAddr>) -> Option<Change> {
    let Some(service) = service else { return Some(Change::Gone) };
    if service.uid != candidate.uid {
        return Some(Change::Recreated);
    }
    let old: Vec<IpAddr> = candidate.old.iter().filter_map(|text| text.parse().ok()).collect();
    if service.addresses != old {
        return Some(Change::Addresses(service.addresses.clone()));
    }
    if in_use.contains(&candidate.new_address) {
        return Some(Change::Taken(candidate.new_address));
    }
    let hold = super::hold::choose(service, Some(candidate.hold), None);
    let same = matches!(hold, super::hold::Choice::Hold(hold, _) if hold == candidate.hold)
        && service.spec.external_traffic_policy == candidate.traffic_policy;
    (!same).then_some(Change::Kind)
}

//! Whether a plan still fits the cluster: between its making and its carrying out, Services come, go and
//! change hands. A pure comparison of the plan with a survey.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;

use super::intention::{Move, Renumbering};
use crate::survey::{ServiceRecord, Survey};

/// Something that is not as the plan was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Which Service, as `namespace/name`.
    pub subject: String,
    /// What became of it.
    pub what: Change,
}

/// What became of a Service since the plan was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was deleted.
    Gone,
    /// It was deleted, and another one has its name.
    Recreated,
    /// It has other addresses.
    Addresses(Vec<IpAddr>),
    /// The address that it is to get is somebody's.
    Taken(IpAddr),
    /// It changed in a way that decides how its old address is held.
    Kind,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service `{}` ", self.subject)?;
        match &self.what {
            Change::Gone => f.write_str("was deleted"),
            Change::Recreated => f.write_str("was deleted and made anew"),
            Change::Addresses(now) => {
                let now = now.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                write!(f, "has other addresses now: {now}")
            }
            Change::Taken(address) => write!(f, "is to get `{address}`, which is in use by now"),
            Change::Kind => f.write_str("is now of a kind whose old address is held in another way"),
        }
    }
}

/// How a plan and a cluster stand to each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fit {
    /// Services of the plan that are not as it says: it must be made anew.
    pub drifts: Vec<Drift>,
    /// Services with an address of a range that is left, of which the plan knows nothing: they were born since,
    /// and stay where they are until they are swept. What netsurgeon made itself is none of them.
    pub newcomers: Vec<String>,
}

/// Compares a plan of which nothing was carried out yet with the cluster as it is.
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
    fit.newcomers = newcomers(work, survey).into_iter().map(ServiceRecord::subject).collect();
    fit
}

/// Returns the Services with an address of a range that is left, of which the plan knows nothing.
pub(super) fn newcomers<'s>(work: &Renumbering, survey: &'s Survey) -> Vec<&'s ServiceRecord> {
    let known: HashSet<(&str, &str, &str)> = work
        .moves
        .iter()
        .map(|moved| (moved.namespace.as_str(), moved.name.as_str(), moved.uid.as_str()))
        .collect();
    let shadows: HashSet<(&str, &str)> = work.shadows().collect();
    let leaves = |address: &IpAddr| work.from.iter().any(|range| range.contains(*address));
    let is_new = |service: &&ServiceRecord| {
        !known.contains(&(service.namespace.as_str(), service.name.as_str(), service.uid.as_str()))
            && !service.is_sentinel()
            && !shadows.contains(&(service.namespace.as_str(), service.name.as_str()))
            && service.addresses.iter().any(leaves)
    };
    survey.services.iter().filter(is_new).collect()
}

/// Returns the moves whose Services were deleted, or recreated, since they were planned, or have neither their old nor their
/// new address any more.
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

//! Sorts the Services that move by tier. The most critical tier is the last.

use super::split::split;
use super::{PlanError, PlanOptions, turn_of};
use crate::renumber::intention::{Move, Turn};
use crate::renumber::tier::{API_BACKENDS, TierSource, Tiers};
use crate::survey::{ServiceRecord, Survey};
use crate::wire::Text;

impl PlanOptions {
    /// Returns the annotation that the survey must read; `None` if the source of the tiers is not an annotation.
    pub fn annotation(&self) -> Option<&str> {
        match self.tiers.as_ref().map(|tiers| &tiers.source) {
            Some(TierSource::Annotation(key)) => Some(key),
            _ => None,
        }
    }
}

/// Returns the Services that need a tier. These are the Services that move and have no fixed place in the order.
pub fn open_to_tiers<'s>(survey: &'s Survey, options: &PlanOptions) -> Vec<&'s ServiceRecord> {
    let mut movers = split(survey, options).leaving;
    movers.retain(|service| is_open(survey, service));
    movers
}

fn is_open(survey: &Survey, service: &ServiceRecord) -> bool {
    turn_of(survey, service).is_any() && !survey.is_api_backend(service)
}

/// The Services that move, in the order of their moves.
pub(super) struct Arranged<'s> {
    /// The tiers, from least to most critical.
    pub(super) names: Vec<Text>,
    pub(super) services: Vec<&'s ServiceRecord>,
    /// The position of each Service's tier in `names`, from 1; 0 without a tier.
    places: Vec<usize>,
}

impl Arranged<'_> {
    /// Sets the tier of each move. The moves are in the same order as the Services.
    pub(super) fn name_tiers(&self, moves: &mut [Move]) {
        for (candidate, place) in moves.iter_mut().zip(&self.places) {
            let name = place.checked_sub(1).and_then(|place| self.names.get(place));
            candidate.tier = name.cloned().unwrap_or_default();
        }
    }
}

/// Sorts the Services by tier, namespace and name. The cluster's DNS and then the API servers' own Service come last, because all
/// other Services depend on them.
pub(super) fn arrange<'s>(
    survey: &Survey,
    tiers: Option<&Tiers>,
    services: Vec<&'s ServiceRecord>,
) -> Result<Arranged<'s>, PlanError> {
    let mut names: Vec<Text> = tiers.iter().flat_map(|tiers| &tiers.names).map(Text::from).collect();
    let last = names.len().saturating_add(1);
    let mut ordered = Vec::with_capacity(services.len());
    let mut without: Vec<&ServiceRecord> = Vec::new();
    for service in services {
        let turn = turn_of(survey, service);
        let place = match tiers {
            _ if !turn.is_any() => 0,
            _ if survey.is_api_backend(service) => last,
            None => 0,
            Some(tiers) => match tiers.find(survey, service) {
                None => {
                    without.push(service);
                    0
                }
                Some(name) => tiers.place(name).ok_or_else(|| PlanError::UnknownTier {
                    subject: service.subject(),
                    tier: name.to_string(),
                    known: tiers.names.join(", "),
                })?,
            },
        };
        ordered.push((turn, place, service));
    }
    if let Some(first) = without.first() {
        return Err(PlanError::NoTier { count: without.len(), first: first.subject() });
    }
    let key =
        |entry: &(Turn, usize, &'s ServiceRecord)| (entry.0, entry.1, &entry.2.namespace, &entry.2.name);
    ordered.sort_by(|a, b| key(a).cmp(&key(b)));
    if ordered.iter().any(|(_, place, _)| *place == last) {
        names.push(API_BACKENDS.into());
    }
    let places = ordered.iter().map(|(_, place, _)| *place).collect();
    Ok(Arranged { names, services: ordered.into_iter().map(|(_, _, service)| service).collect(), places })
}

//! Tiers: the least critical Services move first, and all Services of a batch have the same tier. Services behind webhooks and
//! aggregated APIs form a tier after all others, because the rest of the operation depends on the API. The cluster's DNS and
//! `default/kubernetes` move after this tier ([`Turn`]).

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use super::intention::{Move, Renumbering};
use crate::survey::{ServiceRecord, Survey};
use crate::wire::Text;

/// The tier of Services behind webhooks and aggregated APIs.
pub const API_BACKENDS: &str = "api-backends";

/// The tiers that the operator defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiers {
    /// Names of the tiers, from least to most critical.
    pub names: Vec<String>,
    /// The source of a Service's tier.
    pub source: TierSource,
    /// The tier of Services that the source does not list. If there is no default, a plan with such a Service is refused.
    pub default: Option<String>,
}

/// The source of a Service's tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TierSource {
    /// A label of the Service with this key.
    Label(String),
    /// An annotation with this key, which the survey must have read.
    Annotation(String),
    /// Tiers by `namespace/name`, and by `namespace/*` for all other Services of a namespace.
    Listed(BTreeMap<String, String>),
}

impl Tiers {
    /// Returns the names in the source that do not exist in the cluster, in order. These may be typing errors.
    pub fn strangers(&self, survey: &Survey) -> Vec<&str> {
        let TierSource::Listed(tiers) = &self.source else { return Vec::new() };
        let all_of = |service: &ServiceRecord| format!("{}/*", service.namespace);
        let there: HashSet<String> =
            survey.services.iter().flat_map(|service| [service.subject(), all_of(service)]).collect();
        tiers.keys().filter(|subject| !there.contains(*subject)).map(String::as_str).collect()
    }

    /// Returns the tier of a Service, from the source or by default.
    pub(super) fn find<'t>(&'t self, survey: &'t Survey, service: &'t ServiceRecord) -> Option<&'t str> {
        let found = match &self.source {
            TierSource::Label(key) => service.labels.get(key),
            TierSource::Annotation(_) => survey.annotations.get(&service.key).map(Text::as_str),
            TierSource::Listed(tiers) => {
                let of_namespace = || tiers.get(&format!("{}/*", service.namespace));
                tiers.get(&service.subject()).or_else(of_namespace).map(String::as_str)
            }
        };
        found.filter(|name| !name.is_empty()).or(self.default.as_deref())
    }

    /// Returns the position of a tier in the order, from 1.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|own| own == name).map(|index| index.saturating_add(1))
    }
}

impl Renumbering {
    /// Returns the tiers in order, each with its moves; empty if the plan has no tiers.
    pub fn tier_moves(&self) -> Vec<(&str, &[Move])> {
        let names = self.tiers.iter().map(Text::as_str);
        let moves = self.tier_sections().skip(1).map(|section| self.moves.get(section).unwrap_or_default());
        names.zip(moves).collect()
    }

    /// Returns the tiers as text, each with the number of its moves: `dev (3), web (12)`; `None` if the plan has no tiers.
    pub fn tiers_in_words(&self) -> Option<String> {
        let words: Vec<String> =
            self.tier_moves().iter().map(|(name, moves)| format!("{name} ({})", moves.len())).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Returns the tier of a batch; `None` if the Services of the batch have no tier.
    pub fn tier_of_batch(&self, batch: usize) -> Option<&str> {
        self.batch(batch).first().map(|first| first.tier.as_str()).filter(|tier| !tier.is_empty())
    }

    /// Returns the sections of planned moves that share batches: the Services without a tier, then each tier. No batch crosses
    /// the end of a section. A binary search finds the sections, so that compiling a stage stays fast in a large plan.
    pub(super) fn tier_sections(&self) -> impl Iterator<Item = Range<usize>> {
        let shared = self.moves.get(..self.shared()).unwrap_or_default();
        let mut start = 0;
        (0..=self.tiers.len()).map(move |place| {
            let end = shared.partition_point(|candidate| self.tier_place(candidate) <= place);
            let section = start..end.max(start);
            start = section.end;
            section
        })
    }

    fn tier_place(&self, candidate: &Move) -> usize {
        if candidate.tier.is_empty() {
            return 0;
        }
        let index = self.tiers.iter().position(|name| *name == candidate.tier);
        index.map_or(self.tiers.len(), |index| index.saturating_add(1))
    }
}

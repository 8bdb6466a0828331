//! The rules of the plan. Each rule finds one obstacle or risk.

mod addresses;
mod admission;
mod agents;
mod nodes;
mod workloads;

use k8s_openapi::api::core::v1::Node;
use serde::Serialize;

use super::cluster_view::ClusterView;
use super::drain::Drain;
use super::newcomer::Newcomer;
use super::present::Present;
use super::strategy::Strategy;
use crate::words::brief;

/// What a finding means for the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The change must not start.
    Blocks,
    /// The change must not start before you accept the finding by name.
    Accept,
    /// Nothing is demanded.
    Note,
}

/// What a rule found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// What it means for the change.
    pub effect: Effect,
    /// What was observed.
    pub observed: String,
    /// What to do.
    pub remedy: String,
}

impl Observation {
    fn of(effect: Effect, observed: impl Into<String>, remedy: impl Into<String>) -> Self {
        // An observation can contain text of any size from an object.
        Self { effect, observed: brief(&observed.into()).into_owned(), remedy: remedy.into() }
    }

    fn blocks(observed: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::of(Effect::Blocks, observed, remedy)
    }

    fn accept(observed: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::of(Effect::Accept, observed, remedy)
    }

    fn note(observed: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::of(Effect::Note, observed, remedy)
    }
}

/// The facts that the rules judge.
pub struct Input<'a> {
    /// The cluster.
    pub view: &'a ClusterView,
    /// The new plug-in.
    pub new: &'a Newcomer,
    /// The plug-in that is in place.
    pub old: &'a Present<'a>,
    /// The strategy.
    pub strategy: Strategy,
    /// Whether the ranges of both plug-ins overlap.
    pub overlap: &'a [String],
    /// Nodes on which the new DaemonSet would start a Pod as soon as it is applied.
    pub selected: &'a [&'a Node],
    /// The drain of each node.
    pub drains: &'a [Drain],
}

/// A rule.
pub struct Rule {
    /// Name of its finding.
    pub name: &'static str,
    /// Why the finding matters.
    pub why: &'static str,
    /// Judges the facts. Returns `None` if there is nothing to report.
    pub judge: fn(&Input<'_>) -> Option<Observation>,
}

/// The rules by topic, in display order.
pub const TOPICS: [&[Rule]; 5] =
    [agents::RULES, addresses::RULES, workloads::RULES, admission::RULES, nodes::RULES];

/// Returns all rules.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    TOPICS.into_iter().flatten()
}

#[cfg(test)]
mod tests;

//! The plan of a change of the network plug-in: what is in place, what comes, how the nodes change, and what stands in the way.
//!
//! [`manifests`] and [`newcomer`] read the new plug-in, and [`cluster_view`] reads the cluster with a client that cannot change it.
//! Everything else is a pure function of both. To add a finding, add a rule to a file in `rules/`, and a row to docs/cni.md.

pub mod cluster_view;
mod drain;
#[cfg(test)]
mod fixtures;
pub mod manifests;
pub mod newcomer;
mod plugin_traits;
mod present;
mod quorum;
mod rules;
mod steps;
mod strategy;

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::core::v1::Node;
use serde::Serialize;

use self::cluster_view::ClusterView;
use self::newcomer::Newcomer;
use self::present::Present;
use self::quorum::Quorum;
pub use self::rules::Effect;
use self::rules::{Input, rules};
pub use self::steps::{NodePlan, Role, Step};
pub use self::strategy::{Choice, Strategy};
use crate::inventory::installer::Installer;
use crate::inventory::network_settings::UsedRanges;
use crate::inventory::node_fit::is_wanted;
use crate::inventory::pod::TrimmedPodSpec;
use crate::inventory::used_ranges::node_ranges;
use crate::ip::ServiceCidr;
use crate::kube_api::accessors::name;

/// Options of a plan.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions<'o> {
    /// The strategy; `None`: the plan proposes one.
    pub strategy: Option<Strategy>,
    /// Names of the accepted findings.
    pub accepted: BTreeSet<String>,
    /// The path of the manifests, for the steps.
    pub manifests: Option<&'o Path>,
}

/// Something that stands in the way of the change, or that you must know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name.
    pub name: &'static str,
    /// What it means for the change.
    pub effect: Effect,
    /// Whether it was accepted by name.
    pub accepted: bool,
    /// What was observed.
    pub observed: String,
    /// Why it matters.
    pub why: &'static str,
    /// What to do.
    pub remedy: String,
}

impl Finding {
    /// Returns whether the change must not start because of it.
    pub fn is_open(&self) -> bool {
        match self.effect {
            Effect::Blocks => true,
            Effect::Accept => !self.accepted,
            Effect::Note => false,
        }
    }
}

/// A range for Pods, and its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RangeOutput {
    /// The range.
    pub range: ServiceCidr,
    /// Where it is set.
    pub source: String,
}

/// The plug-in that is in place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PresentOutput {
    /// Names of the plug-ins.
    pub plugins: Vec<&'static str>,
    /// Images of the agents.
    pub images: Vec<String>,
    /// Namespaces and names of the DaemonSets.
    pub daemon_sets: Vec<String>,
    /// What installed the DaemonSets.
    pub installers: Vec<Installer>,
    /// Ranges for Pods. Ranges of single Nodes are not listed.
    pub ranges: Vec<RangeOutput>,
    /// MTUs that are set by hand.
    pub mtus: Vec<u64>,
    /// UDP ports of its tunnels.
    pub tunnel_ports: BTreeSet<u16>,
    /// Names of its configuration files.
    pub confs: Vec<&'static str>,
    /// Number of nodes.
    pub nodes: usize,
}

/// The plug-in in the manifests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewcomerOutput {
    /// Name of the plug-in.
    pub plugin: &'static str,
    /// Image of the agent.
    pub image: String,
    /// Namespace and name of the DaemonSet.
    pub daemon_set: String,
    /// Update strategy of the DaemonSet.
    pub update_strategy: String,
    /// Ranges for Pods; empty if it uses the ranges of Nodes.
    pub ranges: Vec<RangeOutput>,
    /// Whether it uses the ranges of Nodes.
    pub uses_node_ranges: bool,
    /// MTUs that are set by hand.
    pub mtus: Vec<u64>,
    /// UDP ports of its tunnels.
    pub tunnel_ports: BTreeSet<u16>,
    /// Name of its configuration file.
    pub conf: Option<String>,
    /// Types of the plug-ins in its configuration; `null` if the manifests have no configuration.
    pub chain: Option<BTreeSet<String>>,
    /// Nodes on which it starts as soon as the manifests are applied.
    pub starts_on: Vec<String>,
    /// Number of objects in the manifests.
    pub objects: usize,
}

/// The plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The plug-in that is in place.
    pub from: PresentOutput,
    /// The plug-in in the manifests.
    pub to: NewcomerOutput,
    /// The strategy of the plan.
    pub strategy: Choice,
    /// The other strategy.
    pub other_strategy: Choice,
    /// What stands in the way, and what to know.
    pub findings: Vec<Finding>,
    /// How many failures the control plane tolerates.
    pub quorum: Quorum,
    /// The steps before the first node.
    pub before: Vec<Step>,
    /// The nodes, in the order of their change.
    pub nodes: Vec<NodePlan>,
    /// The steps after the last node.
    pub after: Vec<Step>,
}

/// Returns the names of all findings.
pub fn finding_names() -> impl Iterator<Item = &'static str> {
    rules().map(|rule| rule.name)
}

/// Makes the plan.
pub fn plan(view: &ClusterView, new: &Newcomer, options: &PlanOptions<'_>) -> Plan {
    let new = &new.with_kubeadm(&view.kubeadm_ranges);
    let old = Present::of(view, new.plugin);
    let overlap = overlap(view, new, &old);
    let proposed = strategy::propose(&view.nodes, !overlap.is_empty());
    let (strategy, other_strategy) = match options.strategy {
        Some(wanted) if wanted != proposed.name => {
            let given = Choice { name: wanted, reason: "given with `--strategy`".to_string() };
            (given, proposed)
        }
        _ => {
            let other = strategy::otherwise(proposed.name.other());
            (proposed, other)
        }
    };
    let drains = drain::drains(&view.nodes, &view.pods, &view.budgets);
    let selected = selected(view, new);
    let input = Input {
        view,
        new,
        old: &old,
        strategy: strategy.name,
        overlap: &overlap,
        selected: &selected,
        drains: &drains,
    };
    let findings = findings(&input, &options.accepted);
    let manifests = options.manifests.unwrap_or(Path::new("DIR"));
    Plan {
        from: PresentOutput::of(view, &old),
        to: NewcomerOutput::of(new, &selected),
        quorum: Quorum::of(&view.nodes, &view.pods),
        before: steps::before(&input, &findings, manifests),
        nodes: steps::nodes(&input),
        after: steps::after(&input, &findings),
        strategy,
        other_strategy,
        findings,
    }
}

fn findings(input: &Input<'_>, accepted: &BTreeSet<String>) -> Vec<Finding> {
    let found = rules().filter_map(|rule| {
        let seen = (rule.judge)(input)?;
        Some(Finding {
            name: rule.name,
            effect: seen.effect,
            accepted: seen.effect == Effect::Accept && accepted.contains(rule.name),
            observed: seen.observed,
            why: rule.why,
            remedy: seen.remedy,
        })
    });
    let mut found: Vec<Finding> = found.collect();
    found.sort_by_key(|one| one.effect);
    found
}

/// Returns the overlaps of the ranges of both plug-ins. A plug-in that uses the ranges of Nodes shares them with an old one that does,
/// too.
fn overlap(view: &ClusterView, new: &Newcomer, old: &Present<'_>) -> Vec<String> {
    let of_nodes = node_ranges(&view.nodes);
    let mut ranges: UsedRanges = new.ranges.clone();
    if new.uses_node_ranges && ranges.is_empty() {
        ranges.extend(of_nodes.first().map(|(_, range)| ("of a Node".to_string(), *range)));
    }
    let mut found = Vec::new();
    for (at, range) in &ranges {
        // One text for each range is enough: there can be thousands of Nodes.
        let met = old.ranges.iter().find(|(_, other)| other == range);
        let met = met.or_else(|| old.ranges.iter().find(|(_, other)| other.overlaps(range)));
        found.extend(met.map(|(of, other)| {
            let how = if other == range { "equals" } else { "overlaps" };
            format!("the new range `{range}` ({at}) {how} `{other}` of {} ({of})", old.name())
        }));
        let inside = view.pods.iter().filter_map(|pod| {
            let ip = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
            let is_on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
            (!is_on_host && range.contains(ip)).then_some(ip)
        });
        if let (None, Some(ip)) = (met, inside.min()) {
            found.push(format!(
                "the new range `{range}` ({at}) contains addresses of Pods, for example `{ip}`"
            ));
        }
    }
    found
}

/// Returns the nodes on which the new agent starts as soon as the manifests are applied.
fn selected<'v>(view: &'v ClusterView, new: &Newcomer) -> Vec<&'v Node> {
    let Some(spec) = new.spec() else { return Vec::new() };
    // Taints do not count, because they change.
    let placement = TrimmedPodSpec {
        affinity: spec.affinity.clone(),
        node_selector: spec.node_selector.clone(),
        ..TrimmedPodSpec::default()
    };
    view.nodes.iter().filter(|node| is_wanted(&placement, node)).collect()
}

fn shown(ranges: &UsedRanges) -> Vec<RangeOutput> {
    let of_sets = ranges.iter().filter(|(at, _)| !at.starts_with("Node"));
    of_sets.map(|(source, range)| RangeOutput { range: *range, source: source.clone() }).collect()
}

impl PresentOutput {
    fn of(view: &ClusterView, old: &Present<'_>) -> Self {
        Self {
            plugins: old.plugins.iter().copied().collect(),
            images: old.images.iter().map(ToString::to_string).collect(),
            daemon_sets: old.subjects(),
            installers: old.installers.iter().cloned().collect(),
            ranges: shown(&old.ranges),
            mtus: view.settings.mtus.iter().map(|(_, mtu)| *mtu).collect(),
            tunnel_ports: view.settings.tunnels.iter().map(|(_, port)| *port).collect(),
            confs: old.traits().map(|traits| traits.conf).collect(),
            nodes: view.nodes.len(),
        }
    }
}

impl NewcomerOutput {
    fn of(new: &Newcomer, selected: &[&Node]) -> Self {
        Self {
            plugin: new.plugin,
            image: new.image.clone(),
            daemon_set: new.subject(),
            update_strategy: new.update_strategy().to_string(),
            ranges: shown(&new.ranges),
            uses_node_ranges: new.uses_node_ranges,
            mtus: new.mtus.iter().map(|(_, mtu)| *mtu).collect(),
            tunnel_ports: new.tunnels.clone(),
            conf: new.conf.clone(),
            chain: new.chain.clone(),
            starts_on: selected.iter().map(|node| name(*node).to_string()).collect(),
            objects: new.objects,
        }
    }
}

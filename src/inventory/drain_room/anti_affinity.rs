//! Evaluates required Pod anti-affinity in both directions, for all nodes at once.
//!
//! A large cluster can have more than a hundred thousand Pods, but few different label sets. Therefore each rule is compared with
//! each label set only once.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodAffinityTerm;

use super::node_room::Place;
use crate::inventory::pod::TrimmedPod;
use crate::inventory::selectors::selects;
use crate::kube_api::accessors::Labels;
use crate::kube_api::accessors::{labels, namespace};

/// Index of a topology domain among the domains of one label. A domain is the set of nodes that have the same value for this
/// label.
type Domain = usize;
/// Indexes of nodes, by topology domain.
type NodesByDomain = BTreeMap<Domain, Vec<usize>>;

/// An anti-affinity term that Pods in one namespace share.
struct Rule<'a> {
    /// Namespace of the Pods that have the term.
    namespace: &'a str,
    term: &'a PodAffinityTerm,
    /// Domain of each node; `None` if the node does not have the label.
    domains: Vec<Option<Domain>>,
    /// Nodes with Pods that the term selects, grouped by domain.
    meant: NodesByDomain,
    /// Nodes with Pods that have the term, grouped by domain.
    holders: NodesByDomain,
}

/// Pods in one namespace with the same labels.
#[derive(Default)]
struct Kind {
    /// Indexes of the nodes that run these Pods, in ascending order.
    nodes: Vec<usize>,
    /// Names of the rules that select these Pods.
    meant_by: Vec<String>,
}

/// All rules by name, and all Pods by namespace and labels.
pub(super) struct Rules<'a> {
    all: BTreeMap<String, Rule<'a>>,
    kinds: BTreeMap<&'a str, BTreeMap<&'a Labels, Kind>>,
}

/// The domains that are closed for one Pod. Each entry belongs to one rule, and contains the domain of each node, and whether
/// each domain is closed.
pub(super) struct Apart<'r>(Vec<(&'r [Option<Domain>], Vec<bool>)>);

impl<'a> Rules<'a> {
    /// Reads the rules of all Pods.
    pub(super) fn of(places: &[Place<'a>]) -> Self {
        let mut all: BTreeMap<String, Rule<'a>> = BTreeMap::new();
        let mut kinds: BTreeMap<&'a str, BTreeMap<&'a Labels, Kind>> = BTreeMap::new();
        for (index, place) in places.iter().enumerate() {
            for pod in place.pods.iter().copied() {
                let of = kinds.entry(namespace(pod)).or_default();
                of.entry(labels(pod)).or_default().nodes.push(index);
                for term in terms(pod) {
                    let rule = all.entry(name_of(namespace(pod), term));
                    let rule = rule.or_insert_with(|| Rule::of(namespace(pod), term, places));
                    add(&mut rule.holders, &rule.domains, index);
                }
            }
        }
        for (name, rule) in &mut all {
            for (namespace, kinds) in &mut kinds {
                if !rule.is_near(namespace) {
                    continue;
                }
                for (labels, kind) in kinds {
                    if !rule.selects(labels) {
                        continue;
                    }
                    kind.meant_by.push(name.clone());
                    for index in &kind.nodes {
                        add(&mut rule.meant, &rule.domains, *index);
                    }
                }
            }
        }
        Self { all, kinds }
    }

    /// Returns the domains that are closed for a Pod while a node is drained. A domain is closed if one of its nodes, except the
    /// drained node, runs a Pod that this Pod's rules select, or a Pod with a rule that selects this Pod
    /// (`satisfyPodAntiAffinity` and `satisfyExistingPodsAntiAffinity`,
    /// `pkg/scheduler/framework/plugins/interpodaffinity/filtering.go`, v1.36.3).
    pub(super) fn about(&self, pod: &TrimmedPod, drained: usize) -> Apart<'_> {
        let own = terms(pod).filter_map(|term| self.all.get(&name_of(namespace(pod), term)));
        let own = own.map(|rule| (rule, &rule.meant));
        let kind = self.kinds.get(namespace(pod)).and_then(|kinds| kinds.get(labels(pod)));
        let others = kind.into_iter().flat_map(|kind| &kind.meant_by).filter_map(|name| self.all.get(name));
        let others = others.map(|rule| (rule, &rule.holders));
        let closed = |nodes_by_domain: &NodesByDomain| {
            let mut closed = Vec::new();
            for (domain, _) in
                nodes_by_domain.iter().filter(|(_, nodes)| nodes.iter().any(|index| *index != drained))
            {
                closed.resize(closed.len().max(domain.saturating_add(1)), false);
                if let Some(is_closed) = closed.get_mut(*domain) {
                    *is_closed = true;
                }
            }
            closed
        };
        let both = own
            .chain(others)
            .map(|(rule, nodes_by_domain)| (rule.domains.as_slice(), closed(nodes_by_domain)));
        Apart(both.filter(|(_, closed)| !closed.is_empty()).collect())
    }
}

impl Apart<'_> {
    /// Returns whether a node is in a closed domain.
    pub(super) fn keeps_away(&self, from: usize) -> bool {
        self.0.iter().any(|(domains, closed)| {
            let domain = domains.get(from).copied().flatten();
            domain.and_then(|domain| closed.get(domain)).copied().unwrap_or(false)
        })
    }
}

impl<'a> Rule<'a> {
    fn of(namespace: &'a str, term: &'a PodAffinityTerm, places: &[Place<'a>]) -> Self {
        let mut numbers = BTreeMap::new();
        let mut domain = |place: &Place<'a>| {
            let value = labels(place.node).get(&term.topology_key)?;
            let next = numbers.len();
            Some(*numbers.entry(value).or_insert(next))
        };
        let domains = places.iter().map(&mut domain).collect();
        Self { namespace, term, domains, meant: NodesByDomain::new(), holders: NodesByDomain::new() }
    }

    /// Returns whether the rule applies to Pods of a namespace. A term with a `namespaceSelector` counts for every namespace.
    fn is_near(&self, namespace: &str) -> bool {
        let named = self.term.namespaces.as_deref().unwrap_or_default();
        let has_selector = self.term.namespace_selector.is_some();
        let is_own = named.is_empty() && !has_selector && self.namespace == namespace;
        is_own || has_selector || named.iter().any(|one| one == namespace)
    }

    /// Returns whether the rule selects Pods with these labels. A term without a selector selects no Pod.
    fn selects(&self, labels: &Labels) -> bool {
        let selector = self.term.label_selector.as_ref();
        selector.is_some() && selects(selector, labels)
    }
}

/// Returns the required anti-affinity terms of a Pod.
fn terms(pod: &TrimmedPod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    apart
        .into_iter()
        .flat_map(|apart| apart.required_during_scheduling_ignored_during_execution.iter().flatten())
}

/// Returns the name of a rule. The name is unique for each pair of namespace and term.
fn name_of(namespace: &str, term: &PodAffinityTerm) -> String {
    format!("{namespace} {term:?}")
}

/// Adds a node to its topology domain.
fn add(nodes_by_domain: &mut NodesByDomain, domains: &[Option<Domain>], index: usize) {
    if let Some(domain) = domains.get(index).copied().flatten() {
        let nodes = nodes_by_domain.entry(domain).or_default();
        if nodes.last() != Some(&index) {
            nodes.push(index);
        }
    }
}

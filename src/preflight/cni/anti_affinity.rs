//! Required Pod anti-affinity, in both directions, for all nodes at once.
//!
//! A large cluster has some hundred thousand Pods with few different label sets: each rule is compared with each set once.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm};

use super::super::objects::{labels, namespace};
use super::super::selectors::{Labels, selects};
use super::place::Place;

/// A domain, that is the nodes with one value of a label, by its number among the domains of that label.
type Domain = usize;
/// Nodes by domain.
type NodesByDomain = BTreeMap<Domain, Vec<usize>>;

/// An anti-affinity term of some Pods.
struct Rule<'a> {
    /// The namespace of these Pods.
    namespace: &'a str,
    term: &'a PodAffinityTerm,
    /// The domain of each node, if it has the label.
    domains: Vec<Option<Domain>>,
    /// Nodes of the Pods that the term selects.
    meant: NodesByDomain,
    /// Nodes of the Pods that have the term.
    holders: NodesByDomain,
}

/// Pods of one namespace with the same labels.
#[derive(Default)]
struct Kind {
    /// Their nodes, in order.
    nodes: Vec<usize>,
    /// The names of the rules that select them.
    meant_by: Vec<String>,
}

/// All rules by name, and all Pods by namespace and labels.
pub(super) struct Rules<'a> {
    all: BTreeMap<String, Rule<'a>>,
    kinds: BTreeMap<&'a str, BTreeMap<&'a Labels, Kind>>,
}

/// The domains that are closed for one Pod: for each rule, the domain of each node, and whether a domain is closed.
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

    /// Returns the domains that are closed for a Pod while a node is drained: those of the Pods that its own rules select, and
    /// those of the Pods whose rules select it (`satisfyPodAntiAffinity` and `satisfyExistingPodsAntiAffinity`,
    /// `pkg/scheduler/framework/plugins/interpodaffinity/filtering.go`, v1.36.3).
    pub(super) fn about(&self, pod: &Pod, drained: usize) -> Apart<'_> {
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
    /// Whether a node is in a closed domain.
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

    /// Whether it applies to Pods of a namespace. A `namespaceSelector` counts as every namespace.
    fn is_near(&self, namespace: &str) -> bool {
        let named = self.term.namespaces.as_deref().unwrap_or_default();
        let has_selector = self.term.namespace_selector.is_some();
        let is_own = named.is_empty() && !has_selector && self.namespace == namespace;
        is_own || has_selector || named.iter().any(|one| one == namespace)
    }

    /// Whether it selects Pods with these labels. A term without a selector selects none.
    fn selects(&self, labels: &Labels) -> bool {
        let selector = self.term.label_selector.as_ref();
        selector.is_some() && selects(selector, labels)
    }
}

/// The required anti-affinity terms of a Pod.
fn terms(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    apart
        .into_iter()
        .flat_map(|apart| apart.required_during_scheduling_ignored_during_execution.iter().flatten())
}

/// The name of a rule, unique for namespace and term.
fn name_of(namespace: &str, term: &PodAffinityTerm) -> String {
    format!("{namespace} {term:?}")
}

/// Adds a node to its domain.
fn add(nodes_by_domain: &mut NodesByDomain, domains: &[Option<Domain>], index: usize) {
    if let Some(domain) = domains.get(index).copied().flatten() {
        let nodes = nodes_by_domain.entry(domain).or_default();
        if nodes.last() != Some(&index) {
            nodes.push(index);
        }
    }
}

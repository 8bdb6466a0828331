//! Pods that must not be where others are: required anti-affinity, in both directions, for all nodes at once.
//!
//! A large cluster has some hundred thousand Pods and few kinds of them: rules are compared with each set of labels once.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm};

use super::super::objects::{labels, namespace};
use super::super::selectors::{Labels, selects};
use super::place::Place;

/// A domain, the nodes that have one value of a label, by its number among those of the label.
type Domain = usize;
/// The nodes with such Pods, by domain.
type Crowd = BTreeMap<Domain, Vec<usize>>;

/// A rule that some Pods have.
struct Rule<'a> {
    /// Their namespace.
    namespace: &'a str,
    term: &'a PodAffinityTerm,
    /// The domain of each node, if it has the label.
    domains: Vec<Option<Domain>>,
    /// Who is meant by it.
    meant: Crowd,
    /// Who has it.
    holders: Crowd,
}

/// Pods of one namespace with the same labels.
#[derive(Default)]
struct Kind {
    /// The nodes that they are on, in order.
    nodes: Vec<usize>,
    /// The names of the rules that mean them.
    meant_by: Vec<String>,
}

/// The rules of all Pods by name, and all Pods by namespace and labels.
pub(super) struct Rules<'a> {
    all: BTreeMap<String, Rule<'a>>,
    kinds: BTreeMap<&'a str, BTreeMap<&'a Labels, Kind>>,
}

/// The domains that one Pod must keep out of, by the domains that nodes are in.
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

    /// Returns where a Pod must not be while a node is drained: where those are that its own rules mean, and those whose rules mean
    /// it (`satisfyPodAntiAffinity` and `satisfyExistingPodsAntiAffinity`,
    /// `pkg/scheduler/framework/plugins/interpodaffinity/filtering.go`, v1.36.3).
    pub(super) fn about(&self, pod: &Pod, drained: usize) -> Apart<'_> {
        let own = terms(pod).filter_map(|term| self.all.get(&name_of(namespace(pod), term)));
        let own = own.map(|rule| (rule, &rule.meant));
        let kind = self.kinds.get(namespace(pod)).and_then(|kinds| kinds.get(labels(pod)));
        let others = kind.into_iter().flat_map(|kind| &kind.meant_by).filter_map(|name| self.all.get(name));
        let others = others.map(|rule| (rule, &rule.holders));
        let closed = |crowd: &Crowd| {
            let mut closed = Vec::new();
            for (domain, _) in crowd.iter().filter(|(_, nodes)| nodes.iter().any(|index| *index != drained)) {
                closed.resize(closed.len().max(domain.saturating_add(1)), false);
                if let Some(is_closed) = closed.get_mut(*domain) {
                    *is_closed = true;
                }
            }
            closed
        };
        let both = own.chain(others).map(|(rule, crowd)| (rule.domains.as_slice(), closed(crowd)));
        Apart(both.filter(|(_, closed)| !closed.is_empty()).collect())
    }
}

impl Apart<'_> {
    /// Whether that keeps it away from a node.
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
        Self { namespace, term, domains, meant: Crowd::new(), holders: Crowd::new() }
    }

    /// Whether it is about Pods of a namespace. A selector of namespaces is taken for all of them.
    fn is_near(&self, namespace: &str) -> bool {
        let named = self.term.namespaces.as_deref().unwrap_or_default();
        let has_selector = self.term.namespace_selector.is_some();
        let is_own = named.is_empty() && !has_selector && self.namespace == namespace;
        is_own || has_selector || named.iter().any(|one| one == namespace)
    }

    /// Whether it means Pods with these labels. A term without a selector means none.
    fn selects(&self, labels: &Labels) -> bool {
        let selector = self.term.label_selector.as_ref();
        selector.is_some() && selects(selector, labels)
    }
}

/// The rules that a Pod has.
fn terms(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    apart
        .into_iter()
        .flat_map(|apart| apart.required_during_scheduling_ignored_during_execution.iter().flatten())
}

/// What tells rules from each other.
fn name_of(namespace: &str, term: &PodAffinityTerm) -> String {
    format!("{namespace} {term:?}")
}

/// Adds a node to the crowd of its domain.
fn add(crowd: &mut Crowd, domains: &[Option<Domain>], index: usize) {
    if let Some(domain) = domains.get(index).copied().flatten() {
        let nodes = crowd.entry(domain).or_default();
        if nodes.last() != Some(&index) {
            nodes.push(index);
        }
    }
}

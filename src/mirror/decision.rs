//! Decides what happens to one object, from the object, the object of the mirror, and the objects around it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::activation::MovedCopies;
use super::cluster_kind::CLUSTER_KINDS;
use super::config::Config;
use super::copy::{Shape, copy};
use super::difference::{Change, changes};
use super::ledger::Created;
use super::left_out::{self, Reason};
use super::rules::{Choice, Choices, Kind, Rules, Uses, is_kind};
use super::strip::has_values;
use super::work::KindLeftOut;
use crate::inventory::outside_owner::OutsideOwner;
use crate::inventory::text;
use crate::kube_api::ServedKind;
use std::sync::Arc;

/// What the decisions depend on, in addition to the objects.
#[derive(Debug, Clone, Default)]
pub struct Around {
    /// Whether copies of Services have the same node ports.
    pub keep_node_ports: bool,
    /// Workloads to copy although no Service selects them, as `NAMESPACE/NAME`.
    pub run: BTreeSet<String>,
    /// The selectors of the source's Services, with their namespaces.
    pub selectors: Vec<(String, BTreeMap<String, String>)>,
    /// The source's Services without a selector, with their namespaces.
    pub without_selector: BTreeSet<(String, String)>,
    /// Objects whose replicas an autoscaler sets, as kind, namespace and name.
    pub scaled: BTreeSet<(String, String, String)>,
    /// The objects that mirror operations created in the mirror.
    pub ours: Created,
    /// Copies that activations have moved.
    pub moved: MovedCopies,
    /// Namespaces that the mirror is deleting.
    pub terminating: BTreeSet<String>,
    /// The configuration.
    pub config: Config,
    /// Its choices of workloads.
    pub choices: Choices,
    /// Which of its rules have matched.
    pub uses: Arc<Uses>,
}

/// What happens to an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Decision {
    /// The object is not copied.
    LeftOut(Reason),
    /// A rule cannot change the object. Contains the reason.
    Faulty(String),
    /// The mirror has another object.
    Conflict(Reason),
    /// The mirror has no such object.
    Create(Value),
    /// The mirror has the copy.
    Same,
    /// The object of the mirror differs from the copy, which is the first value. Only a dry run shows whether an apply changes it.
    Differs(Value, Vec<Change>),
}

/// Kinds of workloads that can do their work in both clusters, as `GROUP/PLURAL`.
const WORKLOADS: [&str; 3] = [DEPLOYMENTS, "apps/daemonsets", "/replicationcontrollers"];
const DEPLOYMENTS: &str = "apps/deployments";

impl Around {
    /// Returns the rules of the configuration.
    pub(super) fn rules(&self) -> Rules<'_> {
        Rules { config: &self.config, uses: &self.uses }
    }

    /// Returns what changes the copy of an object. `live`: the object of the mirror with this name.
    pub(super) fn shape(&self, kind: &str, object: &Value, live: Option<&Value>) -> Shape {
        let key = (
            text(object, "/kind").to_string(),
            text(object, "/metadata/namespace").to_string(),
            text(object, "/metadata/name").to_string(),
        );
        let is_passive = self.choices.of(kind, object, &self.uses) == Choice::Passive;
        let moved = live.and_then(|live| self.moved.of(kind, live));
        let is_scaled = self.scaled.contains(&key);
        Shape { keep_node_ports: self.keep_node_ports, is_scaled, is_passive, moved }
    }

    /// Decides what happens to an object of the source. `live`: the object of the mirror with this name.
    pub(super) fn decide(&self, kind: &str, object: &Value, live: Option<&Value>) -> Decision {
        if let Some(reason) = self.left_out(kind, object) {
            return Decision::LeftOut(reason);
        }
        match self.choices.of(kind, object, &self.uses) {
            Choice::LeftOut(reason) => return Decision::LeftOut(reason),
            Choice::Open if WORKLOADS.contains(&kind) && !self.is_to_run(object) => {
                return Decision::LeftOut(left_out::NO_SERVICE);
            }
            Choice::Open
                if kind == DEPLOYMENTS
                    && !self.is_named(object)
                    && OutsideOwner::of_json(object).is_some() =>
            {
                return Decision::LeftOut(left_out::OUTSIDE_OWNER);
            }
            Choice::Open if is_scheduled(kind, object) && !self.includes(kind, text(object, "/kind")) => {
                return Decision::LeftOut(left_out::SCHEDULED);
            }
            _ => {}
        }
        if kind == "/secrets" && self.replaces(object) {
            return Decision::LeftOut(left_out::REPLACED);
        }
        if self.terminating.contains(text(object, "/metadata/namespace")) {
            return Decision::Conflict(left_out::NAMESPACE_TERMINATING);
        }
        let manifest = match copy(kind, object, self.shape(kind, object, live), self.rules()) {
            Ok(manifest) => manifest,
            Err(fault) => return Decision::Faulty(fault.0),
        };
        if left_out::is_default_account(kind, text(object, "/metadata/name")) && !has_values(&manifest) {
            return Decision::LeftOut(left_out::DEFAULT_ACCOUNT);
        }
        let Some(live) = live else { return Decision::Create(manifest) };
        if live.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string) {
            return Decision::Conflict(left_out::TERMINATING);
        }
        let changes = changes(&manifest, live);
        if changes.is_empty() { Decision::Same } else { Decision::Differs(manifest, changes) }
    }

    /// Returns whether only single objects of a kind are copied: those that the configuration chooses, and those that no controller
    /// creates.
    pub(super) fn copies_single(&self, kind: &str) -> bool {
        self.choices.reads(kind) || [left_out::SLICES, left_out::ENDPOINTS].contains(&kind)
    }

    /// Returns whether a controller creates an object of a kind of which single objects are copied.
    pub(super) fn is_controlled(&self, kind: &str, object: &Value) -> bool {
        self.left_out(kind, object) == Some(left_out::CONTROLLED)
    }

    /// Returns whether the configuration includes a kind that is left out otherwise.
    pub(super) fn includes(&self, resource: &str, kind: &str) -> bool {
        self.has_kind(("kinds.include", &self.config.kinds.include), &Kind { resource, kind })
    }

    /// Returns whether a list of the configuration contains a kind, and marks the rules that match. The list has its name.
    fn has_kind(&self, (list, names): (&'static str, &[String]), kind: &Kind<'_>) -> bool {
        let rules = names.iter().enumerate();
        let matched: Vec<usize> =
            rules.filter(|(_, name)| is_kind(name, kind)).map(|(index, _)| index).collect();
        for index in &matched {
            self.uses.mark(list, *index);
        }
        !matched.is_empty()
    }

    fn left_out(&self, kind: &str, object: &Value) -> Option<Reason> {
        let service = || {
            let of = |field: &str| text(object, &format!("/metadata/{field}")).to_string();
            (of("namespace"), of("name"))
        };
        let reason = left_out::left_out(kind, object);
        if reason.is_none() && kind == left_out::ENDPOINTS && !self.without_selector.contains(&service()) {
            return Some(left_out::CONTROLLED);
        }
        reason
    }

    /// Returns whether an object of the mirror was created by a mirror operation.
    pub(super) fn is_ours(&self, live: &Value) -> bool {
        self.ours.contains_key(text(live, "/metadata/uid"))
    }

    /// Returns whether a workload is passive in the mirror; `None` if it is not copied.
    pub(super) fn copied_workload(&self, kind: &str, object: &Value) -> Option<bool> {
        match self.choices.of(kind, object, &self.uses) {
            Choice::Passive => Some(true),
            Choice::Run => Some(false),
            Choice::Open if self.is_to_run(object) => Some(false),
            Choice::Open | Choice::LeftOut(_) => None,
        }
    }

    /// Returns the kinds that the configuration excludes.
    pub(super) fn excluded(&self, pairs: &[KindPair]) -> Vec<KindLeftOut> {
        let is_excluded = |(resource, kind): &(&str, &str)| {
            self.has_kind(("kinds.exclude", &self.config.kinds.exclude), &Kind { resource, kind })
        };
        let left_out = |(resource, _): (&str, &str)| KindLeftOut {
            resource: resource.to_string(),
            reason: "the configuration excludes this kind".to_string(),
        };
        let of_cluster = CLUSTER_KINDS.map(|(resource, _, kind)| (resource, kind));
        let of_namespaces = pairs.iter().map(|pair| (pair.resource.as_str(), pair.kind.kind.as_str()));
        of_namespaces.chain(of_cluster).filter(is_excluded).map(left_out).collect()
    }

    /// Returns whether the configuration makes a pull secret with the name of a Secret of the source. A Secret without a uid is that
    /// pull secret.
    fn replaces(&self, secret: &Value) -> bool {
        let name = text(secret, "/metadata/name");
        !text(secret, "/metadata/uid").is_empty()
            && self.config.pull_secrets.iter().any(|one| one.name == name)
    }

    /// Returns whether the operator names a workload, so that it runs in the mirror.
    fn is_named(&self, workload: &Value) -> bool {
        let (namespace, name) = (text(workload, "/metadata/namespace"), text(workload, "/metadata/name"));
        self.run.contains(&format!("{namespace}/{name}"))
    }

    /// Returns whether a workload runs in the mirror: a Service selects its Pods, or the operator names it.
    pub(super) fn is_to_run(&self, workload: &Value) -> bool {
        let namespace = text(workload, "/metadata/namespace");
        if self.is_named(workload) {
            return true;
        }
        let labels = workload.pointer("/spec/template/metadata/labels");
        let has = |(key, value): (&String, &String)| {
            labels.and_then(|labels| labels.get(key)).and_then(Value::as_str) == Some(value)
        };
        let mut own = self.selectors.iter().filter(|(of, _)| of == namespace);
        own.any(|(_, selector)| !selector.is_empty() && selector.iter().all(has))
    }
}

/// Returns whether a custom resource has a schedule. `kind`: `GROUP/PLURAL`.
fn is_scheduled(kind: &str, object: &Value) -> bool {
    let group = kind.split_once('/').map_or("", |(group, _)| group);
    group.contains('.') && object.pointer("/spec/schedule").is_some_and(Value::is_string)
}

/// A kind that the source serves, and the version in which it is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KindPair {
    /// The kind, as `GROUP/PLURAL`.
    pub resource: String,
    /// The kind as the source serves it, in the version in which it is copied.
    pub kind: ServedKind,
    /// Whether the mirror serves this version.
    pub is_served: bool,
}

impl KindPair {
    /// Returns the API version, for example `apps/v1`.
    pub fn api_version(&self) -> String {
        let ServedKind { group, version, .. } = &self.kind;
        if group.is_empty() { version.clone() } else { format!("{group}/{version}") }
    }
}

/// Returns the namespaced kinds of the source, each in the first version that both clusters serve. The mirror's preferred version
/// comes first.
pub(super) fn pairs(source: &[ServedKind], mirror: &[ServedKind]) -> Vec<KindPair> {
    let is_same =
        |one: &ServedKind, other: &ServedKind| one.group == other.group && one.plural == other.plural;
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for first in source.iter().filter(|kind| kind.is_namespaced) {
        if !seen.insert((first.group.clone(), first.plural.clone())) {
            continue;
        }
        let versions = mirror.iter().filter(|kind| is_same(kind, first));
        let both = versions.filter_map(|kind| {
            source.iter().find(|other| is_same(other, first) && other.version == kind.version)
        });
        let both = both.map(|kind| (kind, true)).next();
        let (kind, is_served) = both.unwrap_or((first, false));
        let resource = format!("{}/{}", kind.group, kind.plural);
        found.push(KindPair { resource, kind: kind.clone(), is_served });
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mirror::config::Kinds;
    use crate::mirror::difference::MANAGER;

    fn deployment(labels: &Value) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": "web"},
               "spec": {"replicas": 2, "template": {"metadata": {"labels": labels}}}})
    }

    fn around(selector: &[(&str, &str)]) -> Around {
        let selector = selector.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Around { selectors: vec![("shop".to_string(), selector)], ..Around::default() }
    }

    #[test]
    fn workload_without_a_service_needs_a_word() {
        let object = deployment(&json!({"app": "web", "tier": "front"}));
        let code = |around: &Around| match around.decide("apps/deployments", &object, None) {
            Decision::LeftOut(reason) => reason.code,
            Decision::Create(_) => "create",
            other => panic!("{other:?}"),
        };
        assert_eq!(code(&around(&[("app", "web")])), "create");
        assert_eq!(code(&around(&[("app", "api")])), "no-service");
        assert_eq!(code(&around(&[])), "no-service", "a Service without a selector selects no Pod");
        let elsewhere = Around {
            selectors: vec![("pay".to_string(), [("app".to_string(), "web".to_string())].into())],
            ..Around::default()
        };
        assert_eq!(code(&elsewhere), "no-service");
        let named = Around { run: ["shop/web".to_string()].into(), ..Around::default() };
        assert_eq!(code(&named), "create");
    }

    #[test]
    fn what_acts_outside_of_the_cluster_needs_a_word() {
        let code = |around: &Around, kind: &str, object: &Value| match around.decide(kind, object, None) {
            Decision::LeftOut(reason) => reason.code,
            Decision::Create(_) => "create",
            other => panic!("{other:?}"),
        };
        let mut dns = deployment(&json!({"app": "web"}));
        dns["spec"]["selector"] = json!({});
        dns["spec"]["template"]["spec"] = json!({"containers": [{"name": "a", "image": "x/external-dns:1", "args": ["--txt-owner-id=blue"]}]});
        let selected = around(&[("app", "web")]);
        assert_eq!(code(&selected, DEPLOYMENTS, &dns), "outside-owner");
        let named = Around { run: ["shop/web".to_string()].into(), ..selected.clone() };
        assert_eq!(code(&named, DEPLOYMENTS, &dns), "create");
        let nightly = json!({"kind": "Nightly", "metadata": {"namespace": "shop", "name": "a"}, "spec": {"schedule": "0 3 * * *"}});
        assert_eq!(code(&selected, "example.com/nightlies", &nightly), "scheduled");
        assert_eq!(code(&selected, "batch/cronjobs", &nightly), "create");
        let kinds = Kinds { include: vec!["nightlies.example.com".to_string()], ..Kinds::default() };
        let included = Around { config: Config { kinds, ..Config::default() }, ..selected };
        assert_eq!(code(&included, "example.com/nightlies", &nightly), "create");
    }

    #[test]
    fn endpoints_of_clients_are_copied() {
        let without_selector = [("shop", "db"), ("default", "kubernetes")];
        let without_selector =
            without_selector.map(|(namespace, name)| (namespace.to_string(), name.to_string())).into();
        let around = Around { without_selector, ..Around::default() };
        for (namespace, name, expected) in
            [("shop", "db", false), ("shop", "web", true), ("default", "kubernetes", true)]
        {
            let endpoints = json!({"kind": "Endpoints", "metadata": {"namespace": namespace, "name": name}});
            assert_eq!(around.is_controlled(left_out::ENDPOINTS, &endpoints), expected, "{endpoints}");
        }
    }

    #[test]
    fn live_object_decides_the_action() {
        let object = deployment(&json!({"app": "web"}));
        let all = around(&[("app", "web")]);
        let mut live = object.clone();
        live["metadata"]["uid"] = json!("7");
        live["metadata"]["managedFields"] =
            json!([{"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {}}}]);
        assert_eq!(all.decide("apps/deployments", &object, Some(&live)), Decision::Same);
        live["spec"]["replicas"] = json!(3);
        let Decision::Differs(_, changes) = all.decide("apps/deployments", &object, Some(&live)) else {
            panic!("the replicas differ");
        };
        assert_eq!(changes.iter().map(Change::field).collect::<Vec<_>>(), ["spec.replicas"]);
        let scaled = [("Deployment".to_string(), "shop".to_string(), "web".to_string())].into();
        let scaled = Around { scaled, ..all.clone() };
        assert_eq!(scaled.decide("apps/deployments", &object, Some(&live)), Decision::Same);
        live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let decided = all.decide("apps/deployments", &object, Some(&live));
        assert_eq!(decided, Decision::Conflict(left_out::TERMINATING));
        let terminating = Around { terminating: ["shop".to_string()].into(), ..all };
        let decided = terminating.decide("apps/deployments", &object, None);
        assert_eq!(decided, Decision::Conflict(left_out::NAMESPACE_TERMINATING));
    }

    #[test]
    fn kinds_are_copied_in_a_version_of_both_clusters() {
        let kind = |group: &str, version: &str, plural: &str| ServedKind {
            group: group.to_string(),
            version: version.to_string(),
            kind: plural.to_string(),
            plural: plural.to_string(),
            is_namespaced: true,
            verbs: BTreeSet::new(),
        };
        let source = [
            kind("autoscaling", "v1", "hpas"),
            kind("autoscaling", "v2", "hpas"),
            kind("old.io", "v1", "xs"),
            kind("", "v1", "pods"),
        ];
        let mirror = [kind("autoscaling", "v2", "hpas"), kind("old.io", "v2", "xs"), kind("", "v1", "pods")];
        let found: Vec<_> = pairs(&source, &mirror)
            .into_iter()
            .map(|pair| (pair.resource.clone(), pair.api_version(), pair.is_served))
            .collect();
        let expected = [
            ("autoscaling/hpas", "autoscaling/v2", true),
            ("old.io/xs", "old.io/v1", false),
            ("/pods", "v1", true),
        ];
        let expected: Vec<_> = expected
            .map(|(resource, version, served)| (resource.to_string(), version.to_string(), served))
            .into();
        assert_eq!(found, expected);
    }
}

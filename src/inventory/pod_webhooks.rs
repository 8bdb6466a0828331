//! Webhooks that the API server calls for Pods, and reaches only over the Pod network.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::network_plugins::plugin_namespaces;
use super::pod::TrimmedPod;
use super::webhooks::{AdmittedKind, AdmittedObject, Webhook};
use crate::kube_api::accessors::{Labels, labels, name};

/// Webhooks that the API server reaches over the Pod network, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodWebhooks {
    /// Webhooks that must admit the Pods of a CNI.
    pub own: Vec<String>,
    /// Webhooks that must admit Pods.
    pub all: Vec<String>,
    /// Webhooks with `failurePolicy: Ignore` that are called for Pods: while they do not answer, each creation takes longer.
    pub ignored: Vec<String>,
}

/// Returns the Pods of a CNI and all Pods, with the parts that rules and selectors of webhooks match.
pub fn admitted_pods(
    namespaces: &[Namespace],
    pods: &[TrimmedPod],
) -> (Vec<AdmittedObject>, Vec<AdmittedObject>) {
    let named = |name: &str| Labels::from([("kubernetes.io/metadata.name".to_string(), name.to_string())]);
    let mut known: BTreeMap<String, Labels> =
        plugin_namespaces().map(|home| (home.to_string(), named(home))).collect();
    known.extend(namespaces.iter().map(|one| (name(one).to_string(), labels(one).clone())));
    let admitted = |pod: &ObjectMeta| AdmittedObject::of(AdmittedKind::Pod, pod, &known);
    let all: BTreeSet<AdmittedObject> = pods.iter().filter_map(|pod| admitted(&pod.metadata)).collect();
    // The new CNI has no Pods yet, and perhaps no namespace.
    let there = |home: &str| ObjectMeta { namespace: Some(home.to_string()), ..ObjectMeta::default() };
    let own = plugin_namespaces().map(there).filter_map(|pod| admitted(&pod)).collect();
    (own, all.into_iter().collect())
}

impl PodWebhooks {
    /// Returns the webhooks that are reached over the Pod network. `own`: webhooks that are called for Pods of the CNI itself.
    /// `all`: webhooks that are called for any Pod. `on_the_host`: namespace and name of each Service that has only node addresses
    /// as endpoints. Node addresses are reachable without a CNI.
    pub fn of(own: &[Webhook], all: &[Webhook], on_the_host: &BTreeSet<(String, String)>) -> Self {
        let is_over_it = |webhook: &&Webhook| {
            let is_on_host = webhook.service.as_ref().is_some_and(|service| on_the_host.contains(service));
            webhook.service.is_some() && !is_on_host
        };
        let told = |list: &[Webhook], is_needed: bool| -> Vec<String> {
            let asked = list.iter().filter(|one| !one.asked.is_empty() && one.refuses == is_needed);
            asked.filter(is_over_it).map(Webhook::told).collect()
        };
        // `matchConditions` are not evaluated, and can exclude the CNI's Pods.
        let sure: Vec<Webhook> = own.iter().filter(|webhook| !webhook.has_conditions).cloned().collect();
        Self { own: told(&sure, true), all: told(all, true), ignored: told(all, false) }
    }
}

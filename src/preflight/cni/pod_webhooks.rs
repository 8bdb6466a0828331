//! `pod-webhooks`: which webhooks must admit Pods, but are reachable only over the Pod network.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Cni;
use crate::inventory::network_plugins::plugin_namespaces;
use crate::inventory::webhooks::{AdmittedKind, AdmittedObject, Webhook};
use crate::kube_api::accessors::{Labels, labels, name};
use crate::preflight::{Check, Judged, Read, Source, first_few};

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "pod-webhooks",
    why: "while the Pod network is down, the API server cannot call a webhook that it reaches over this network, and rejects every Pod",
    needs: &[Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Checks the webhooks that are called for the Pods of a CNI, and the webhooks that are called for any Pod.
async fn read(input: &Cni) -> Read<Judged> {
    let found: Vec<Namespace> = input.read.objects().await?;
    let named = |name: &str| Labels::from([("kubernetes.io/metadata.name".to_string(), name.to_string())]);
    let mut namespaces: BTreeMap<String, Labels> =
        plugin_namespaces().map(|home| (home.to_string(), named(home))).collect();
    namespaces.extend(found.iter().map(|one| (name(one).to_string(), labels(one).clone())));
    let admitted = |pod: &ObjectMeta| AdmittedObject::of(AdmittedKind::Pod, pod, &namespaces);
    let pods = input.read.pods().await?.iter().map(|pod| &pod.metadata);
    let all: BTreeSet<AdmittedObject> = pods.filter_map(admitted).collect();
    let all: Vec<AdmittedObject> = all.into_iter().collect();
    // The new CNI has no Pods yet, and perhaps no namespace.
    let there = |home: &str| ObjectMeta { namespace: Some(home.to_string()), ..ObjectMeta::default() };
    let own: Vec<AdmittedObject> = plugin_namespaces().map(there).filter_map(|pod| admitted(&pod)).collect();
    let (of_own, of_all) = (input.read.webhooks_for(&own).await?, input.read.webhooks_for(&all).await?);
    let both: Vec<Webhook> = of_own.iter().chain(&of_all).cloned().collect();
    Ok(judge(&of_own, &of_all, &input.read.on_the_host(&both).await?))
}

/// Checks the webhooks that must admit Pods. `own`: webhooks that are called for Pods of the CNI itself. `all`: webhooks that are
/// called for any Pod. `on_the_host`: namespace and name of each Service that has only node addresses as endpoints. Node
/// addresses are reachable without a CNI.
fn judge(own: &[Webhook], all: &[Webhook], on_the_host: &BTreeSet<(String, String)>) -> Judged {
    let is_over_it = |webhook: &&Webhook| {
        let is_on_host = webhook.service.as_ref().is_some_and(|service| on_the_host.contains(service));
        webhook.is_needed() && webhook.service.is_some() && !is_on_host
    };
    let told = |list: &[Webhook]| list.iter().filter(is_over_it).map(Webhook::told).collect::<Vec<String>>();
    // `matchConditions` are not evaluated, and can exclude the CNI's Pods.
    let sure: Vec<Webhook> = own.iter().filter(|webhook| !webhook.has_conditions).cloned().collect();
    let (own, all) = (told(&sure), told(all));
    if !own.is_empty() {
        return Judged::fail(
            format!(
                "webhooks that are reached over the Pod network must admit the Pods of a CNI: {}",
                first_few(&own)
            ),
            "exclude the namespaces of both CNIs (`namespaceSelector`), or set `failurePolicy: Ignore` during the change: without a network \
             neither CNI can start",
        );
    }
    if all.is_empty() {
        return Judged::pass("no webhook that must admit Pods is reached over the Pod network");
    }
    Judged::warn(
        format!("webhooks that are reached over the Pod network must admit Pods: {}", first_few(&all)),
        "set `failurePolicy: Ignore` during the change, or run the webhook's backend in the host network",
    )
}

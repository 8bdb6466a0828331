//! Reads the webhooks of a cluster, and the Services that serve them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{self, Service};

use super::webhooks::{AdmittedObject, Backends, Webhook, ready, webhooks_for};
use super::{ClusterReader, Read, unread};
use crate::kube_api::{Node, ReadOnly};

/// Namespace and name of a Service.
type ServiceName = (String, String);

impl ClusterReader {
    /// Returns the webhooks, each with the kinds of objects in `written` for which the API server calls it.
    pub async fn webhooks_for(&self, written: &[AdmittedObject]) -> Read<Vec<Webhook>> {
        Ok(webhooks_for(self.objects().await?, self.objects().await?, written))
    }

    /// Returns the number of ready endpoints of each Service that serves a required webhook.
    pub async fn backends(&self, webhooks: &[Webhook]) -> Read<Backends> {
        let (cluster, mut backends) = (self.cluster()?, BTreeMap::new());
        for (namespace, name) in needed(webhooks) {
            let service = cluster.object::<Service>(Some(&namespace), &name).await.map_err(unread)?;
            let count = match service {
                None => None,
                Some(_) => Some(ready(&cluster.endpoint_slices(&namespace, &name).await.map_err(unread)?)),
            };
            backends.insert((namespace, name), count);
        }
        Ok(backends)
    }

    /// Returns the Services of webhooks that have only node addresses as endpoints.
    pub async fn on_the_host(&self, webhooks: &[Webhook]) -> Read<BTreeSet<ServiceName>> {
        on_the_host(&self.read_only()?, self.nodes().await?, webhooks).await
    }
}

/// Returns the Services of webhooks that have only node addresses as endpoints.
pub async fn on_the_host(
    cluster: &ReadOnly,
    nodes: &[v1::Node],
    webhooks: &[Webhook],
) -> Read<BTreeSet<ServiceName>> {
    let of_nodes: BTreeSet<String> = nodes
        .iter()
        .flat_map(|node| Node::of(node).internal_ips)
        .map(|address| address.to_string())
        .collect();
    let called = webhooks.iter().filter(|one| !one.asked.is_empty());
    let services: BTreeSet<ServiceName> = called.filter_map(|one| one.service.clone()).collect();
    let mut found = BTreeSet::new();
    for (namespace, name) in services {
        let slices = cluster.endpoint_slices(&namespace, &name).await.map_err(unread)?;
        let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        let mut addresses = endpoints.flat_map(|one| &one.addresses).peekable();
        if addresses.peek().is_some() && addresses.all(|address| of_nodes.contains(address)) {
            found.insert((namespace, name));
        }
    }
    Ok(found)
}

/// Returns the Services that serve required webhooks.
fn needed(webhooks: &[Webhook]) -> BTreeSet<ServiceName> {
    webhooks.iter().filter(|one| one.is_needed()).filter_map(|one| one.service.clone()).collect()
}

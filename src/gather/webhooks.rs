//! The webhooks of a cluster, and who answers for them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::reading::{Read, Reading, unread};
use crate::cluster::{Node, ObjectRef};
use crate::preflight::webhooks::{Backends, Called, Written, called, ready};

/// Kinds of `admissionregistration.k8s.io/v1` that say which webhooks there are.
const CONFIGURATIONS: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Namespace and name of a Service.
pub(super) type Of = (String, String);

impl Reading {
    /// Returns the webhooks whose rules are about something that is written.
    pub(super) async fn called(&self, written: &[Written]) -> Read<Vec<Called>> {
        let mut found = Vec::new();
        for kind in CONFIGURATIONS {
            let configurations = self.list("admissionregistration.k8s.io/v1", kind).await?;
            found.extend(called(kind, &configurations, written));
        }
        Ok(found)
    }

    /// Returns how many endpoints are ready of each Service through which a webhook must answer.
    pub(super) async fn backends(&self, webhooks: &[Called]) -> Read<Backends> {
        let (cluster, mut backends) = (self.cluster()?, BTreeMap::new());
        for (namespace, name) in needed(webhooks) {
            let object = ObjectRef::new("v1", "Service", Some(&namespace), &name);
            let count = match cluster.get(&object).await.map_err(unread)? {
                None => None,
                Some(_) => Some(ready(&cluster.slices(&namespace, &name).await.map_err(unread)?)),
            };
            backends.insert((namespace, name), count);
        }
        Ok(backends)
    }

    /// Returns those of the Services all of whose endpoints are addresses of nodes.
    pub(super) async fn on_the_host(&self, webhooks: &[Called]) -> Read<BTreeSet<Of>> {
        let cluster = self.cluster()?;
        let nodes = self.nodes().await?.iter().map(Node::of);
        let of_nodes: BTreeSet<String> =
            nodes.flat_map(|node| node.internal_ips).map(|address| address.to_string()).collect();
        let mut found = BTreeSet::new();
        for (namespace, name) in needed(webhooks) {
            let slices = cluster.slices(&namespace, &name).await.map_err(unread)?;
            let endpoints = slices.iter().filter_map(|slice| slice.get("endpoints")?.as_array()).flatten();
            let addresses = endpoints.filter_map(|one| one.get("addresses")?.as_array()).flatten();
            let mut addresses = addresses.filter_map(Value::as_str).peekable();
            if addresses.peek().is_some() && addresses.all(|address| of_nodes.contains(address)) {
                found.insert((namespace, name));
            }
        }
        Ok(found)
    }
}

/// The Services through which webhooks must answer.
fn needed(webhooks: &[Called]) -> BTreeSet<Of> {
    webhooks.iter().filter(|one| one.is_needed()).filter_map(|one| one.service.clone()).collect()
}

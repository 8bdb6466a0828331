//! Checks before a change of the Pod network. During the change, every node is drained once, and every Pod is recreated.

mod agent_ports;
mod autoscalers;
mod bare_pods;
mod budgets;
mod csrs;
mod drain_rights;
mod drain_room;
mod host_ports;
mod local_storage;
mod mtu;
mod network;
mod network_policies;
pub(super) mod nodes;
mod pod_ranges;
mod pod_webhooks;
mod single_pods;

use k8s_openapi::api::apps::v1::DaemonSet;
use tokio::sync::OnceCell;

use super::{Check, shared};
use crate::inventory::network_plugins::NetworkPlugin;
use crate::inventory::network_settings::{self, NetworkSettings};
use crate::inventory::plugin_reader::settings_sources;
use crate::inventory::{ClusterReader, Connections, Read};
use crate::ip::ServiceCidr;

/// The checks, in display order.
pub const CHECKS: &[Check<Cni>] = &[
    shared::api::check(),
    shared::etcd_members::check("restarting a control-plane host also stops its etcd member"),
    shared::api_servers::check("while the host of one API server restarts, the other API servers must serve"),
    nodes::CHECK,
    csrs::CHECK,
    network::CHECK,
    pod_ranges::CHECK,
    mtu::CHECK,
    agent_ports::CHECK,
    host_ports::CHECK,
    network_policies::CHECK,
    budgets::CHECK,
    drain_room::CHECK,
    bare_pods::CHECK,
    local_storage::CHECK,
    single_pods::CHECK,
    pod_webhooks::CHECK,
    autoscalers::CHECK,
    shared::gitops::check("a GitOps controller restores the old network"),
    shared::images::check("every Pod restarts and must be able to pull its images"),
    drain_rights::CHECK,
];

/// Input of the checks of `preflight cni`.
pub struct Cni {
    read: ClusterReader,
    pod_cidr: Vec<ServiceCidr>,
    to: Option<String>,
    daemon_sets: OnceCell<Read<Vec<DaemonSet>>>,
    settings: OnceCell<Read<NetworkSettings>>,
}

impl AsRef<ClusterReader> for Cni {
    fn as_ref(&self) -> &ClusterReader {
        &self.read
    }
}

impl Cni {
    /// Creates the input of the checks. `pod_cidr`: new ranges for Pods. `to`: name of the new CNI, one of [`NetworkPlugin::options`].
    pub async fn new(reached: Connections, pod_cidr: Vec<ServiceCidr>, to: Option<String>) -> Self {
        let read = ClusterReader::begin(reached).await;
        Self { read, pod_cidr, to, daemon_sets: OnceCell::new(), settings: OnceCell::new() }
    }

    async fn daemon_sets(&self) -> Read<&Vec<DaemonSet>> {
        let read = async || self.read.objects().await;
        self.daemon_sets.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Reads the settings from the objects of the CNIs.
    async fn settings(&self) -> Read<&NetworkSettings> {
        let read = async || {
            let sources = settings_sources(&self.read.read_only()?).await?;
            let (agents, nodes) = (self.daemon_sets().await?, self.read.nodes().await?);
            let to = self.to.as_deref().and_then(NetworkPlugin::of_option).map(|(plugin, _)| plugin.name);
            Ok(network_settings::read(&sources, agents, nodes, to))
        };
        self.settings.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }
}

#[cfg(test)]
mod testing {
    //! Pods for tests.

    use crate::inventory::pod::TrimmedPod;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    pub fn typed<K: DeserializeOwned>(object: &Value) -> K {
        serde_json::from_value(object.clone()).unwrap()
    }

    pub fn pod(owner: &Value, volume: &Value) -> TrimmedPod {
        typed(&json!({
            "metadata": {"namespace": "shop", "name": "web", "ownerReferences": owner},
            "spec": {"volumes": [volume]}, "status": {"phase": "Running"},
        }))
    }

    pub fn owned(kind: &str) -> Value {
        json!([{"kind": kind, "controller": true}])
    }
}

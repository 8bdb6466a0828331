//! What the plan reads of the cluster, with a client that cannot change it.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, PersistentVolume};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::controlplane::{CONTROLLER_MANAGER, LocalDetector, document, flags_in_pods};
use crate::inventory::network_plugins::{agent, wanted};
use crate::inventory::network_settings::{self, NetworkSettings, UsedRanges};
use crate::inventory::plugin_reader::{
    PluginPolicies, control_plane_ranges, kubeadm_ranges, objects_in, plugin_policies, settings_sources,
};
use crate::inventory::pod::TrimmedPod;
use crate::inventory::pod_webhooks::{PodWebhooks, admitted_pods};
use crate::inventory::service::TrimmedService;
use crate::inventory::webhook_backends::on_the_host;
use crate::inventory::webhooks::{Webhook, webhooks_for};
use crate::inventory::{Read, unread, unread_by};
use crate::ip::ServiceCidr;
use crate::kube_api::ReadOnly;

/// Flag of the controller manager that turns on its route controller.
const ROUTES: &str = "configure-cloud-routes";

/// Flags of kube-proxy that select its detector of local traffic.
const OF_PROXY: [&str; 4] =
    ["detect-local-mode", "cluster-cidr", "pod-bridge-interface", "pod-interface-name-prefix"];

/// The facts of a cluster.
#[derive(Debug, Clone, Default)]
pub struct ClusterView {
    /// The Nodes.
    pub nodes: Vec<Node>,
    /// The Pods of all namespaces.
    pub pods: Vec<TrimmedPod>,
    /// The Services of all namespaces.
    pub services: Vec<TrimmedService>,
    /// The DaemonSets of all namespaces.
    pub daemon_sets: Vec<DaemonSet>,
    /// The Deployments of all namespaces.
    pub deployments: Vec<Deployment>,
    /// The PodDisruptionBudgets of all namespaces.
    pub budgets: Vec<PodDisruptionBudget>,
    /// The NetworkPolicies of all namespaces.
    pub policies: Vec<NetworkPolicy>,
    /// Policies of kinds that not every CNI enforces.
    pub plugin_policies: Vec<PluginPolicies>,
    /// The PersistentVolumes.
    pub volumes: Vec<PersistentVolume>,
    /// The CertificateSigningRequests.
    pub requests: Vec<CertificateSigningRequest>,
    /// Webhooks that are reached over the Pod network.
    pub webhooks: PodWebhooks,
    /// Names of the served API groups.
    pub groups: BTreeSet<String>,
    /// Settings of the network plug-ins that run.
    pub settings: NetworkSettings,
    /// Ranges of Services and Pods in the control plane.
    pub ranges: UsedRanges,
    /// Ranges for Pods in kubeadm's configuration (`podSubnet`).
    pub kubeadm_ranges: Vec<ServiceCidr>,
    /// By what kube-proxy detects local traffic; `None` if no configuration of kube-proxy was found.
    pub detector: Option<LocalDetector>,
    /// Whether a controller manager creates routes in a cloud for the ranges of Nodes.
    pub has_route_controller: bool,
}

impl ClusterView {
    /// Reads a cluster. `to`: the new plug-in, whose settings are not those of the cluster.
    pub async fn read(cluster: &ReadOnly, to: &str) -> Read<Self> {
        let nodes: Vec<Node> = objects_in(cluster).await?;
        let pods: Vec<TrimmedPod> = objects_in(cluster).await?;
        let daemon_sets: Vec<DaemonSet> = objects_in(cluster).await?;
        let sources = settings_sources(cluster).await?;
        let settings = network_settings::read(&sources, &daemon_sets, &nodes, Some(to));
        Ok(Self {
            services: objects_in(cluster).await?,
            deployments: objects_in(cluster).await?,
            budgets: objects_in(cluster).await?,
            policies: objects_in(cluster).await?,
            plugin_policies: plugin_policies(cluster).await?,
            volumes: objects_in(cluster).await?,
            requests: objects_in(cluster).await?,
            webhooks: webhooks(cluster, &nodes, &pods).await?,
            groups: cluster.groups().await.map_err(unread)?,
            ranges: control_plane_ranges(cluster).await?,
            kubeadm_ranges: kubeadm_ranges(cluster).await?,
            detector: detector(cluster, &daemon_sets).await?,
            has_route_controller: has_route_controller(cluster).await?,
            settings,
            nodes,
            pods,
            daemon_sets,
        })
    }

    /// Returns the agents of network plug-ins that run on at least one node: the plug-in, its image, and its DaemonSet.
    pub fn agents(&self) -> impl Iterator<Item = (&'static str, &str, &DaemonSet)> {
        let running = self.daemon_sets.iter().filter(|one| wanted(one) > 0);
        running.filter_map(|one| agent(one).map(|(plugin, image)| (plugin, image, one)))
    }
}

async fn webhooks(cluster: &ReadOnly, nodes: &[Node], pods: &[TrimmedPod]) -> Read<PodWebhooks> {
    let namespaces: Vec<Namespace> = objects_in(cluster).await?;
    let mutating: Vec<MutatingWebhookConfiguration> = objects_in(cluster).await?;
    let validating: Vec<ValidatingWebhookConfiguration> = objects_in(cluster).await?;
    let (own, all) = admitted_pods(&namespaces, pods);
    let own = webhooks_for(mutating.clone(), validating.clone(), &own);
    let all = webhooks_for(mutating, validating, &all);
    let both: Vec<Webhook> = own.iter().chain(&all).cloned().collect();
    Ok(PodWebhooks::of(&own, &all, &on_the_host(cluster, nodes, &both).await?))
}

/// Reads the flags of kube-proxy's DaemonSet, the configuration that kubeadm stores, or the flags of static Pods.
async fn detector(cluster: &ReadOnly, daemon_sets: &[DaemonSet]) -> Read<Option<LocalDetector>> {
    if let Some(detector) = daemon_sets.iter().find_map(LocalDetector::of_daemon_set) {
        return Ok(Some(detector));
    }
    let found: Option<ConfigMap> = cluster.object(Some("kube-system"), "kube-proxy").await.map_err(unread)?;
    let config = found.and_then(|found| found.data?.remove("config.conf"));
    if let Some(config) = config.and_then(|text| document(&text).ok()) {
        return Ok(Some(LocalDetector::of_config(&config)));
    }
    let found = flags_in_pods(cluster, "kube-proxy", &OF_PROXY).await;
    let found = found.map_err(|failure| unread_by(&failure))?;
    Ok(found.first().map(|(_, flags)| {
        let [mode, range, bridge, prefix] =
            OF_PROXY.map(|name| flags.get(name).map(String::as_str).unwrap_or_default());
        LocalDetector::new(mode, range, [bridge, prefix])
    }))
}

async fn has_route_controller(cluster: &ReadOnly) -> Read<bool> {
    let managers = flags_in_pods(cluster, CONTROLLER_MANAGER, &[ROUTES, "cloud-provider"]).await;
    let managers = managers.map_err(|failure| unread_by(&failure))?;
    // The default is on, but only with a cloud provider in the controller manager.
    Ok(managers.iter().any(|(_, flags)| {
        let is_in_tree =
            flags.get("cloud-provider").is_some_and(|provider| !matches!(provider.as_str(), "" | "external"));
        is_in_tree && flags.get(ROUTES).is_none_or(|value| value != "false")
    }))
}

//! Reads what network plug-ins store in a cluster, with a client that cannot change it.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use super::network_plugins::{PLUGINS, SHARED_POLICIES};
use super::network_settings::{Sources, UsedRanges};
use super::read_error::{Read, unread, unread_by};
use super::retention::Retained;
use super::{list, listed_by};
use crate::controlplane::{API_SERVER, CONTROLLER_MANAGER, flags_in_pods};
use crate::ip::ServiceCidr;
use crate::kube_api::{Collection, ReadOnly};
use crate::wire::yaml::Yaml;

/// A kind of policies that not every CNI enforces, the CNI, and the number of policies.
pub type PluginPolicies = (&'static str, String, usize);

/// Reads the objects of a type in all namespaces. [`Retained`] describes which fields are omitted.
pub async fn objects_in<K: Retained>(cluster: &ReadOnly) -> Read<Vec<K>> {
    cluster.objects_as(None, &|object| Some(K::of(object))).await.map_err(unread)
}

/// Lists the objects of an optional kind; `None` if the cluster does not serve the kind.
pub async fn list_if_served(cluster: &ReadOnly, api_version: &str, kind: &str) -> Read<Option<Vec<Value>>> {
    let collection = Collection::new(api_version, kind, None);
    if !cluster.serves(&collection).await.map_err(unread)? {
        return Ok(None);
    }
    cluster.list_as(&collection, &listed_by).await.map_err(unread).map(Some)
}

/// Reads the objects with settings of network plug-ins.
pub async fn settings_sources(cluster: &ReadOnly) -> Read<Sources> {
    let mut sources = Sources::default();
    for (namespace, name) in PLUGINS.iter().flat_map(|plugin| plugin.config_maps) {
        let found = cluster.object(Some(namespace), name).await.map_err(unread)?;
        sources.config_maps.extend(found);
    }
    for (versions, kind) in PLUGINS.iter().flat_map(|plugin| plugin.settings) {
        for version in *versions {
            let Some(found) = list_if_served(cluster, version, kind).await? else { continue };
            sources.others.extend(found.into_iter().map(|object| (*kind, object)));
            break;
        }
    }
    Ok(sources)
}

/// Counts the policies of the kinds that not every CNI enforces.
pub async fn plugin_policies(cluster: &ReadOnly) -> Read<Vec<PluginPolicies>> {
    let mut found = Vec::new();
    let of_one = PLUGINS
        .iter()
        .flat_map(|plugin| plugin.policies.iter().map(|policy| (policy, format!("{}'s", plugin.name))));
    let of_some = SHARED_POLICIES.iter().map(|policy| (policy, "some CNIs'".to_string()));
    for ((api_version, kind), whose) in of_one.chain(of_some) {
        if let Some(policies) = list_if_served(cluster, api_version, kind).await? {
            found.push((*kind, whose, policies.len()));
        }
    }
    Ok(found)
}

/// Reads the ranges from a flag in the Pods of a control-plane component. Each range has a text that names the flag and the Pod.
pub async fn ranges_told(
    cluster: &ReadOnly,
    component: &str,
    flag: &'static str,
) -> Read<Vec<(String, ServiceCidr)>> {
    let found = flags_in_pods(cluster, component, &[flag]).await;
    let found = found.map_err(|failure| unread_by(&failure))?;
    let mut ranges = Vec::new();
    for (at, flags) in found {
        let told = flags.get(flag).map(String::as_str).unwrap_or_default().split(',');
        let told = told.filter_map(|text| text.trim().parse().ok());
        ranges.extend(told.map(|range| (format!("`--{flag}` of {at}"), range)));
    }
    Ok(ranges)
}

/// Reads the ranges of Services and Pods from flags of the control plane, and from ServiceCIDRs.
pub async fn control_plane_ranges(cluster: &ReadOnly) -> Read<UsedRanges> {
    let told =
        [(API_SERVER, "service-cluster-ip-range", "Services"), (CONTROLLER_MANAGER, "cluster-cidr", "Pods")];
    let mut taken = UsedRanges::new();
    for (component, flag, whose) in told {
        let found = ranges_told(cluster, component, flag).await?;
        taken.extend(found.into_iter().map(|(at, range)| (format!("{whose}: {at}"), range)));
    }
    // API servers serve `v1` from 1.33 on.
    for version in ["networking.k8s.io/v1", "networking.k8s.io/v1beta1"] {
        if let Some(found) = list_if_served(cluster, version, "ServiceCIDR").await? {
            let found = found.iter().flat_map(|object| list(object, "/spec/cidrs"));
            let found = found.filter_map(|text| text.as_str()?.parse().ok());
            taken.extend(found.map(|range| ("Services".to_string(), range)));
            break;
        }
    }
    Ok(taken)
}

/// Reads the ranges for Pods in kubeadm's configuration.
pub async fn kubeadm_ranges(cluster: &ReadOnly) -> Read<Vec<ServiceCidr>> {
    let found: Option<ConfigMap> =
        cluster.object(Some("kube-system"), "kubeadm-config").await.map_err(unread)?;
    let config = found.and_then(|found| found.data?.remove("ClusterConfiguration"));
    Ok(config.map(|config| pod_subnets(&config)).unwrap_or_default())
}

/// Returns `podSubnet` of a configuration of kubeadm, as calico-node reads it (`extractKubeadmCIDRs` in `startup.go`).
fn pod_subnets(config: &str) -> Vec<ServiceCidr> {
    let Ok(yaml) = Yaml::parse(config) else { return Vec::new() };
    let told = yaml.at(&["networking", "podSubnet"]).and_then(|node| yaml.scalar(node)).unwrap_or_default();
    told.split(',').filter_map(|range| range.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_subnets_of_kubeadm_are_read() {
        let of = |config: &str| pod_subnets(config).iter().map(ToString::to_string).collect::<Vec<_>>();
        let config = "kind: ClusterConfiguration\nnetworking:\n  podSubnet: 10.244.0.0/16,fd00::/56\n  serviceSubnet: 10.96.0.0/12\n";
        assert_eq!(of(config), ["10.244.0.0/16", "fd00::/56"]);
        assert_eq!(of("networking: {}\n"), Vec::<String>::new());
    }
}

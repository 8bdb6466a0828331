//! Values in kubeadm's ConfigMaps that record the Service range, or the address of the cluster's DNS.

use crate::ip::ServiceCidr;
use crate::renumber::intention::{Move, RecordChange, Turn};
use crate::store::Key;
use crate::survey::Survey;

/// Returns the values to change: `networking.serviceSubnet` and `clusterDNS`. `kubeadm upgrade` writes the first value to the API
/// server's flag, and the second value to kubelets (`cmd/kubeadm/app/phases/controlplane/manifests.go`,
/// `componentconfigs/kubelet.go`, v1.36.3).
pub(super) fn record_changes(survey: &Survey, to: &ServiceCidr, moves: &[Move]) -> Vec<RecordChange> {
    let change = |config_map: &str, entry: &str, path: &[&str], before: &str, after: String| RecordChange {
        config_map: config_map.into(),
        entry: entry.into(),
        path: path.iter().map(ToString::to_string).collect(),
        before: before.to_string(),
        after,
    };
    let mut changes = Vec::new();
    let of_family =
        |text: &&String| text.parse::<ServiceCidr>().is_ok_and(|range| range.family() == to.family());
    if let Some(old) =
        survey.kubeadm.iter().find_map(|kubeadm| kubeadm.service_subnets.iter().find(of_family))
    {
        let path = ["networking", "serviceSubnet"];
        changes.push(change("kubeadm-config", "ClusterConfiguration", &path, old, to.to_string()));
    }
    for dns in moves.iter().filter(|candidate| candidate.turn == Turn::ClusterDns) {
        let is_old = |text: &&String| text.parse() == Ok(dns.old_address);
        if let Some(old) = survey.cluster_dns.iter().find(is_old) {
            let new = dns.new_address.to_string();
            changes.push(change("kubelet-config", "kubelet", &["clusterDNS"], old, new));
        }
    }
    changes
}

/// Returns the objects that may need a change but cannot be read.
pub(super) fn unread(survey: &Survey) -> Vec<String> {
    let layout = &survey.layout;
    let singles = [layout.kubeadm_config(), layout.kubelet_config()];
    let routers = layout.calico_routers();
    let is_one = |key: &Key| singles.contains(key) || key.as_bytes().starts_with(routers.as_bytes());
    let found = survey.unreadable.iter().filter(|unread| is_one(&unread.key));
    found.map(|unread| format!("`{}`: {}", unread.key, unread.reason)).collect()
}

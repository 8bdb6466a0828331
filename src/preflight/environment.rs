//! The environment of a cluster: GitOps tools, route advertisements, kubeadm's ConfigMaps, the provider of its etcd, and Windows
//! nodes.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, NodeSystemInfo};
use serde_json::Value;

use super::objects::{containers, label, name, words};
use super::{Judged, first_few};
use crate::ip::{ServiceCidr, as_flag};
use crate::words::counted;

/// API groups by which deploy tools are recognized, each with the name of the tool.
const TOOLS: [(&str, &str); 6] = [
    ("kustomize.toolkit.fluxcd.io", "Flux (kustomizations)"),
    ("helm.toolkit.fluxcd.io", "Flux (Helm releases)"),
    ("fleet.cattle.io", "Rancher Fleet"),
    ("configmanagement.gke.io", "Config Management"),
    ("configsync.gke.io", "Config Sync"),
    ("kapp.k14s.io", "Carvel kapp-controller"),
];

/// Checks for GitOps tools by the served API groups. `has_applications`: whether `argoproj.io` has the kind Application. Other
/// tools of Argo use the same group.
pub fn gitops(groups: &BTreeSet<String>, has_applications: bool) -> Judged {
    let mut found: Vec<&str> = has_applications.then_some("Argo CD").into_iter().collect();
    found.extend(TOOLS.iter().filter(|(group, _)| groups.contains(*group)).map(|(_, tool)| *tool));
    if found.is_empty() {
        return Judged::pass("no API group of a known GitOps tool");
    }
    Judged::warn(
        format!("manifests are applied by {}", found.join(", ")),
        "suspend it meanwhile (Argo CD: no automated sync; Flux: `flux suspend`; Fleet: `paused: true`), or lock it out: \
         `netsurgeon lock`, docs/lock.md",
    )
}

/// Checks for components that announce ClusterIPs to external routers. `calico`: number of Calico's lists to which the
/// renumbering adds the new range. `others`: other components, as text.
pub fn announced(calico: usize, others: &[String]) -> Judged {
    if !others.is_empty() {
        return Judged::warn(
            format!("ClusterIPs are announced to routers: {}", others.join(", ")),
            "add the new range to external routers and firewalls before the renumbering, and keep the old one until it is retired",
        );
    }
    if calico > 0 {
        return Judged::pass(format!(
            "announced by Calico; number of lists to which the renumbering adds the new range: {calico}"
        ));
    }
    Judged::pass("no route advertisement of the range was found")
}

/// Returns the names of Cilium's BGP advertisements that include ClusterIPs (`spec.advertisements[].service.addresses`,
/// `pkg/k8s/apis/cilium.io/v2/bgp_advert_types.go`, Cilium v1.18).
pub fn announcing(advertisements: &[Value]) -> impl Iterator<Item = &str> {
    let has = |object: &&Value| {
        let list = object.pointer("/spec/advertisements").and_then(Value::as_array).into_iter().flatten();
        let addresses = |one: &Value| one.pointer("/service/addresses").and_then(Value::as_array).cloned();
        list.filter_map(addresses).flatten().any(|address| address == "ClusterIP")
    };
    advertisements
        .iter()
        .filter(has)
        .filter_map(|object| object.pointer("/metadata/name").and_then(Value::as_str))
}

/// Returns whether a DaemonSet of kube-router announces ClusterIPs: `--advertise-cluster-ip` without a value, or with the value
/// `true` or `1`.
pub fn is_announcing(router: &DaemonSet) -> bool {
    containers(router).iter().flat_map(words).flat_map(str::split_whitespace).any(|word| {
        word.strip_prefix("--advertise-cluster-ip").is_some_and(|rest| matches!(rest, "" | "=true" | "=1"))
    })
}

/// Compares `networking.serviceSubnet` with the present flag of the API servers. `subnets`: `None` if kubeadm's ConfigMap does
/// not exist.
pub fn kubeadm(subnets: Option<&[String]>, flag: &[ServiceCidr]) -> Judged {
    let Some(subnets) = subnets else { return Judged::pass("not a kubeadm cluster") };
    if subnets.is_empty() {
        return Judged::warn(
            "`networking.serviceSubnet` is missing: kubeadm uses its default",
            format!("`kubectl -n kube-system edit configmap kubeadm-config`: set it to `{}`", as_flag(flag)),
        );
    }
    let parsed: BTreeSet<Option<ServiceCidr>> = subnets.iter().map(|text| text.parse().ok()).collect();
    if parsed == flag.iter().copied().map(Some).collect() {
        return Judged::pass(format!("`{}`, as the API servers have it", as_flag(flag)));
    }
    Judged::fail(
        format!("kubeadm-config has `{}`, the API servers have `{}`", subnets.join(","), as_flag(flag)),
        format!(
            "`kubectl -n kube-system edit configmap kubeadm-config`: set `networking.serviceSubnet` to `{}`",
            as_flag(flag)
        ),
    )
}

/// Managed clusters, whose etcd is not reachable: a part of the kubelet's version, a label of Nodes, and the name of the service.
const MANAGED: [(&str, &str, &str); 4] = [
    ("-eks-", "eks.amazonaws.com/nodegroup", "EKS"),
    ("-gke.", "cloud.google.com/gke-nodepool", "GKE"),
    ("-aks", "kubernetes.azure.com/cluster", "AKS"),
    ("-aliyun", "alibabacloud.com/nodepool-id", "ACK"),
];

/// Returns the `nodeInfo` that the kubelet of a Node reports.
fn info(node: &Node) -> Option<&NodeSystemInfo> {
    node.status.as_ref()?.node_info.as_ref()
}

/// Returns why etcd is not reachable, and what to do. `None` if the Nodes do not show a reason.
pub fn without_etcd(nodes: &[Node]) -> Option<(String, &'static str)> {
    for node in nodes {
        let version = info(node).map(|info| info.kubelet_version.as_str()).unwrap_or_default();
        let is_of =
            |(part, name, _): &&(&str, &str, &str)| version.contains(part) || label(node, name).is_some();
        if let Some((.., who)) = MANAGED.iter().find(is_of) {
            let reason = format!(
                "this is a cluster of {who} (kubelet `{version}`), whose etcd the provider manages: its Service range cannot be changed"
            );
            return Some((reason, "create a cluster with the new range, and move the workloads there"));
        }
        let of_etcd = |node: &Node| label(node, "node-role.kubernetes.io/etcd").is_some();
        if version.contains("+k3s") && !nodes.iter().any(of_etcd) {
            let reason = format!(
                "this is a cluster of K3s (kubelet `{version}`) without an etcd Node: it stores its objects in a database behind kine, \
                 which netsurgeon does not support"
            );
            return Some((reason, "move it to etcd first: `k3s server --cluster-init`"));
        }
    }
    None
}

/// Checks for Windows nodes: renumbering is not tested with their kube-proxy. `accepted`: whether `--accept-gap` is given.
pub fn windows(nodes: &[Node], accepted: bool) -> Judged {
    let is_one = |node: &&Node| {
        let said = info(node).map(|info| info.operating_system.as_str());
        [label(*node, "kubernetes.io/os"), said].contains(&Some("windows"))
    };
    let found: Vec<String> = nodes.iter().filter(is_one).map(|node| format!("`{}`", name(node))).collect();
    if found.is_empty() {
        return Judged::pass(format!("none of {} runs Windows", counted(nodes.len(), "Node", "Nodes")));
    }
    let seen = format!(
        "{}: holding old addresses is not tested with their kube-proxy (winkernel)",
        first_few(&found)
    );
    let remedy = "drain and remove them for the renumbering, or accept that their connections may fail: `--accept-gap`";
    if accepted { Judged::warn(seen, remedy) } else { Judged::fail(seen, remedy) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;

    fn node(object: Value) -> Node {
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn deploy_tools_are_recognized_by_their_api_groups() {
        let groups = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        assert_eq!(gitops(&groups(&["apps", "argoproj.io"]), false).verdict, Verdict::Pass, "Argo Workflows");
        let found = gitops(&groups(&["helm.toolkit.fluxcd.io"]), true);
        assert_eq!(found.verdict, Verdict::Warn);
        assert_eq!(found.observed, "manifests are applied by Argo CD, Flux (Helm releases)");
    }

    #[test]
    fn announcing_components_are_a_warning() {
        assert_eq!(announced(0, &[]).verdict, Verdict::Pass);
        assert_eq!(announced(1, &[]).verdict, Verdict::Pass, "the renumbering adds the new range");
        assert_eq!(announced(1, &["kube-router".to_string()]).verdict, Verdict::Warn);
    }

    #[test]
    fn cluster_ip_announcements_are_recognized() {
        let advert = |name: &str, addresses: &[&str]| {
            json!({
                "metadata": {"name": name},
                "spec": {"advertisements": [{"advertisementType": "PodCIDR"}, {"service": {"addresses": addresses}}]},
            })
        };
        let all = [advert("a", &["LoadBalancerIP"]), advert("b", &["ExternalIP", "ClusterIP"])];
        assert_eq!(announcing(&all).collect::<Vec<_>>(), ["b"]);
        let router = |word: &str| -> DaemonSet {
            let pod = json!({"containers": [{"name": "router", "args": ["--run-router", word]}]});
            serde_json::from_value(json!({"spec": {"template": {"spec": pod}}})).unwrap()
        };
        assert!(
            is_announcing(&router("--advertise-cluster-ip=true"))
                && is_announcing(&router("--advertise-cluster-ip"))
        );
        assert!(!is_announcing(&router("--advertise-cluster-ip=false")) && !is_announcing(&router("--v=2")));
    }

    #[test]
    fn kubeadm_subnet_must_match_the_flag() {
        let flag: Vec<ServiceCidr> = ["10.96.0.0/16", "fd00::/112"].map(|text| text.parse().unwrap()).into();
        let judged = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            kubeadm(Some(&texts), &flag).verdict
        };
        assert_eq!(judged(&["fd00::/112", "10.96.0.0/16"]), Verdict::Pass);
        assert_eq!(judged(&["10.96.0.0/12", "fd00::/112"]), Verdict::Fail);
        assert_eq!(judged(&["10.96.0.0/16"]), Verdict::Fail);
        assert_eq!(judged(&["x"]), Verdict::Fail);
        assert_eq!(judged(&[]), Verdict::Warn);
        assert_eq!(kubeadm(None, &flag).verdict, Verdict::Pass);
    }

    #[test]
    fn unreachable_etcd_is_explained() {
        let node = |version: &str, labels: Value| {
            node(json!({"metadata": {"labels": labels}, "status": {"nodeInfo": {"kubeletVersion": version}}}))
        };
        assert_eq!(without_etcd(&[node("v1.36.3", json!({}))]), None);
        let told = |version: &str, labels: Value| without_etcd(&[node(version, labels)]).unwrap();
        assert!(told("v1.33.1-eks-7f2c", json!({})).0.contains("EKS"));
        assert!(told("v1.33.1", json!({"kubernetes.azure.com/cluster": "x"})).0.contains("AKS"));
        let (reason, remedy) = told("v1.33.1+k3s1", json!({}));
        assert!(reason.contains("kine") && remedy.contains("--cluster-init"));
        let with_etcd = node("v1.33.1+k3s1", json!({"node-role.kubernetes.io/etcd": "true"}));
        assert_eq!(without_etcd(&[node("v1.33.1+k3s1", json!({})), with_etcd]), None);
    }

    #[test]
    fn windows_nodes_are_recognized_by_label_and_node_info() {
        let plain = node(json!({"metadata": {"name": "a", "labels": {"kubernetes.io/os": "linux"}}}));
        let labelled = node(json!({"metadata": {"name": "b", "labels": {"kubernetes.io/os": "windows"}}}));
        let said =
            node(json!({"metadata": {"name": "c"}, "status": {"nodeInfo": {"operatingSystem": "windows"}}}));
        assert_eq!(windows(std::slice::from_ref(&plain), false).verdict, Verdict::Pass);
        assert_eq!(windows(&[plain.clone(), labelled], false).verdict, Verdict::Fail);
        assert_eq!(windows(&[plain, said], true).verdict, Verdict::Warn);
    }
}

//! What is looked at before the network of Pods is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;
use tokio::sync::OnceCell;

use super::CniArgs;
use super::reading::{Read, Reading, carry_out, own_routes, unread};
use crate::cluster::Collection;
use crate::ip::ServiceCidr;
use crate::preflight::cni::{OWN_POLICIES, Taken};
use crate::preflight::selectors::labels;
use crate::preflight::webhooks::{Admitted, Called, Written, called};
use crate::preflight::{CNI, Check, Judged, cni, drain, text};

/// Where CNIs run, by their own manifests and kubeadm's add-ons.
const HOMES: [&str; 7] = [
    "kube-system",
    "kube-flannel",
    "calico-system",
    "tigera-operator",
    "cilium",
    "openshift-ovn-kubernetes",
    "ovn-kubernetes",
];

/// What draining every node, and another network on it, does through the API.
const RIGHTS: &[(&[&str], (&str, &str))] = &[
    (&["get", "list", "patch"], ("", "nodes")),
    (&["get", "list", "delete"], ("", "pods")),
    (&["create"], ("", "pods/eviction")),
    (&["list"], ("policy", "poddisruptionbudgets")),
    (&["get", "list", "create", "patch", "delete"], ("apps", "daemonsets")),
    (&["get", "create", "patch", "delete"], ("", "configmaps")),
];

/// What the checks look at.
struct Looking<'a> {
    read: Reading,
    pod_cidr: &'a [ServiceCidr],
    pods: OnceCell<Read<Vec<Value>>>,
    nodes: OnceCell<Read<Vec<Value>>>,
}

/// Carries the checks out.
pub(super) async fn look(args: &CniArgs) -> Vec<Check> {
    let looking = Looking {
        read: Reading::begin(&args.etcd, &args.kube).await,
        pod_cidr: &args.pod_cidr,
        pods: OnceCell::new(),
        nodes: OnceCell::new(),
    };
    carry_out(CNI, &args.asked, async |name| looking.judge(name).await).await
}

impl Looking<'_> {
    async fn judge(&self, name: &str) -> Read<Judged> {
        let list = async |api_version, kind| self.read.list(api_version, kind).await;
        match name {
            "nodes" => Ok(drain::nodes(self.nodes().await?)),
            "csrs" => {
                let found = list("certificates.k8s.io/v1", "CertificateSigningRequest").await?;
                Ok(drain::requests(&found))
            }
            "network" => Ok(cni::present(&list("apps/v1", "DaemonSet").await?)),
            "pod-ranges" => self.ranges().await,
            "network-policies" => self.policies().await,
            "budgets" => Ok(drain::budgets(&list("policy/v1", "PodDisruptionBudget").await?)),
            "bare-pods" => Ok(drain::bare(self.pods().await?)),
            "local-storage" => Ok(drain::local(self.pods().await?, &list("v1", "PersistentVolume").await?)),
            "single-pods" => {
                let mut found = list("apps/v1", "Deployment").await?;
                found.extend(list("apps/v1", "StatefulSet").await?);
                Ok(drain::single(&found))
            }
            "pod-webhooks" => self.webhooks().await,
            "autoscalers" => {
                let groups = self.read.cluster()?.groups().await.map_err(unread)?;
                let deployments = list("apps/v1", "Deployment").await?;
                Ok(drain::autoscalers(&deployments, groups.contains("karpenter.sh")))
            }
            "drain-rights" => self.read.rights(RIGHTS, "this").await,
            other => self.read.judge(other).await,
        }
    }

    async fn pods(&self) -> Read<&Vec<Value>> {
        let read = async || self.read.list("v1", "Pod").await;
        self.pods.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    async fn nodes(&self) -> Read<&Vec<Value>> {
        let read = async || self.read.list("v1", "Node").await;
        self.nodes.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// The ranges of Pods and Services, and the addresses of nodes, against the new one.
    async fn ranges(&self) -> Read<Judged> {
        let mut taken: Taken = Vec::new();
        for node in self.nodes().await? {
            let name = text(node, "/metadata/name");
            let found = node.pointer("/spec/podCIDRs").and_then(Value::as_array).into_iter().flatten();
            let found = found.filter_map(|range| range.as_str()?.parse().ok());
            taken.extend(found.map(|range| (format!("Pods of node `{name}`"), range)));
        }
        for version in ["networking.k8s.io/v1", "networking.k8s.io/v1beta1"] {
            let cluster = self.read.cluster()?;
            if cluster.serves(&Collection::new(version, "ServiceCIDR", None)).await.map_err(unread)? {
                for object in self.read.list(version, "ServiceCIDR").await? {
                    let found = object.pointer("/spec/cidrs").and_then(Value::as_array).into_iter().flatten();
                    let found = found.filter_map(|range| range.as_str()?.parse().ok());
                    taken.extend(found.map(|range| ("Services".to_string(), range)));
                }
                break;
            }
        }
        let nodes = self.read.cluster()?.nodes().await.map_err(unread)?;
        let addresses: Vec<(String, IpAddr)> = nodes
            .into_iter()
            .flat_map(|node| {
                node.internal_ips.into_iter().map(move |ip| (format!("node `{}`", node.name), ip))
            })
            .collect();
        Ok(cni::ranges(self.pod_cidr, &taken, &addresses, &own_routes()?))
    }

    async fn policies(&self) -> Read<Judged> {
        let standard = self.read.list("networking.k8s.io/v1", "NetworkPolicy").await?.len();
        let mut own = Vec::new();
        for (api_version, kind, whose) in OWN_POLICIES {
            if self.read.cluster()?.serves(&Collection::new(api_version, kind, None)).await.map_err(unread)? {
                own.push((kind, whose, self.read.list(api_version, kind).await?.len()));
            }
        }
        Ok(cni::policies(standard, &own))
    }

    /// Webhooks that are asked about Pods: those of the CNI, and all.
    async fn webhooks(&self) -> Read<Judged> {
        let namespaces = self.read.list("v1", "Namespace").await?;
        let namespaces: BTreeMap<String, _> =
            namespaces.iter().map(|one| (text(one, "/metadata/name").to_string(), labels(one))).collect();
        let is_home = |pod: &&Value| HOMES.contains(&text(pod, "/metadata/namespace"));
        let pods = self.pods().await?;
        let admitted = |pod: &Value| Written::of(Admitted::Pod, pod, &namespaces);
        let own: Vec<Written> = pods.iter().filter(is_home).filter_map(admitted).collect();
        let all: Vec<Written> = pods.iter().filter_map(admitted).collect();
        let (mut of_own, mut of_all) = (Vec::new(), Vec::new());
        for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
            let found = self.read.list("admissionregistration.k8s.io/v1", kind).await?;
            of_own.extend(called(kind, &found, &own));
            of_all.extend(called(kind, &found, &all));
        }
        let on_the_host = self.on_the_host(&of_all).await?;
        Ok(cni::webhooks(&of_own, &of_all, &on_the_host))
    }

    /// The Services of webhooks all of whose endpoints are addresses of nodes.
    async fn on_the_host(&self, webhooks: &[Called]) -> Read<BTreeSet<(String, String)>> {
        let cluster = self.read.cluster()?;
        let nodes = cluster.nodes().await.map_err(unread)?;
        let of_nodes: BTreeSet<String> =
            nodes.iter().flat_map(|node| &node.internal_ips).map(ToString::to_string).collect();
        let mut found = BTreeSet::new();
        for (namespace, name) in webhooks.iter().filter_map(|webhook| webhook.service.clone()) {
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

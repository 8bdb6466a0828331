//! What is looked at before the network of Pods is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::str::FromStr;

use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::permissions;
use super::reading::{Read, Reading, carry_out, own_routes, unread};
use super::{Reached, Selection};
use crate::cluster::{Collection, Node, ObjectRef};
use crate::controlplane::{API_SERVER, CONTROLLER_MANAGER};
use crate::ip::ServiceCidr;
use crate::preflight::cni::settings::{self, Settings};
use crate::preflight::cni::{OWN_POLICIES, Taken, emptied, host_ports};
use crate::preflight::selectors::{Labels, labels};
use crate::preflight::webhooks::{Admitted, Called, Written};
use crate::preflight::{CNI, Check, CniCheck, Judged, cni, drain, subject, text};

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

/// What the checks look at.
struct Looking<'a> {
    read: Reading,
    pod_cidr: &'a [ServiceCidr],
    to: Option<&'a str>,
    daemon_sets: OnceCell<Read<Vec<Value>>>,
    settings: OnceCell<Read<Settings>>,
}

/// What is to come.
pub struct Coming<'a> {
    /// The ranges that the new network gives to Pods.
    pub pod_cidr: &'a [ServiceCidr],
    /// The CNI, by name.
    pub to: Option<&'a str>,
}

/// Carries the checks out.
pub async fn look(reached: Reached, coming: &Coming<'_>, asked: &Selection) -> Vec<Check> {
    let looking = Looking {
        read: Reading::begin(reached).await,
        pod_cidr: coming.pod_cidr,
        to: coming.to,
        daemon_sets: OnceCell::new(),
        settings: OnceCell::new(),
    };
    carry_out(CNI, asked, async |check| looking.judge(check).await).await
}

impl Looking<'_> {
    async fn judge(&self, check: CniCheck) -> Read<Judged> {
        let list = async |api_version, kind| self.read.list(api_version, kind).await;
        match check {
            CniCheck::Nodes => Ok(drain::nodes(self.read.raw_nodes().await?)),
            CniCheck::Csrs => {
                let found = list("certificates.k8s.io/v1", "CertificateSigningRequest").await?;
                Ok(drain::requests(&found))
            }
            CniCheck::Network => Ok(cni::present(self.daemon_sets().await?)),
            CniCheck::PodRanges => self.ranges().await,
            CniCheck::Mtu => Ok(settings::mtu(self.settings().await?)),
            CniCheck::AgentPorts => {
                Ok(host_ports::wanted(self.to, self.settings().await?, self.read.raw_pods().await?))
            }
            CniCheck::HostPorts => Ok(host_ports::mapped(self.read.raw_pods().await?)),
            CniCheck::NetworkPolicies => self.policies().await,
            CniCheck::Budgets => {
                let found = list("policy/v1", "PodDisruptionBudget").await?;
                Ok(drain::budgets(&found, self.read.raw_pods().await?))
            }
            CniCheck::DrainRoom => {
                Ok(emptied::judge(self.read.raw_nodes().await?, self.read.raw_pods().await?))
            }
            CniCheck::BarePods => Ok(drain::bare(self.read.raw_pods().await?)),
            CniCheck::LocalStorage => {
                Ok(drain::local(self.read.raw_pods().await?, &list("v1", "PersistentVolume").await?))
            }
            CniCheck::SinglePods => {
                let mut found = list("apps/v1", "Deployment").await?;
                found.extend(list("apps/v1", "StatefulSet").await?);
                Ok(drain::single(&found))
            }
            CniCheck::PodWebhooks => self.webhooks().await,
            CniCheck::Autoscalers => {
                let groups = self.read.cluster()?.groups().await.map_err(unread)?;
                let deployments = list("apps/v1", "Deployment").await?;
                Ok(drain::autoscalers(&deployments, groups.contains("karpenter.sh")))
            }
            CniCheck::DrainRights => self.read.rights(&permissions::CNI).await,
            CniCheck::Shared(check) => self.read.judge(check).await,
        }
    }

    /// The ranges and addresses of Pods and Services, and those of nodes, against the new one.
    async fn ranges(&self) -> Read<Judged> {
        let mut taken = self.flags().await?;
        taken.extend(self.settings().await?.pools.iter().cloned());
        for node in self.read.raw_nodes().await? {
            let whose = format!("Pods of node `{}`", text(node, "/metadata/name"));
            taken.extend(parsed(node, "/spec/podCIDRs").map(|range| (whose.clone(), range)));
        }
        for version in ["networking.k8s.io/v1", "networking.k8s.io/v1beta1"] {
            if let Some(found) = self.read.list_if_served(version, "ServiceCIDR").await? {
                let found = found.iter().flat_map(|object| parsed(object, "/spec/cidrs"));
                taken.extend(found.map(|range| ("Services".to_string(), range)));
                break;
            }
        }
        let mut addresses: Vec<(String, IpAddr)> = Vec::new();
        for node in self.read.nodes().await?.iter().map(Node::of) {
            addresses.extend(node.internal_ips.iter().map(|ip| (format!("node `{}`", node.name), *ip)));
        }
        for service in self.read.raw_services().await? {
            let found = parsed(service, "/spec/clusterIPs");
            addresses.extend(found.map(|address| (format!("Service {}", subject(service)), address)));
        }
        for pod in self.read.raw_pods().await? {
            let found = pod.pointer("/status/podIPs").and_then(Value::as_array).into_iter().flatten();
            let found = found.filter_map(|one| text(one, "/ip").parse().ok());
            addresses.extend(found.map(|address| (format!("Pod {}", subject(pod)), address)));
        }
        Ok(cni::ranges(self.pod_cidr, &taken, &addresses, &own_routes()?))
    }

    async fn daemon_sets(&self) -> Read<&Vec<Value>> {
        let read = async || self.read.list("apps/v1", "DaemonSet").await;
        self.daemon_sets.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// What CNIs keep in objects of their own.
    async fn settings(&self) -> Read<&Settings> {
        let read = async || {
            let mut objects = Vec::new();
            for (namespace, name) in settings::CONFIG_MAPS {
                let object =
                    ObjectRef { collection: Collection::new("v1", "ConfigMap", Some(namespace)), name };
                let found = self.read.cluster()?.get(&object).await.map_err(unread)?;
                objects.extend(found.map(|object| ("ConfigMap", object)));
            }
            for (versions, kind) in settings::KINDS {
                for version in versions {
                    let Some(found) = self.read.list_if_served(version, kind).await? else { continue };
                    objects.extend(found.into_iter().map(|object| (kind, object)));
                    break;
                }
            }
            let (agents, nodes) = (self.daemon_sets().await?, self.read.raw_nodes().await?);
            Ok(settings::read(&objects, agents, nodes, self.to.and_then(host_ports::whose)))
        };
        self.settings.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// The ranges that are told to API servers and controller managers, as their Pods have them.
    async fn flags(&self) -> Read<Taken> {
        let told = [
            (API_SERVER, "service-cluster-ip-range", "Services"),
            (CONTROLLER_MANAGER, "cluster-cidr", "Pods"),
        ];
        let mut taken = Taken::new();
        for (component, flag, whose) in told {
            let found = self.read.ranges_told(component, flag).await?;
            taken.extend(found.into_iter().map(|(at, range)| (format!("{whose}: {at}"), range)));
        }
        Ok(taken)
    }

    async fn policies(&self) -> Read<Judged> {
        let standard = self.read.list("networking.k8s.io/v1", "NetworkPolicy").await?.len();
        let mut own = Vec::new();
        for (api_version, kind, whose) in OWN_POLICIES {
            if let Some(found) = self.read.list_if_served(api_version, kind).await? {
                own.push((kind, whose, found.len()));
            }
        }
        Ok(cni::policies(standard, &own))
    }

    /// Webhooks that are asked about Pods: those of the CNI, and all.
    async fn webhooks(&self) -> Read<Judged> {
        let found = self.read.list("v1", "Namespace").await?;
        let named =
            |name: &str| Labels::from([("kubernetes.io/metadata.name".to_string(), name.to_string())]);
        let mut namespaces: BTreeMap<String, Labels> =
            HOMES.iter().map(|home| ((*home).to_string(), named(home))).collect();
        namespaces.extend(found.iter().map(|one| (text(one, "/metadata/name").to_string(), labels(one))));
        let admitted = |pod: &Value| Written::of(Admitted::Pod, &metadata(pod), &namespaces);
        let all: BTreeSet<Written> = self.read.raw_pods().await?.iter().filter_map(admitted).collect();
        let all: Vec<Written> = all.into_iter().collect();
        // The one to come has no Pods yet, and perhaps no namespace.
        let own: Vec<Written> =
            HOMES.iter().filter_map(|home| admitted(&json!({"metadata": {"namespace": home}}))).collect();
        let (of_own, of_all) = (self.read.called(&own).await?, self.read.called(&all).await?);
        let both: Vec<Called> = of_own.iter().chain(&of_all).cloned().collect();
        Ok(cni::webhooks(&of_own, &of_all, &self.read.on_the_host(&both).await?))
    }
}

/// The texts in a list of an object that can be read as something.
fn parsed<T: FromStr>(object: &Value, path: &str) -> impl Iterator<Item = T> {
    let list = object.pointer(path).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|text| text.as_str()?.parse().ok())
}

// until the merge
fn metadata(object: &Value) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
    serde_json::from_value(object.get("metadata").cloned().unwrap_or_default()).unwrap_or_default()
}

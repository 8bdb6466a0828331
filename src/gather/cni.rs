//! Reads the input of the checks of `preflight cni`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::str::FromStr;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::permissions;
use super::reading::{Read, Reading, carry_out, own_routes, unread};
use super::{Reached, Selection};
use crate::controlplane::{API_SERVER, CONTROLLER_MANAGER};
use crate::ip::ServiceCidr;
use crate::kube_api::Node;
use crate::preflight::cni::settings::{self, Settings, Sources};
use crate::preflight::cni::{OWN_POLICIES, Taken, drain_capacity, host_ports};
use crate::preflight::objects::{labels, name, subject};
use crate::preflight::selectors::Labels;
use crate::preflight::webhooks::{Admitted, Called, Written};
use crate::preflight::{CNI, Check, CniCheck, Judged, cni, drain, list};

/// Namespaces of CNIs, from the manifests of the CNIs and from kubeadm's add-ons.
const HOMES: [&str; 7] = [
    "kube-system",
    "kube-flannel",
    "calico-system",
    "tigera-operator",
    "cilium",
    "openshift-ovn-kubernetes",
    "ovn-kubernetes",
];

/// Input of the checks of `preflight cni`.
struct Looking<'a> {
    read: Reading,
    pod_cidr: &'a [ServiceCidr],
    to: Option<&'a str>,
    daemon_sets: OnceCell<Read<Vec<DaemonSet>>>,
    settings: OnceCell<Read<Settings>>,
}

/// The new Pod network.
pub struct Coming<'a> {
    /// New ranges for Pods.
    pub pod_cidr: &'a [ServiceCidr],
    /// Name of the new CNI.
    pub to: Option<&'a str>,
}

/// Runs the checks of `preflight cni`.
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
        match check {
            CniCheck::Nodes => Ok(drain::nodes(self.read.nodes().await?)),
            CniCheck::Csrs => Ok(drain::requests(&self.read.objects().await?)),
            CniCheck::Network => Ok(cni::present(self.daemon_sets().await?)),
            CniCheck::PodRanges => self.ranges().await,
            CniCheck::Mtu => Ok(settings::mtu(self.settings().await?)),
            CniCheck::AgentPorts => {
                Ok(host_ports::wanted(self.to, self.settings().await?, self.read.pods().await?))
            }
            CniCheck::HostPorts => Ok(host_ports::mapped(self.read.pods().await?)),
            CniCheck::NetworkPolicies => self.policies().await,
            CniCheck::Budgets => Ok(drain::budgets(&self.read.objects().await?, self.read.pods().await?)),
            CniCheck::DrainRoom => {
                Ok(drain_capacity::judge(self.read.nodes().await?, self.read.pods().await?))
            }
            CniCheck::BarePods => Ok(drain::bare(self.read.pods().await?)),
            CniCheck::LocalStorage => Ok(drain::local(self.read.pods().await?, &self.read.objects().await?)),
            CniCheck::SinglePods => {
                Ok(drain::single(&self.read.objects().await?, &self.read.objects().await?))
            }
            CniCheck::PodWebhooks => self.webhooks().await,
            CniCheck::Autoscalers => {
                let groups = self.read.cluster()?.groups().await.map_err(unread)?;
                Ok(drain::autoscalers(&self.read.objects().await?, groups.contains("karpenter.sh")))
            }
            CniCheck::DrainRights => self.read.rights(&permissions::CNI).await,
            CniCheck::Shared(check) => self.read.judge(check).await,
        }
    }

    /// Compares the new ranges with ranges and addresses of Pods, Services and nodes.
    async fn ranges(&self) -> Read<Judged> {
        let mut taken = self.flags().await?;
        taken.extend(self.settings().await?.pools.iter().cloned());
        let nodes = self.read.nodes().await?;
        for node in nodes {
            let whose = format!("Pods of node `{}`", name(node));
            let found = node.spec.iter().flat_map(|spec| spec.pod_cidrs.iter().flatten());
            taken.extend(parsed(found).map(|range| (whose.clone(), range)));
        }
        // API servers serve `v1` from 1.33 on.
        for version in ["networking.k8s.io/v1", "networking.k8s.io/v1beta1"] {
            if let Some(found) = self.read.list_if_served(version, "ServiceCIDR").await? {
                let found = found.iter().flat_map(|object| list(object, "/spec/cidrs"));
                let found = parsed(found.filter_map(Value::as_str));
                taken.extend(found.map(|range| ("Services".to_string(), range)));
                break;
            }
        }
        let mut addresses: Vec<(String, IpAddr)> = Vec::new();
        for node in nodes.iter().map(Node::of) {
            addresses.extend(node.internal_ips.iter().map(|ip| (format!("node `{}`", node.name), *ip)));
        }
        for service in self.read.services().await? {
            let found = service.spec.iter().flat_map(|spec| spec.cluster_ips.iter().flatten());
            addresses.extend(parsed(found).map(|address| (format!("Service {}", subject(service)), address)));
        }
        for pod in self.read.pods().await? {
            let found = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
            let found = parsed(found.map(|one| &one.ip));
            addresses.extend(found.map(|address| (format!("Pod {}", subject(pod)), address)));
        }
        Ok(cni::ranges(self.pod_cidr, &taken, &addresses, &own_routes()?))
    }

    async fn daemon_sets(&self) -> Read<&Vec<DaemonSet>> {
        let read = async || self.read.objects().await;
        self.daemon_sets.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Reads the settings in the objects of the CNIs.
    async fn settings(&self) -> Read<&Settings> {
        let read = async || {
            let mut sources = Sources::default();
            for (namespace, name) in settings::CONFIG_MAPS {
                let found = self.read.cluster()?.object(Some(namespace), name).await.map_err(unread)?;
                sources.config_maps.extend(found);
            }
            for (versions, kind) in settings::KINDS {
                for version in versions {
                    let Some(found) = self.read.list_if_served(version, kind).await? else { continue };
                    sources.others.extend(found.into_iter().map(|object| (kind, object)));
                    break;
                }
            }
            let (agents, nodes) = (self.daemon_sets().await?, self.read.nodes().await?);
            Ok(settings::read(&sources, agents, nodes, self.to.and_then(host_ports::whose)))
        };
        self.settings.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the ranges in the flags of API servers and controller managers, read from their Pods.
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
        let standard = self.read.objects::<NetworkPolicy>().await?.len();
        let mut own = Vec::new();
        for (api_version, kind, whose) in OWN_POLICIES {
            if let Some(found) = self.read.list_if_served(api_version, kind).await? {
                own.push((kind, whose, found.len()));
            }
        }
        Ok(cni::policies(standard, &own))
    }

    /// Checks the webhooks that are called for the Pods of a CNI, and those that are called for any Pod.
    async fn webhooks(&self) -> Read<Judged> {
        let found: Vec<Namespace> = self.read.objects().await?;
        let named =
            |name: &str| Labels::from([("kubernetes.io/metadata.name".to_string(), name.to_string())]);
        let mut namespaces: BTreeMap<String, Labels> =
            HOMES.iter().map(|home| ((*home).to_string(), named(home))).collect();
        namespaces.extend(found.iter().map(|one| (name(one).to_string(), labels(one).clone())));
        let admitted = |pod: &ObjectMeta| Written::of(Admitted::Pod, pod, &namespaces);
        let pods = self.read.pods().await?.iter().map(|pod| &pod.metadata);
        let all: BTreeSet<Written> = pods.filter_map(admitted).collect();
        let all: Vec<Written> = all.into_iter().collect();
        // The new CNI has no Pods yet, and perhaps no namespace.
        let there =
            |home: &&str| ObjectMeta { namespace: Some((*home).to_string()), ..ObjectMeta::default() };
        let own: Vec<Written> = HOMES.iter().map(there).filter_map(|pod| admitted(&pod)).collect();
        let (of_own, of_all) = (self.read.called(&own).await?, self.read.called(&all).await?);
        let both: Vec<Called> = of_own.iter().chain(&of_all).cloned().collect();
        Ok(cni::webhooks(&of_own, &of_all, &self.read.on_the_host(&both).await?))
    }
}

/// Parses the texts, and drops invalid ones.
fn parsed<T: FromStr>(texts: impl Iterator<Item = impl AsRef<str>>) -> impl Iterator<Item = T> {
    texts.filter_map(|text| text.as_ref().parse().ok())
}

//! The parts of a survey.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use super::{EraEvidence, Layout};
use crate::ip::{Family, ServiceCidr};
use crate::store::{Key, Revision};
use crate::wire::objects::{ALLOCATOR, Encoding, MOVING, NETSURGEON};
use crate::wire::{Pairs, ServicePort, ServiceSpec, StoredService, Text};

/// All objects with Service addresses, at one revision.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The revision.
    pub revision: Revision,
    /// The layout of the keys.
    pub layout: Layout,
    /// The uid of the namespace `kube-system`, by convention the identity of a cluster.
    pub cluster_id: Option<String>,
    /// Where the cluster stores its allocations.
    pub era: EraEvidence,
    /// All Services, by namespace and name.
    pub services: Vec<ServiceRecord>,
    /// All IPAddress objects, by address as text.
    pub addresses: Vec<AddressRecord>,
    /// API version in which the first of them is stored, as in `networking.k8s.io/v1`.
    pub ip_address_version: Option<String>,
    /// All ServiceCIDR objects, by name.
    pub service_cidrs: Vec<CidrRecord>,
    /// The RangeAllocation objects, by name.
    pub bitmaps: Vec<BitmapRecord>,
    /// All Nodes.
    pub nodes: Vec<NodeRecord>,
    /// The addresses of Pods that do not use their node's network.
    pub pods: Vec<PodAddress>,
    /// kubeadm's own configuration of the ranges, if there is one.
    pub kubeadm: Option<KubeadmConfig>,
    /// `clusterDNS` in the configuration that kubeadm gives kubelets.
    pub cluster_dns: Vec<String>,
    /// Whether NodeLocal DNSCache is installed, by its DaemonSet.
    pub has_node_local_dns: bool,
    /// The Service ranges that Calico announces: the name of each BGPConfiguration, and its `spec.serviceClusterIPs`.
    pub announced: Vec<(String, serde_json::Value)>,
    /// What shows how Services are routed.
    pub routing: Routing,
    /// The encoding of Services in etcd: new objects get the same.
    pub encoding: Encoding,
    /// Namespaces and names of the Services behind webhooks and aggregated APIs, in order, each once.
    pub api_backends: Vec<(Text, Text)>,
    /// By a Service's key, the value of the requested annotation; empty if none was requested.
    pub annotations: BTreeMap<Key, Text>,
    /// Objects that cannot be read and are not required.
    pub unreadable: Vec<Unreadable>,
}

/// One Service.
#[derive(Debug, Clone)]
pub struct ServiceRecord {
    /// Its key.
    pub key: Key,
    /// Revision of its last change.
    pub mod_revision: Revision,
    /// Namespace.
    pub namespace: Text,
    /// Name.
    pub name: Text,
    /// uid.
    pub uid: Text,
    /// Labels.
    pub labels: Pairs,
    /// Whether it was deleted, and a finalizer keeps it.
    pub is_being_deleted: bool,
    /// Its finalizers.
    pub finalizers: Vec<Text>,
    /// Its spec, as far as `proto/` knows it.
    pub spec: ServiceSpec,
    /// The valid addresses of `clusterIPs`.
    pub addresses: Vec<IpAddr>,
}

impl ServiceRecord {
    /// Returns the record of a key's value at a revision.
    pub fn of(key: Key, mod_revision: Revision, service: StoredService) -> Self {
        Self {
            key,
            mod_revision,
            namespace: service.namespace,
            name: service.name,
            uid: service.uid,
            labels: service.labels,
            is_being_deleted: service.is_being_deleted,
            finalizers: service.finalizers,
            addresses: service.spec.addresses(),
            spec: service.spec,
        }
    }

    /// Returns `namespace/name`.
    pub fn subject(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the Service's type; ClusterIP if it has none.
    pub fn kind(&self) -> &str {
        self.spec.r#type.as_deref().filter(|kind| !kind.is_empty()).unwrap_or("ClusterIP")
    }

    /// Returns the address of a family.
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| Family::of(*address) == family)
    }

    /// Whether the Service has an address among its external IPs.
    pub fn has_external_ip(&self, address: IpAddr) -> bool {
        self.spec.external_ips.iter().any(|text| text.parse() == Ok(address))
    }

    /// Returns its addresses as they are written; only `clusterIP` if there is no list.
    pub fn listed(&self) -> Vec<Text> {
        match self.spec.cluster_ips.as_slice() {
            [] => self.spec.cluster_ip.iter().cloned().collect(),
            list => list.to_vec(),
        }
    }

    /// Whether the Service is `default/kubernetes`, the API servers' own.
    pub fn is_kubernetes(&self) -> bool {
        self.namespace == "default" && self.name == "kubernetes"
    }

    /// Whether the Service has netsurgeon's label. Any client can set that label: a shadow is identified by the plan
    /// of its operation.
    pub fn is_labelled_ours(&self) -> bool {
        self.labels.get("app.kubernetes.io/managed-by").is_some_and(|who| who == NETSURGEON)
    }

    /// Whether a renumbering keeps it while a shadow has the same address.
    pub fn is_moving(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == MOVING)
    }

    /// Whether it was deleted, and only netsurgeon and the garbage collector keep it: a Service that waits for the removal of its
    /// load balancer can serve for weeks.
    pub fn is_going(&self) -> bool {
        let is_passing = |finalizer: &Text| [MOVING, "foregroundDeletion", "orphan"].contains(&&**finalizer);
        self.is_being_deleted && self.finalizers.iter().all(is_passing)
    }

    /// Whether it was deleted and has no finalizer any more, so that only another delete request removes
    /// it. This happens if a finalizer is removed in etcd.
    pub fn is_left_over(&self) -> bool {
        self.is_being_deleted && self.finalizers.is_empty()
    }

    /// Whether the Service is the sentinel of a barrier: in `kube-system`, where tenants create nothing.
    pub fn is_sentinel(&self) -> bool {
        self.namespace == "kube-system"
            && self.is_labelled_ours()
            && self.labels.get("netsurgeon.io/part").is_some_and(|part| part == "barrier")
    }

    /// Whether the Service is the cluster's DNS by its name or label: in `kube-system`, named kube-dns or coredns, or
    /// with the label `k8s-app=kube-dns`, which most installers set on both.
    pub fn is_named_as_dns(&self) -> bool {
        self.namespace == "kube-system"
            && (matches!(self.name.as_str(), "kube-dns" | "coredns")
                || self.labels.get("k8s-app").is_some_and(|app| app == "kube-dns"))
    }

    /// Returns the Service's node ports.
    pub fn node_ports(&self) -> impl Iterator<Item = u16> + '_ {
        let port = |port: &ServicePort| port.node_port.unwrap_or(0);
        let health = self.spec.health_check_node_port.unwrap_or(0);
        self.spec
            .ports
            .iter()
            .map(port)
            .chain([health])
            .filter_map(|p| u16::try_from(p).ok())
            .filter(|p| *p > 0)
    }
}

/// One IPAddress object.
#[derive(Debug, Clone)]
pub struct AddressRecord {
    /// Its key.
    pub key: Key,
    /// Revision of its creation.
    pub create_revision: Revision,
    /// Revision of its last change.
    pub mod_revision: Revision,
    /// The name of the object.
    pub name: Text,
    /// The address in the name, if it is one.
    pub address: Option<IpAddr>,
    /// Namespace and name of the Service that it refers to.
    pub parent: (Text, Text),
    /// Value of the label `ipaddress.kubernetes.io/managed-by`.
    pub managed_by: Manager,
    /// Its creation time, in seconds since 1970.
    pub created: Option<i64>,
}

/// The manager of an IPAddress object, from its label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manager {
    /// The API server's allocator.
    Allocator,
    /// Another controller, or none (empty).
    Other(String),
}

impl From<&str> for Manager {
    fn from(label: &str) -> Self {
        match label {
            ALLOCATOR => Self::Allocator,
            other => Self::Other(other.to_string()),
        }
    }
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allocator => ALLOCATOR,
            Self::Other(label) => label,
        })
    }
}

/// One ServiceCIDR object.
#[derive(Debug, Clone)]
pub struct CidrRecord {
    /// Its key.
    pub key: Key,
    /// Name; `kubernetes` is the one that the API server creates from its flag.
    pub name: String,
    /// Its ranges: one, or one of each family.
    pub ranges: Vec<ServiceCidr>,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// One RangeAllocation object.
#[derive(Debug, Clone)]
pub struct BitmapRecord {
    /// Its key.
    pub key: Key,
    /// `serviceips`, `secondaryserviceips` or `servicenodeports`.
    pub name: String,
    /// Revision of its last change.
    pub mod_revision: Revision,
    /// The range as it is written.
    pub range: String,
    /// The bitmap as it is stored.
    pub data: Vec<u8>,
}

impl BitmapRecord {
    /// Returns the range, if it is one of addresses.
    pub fn cidr(&self) -> Option<ServiceCidr> {
        self.range.parse().ok()
    }
}

/// One Node.
#[derive(Debug, Clone)]
pub struct NodeRecord {
    /// Name.
    pub name: String,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<ServiceCidr>,
    /// `status.addresses` that are addresses.
    pub addresses: Vec<IpAddr>,
    /// `status.nodeInfo.operatingSystem`: `linux` or `windows`; empty if it is not set.
    pub operating_system: String,
    /// `status.nodeInfo.kubeletVersion`, as in `v1.36.3`; empty if it is not set.
    pub kubelet_version: String,
}

/// The stored configuration of the component that routes Services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routing {
    /// The entry `config.conf` of the ConfigMap `kube-system/kube-proxy`, the configuration of kubeadm's kube-proxy.
    pub proxy_config: Option<String>,
    /// The containers of kube-proxy.
    pub proxies: Vec<ProxyContainer>,
    /// The entry `kube-proxy-replacement` of Cilium's ConfigMap.
    pub cilium_replacement: Option<String>,
}

/// A container of kube-proxy in a Pod of `kube-system`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyContainer {
    /// The Pod's name.
    pub pod: String,
    /// As in `registry.example/kube-proxy:v1.36.3`.
    pub image: String,
    /// Command and arguments.
    pub arguments: Vec<String>,
}

/// The ConfigMap `kube-system/kubeadm-config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeadmConfig {
    /// `networking.serviceSubnet` in its entry `ClusterConfiguration`.
    pub service_subnets: Vec<String>,
    /// `networking.podSubnet` there.
    pub pod_subnets: Vec<String>,
}

/// The address of one Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodAddress(pub IpAddr);

/// A value that cannot be read.
#[derive(Debug, Clone)]
pub struct Unreadable {
    /// Its key.
    pub key: Key,
    /// Why.
    pub reason: String,
}

impl Survey {
    /// Returns the unreadable objects that can name Services behind webhooks and aggregated APIs.
    pub fn unreadable_extensions(&self) -> Vec<&Unreadable> {
        let prefixes = self.layout.api_extensions();
        let is_one = |one: &&Unreadable| {
            prefixes.iter().any(|prefix| one.key.as_bytes().starts_with(prefix.as_bytes()))
        };
        self.unreadable.iter().filter(is_one).collect()
    }

    /// Whether a Service is the cluster's DNS: by its name or label or, in `kube-system`, by the address that kubeadm gives
    /// to kubelets.
    pub fn is_cluster_dns(&self, service: &ServiceRecord) -> bool {
        let is_given = |address: &IpAddr| self.cluster_dns.iter().any(|text| text.parse() == Ok(*address));
        service.is_named_as_dns()
            || (service.namespace == "kube-system" && service.addresses.iter().any(is_given))
    }

    /// Whether a webhook or an aggregated API is served by this Service.
    pub fn is_api_backend(&self, service: &ServiceRecord) -> bool {
        let own = (service.namespace.as_str(), service.name.as_str());
        let place = self.api_backends.binary_search_by(|(namespace, name)| (&**namespace, &**name).cmp(&own));
        place.is_ok()
    }

    /// Returns the ranges from which Services get addresses: those of the ServiceCIDRs, or in the bitmap
    /// era those of the RangeAllocations; each once.
    pub fn service_ranges(&self) -> Vec<ServiceCidr> {
        let mut ranges: Vec<ServiceCidr> = match self.era.era {
            super::Era::Bitmap => self.bitmaps.iter().filter_map(BitmapRecord::cidr).collect(),
            _ => self.service_cidrs.iter().flat_map(|cidr| cidr.ranges.iter().copied()).collect(),
        };
        ranges.sort_unstable();
        ranges.dedup();
        ranges
    }

    /// Returns the RangeAllocation of addresses of this family, if there is one.
    pub fn address_bitmap(&self, family: Family) -> Option<&BitmapRecord> {
        self.bitmaps
            .iter()
            .filter(|bitmap| bitmap.name != layout_names::NODE_PORTS)
            .find(|bitmap| bitmap.cidr().is_some_and(|range| range.family() == family))
    }
}

/// The names of the RangeAllocations.
pub(super) mod layout_names {
    pub(crate) const NODE_PORTS: &str = "servicenodeports";
}

//! The parts of a survey.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{EraEvidence, Layout};
use crate::ip::{Family, Items, ServiceCidr};
use crate::store::{Key, Revision};
use crate::wire::bitmap::Bitmap;
use crate::wire::objects::{Encoding, MOVING, NETSURGEON};
use crate::wire::{Pairs, ServicePort, ServiceSpec, StoredService, Text, WireError};

/// All objects with Service addresses, at one revision.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// The revision.
    pub revision: Revision,
    /// Layout of the API server's keys in etcd.
    pub layout: Layout,
    /// uid of the namespace `kube-system`, which identifies the cluster by convention.
    pub cluster_id: Option<String>,
    /// Where the cluster stores its allocations.
    pub era: EraEvidence,
    /// All Services, sorted by namespace and name.
    pub services: Vec<ServiceRecord>,
    /// All IPAddress objects, sorted by address as text.
    pub addresses: Vec<AddressRecord>,
    /// API version in which the first IPAddress is stored, for example `networking.k8s.io/v1`.
    pub ip_address_version: Option<String>,
    /// All ServiceCIDR objects, sorted by name.
    pub service_cidrs: Vec<CidrRecord>,
    /// RangeAllocation objects, sorted by name.
    pub bitmaps: Vec<BitmapRecord>,
    /// All Nodes.
    pub nodes: Vec<NodeRecord>,
    /// Addresses of Pods that do not use the host network.
    pub pods: Vec<IpAddr>,
    /// The ranges in the ConfigMap of kubeadm, if the ConfigMap exists.
    pub kubeadm: Option<KubeadmConfig>,
    /// `clusterDNS` in the kubelet configuration that kubeadm distributes.
    pub cluster_dns: Vec<String>,
    /// Whether NodeLocal DNSCache is installed (its DaemonSet exists).
    pub has_node_local_dns: bool,
    /// Service ranges that Calico announces: the name of each BGPConfiguration, and its `spec.serviceClusterIPs`.
    pub announced: Vec<(String, serde_json::Value)>,
    /// Configuration that shows which component routes Services.
    pub routing: Routing,
    /// Encoding of Services in etcd. New objects get the same encoding.
    pub encoding: Encoding,
    /// Namespaces and names of the Services of webhooks and aggregated APIs, sorted and without duplicates.
    pub api_backends: Vec<(Text, Text)>,
    /// Values of the requested annotation, by the key of the Service. Empty if no annotation was requested.
    pub annotations: BTreeMap<Key, Text>,
    /// Objects that cannot be read and are not required.
    pub unreadable: Vec<Unreadable>,
}

/// One Service.
#[derive(Debug, Clone)]
pub struct ServiceRecord {
    /// Key in etcd.
    pub key: Key,
    /// Revision of the last change.
    pub mod_revision: Revision,
    /// Namespace.
    pub namespace: Text,
    /// Name.
    pub name: Text,
    /// uid of the Service.
    pub uid: Text,
    /// Labels.
    pub labels: Pairs,
    /// Whether the Service was deleted but still exists, usually because a finalizer keeps it.
    pub is_being_deleted: bool,
    /// Finalizers.
    pub finalizers: Vec<Text>,
    /// The fields of the Service's spec that `proto/` defines.
    pub spec: ServiceSpec,
    /// Valid addresses in `clusterIPs`.
    pub addresses: Vec<IpAddr>,
}

impl ServiceRecord {
    /// Returns the record of a stored Service.
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

    /// Returns the Service's address in a family.
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| Family::of(*address) == family)
    }

    /// Returns whether an address is one of the Service's external IPs.
    pub fn has_external_ip(&self, address: IpAddr) -> bool {
        self.spec.external_ips.iter().any(|text| text.parse() == Ok(address))
    }

    /// Returns the texts in `clusterIPs`. If this list is empty, returns only the text in `clusterIP`.
    pub fn listed(&self) -> Vec<Text> {
        match self.spec.cluster_ips.as_slice() {
            [] => self.spec.cluster_ip.iter().cloned().collect(),
            list => list.to_vec(),
        }
    }

    /// Returns whether the Service is `default/kubernetes`, the API servers' own Service.
    pub fn is_kubernetes(&self) -> bool {
        self.namespace == "default" && self.name == "kubernetes"
    }

    /// Returns whether the Service has netsurgeon's label. Any client can set this label, so only the plan of an operation
    /// identifies a shadow.
    pub fn is_labelled_ours(&self) -> bool {
        self.labels.get("app.kubernetes.io/managed-by").is_some_and(|who| who == NETSURGEON)
    }

    /// Returns whether the Service has the finalizer of a renumbering. The renumbering sets it while the Service and its shadow
    /// have the same address.
    pub fn is_moving(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == MOVING)
    }

    /// Returns whether the Service was deleted, and has no finalizers except those of netsurgeon and the garbage collector. A
    /// deleted Service that waits for the removal of its load balancer is excluded, because it can serve clients for weeks.
    pub fn is_going(&self) -> bool {
        let is_passing = |finalizer: &Text| [MOVING, "foregroundDeletion", "orphan"].contains(&&**finalizer);
        self.is_being_deleted && self.finalizers.iter().all(is_passing)
    }

    /// Returns whether the Service was deleted and no longer has a finalizer. Only another delete request removes such a Service.
    /// A Service gets into this state if its finalizer is removed directly in etcd.
    pub fn is_left_over(&self) -> bool {
        self.is_being_deleted && self.finalizers.is_empty()
    }

    /// Returns whether the Service is the sentinel of a barrier. Sentinels are in `kube-system`, where tenants create no objects.
    pub fn is_sentinel(&self) -> bool {
        self.namespace == "kube-system"
            && self.is_labelled_ours()
            && self.labels.get("netsurgeon.io/part").is_some_and(|part| part == "barrier")
    }

    /// Returns whether the name or a label of the Service identifies it as the cluster's DNS. Such a Service is in `kube-system`.
    /// It is named kube-dns or coredns, or has the label `k8s-app=kube-dns`, which most installers set for both names.
    pub fn is_named_as_dns(&self) -> bool {
        self.namespace == "kube-system"
            && (matches!(self.name.as_str(), "kube-dns" | "coredns")
                || self.labels.get("k8s-app").is_some_and(|app| app == "kube-dns"))
    }

    /// Returns the Service's node ports, including the health check node port.
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
    /// Key in etcd.
    pub key: Key,
    /// Revision of its creation.
    pub create_revision: Revision,
    /// Revision of its last change.
    pub mod_revision: Revision,
    /// Name of the object.
    pub name: Text,
    /// Address in the name; `None` if the name is not an address.
    pub address: Option<IpAddr>,
    /// Namespace and name of the Service to which the object refers.
    pub parent: (Text, Text),
    /// Value of the label `ipaddress.kubernetes.io/managed-by`; empty if the label is missing.
    pub managed_by: Text,
    /// Time of creation, in seconds since 1970.
    pub created: Option<i64>,
}

/// One ServiceCIDR object.
#[derive(Debug, Clone)]
pub struct CidrRecord {
    /// Key in etcd.
    pub key: Key,
    /// Name of the object. The API server creates the ServiceCIDR `kubernetes` from its flag `--service-cluster-ip-range`.
    pub name: String,
    /// Ranges: one, or one for each family.
    pub ranges: Vec<ServiceCidr>,
    /// Whether the ServiceCIDR is being deleted.
    pub terminating: bool,
}

/// One RangeAllocation object.
#[derive(Debug, Clone)]
pub struct BitmapRecord {
    /// Key in etcd.
    pub key: Key,
    /// Name: `serviceips`, `secondaryserviceips` or `servicenodeports`.
    pub name: String,
    /// Revision of its last change.
    pub mod_revision: Revision,
    /// Range as text, as it is stored.
    pub range: String,
    /// Bitmap as it is stored.
    pub data: Vec<u8>,
}

impl BitmapRecord {
    /// Returns the range if it is a range of addresses.
    pub fn cidr(&self) -> Option<ServiceCidr> {
        self.range.parse().ok()
    }

    /// Returns the items of the range, and their bits; `None` if a bitmap cannot represent the range.
    pub fn read(&self) -> Option<(Items, Result<Bitmap, WireError>)> {
        let items = Items::parse(&self.range)?;
        Some((items, Bitmap::from_bytes(&self.data, items.capacity())))
    }
}

/// One Node.
#[derive(Debug, Clone)]
pub struct NodeRecord {
    /// Name.
    pub name: String,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<ServiceCidr>,
    /// IP addresses in `status.addresses`.
    pub addresses: Vec<IpAddr>,
    /// `status.nodeInfo.operatingSystem`: `linux` or `windows`; empty if it is not set.
    pub operating_system: String,
    /// `status.nodeInfo.kubeletVersion`, for example `v1.36.3`; empty if it is not set.
    pub kubelet_version: String,
}

/// Stored configuration of the component that routes Services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routing {
    /// The entry `config.conf` of the ConfigMap `kube-system/kube-proxy`, the configuration of kubeadm's kube-proxy.
    pub proxy_config: Option<String>,
    /// The containers of kube-proxy.
    pub proxies: Vec<ProxyContainer>,
    /// The entry `kube-proxy-replacement` of Cilium's ConfigMap in `kube-system`.
    pub cilium_replacement: Option<String>,
    /// Whether a FelixConfiguration of Calico sets `bpfEnabled`; `None` if none contains this field.
    pub calico_bpf: Option<bool>,
    /// The different agents of network plugins that can route Services.
    pub agents: Vec<NetworkAgent>,
}

/// A container of a network plugin that can route Services, in a Pod of the host network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkAgent {
    /// Name of the container: one of [`NetworkAgent::NAMES`].
    pub name: String,
    /// Namespace of the Pod.
    pub namespace: String,
    /// Command and arguments of the container.
    pub arguments: Vec<String>,
    /// Value of the environment variable `FELIX_BPFENABLED`, which has precedence over a FelixConfiguration.
    pub felix_bpf: Option<String>,
}

impl NetworkAgent {
    /// Names of the containers: Cilium, Calico, kube-router, Antrea, OVN-Kubernetes (three), Kube-OVN.
    pub const NAMES: [&str; 8] = [
        "cilium-agent",
        "calico-node",
        "kube-router",
        "antrea-agent",
        "ovn-controller",
        "ovnkube-controller",
        "ovnkube-node",
        "cni-server",
    ];
}

/// A container of kube-proxy in a Pod of `kube-system`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyContainer {
    /// Name of the Pod.
    pub pod: String,
    /// Image, for example `registry.example/kube-proxy:v1.36.3`.
    pub image: String,
    /// Command and arguments of the container.
    pub arguments: Vec<String>,
}

/// The ConfigMap `kube-system/kubeadm-config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeadmConfig {
    /// `networking.serviceSubnet` in the entry `ClusterConfiguration`.
    pub service_subnets: Vec<String>,
    /// `networking.podSubnet` in the same entry.
    pub pod_subnets: Vec<String>,
}

/// A stored object that cannot be read.
#[derive(Debug, Clone)]
pub struct Unreadable {
    /// Key in etcd.
    pub key: Key,
    /// Why the object cannot be read.
    pub reason: String,
}

impl Survey {
    /// Returns the unreadable objects that can refer to Services of webhooks and aggregated APIs.
    pub fn unreadable_extensions(&self) -> Vec<&Unreadable> {
        let prefixes = self.layout.api_extensions();
        let is_one = |one: &&Unreadable| {
            prefixes.iter().any(|prefix| one.key.as_bytes().starts_with(prefix.as_bytes()))
        };
        self.unreadable.iter().filter(is_one).collect()
    }

    /// Returns whether a Service is the cluster's DNS. The Service must be in `kube-system`. It is identified by its name, by its
    /// label, or by the address in the kubelet configuration that kubeadm distributes.
    pub fn is_cluster_dns(&self, service: &ServiceRecord) -> bool {
        let is_given = |address: &IpAddr| self.cluster_dns.iter().any(|text| text.parse() == Ok(*address));
        service.is_named_as_dns()
            || (service.namespace == "kube-system" && service.addresses.iter().any(is_given))
    }

    /// Returns whether the Service serves a webhook or an aggregated API.
    pub fn is_api_backend(&self, service: &ServiceRecord) -> bool {
        let own = (service.namespace.as_str(), service.name.as_str());
        let place = self.api_backends.binary_search_by(|(namespace, name)| (&**namespace, &**name).cmp(&own));
        place.is_ok()
    }

    /// Returns the ranges from which Services get addresses, without duplicates. These are the ranges of the ServiceCIDRs or, in
    /// the bitmap era, the ranges of the RangeAllocations.
    pub fn service_ranges(&self) -> Vec<ServiceCidr> {
        let mut ranges: Vec<ServiceCidr> = match self.era.era {
            super::Era::Bitmap => self.bitmaps.iter().filter_map(BitmapRecord::cidr).collect(),
            _ => self.service_cidrs.iter().flat_map(|cidr| cidr.ranges.iter().copied()).collect(),
        };
        ranges.sort_unstable();
        ranges.dedup();
        ranges
    }

    /// Returns the RangeAllocation for addresses of this family, if there is one.
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

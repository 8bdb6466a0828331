//! The kinds of places that can contain an address of the old range, with meaning and remedy. Places of Kubernetes and of
//! well-known programs are identified by kind, name and path. Other places are identified only by kind.

mod table;

use memchr::memmem;

use super::scan::Form;
use super::{Severity, places::table as t};

pub use table::{NO_PROXY, PLACES, PROCESS, SANDBOX};
pub(super) use table::{STARTED_ENVIRONMENT, STARTED_RESOLVER};

/// A kind of place.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// Stable code of the kind of place.
    pub code: &'static str,
    /// When an old address in this place causes a failure.
    pub severity: Severity,
    /// The meaning of an old address in this place.
    pub meaning: &'static str,
    /// The remedy: what to do.
    pub remedy: &'static str,
}

/// The place of a hit in a stored object.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// API version of the object, for example `apps/v1`.
    pub api_version: &'a str,
    /// Kind of the object, for example `DaemonSet`.
    pub kind: &'a str,
    /// Namespace of the object, empty if it has none.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// Path to the text in the object.
    pub path: &'a str,
    /// Notation of the hit.
    pub form: Form,
    /// The text around the hit.
    pub text: &'a [u8],
    /// Whether the object is stored as JSON, and its API group does not belong to Kubernetes itself.
    pub is_custom: bool,
}

impl Site<'_> {
    fn has(&self, part: &str) -> bool {
        self.path.contains(part)
    }

    fn says(&self, word: &str) -> bool {
        memmem::find(self.text, word.as_bytes()).is_some()
    }

    fn is_named(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.name.contains(name))
    }
}

/// Returns the kind of a place.
pub fn of(site: &Site<'_>) -> &'static Place {
    if site.has("metadata.managedFields") {
        return &t::MANAGED_FIELDS;
    }
    if site.has("last-applied-configuration") {
        let is_pinned = site.kind == "Service" && site.has("].spec.clusterIP");
        return if is_pinned { &t::LAST_APPLIED_ADDRESS } else { &t::LAST_APPLIED };
    }
    if site.has("metadata.annotations") {
        let is_mesh = site.has("IPRanges") || site.has("skip-") || site.has("OutboundCIDRs");
        return if is_mesh { &t::MESH_RANGES } else { &t::ANNOTATION };
    }
    of_kind(site).or_else(|| of_pod(site)).unwrap_or_else(|| of_anything(site))
}

/// Returns whether a renumbering changes this place itself: the Services and the records of their allocations, and the other
/// objects that it edits (`renumber::plan::records`, `renumber::plan::overlaps`).
pub fn is_changed_by_move(site: &Site<'_>, place: &'static Place) -> bool {
    let allocations = [&t::SERVICE_ADDRESS, &t::ADDRESS_OBJECT, &t::SERVICE_CIDR, &t::RANGE_ALLOCATION];
    allocations.iter().any(|one| one.code == place.code) || is_edited(place.code, site)
}

fn is_edited(code: &str, site: &Site<'_>) -> bool {
    match code {
        "kubeadm-config" => site.says("serviceSubnet"),
        "kubelet-config" => site.name == "kubelet-config",
        "announced-range" => site.kind == "BGPConfiguration" && site.has("serviceClusterIPs"),
        _ => false,
    }
}

/// Returns whether this kind of place is an object that a renumbering edits in addition to Services and their allocations.
pub fn is_other_object(code: &str) -> bool {
    ["kubeadm-config", "kubelet-config", "announced-range"].contains(&code)
}

fn of_kind(site: &Site<'_>) -> Option<&'static Place> {
    Some(match site.kind {
        "Service" if site.has("spec.clusterIP") => &t::SERVICE_ADDRESS,
        "Service" if site.has("spec.externalIPs") => &t::EXTERNAL_IP,
        "Service" if site.has("spec.externalName") => &t::EXTERNAL_NAME,
        "Service" if site.has("spec.loadBalancer") => &t::LOAD_BALANCER,
        "Service" | "Ingress" if site.has("status") => &t::PUBLISHED_STATUS,
        "IPAddress" => &t::ADDRESS_OBJECT,
        "ServiceCIDR" if site.has("status") => return None,
        "ServiceCIDR" => &t::SERVICE_CIDR,
        "RangeAllocation" => &t::RANGE_ALLOCATION,
        "Endpoints" | "EndpointSlice" => &t::ENDPOINTS,
        "ControllerRevision" => &t::REVISION,
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => &t::WEBHOOK_URL,
        "CustomResourceDefinition" if site.has("onversion") => &t::WEBHOOK_URL,
        "BGPConfiguration" | "CiliumBGPAdvertisement" | "CiliumBGPPeeringPolicy" => &t::ANNOUNCED,
        "Secret" => &t::SECRET,
        "ConfigMap" => of_config_map(site),
        kind if kind.ends_with("NetworkPolicy")
            || kind.ends_with("NetworkSet")
            || kind.contains("CiliumCIDR") =>
        {
            &t::NETWORK_POLICY
        }
        "ClusterwideNetworkPolicy" | "CiliumClusterwideNetworkPolicy" => &t::NETWORK_POLICY,
        _ => return None,
    })
}

fn of_config_map(site: &Site<'_>) -> &'static Place {
    let is_system = site.namespace == "kube-system";
    match site.name {
        "kubeadm-config" if is_system => &t::KUBEADM_CONFIG,
        "kube-proxy" if is_system => &t::KUBE_PROXY_CONFIG,
        name if is_system && name.starts_with("kubelet-config") => &t::KUBELET_CONFIG,
        name if name.starts_with("node-local-dns") || name.starts_with("nodelocaldns") => &t::NODE_LOCAL_DNS,
        _ if site.has("Corefile") || site.form == Form::ReverseZone => &t::COREFILE,
        name if name.starts_with("istio") => &t::MESH_RANGES,
        _ if site.is_named(&NETWORKS) => &t::NETWORK_CONFIG,
        _ if site.says("NO_PROXY") || site.says("no_proxy") => &t::NO_PROXY,
        _ => &t::CONFIG_MAP,
    }
}

/// Words in the names of ConfigMaps and Pods that identify network plugins.
const NETWORKS: [&str; 11] = [
    "cilium",
    "calico",
    "canal",
    "antrea",
    "kube-router",
    "ovn",
    "flannel",
    "ip-masq",
    "multus",
    "weave",
    "spiderpool",
];

/// Classifies a place in a Pod or a Pod template.
fn of_pod(site: &Site<'_>) -> Option<&'static Place> {
    if !site.has("spec.") || site.is_custom {
        return None;
    }
    let is_proxy = ["[NO_PROXY]", "[no_proxy]"].iter().any(|name| site.has(name));
    let is_word = [".args", ".command"].iter().any(|part| site.has(part));
    Some(match () {
        () if is_proxy || (is_word && (site.says("NO_PROXY=") || site.says("no-proxy"))) => &t::NO_PROXY,
        () if site.has("hostAliases") => &t::HOST_ALIAS,
        () if site.has("dnsConfig") => &t::DNS_CONFIG,
        () if is_word && site.says("service-cluster-ip-range") && !site.is_named(&NETWORKS) => &t::RANGE_FLAG,
        () if site.is_named(&["node-local-dns", "nodelocaldns"]) => &t::NODE_LOCAL_DNS,
        () if (is_word || site.has(".env[")) && site.is_named(&NETWORKS) => &t::NETWORK_CONFIG,
        () if is_word => &t::ARGUMENTS,
        () if site.has(".env[") => &t::ENVIRONMENT,
        () => return None,
    })
}

fn of_anything(site: &Site<'_>) -> &'static Place {
    match site.kind {
        _ if site.is_custom => &t::CUSTOM_RESOURCE,
        _ if site.has("status") => &t::STATUS,
        _ => &t::OTHER,
    }
}

/// Returns the kind of place for a line of a file on a host. `path` is the path from the root.
pub fn of_file(path: &str, line: &[u8]) -> &'static Place {
    let text = String::from_utf8_lossy(line).to_lowercase();
    match path.trim_start_matches('/') {
        _ if text.contains("no_proxy") => &t::NO_PROXY,
        path if path.starts_with("etc/cni/") => &t::CNI_FILE,
        path if path.starts_with("etc/kubernetes/manifests/") => &t::STATIC_POD,
        path if path.starts_with("etc/kubernetes/") && !path.contains("kubelet-config") => &t::KUBECONFIG,
        path if path.contains("kubelet") => &t::KUBELET_FILE,
        path if path.starts_with("etc/rancher/") => &t::DISTRIBUTION_FILE,
        path if path.contains("resolv") || path.contains("dnsmasq") => &t::RESOLVER,
        _ => &t::HOST_FILE,
    }
}

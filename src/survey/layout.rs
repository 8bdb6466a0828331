//! The keys of an API server under its `--etcd-prefix`
//! (`pkg/kubeapiserver/default_storage_factory_builder.go`, v1.36.3, has the resources with unusual names).

use std::net::IpAddr;

use crate::store::{Key, KeyRange};

/// The keys of one API server's storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    prefix: String,
}

impl Default for Layout {
    fn default() -> Self {
        Self::new("/registry")
    }
}

impl Layout {
    /// Returns the layout under a prefix, as in the API server's flag `--etcd-prefix`.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: format!("/{}", prefix.trim_matches('/')) }
    }

    /// Returns the prefix, with a slash before and none after it.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Everything that the API server stores.
    pub fn everything(&self) -> KeyRange {
        KeyRange::prefix(format!("{}/", self.prefix))
    }

    /// All Services.
    pub fn services(&self) -> String {
        format!("{}/services/specs/", self.prefix)
    }

    /// One Service.
    pub fn service(&self, namespace: &str, name: &str) -> Key {
        Key::from(format!("{}{namespace}/{name}", self.services()))
    }

    /// All Secrets.
    pub fn secrets(&self) -> String {
        format!("{}/secrets/", self.prefix)
    }

    /// All IPAddress objects.
    pub fn ip_addresses(&self) -> String {
        format!("{}/ipaddresses/", self.prefix)
    }

    /// The IPAddress object of an address.
    pub fn ip_address(&self, address: IpAddr) -> Key {
        Key::from(format!("{}{address}", self.ip_addresses()))
    }

    /// All ServiceCIDR objects.
    pub fn service_cidrs(&self) -> String {
        format!("{}/servicecidrs/", self.prefix)
    }

    /// One ServiceCIDR object.
    pub fn service_cidr(&self, name: &str) -> Key {
        Key::from(format!("{}{name}", self.service_cidrs()))
    }

    /// All RangeAllocation objects.
    pub fn ranges(&self) -> String {
        format!("{}/ranges/", self.prefix)
    }

    /// One RangeAllocation: `serviceips`, `secondaryserviceips` or `servicenodeports`.
    pub fn range(&self, name: &str) -> Key {
        Key::from(format!("{}{name}", self.ranges()))
    }

    /// All Nodes: stored under their former name, minions.
    pub fn nodes(&self) -> String {
        format!("{}/minions/", self.prefix)
    }

    /// All Pods.
    pub fn pods(&self) -> String {
        format!("{}/pods/", self.prefix)
    }

    /// The keys that running API servers renew, each named by the server's address.
    pub fn api_server_leases(&self) -> String {
        format!("{}/masterleases/", self.prefix)
    }

    /// The namespace whose uid identifies the cluster.
    pub fn kube_system(&self) -> Key {
        Key::from(format!("{}/namespaces/kube-system", self.prefix))
    }

    /// A ConfigMap of the cluster itself.
    pub fn system_config_map(&self, name: &str) -> Key {
        Key::from(format!("{}/configmaps/kube-system/{name}", self.prefix))
    }

    /// The ConfigMap from which `kubeadm upgrade` reads the ranges.
    pub fn kubeadm_config(&self) -> Key {
        self.system_config_map("kubeadm-config")
    }

    /// The ConfigMap from which `kubeadm join` and `kubeadm upgrade` read the kubelets' configuration.
    pub fn kubelet_config(&self) -> Key {
        self.system_config_map("kubelet-config")
    }

    /// The Pods of the cluster itself.
    pub fn system_pods(&self) -> String {
        format!("{}kube-system/", self.pods())
    }

    /// kube-proxy's configuration, if kubeadm installed it.
    pub fn kube_proxy_config(&self) -> Key {
        self.system_config_map("kube-proxy")
    }

    /// Cilium's configuration.
    pub fn cilium_config(&self) -> Key {
        self.system_config_map("cilium-config")
    }

    /// The DaemonSet of NodeLocal DNSCache, named as in its manifest and by kOps.
    pub fn node_local_dns(&self) -> Key {
        Key::from(format!("{}/daemonsets/kube-system/node-local-dns", self.prefix))
    }

    /// The configurations of Calico's routers.
    pub fn calico_routers(&self) -> String {
        format!("{}/crd.projectcalico.org/bgpconfigurations/", self.prefix)
    }

    /// The kinds that can name a Service behind the API: all ValidatingWebhookConfigurations,
    /// MutatingWebhookConfigurations, APIServices, and CustomResourceDefinitions.
    pub fn api_extensions(&self) -> [String; 4] {
        [
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
            "apiregistration.k8s.io/apiservices",
            "apiextensions.k8s.io/customresourcedefinitions",
        ]
        .map(|resource| format!("{}/{resource}/", self.prefix))
    }

    /// The ranges that a survey reads, and that a snapshot must index for it.
    pub fn surveyed(&self) -> Vec<KeyRange> {
        let mut ranges: Vec<KeyRange> = [
            self.services(),
            self.ip_addresses(),
            self.service_cidrs(),
            self.ranges(),
            self.nodes(),
            self.pods(),
            self.calico_routers(),
        ]
        .into_iter()
        .chain(self.api_extensions())
        .map(KeyRange::prefix)
        .collect();
        ranges.push(KeyRange::exact(&self.kube_system()));
        ranges.push(KeyRange::exact(&self.kubeadm_config()));
        ranges.push(KeyRange::exact(&self.kubelet_config()));
        ranges.push(KeyRange::exact(&self.kube_proxy_config()));
        ranges.push(KeyRange::exact(&self.cilium_config()));
        ranges.push(KeyRange::exact(&self.node_local_dns()));
        ranges
    }
}

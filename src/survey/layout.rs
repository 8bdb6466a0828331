//! The keys of an API server under its `--etcd-prefix`. `pkg/kubeapiserver/default_storage_factory_builder.go`, v1.36.3, lists
//! the resources that are stored under a different name.

use std::net::IpAddr;

use crate::store::{Key, KeyRange};

/// The layout of an API server's keys in etcd.
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
    /// Returns the layout for a prefix, which is the value of the API server's flag `--etcd-prefix`.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: format!("/{}", prefix.trim_matches('/')) }
    }

    /// Returns the prefix, with a leading slash and without a trailing slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the range of the keys of all API objects.
    pub fn everything(&self) -> KeyRange {
        KeyRange::prefix(format!("{}/", self.prefix))
    }

    /// Returns the key of a Service.
    pub fn service(&self, namespace: &str, name: &str) -> Key {
        Key::from(format!("{}{namespace}/{name}", self.services()))
    }

    /// Returns the key of the IPAddress object of an address.
    pub fn ip_address(&self, address: IpAddr) -> Key {
        Key::from(format!("{}{address}", self.ip_addresses()))
    }

    /// Returns the key of a ServiceCIDR object.
    pub fn service_cidr(&self, name: &str) -> Key {
        Key::from(format!("{}{name}", self.service_cidrs()))
    }

    /// Returns the key of a RangeAllocation: `serviceips`, `secondaryserviceips` or `servicenodeports`.
    pub fn range(&self, name: &str) -> Key {
        Key::from(format!("{}{name}", self.ranges()))
    }

    /// Returns the key of a ConfigMap in `kube-system`.
    pub fn system_config_map(&self, name: &str) -> Key {
        Key::from(format!("{}/configmaps/kube-system/{name}", self.prefix))
    }

    /// Returns the key prefixes of the kinds that can refer to a Service of a webhook or an aggregated API:
    /// ValidatingWebhookConfigurations, MutatingWebhookConfigurations, APIServices, and CustomResourceDefinitions.
    pub fn api_extensions(&self) -> [String; 4] {
        [
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
            "apiregistration.k8s.io/apiservices",
            "apiextensions.k8s.io/customresourcedefinitions",
        ]
        .map(|resource| format!("{}/{resource}/", self.prefix))
    }

    /// Returns the key ranges that a survey reads, and that a snapshot must index for a survey.
    pub fn surveyed(&self) -> Vec<KeyRange> {
        let mut ranges: Vec<KeyRange> = [
            self.services(),
            self.ip_addresses(),
            self.service_cidrs(),
            self.ranges(),
            self.nodes(),
            self.pods(),
            self.calico_routers(),
            self.calico_felix(),
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

/// Defines functions of [`Layout`] that append a constant to its prefix. The result is a key, or the key prefix of a kind.
macro_rules! places {
    ($($(#[$doc:meta])* $name:ident -> $type:ident = $end:literal;)*) => {
        impl Layout {
            $($(#[$doc])* pub fn $name(&self) -> $type {
                $type::from(format!(concat!("{}", $end), self.prefix))
            })*
        }
    };
}
places! {
    /// Returns the key prefix of all Services.
    services -> String = "/services/specs/";
    /// Returns the key prefix of all Secrets.
    secrets -> String = "/secrets/";
    /// Returns the key prefix of all IPAddress objects.
    ip_addresses -> String = "/ipaddresses/";
    /// Returns the key prefix of all ServiceCIDR objects.
    service_cidrs -> String = "/servicecidrs/";
    /// Returns the key prefix of all RangeAllocation objects.
    ranges -> String = "/ranges/";
    /// Returns the key prefix of all Nodes. It contains `minions`, the former name of Nodes.
    nodes -> String = "/minions/";
    /// Returns the key prefix of all Pods.
    pods -> String = "/pods/";
    /// Returns the key prefix of the leases that running API servers renew. Each key contains the address of its API server.
    api_server_leases -> String = "/masterleases/";
    /// Returns the key prefix of the Lease objects in `kube-system`.
    system_leases -> String = "/leases/kube-system/";
    /// Returns the key of the namespace `kube-system`, whose uid identifies the cluster.
    kube_system -> Key = "/namespaces/kube-system";
    /// Returns the key of the ConfigMap from which `kubeadm upgrade` reads the ranges.
    kubeadm_config -> Key = "/configmaps/kube-system/kubeadm-config";
    /// Returns the key of the ConfigMap from which `kubeadm join` and `kubeadm upgrade` read the kubelets' configuration.
    kubelet_config -> Key = "/configmaps/kube-system/kubelet-config";
    /// Returns the key prefix of the Pods in `kube-system`.
    system_pods -> String = "/pods/kube-system/";
    /// Returns the key of kube-proxy's configuration, which exists if kubeadm installed kube-proxy.
    kube_proxy_config -> Key = "/configmaps/kube-system/kube-proxy";
    /// Returns the key of Cilium's configuration.
    cilium_config -> Key = "/configmaps/kube-system/cilium-config";
    /// Returns the key of the DaemonSet of NodeLocal DNSCache. The manifest of NodeLocal DNSCache and kOps use this name.
    node_local_dns -> Key = "/daemonsets/kube-system/node-local-dns";
    /// Returns the key prefix of the BGP configurations of Calico.
    calico_routers -> String = "/crd.projectcalico.org/bgpconfigurations/";
    /// Returns the key prefix of the Felix configurations of Calico. They contain whether Calico's eBPF data plane is on.
    calico_felix -> String = "/crd.projectcalico.org/felixconfigurations/";
}

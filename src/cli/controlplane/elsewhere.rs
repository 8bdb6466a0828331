//! Hints for distributions that do not configure the cluster in static Pod manifests.

use std::path::Path;

use crate::session::Failure;

/// A path that identifies a distribution on a host, and how to change its Service range and its kubelets' DNS address.
struct Distribution {
    sign: &'static str,
    range: &'static str,
    dns: &'static str,
}

const DISTRIBUTIONS: [Distribution; 4] = [
    Distribution {
        sign: "/etc/rancher/k3s",
        range: "K3s: `service-cidr: VALUE` in /etc/rancher/k3s/config.yaml of every server, then restart k3s",
        dns: "K3s: `cluster-dns: VALUE` in /etc/rancher/k3s/config.yaml of every server, then restart k3s, also on agents",
    },
    Distribution {
        sign: "/etc/rancher/rke2",
        range: "RKE2: `service-cidr: VALUE` in /etc/rancher/rke2/config.yaml of every server, then restart rke2-server",
        dns: "RKE2: `cluster-dns: VALUE` in /etc/rancher/rke2/config.yaml of every server, then restart rke2-server, and \
              rke2-agent on agents",
    },
    Distribution {
        sign: "/opt/kops",
        range: "kOps: `spec.serviceClusterIPRange: VALUE` with `kops edit cluster`, then `kops update cluster --yes` and a \
                rolling update of the control plane",
        dns: "kOps: `spec.kubeDNS.serverIP: VALUE` with `kops edit cluster`, then `kops update cluster --yes` and a rolling \
              update",
    },
    Distribution {
        sign: "/etc/systemd/system/kube-apiserver.service",
        range: "systemd: `--service-cluster-ip-range=VALUE` in kube-apiserver.service, then `systemctl daemon-reload` and a \
                restart",
        dns: "systemd: `clusterDNS: [VALUE]` in the file of `kubelet --config` on every node, or the kubelet flag `--cluster-dns=VALUE`, \
              then a restart",
    },
];

/// Adds hints about how to change the Service range on this host.
pub(super) fn range(failure: Failure, to: &str) -> Failure {
    failure.hints(here().map(|one| one.range.replace("VALUE", to)))
}

/// Adds hints about how to change the kubelets' DNS address on this host.
pub(super) fn dns(failure: Failure, to: &str) -> Failure {
    failure.hints(here().map(|one| one.dns.replace("VALUE", to)))
}

fn here() -> impl Iterator<Item = &'static Distribution> {
    DISTRIBUTIONS.iter().filter(|one| Path::new(one.sign).exists())
}

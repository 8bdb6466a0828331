//! The location of the programs that the rig runs. `make rig` builds them once per version into `.rig/`, or into the folder that
//! `NETSURGEON_RIG` names, so that several checkouts share them.

use std::path::{Path, PathBuf};

/// The version of etcd that `make rig` builds.
pub const ETCD_VERSION: &str = "3.7.3";

/// The version of ExternalDNS that `make rig` builds.
pub const EXTERNAL_DNS_VERSION: &str = "0.23.0";

/// The version of cert-manager that `make rig` builds.
pub const CERT_MANAGER_VERSION: &str = "1.21.2";

/// The version of the image registry that `make rig` builds.
pub const REGISTRY_VERSION: &str = "3.1.2";

/// The version of MiniStack that `make rig` installs.
pub const MINISTACK_VERSION: &str = "1.5.33";

/// The version of moto that `make rig` installs.
pub const MOTO_VERSION: &str = "5.2.5";

/// The version of Pebble that `make rig` builds.
pub const PEBBLE_VERSION: &str = "2.10.3";

/// The version of kubectl that `make bench` builds: that of the newest control plane.
pub const KUBECTL_VERSION: &str = "1.37.2";

/// The version of Kubernetes whose kubelet and scheduler `make rig` builds: that of the newest control plane.
pub const KUBELET_VERSION: &str = "1.37.2";

/// The version of containerd that `make rig` builds.
pub const CONTAINERD_VERSION: &str = "2.4.2";

/// The version of the CNI plug-ins that `make rig` builds.
pub const CNI_PLUGINS_VERSION: &str = "1.10.0";

/// The version of CoreDNS that `make rig` builds.
pub const COREDNS_VERSION: &str = "1.15.0";

/// The version of flannel that `make rig` builds.
pub const FLANNEL_VERSION: &str = "0.28.10";

/// The version of kube-router that `make rig` builds.
pub const KUBE_ROUTER_VERSION: &str = "2.1.0";

/// Returns the folder of the built programs.
pub fn folder() -> PathBuf {
    match std::env::var_os("NETSURGEON_RIG") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join(".rig"),
    }
}

/// Returns a program of the rig, as in `built("etcd-3.7.3/etcd")`; panics when it is missing.
pub fn built(name: &str) -> PathBuf {
    let program = folder().join(name);
    assert!(program.is_file(), "`{}` is missing: run `make rig`, which builds it", program.display());
    program
}

/// Returns Debian's etcd: unpacked from its package by `make rig`, which installs no service on the machine, or as installed.
pub fn debian_etcd() -> PathBuf {
    let unpacked = folder().join("etcd-debian/etcd");
    let installed = PathBuf::from("/usr/bin/etcd");
    [&unpacked, &installed].into_iter().find(|program| program.is_file()).cloned().unwrap_or_else(|| {
        panic!("`{}` is missing: run `make rig`, which unpacks Debian's `etcd-server`", unpacked.display())
    })
}

/// Returns BIND, unpacked from Debian's packages by `make rig`, which starts no service on the machine, and the folders of its
/// libraries.
pub fn bind() -> (PathBuf, String) {
    of_bind("sbin/named")
}

/// Returns BIND's `nsupdate`, and the folders of its libraries.
pub fn nsupdate() -> (PathBuf, String) {
    of_bind("bin/nsupdate")
}

fn of_bind(program: &str) -> (PathBuf, String) {
    let folder = folder().join("bind9-debian/usr");
    let architectures = std::fs::read_dir(folder.join("lib")).into_iter().flatten().flatten();
    let libraries =
        architectures.map(|entry| entry.path().display().to_string()).collect::<Vec<_>>().join(":");
    (built(&format!("bind9-debian/usr/{program}")), libraries)
}

/// Returns ExternalDNS, as `make rig` builds it.
pub fn external_dns() -> PathBuf {
    built(&format!("external-dns-{EXTERNAL_DNS_VERSION}/external-dns"))
}

/// Returns the controller of cert-manager, as `make rig` builds it.
pub fn cert_manager() -> PathBuf {
    built(&format!("cert-manager-{CERT_MANAGER_VERSION}/controller"))
}

/// Returns the image registry, as `make rig` builds it.
pub fn registry() -> PathBuf {
    built(&format!("registry-{REGISTRY_VERSION}/registry"))
}

/// Returns MiniStack, as `make rig` installs it.
pub fn ministack() -> PathBuf {
    built(&format!("ministack-{MINISTACK_VERSION}/bin/ministack"))
}

/// Returns a program of moto's folder, as `make rig` installs it: `moto_server`, `aws` or `python3`.
pub fn moto(program: &str) -> PathBuf {
    built(&format!("moto-{MOTO_VERSION}/bin/{program}"))
}

/// Returns Pebble, as `make rig` builds it.
pub fn pebble() -> PathBuf {
    built(&format!("pebble-{PEBBLE_VERSION}/pebble"))
}

/// Returns kubectl, as `make bench` builds it.
pub fn kubectl() -> PathBuf {
    built(&format!("kubectl-{KUBECTL_VERSION}/kubectl"))
}

/// Returns the multi-call program of kubelet and kube-scheduler, as `make rig` builds it.
pub fn kubelet() -> PathBuf {
    built(&format!("kubelet-{KUBELET_VERSION}/node"))
}

/// Returns a program of containerd: `containerd` or `ctr`. The shim is beside them.
pub fn containerd(program: &str) -> PathBuf {
    built(&format!("containerd-{CONTAINERD_VERSION}/{program}"))
}

/// Returns the folder of the CNI plug-ins, as `make rig` builds them.
pub fn cni_plugins() -> PathBuf {
    let folder = folder().join(format!("cni-plugins-{CNI_PLUGINS_VERSION}"));
    built(&format!("cni-plugins-{CNI_PLUGINS_VERSION}/bridge"));
    folder
}

/// Returns CoreDNS, as `make rig` builds it: a static program.
pub fn coredns() -> PathBuf {
    built(&format!("coredns-{COREDNS_VERSION}/coredns"))
}

/// Returns flannel's daemon, as `make rig` builds it.
pub fn flannel() -> PathBuf {
    built(&format!("flannel-{FLANNEL_VERSION}/flanneld"))
}

/// Returns kube-router, as `make rig` builds it.
pub fn kube_router() -> PathBuf {
    built(&format!("kube-router-{KUBE_ROUTER_VERSION}/kube-router"))
}

/// Returns the program that keeps namespaces and does nothing, as `make rig` builds it: a static one.
pub fn pause() -> PathBuf {
    built("pause-1/pause")
}

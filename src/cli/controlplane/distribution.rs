//! Distributions that do not configure the cluster in static Pod manifests and kubelet files, or generate these files from their own
//! configuration. A change of a generated file is lost when the distribution starts again, so netsurgeon refuses the change.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::session::Failure;

/// A distribution, how to recognize it on a host, and how to change its Service range and its kubelets' DNS address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Distribution {
    pub(super) name: &'static str,
    /// A path that only a host of this distribution has.
    sign: &'static str,
    /// Folders in which the distribution generates manifests and kubelet files.
    generates: &'static [&'static str],
    /// Whether its kubelets read another file than kubeadm's.
    has_own_kubelet_file: bool,
    /// The configuration files with keys at the top level: a file, and a folder of further files.
    configuration: Option<[&'static str; 2]>,
    range: &'static str,
    dns: &'static str,
}

/// Paths and settings come from the documentation of each distribution.
const DISTRIBUTIONS: [Distribution; 7] = [
    Distribution {
        name: "RKE2",
        sign: "/etc/rancher/rke2",
        generates: &["/var/lib/rancher/rke2"],
        has_own_kubelet_file: true,
        configuration: Some(["/etc/rancher/rke2/config.yaml", "/etc/rancher/rke2/config.yaml.d"]),
        range: "`service-cidr: VALUE` in FILE of every server, then restart rke2-server",
        dns: "`cluster-dns: VALUE` in FILE of every server, then restart rke2-server, and rke2-agent on agents",
    },
    Distribution {
        name: "K3s",
        sign: "/etc/rancher/k3s",
        generates: &["/var/lib/rancher/k3s"],
        has_own_kubelet_file: true,
        configuration: Some(["/etc/rancher/k3s/config.yaml", "/etc/rancher/k3s/config.yaml.d"]),
        range: "`service-cidr: VALUE` in FILE of every server, then restart k3s",
        dns: "`cluster-dns: VALUE` in FILE of every server, then restart k3s, also on agents",
    },
    Distribution {
        name: "k0s",
        sign: "/var/lib/k0s",
        generates: &["/var/lib/k0s"],
        has_own_kubelet_file: true,
        configuration: None,
        range: "`spec.network.serviceCIDR: VALUE` in /etc/k0s/k0s.yaml of every controller, then restart k0scontroller",
        dns: "`clusterDNS: [VALUE]` in the values of `spec.workerProfiles` in /etc/k0s/k0s.yaml of every controller, then restart k0scontroller and k0sworker",
    },
    Distribution {
        name: "MicroK8s",
        sign: "/var/snap/microk8s/current",
        generates: &["/var/snap/microk8s"],
        has_own_kubelet_file: true,
        configuration: None,
        range: "`--service-cluster-ip-range=VALUE` in /var/snap/microk8s/current/args/kube-apiserver of every node, and in args/kube-controller-manager if it is there, then `snap restart microk8s.daemon-kubelite`",
        dns: "`--cluster-dns=VALUE` in /var/snap/microk8s/current/args/kubelet of every node, then `snap restart microk8s.daemon-kubelite`",
    },
    Distribution {
        name: "Talos",
        sign: "/system/state",
        generates: &["/etc/kubernetes", "/var/lib/kubelet", "/system"],
        has_own_kubelet_file: true,
        configuration: None,
        range: "`cluster.network.serviceSubnets: [VALUE]` in the machine configuration of every control-plane node: `talosctl edit machineconfig`",
        dns: "`machine.kubelet.clusterDNS: [VALUE]` in the machine configuration of every node: `talosctl edit machineconfig`",
    },
    Distribution {
        name: "kOps",
        sign: "/opt/kops",
        generates: &["/etc/kubernetes/manifests"],
        has_own_kubelet_file: false,
        configuration: None,
        range: "`spec.serviceClusterIPRange: VALUE` with `kops edit cluster`, then `kops update cluster --yes` and a rolling update of \
                the control plane",
        dns: "`spec.kubeDNS.serverIP: VALUE` with `kops edit cluster`, then `kops update cluster --yes` and a rolling update",
    },
    Distribution {
        name: "systemd",
        sign: "/etc/systemd/system/kube-apiserver.service",
        generates: &[],
        has_own_kubelet_file: false,
        configuration: None,
        range: "`--service-cluster-ip-range=VALUE` in kube-apiserver.service, then `systemctl daemon-reload` and a restart",
        dns: "`clusterDNS: [VALUE]` in the file of `kubelet --config` on every node, or the kubelet flag `--cluster-dns=VALUE`, then a \
              restart",
    },
];
/// The end of the path of RKE2's manifests, for another `data-dir`.
const MANIFESTS_OF_RKE2: &str = "agent/pod-manifests";

/// Adds hints about how to change the Service range on this host.
pub(super) fn range(failure: Failure, to: &str) -> Failure {
    failure.hints(here().map(|one| one.hint(one.range, to)))
}

/// Adds hints about how to change the kubelets' DNS address on this host.
pub(super) fn dns(failure: Failure, to: &str) -> Failure {
    failure.hints(here().map(|one| one.hint(one.dns, to)))
}

/// Refuses to change the Service range in a folder of manifests that a distribution generates.
pub(super) fn refuse_generated_manifests(folder: &Path, to: &str) -> Result<(), Failure> {
    let Some(one) = generator(folder) else { return Ok(()) };
    let text = format!(
        "{} generates the manifests in `{}` from its own configuration, and overwrites changes",
        one.name,
        folder.display()
    );
    Err(Failure::refused(text).hint(one.hint(one.range, to)))
}

/// Refuses to change the DNS address in a kubelet's file that a distribution generates, or that its kubelet does not read.
/// `is_default`: whether the file is that of kubeadm.
pub(super) fn refuse_generated_kubelet_file(file: &Path, is_default: bool, to: &str) -> Result<(), Failure> {
    let unread = || here().find(|one| is_default && one.has_own_kubelet_file);
    let (one, text) = match (generator(file), unread()) {
        (Some(one), _) => (
            one,
            format!(
                "{} generates `{}` from its own configuration, and overwrites changes",
                one.name,
                file.display()
            ),
        ),
        (None, Some(one)) => (one, format!("the kubelet of {} does not read `{}`", one.name, file.display())),
        (None, None) => return Ok(()),
    };
    Err(Failure::refused(text).hint(one.hint(one.dns, to)))
}

/// Returns the distribution that generates a file or folder. Folders of Rancher have an unmistakable name. Folders that other
/// hosts also have count only if the sign of the distribution is there.
fn generator(path: &Path) -> Option<&'static Distribution> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let is_of = |one: &&Distribution| {
        let is_there = one.generates.iter().any(|folder| path.starts_with(folder));
        is_there && (one.sign.starts_with("/etc/rancher") || Path::new(one.sign).exists())
    };
    let of_rke2 = |one: &&Distribution| one.name == "RKE2" && path.ends_with(MANIFESTS_OF_RKE2);
    DISTRIBUTIONS.iter().find(|one| is_of(one) || of_rke2(one))
}

fn here() -> impl Iterator<Item = &'static Distribution> {
    DISTRIBUTIONS.iter().filter(|one| Path::new(one.sign).exists())
}

impl Distribution {
    /// Returns the hint: the setting, its file, and the line in which the file has the setting now.
    fn hint(&self, template: &str, to: &str) -> String {
        let key = template.trim_start_matches('`').split(':').next().unwrap_or_default();
        let place = self.configuration.map(|places| place(places, key)).unwrap_or_default();
        format!("{}: {}", self.name, template.replace("VALUE", to).replace("FILE", &place))
    }
}

/// Returns the file that has a key at its top level, and the line of the key. The last file that has the key counts. Without such a
/// file, returns the main file.
fn place([file, folder]: [&str; 2], key: &str) -> String {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "yaml" || end == "yml")).collect();
    files.sort();
    files.insert(0, PathBuf::from(file));
    let line = |path: &PathBuf| {
        let text = fs::read_to_string(path).ok()?;
        let is_key =
            |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'));
        text.lines().position(|line| is_key(line.trim_matches(['"', '\'']))).map(|at| at.saturating_add(1))
    };
    let found = files.iter().rev().find_map(|path| Some((path, line(path)?)));
    let mut text = found.map_or_else(|| file.to_string(), |(path, _)| path.display().to_string());
    if let Some((_, line)) = found {
        // Writing to a String never fails.
        let _ = write!(text, " (line {line})");
    }
    text
}

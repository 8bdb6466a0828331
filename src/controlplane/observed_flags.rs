//! Reads the control plane's flags from static Pod manifests, processes on this host, and Pods in the API.

use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use serde::Serialize;

use super::{API_SERVER, CONTROLLER_MANAGER, FLAG};
use crate::host::process::{Process, running};
use crate::kube_api::{ApiServer, Cluster, ReadOnly};
use crate::session::Failure;
use crate::survey::Finding;
use crate::wire::manifest::{ManifestError, flag, runs};
use crate::words::quoted_or;

/// Folders from which kubelets read static Pod manifests. kubeadm and kOps use the first folder (`staticPodPath`), and RKE2 uses
/// the second folder.
const FOLDERS: [&str; 2] = ["/etc/kubernetes/manifests", "/var/lib/rancher/rke2/agent/pod-manifests"];
/// The port of an API server without `--secure-port`.
const SECURE_PORT: u16 = 6443;
/// Label keys for the component of a static Pod. kubeadm sets the first label, and kOps sets the second label.
const LABELS: [&str; 2] = ["component", "k8s-app"];

/// The Service range flag of one component, and where it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Name of the component.
    pub component: &'static str,
    /// `manifest`, `process` or `pod`.
    pub source: &'static str,
    /// The file, the process id, or the Pod with its node.
    pub at: String,
    /// The value of the flag; `None` if the flag is not given.
    pub range: Option<String>,
    /// Whether the component runs with this flag; always false for a manifest.
    #[serde(skip)]
    pub runs: bool,
}

impl Seen {
    /// Returns where the flag was read, for example `kube-apiserver process 1234 on this host` or `pod kube-apiserver-a on a`.
    pub fn subject(&self) -> String {
        let Self { component, source, at, .. } = self;
        match *source {
            "process" => format!("{component} process {at} on this host"),
            _ => format!("{source} {at}"),
        }
    }
}

/// Returns the folder of static Pod manifests on this host, if there is one.
pub fn folder_of_manifests() -> Option<PathBuf> {
    FOLDERS.iter().map(PathBuf::from).find(|folder| folder.is_dir())
}

/// A manifest of a component of the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The file.
    pub path: PathBuf,
    /// The component that the manifest runs.
    pub component: &'static str,
    /// The content of the file.
    pub text: String,
}

/// Returns the manifests in a folder that run a component of the control plane. As a kubelet does, ignores only files whose name
/// starts with a dot, whatever the end of the name (`pkg/kubelet/config/file.go`, v1.36.3).
pub fn manifests(folder: &Path) -> Result<Vec<Manifest>, Failure> {
    let unreadable = |path: &Path, error: &dyn std::fmt::Display| {
        Failure::refused(format!("`{}`: {error}", path.display()))
    };
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| {
        path.is_file() && !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
    });
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
        for component in [API_SERVER, CONTROLLER_MANAGER] {
            if runs(&text, component).map_err(|error| unreadable(&path, &error))? {
                found.push(Manifest { path: path.clone(), component, text: text.clone() });
            }
        }
    }
    Ok(found)
}

/// Returns the flags in manifests.
pub fn in_manifests(manifests: &[Manifest]) -> Result<Vec<Seen>, Failure> {
    let seen = |Manifest { path, component, text }: &Manifest| {
        let at = path.display().to_string();
        let range = flag(text, component, FLAG);
        let range = range.map_err(|error| Failure::refused(format!("`{at}`: {error}")))?;
        Ok(Seen { component, source: "manifest", at, range, runs: false })
    };
    manifests.iter().map(seen).collect()
}

/// Returns a finding for each component that several manifests run. A kubelet reads every file of its folder, also a backup copy.
/// Both files define the same Pod, and which of the two runs is undefined.
pub fn duplicates(manifests: &[Manifest]) -> Vec<Finding> {
    let mut found = Vec::new();
    for component in [API_SERVER, CONTROLLER_MANAGER] {
        let own = manifests.iter().filter(|one| one.component == component);
        let files: Vec<String> = own.map(|one| format!("`{}`", one.path.display())).collect();
        if files.len() > 1 {
            found.push(Finding::error("duplicate-manifest", component).says(format!(
                "{} manifests run it, and which of them the kubelet uses is undefined: {}",
                files.len(),
                files.join(", ")
            )));
        }
    }
    found
}

/// Returns whether this host has a process of an API server, or a manifest for one.
pub(super) fn runs_here() -> bool {
    let has_manifest = |folder: PathBuf| {
        manifests(&folder).is_ok_and(|all| all.iter().any(|one| one.component == API_SERVER))
    };
    in_processes().iter().any(|one| one.component == API_SERVER)
        || folder_of_manifests().is_some_and(has_manifest)
}

/// Returns the flags of processes in the network of this host. Other processes that this host shows, such as those in containers
/// of kind, belong to other clusters.
pub fn in_processes() -> Vec<Seen> {
    let of = |component: &'static str| {
        running(component).into_iter().filter(Process::shares_network).map(move |process| Seen {
            component,
            source: "process",
            at: process.pid.to_string(),
            range: process.flag(FLAG).map(str::to_string),
            runs: true,
        })
    };
    [API_SERVER, CONTROLLER_MANAGER].into_iter().flat_map(of).collect()
}

/// Returns the flags of processes on this host that are API servers of one cluster. `servers` are the endpoints of
/// `default/kubernetes` in this cluster. Other processes may belong to other clusters.
pub fn in_processes_of(servers: &[ApiServer]) -> Vec<Seen> {
    let mut found = Vec::new();
    for process in running(API_SERVER) {
        if process.shares_network() && serves(&process, servers) {
            let (at, range) = (process.pid.to_string(), process.flag(FLAG).map(str::to_string));
            found.push(Seen { component: API_SERVER, source: "process", at, range, runs: true });
        }
    }
    found
}

/// Returns whether a process is one of these API servers. The port of the process (`--secure-port`, 6443 by default) and its
/// advertised address must match. Without `--advertise-address` a process advertises an address of this host
/// (`ServerRunOptions.DefaultAdvertiseAddress`, `apiserver/pkg/server/options/server_run_options.go`, v1.36.3).
fn serves(process: &Process, servers: &[ApiServer]) -> bool {
    let port = process.flag("secure-port").map_or(Some(SECURE_PORT), |port| port.parse().ok());
    let advertised = process.flag("advertise-address").map(str::parse::<IpAddr>);
    servers.iter().any(|server| {
        let is_there = match &advertised {
            Some(address) => address.as_ref().is_ok_and(|address| *address == server.address),
            // Only an address of this host can be bound.
            None => UdpSocket::bind((server.address, 0)).is_ok(),
        };
        is_there && port == Some(server.port)
    })
}

/// A Pod of the control plane.
struct ControlPlanePod {
    /// Name of the Pod and name of its node.
    at: String,
    pod: Pod,
    /// The Pod as text in JSON, which is also YAML.
    text: String,
}

impl ControlPlanePod {
    fn runs(&self, component: &str) -> Result<bool, Failure> {
        runs(&self.text, component).map_err(|error| self.unreadable(&error))
    }

    fn flag(&self, component: &str, name: &str) -> Result<Option<String>, Failure> {
        flag(&self.text, component, name).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &ManifestError) -> Failure {
        Failure::refused(format!("Pod `{}`: {error}", self.at))
    }
}

/// Returns the flags of Pods in the API. Kubelets create mirror Pods in the API for static Pods.
pub async fn in_pods(cluster: &Cluster) -> Result<Vec<Seen>, Failure> {
    let pods = pods(&ReadOnly::new(cluster.clone()), &[API_SERVER, CONTROLLER_MANAGER]).await?;
    let mut found: Vec<Seen> = Vec::new();
    for component in [API_SERVER, CONTROLLER_MANAGER] {
        for one in &pods {
            if one.runs(component)? {
                let (at, range) = (one.at.clone(), one.flag(component, FLAG)?);
                found.push(Seen {
                    component,
                    source: "pod",
                    runs: is_running(&one.pod, component),
                    at,
                    range,
                });
            }
        }
    }
    Ok(found)
}

/// Returns each Pod of a component with its node. Also returns the values of the flags in `names` that the Pod has.
pub async fn flags_in_pods(
    cluster: &ReadOnly,
    component: &str,
    names: &[&'static str],
) -> Result<Vec<(String, BTreeMap<&'static str, String>)>, Failure> {
    let mut found = Vec::new();
    for one in pods(cluster, &[component]).await? {
        if !one.runs(component)? {
            continue;
        }
        let mut flags = BTreeMap::new();
        for name in names {
            if let Some(value) = one.flag(component, name)? {
                flags.insert(*name, value);
            }
        }
        found.push((one.at, flags));
    }
    Ok(found)
}

/// Returns each Pod of these components in `kube-system` once, with its name and node.
async fn pods(cluster: &ReadOnly, components: &[&str]) -> Result<Vec<ControlPlanePod>, Failure> {
    let mut found: BTreeMap<String, Pod> = BTreeMap::new();
    for label in LABELS {
        let selector = format!("{label} in ({})", components.join(","));
        for pod in cluster.objects::<Pod>(Some("kube-system"), Some(&selector)).await? {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
            found.entry(format!("{name} on {node}")).or_insert(pod);
        }
    }
    // Serializing a Pod never fails.
    let text = |pod: &Pod| serde_json::to_string(pod).unwrap_or_default();
    Ok(found.into_iter().map(|(at, pod)| ControlPlanePod { at, text: text(&pod), pod }).collect())
}

/// Returns whether the container of the component runs with the current Pod spec, and the condition `Ready` is not `False`. A
/// mirror Pod is recreated when its manifest changes, and gets the container's state later (`pkg/kubelet/pod/mirror_client.go`,
/// `status/status_manager.go`, v1.36.3). The node controller sets `Ready` to `False` for Pods on a lost node
/// (`pkg/controller/nodelifecycle`).
fn is_running(pod: &Pod, component: &str) -> bool {
    let Some(status) = &pod.status else { return false };
    let runs = |one: &ContainerStatus| {
        one.name == component && one.state.as_ref().is_some_and(|state| state.running.is_some())
    };
    let is_unready = |one: &PodCondition| one.type_ == "Ready" && one.status == "False";
    status.container_statuses.iter().flatten().any(runs)
        && !status.conditions.iter().flatten().any(is_unready)
}

/// Returns a finding for each difference. All API servers must have the same ranges. A controller manager that has the flag must
/// have these ranges, too.
pub fn differences(seen: &[Seen]) -> Vec<Finding> {
    let of = |component: &str| seen.iter().filter(|one| one.component == component).collect::<Vec<_>>();
    let say = |one: &Seen| format!("{} has {}", one.subject(), quoted_or(one.range.as_deref(), "no range"));
    let mut found = Vec::new();
    let servers = of(API_SERVER);
    let Some(first) = servers.first() else { return found };
    if let Some(other) = servers.iter().find(|other| other.range != first.range) {
        let finding = Finding::error("api-server-ranges-differ", API_SERVER);
        found.push(finding.says(format!("{}, but {}", say(first), say(other))));
    }
    for manager in of(CONTROLLER_MANAGER) {
        if manager.range.is_some() && manager.range != first.range {
            let finding = Finding::warning("controller-manager-range-differs", manager.subject());
            found.push(finding.says(format!("{}, but {}", say(manager), say(first))));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_belongs_to_the_cluster_whose_endpoint_it_serves() {
        let server = |text: &str| {
            let at: std::net::SocketAddr = text.parse().unwrap();
            ApiServer { address: at.ip(), port: at.port() }
        };
        let servers = [server("192.0.2.10:6443"), server("192.0.2.11:7443")];
        let process = |line: &str| Process { pid: 1, arguments: line.split(' ').map(String::from).collect() };
        let is_one = |line: &str, servers: &[ApiServer]| serves(&process(line), servers);
        assert!(is_one("kube-apiserver --advertise-address=192.0.2.10", &servers));
        assert!(is_one("kube-apiserver --advertise-address=192.0.2.11 --secure-port=7443", &servers));
        assert!(!is_one("kube-apiserver --advertise-address=192.0.2.11", &servers), "another port");
        assert!(!is_one("kube-apiserver --advertise-address=192.0.2.12", &servers), "another address");
        assert!(!is_one("kube-apiserver", &servers), "no endpoint is an address of this host");
        assert!(is_one("kube-apiserver --secure-port=7443", &[server("127.0.0.1:7443")]));
    }
}

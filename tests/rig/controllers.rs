//! One real kube-controller-manager with the controllers that a cluster's Services need.

use std::path::{Path, PathBuf};

use super::apiserver::KubernetesVersion;
use super::process::Process;
use super::static_pods::command_in;

/// The controllers that run. None for nodes, clouds or workloads: no component would run what they ask for.
const CONTROLLERS: [&str; 8] = [
    "endpointslice-controller",
    "endpoints-controller",
    "endpointslice-mirroring-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "service-cidr-controller",
    "garbage-collector-controller",
    "clusterrole-aggregation-controller",
];

/// More that run with their own service accounts: those for the objects of `deploy/`, those that deploy pipelines use, and
/// quotas.
const MORE_CONTROLLERS: [&str; 6] = [
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "job-controller",
    "replicaset-controller",
    "resourcequota-controller",
];

/// The controllers of workloads that run on request. No kubelet runs what they create, so their Pods stay pending.
const WORKLOAD_CONTROLLERS: [&str; 5] = [
    "cronjob-controller",
    "job-controller",
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
];

/// The options of the controllers.
pub struct ControllerOptions<'a> {
    pub version: KubernetesVersion,
    pub kubeconfig: PathBuf,
    /// The private key of service account tokens.
    pub service_account_key: &'a Path,
    pub authority: &'a Path,
    pub service_cidrs: &'a str,
    pub flags: Vec<String>,
    /// Whether each uses its own service account, as with kubeadm, and not the kubeconfig's user.
    pub as_themselves: bool,
    /// Whether the controllers of workloads run.
    pub of_workloads: bool,
    /// Whether all that are on by default run, instead of these: there are real nodes.
    pub all: bool,
    /// The manifest with their command, if they are a static Pod.
    pub manifest: Option<&'a Path>,
    pub log: PathBuf,
}

impl ControllerOptions<'_> {
    /// The program's name, and its flags.
    pub fn command(&self) -> Vec<String> {
        if let Some(manifest) = self.manifest {
            return command_in(manifest);
        }
        let more: &[&str] = if self.as_themselves { &MORE_CONTROLLERS } else { &[] };
        let workloads: &[&str] = if self.of_workloads { &WORKLOAD_CONTROLLERS } else { &[] };
        let controllers = if self.all { vec!["*"] } else { [&CONTROLLERS[..], more, workloads].concat() };
        let mut command = vec![
            "kube-controller-manager".to_owned(),
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--service-account-private-key-file={}", self.service_account_key.display()),
            format!("--root-ca-file={}", self.authority.display()),
            format!("--use-service-account-credentials={}", self.as_themselves),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            format!("--controllers={}", controllers.join(",")),
            format!("--service-cluster-ip-range={}", self.service_cidrs),
        ];
        command.extend(self.flags.iter().cloned());
        command
    }
}

/// Starts the controllers. They have no readiness to wait for: wait for the objects that they create. They serve no port.
pub fn start(options: &ControllerOptions<'_>) -> Process {
    let program = options.version.program();
    Process::start("kube-controller-manager", &program, &options.command(), &options.log)
}

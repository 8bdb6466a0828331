//! One real kube-controller-manager with the controllers that a cluster's Services need.

use std::path::{Path, PathBuf};

use super::apiserver::KubernetesVersion;
use super::process::Process;

/// The controllers that run. No nodes, no clouds, no workloads: nobody would carry them out.
const CONTROLLERS: [&str; 7] = [
    "endpointslice-controller",
    "endpoints-controller",
    "endpointslice-mirroring-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "service-cidr-controller",
    "garbage-collector-controller",
];

/// What the controllers are started with.
pub struct ControllerOptions<'a> {
    pub version: KubernetesVersion,
    pub kubeconfig: &'a Path,
    /// The private key of service account tokens.
    pub service_account_key: &'a Path,
    pub authority: &'a Path,
    pub service_cidrs: &'a str,
    pub flags: &'a [String],
    pub log: PathBuf,
}

/// Starts the controllers. They have no moment of being ready that anybody could wait for: wait for what
/// they make. They serve no port.
pub fn start(options: &ControllerOptions<'_>) -> Process {
    let mut arguments = vec![
        "kube-controller-manager".to_owned(),
        format!("--kubeconfig={}", options.kubeconfig.display()),
        format!("--service-account-private-key-file={}", options.service_account_key.display()),
        format!("--root-ca-file={}", options.authority.display()),
        "--use-service-account-credentials=false".to_owned(),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--controllers={}", CONTROLLERS.join(",")),
        format!("--service-cluster-ip-range={}", options.service_cidrs),
    ];
    arguments.extend(options.flags.iter().cloned());
    Process::start("kube-controller-manager", &options.version.program(), &arguments, &options.log)
}

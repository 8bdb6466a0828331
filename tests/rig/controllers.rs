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

/// More that run when they run as themselves: those that deploy pipelines set to work, and quotas.
const MORE_CONTROLLERS: [&str; 3] =
    ["deployment-controller", "replicaset-controller", "resourcequota-controller"];

/// What the controllers are started with.
pub struct ControllerOptions<'a> {
    pub version: KubernetesVersion,
    pub kubeconfig: &'a Path,
    /// The private key of service account tokens.
    pub service_account_key: &'a Path,
    pub authority: &'a Path,
    pub service_cidrs: &'a str,
    pub flags: &'a [String],
    /// Whether each uses a service account of its own, as kubeadm has it, and not the kubeconfig's user.
    pub as_themselves: bool,
    pub log: PathBuf,
}

/// Starts the controllers. They have no moment of being ready that anybody could wait for: wait for what
/// they make. They serve no port.
pub fn start(options: &ControllerOptions<'_>) -> Process {
    let more: &[&str] = if options.as_themselves { &MORE_CONTROLLERS } else { &[] };
    let mut arguments = vec![
        "kube-controller-manager".to_owned(),
        format!("--kubeconfig={}", options.kubeconfig.display()),
        format!("--service-account-private-key-file={}", options.service_account_key.display()),
        format!("--root-ca-file={}", options.authority.display()),
        format!("--use-service-account-credentials={}", options.as_themselves),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--controllers={}", [&CONTROLLERS[..], more].concat().join(",")),
        format!("--service-cluster-ip-range={}", options.service_cidrs),
    ];
    arguments.extend(options.flags.iter().cloned());
    Process::start("kube-controller-manager", &options.version.program(), &arguments, &options.log)
}

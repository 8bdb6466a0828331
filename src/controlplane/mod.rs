//! The flags of the control plane that are visible from this host: in its static Pod manifests, its processes, and the Pods in
//! the API. Also the configuration of kube-proxy.

mod observed_flags;
mod proxy_config;
mod range_agreement;

pub use observed_flags::{
    Manifest, Seen, differences, duplicates, flags_in_pods, folder_of_manifests, in_manifests, in_pods,
    in_processes, in_processes_of, manifests,
};
pub use proxy_config::{LocalDetector, argument, document};
pub use range_agreement::{Flags, Look, Places, endpoints, flags, look, not_yet};

/// The name of the API server, as a process and as a container.
pub const API_SERVER: &str = "kube-apiserver";
/// The name of the controller manager.
pub const CONTROLLER_MANAGER: &str = "kube-controller-manager";
/// The flag that contains the Service range. The API server and the controller manager have it.
pub const FLAG: &str = "service-cluster-ip-range";

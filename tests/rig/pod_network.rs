//! Pod networks of real nodes: the CNI configurations, the routes, and the programs that they need.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::machine::{HostProcess, Machine};
use super::network::POD_CIDRS;
use super::process::wait_until;
use super::programs::{flannel, kube_router};

/// How long a program of a network may take to start; about a second on an idle machine.
const STARTUP: Duration = Duration::from_mins(1);

/// Where the CNI configuration is on a node.
pub const CONFIGURATION: &str = "/etc/cni/net.d/10-rig.conflist";

/// What connects the Pods of different nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodNetwork {
    /// Routes between the nodes. Pods reach other hosts with their own addresses.
    Bridge,
    /// VXLAN of flannel. The addresses of Pods are translated to that of their node when they leave the nodes.
    Flannel,
}

impl PodNetwork {
    /// Installs the network on a node, before its kubelet starts; returns the programs that it consists of.
    pub(super) async fn install(self, cluster: &Cluster, number: usize, host: &Machine) -> Vec<HostProcess> {
        let node = &cluster.nodes[number];
        let (mtu, programs) = match self {
            Self::Bridge => {
                cluster.network().route_pods(node, &cluster.nodes[..number]);
                (1500, Vec::new())
            }
            Self::Flannel => {
                let daemon = start_flannel(cluster, host).await;
                (mtu_of_flannel(host), vec![daemon])
            }
        };
        let ranges = cluster.of_families(&node.pod_cidrs());
        std::fs::write(host.path(CONFIGURATION), bridge(&ranges, mtu).to_string()).expect("a configuration");
        programs
    }
}

/// The bridge plug-in with addresses of these ranges, and host ports.
fn bridge(ranges: &[String], mtu: u32) -> Value {
    let subnets: Vec<_> = ranges.iter().map(|range| json!([{"subnet": range}])).collect();
    let any = |range: &String| {
        if range.contains(':') { "::/0" } else { "0.0.0.0/0" }
    };
    let routes: Vec<_> = ranges.iter().map(|range| json!({"dst": any(range)})).collect();
    json!({
        "cniVersion": "1.0.0",
        "name": "rig",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "mtu": mtu,
                "ipam": {"type": "host-local", "ranges": subnets, "routes": routes},
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

async fn start_flannel(cluster: &Cluster, host: &Machine) -> HostProcess {
    let config = json!({"Network": POD_CIDRS[0], "Backend": {"Type": "vxlan"}});
    let file = host.folder().join("flannel.json");
    std::fs::write(&file, config.to_string()).expect("a configuration");
    let arguments = [
        format!("NODE_NAME={}", host.name()),
        flannel().display().to_string(),
        "--kube-subnet-mgr".to_owned(),
        format!("--kubeconfig-file={}", cluster.kubeconfig().display()),
        format!("--net-config-path={}", file.display()),
        "--iface=eth0".to_owned(),
        "--ip-masq".to_owned(),
    ];
    let mut process = host.start_process("flannel", Path::new("env"), &arguments);
    let subnet = host.path("/run/flannel/subnet.env");
    let ready = process.ready("flannel has a subnet", STARTUP, async || {
        std::fs::read_to_string(&subnet).map(drop).map_err(|error| error.to_string())
    });
    ready.await.unwrap_or_else(|message| panic!("{message}"));
    process
}

fn mtu_of_flannel(host: &Machine) -> u32 {
    let text = std::fs::read_to_string(host.path("/run/flannel/subnet.env")).expect("flannel writes it");
    let value = text.lines().find_map(|line| line.strip_prefix("FLANNEL_MTU=")).expect("flannel writes it");
    value.parse().expect("a number")
}

/// Starts kube-router on a node, which enforces NetworkPolicies and nothing else, and waits until it is healthy.
pub async fn start_policies(cluster: &Cluster, host: &Machine) -> HostProcess {
    let arguments = [
        "--run-router=false",
        "--run-service-proxy=false",
        "--run-loadbalancer=false",
        "--run-firewall=true",
    ];
    let mut arguments: Vec<String> = arguments.map(str::to_owned).into();
    arguments.extend([
        format!("--kubeconfig={}", cluster.kubeconfig().display()),
        format!("--hostname-override={}", host.name()),
        format!("--service-cluster-ip-range={}", cluster.service_cidrs()),
    ]);
    let process = host.start_process("kube-router", &kube_router(), &arguments);
    wait_until("kube-router is healthy", STARTUP, async || {
        let output =
            host.command("curl").args(["--silent", "--fail", "http://127.0.0.1:20244/healthz"]).output();
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(process.log_tail()) }
    })
    .await;
    process
}

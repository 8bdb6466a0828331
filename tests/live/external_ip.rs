//! An old address that is held as an external IP serves as the ClusterIP did: all endpoints, and the client's own address as the
//! source.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::pods::Pod;
use super::rig::probe::Probe;
use super::rig::proxy::{KubeProxy, ProxyMode};
use super::rig::report::{Report, Target};

const DEADLINE: Duration = Duration::from_mins(1);

/// An address of the cluster's range that no Service has.
const HELD: &str = "10.96.77.7";

#[tokio::test]
async fn external_ip_serves_with_nftables() {
    a_held_address_serves_pods_and_nodes(Era::Objects, ProxyMode::Nftables).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn external_ip_serves_with_iptables() {
    a_held_address_serves_pods_and_nodes(Era::Objects, ProxyMode::Iptables).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn external_ip_serves_with_iptables_1_32() {
    a_held_address_serves_pods_and_nodes(Era::Bitmap, ProxyMode::Iptables).await;
}

/// In 1.32.2 the rule that drops traffic without a local endpoint runs, for packets from the node itself, before the translation
/// (`filter-output` at priority -110; in 1.36.3 at 0). Pods are served; clients on the node are not.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn nftables_1_32_drops_connections_from_the_node() {
    let held = Held::start(Era::Bitmap, ProxyMode::Nftables).await;
    let report = steady(|| held.client.probe(&held.targets), &held.targets).await;
    held.assert_unbroken(&report, held.client.address());
    let [cluster_ip, old] = held.targets;
    let probe = held.cluster.nodes[0].probe(&held.targets);
    probe.wait_for_success(cluster_ip, DEADLINE).await;
    probe.wait_for_failure(old, DEADLINE).await;
    let report = probe.stop();
    println!("{report}");
    assert_eq!(report.of(old).last_success, None, "{report}");
}

async fn a_held_address_serves_pods_and_nodes(era: Era, mode: ProxyMode) {
    let held = Held::start(era, mode).await;
    let report = steady(|| held.client.probe(&held.targets), &held.targets).await;
    held.assert_unbroken(&report, held.client.address());
    let node = &held.cluster.nodes[0];
    let report = steady(|| node.probe(&held.targets), &held.targets).await;
    held.assert_unbroken(&report, node.address());
}

/// A Service with an external IP and a Pod on the other node.
struct Held {
    /// The ClusterIP and the held address.
    targets: [Target; 2],
    client: Pod,
    _pod: Pod,
    _proxies: Vec<KubeProxy>,
    cluster: Cluster,
}

impl Held {
    async fn start(era: Era, mode: ProxyMode) -> Self {
        let cluster = Cluster::start(ClusterOptions { nodes: 2, ..ClusterOptions::new(era) }).await;
        let proxies = cluster.start_proxies(mode).await;
        let web = json!({"app": "web"});
        let pod = cluster.create_pod(1, "there", &web).await;
        let client = cluster.create_pod(0, "client", &json!({"app": "client"})).await;
        cluster.create_echo_service("web", &web, &json!({"clusterIP": "10.96.0.5"})).await;
        let hold = json!({"externalIPs": [HELD], "externalTrafficPolicy": "Local"});
        cluster.api.merge("/api/v1/namespaces/default/services/web", &json!({"spec": hold})).await;
        let targets = ["10.96.0.5", HELD].map(|address| Target::tcp(address, 80));
        Self { targets, client, _pod: pod, _proxies: proxies, cluster }
    }

    fn assert_unbroken(&self, report: &Report, source: IpAddr) {
        println!("{report}");
        assert!(report.failures().is_empty(), "{report}");
        assert_eq!(Vec::from_iter(report.sources()), [source], "the source is kept: {report}");
        assert_eq!(Vec::from_iter(report.servers()), ["there"], "{report}");
        for target in self.targets {
            assert_eq!(report.of(target).long_lived, 1, "unbroken: {report}");
        }
    }
}

/// Probes once everything answers.
async fn steady(probe: impl Fn() -> Probe, targets: &[Target]) -> Report {
    let trial = probe();
    for target in targets {
        trial.wait_for_success(*target, DEADLINE).await;
    }
    drop(trial);
    let probe = probe();
    for target in targets {
        probe.wait_for_attempts(*target, 200, DEADLINE).await;
        probe.wait_for_exchanges(*target, 5, DEADLINE).await;
    }
    probe.stop()
}

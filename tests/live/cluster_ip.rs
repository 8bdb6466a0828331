//! The probes work: connections through a ClusterIP reach endpoints on both nodes, and fail when the endpoints are deleted.

use std::time::Duration;

use serde_json::json;

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::pods::Pod;
use super::rig::probe::Probe;
use super::rig::proxy::ProxyMode;
use super::rig::report::{Kind, Target};

/// The longest time for any wait.
const DEADLINE: Duration = Duration::from_mins(1);

const WEB: &str = "10.96.0.5";

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn cluster_ip_serves_with_nftables() {
    serves(Era::Objects, ProxyMode::Nftables).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn cluster_ip_serves_with_iptables() {
    serves(Era::Objects, ProxyMode::Iptables).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn cluster_ip_serves_with_nftables_1_32() {
    serves(Era::Bitmap, ProxyMode::Nftables).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn cluster_ip_serves_with_iptables_1_32() {
    serves(Era::Bitmap, ProxyMode::Iptables).await;
}

/// A Service with an endpoint on each node is probed from a Pod; then its endpoints are deleted.
async fn serves(era: Era, mode: ProxyMode) {
    let cluster = Cluster::start(ClusterOptions { nodes: 2, ..ClusterOptions::new(era) }).await;
    let _proxies = cluster.start_proxies(mode).await;
    let web = json!({"app": "web"});
    let here = cluster.create_pod(0, "here", &web).await;
    let there = cluster.create_pod(1, "there", &web).await;
    let client = cluster.create_pod(0, "client", &json!({"app": "client"})).await;
    cluster.create_echo_service("web", &web, &json!({"clusterIP": WEB})).await;

    let (tcp, udp) = (Target::tcp(WEB, 80), Target::udp(WEB, 80));
    let trial = client.probe(&[tcp, udp]);
    for target in [tcp, udp] {
        trial.wait_for_servers(target, &["here", "there"], DEADLINE).await;
    }
    drop(trial);

    let probe = client.probe(&[tcp, udp]);
    probe.wait_for_attempts(tcp, 300, DEADLINE).await;
    probe.wait_for_attempts(udp, 300, DEADLINE).await;
    probe.wait_for_exchanges(tcp, 10, DEADLINE).await;
    let report = probe.report();
    println!("{era:?} {mode:?}: {report}");
    assert!(report.failures().is_empty(), "{report}");
    assert_eq!(Vec::from_iter(report.sources()), [client.address()], "the source is kept: {report}");
    assert_eq!(Vec::from_iter(report.servers()), ["here", "there"], "{report}");
    assert_eq!(report.of(tcp).long_lived, 1, "unbroken: {report}");
    assert_eq!(report.repeated_syns, 0, "no first packet was lost: {report}");

    let tracked = cluster.nodes[0].namespace().conntrack(WEB);
    let source = format!("src={} dst={WEB}", client.address());
    assert!(tracked.iter().any(|line| line.contains(&source)), "{tracked:?}");

    endpoints_go_and_come_and_the_service_goes(&cluster, probe, tcp, &[here, there]).await;
}

async fn endpoints_go_and_come_and_the_service_goes(
    cluster: &Cluster,
    probe: Probe,
    tcp: Target,
    pods: &[Pod],
) {
    let gone = probe.elapsed();
    for pod in pods {
        cluster.set_ready(pod, false).await;
    }
    probe.wait_for_failure(tcp, DEADLINE).await;
    probe.wait_for_exchanges(tcp, 5, DEADLINE).await;
    for pod in pods {
        cluster.set_ready(pod, true).await;
    }
    probe.wait_for_success(tcp, DEADLINE).await;
    let back = probe.elapsed();
    cluster.api.delete("/api/v1/namespaces/default/services/web").await;
    probe.wait_for_failure(tcp, DEADLINE).await;
    let report = probe.stop();
    println!("{report}");
    let failures = report.failures();
    assert!(failures.iter().all(|failure| failure.kind == Kind::New && failure.at > gone), "{report}");
    assert!(failures.iter().any(|failure| failure.at < back), "without endpoints: {report}");
    assert!(failures.iter().any(|failure| failure.at > back), "without the Service: {report}");
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn cluster_ips_serve_in_both_families() {
    let mut options = ClusterOptions { nodes: 2, ..ClusterOptions::new(Era::Objects) };
    "10.96.0.0/16,fd00:10:96::/112".clone_into(&mut options.service_cidrs);
    let cluster = Cluster::start(options).await;
    let _proxies = cluster.start_proxies(ProxyMode::Nftables).await;
    let web = json!({"app": "web"});
    let _pods = [cluster.create_pod(0, "here", &web).await, cluster.create_pod(1, "there", &web).await];
    let client = cluster.create_pod(0, "client", &json!({"app": "client"})).await;
    let addresses = [WEB, "fd00:10:96::5"];
    let both = json!({"ipFamilyPolicy": "RequireDualStack", "clusterIP": WEB, "clusterIPs": addresses});
    cluster.create_echo_service("web", &web, &both).await;
    let targets = [Target::tcp(WEB, 80), Target::tcp(addresses[1], 80), Target::udp(addresses[1], 80)];
    let trial = client.probe(&targets);
    for target in targets {
        trial.wait_for_servers(target, &["here", "there"], DEADLINE).await;
    }
    drop(trial);
    let probe = client.probe(&targets);
    for target in targets {
        probe.wait_for_attempts(target, 200, DEADLINE).await;
    }
    let report = probe.stop();
    println!("{report}");
    assert!(report.failures().is_empty(), "{report}");
    assert_eq!(Vec::from_iter(report.sources()), client.addresses(), "{report}");
}

//! The data plane when a component below it fails: connections to the API that are cut, a frozen API server, an etcd that loses
//! its leader.

use std::time::Duration;

use serde_json::json;

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::etcd::EtcdOptions;
use super::rig::network::gateway;
use super::rig::pods::Pod;
use super::rig::process::wait_until;
use super::rig::proxy::{ProxyMode, ProxyOptions, http_get};
use super::rig::relay::Relay;
use super::rig::report::Target;
use super::sentinel;

const DEADLINE: Duration = Duration::from_mins(2);

/// How many Services change.
const SERVICES: usize = 20;

/// How often a kube-proxy's connections to the API are cut meanwhile.
const CUTS: usize = 10;

/// Each Service changes by a separate write: a kube-proxy whose watch is cut off anywhere then finds all changes when it resumes.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn kube_proxy_misses_nothing_when_its_connections_are_cut() {
    let cluster = Cluster::start(ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) }).await;
    let relay = Relay::start_at(gateway().into(), &cluster.api_servers[0].url().replace("https://", ""));
    let mut options = ProxyOptions::new(ProxyMode::Nftables);
    options.server = Some(format!("https://{}", relay.address()));
    let _proxy = cluster.start_proxy(0, &options).await;
    let names = ["a", "b"];
    let mut pods = Vec::new();
    for name in names {
        pods.push(cluster.create_pod(0, name, &json!({"app": name})).await);
    }
    for number in 0..SERVICES {
        let address = json!({"clusterIP": address_of(number)});
        cluster.create_echo_service(&format!("s{number}"), &json!({"app": "a"}), &address).await;
    }
    all_lead_to(SERVICES, &pods[0], "a").await;

    relay.cut_after(Some(200..7000));
    let mut round = 0;
    while relay.cuts() < CUTS {
        round += 1;
        for number in 0..SERVICES {
            let path = format!("/api/v1/namespaces/default/services/s{number}");
            let change = json!({"spec": {"selector": {"app": names[round % 2]}}});
            cluster.api.merge(&path, &change).await;
        }
    }
    relay.cut_after(None);
    println!("{} connections cut in {round} rounds", relay.cuts());
    all_lead_to(SERVICES, &pods[0], names[round % 2]).await;
}

fn address_of(number: usize) -> String {
    format!("10.96.1.{}", number + 1)
}

/// Waits until that Pod answers at the Services' addresses.
async fn all_lead_to(services: usize, client: &Pod, name: &str) {
    for number in 0..services {
        let target = Target::tcp(&address_of(number), 80);
        wait_until(&format!("{target} routes to {name}"), DEADLINE, async || match client.ask(target) {
            Ok((_, server)) if server == name => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    }
}

#[tokio::test]
async fn kube_proxy_of_a_frozen_api_server_applies_nothing() {
    let options = ClusterOptions { nodes: 2, api_servers: 2, ..ClusterOptions::new(Era::Objects) };
    let mut cluster = Cluster::start(options).await;
    let mut proxies = Vec::new();
    for (number, server) in cluster.api_servers.iter().enumerate() {
        let mut options = ProxyOptions::new(ProxyMode::Nftables);
        options.server = Some(server.url());
        proxies.push(cluster.start_proxy(number, &options).await);
    }
    let api = cluster.api_of(1).await;
    cluster.pause_api_server(0);
    let port = sentinel::create(&api, "sentinel").await;
    sentinel::directly(&cluster.nodes[1], port, "sentinel").await;
    let answer = http_get((cluster.nodes[0].address(), port).into(), "/healthz").await;
    assert!(answer.is_err(), "{answer:?}");
    cluster.resume_api_server(0);
    sentinel::directly(&cluster.nodes[0], port, "sentinel").await;
}

/// The rules of a stopped kube-proxy continue to serve, and a slow kube-proxy applies every change late.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn kube_proxy_restart_interrupts_nothing() {
    let cluster = Cluster::start(ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) }).await;
    let mut proxy = cluster.start_proxy(0, &ProxyOptions::new(ProxyMode::Nftables)).await;
    let pod = cluster.create_pod(0, "web", &json!({"app": "web"})).await;
    let address = json!({"clusterIP": address_of(0)});
    cluster.create_echo_service("web", &json!({"app": "web"}), &address).await;
    all_lead_to(1, &pod, "web").await;

    let target = Target::tcp(&address_of(0), 80);
    let probe = cluster.nodes[0].probe(&[target]);
    proxy.stop();
    probe.wait_for_attempts(target, 100, DEADLINE).await;
    proxy.config["nftables"] = json!({"minSyncPeriod": "10s", "syncPeriod": "1h"});
    proxy.start_again().await;
    // The first syncs after a start follow each other at once.
    for name in ["first", "second", "ten-seconds-later"] {
        let port = sentinel::create(&cluster.api, name).await;
        sentinel::directly(&cluster.nodes[0], port, name).await;
    }
    let report = probe.stop();
    println!("{report}");
    assert!(report.failures().is_empty(), "{report}");
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn api_continues_when_etcd_loses_its_leader() {
    let mut options = ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) };
    options.etcd = EtcdOptions { members: 3, ..EtcdOptions::default() };
    let mut cluster = Cluster::start(options).await;
    let _proxy = cluster.start_proxy(0, &ProxyOptions::new(ProxyMode::Nftables)).await;
    let before = cluster.etcd.leader().await;
    cluster.etcd.kill_member(before);
    let after = cluster.etcd.leader().await;
    assert_ne!(before, after);
    wait_until("the API stores something", DEADLINE, async || {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "probe-"}});
        cluster.api.try_create(&object).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    let port = sentinel::create(&cluster.api, "sentinel").await;
    sentinel::directly(&cluster.nodes[0], port, "sentinel").await;
    cluster.etcd.start_again().await;
    assert!(!cluster.etcd.keys("/registry/namespaces/probe-").await.is_empty());
}

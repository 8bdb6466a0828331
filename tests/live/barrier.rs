//! The barrier returns once every kube-proxy has applied the earlier writes, and not before.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use netsurgeon::ip::Family;
use netsurgeon::kube_api::{
    Barrier, BarrierError, BarrierRoute, Cluster as Api, ClusterOptions as ApiOptions,
};
use serde_json::{Value, json};

use super::api_servers::admin;
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;
use super::rig::proxy::{KubeProxy, ProxyMode, ProxyOptions};
use super::rig::run::says;

fn barrier(reach: BarrierRoute, seconds: u64) -> Barrier {
    Barrier {
        namespace: "kube-system".into(),
        operation: "test".into(),
        family: Family::V4,
        reach,
        deadline: Duration::from_secs(seconds),
        without: BTreeSet::new(),
    }
}

async fn start(era: Era, mode: ProxyMode) -> (Cluster, Vec<KubeProxy>, Api) {
    let cluster = Cluster::start(ClusterOptions { nodes: 2, ..ClusterOptions::new(era) }).await;
    let proxies = cluster.start_proxies(mode).await;
    let api = admin(&cluster).await;
    (cluster, proxies, api)
}

async fn assert_nothing_left(cluster: &Cluster) {
    let services = cluster.api.list("/api/v1/namespaces/kube-system/services").await;
    let left: Vec<&Value> = services.iter().map(|service| &service["metadata"]["name"]).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// These parts share a cluster: each leaves it as it was.
#[tokio::test]
async fn barrier_is_crossed_or_names_the_node() {
    let cluster = Cluster::start(ClusterOptions { nodes: 2, ..ClusterOptions::new(Era::Objects) }).await;
    let api = admin(&cluster).await;
    leftover_sentinels_are_removed(&cluster, &api).await;
    let mut proxies = cluster.start_proxies(ProxyMode::Nftables).await;
    is_crossed(&cluster, &api, ProxyMode::Nftables).await;
    paused_kube_proxy_is_named(&cluster, &mut proxies[1], &api).await;
    barrier_recreates_a_deleted_sentinel(&cluster, &mut proxies[1], &api).await;
    node_behind_a_firewall_is_asked_through_the_api_server(&cluster).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn barrier_is_crossed_with_iptables() {
    let (cluster, _proxies, api) = start(Era::Objects, ProxyMode::Iptables).await;
    is_crossed(&cluster, &api, ProxyMode::Iptables).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn barrier_is_crossed_in_the_bitmap_era() {
    let (cluster, _proxies, api) = start(Era::Bitmap, ProxyMode::Iptables).await;
    is_crossed(&cluster, &api, ProxyMode::Iptables).await;
}

async fn is_crossed(cluster: &Cluster, api: &Api, mode: ProxyMode) {
    for (reach, through) in
        [(BarrierRoute::Direct, false), (BarrierRoute::NodeProxy, true), (BarrierRoute::Auto, false)]
    {
        for _ in 0..5 {
            let crossed = api.barrier(&barrier(reach, 30)).await.unwrap();
            let names: Vec<&str> = crossed.nodes.iter().map(|passage| passage.node.as_str()).collect();
            assert_eq!(names, ["node-1", "node-2"], "{mode:?} {reach:?}");
            if reach != BarrierRoute::Auto {
                assert!(crossed.nodes.iter().all(|passage| passage.through_api_server == through));
            }
            let slowest = crossed.nodes.iter().map(|passage| passage.after).max();
            println!("{:?} {mode:?} {reach:?}: {slowest:?}", cluster.era());
        }
    }
    assert_nothing_left(cluster).await;
}

/// Runs a barrier that cannot end, and returns its error. On a busy machine, the other kube-proxy can need longer than the time
/// limit: then the barrier runs again with a longer one.
async fn barrier_that_one_node_misses(api: &Api, route: BarrierRoute) -> BarrierError {
    let mut seconds = 4;
    loop {
        let error = api.barrier(&barrier(route, seconds)).await.unwrap_err();
        match &error {
            BarrierError::NotCrossed { count: 2.., .. } if seconds < 60 => seconds *= 2,
            _ => return error,
        }
    }
}

async fn paused_kube_proxy_is_named(cluster: &Cluster, proxy: &mut KubeProxy, api: &Api) {
    proxy.pause();
    for reach in [BarrierRoute::Direct, BarrierRoute::NodeProxy, BarrierRoute::Auto] {
        let error = barrier_that_one_node_misses(api, reach).await;
        println!("{reach:?}: {error}");
        let BarrierError::NotCrossed { count, of, silent, .. } = &error else { panic!("{error}") };
        assert_eq!((*count, *of, silent[0].node.as_str()), (1, 2, "node-2"), "{error}");
        assert!(!silent[0].seen.is_empty(), "{error}");
        assert_nothing_left(cluster).await;
    }
    let without = BTreeSet::from(["node-2".to_string()]);
    let crossed = api.barrier(&Barrier { without, ..barrier(BarrierRoute::Auto, 30) }).await.unwrap();
    assert_eq!(crossed.nodes.len(), 1);
    proxy.resume();
    api.barrier(&barrier(BarrierRoute::Auto, 60)).await.unwrap();
}

/// A frozen process, whose operation another process resumed, treats the other's sentinel as its own leftover and deletes it.
async fn barrier_recreates_a_deleted_sentinel(cluster: &Cluster, proxy: &mut KubeProxy, api: &Api) {
    proxy.pause();
    let other = admin(cluster).await;
    let waiting = tokio::spawn(async move { other.barrier(&barrier(BarrierRoute::Direct, 60)).await });
    let sentinels = async || {
        let services = cluster.api.list("/api/v1/namespaces/kube-system/services").await;
        services.iter().map(|service| service["metadata"]["name"].to_string()).collect::<Vec<_>>()
    };
    let first = wait_until("a sentinel exists", Duration::from_secs(30), async || {
        sentinels().await.pop().ok_or_else(|| "none".to_string())
    })
    .await;
    api.barrier(&barrier(BarrierRoute::Direct, 1)).await.expect_err("a kube-proxy is frozen");
    assert!(!sentinels().await.contains(&first), "it was deleted as a leftover");
    proxy.resume();
    waiting.await.expect("the task ends").expect("the barrier is crossed");
    assert_nothing_left(cluster).await;
}

/// An API server that has just started has no ranges for a moment, and reports that they are full. The same answer comes from a
/// range that is full, until an address is free.
#[tokio::test]
async fn barrier_waits_until_the_allocator_has_an_address() {
    let options = ClusterOptions {
        nodes: 1,
        service_cidrs: "10.96.0.0/29".into(),
        ..ClusterOptions::new(Era::Objects)
    };
    let cluster = Cluster::start(options).await;
    let _proxies = cluster.start_proxies(ProxyMode::Nftables).await;
    let api = admin(&cluster).await;
    for last in 2..=6 {
        let spec = json!({"clusterIP": format!("10.96.0.{last}"), "ports": [{"port": 80}]});
        cluster.api.create_service("default", &format!("web-{last}"), spec).await;
    }
    let waiting = tokio::spawn(async move { api.barrier(&barrier(BarrierRoute::Direct, 30)).await });
    wait_until("an address was refused", Duration::from_mins(1), async || {
        let (_, metrics) = cluster.ask("/metrics").await?;
        let is_refusal = |line: &&str| {
            let words = ["apiserver_request_total", "code=\"500\"", "resource=\"services\"", "verb=\"POST\""];
            words.iter().all(|word| line.contains(word))
        };
        metrics.lines().find(is_refusal).map(drop).ok_or_else(|| "no refusal".to_owned())
    })
    .await;
    cluster.api.delete("/api/v1/namespaces/default/services/web-2").await;
    waiting.await.expect("the task ends").expect("the barrier is crossed");
    assert_nothing_left(&cluster).await;
}

/// The API server asks a node that this host cannot reach.
async fn node_behind_a_firewall_is_asked_through_the_api_server(cluster: &Cluster) {
    let [hidden, client] = [&cluster.nodes[0], &cluster.nodes[1]];
    let namespace = client.namespace();
    namespace.run("nft", &["add", "table", "inet", "firewall"]);
    let chain = "{ type filter hook output priority 0 ; }";
    namespace.run("nft", &["add", "chain", "inet", "firewall", "out", chain]);
    let hidden = hidden.address().to_string();
    namespace.run("nft", &["add", "rule", "inet", "firewall", "out", "ip", "daddr", &hidden, "drop"]);
    let (sender, results) = std::sync::mpsc::channel();
    let kubeconfig = cluster.kubeconfig().to_path_buf();
    let mut worker = namespace.work("client", move |_| async move {
        let options = ApiOptions { kubeconfig: Some(kubeconfig), ..ApiOptions::default() };
        let api = Api::connect(&options).await.expect("the administrator connects");
        for reach in [BarrierRoute::Direct, BarrierRoute::Auto] {
            let outcome = api.barrier(&barrier(reach, 10)).await.map_err(|error| error.to_string());
            sender.send(outcome).expect("the test waits");
        }
    });
    worker.stop();
    let error = results.recv().unwrap().unwrap_err();
    says(&error, &["1 of 2 nodes", "`node-1`", &hidden, " ms"]);
    let crossed = results.recv().unwrap().unwrap();
    println!("{crossed:?}");
    let names: Vec<&str> = crossed.nodes.iter().map(|passage| passage.node.as_str()).collect();
    assert_eq!(names, ["node-1", "node-2"]);
    // The other node answers either way: its port can open between the two requests.
    assert!(crossed.nodes[0].through_api_server, "{crossed:?}");
    namespace.run("nft", &["delete", "table", "inet", "firewall"]);
    assert_nothing_left(cluster).await;
}

/// Earlier writes are in force when the barrier returns, also with a long sync period of kube-proxy.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn rules_are_in_force_with_a_long_period_under_nftables() {
    rules_are_in_force(ProxyMode::Nftables).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn rules_are_in_force_with_a_long_period_under_iptables() {
    rules_are_in_force(ProxyMode::Iptables).await;
}

async fn rules_are_in_force(mode: ProxyMode) {
    let cluster = Cluster::start(ClusterOptions { nodes: 2, ..ClusterOptions::new(Era::Objects) }).await;
    let mut proxies = Vec::new();
    for node in 0..2 {
        proxies.push(cluster.start_proxy(node, &ProxyOptions::slow(mode, "10s")).await);
    }
    let api = admin(&cluster).await;
    let mut late = 0;
    for round in 0..3 {
        let address = format!("10.96.9.{}", 10 + round);
        let spec = json!({"clusterIP": address, "ports": [{"port": 80}]});
        cluster.api.create_service("default", &format!("web-{round}"), spec).await;
        late += usize::from(!rules(mode, cluster.nodes[0].namespace()).contains(&address));
        let started = Instant::now();
        api.barrier(&barrier(BarrierRoute::Auto, 60)).await.unwrap();
        println!("{mode:?}, period 10s: {:?}", started.elapsed());
        for node in &cluster.nodes {
            let rules = rules(mode, node.namespace());
            assert!(rules.contains(&address), "{mode:?} {}: {address} has no rule", node.name);
        }
    }
    assert!(late > 0, "{mode:?}: every rule was in force without a wait");
}

fn rules(mode: ProxyMode, namespace: &super::rig::namespace::Namespace) -> String {
    match mode {
        ProxyMode::Nftables => namespace.run("nft", &["list", "table", "ip", "kube-proxy"]),
        ProxyMode::Iptables => namespace.run("iptables-save", &[]),
    }
}

/// Leftovers of a killed process are removed: those of this operation at once, those of others after an hour.
async fn leftover_sentinels_are_removed(cluster: &Cluster, api: &Api) {
    for (name, part, operation) in
        [("mine", "barrier", "test"), ("fresh", "barrier", "other"), ("shadow", "hold", "test")]
    {
        let labels = json!({
            "app.kubernetes.io/managed-by": "netsurgeon", "netsurgeon.io/part": part,
            "netsurgeon.io/operation": operation,
        });
        let metadata = json!({"name": name, "namespace": "kube-system", "labels": labels});
        let spec = json!({"ports": [{"port": 1}]});
        cluster
            .api
            .create(&json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}))
            .await;
    }
    let error = api.barrier(&barrier(BarrierRoute::Auto, 1)).await.unwrap_err();
    assert!(error.to_string().contains("`node-1`"), "without a kube-proxy: {error}");
    let services = cluster.api.list("/api/v1/namespaces/kube-system/services").await;
    let names: Vec<&str> =
        services.iter().filter_map(|service| service["metadata"]["name"].as_str()).collect();
    assert_eq!(names, ["fresh", "shadow"]);
    for name in names {
        cluster.api.delete(&format!("/api/v1/namespaces/kube-system/services/{name}")).await;
    }
}

/// Dual-stack: a sentinel of the other family tests the other half of each kube-proxy.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn each_family_has_its_own_barrier() {
    let mut options = ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) };
    "10.96.0.0/16,fd00:10:96::/112".clone_into(&mut options.service_cidrs);
    let cluster = Cluster::start(options).await;
    let _proxies = cluster.start_proxies(ProxyMode::Nftables).await;
    let api = admin(&cluster).await;
    let object = cluster.api.get("/api/v1/nodes/node-1").await;
    println!("{}", object["status"]["addresses"]);
    for family in [Family::V4, Family::V6] {
        let crossed = api.barrier(&Barrier { family, ..barrier(BarrierRoute::Direct, 30) }).await.unwrap();
        assert_eq!(crossed.nodes.len(), 1, "{family}");
    }
}

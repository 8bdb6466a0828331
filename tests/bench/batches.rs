//! Measures the time of one batch of a renumbering on a cluster with a kube-proxy, and compares it with the time that kube-proxy
//! takes to apply as many changes of Services once.
//!
//! A batch changes each Service twice: the Services of the next batch get the new address beside the old one, and those of this
//! batch move. The operation continues when every node has applied both. *Plain* is one change of as many Services through the
//! API, eight in flight, until the node (`nft`) has the rule of the last one. *Both* is one change of twice as many Services:
//! what kube-proxy has to apply for a batch.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use http::Method;
use serde::Serialize;
use serde_json::{Value, json};

use crate::measure::median;
use crate::rig::cluster::{Cluster, ClusterOptions, Era};
use crate::rig::process::wait_until;
use crate::rig::proxy::ProxyMode;

const SERVICES: usize = 400;
const BATCH: usize = 50;
const ROUNDS: usize = 5;
const PARALLEL: usize = 8;
const MERGE: &str = "application/merge-patch+json";
const DEADLINE: Duration = Duration::from_mins(3);

/// The figures.
#[derive(Debug, Serialize)]
pub struct Batches {
    pub services: usize,
    pub batch: usize,
    /// From one batch to the next.
    pub seconds: f64,
    pub plain_seconds: f64,
    pub to_plain: f64,
    /// Syncs of kube-proxy from one batch to the next.
    pub syncs: f64,
    /// Plain changes, as many as a batch makes.
    pub both_seconds: f64,
    pub to_both: f64,
}

/// Measures both on one cluster of one node.
pub async fn measure(netsurgeon: &Path) -> Batches {
    eprintln!("measuring batches of {BATCH} Services beside a kube-proxy");
    let cluster = Cluster::start(ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) }).await;
    let _proxies = cluster.start_proxies(ProxyMode::Nftables).await;
    let web = json!({"app": "web"});
    let _pod = cluster.create_pod(0, "web", &web).await;
    let names: Vec<String> = (0..SERVICES).map(|number| format!("web-{number}")).collect();
    for name in &names {
        cluster.create_echo_service(name, &web, &Value::Null).await;
    }
    routed(&cluster, &addresses(&cluster).await).await;
    let plain_seconds = plain_rounds(&cluster, &names[..BATCH]).await;
    let both_seconds = plain_rounds(&cluster, &names[..2 * BATCH]).await;
    // A shadow holds a Service that has its own external IPs: that is another kind of batch.
    for name in &names[..2 * BATCH] {
        let change = json!({"spec": {"externalIPs": null}});
        let patched = cluster.api.request(Method::PATCH, &service(name), MERGE, Some(&change)).await;
        patched.expect("a patch");
    }
    let (seconds, syncs) = from_batch_to_batch(netsurgeon, &cluster);
    let (to_plain, to_both) = (seconds / plain_seconds, seconds / both_seconds);
    Batches {
        services: SERVICES,
        batch: BATCH,
        seconds,
        plain_seconds,
        to_plain,
        syncs,
        both_seconds,
        to_both,
    }
}

/// Changes these Services repeatedly; returns the median of the seconds.
async fn plain_rounds(cluster: &Cluster, names: &[String]) -> f64 {
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        rounds.push(plain(cluster, names, round).await);
    }
    median(rounds)
}

async fn addresses(cluster: &Cluster) -> Vec<String> {
    let services = cluster.api.list("/api/v1/namespaces/default/services").await;
    let mine = services.iter().filter(|service| service["metadata"]["name"] != "kubernetes");
    mine.map(|service| service["spec"]["clusterIP"].as_str().expect("an address").to_string()).collect()
}

/// Waits until the node routes all of these.
async fn routed(cluster: &Cluster, addresses: &[String]) {
    let last = addresses.len();
    wait_until("kube-proxy has applied every change", DEADLINE, async || {
        let rules =
            cluster.nodes[0].namespace().run("nft", &["list", "map", "ip", "kube-proxy", "service-ips"]);
        let found =
            addresses.iter().filter(|address| rules.contains(&format!("{address} . tcp . 80"))).count();
        if found == last { Ok(()) } else { Err(format!("{found} of {last}")) }
    })
    .await;
}

fn service(name: &str) -> String {
    format!("/api/v1/namespaces/default/services/{name}")
}

/// Adds an external IP to each of these Services; returns the seconds until all are routed.
async fn plain(cluster: &Cluster, names: &[String], round: usize) -> f64 {
    let address = |number: usize| format!("198.18.{round}.{}", number + 1);
    let wanted: Vec<String> = (0..names.len()).map(address).collect();
    let started = Instant::now();
    let changes = names.iter().zip(&wanted).map(|(name, address)| {
        let (path, change) = (service(name), json!({"spec": {"externalIPs": [address]}}));
        async move {
            let patched = cluster.api.request(Method::PATCH, &path, MERGE, Some(&change)).await;
            patched.expect("a patch");
        }
    });
    futures_util::stream::iter(changes).buffer_unordered(PARALLEL).collect::<Vec<()>>().await;
    routed(cluster, &wanted).await;
    started.elapsed().as_secs_f64()
}

/// Returns how often kube-proxy has applied changes so far.
fn syncs_so_far(cluster: &Cluster) -> usize {
    let log = std::fs::read_to_string(cluster.directory().join("kube-proxy-node-1.log")).expect("a log");
    log.matches("SyncProxyRules complete").count()
}

/// Moves all Services; returns the medians of the seconds, and of kube-proxy's syncs, from one batch to the next.
fn from_batch_to_batch(netsurgeon: &Path, cluster: &Cluster) -> (f64, f64) {
    let (snapshot, size) = (cluster.directory().join("before.db"), BATCH.to_string());
    let mut command = Command::new(netsurgeon);
    command.env_clear().env("KUBECONFIG", cluster.kubeconfig());
    command.env("ETCDCTL_ENDPOINTS", cluster.etcd.endpoints().join(","));
    command.args(["renumber", "apply", "--to", "10.200.0.0/16", "--yes", "--confirm", "certificates"]);
    command.args(["--batch-size", &size, "--snapshot-to"]).arg(snapshot);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("netsurgeon starts");
    let (mut moved, mut said) = (Vec::new(), Vec::new());
    for line in BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok) {
        // The program prints one line when the Services of a batch have moved.
        if line.starts_with("wait until every node routes batch ") {
            moved.push((Instant::now(), syncs_so_far(cluster)));
        }
        said.push(line);
    }
    let status = child.wait().expect("netsurgeon ends");
    assert_eq!(status.code(), Some(6), "it pauses for the flag: {said:#?}");
    let batches = SERVICES / BATCH;
    assert!(moved.len() >= batches, "{said:#?}");
    // During the wait for the last batch nothing is prepared: the Service after it moves alone.
    let pairs = || moved[..batches - 1].windows(2);
    let seconds = median(pairs().map(|pair| pair[1].0.duration_since(pair[0].0).as_secs_f64()).collect());
    (seconds, median(pairs().map(|pair| (pair[1].1 - pair[0].1) as f64).collect()))
}

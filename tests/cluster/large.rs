//! The most that a tenant can store in Services: many, each as large as etcd accepts. Commands that read all of them keep only
//! the fields that they need.

use std::process::Command;

use serde_json::{Value, json};

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::memory::{take_peak, under_time};

/// The memory that a command may need, in KiB, for all that a tenant may store (tests/live/tenant.rs).
const MEMORY: u64 = 200 * 1024;
/// Each has 1.4 MB in etcd, and takes 30 MB if its JSON is kept as a whole.
const SERVICES: usize = 10;
const PORTS: usize = 10_800;

/// Runs a command; returns its memory in KiB.
fn memory(cluster: &Cluster, words: &str) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
    command.args(words.split(' '));
    command.env("KUBECONFIG", cluster.kubeconfig()).env("ETCDCTL_ENDPOINTS", cluster.etcd.endpoint());
    let output = under_time(&command).output().expect("`time` runs");
    let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
    let out = String::from_utf8_lossy(&output.stdout);
    println!("$ netsurgeon {words}\n{out}{said}[{:?}]", output.status.code());
    assert!([0, 3].contains(&output.status.code().unwrap_or(-1)), "{words}: {said}");
    take_peak(&mut said)
}

#[tokio::test]
async fn large_services_need_little_memory() {
    let cluster = Cluster::start(ClusterOptions::new(Era::Objects)).await;
    let ports: Vec<Value> =
        (1..=PORTS).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
    for number in 0..SERVICES {
        cluster.api.create_service("default", &format!("large-{number}"), json!({"ports": ports})).await;
    }
    let mut too_much = Vec::new();
    for words in [
        "ranges check",
        "renumber plan --to 10.200.0.0/16",
        "audit --old 10.201.0.0/16",
        "preflight renumber --to 10.200.0.0/16 --within 15",
        "preflight cni --to cilium --within 15",
        "preflight dns --zone example.test --name www.example.test --server 127.0.0.53 --resolver 127.0.0.53 --within 15",
    ] {
        let taken = memory(&cluster, words);
        if taken >= MEMORY {
            too_much.push(format!("`{words}` took {taken} KiB"));
        }
    }
    assert!(too_much.is_empty(), "{too_much:?}");
}

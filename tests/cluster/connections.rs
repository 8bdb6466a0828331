//! `preflight --only` connects only to what the selected checks need, and a check names everything that it needs.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::run::{Run, run};

/// A server that never answers: its address, and the number of connections to it.
fn silent() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for connection in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            held.push(connection);
        }
    });
    (address, count)
}

fn netsurgeon(words: &str, etcd: &str, kubeconfig: &str) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
    command.env_clear().current_dir("/").args(words.split_whitespace());
    command.env("ETCDCTL_ENDPOINTS", etcd).env("KUBECONFIG", kubeconfig);
    run(words, command)
}

struct Stage {
    cluster: Cluster,
}

impl Stage {
    /// The verdict of each check, and what it observed.
    fn verdicts(&self, words: &str) -> BTreeMap<String, (String, String)> {
        let kubeconfig = self.cluster.kubeconfig().display().to_string();
        let ran =
            netsurgeon(&format!("preflight {words} -o json"), &self.cluster.etcd.endpoint(), &kubeconfig);
        let shown: Value =
            serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.err));
        let text = |check: &Value, part: &str| check[part].as_str().expect("a text").to_owned();
        let checks = shown["checks"].as_array().expect("checks").iter();
        checks.map(|check| (text(check, "name"), (text(check, "verdict"), text(check, "observed")))).collect()
    }
}

#[tokio::test]
async fn check_connects_only_to_what_it_needs() {
    let options = ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) };
    let stage = Stage { cluster: Cluster::start(options).await };
    let kubeconfig = stage.cluster.kubeconfig().display().to_string();
    let (address, count) = silent();
    let words = "preflight renumber --to 10.200.0.0/16 --only";
    let endpoint = format!("http://{address}");
    netsurgeon(&format!("{words} certificates,api,api-servers"), &endpoint, &kubeconfig);
    netsurgeon(&format!("{words} api"), &endpoint, &kubeconfig).expect(0);
    assert_eq!(count.load(Ordering::SeqCst), 0, "no check reads etcd");

    let text = stage.cluster.kubeconfig_for(&format!("https://{address}"));
    let silent_api = stage.cluster.directory().join("silent.conf");
    std::fs::write(&silent_api, text).expect("a file");
    let silent_api = silent_api.display().to_string();
    netsurgeon(&format!("{words} allocations"), &stage.cluster.etcd.endpoint(), &silent_api).expect(0);
    assert_eq!(count.load(Ordering::SeqCst), 0, "no check reads the API");

    let mirror = format!("mirror --mirror-kubeconfig {kubeconfig}");
    for command in ["renumber --to 10.200.0.0/16", "cni --to cilium", &mirror] {
        let all = stage.verdicts(command);
        for (name, (verdict, observed)) in &all {
            let alone = &stage.verdicts(&format!("{command} --only {name}"))[name];
            assert!(!alone.1.contains("is not read"), "{command}: {name}: {}", alone.1);
            if !observed.starts_with("not run: ") {
                assert_eq!(&alone.0, verdict, "{command}: {name}: {} instead of {observed}", alone.1);
            }
        }
    }
}

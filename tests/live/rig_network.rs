//! The rig's promises about its network: its parts reach each other, the machine sees nothing of it, and nothing is left of it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::machine::{self, Machine};
use super::rig::namespace::{Namespace, remove_leftovers};
use super::rig::network::Network;
use super::rig::process::wait_until;
use super::rig::programs;
use super::rig::proxy::ProxyMode;

const DEADLINE: Duration = Duration::from_mins(1);

/// Set for the process that is killed.
const VICTIM: &str = "NETSURGEON_TEST_VICTIM";

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn program_reaches_etcd_and_pods_reach_the_api() {
    let outside = Namespace::current();
    let cluster = Cluster::start(ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) }).await;
    assert!(Namespace::current().is(cluster.network().hub()));
    let output = Command::new(env!("CARGO_BIN_EXE_netsurgeon"))
        .args(["ranges", "check"])
        .env("ETCDCTL_ENDPOINTS", cluster.etcd.endpoint())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");

    let _proxies = cluster.start_proxies(ProxyMode::Nftables).await;
    let pod = cluster.create_pod(0, "client", &serde_json::json!({})).await;
    wait_until("the pod connects to default/kubernetes", DEADLINE, async || {
        let connect = || std::net::TcpStream::connect_timeout(&([10, 96, 0, 1], 443).into(), DEADLINE / 10);
        pod.namespace().within(connect).map(drop).map_err(|error| error.to_string())
    })
    .await;
    let machine = outside.run("ip", &["-oneline", "link"]);
    assert!(!machine.contains("fabric") && !machine.contains("node-1"), "{machine}");
    drop(cluster);
    assert!(Namespace::current().is(&outside), "the thread is back");
}

/// A run that is killed leaves neither processes nor names, and the next run removes its cgroups.
#[tokio::test]
async fn killed_run_leaves_no_process_and_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rig_network::victim", "--nocapture"])
        .env(VICTIM, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let child = lines.find_map(|line| line.split_once("child ").map(|(_, id)| id.to_owned()));
    let child = child.expect("the victim prints its child's id");
    let namespace = std::fs::read_link(format!("/proc/{child}/ns/net")).unwrap();
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until("the victim's child has ended", DEADLINE, async || {
        if Path::new("/proc").join(&child).exists() { Err(format!("{child} still runs")) } else { Ok(()) }
    })
    .await;
    let lives_on = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(|process| {
        std::fs::read_link(process.path().join("ns/net")).is_ok_and(|other| other == namespace)
    });
    assert!(!lives_on, "no process is in {}", namespace.display());

    // As if the run had been killed a moment earlier, while the namespace had its name.
    let name = format!("netsurgeon-{}-0-hub", victim.id());
    assert!(Command::new("ip").args(["netns", "add", &name]).status().unwrap().success());
    remove_leftovers(victim.id());
    assert!(!Path::new("/run/netns").join(&name).exists(), "{name} is removed");

    let cgroups = || {
        let entries = std::fs::read_dir("/sys/fs/cgroup").unwrap().filter_map(Result::ok);
        let all = entries.map(|entry| entry.path()).chain([PathBuf::from("/sys/fs/cgroup")]);
        all.filter(|root| root.join(format!("netsurgeon-{}-0-node-1", victim.id())).exists()).count()
    };
    assert_ne!(cgroups(), 0, "the victim had cgroups");
    machine::remove_leftovers(victim.id());
    assert_eq!(cgroups(), 0);
}

/// [`killed_run_leaves_no_process_and_no_name`] starts this in its own process; otherwise it does nothing.
#[tokio::test]
async fn victim() {
    let Some(folder) = std::env::var_os(VICTIM) else { return };
    let network = Network::enter(1);
    let node = network.add_node(&[]);
    let host = Machine::start(&node.name, node.namespace(), Path::new(&folder), &[programs::folder()]).await;
    let arguments = ["infinity".to_owned()];
    let child = host.start_process("sleep", Path::new("sleep"), &arguments);
    println!("child {}", child.id());
    std::future::pending::<()>().await;
}

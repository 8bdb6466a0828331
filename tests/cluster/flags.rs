//! `netsurgeon controlplane` against running API servers, with the mirror Pods that kubelets would create there.

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;
use super::rig::run::says;

fn command(cluster: &Cluster, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
    command.env_clear().args(arguments.split_whitespace());
    command.args(["-o", "json", "--kubeconfig"]).arg(cluster.kubeconfig());
    command
}

fn told(output: &Output) -> (Option<i32>, Value, String) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{}{said}", String::from_utf8_lossy(&output.stdout));
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default(), said)
}

async fn mirror(cluster: &Cluster, number: usize, range: &str) {
    let words = ["kube-apiserver".to_string(), format!("--service-cluster-ip-range={range}")];
    cluster.mirror("kube-apiserver", number, &words).await;
}

/// A process that looks like the API server of another cluster on this host, until it is dropped.
struct OtherApiServer(Child);

impl OtherApiServer {
    fn start() -> Self {
        let script = "exec -a kube-apiserver sh -c 'read line' --secure-port=7443 --service-cluster-ip-range=10.99.0.0/16";
        let child = Command::new("bash").args(["-c", script]).stdin(Stdio::piped()).spawn();
        Self(child.expect("bash"))
    }
}

impl Drop for OtherApiServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// No API server runs in a Pod. The processes of this host show the flags; the process of another cluster does not count.
async fn processes_of_this_cluster_count(cluster: &Cluster) {
    let other = OtherApiServer::start();
    let line = format!("/proc/{}/cmdline", other.0.id());
    let started = async || {
        let line = std::fs::read_to_string(&line).unwrap_or_default();
        if line.starts_with("kube-apiserver") { Ok(()) } else { Err(line) }
    };
    wait_until("the other process has its name", Duration::from_secs(30), started).await;
    let range = "10.96.0.0/16";
    for host in ["", "--host"] {
        let words = format!("controlplane wait --range {range} --timeout 60 {host}");
        let (code, _, said) = told(&command(cluster, &words).output().unwrap());
        assert_eq!(code, Some(0), "{said}");
    }
    let (code, shown, said) = told(&command(cluster, "controlplane show").output().unwrap());
    assert_eq!(code, Some(0), "{said}");
    let components = shown["components"].as_array().unwrap();
    assert!(components.iter().any(|one| one["source"] == "process"), "{shown}");
    assert!(components.iter().all(|one| one["range"] != "10.99.0.0/16"), "{shown}");

    // As on another machine: no process is visible, so the flags can never be read.
    for host in ["", "--host"] {
        let words = format!("controlplane wait --range {range} --timeout 3600 {host}");
        let mut elsewhere = Command::new("unshare");
        elsewhere.args(["--pid", "--fork", "--mount-proc"]);
        elsewhere.arg(env!("CARGO_BIN_EXE_netsurgeon")).args(words.split_whitespace());
        elsewhere.args(["-o", "json", "--kubeconfig"]).arg(cluster.kubeconfig());
        let (code, found, said) = told(&elsewhere.output().expect("unshare"));
        assert_eq!((code, &found["findings"][0]["code"]), (Some(3), &json!("api-server-unseen")), "{said}");
        says(&said, &["every API server is ready", "cannot read every flag"]);
    }
}

#[tokio::test]
async fn wait_needs_every_api_server() {
    let mut options = ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) };
    options.api_servers = 2;
    let mut cluster = Cluster::start(options).await;
    processes_of_this_cluster_count(&cluster).await;
    for number in 0..2 {
        mirror(&cluster, number, "10.96.0.0/16").await;
    }
    let (code, shown, said) = told(&command(&cluster, "controlplane show --no-host").output().unwrap());
    assert_eq!(code, Some(0), "{said}");
    let ranges: Vec<&Value> =
        shown["components"].as_array().unwrap().iter().map(|one| &one["range"]).collect();
    assert_eq!(ranges, ["10.96.0.0/16", "10.96.0.0/16"]);
    assert_eq!(shown["components"][1]["at"], "kube-apiserver-cp-1 on cp-1");

    mirror(&cluster, 0, "10.200.0.0/16").await;
    let (code, shown, _) = told(&command(&cluster, "controlplane show --no-host").output().unwrap());
    assert_eq!((code, &shown["findings"][0]["code"]), (Some(3), &json!("api-server-ranges-differ")));
    let waits = "controlplane wait --range 10.200.0.0/16";
    let (code, found, _) = told(&command(&cluster, &format!("{waits} --timeout 1")).output().unwrap());
    assert_eq!((code, &found["findings"][0]["code"]), (Some(3), &json!("api-server-has-another-range")));

    // One server is paused, and its Pod has the new range already: the command waits for both servers.
    cluster.pause_api_server(1);
    mirror(&cluster, 1, "10.200.0.0/16").await;
    let mut waiting = command(&cluster, &format!("{waits} --timeout 120"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it keeps waiting for a while", Duration::from_secs(30), async || {
        match waiting.try_wait().unwrap() {
            Some(status) => panic!("it did not wait: {status}"),
            None => {
                cluster.api.find("/api/v1/namespaces/kube-system").await.map(drop).ok_or_else(String::new)
            }
        }
    })
    .await;
    cluster.resume_api_server(1);
    let (code, _, said) = told(&waiting.wait_with_output().unwrap());
    assert_eq!(code, Some(0), "{said}");
    says(&said, &["API server", "`10.200.0.0/16`"]);
}

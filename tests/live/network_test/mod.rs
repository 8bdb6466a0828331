//! `network test` on real nodes: nothing fails on a sound network, and each planted fault is found by the path that is named for it.

mod faults;
mod life;
mod scale;
mod sound;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::rig::cluster::{Cluster, ClusterOptions};
use super::rig::image::AGENT;
use super::rig::pod_network::{CONFIGURATION, PodNetwork, start_policies};
use super::rig::real_node::RealNodes;
use super::rig::run::{Run, run};

const DEADLINE: Duration = Duration::from_mins(1);
const NAMESPACE: &str = "netsurgeon-network-test";

/// A cluster with real nodes and DNS.
struct World {
    nodes: RealNodes,
    cluster: Cluster,
}

impl World {
    async fn start(nodes: u8, network: PodNetwork) -> Self {
        Self::start_on(ClusterOptions::with_real_nodes(nodes), network).await
    }

    async fn start_on(options: ClusterOptions, network: PodNetwork) -> Self {
        let cluster = Cluster::start(options).await;
        let nodes = cluster.start_real_nodes(network).await;
        cluster.start_dns(1).await;
        Self { nodes, cluster }
    }

    async fn with_policies(nodes: u8, network: PodNetwork) -> Self {
        let mut world = Self::start(nodes, network).await;
        for node in world.nodes.iter_mut() {
            let policies = start_policies(&world.cluster, node.host()).await;
            node.programs.push(policies);
        }
        world
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
        command.args(words.split_whitespace()).env("KUBECONFIG", self.cluster.kubeconfig());
        command.env("NETSURGEON_IMAGE", AGENT);
        command
    }

    /// Runs the program to its end.
    fn netsurgeon(&self, words: &str) -> Run {
        run(words, self.command(words))
    }

    /// Runs `network test` with more options, as JSON.
    fn test(&self, options: &str) -> Value {
        let words = format!("network test {options} -o json");
        let output = self.command(&words).output().expect("netsurgeon runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        println!("$ netsurgeon {words}\n{errors}[{:?}]", output.status.code());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{errors}"))
    }
}

/// A test that runs in the background.
struct Background {
    child: Child,
    lines: Receiver<String>,
    err: String,
}

impl Background {
    fn start(world: &World, words: &str) -> Self {
        let mut command = world.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("netsurgeon runs");
        let errors = BufReader::new(child.stderr.take().expect("it is piped"));
        let (send, lines) = channel();
        std::thread::spawn(move || errors.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { child, lines, err: String::new() }
    }

    fn keep(&mut self, line: &str) {
        println!("{line}");
        self.err.push_str(line);
        self.err.push('\n');
    }

    /// Waits until the test says something.
    #[track_caller]
    fn says(&mut self, text: &str) {
        loop {
            let Ok(line) = self.lines.recv() else { panic!("never `{text}`: {}", self.err) };
            self.keep(&line);
            if line.contains(text) {
                return;
            }
        }
    }

    /// Waits for so many rounds that start from now on.
    #[track_caller]
    fn rounds(&mut self, count: usize) {
        while let Ok(line) = self.lines.try_recv() {
            self.keep(&line);
        }
        // The present round has started before.
        for _ in 0..=count {
            self.says("paths failed");
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    fn end(mut self) -> Run {
        while let Ok(line) = self.lines.recv() {
            self.keep(&line);
        }
        let output = self.child.wait_with_output().expect("it ends");
        Run {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: self.err,
        }
    }
}

/// Returns the failed paths of a result, one line each: path, from, to, variant, kind of fault and what was seen.
fn failures(result: &Value) -> Vec<String> {
    let paths = result["paths"].as_array().expect("paths");
    let failed = paths.iter().filter(|path| path["verdict"] == "failed");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    failed
        .map(|path| {
            let parts = ["path", "from", "to", "variant"].map(|name| text(&path[name]));
            format!("{} {} {}", parts.join(" "), text(&path["last"]["fault"]), text(&path["last"]["seen"]))
        })
        .collect()
}

/// Asserts that nothing of a test is left in the cluster.
async fn assert_clean(world: &World) {
    let found = world.cluster.api.find(&format!("/api/v1/namespaces/{NAMESPACE}")).await;
    assert!(found.is_none(), "{found:?}");
}

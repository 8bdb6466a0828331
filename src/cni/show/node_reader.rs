//! Reads the state of each node, with a privileged Pod that runs `netsurgeon agent node-state`.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use crate::kube_api::Cluster;
use crate::network::objects::{NODE_ROOT, PROGRAM};
use crate::network::{Deployment, DeploymentError, Progress, Role};
use crate::node_state::NodeState;

/// The number of nodes that are read at the same time.
const AT_ONCE: usize = 8;
/// The time to read a node. Tens of thousands of rules take a few seconds.
const PATIENCE: Duration = Duration::from_mins(2);
/// The largest state, in bytes.
const LARGEST: u64 = 256 << 20;

/// The state of a node, or why it could not be read.
pub struct NodeRead {
    /// Name of the Node.
    pub node: String,
    /// The state.
    pub state: Result<NodeState, String>,
}

/// Reads the nodes. The caller removes the Pods afterwards, also after an error ([`Deployment::clean`]).
pub async fn node_states(
    cluster: &Cluster,
    deployment: &Deployment,
    nodes: &[String],
    patience: Duration,
    say: Progress<'_>,
) -> Result<Vec<NodeRead>, DeploymentError> {
    let first = nodes.first().ok_or(DeploymentError::NoNodes)?;
    say("checking that the cluster accepts privileged Pods");
    deployment.prepare(first, &[Role::Reader]).await?;
    tokio::select! {
        read = read_all(cluster, deployment, nodes, patience, say) => read,
        lost = deployment.keep_lease() => Err(lost),
    }
}

async fn read_all(
    cluster: &Cluster,
    deployment: &Deployment,
    nodes: &[String],
    patience: Duration,
    say: Progress<'_>,
) -> Result<Vec<NodeRead>, DeploymentError> {
    let progress = |ready: usize, all: usize| say(&format!("Pods: {ready} of {all} are ready"));
    let started = deployment.start(nodes, Role::Reader, patience, &progress).await?;
    let namespace = &deployment.settings().namespace;
    let reads = nodes.iter().enumerate().map(async |(index, node)| {
        let state = match started.agents.get(&index) {
            Some(agent) => read(cluster, namespace, &agent.name).await,
            None => Err(started.faults.get(&index).cloned().unwrap_or_default()),
        };
        NodeRead { node: node.clone(), state }
    });
    Ok(stream::iter(reads).buffered(AT_ONCE).collect().await)
}

async fn read(cluster: &Cluster, namespace: &str, pod: &str) -> Result<NodeState, String> {
    let command = [PROGRAM, "agent", "node-state", "--root", NODE_ROOT];
    let mut command = cluster.exec(namespace, pod, &command).await?;
    let (_input, output) = command.streams().ok_or("the command has no streams")?;
    let mut text = Vec::new();
    let read = timeout(PATIENCE, output.take(LARGEST).read_to_end(&mut text)).await;
    let read = read.map_err(|_| format!("the node was not read within {} s", PATIENCE.as_secs()))?;
    read.map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| {
        let start = String::from_utf8_lossy(text.get(..text.len().min(200)).unwrap_or_default());
        format!("the agent returned no state: {error}: {start}")
    })
}

//! How to test.

use std::collections::BTreeSet;
use std::time::Duration;

use super::baseline::Baseline;
use super::path::Path;

/// How to test.
#[derive(Debug, Clone)]
pub struct Test {
    /// The nodes to test; all Linux nodes if empty.
    pub nodes: Vec<String>,
    /// Paths to leave out.
    pub skip: BTreeSet<Path>,
    /// The number of rounds, if there is no duration.
    pub rounds: u32,
    /// The time for which rounds repeat.
    pub duration: Option<Duration>,
    /// The pause between the starts of two rounds.
    pub interval: Duration,
    /// Whether rounds continue after a failure that the baseline does not have.
    pub keep_going: bool,
    /// In a cluster with more than 50 nodes: how many other nodes each node asks in a round.
    pub peers: usize,
    /// The time for the Pods to start.
    pub patience: Duration,
    /// Further names to resolve.
    pub names: Vec<String>,
    /// Further name servers to ask, for example a node-local one.
    pub name_servers: Vec<std::net::IpAddr>,
    /// An earlier result.
    pub baseline: Option<Baseline>,
}

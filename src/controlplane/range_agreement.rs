//! Checks whether every API server is ready and has the expected range. `controlplane wait` uses this check. A renumbering uses
//! it after the flag was changed, before the renumbering continues.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::API_SERVER;
use super::observed_flags::{Seen, in_pods, in_processes_of, runs_here};
use crate::kube_api::{ApiServer, Cluster, ClusterError};
use crate::session::Failure;
use crate::survey::Finding;
use crate::words::{counted, quoted_or};

/// Maximum time until a ready API server is an endpoint of `default/kubernetes`. An API server renews its endpoint every 10 s;
/// this is twice that interval plus a margin (`DefaultEndpointReconcilerInterval`, `pkg/controlplane/instance.go`, v1.36.3).
const ENDPOINTS: Duration = Duration::from_secs(30);
/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(500);

/// Where to read the flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// Pods, and those processes on this host that are API servers of the cluster.
    Cluster,
    /// Pods, or the processes on this host if no API server runs in a Pod.
    PodsOrHost,
    /// The processes on this host only.
    Host,
}

/// What a check found.
#[derive(Debug)]
pub struct Look {
    /// A finding for each unmet condition.
    pub findings: Vec<Finding>,
    /// Whether waiting is useless: every other condition is met, and from this host the missing flags can never be read.
    pub is_final: bool,
}

/// Returns a finding for each unmet condition. Every API server must be ready. There must be an endpoint for each API server Pod
/// that runs. There must be a readable flag for each API server; with [`Places::Host`], one readable flag is enough. If a range
/// is given, every flag must have this range.
pub async fn not_yet(cluster: &Cluster, range: Option<&str>, places: Places) -> Vec<Finding> {
    look(cluster, range, places).await.findings
}

/// Does the same as [`not_yet`], and also returns whether waiting is useless.
pub async fn look(cluster: &Cluster, range: Option<&str>, places: Places) -> Look {
    let servers = match cluster.api_servers().await {
        Ok(servers) => servers,
        Err(error) => return Look { findings: vec![not_ready(API_SERVER, error)], is_final: false },
    };
    let mut found = Vec::new();
    for server in &servers {
        let ready = match cluster.dial(*server).await {
            Ok(client) => client.ready().await,
            Err(error) => Err(error),
        };
        found.extend(ready.err().map(|error| not_ready(&server.to_string(), error)));
    }
    let mut denied = None;
    let pods = match in_pods(cluster).await {
        Ok(pods) => of_api_servers(pods),
        Err(failure) if is_denied(&failure) => {
            denied = Some(failure.error.to_string());
            Vec::new()
        }
        Err(failure) => {
            found.push(not_ready(API_SERVER, failure.error));
            Vec::new()
        }
    };
    found.extend(unreached(pods.iter().filter(|pod| pod.runs).count(), servers.len()));
    let has_pods = !pods.is_empty();
    let (seen, count, expected) = match places {
        Places::Host => alone(in_processes_of(&servers), 1),
        Places::PodsOrHost if pods.is_empty() => alone(in_processes_of(&servers), servers.len()),
        Places::PodsOrHost => alone(pods, servers.len()),
        Places::Cluster => {
            let processes = in_processes_of(&servers);
            // A Pod and a process can be the same API server, so the two numbers are not added.
            let count = pods.len().max(processes.len());
            (pods.into_iter().chain(processes).collect(), count, servers.len())
        }
    };
    found.extend(judge(&seen, range));
    // Without a range to check, the flags do not matter.
    let Some(range) = range.filter(|_| count < expected) else {
        return Look { findings: found, is_final: false };
    };
    // Without a Pod, the flags of API servers on other hosts are not visible. An API server that restarts on this host is not
    // ready, or has a manifest.
    let is_final = found.is_empty()
        && match places {
            Places::Host => !runs_here(),
            Places::PodsOrHost => !has_pods,
            Places::Cluster => false,
        };
    found.push(unseen((count, expected), range, places, denied.as_deref()));
    Look { findings: found, is_final }
}

/// Returns whether the user is not allowed to read Pods.
fn is_denied(failure: &Failure) -> bool {
    matches!(failure.error.downcast_ref(), Some(ClusterError::Forbidden { .. }))
}

fn alone(seen: Vec<Seen>, expected: usize) -> (Vec<Seen>, usize, usize) {
    let count = seen.len();
    (seen, count, expected)
}

/// The flags of API servers, as far as they can be read from this host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// A finding for each API server that has another range.
    pub others: Vec<Finding>,
    /// Number of API servers whose flag was read.
    pub read: usize,
    /// Number of API servers that are endpoints of `default/kubernetes`.
    pub servers: usize,
}

impl Flags {
    /// Returns a message about the API servers whose range is not known; `None` if every flag was read.
    pub fn unread(&self) -> Option<String> {
        let Self { read, servers, .. } = self;
        (read < servers).then(|| {
            let of = counted(*servers, "API server", "API servers");
            format!("the flags of {} of {of} cannot be read from this host", servers.saturating_sub(*read))
        })
    }
}

/// Compares the flags of API servers with a range. Reads Pods, and processes on this host that are API servers of the cluster. API
/// servers that are not visible from this host are only counted.
pub async fn flags(cluster: &Cluster, range: &str) -> Result<Flags, Failure> {
    let servers = endpoints(cluster).await?;
    let (pods, processes) = (of_api_servers(in_pods(cluster).await?), in_processes_of(&servers));
    // A Pod and a process can be the same API server, so the two numbers are not added.
    let read = pods.len().max(processes.len());
    let others = pods.iter().chain(&processes).filter_map(|one| other_range(one, range)).collect();
    Ok(Flags { others, read, servers: servers.len() })
}

/// Returns the endpoints of the API servers. After a restart, a single API server becomes an endpoint a moment after it is ready.
/// This function waits for the endpoint, because only the endpoints show which processes are API servers of the cluster.
pub async fn endpoints(cluster: &Cluster) -> Result<Vec<ApiServer>, ClusterError> {
    let started = Instant::now();
    loop {
        match cluster.api_servers().await {
            Err(ClusterError::NotReady { .. }) if started.elapsed() < ENDPOINTS => sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

fn of_api_servers(mut seen: Vec<Seen>) -> Vec<Seen> {
    seen.retain(|one| one.component == API_SERVER);
    seen
}

/// Returns a finding if an API server Pod runs but is not an endpoint. An API server becomes an endpoint a moment after it is
/// ready. If the next API server is stopped before this moment, clients in the cluster may have no endpoint.
fn unreached(pods: usize, endpoints: usize) -> Option<Finding> {
    let text = format!(
        "{}, but the number of endpoints of `default/kubernetes` is {endpoints}",
        counted(pods, "API server Pod runs", "API server Pods run")
    );
    (pods > endpoints).then(|| not_ready(API_SERVER, text))
}

fn not_ready(subject: &str, error: impl std::fmt::Display) -> Finding {
    Finding::error("api-server-not-ready", subject).says(error.to_string())
}

fn judge(seen: &[Seen], range: Option<&str>) -> Vec<Finding> {
    let mut found = Vec::new();
    for one in seen {
        if let Some(other) = range.and_then(|range| other_range(one, range)) {
            found.push(other);
        } else if !one.runs {
            // A kubelet updates the mirror Pod before it has stopped the old container.
            found.push(not_ready(&one.subject(), "it is not running yet, or not ready"));
        }
    }
    found
}

fn other_range(one: &Seen, range: &str) -> Option<Finding> {
    let has = quoted_or(one.range.as_deref(), "no range");
    let finding = || Finding::error("api-server-has-another-range", one.subject());
    (one.range.as_deref() != Some(range))
        .then(|| finding().says(format!("it has {has} instead of `{range}`")))
}

/// Returns the finding for flags that were not read. `range` is the range to check on each host. `denied` is the reason why Pods
/// cannot be read.
fn unseen((count, expected): (usize, usize), range: &str, places: Places, denied: Option<&str>) -> Finding {
    let finding = Finding::error("api-server-unseen", API_SERVER);
    if places == Places::Host {
        return finding.says(
            "no process `kube-apiserver` on this host is an endpoint of `default/kubernetes`: read the flag of this host's API \
             server yourself, for example in the log of K3s",
        );
    }
    let of = counted(expected, "API server", "API servers");
    let each =
        format!("on each host, `netsurgeon controlplane wait --range {range} --host` checks its API server");
    let denied = denied.map(|reason| format!("; {reason}")).unwrap_or_default();
    finding.says(format!("flags read from {count} of {of}{denied}; {each}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_must_run_with_the_range() {
        let seen = |range: &str, runs: bool| Seen {
            component: API_SERVER,
            source: "pod",
            at: "kube-apiserver-a on a".to_string(),
            range: Some(range.to_string()),
            runs,
        };
        let codes = |seen: &[Seen], endpoints: usize| -> Vec<&str> {
            let mut found = judge(seen, Some("10.200.0.0/16"));
            let counts = (seen.len(), endpoints);
            let is_unseen = seen.len() < endpoints;
            found.extend(is_unseen.then(|| unseen(counts, "10.200.0.0/16", Places::PodsOrHost, None)));
            found.extend(unreached(seen.len(), endpoints));
            found.iter().map(|finding| finding.code).collect()
        };
        let process = Seen { source: "process", at: "1234".into(), ..seen("10.96.0.0/16", true) };
        assert_eq!(process.subject(), "kube-apiserver process 1234 on this host");
        let there = seen("10.200.0.0/16", true);
        assert_eq!(codes(&[there.clone(), there.clone()], 2), Vec::<&str>::new());
        assert_eq!(codes(std::slice::from_ref(&there), 2), ["api-server-unseen"]);
        let text = "one of two is not an endpoint yet";
        assert_eq!(codes(&[there.clone(), there.clone()], 1), ["api-server-not-ready"], "{text}");
        let old = [seen("10.96.0.0/16", true)];
        assert_eq!(judge(&old, None), [], "any range matches");
        assert_eq!(codes(&[there.clone(), seen("10.200.0.0/16", false)], 2), ["api-server-not-ready"]);
        assert_eq!(codes(&[there, seen("10.96.0.0/16", true)], 2), ["api-server-has-another-range"]);
    }
}

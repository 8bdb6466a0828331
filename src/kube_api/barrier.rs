//! Waits until every kube-proxy has applied all earlier writes.
//!
//! kube-proxy's own `/healthz` does not show which writes kube-proxy has applied: while kube-proxy is healthy, its `lastUpdated`
//! is the time of the request (`pkg/proxy/healthcheck/proxy_health.go`, v1.36.3). But events of Services reach a kube-proxy in
//! order. A kube-proxy opens the health check port of a Service with `externalTrafficPolicy: Local` only after its current rules
//! are in force (`syncProxyRules`, `pkg/proxy/{iptables,nftables}/proxier.go`). The barrier therefore creates a Service, the
//! *sentinel*, after all other changes. A kube-proxy that answers with the name of the sentinel has applied all earlier changes.
//!
//! The sentinel has no endpoints, so the answer is 503. The API server also answers 503 for a closed port. So the barrier checks
//! only the namespace and name in the body.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::endpoints::name_of;
use super::error::{excerpt, is_forbidden};
use super::health::{NoAnswer, ask};
use super::node_proxy::node_proxy_refusal;
use super::{Cluster, ClusterError, MANAGED_BY, Node, ObjectRef};
use crate::ip::Family;

/// Label that distinguishes sentinels from shadows. netsurgeon manages both.
const PART: (&str, &str) = ("netsurgeon.io/part", "barrier");
const OPERATION: &str = "netsurgeon.io/operation";

/// Age after which the barrier treats a sentinel as left behind by a killed process. No barrier takes this long.
const LEFT_BEHIND: Duration = Duration::from_hours(1);

/// Timeout of one request. A kube-proxy answers from memory.
const QUESTION: Duration = Duration::from_secs(2);
/// First pause between two requests to a node. A kube-proxy applies a first change immediately, and later changes at most once a
/// second (`minSyncPeriod`).
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Pause between two requests to one node through the API server, to limit the load on the API server.
const DETOUR: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Time that each node adds to the longest pause, to limit the requests per second in large clusters.
const PAUSE_PER_NODE: Duration = Duration::from_micros(250);
/// Interval between two checks that the sentinel still exists. Most barriers end before the first check.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum number of concurrent requests, so that thousands of nodes do not overload the API server.
const MOST_QUESTIONS: usize = 64;

/// How the barrier sends requests to the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierRoute {
    /// Send requests directly; if this fails, through the API server.
    Auto,
    /// Send requests to `http://INTERNAL-IP:PORT/healthz`.
    Direct,
    /// Send requests through the API server: `/api/v1/nodes/NAME:PORT/proxy/healthz`.
    NodeProxy,
    /// Send no requests and wait for this time. This does not prove that kube-proxy has applied the changes.
    Wait(Duration),
}

/// Parameters of a barrier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Barrier {
    /// Namespace of the sentinel; usually `kube-system`.
    pub namespace: String,
    /// Id of the operation, stored as a label of the sentinel. The barrier deletes sentinels of this operation that a killed
    /// process left behind.
    pub operation: String,
    /// Address family. A dual-stack kube-proxy applies the rules of each family separately.
    pub family: Family,
    /// How the barrier sends requests to the nodes.
    pub reach: BarrierRoute,
    /// Deadline for all nodes.
    pub deadline: Duration,
    /// Names of nodes to exclude, for example nodes that are permanently down or have no kube-proxy.
    pub without: BTreeSet<String>,
}

/// Result of a successful barrier: every kube-proxy has applied all changes. [`BarrierRoute::Wait`] does not prove this.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Crossed {
    /// The answer of each node, sorted by node name.
    pub nodes: Vec<Passage>,
}

/// When and how a node answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// Name of the node.
    pub node: String,
    /// Time from the creation of the sentinel to the answer.
    pub after: Duration,
    /// Whether the answer came through the API server.
    pub through_api_server: bool,
}

/// A node that did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentNode {
    /// Name of the node.
    pub node: String,
    /// Why the node gave no usable answer, for example the results of the last requests.
    pub seen: String,
}

impl fmt::Display for SilentNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({})", self.node, self.seen)
    }
}

/// Why a barrier failed.
#[derive(Debug, thiserror::Error)]
pub enum BarrierError {
    /// A request to the API failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Nodes did not answer in time.
    #[error(
        "kube-proxy on {count} of {of} nodes has not applied the changes within {seconds} s: {}",
        named(silent)
    )]
    NotCrossed {
        /// Number of nodes without an answer.
        count: usize,
        /// Number of nodes that had to answer.
        of: usize,
        /// The deadline, in seconds.
        seconds: u64,
        /// The nodes without an answer, sorted by name.
        silent: Vec<SilentNode>,
    },
}

fn named(silent: &[SilentNode]) -> String {
    silent.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A sentinel as the API server created it.
#[derive(Debug, Clone)]
pub(super) struct Sentinel {
    namespace: String,
    name: String,
    /// Health check port of the sentinel.
    pub(super) port: u16,
    family: Family,
    made: Instant,
}

impl Cluster {
    /// Waits until the kube-proxy of every node has applied all writes that were made before this call.
    ///
    /// Creates a Service, and deletes it again even if the barrier fails. If this process is killed, the next barrier of the same
    /// operation deletes the Service; any other barrier deletes it after an hour.
    pub async fn barrier(&self, barrier: &Barrier) -> Result<Crossed, BarrierError> {
        if let BarrierRoute::Wait(time) = barrier.reach {
            sleep(time).await;
            return Ok(Crossed::default());
        }
        let started = Instant::now();
        self.remove_leftovers(&barrier.namespace, &barrier.operation).await?;
        loop {
            if let Some(crossed) = self.with_a_sentinel(barrier, started).await? {
                return Ok(crossed);
            }
            tracing::warn!("another client deleted the sentinel; creating it again");
        }
    }

    /// Creates a sentinel and waits for the answers of all nodes. Returns `None` if another client deleted the sentinel
    /// meanwhile. For example, an older process of the same operation, which has not noticed that it lost the operation lease,
    /// deletes the sentinel as a leftover.
    async fn with_a_sentinel(
        &self,
        barrier: &Barrier,
        started: Instant,
    ) -> Result<Option<Crossed>, BarrierError> {
        let manifest = sentinel(&barrier.operation, &barrier.namespace, barrier.family);
        let _waited_for = WaitedFor::new(&self.sentinels, name_of(&manifest));
        let made: Service = self.create_once_allocated(&manifest).await?;
        let outcome = match Sentinel::of(&made, barrier.family, self.server()) {
            Ok(sentinel) => tokio::select! {
                crossed = self.cross(barrier, &sentinel, started) => crossed.map(Some),
                () = self.is_gone(&made) => Ok(None),
            },
            Err(error) => Err(error.into()),
        };
        if let Err(error) = self.remove(&made).await {
            tracing::warn!(%error, "cannot delete a sentinel; the next barrier deletes it");
        }
        outcome
    }

    /// Waits until a sentinel no longer exists.
    async fn is_gone(&self, sentinel: &Service) {
        loop {
            sleep(LOOK).await;
            // An error does not prove that the sentinel is deleted.
            if let Ok(None) = self.get(&reference(sentinel)).await {
                return;
            }
        }
    }

    pub(super) async fn remove(&self, sentinel: &Service) -> Result<(), ClusterError> {
        match self.delete(&reference(sentinel), sentinel.metadata.uid.as_deref()).await {
            // Another Service has this name now. Names of sentinels are unique, so the sentinel no longer exists.
            Err(ClusterError::Conflict { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Deletes the sentinels and test Services that killed processes left behind. Call this function only while this process
    /// holds the operation lease, because then no other process runs a barrier.
    pub async fn remove_sentinels(&self, namespace: &str) -> Result<(), ClusterError> {
        self.remove_those(namespace, |_| true).await
    }

    /// Deletes the sentinels that killed processes left behind. Keeps the sentinels of concurrent barriers.
    async fn remove_leftovers(&self, namespace: &str, operation: &str) -> Result<(), ClusterError> {
        // The API server has set the creation times, so they are compared with its clock.
        let now = self.clock().now().map(SystemTime::from);
        let is_waited_for = |service: &Service| locked(&self.sentinels).contains(&service.name_any());
        self.remove_those(namespace, |service| {
            !is_waited_for(service) && is_left_behind(service, operation, now)
        })
        .await
    }

    async fn remove_those(
        &self,
        namespace: &str,
        is_one: impl Fn(&Service) -> bool,
    ) -> Result<(), ClusterError> {
        let selector = format!("{}={},{}={}", MANAGED_BY.0, MANAGED_BY.1, PART.0, PART.1);
        let services = self.objects::<Service>(Some(namespace), Some(&selector)).await?;
        for service in services.iter().filter(|service| is_one(service)) {
            self.remove(service).await?;
        }
        Ok(())
    }

    /// Sends requests to every node until the node answers. Lists the nodes after the sentinel is created, because a node that
    /// joins later starts with all changes.
    async fn cross(
        &self,
        barrier: &Barrier,
        sentinel: &Sentinel,
        started: Instant,
    ) -> Result<Crossed, BarrierError> {
        let mut nodes = self.nodes().await?;
        nodes.retain(|node| !barrier.without.contains(&node.name));
        let of = nodes.len();
        let questions = Arc::new(Semaphore::new(MOST_QUESTIONS));
        let mut asked = JoinSet::new();
        for node in nodes {
            let asking = Asking {
                cluster: self.clone(),
                sentinel: sentinel.clone(),
                reach: barrier.reach,
                questions: questions.clone(),
                longest_pause: longest_pause(of),
                node,
            };
            asked.spawn(asking.until(started, barrier.deadline));
        }
        let (mut crossed, mut silent) = (Crossed::default(), Vec::new());
        while let Some(outcome) = asked.join_next().await {
            match outcome {
                Ok(Ok(passage)) => crossed.nodes.push(passage),
                Ok(Err(node)) => silent.push(node),
                Err(error) => {
                    silent.push(SilentNode { node: "(unknown)".to_string(), seen: error.to_string() });
                }
            }
        }
        crossed.nodes.sort_by(|a, b| a.node.cmp(&b.node));
        silent.sort_by(|a, b| a.node.cmp(&b.node));
        if silent.is_empty() {
            return Ok(crossed);
        }
        let seconds = barrier.deadline.as_secs();
        Err(BarrierError::NotCrossed { count: silent.len(), of, seconds, silent })
    }
}

/// Marks a sentinel as in use by a barrier of this process, until the value is dropped.
struct WaitedFor<'a> {
    all: &'a Mutex<BTreeSet<String>>,
    name: String,
}

impl<'a> WaitedFor<'a> {
    fn new(all: &'a Mutex<BTreeSet<String>>, name: &str) -> Self {
        locked(all).insert(name.to_string());
        Self { all, name: name.to_string() }
    }
}

impl Drop for WaitedFor<'_> {
    fn drop(&mut self) {
        locked(self.all).remove(&self.name);
    }
}

/// Returns the object reference of a sentinel.
fn reference(sentinel: &Service) -> ObjectRef<'_> {
    let ObjectMeta { namespace, name, .. } = &sentinel.metadata;
    ObjectRef::new("v1", "Service", namespace.as_deref(), name.as_deref().unwrap_or_default())
}

fn locked(all: &Mutex<BTreeSet<String>>) -> MutexGuard<'_, BTreeSet<String>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the manifest of a Service that no controller handles and every kube-proxy serves. Its type is LoadBalancer, with a
/// class that no controller handles. kube-proxy ignores the class (`pkg/proxy/serviceport.go` checks only type, policy and port).
pub fn sentinel(operation: &str, namespace: &str, family: Family) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": passing("barrier", namespace, operation),
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "netsurgeon.io/none",
            "externalTrafficPolicy": "Local",
            "allocateLoadBalancerNodePorts": false,
            "ipFamilyPolicy": "SingleStack",
            "ipFamilies": [family.to_string()],
            "ports": [{"port": 1, "protocol": "TCP"}],
        },
    })
}

/// Returns the metadata of a temporary Service, with a unique name. [`Cluster::barrier`] uses the labels to find Services that
/// killed processes left behind.
pub fn passing(purpose: &str, namespace: &str, operation: &str) -> ObjectMeta {
    let unique: String = uuid::Uuid::new_v4().simple().to_string().chars().take(16).collect();
    let labels = [MANAGED_BY, PART, (OPERATION, operation)];
    ObjectMeta {
        name: Some(format!("netsurgeon-{purpose}-{unique}")),
        namespace: Some(namespace.to_string()),
        labels: Some(labels.map(|(name, value)| (name.to_string(), value.to_string())).into()),
        ..ObjectMeta::default()
    }
}

fn is_left_behind(service: &Service, operation: &str, now: Option<SystemTime>) -> bool {
    let made = service.creation_timestamp().map(|made| SystemTime::from(made.0));
    let is_old = made
        .zip(now.and_then(|now| now.checked_sub(LEFT_BEHIND)))
        .is_some_and(|(made, before)| made < before);
    service.labels().get(OPERATION).is_some_and(|of| of == operation) || is_old
}

impl Sentinel {
    pub(super) fn of(made: &Service, family: Family, server: &str) -> Result<Self, ClusterError> {
        let (namespace, name) = (made.namespace().unwrap_or_default(), made.name_any());
        let port = made.spec.as_ref().and_then(|spec| spec.health_check_node_port);
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
        let port = port.ok_or_else(|| ClusterError::Answer {
            server: server.to_string(),
            subject: format!("Service `{name}`"),
            reason: "the API server allocated no `healthCheckNodePort`".to_string(),
        })?;
        Ok(Self { namespace, name, port, family, made: Instant::now() })
    }

    /// Returns whether an answer comes from a kube-proxy and names this sentinel (`hcHandler.ServeHTTP`,
    /// `pkg/proxy/healthcheck/service_health.go`, v1.36.3). Another program may listen on the same port of a node.
    pub(super) fn is_named_in(&self, answer: &str) -> bool {
        let from = answer.find('{').unwrap_or(answer.len());
        let Some(Ok(body)) = answer.get(from..).map(serde_json::from_str::<Value>) else { return false };
        let is = |name: &str, value: &str| {
            body.pointer(&format!("/service/{name}")).and_then(Value::as_str) == Some(value)
        };
        is("namespace", &self.namespace) && is("name", &self.name)
    }
}

/// Returns the longest pause between two requests to one node. `nodes` is the number of nodes that have to answer.
fn longest_pause(nodes: usize) -> Duration {
    PAUSE_PER_NODE.saturating_mul(u32::try_from(nodes).unwrap_or(u32::MAX)).clamp(FIRST_PAUSE, LONGEST_PAUSE)
}

/// Sends the requests of a barrier to one node.
struct Asking {
    cluster: Cluster,
    sentinel: Sentinel,
    reach: BarrierRoute,
    questions: Arc<Semaphore>,
    longest_pause: Duration,
    node: Node,
}

impl Asking {
    /// Sends requests until the node answers, or until the deadline.
    async fn until(self, started: Instant, deadline: Duration) -> Result<Passage, SilentNode> {
        let mut direct = self.reach != BarrierRoute::NodeProxy;
        let (mut pause, mut by_detour, mut due) = (FIRST_PAUSE, None, Instant::now());
        loop {
            let mut seen = Vec::new();
            if direct {
                match self.directly().await {
                    Ok(()) => return Ok(self.passage(false)),
                    Err(failure) => {
                        // If the node does not answer directly, netsurgeon sends the next requests only through the API server,
                        // except with `BarrierRoute::Direct`.
                        direct = !failure.silent || self.reach == BarrierRoute::Direct;
                        seen.push(failure.reason);
                    }
                }
            }
            if self.reach != BarrierRoute::Direct && due <= Instant::now() {
                match self.through_api_server().await {
                    Ok(()) => return Ok(self.passage(true)),
                    Err(failure) => {
                        // If the user is not allowed to send requests through the API server, netsurgeon sends requests directly
                        // again.
                        direct |= failure.silent && self.reach == BarrierRoute::Auto;
                        by_detour = Some(format!("through the API server: {}", failure.reason));
                    }
                }
                due = Instant::now().checked_add(self.longest_pause.max(DETOUR)).unwrap_or(due);
            }
            seen.extend(by_detour.clone());
            if started.elapsed().saturating_add(pause) >= deadline {
                let unready = if self.node.ready { "" } else { "the node is not ready; " };
                let seen = format!("{unready}{}", seen.join("; "));
                return Err(SilentNode { node: self.node.name, seen });
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(self.longest_pause);
        }
    }

    fn passage(&self, through_api_server: bool) -> Passage {
        Passage { node: self.node.name.clone(), after: self.sentinel.made.elapsed(), through_api_server }
    }

    /// Sends a request to each address of the node in the sentinel's family. A kube-proxy listens in only one address family
    /// (`newServiceHealthServer`, `service_health.go`, v1.36.3).
    async fn directly(&self) -> Result<(), NoAnswer> {
        let family = self.sentinel.family;
        let mut last = NoAnswer { silent: true, reason: format!("it has no {family} InternalIP") };
        for address in self.node.internal_ips.iter().filter(|address| Family::of(**address) == family) {
            let _permit = self.questions.acquire().await;
            let address = SocketAddr::new(*address, self.sentinel.port);
            match ask(address, "/healthz", QUESTION).await {
                Ok(answer) if self.sentinel.is_named_in(&answer) => return Ok(()),
                Ok(answer) => {
                    let reason = format!("{address}: unexpected answer: {}", excerpt(answer.as_bytes()));
                    last = NoAnswer { silent: false, reason };
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// Sends one request through the API server. An error is `silent` if the user has no permission for requests through the API
    /// server.
    async fn through_api_server(&self) -> Result<(), NoAnswer> {
        let _permit = self.questions.acquire().await;
        let failed = |reason| NoAnswer { silent: false, reason };
        let asked = (self.node.name.as_str(), Some(self.sentinel.port));
        let answer = self.cluster.ask_node(asked, "healthz", QUESTION).await.map_err(failed)?;
        if self.sentinel.is_named_in(&String::from_utf8_lossy(&answer.body)) {
            return Ok(());
        }
        Err(NoAnswer { silent: is_forbidden(&answer), reason: node_proxy_refusal(&answer) })
    }
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;
    use time::format_description::well_known::Rfc3339;

    use super::*;

    fn sentinel() -> Sentinel {
        Sentinel {
            namespace: "kube-system".into(),
            name: "netsurgeon-barrier-1".into(),
            port: 30_000,
            family: Family::V4,
            made: Instant::now(),
        }
    }

    #[tokio::test]
    async fn only_an_answer_with_both_names_counts() {
        let answer = |namespace: &str, name: &str| {
            format!(
                "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\r\n{{\n\t\"service\": \
                 {{\n\t\t\"namespace\": \"{namespace}\",\n\t\t\"name\": \"{name}\"\n\t}},\n\t\"localEndpoints\": 0\n}}"
            )
        };
        assert!(sentinel().is_named_in(&answer("kube-system", "netsurgeon-barrier-1")));
        assert!(!sentinel().is_named_in(&answer("kube-system", "netsurgeon-barrier-2")));
        assert!(!sentinel().is_named_in(&answer("default", "netsurgeon-barrier-1")));
        // The API server's error for a closed port. This error can contain the names of the sentinel, because they are in the
        // URL.
        let closed =
            r#"{"kind":"Status","message":"error trying to reach service: netsurgeon-barrier-1","code":503}"#;
        assert!(!sentinel().is_named_in(closed));
        assert!(!sentinel().is_named_in("") && !sentinel().is_named_in("{"));
    }

    #[test]
    fn leftovers_differ_from_sentinels_in_use() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let service = |operation: &str, seconds: u64| {
            let made = OffsetDateTime::from(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
            let made = made.format(&Rfc3339).unwrap();
            let metadata = json!({"labels": {OPERATION: operation}, "creationTimestamp": made});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        assert!(is_left_behind(&service("mine", 999_999), "mine", Some(now)));
        assert!(!is_left_behind(&service("other", 999_999), "mine", Some(now)));
        assert!(is_left_behind(&service("other", 990_000), "mine", Some(now)));
    }

    #[test]
    fn pause_grows_with_the_number_of_nodes() {
        let pauses = [1, 200, 1000, 10_000].map(|nodes| longest_pause(nodes).as_millis());
        assert_eq!(pauses, [50, 50, 250, 2000]);
    }

    #[test]
    fn error_names_silent_nodes_with_their_last_result() {
        let silent = ["a", "b"].map(|node| SilentNode { node: node.into(), seen: format!("{node} said no") });
        let error = BarrierError::NotCrossed { count: 2, of: 3, seconds: 60, silent: silent.to_vec() };
        let text = error.to_string();
        assert!(text.contains("2 of 3") && text.contains("`a` (a said no), `b` (b said no)"), "{text}");
    }
}

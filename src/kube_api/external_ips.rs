//! Tests whether nodes route external IPs, before a migration depends on external IPs. The test uses temporary Services. A
//! barrier cannot test this, because a kube-proxy that ignores external IPs still applies every change and passes the barrier.
//!
//! The test creates two Services that are similar to the sentinel of a barrier, the *tried* Service and the *answering* Service.
//! Each has a health check port, at which every kube-proxy answers with the name of the Service.
//!
//! The external IPs of the tried Service are the addresses of the nodes. Its port has the same number as its own health check
//! port. Its endpoints are the health check port of the answering Service on every node. On a node that routes external IPs,
//! kube-proxy forwards a request to this port, and the answer has the name of the answering Service. On any other node, the
//! health check of the tried Service answers. No other Service has the same health check port, because API servers allocate these
//! ports cluster-wide.
//!
//! If this machine is a node, its own kube-proxy handles the requests to all nodes. The test therefore also sends requests to an
//! unused address. This address answers only through the rules of a kube-proxy. If this address answers, and a node answers with
//! the name of the answering Service, the answer proves routing only for the node on which netsurgeon runs.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep};

use super::barrier::{Barrier, BarrierError, BarrierRoute, Sentinel, SilentNode, sentinel};
use super::endpoints::slice_of_nodes;
use super::error::is_forbidden;
use super::health::ask;
use super::node_proxy::node_proxy_refusal;
use super::{Cluster, ClusterError, Node};
use crate::ip::Family;

/// Value of the operation label. A barrier deletes Services with this value only if they are more than an hour old.
/// [`Cluster::remove_sentinels`] immediately deletes the Services that a killed process left behind.
const TRIAL: &str = "external-ips";
/// Maximum number of endpoints in an EndpointSlice (`pkg/apis/discovery/validation/validation.go`, v1.36.3).
const MOST_NODES: usize = 1000;
const AT_ONCE: usize = 64;
const QUESTION: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(250);
/// Number of connections to the test address. A kube-proxy forwards each of them to a random node.
const TRIES: usize = 3;

/// Parameters of the test for external IPs.
#[derive(Debug, Clone)]
pub struct ExternalIpTrial {
    /// Namespace of the Services; usually `kube-system`.
    pub namespace: String,
    /// Id of the operation, for the barrier of the test.
    pub operation: String,
    /// Address family.
    pub family: Family,
    /// How the test sends requests to the nodes.
    pub reach: BarrierRoute,
    /// Unused address that the tried Service gets in addition to the addresses of the nodes.
    pub address: IpAddr,
    /// Time limit for a kube-proxy to apply the Services. Then the test waits for the answer of each node, for at most the same
    /// time.
    pub deadline: Duration,
}

/// Result of the test for external IPs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalIpsTried {
    /// Nodes that route external IPs.
    pub routing: Vec<String>,
    /// Nodes that do not route external IPs.
    pub not_routing: Vec<String>,
    /// Nodes that cannot be tested from this machine, with the reason.
    pub unknown: Vec<SilentNode>,
    /// Whether the test address answers on this machine, or this machine is a node that routes external IPs. If so, the rules of
    /// a kube-proxy apply to the traffic of this machine, or of the Pod that runs netsurgeon.
    pub answers_here: bool,
}

/// The answer of one node.
#[derive(Debug)]
struct Answer {
    node: String,
    heard: Heard,
    /// Whether netsurgeon runs on this node.
    is_here: bool,
}

/// The test result of one node.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Routed,
    NotRouted,
    Nothing(String),
}

impl Cluster {
    /// Tests for every node whether it routes external IPs. Creates temporary Services and an EndpointSlice. Deletes the Services
    /// even if the test fails; the garbage collector of the cluster then deletes the EndpointSlice.
    pub async fn try_external_ips(&self, trial: &ExternalIpTrial) -> Result<ExternalIpsTried, ClusterError> {
        self.remove_sentinels(&trial.namespace).await?;
        let manifest = sentinel(TRIAL, &trial.namespace, trial.family);
        let answering = self.create_once_allocated(&manifest).await?;
        let outcome = self.try_beside(trial, &answering).await;
        self.put_away(&answering).await;
        outcome
    }

    async fn try_beside(
        &self,
        trial: &ExternalIpTrial,
        answering: &Service,
    ) -> Result<ExternalIpsTried, ClusterError> {
        let answering = Sentinel::of(answering, trial.family, self.server())?;
        let (nodes, unknown) = with_addresses(self.nodes().await?, trial.family);
        let port = self.free_port(trial).await?;
        let external = nodes.iter().map(|(_, address)| *address).chain([trial.address]);
        let tried = self.create_once_allocated(&tried(trial, port, external)).await?;
        let outcome = self.try_with(trial, answering, &tried, &nodes).await;
        self.put_away(&tried).await;
        outcome.map(|(heard, answers_here)| sorted(heard, answers_here, unknown))
    }

    /// Returns a health check port that no Service uses. Creates a Service to allocate the port, then deletes the Service.
    async fn free_port(&self, trial: &ExternalIpTrial) -> Result<u16, ClusterError> {
        let made = self.create_once_allocated(&sentinel(TRIAL, &trial.namespace, trial.family)).await?;
        let port = Sentinel::of(&made, trial.family, self.server()).map(|sentinel| sentinel.port);
        self.put_away(&made).await;
        port
    }

    async fn put_away(&self, service: &Service) {
        if let Err(error) = self.remove(service).await {
            tracing::warn!(%error, "cannot delete a test Service; a later barrier deletes it");
        }
    }

    async fn try_with(
        &self,
        trial: &ExternalIpTrial,
        answering: Sentinel,
        tried: &Service,
        nodes: &[(Node, IpAddr)],
    ) -> Result<(Vec<Answer>, bool), ClusterError> {
        let pair = Pair { answering, tried: Sentinel::of(tried, trial.family, self.server())? };
        let addresses: Vec<(&str, IpAddr)> =
            nodes.iter().map(|(node, address)| (node.name.as_str(), *address)).collect();
        self.create(&slice_of_nodes(tried, trial.family, &addresses, pair.answering.port)).await?;
        let silent = self.silent(trial).await?;
        let (pair, silent) = (&pair, &silent);
        let heard = nodes.iter().map(async |(node, address)| {
            let heard = match silent.iter().find(|one| one.node == node.name) {
                Some(one) => Heard::Nothing(one.seen.clone()),
                None => self.hear(trial, pair, node, *address).await,
            };
            let is_here = UdpSocket::bind((*address, 0)).await.is_ok();
            Answer { node: node.name.clone(), heard, is_here }
        });
        let heard: Vec<_> = stream::iter(heard).buffered(AT_ONCE).collect().await;
        // If no node routes the test address, a packet to this address would leave the cluster network.
        if !heard.iter().any(|answer| answer.heard == Heard::Routed) {
            return Ok((heard, false));
        }
        let here = join_all((0..TRIES).map(|_| pair.answers_at(trial.address))).await;
        Ok((heard, here.contains(&true)))
    }

    /// Waits until the kube-proxies have applied the Services. Returns the nodes whose kube-proxies did not apply them in time.
    async fn silent(&self, trial: &ExternalIpTrial) -> Result<Vec<SilentNode>, ClusterError> {
        let barrier = Barrier {
            namespace: trial.namespace.clone(),
            operation: trial.operation.clone(),
            family: trial.family,
            reach: trial.reach,
            deadline: trial.deadline,
            without: std::collections::BTreeSet::new(),
        };
        match self.barrier(&barrier).await {
            Ok(_) => Ok(Vec::new()),
            Err(BarrierError::NotCrossed { silent, .. }) => Ok(silent),
            Err(BarrierError::Cluster(error)) => Err(error),
        }
    }

    /// Sends requests to a node until its answer is conclusive, or until the deadline.
    async fn hear(&self, trial: &ExternalIpTrial, pair: &Pair, node: &Node, address: IpAddr) -> Heard {
        let started = Instant::now();
        loop {
            let mut seen = Vec::new();
            if trial.reach != BarrierRoute::NodeProxy {
                match pair.ask(address).await {
                    Heard::Nothing(reason) => seen.push(reason),
                    clear => return clear,
                }
            }
            if trial.reach != BarrierRoute::Direct {
                match self.hear_through_api_server(pair, node).await {
                    // An API server on a node sends its traffic through the kube-proxy of that node.
                    Heard::Routed => {
                        seen.push(
                            "only the API server reaches the node, through its own kube-proxy".to_string(),
                        );
                        return Heard::Nothing(seen.join("; "));
                    }
                    Heard::NotRouted => return Heard::NotRouted,
                    Heard::Nothing(reason) => seen.push(format!("through the API server: {reason}")),
                }
            }
            if started.elapsed() >= trial.deadline {
                return Heard::Nothing(seen.join("; "));
            }
            sleep(PAUSE).await;
        }
    }

    async fn hear_through_api_server(&self, pair: &Pair, node: &Node) -> Heard {
        let asked = (node.name.as_str(), Some(pair.tried.port));
        match self.ask_node(asked, "healthz", QUESTION).await {
            Ok(answer) if is_forbidden(&answer) => Heard::Nothing(node_proxy_refusal(&answer)),
            Ok(answer) => pair.judge(&String::from_utf8_lossy(&answer.body)),
            Err(reason) => Heard::Nothing(reason),
        }
    }
}

/// Returns the manifest of the tried Service.
fn tried(trial: &ExternalIpTrial, port: u16, external: impl Iterator<Item = IpAddr>) -> Value {
    let mut service = sentinel(TRIAL, &trial.namespace, trial.family);
    if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("healthCheckNodePort".to_string(), port.into());
        spec.insert("ports".to_string(), json!([{"port": port, "protocol": "TCP"}]));
        spec.insert("externalIPs".to_string(), external.map(|address| address.to_string()).collect());
    }
    service
}

/// The two Services of the test.
struct Pair {
    answering: Sentinel,
    tried: Sentinel,
}

impl Pair {
    async fn ask(&self, address: IpAddr) -> Heard {
        match ask(SocketAddr::new(address, self.tried.port), "/healthz", QUESTION).await {
            Ok(answer) => self.judge(&answer),
            Err(failure) => Heard::Nothing(failure.reason),
        }
    }

    async fn answers_at(&self, address: IpAddr) -> bool {
        self.ask(address).await == Heard::Routed
    }

    /// Evaluates the answer of a node. The answer of the tried Service's own health check is conclusive only if it reports an
    /// endpoint on the node. In this case, the kube-proxy has applied its rules for both the Services and the endpoints.
    fn judge(&self, answer: &str) -> Heard {
        if self.answering.is_named_in(answer) {
            return Heard::Routed;
        }
        if !self.tried.is_named_in(answer) {
            return Heard::Nothing("unexpected answer".to_string());
        }
        match local_endpoints(answer) {
            0 => Heard::Nothing("kube-proxy has not applied the test's EndpointSlice".to_string()),
            _ => Heard::NotRouted,
        }
    }
}

/// Reads `localEndpoints` from the answer of a health check (`hcHandler.ServeHTTP`, `pkg/proxy/healthcheck/service_health.go`,
/// v1.36.3).
fn local_endpoints(answer: &str) -> u64 {
    let body = answer.get(answer.find('{').unwrap_or(answer.len())..).unwrap_or_default();
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    body.get("localEndpoints").and_then(Value::as_u64).unwrap_or_default()
}

/// Pairs each node with the address that the test uses. The second list has the nodes that cannot be tested.
fn with_addresses(nodes: Vec<Node>, family: Family) -> (Vec<(Node, IpAddr)>, Vec<SilentNode>) {
    let (mut asked, mut unknown) = (Vec::new(), Vec::new());
    for node in nodes {
        let address = node.internal_ips.iter().copied().find(|address| Family::of(*address) == family);
        match address.filter(|_| asked.len() < MOST_NODES) {
            Some(address) => asked.push((node, address)),
            None if address.is_some() => {
                unknown.push(SilentNode {
                    node: node.name,
                    seen: format!("at most {MOST_NODES} nodes are tested"),
                });
            }
            None => {
                unknown.push(SilentNode { node: node.name, seen: format!("it has no {family} InternalIP") });
            }
        }
    }
    (asked, unknown)
}

/// Groups the nodes by the result that their answers prove.
fn sorted(answers: Vec<Answer>, test_address_answers: bool, unknown: Vec<SilentNode>) -> ExternalIpsTried {
    let own = answers.iter().any(|answer| answer.is_here && answer.heard == Heard::Routed);
    let answers_here = test_address_answers || own;
    let mut tried = ExternalIpsTried { unknown, answers_here, ..ExternalIpsTried::default() };
    for Answer { node, heard, is_here } in answers {
        match heard {
            Heard::NotRouted => tried.not_routing.push(node),
            Heard::Routed if is_here || !answers_here => tried.routing.push(node),
            Heard::Routed => {
                let seen = "this machine's own kube-proxy answers instead".to_string();
                tried.unknown.push(SilentNode { node, seen });
            }
            Heard::Nothing(seen) => tried.unknown.push(SilentNode { node, seen }),
        }
    }
    tried
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(nodes: [(Heard, bool); 2]) -> Vec<Answer> {
        let answer = |(at, (heard, is_here))| Answer { node: format!("node-{}", at + 1), heard, is_here };
        nodes.into_iter().enumerate().map(answer).collect()
    }

    #[test]
    fn answers_count_for_every_node_without_a_local_kube_proxy() {
        let tried = sorted(heard([(Heard::Routed, false), (Heard::NotRouted, false)]), false, Vec::new());
        assert_eq!(tried.routing, ["node-1"]);
        assert_eq!(tried.not_routing, ["node-2"]);
        assert_eq!((tried.unknown, tried.answers_here), (Vec::new(), false));
    }

    #[test]
    fn answers_on_a_node_count_for_that_node_alone() {
        for answers in [true, false] {
            let tried = sorted(heard([(Heard::Routed, true), (Heard::Routed, false)]), answers, Vec::new());
            assert_eq!(tried.routing, ["node-1"]);
            assert!(tried.answers_here);
            assert_eq!(tried.unknown.len(), 1, "{tried:?}");
        }
        let in_a_pod = sorted(heard([(Heard::Routed, false), (Heard::Routed, false)]), true, Vec::new());
        assert_eq!((in_a_pod.routing.len(), in_a_pod.unknown.len()), (0, 2));
    }

    #[test]
    fn health_check_shows_the_number_of_local_endpoints() {
        assert_eq!(local_endpoints("HTTP/1.1 200 OK\r\n\r\n{\"localEndpoints\": 1}"), 1);
        assert_eq!(local_endpoints("HTTP/1.1 503 x\r\n\r\n{\"localEndpoints\": 0}"), 0);
        assert_eq!(local_endpoints("nothing"), 0);
    }

    #[test]
    fn nodes_without_an_address_of_the_family_cannot_be_asked() {
        let node = |name: &str, address: &str| Node {
            name: name.into(),
            internal_ips: vec![address.parse().unwrap()],
            ready: true,
        };
        let (asked, unknown) = with_addresses(vec![node("a", "192.0.2.1"), node("b", "fd00::1")], Family::V4);
        assert_eq!((asked.len(), unknown[0].node.as_str()), (1, "b"));
    }
}

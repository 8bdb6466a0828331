//! Checks the health of the kube-proxy on a node.

use std::net::SocketAddr;
use std::time::Duration;

use super::error::is_forbidden;
use super::health::ask;
use super::node_proxy::node_proxy_refusal;
use super::{Cluster, Node};

/// Timeout for one answer. kube-proxy answers from memory.
const QUESTION: Duration = Duration::from_secs(2);

/// Why the health of a kube-proxy could not be confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyFault {
    /// The result of each attempt.
    pub reason: String,
    /// Whether there was no answer at all: no address of the node answers this machine, and the user has no permission to send
    /// requests through the API server.
    pub is_hidden: bool,
}

impl Cluster {
    /// Checks that the kube-proxy on a node is healthy (`/healthz` at its health port, `pkg/proxy/healthcheck/proxy_health.go`,
    /// v1.36.3). Sends requests directly, then through the API server, like [`Cluster::barrier`]. The error has the result of
    /// each attempt.
    ///
    /// A healthy kube-proxy also answers 503, with `nodeEligible: false`, if its node is about to be removed.
    pub async fn proxy_health(&self, node: &Node, port: u16) -> Result<(), ProxyFault> {
        let (mut seen, mut has_answered) = (Vec::new(), false);
        for address in &node.internal_ips {
            match ask(SocketAddr::new(*address, port), "/healthz", QUESTION).await {
                Ok(answer) => match judged(code(&answer), &answer) {
                    Ok(()) => return Ok(()),
                    Err(reason) => {
                        has_answered = true;
                        seen.push(reason);
                    }
                },
                Err(failure) => seen.push(failure.reason),
            }
        }
        let (reason, is_forbidden) = match self.health_through_api_server(node, port).await {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        seen.push(format!("through the API server: {reason}"));
        if !node.ready {
            seen.insert(0, "the node is not ready".to_string());
        }
        Err(ProxyFault { reason: seen.join("; "), is_hidden: is_forbidden && !has_answered })
    }

    /// Checks the health through the API server. The error has the result, and `true` if the user lacks the permission.
    async fn health_through_api_server(&self, node: &Node, port: u16) -> Result<(), (String, bool)> {
        let asked = (node.name.as_str(), Some(port));
        let answer = self.ask_node(asked, "healthz", QUESTION).await.map_err(|reason| (reason, false))?;
        let body = String::from_utf8_lossy(&answer.body);
        judged(Some(answer.code), &body).map_err(|_| (node_proxy_refusal(&answer), is_forbidden(&answer)))
    }
}

/// Returns the status code of an answer that still has its headers.
fn code(answer: &str) -> Option<u16> {
    answer.strip_prefix("HTTP/")?.split(' ').nth(1)?.parse().ok()
}

fn judged(code: Option<u16>, answer: &str) -> Result<(), String> {
    match code {
        Some(200) => Ok(()),
        Some(503) if is_leaving(answer) => Ok(()),
        Some(code) => Err(format!("it answers with status {code}")),
        None => Err("the program at this port does not speak HTTP".to_string()),
    }
}

fn is_leaving(answer: &str) -> bool {
    let from = answer.find('{').unwrap_or(answer.len());
    let body = answer.get(from..).unwrap_or_default();
    let body = serde_json::from_str::<serde_json::Value>(body).unwrap_or_default();
    body.get("nodeEligible").and_then(serde_json::Value::as_bool) == Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_differs_from_answers_of_other_programs() {
        let of = |answer: &str| judged(code(answer), answer);
        assert_eq!(of("HTTP/1.1 200 OK\r\n\r\n{}"), Ok(()));
        assert_eq!(of("HTTP/1.1 503 Service Unavailable\r\n\r\n{\"nodeEligible\": false}"), Ok(()));
        assert!(of("HTTP/1.1 503 Service Unavailable\r\n\r\n{\"nodeEligible\": true}").is_err());
        assert!(of("HTTP/1.1 404 Not Found\r\n\r\n").unwrap_err().contains("404"));
        assert!(of("SSH-2.0-x").is_err());
    }
}

//! Sends a request to a program on a node through the API server: a kubelet, or a health check of kube-proxy.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::core::{Request, Resource as _};

use super::Cluster;
use super::answer::Answer;
use super::connection::{Call, Verb};
use super::error::{is_forbidden, message};
use super::resource::segment;

impl Cluster {
    /// Sends one request to the kubelet of a node, or to a program at another port. The error is the reason why there was no
    /// answer. An answer with an HTTP error status is not an error here.
    pub(super) async fn ask_node(
        &self,
        (node, port): (&str, Option<u16>),
        path: &str,
        within: Duration,
    ) -> Result<Answer, String> {
        let name = segment(node).map_err(|error| error.to_string())?;
        let name = port.map_or_else(|| name.to_string(), |port| format!("{name}:{port}"));
        let request =
            Request::new(Node::url_path(&(), None)).get_subresource(&format!("proxy/{path}"), &name);
        let call =
            Call::new(Verb::Get, request, format!("Node `{node}`")).map_err(|error| error.to_string())?;
        self.connection.once(&call, within).await.map_err(|fault| fault.to_string())
    }
}

/// Returns the error message for a failed request through the API server's node proxy.
///
/// The API server checks the permission `get nodes/proxy` for every path below `nodes/proxy`, because the subresource is the
/// segment after the name (`pkg/endpoints/request/requestinfo.go`, apiserver v0.36.3). The finer permissions `nodes/configz` and
/// `nodes/healthz` of KEP-2862 have no effect here. Only kubelets check them, for direct requests (`pkg/kubelet/server/auth.go`,
/// v1.36.3).
pub(super) fn node_proxy_refusal(answer: &Answer) -> String {
    if is_forbidden(answer) {
        return "the user is not allowed to `get nodes/proxy`, which the optional ClusterRole `netsurgeon-nodes` of deploy/rbac.yaml \
                permits"
            .to_string();
    }
    format!("status {}: {}", answer.code, message(&answer.body))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_proxy_that_rbac_refuses_names_the_role() {
        let of = |code, body: &str| Answer {
            code,
            body: body.as_bytes().to_vec(),
            retry_after: None,
            date: None,
            warnings: Vec::new(),
        };
        let message = r#"nodes "a" is forbidden: User "eve" cannot get resource "nodes/proxy" in API group "" at the cluster scope"#;
        let refused = of(403, &json!({"kind": "Status", "message": message}).to_string());
        assert!(is_forbidden(&refused));
        assert!(node_proxy_refusal(&refused).contains("`netsurgeon-nodes`"));
        // The user has the permission, but the kubelet rejects the API server's client certificate.
        let by_kubelet = of(
            403,
            "Forbidden (user=kube-apiserver, verb=get, resource=nodes, subresource(s)=[configz proxy])",
        );
        assert!(!is_forbidden(&by_kubelet));
        assert!(node_proxy_refusal(&by_kubelet).starts_with("status 403: Forbidden"));
        assert_eq!(node_proxy_refusal(&of(503, "no")), "status 503: no");
    }
}

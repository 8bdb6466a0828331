//! ExternalDNS: a controller that writes the records of Ingresses to a name server, with dynamic updates, or to Route 53, and owns
//! names through TXT records.

use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use serde_json::json;

use super::api::Api;
use super::process::{Process, wait_until};
use super::programs::external_dns;
use super::route53::CREDENTIALS;
use super::workspace::Workspace;

/// How long its loops may take.
const DEADLINE: Duration = Duration::from_mins(1);

/// What it logs after each loop without an error.
const COMPLETED: &str = "reconcile loop completed";
/// What it logs after each loop.
const ENDED: &str = "reconcile loop ";

/// The port of the next one's metrics: several run in one network namespace, which no other run uses.
static METRICS: AtomicU16 = AtomicU16::new(7979);

/// Lets the default service account of `kube-system` list objects of all namespaces, as ExternalDNS does, and waits until the API
/// server knows it.
pub async fn trust(api: &Api) {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "external-dns"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "kube-system"}],
        // Without controllers, the aggregated role `view` has no rules.
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:aggregate-to-view"},
    });
    api.apply(&binding).await;
    let attributes = json!({"verb": "list", "group": "networking.k8s.io", "resource": "ingresses"});
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "system:serviceaccount:kube-system:default", "resourceAttributes": attributes},
    });
    wait_until("the role is in force", DEADLINE, async || {
        let answer = api.create(&review).await;
        if answer["status"]["allowed"] == true { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

/// A running ExternalDNS. Killed on drop.
pub struct ExternalDns {
    process: Process,
    workspace: Workspace,
}

impl ExternalDns {
    /// Starts one that reads Ingresses of a cluster, and writes to a zone of a name server with a TSIG key: its name and its
    /// secret. `owner` tells several of them apart.
    pub fn start(
        owner: &str,
        kubeconfig: &Path,
        zone: &str,
        server: &str,
        (name, secret): (&str, &str),
    ) -> Self {
        let provider = [
            "--provider=rfc2136".to_owned(),
            format!("--rfc2136-host={server}"),
            "--rfc2136-port=53".to_owned(),
            format!("--rfc2136-zone={zone}"),
            format!("--rfc2136-tsig-keyname={name}"),
            format!("--rfc2136-tsig-secret={secret}"),
            "--rfc2136-tsig-secret-alg=hmac-sha256".to_owned(),
            "--rfc2136-tsig-axfr".to_owned(),
        ];
        Self::start_with(owner, kubeconfig, &[], &provider)
    }

    /// Starts one that writes to a zone in Route 53. `url`: the URL of its API.
    pub fn start_on_route53(owner: &str, kubeconfig: &Path, zone: &str, url: &str) -> Self {
        let environment = [
            format!("AWS_ENDPOINT_URL_ROUTE_53={url}"),
            "AWS_REGION=us-east-1".to_owned(),
            format!("AWS_ACCESS_KEY_ID={}", CREDENTIALS.0),
            format!("AWS_SECRET_ACCESS_KEY={}", CREDENTIALS.1),
        ];
        let provider = ["--provider=aws".to_owned(), format!("--domain-filter={zone}")];
        Self::start_with(owner, kubeconfig, &environment, &provider)
    }

    fn start_with(owner: &str, kubeconfig: &Path, environment: &[String], provider: &[String]) -> Self {
        let workspace = Workspace::create("external-dns");
        let metrics = METRICS.fetch_add(1, Ordering::Relaxed);
        let program = [external_dns().display().to_string()];
        let arguments = [
            format!("--kubeconfig={}", kubeconfig.display()),
            "--source=ingress".to_owned(),
            "--policy=sync".to_owned(),
            "--registry=txt".to_owned(),
            format!("--txt-owner-id={owner}"),
            "--interval=1s".to_owned(),
            "--log-level=debug".to_owned(),
            format!("--metrics-address=127.0.0.1:{metrics}"),
        ];
        let words = [environment, &program, &arguments, provider].concat();
        let log = workspace.join("external-dns.log");
        let process =
            Process::start(&format!("external-dns {owner}"), Path::new("/usr/bin/env"), &words, &log);
        Self { process, workspace }
    }

    /// Returns what it logged.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.workspace.join("external-dns.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until this many more loops have completed. The first of them may have started before the call: what changed before it
    /// is certain to be seen after two.
    pub async fn loops(&self, more: usize) {
        self.ended(COMPLETED, more).await;
    }

    /// The same for loops that have completed or failed.
    pub async fn tries(&self, more: usize) {
        self.ended(ENDED, more).await;
    }

    async fn ended(&self, message: &str, more: usize) {
        let ended = || self.log().matches(message).count();
        let wanted = ended() + more;
        wait_until("loops of ExternalDNS end", DEADLINE, async || match ended() {
            enough if enough >= wanted => Ok(()),
            count => Err(format!("{count} of {wanted}\n{}", self.process.log_tail())),
        })
        .await;
    }
}

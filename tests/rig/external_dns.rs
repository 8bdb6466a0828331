//! ExternalDNS: a controller that writes the records of Ingresses to a name server, with dynamic updates, and owns names through
//! TXT records.

use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use super::process::{Process, wait_until};
use super::programs::external_dns;
use super::workspace::Workspace;

/// How long its loops may take.
const DEADLINE: Duration = Duration::from_mins(1);

/// What it logs after each loop without an error.
const COMPLETED: &str = "reconcile loop completed";

/// The port of the next one's metrics: several run in one network namespace, which no other run uses.
static METRICS: AtomicU16 = AtomicU16::new(7979);

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
        let workspace = Workspace::create("external-dns");
        let metrics = METRICS.fetch_add(1, Ordering::Relaxed);
        let arguments = [
            format!("--kubeconfig={}", kubeconfig.display()),
            "--source=ingress".to_owned(),
            "--provider=rfc2136".to_owned(),
            format!("--rfc2136-host={server}"),
            "--rfc2136-port=53".to_owned(),
            format!("--rfc2136-zone={zone}"),
            format!("--rfc2136-tsig-keyname={name}"),
            format!("--rfc2136-tsig-secret={secret}"),
            "--rfc2136-tsig-secret-alg=hmac-sha256".to_owned(),
            "--rfc2136-tsig-axfr".to_owned(),
            "--policy=sync".to_owned(),
            "--registry=txt".to_owned(),
            format!("--txt-owner-id={owner}"),
            "--interval=1s".to_owned(),
            "--log-level=debug".to_owned(),
            format!("--metrics-address=127.0.0.1:{metrics}"),
        ];
        let log = workspace.join("external-dns.log");
        let process = Process::start(&format!("external-dns {owner}"), &external_dns(), &arguments, &log);
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
        let completed = || self.log().matches(COMPLETED).count();
        let wanted = completed() + more;
        wait_until("loops of ExternalDNS complete", DEADLINE, async || match completed() {
            enough if enough >= wanted => Ok(()),
            count => Err(format!("{count} of {wanted}\n{}", self.process.log_tail())),
        })
        .await;
    }
}

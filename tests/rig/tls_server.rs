//! OpenSSL as a TLS server, such as that of an Ingress, and as a client that verifies it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::process::Process;
use super::workspace::Workspace;

const DEADLINE: Duration = Duration::from_mins(1);

/// A running server. Killed on drop.
pub struct TlsServer {
    _process: Process,
    port: u16,
    _workspace: Workspace,
}

impl TlsServer {
    /// Starts one with a certificate and its key, as PEM files.
    pub async fn start(certificate: &Path, key: &Path) -> Self {
        let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
        let start = |port| {
            let workspace = Workspace::create("tls");
            let accept = format!("127.0.0.1:{port}");
            let arguments = ["s_server", "-accept", &accept, "-cert", &certificate, "-key", &key, "-www"];
            let arguments = arguments.map(str::to_owned);
            let log = workspace.join("openssl.log");
            (Process::start("openssl", Path::new("openssl"), &arguments, &log), workspace)
        };
        let (process, port, workspace) = Process::listening(DEADLINE, start).await;
        Self { _process: process, port, _workspace: workspace }
    }

    /// Connects to the server by a name, as a client does. The error is what OpenSSL says.
    pub fn verified(&self, name: &str, authority: &Path) -> Result<(), String> {
        let output = Command::new("openssl")
            .args(["s_client", "-connect", &format!("127.0.0.1:{}", self.port), "-servername", name])
            .args(["-verify_hostname", name, "-verify_return_error", "-CAfile"])
            .arg(authority)
            .stdin(Stdio::null())
            .output()
            .expect("openssl runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() && text.contains("Verify return code: 0 (ok)") {
            Ok(())
        } else {
            Err(text)
        }
    }
}

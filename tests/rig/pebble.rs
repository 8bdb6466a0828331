//! Pebble: an ACME server, which issues certificates like Let's Encrypt. It trusts every challenge, so only its protocol is real.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::pki::Authority;
use super::process::{Process, free_port};
use super::programs::pebble;
use super::workspace::Workspace;

const DEADLINE: Duration = Duration::from_mins(1);

/// A running Pebble. Killed on drop.
pub struct Pebble {
    _process: Process,
    _workspace: Workspace,
    /// URL of its directory.
    pub directory: String,
}

impl Pebble {
    /// Starts one on loopback.
    pub async fn start() -> Self {
        let start = |port| {
            let workspace = Workspace::create("pebble");
            let names = ["127.0.0.1".to_owned()];
            let authority = Authority::create(&workspace, "pebble-ca", "ca");
            let own = authority.issue(&workspace, "pebble", "pebble", None, &names);
            let management = free_port();
            let configuration = json!({"pebble": {
                "listenAddress": format!("127.0.0.1:{port}"), "managementListenAddress": format!("127.0.0.1:{management}"),
                "certificate": own.certificate, "privateKey": own.key, "httpPort": 5002, "tlsPort": 5001,
            }});
            let file = workspace.write("pebble.json", configuration.to_string());
            let arguments = [
                "PEBBLE_VA_NOSLEEP=1".to_owned(),
                "PEBBLE_VA_ALWAYS_VALID=1".to_owned(),
                // It rejects five of a hundred requests to test how clients repeat them; and it validates each name again.
                "PEBBLE_WFE_NONCEREJECT=0".to_owned(),
                "PEBBLE_AUTHZREUSE=100".to_owned(),
                pebble().display().to_string(),
                format!("-config={}", file.display()),
            ];
            let log = workspace.join("pebble.log");
            (Process::start("pebble", Path::new("/usr/bin/env"), &arguments, &log), workspace)
        };
        let (process, port, workspace) = Process::listening(DEADLINE, start).await;
        let directory = format!("https://127.0.0.1:{port}/dir");
        Self { _process: process, _workspace: workspace, directory }
    }
}

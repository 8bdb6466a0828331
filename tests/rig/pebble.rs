//! Pebble: an ACME server, which issues certificates like Let's Encrypt. It trusts every challenge, so only its protocol is real.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpStream;

use super::pki::Authority;
use super::process::{PORT_ATTEMPTS, Process, free_port};
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
        let mut attempts = 0;
        loop {
            attempts += 1;
            let workspace = Workspace::create("pebble");
            let names = ["127.0.0.1".to_owned()];
            let own = Authority::create(&workspace, "pebble-ca", "ca")
                .issue(&workspace, "pebble", "pebble", None, &names);
            let (port, management) = (free_port(), free_port());
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
            let mut process = Process::start("pebble", Path::new("/usr/bin/env"), &arguments, &log);
            let probe = async || {
                let connected = TcpStream::connect(("127.0.0.1", port)).await;
                connected.map(drop).map_err(|error| error.to_string())
            };
            match process.ready("Pebble listens", DEADLINE, probe).await {
                Ok(()) => {
                    let directory = format!("https://127.0.0.1:{port}/dir");
                    return Self { _process: process, _workspace: workspace, directory };
                }
                Err(_) if process.port_was_taken() && attempts < PORT_ATTEMPTS => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

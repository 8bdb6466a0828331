//! An AWS account: moto, which has the APIs of EC2, IAM and STS, and the AWS CLI.
//!
//! Not MiniStack: it ignores filters, and does not store the options of an instance's metadata service.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::process::{Process, run};
use super::programs::moto;
use super::workspace::Workspace;

/// How long it may take until it listens; 4 seconds on an idle machine.
const DEADLINE: Duration = Duration::from_mins(2);

/// The region of the account's instances.
pub const REGION: &str = "eu-west-1";

/// A running moto. Killed on drop.
pub struct Moto {
    _process: Process,
    workspace: Workspace,
    url: String,
}

impl Moto {
    /// Starts one. Like a new account, it has no objects but a network.
    pub async fn start() -> Self {
        let start = |port| {
            let workspace = Workspace::create("moto");
            let mut arguments = workspace.python_environment();
            arguments.extend([
                // Rights are not checked until a test asks for it.
                "INITIAL_NO_AUTH_ACTION_COUNT=1000000".to_owned(),
                moto("moto_server").display().to_string(),
                format!("--port={port}"),
            ]);
            let log = workspace.join("moto.log");
            (Process::start("moto", Path::new("/usr/bin/env"), &arguments, &log), workspace)
        };
        let (process, port, workspace) = Process::listening(DEADLINE, start).await;
        Self { _process: process, workspace, url: format!("http://127.0.0.1:{port}") }
    }

    /// Returns the environment of a client: the endpoint, the region, and credentials.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        self.environment_of(("AKIACANARY0000000000", "secret-access-key-canary"))
    }

    /// Returns the environment of a client with other credentials.
    pub fn environment_of(&self, (id, secret): (&str, &str)) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.url.clone()),
            ("AWS_ACCESS_KEY_ID", id.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
            ("AWS_DEFAULT_REGION", REGION.to_owned()),
            // Not the files of the user who runs the test.
            ("AWS_CONFIG_FILE", self.workspace.join("no-config").display().to_string()),
            ("AWS_SHARED_CREDENTIALS_FILE", self.workspace.join("no-credentials").display().to_string()),
        ]
    }

    /// Creates what two clusters have in an account, see `tests/moto/two_clusters.py`. Returns what the script prints.
    pub fn create_clusters(&self, words: &[&str]) -> Value {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/moto/two_clusters.py");
        let script = script.display().to_string();
        let arguments: Vec<&str> = [script.as_str()].into_iter().chain(words.iter().copied()).collect();
        let environment = self.environment();
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let output = run(&moto("python3"), &arguments, &environment);
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"))
    }

    /// Runs a shell command, as a user pastes it. It finds the AWS CLI.
    pub fn paste(&self, command: &str) {
        let folder = moto("aws").parent().expect("a folder").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("sh")
            .args(["-euc", command])
            .envs(self.environment())
            .env("PATH", format!("{folder}:{path}"))
            .output()
            .expect("a shell");
        assert!(output.status.success(), "{command}\n{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs a command of the AWS CLI, and returns its answer.
    pub fn aws(&self, words: &[&str]) -> Value {
        let environment = self.environment();
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let output = run(&moto("aws"), words, &environment);
        serde_json::from_str(&output).unwrap_or_default()
    }

    /// Checks rights from now on, as AWS does.
    pub fn check_rights(&self) {
        let url = format!("{}/moto-api/reset-auth", self.url);
        let plain = "Content-Type: text/plain";
        run(Path::new("curl"), &["--silent", "--fail", "--header", plain, "--data", "0", &url], &[]);
    }
}

//! cert-manager: the controller that issues certificates for Certificate objects, and writes them to Secrets.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::api::{Api, object_path};
use super::process::{Process, wait_until};
use super::programs::cert_manager;
use super::workspace::Workspace;

const DEADLINE: Duration = Duration::from_mins(2);

/// A running controller of cert-manager. Killed on drop.
pub struct CertManager {
    process: Process,
    _workspace: Workspace,
}

/// Returns the folder of the custom resource definitions, in the Go module that the controller is built from.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certmanager");
    let mut go = Command::new("go");
    go.args(["list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager"]).current_dir(&folder);
    let output = go.env("GOWORK", "off").env("GOTOOLCHAIN", "auto").output().expect("`make rig` needs Go");
    let root = String::from_utf8(output.stdout).expect("a path");
    let found = Path::new(root.trim()).join("deploy/crds");
    assert!(found.is_dir(), "`make rig` downloads cert-manager: {}", String::from_utf8_lossy(&output.stderr));
    found
}

/// Returns the custom resource definitions, each with its path.
fn definitions() -> Vec<(String, Value)> {
    let files = std::fs::read_dir(folder()).expect("the folder").flatten();
    let is_yaml = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "yaml");
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(path).expect("a definition");
        let definition: Value = serde_saphyr::from_str(&text).expect("YAML");
        (object_path(&definition), definition)
    };
    files.map(|entry| entry.path()).filter(is_yaml).map(read).collect()
}

/// Removes the definitions of cert-manager, with all objects of these kinds, and waits until they are deleted.
pub async fn remove_definitions(api: &Api) {
    for (path, _) in definitions() {
        api.delete(&path).await;
        wait_until("the definition is deleted", DEADLINE, async || {
            if api.find(&path).await.is_none() { Ok(()) } else { Err(path.clone()) }
        })
        .await;
    }
}

/// Installs the definitions of cert-manager, and waits until the API server serves them.
pub async fn install_definitions(api: &Api) {
    for (path, definition) in definitions() {
        api.apply(&definition).await;
        wait_until("the kind is served", DEADLINE, async || {
            let conditions = api.get(&path).await["status"]["conditions"].take();
            let is_established = |one: &Value| one["type"] == "Established" && one["status"] == "True";
            let all = conditions.as_array().cloned().unwrap_or_default();
            if all.iter().any(is_established) { Ok(()) } else { Err(conditions.to_string()) }
        })
        .await;
    }
}

impl CertManager {
    /// Starts one for a cluster that has the definitions. It checks challenges of ACME at the name server 127.0.0.1:53.
    pub fn start(kubeconfig: &Path) -> Self {
        let workspace = Workspace::create("cert-manager");
        let log = workspace.join("controller.log");
        let arguments = [format!("--kubeconfig={}", kubeconfig.display()), "-v=2".to_owned()];
        Self {
            process: Process::start("cert-manager", &cert_manager(), &arguments, &log),
            _workspace: workspace,
        }
    }

    /// Returns the end of its log.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}

/// Returns a Certificate.
pub fn certificate(namespace: &str, name: &str, issuer: &str, names: &[&str]) -> Value {
    json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"secretName": format!("{name}-tls"), "dnsNames": names, "issuerRef": {"name": issuer}},
    })
}

/// Returns an issuer. `spec`: `{"selfSigned": {}}` or `{"ca": {"secretName": NAME}}`.
pub fn issuer(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Issuer",
        "metadata": {"namespace": namespace, "name": name}, "spec": spec,
    })
}

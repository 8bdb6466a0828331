//! The part of a kubelet that runs static Pods: an API server is started with what stands in its manifest, and the API has
//! a mirror of its Pod.

use std::fs::{create_dir_all, read_to_string, write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::cluster::Cluster;

const PODS: &str = "/api/v1/namespaces/kube-system/pods";
/// The file, as kubeadm calls it.
const FILE: &str = "kube-apiserver.yaml";

impl Cluster {
    /// Gives each API server a host of its own, on which its manifest is, as kubeadm writes it: from now on it is started
    /// with what stands there. Returns the folders of manifests.
    pub async fn write_manifests(&mut self) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        for number in 0..self.api_servers.len() {
            let folder = self.directory().join(format!("host-{number}/manifests"));
            create_dir_all(&folder).expect("a folder");
            let server = &mut self.api_servers[number];
            let text = manifest(&server.command(), server.options.version.text());
            write(folder.join(FILE), text).expect("a manifest");
            server.options.manifest = Some(folder.join(FILE));
            self.mirror_api_server(number, &self.api_servers[number].command()).await;
            folders.push(folder);
        }
        folders
    }

    /// Does what a kubelet does when a manifest has changed: ends the API server, starts it with what stands there now, and
    /// makes its mirror anew.
    pub async fn obey_manifest(&mut self, number: usize) {
        self.restart_api_server(number).await;
        self.mirror_api_server(number, &self.api_servers[number].command()).await;
    }

    /// Writes the Pod that the kubelet of a control-plane host would, and that its container runs.
    pub async fn mirror_api_server(&self, number: usize, command: &[String]) {
        let name = format!("kube-apiserver-cp-{number}");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "kube-system", "labels": {"component": "kube-apiserver"},
                "annotations": {"kubernetes.io/config.mirror": "hash"},
            },
            "spec": {"nodeName": format!("cp-{number}"), "hostNetwork": true, "containers": [
                {"name": "kube-apiserver", "image": "x", "command": command},
            ]},
        });
        if self.api.find(&format!("{PODS}/{name}")).await.is_some() {
            self.api.delete(&format!("{PODS}/{name}?gracePeriodSeconds=0")).await;
        }
        self.api.create(&pod).await;
        let container = json!({"name": "kube-apiserver", "state": {"running": {}}, "ready": true, "restartCount": 0,
            "image": "x", "imageID": "x"});
        let status = json!({"status": {"phase": "Running", "containerStatuses": [container]}});
        self.api.merge(&format!("{PODS}/{name}/status"), &status).await;
    }
}

fn manifest(command: &[String], version: &str) -> String {
    let words: Vec<String> = command.iter().map(|word| format!("    - {word}\n")).collect();
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  labels:
    component: kube-apiserver
    tier: control-plane
  name: kube-apiserver
  namespace: kube-system
spec:
  containers:
  - command:
{}    image: registry.k8s.io/kube-apiserver:{version}
    name: kube-apiserver   # changed by hand in spring
  hostNetwork: true
status: {{}}
",
        words.concat()
    )
}

/// The command in a manifest.
pub fn command_in(path: &Path) -> Vec<String> {
    let text = read_to_string(path).expect("a manifest");
    let pod: Value = serde_saphyr::from_str(&text).expect("a Pod");
    let words = pod["spec"]["containers"][0]["command"].as_array().expect("a command").iter();
    words.map(|word| word.as_str().expect("a word").to_owned()).collect()
}

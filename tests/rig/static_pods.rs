//! The part of a kubelet that runs static Pods: API servers and controllers are started with the commands of their manifests, and
//! the API has mirrors of their Pods.

use std::fs::{create_dir_all, read_to_string, write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::cluster::Cluster;

const PODS: &str = "/api/v1/namespaces/kube-system/pods";
const API_SERVER: &str = "kube-apiserver";
const CONTROLLER_MANAGER: &str = "kube-controller-manager";

impl Cluster {
    /// Gives each API server its own host with its manifest, as kubeadm writes it, and the controllers the first of these: from
    /// now on they are started with these commands. Returns the folders of manifests.
    pub async fn write_manifests(&mut self) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        for number in 0..self.api_servers.len() {
            let folder = self.directory().join(format!("host-{number}/manifests"));
            create_dir_all(&folder).expect("a folder");
            let server = &mut self.api_servers[number];
            let version = server.options.version.text();
            let file = folder.join(format!("{API_SERVER}.yaml"));
            write(&file, manifest(API_SERVER, &server.command(), version)).expect("a manifest");
            server.options.manifest = Some(file);
            if number == 0 {
                let file = folder.join(format!("{CONTROLLER_MANAGER}.yaml"));
                let text = manifest(CONTROLLER_MANAGER, &self.controller_options().command(), version);
                write(&file, text).expect("a manifest");
                self.controllers_manifest = Some(file);
            }
            self.mirror_host(number).await;
            folders.push(folder);
        }
        folders
    }

    /// Does the work of a kubelet after a change of manifests: ends the processes, starts them with their present commands, and
    /// recreates the mirrors.
    pub async fn obey_manifests(&mut self, number: usize) {
        self.restart_api_server(number).await;
        if number == 0 {
            self.start_controllers();
        }
        self.mirror_host(number).await;
    }

    async fn mirror_host(&self, number: usize) {
        self.mirror(API_SERVER, number, &self.api_servers[number].command()).await;
        if number == 0 {
            self.mirror(CONTROLLER_MANAGER, number, &self.controller_options().command()).await;
        }
    }

    /// Writes the Pod that the kubelet of a control-plane host would, with a running container.
    pub async fn mirror(&self, component: &str, number: usize, command: &[String]) {
        let name = format!("{component}-cp-{number}");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "kube-system", "labels": {"component": component},
                "annotations": {"kubernetes.io/config.mirror": "hash"},
            },
            "spec": {"nodeName": format!("cp-{number}"), "hostNetwork": true, "containers": [
                {"name": component, "image": "x", "command": command},
            ]},
        });
        if self.api.find(&format!("{PODS}/{name}")).await.is_some() {
            self.api.delete(&format!("{PODS}/{name}?gracePeriodSeconds=0")).await;
        }
        self.api.create(&pod).await;
        let container = json!({"name": component, "state": {"running": {}}, "ready": true, "restartCount": 0,
            "image": "x", "imageID": "x"});
        let status = json!({"status": {"phase": "Running", "containerStatuses": [container]}});
        self.api.merge(&format!("{PODS}/{name}/status"), &status).await;
    }
}

fn manifest(component: &str, command: &[String], version: &str) -> String {
    let words: Vec<String> = command.iter().map(|word| format!("    - {word}\n")).collect();
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  labels:
    component: {component}
    tier: control-plane
  name: {component}
  namespace: kube-system
spec:
  containers:
  - command:
{}    image: registry.k8s.io/{component}:{version}
    name: {component}   # changed by hand in spring
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

//! The part of a kubelet that serves its configuration: `/configz` at its port on a node, which the API servers proxy. OpenSSL
//! serves it.

use std::fs::{create_dir_all, read_to_string, write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::process::Process;

/// The port at which API servers reach kubelets (`KubeletPort`, `pkg/cluster/ports/ports.go`, v1.36.3).
pub const PORT: u16 = 10250;

/// A kubelet. Killed on drop.
pub struct Kubelet {
    /// Its configuration.
    pub config: PathBuf,
    answer: PathBuf,
    _process: Process,
}

impl Cluster {
    /// Starts one on a node, with a configuration as kubeadm writes it.
    pub fn start_kubelet(&self, node: usize, cluster_dns: &str) -> Kubelet {
        let node = &self.nodes[node];
        let folder = self.directory().join(format!("kubelet-{}", node.name));
        create_dir_all(&folder).expect("a folder");
        let (config, answer) = (folder.join("config.yaml"), folder.join("configz"));
        let text = format!(
            "# {}\napiVersion: kubelet.config.k8s.io/v1beta1\nclusterDNS:\n- {cluster_dns}   # kube-dns\nkind: KubeletConfiguration\n",
            node.name
        );
        write(&config, text).expect("a configuration");
        tell(&config, &answer);
        let pair = self.directory().join("apiserver-0").display().to_string();
        let serve = format!(
            "cd {} && exec openssl s_server -4 -quiet -HTTP -accept {PORT} -cert {pair}.crt -key {pair}.key",
            folder.display()
        );
        let (shell, log) = (Path::new("/bin/sh"), folder.join("log"));
        let process = Process::start_in(node.namespace(), "kubelet", shell, &["-c".to_owned(), serve], &log);
        Kubelet { config, answer, _process: process }
    }
}

impl Kubelet {
    /// Loads its configuration as it is now.
    pub fn restart(&self) {
        tell(&self.config, &self.answer);
    }
}

fn tell(config: &Path, answer: &Path) {
    let text = read_to_string(config).expect("a configuration");
    let config: Value = serde_saphyr::from_str(&text).expect("YAML");
    let body = json!({"kubeletconfig": config});
    let response = format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}");
    write(answer, response).expect("an answer");
}

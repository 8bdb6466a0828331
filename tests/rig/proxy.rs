//! Real kube-proxies, one in each node's namespace.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::cluster::Cluster;
use super::namespace::Namespace;
use super::network::POD_CIDRS;
use super::process::Process;

/// How long a kube-proxy may take until it is healthy; about a second on an idle machine.
const STARTUP: Duration = Duration::from_mins(2);

/// How long a server may take for a simple answer.
const ANSWER: Duration = Duration::from_secs(5);

/// The port of kube-proxy's health check.
const HEALTH: u16 = 10256;

/// How kube-proxy programs the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyMode {
    Nftables,
    Iptables,
}

impl ProxyMode {
    /// Both modes.
    pub const ALL: [Self; 2] = [Self::Nftables, Self::Iptables];

    fn name(self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
        }
    }
}

/// The options of a kube-proxy.
#[derive(Debug, Clone)]
pub struct ProxyOptions {
    pub mode: ProxyMode,
    /// More of its configuration file, as in `{"nftables": {"minSyncPeriod": "10s"}}`.
    pub config: Value,
    /// The URL of the API, as in `https://192.0.2.1:4000`, if not that of the first API server.
    pub server: Option<String>,
}

impl ProxyOptions {
    /// That mode and defaults.
    pub fn new(mode: ProxyMode) -> Self {
        Self { mode, config: json!({}), server: None }
    }

    /// That mode, with at least so much time, as in `10s`, between two syncs.
    pub fn slow(mode: ProxyMode, period: &str) -> Self {
        let periods = json!({"minSyncPeriod": period, "syncPeriod": "1h"});
        Self { config: json!({mode.name(): periods}), ..Self::new(mode) }
    }
}

/// A kube-proxy. Killed on drop; its rules stay in its node's namespace.
pub struct KubeProxy {
    process: Option<Process>,
    /// Its configuration: change it between [`KubeProxy::stop`] and [`KubeProxy::start_again`].
    pub config: Value,
    config_file: PathBuf,
    namespace: Namespace,
    address: IpAddr,
    program: PathBuf,
    log: PathBuf,
}

impl KubeProxy {
    /// Returns the node's address and the port of the kube-proxy's health check.
    pub fn health(&self) -> SocketAddr {
        SocketAddr::new(self.address, HEALTH)
    }

    /// Stops it (SIGSTOP): its connections stay open, its rules in force, and nothing changes them.
    pub fn pause(&mut self) {
        self.running().pause();
    }

    /// Lets it continue.
    pub fn resume(&mut self) {
        self.running().resume();
    }

    /// Ends it with SIGTERM. Its rules stay.
    pub fn stop(&mut self) {
        self.running().terminate();
        self.process = None;
    }

    /// Kills it (SIGKILL). Its rules stay.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again, and waits until it is healthy, which it reports before its first sync.
    pub async fn start_again(&mut self) {
        assert!(self.process.is_none(), "the kube-proxy is still running");
        std::fs::write(&self.config_file, self.config.to_string()).expect("the workspace can be written to");
        let arguments = ["kube-proxy".to_owned(), format!("--config={}", self.config_file.display())];
        let mut process =
            Process::start_in(&self.namespace, "kube-proxy", &self.program, &arguments, &self.log);
        let health = self.health();
        let outcome = process
            .ready("kube-proxy is healthy", STARTUP, async || match http_get(health, "/healthz").await {
                Ok((200, _)) => Ok(()),
                Ok((code, body)) => Err(format!("{code} {body}")),
                Err(message) => Err(message),
            })
            .await;
        self.process = Some(process);
        outcome.unwrap_or_else(|message| panic!("{message}"));
    }

    fn running(&mut self) -> &mut Process {
        self.process.as_mut().expect("the kube-proxy runs")
    }
}

impl Cluster {
    /// Starts a kube-proxy, of the API servers' version, on a node by its index in [`Cluster::nodes`], and waits until it is
    /// healthy.
    pub async fn start_proxy(&self, node: usize, options: &ProxyOptions) -> KubeProxy {
        let node = &self.nodes[node];
        let server = options.server.clone().unwrap_or_else(|| self.api_servers[0].url());
        let name = format!("kube-proxy-{}", node.name);
        let kubeconfig = self.write(&format!("{name}.conf"), &self.kubeconfig_for(&server));
        let address = node.addresses()[self.families()[0]];
        let pod_cidrs: Vec<_> = self.families().iter().map(|family| POD_CIDRS[*family]).collect();
        let mut config = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": kubeconfig},
            "hostnameOverride": node.name,
            "mode": options.mode.name(),
            "clusterCIDR": pod_cidrs.join(","),
            "healthzBindAddress": SocketAddr::new(address, HEALTH),
            // The limit belongs to the machine, not to the namespace.
            "conntrack": {"maxPerCore": 0},
            "logging": {"verbosity": 2},
        });
        merge(&mut config, &options.config);
        let mut proxy = KubeProxy {
            process: None,
            config,
            config_file: self.directory().join(format!("{name}.json")),
            namespace: node.namespace().clone(),
            address,
            program: self.version().program(),
            log: self.directory().join(format!("{name}.log")),
        };
        proxy.start_again().await;
        proxy
    }

    /// Starts a kube-proxy of that mode on every node, and stores their configuration where kubeadm does.
    pub async fn start_proxies(&self, mode: ProxyMode) -> Vec<KubeProxy> {
        self.start_proxies_as(&ProxyOptions::new(mode)).await
    }

    /// The same for kube-proxies with these options.
    pub async fn start_proxies_as(&self, options: &ProxyOptions) -> Vec<KubeProxy> {
        let mut proxies = Vec::new();
        for node in 0..self.nodes.len() {
            proxies.push(self.start_proxy(node, options).await);
        }
        if let Some(proxy) = proxies.first() {
            self.store_configuration(proxy).await;
            self.store_proxy_pods().await;
        }
        proxies
    }

    /// Stores the configuration of a kube-proxy where kubeadm does.
    pub async fn store_configuration(&self, proxy: &KubeProxy) {
        let metadata = json!({"name": "kube-proxy", "namespace": "kube-system"});
        let data = json!({"config.conf": proxy.config.to_string()});
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        self.api.create(&config).await;
    }

    /// Writes the Pod of a kube-proxy on every node, as the mirror of a static Pod.
    pub async fn store_proxy_pods(&self) {
        let image = format!("registry.k8s.io/kube-proxy:{}", self.version().text());
        let command = ["kube-proxy", "--config=/var/lib/kube-proxy/config.conf"];
        for node in &self.nodes {
            let name = format!("kube-proxy-{}", node.name);
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name, "namespace": "kube-system", "labels": {"k8s-app": "kube-proxy"},
                    "annotations": {"kubernetes.io/config.mirror": "hash"},
                },
                "spec": {"nodeName": node.name, "hostNetwork": true, "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "kube-proxy", "image": image, "command": command}]},
            });
            self.api.create(&pod).await;
            let status = json!({"status": {"phase": "Running"}});
            self.api.merge(&format!("/api/v1/namespaces/kube-system/pods/{name}/status"), &status).await;
        }
    }
}

/// Merges one JSON value into another.
fn merge(base: &mut Value, top: &Value) {
    match (base, top) {
        (Value::Object(base), Value::Object(top)) => {
            for (name, value) in top {
                merge(base.entry(name).or_insert(Value::Null), value);
            }
        }
        (base, top) => base.clone_from(top),
    }
}

/// Requests a path from a server; returns the status code and the body.
pub async fn http_get(server: SocketAddr, path: &str) -> Result<(u16, String), String> {
    let ask = async {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = timeout(ANSWER, ask).await.map_err(|_| format!("{server}: no answer within {ANSWER:?}"))?;
    let answer = answer.map_err(|error| format!("{server}: {error}"))?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| format!("{server}: {text:?}"))?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.ok_or_else(|| format!("{server}: {head:?}"))?, body.to_owned()))
}

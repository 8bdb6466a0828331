//! Real nodes: a kubelet and a containerd on a host of its own, a kube-proxy, a Pod network of real CNI plug-ins, and a scheduler.
//!
//! ```text
//! let options = ClusterOptions::with_real_nodes(2);
//! let cluster = Cluster::start(options).await;
//! let nodes = cluster.start_real_nodes(PodNetwork::Bridge).await;
//! let pod = cluster.run_pod("default", "web", json!({"nodeName": "node-1", "containers": [{"name": "web", "image": PAUSE}]})).await;
//! let network = nodes[0].namespace_of(&pod);      // for `Probe::start`, `ask_once` and `echo::serve`
//! ```
//!
//! Drop the nodes before the cluster. They leave nothing behind: see [`super::machine`].

use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::AttachParams;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::api::object_path;
use super::cluster::{Cluster, Era};
use super::containerd;
use super::kubelet::PORT;
use super::machine::{HostProcess, Machine};
use super::namespace::Namespace;
use super::network::Node;
use super::pod_network::PodNetwork;
use super::process::{Process, wait_until};
use super::programs::{folder, kubelet};
use super::proxy::{KubeProxy, ProxyMode, ProxyOptions};

/// How long a node may take until it is ready, and a Pod until it runs; a few seconds on an idle machine.
const STARTUP: Duration = Duration::from_mins(2);

/// A node. On drop everything on it ends; its Node object stays.
pub struct RealNode {
    /// Also the name of the Node object.
    pub name: String,
    /// The kube-proxy. It runs outside of the host, in its network.
    pub proxy: KubeProxy,
    /// More programs on the host: those of the Pod network.
    pub programs: Vec<HostProcess>,
    kubelet: Option<HostProcess>,
    containerd: Option<HostProcess>,
    /// The arguments of the kubelet, and the address at which it listens.
    arguments: Vec<String>,
    address: IpAddr,
    host: Machine,
}

/// All real nodes of a cluster, and the scheduler.
pub struct RealNodes {
    nodes: Vec<RealNode>,
    _scheduler: Process,
}

impl Deref for RealNodes {
    type Target = Vec<RealNode>;

    fn deref(&self) -> &Self::Target {
        &self.nodes
    }
}

impl DerefMut for RealNodes {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.nodes
    }
}

impl RealNode {
    /// Returns the host: run programs on it, or read and write its files, as in `node.host().path("/etc/cni/net.d")`.
    pub fn host(&self) -> &Machine {
        &self.host
    }

    /// Returns the network namespace of the node.
    pub fn namespace(&self) -> &Namespace {
        self.host.namespace()
    }

    /// Returns the network namespace of a Pod that runs on the node.
    pub fn namespace_of(&self, pod: &Value) -> Namespace {
        let uid = pod["metadata"]["uid"].as_str().expect("an object has a UID");
        self.host
            .namespace_of_pod(uid)
            .unwrap_or_else(|| panic!("on {}, no process of the Pod runs: {pod}", self.name))
    }

    /// Ends the kubelet with SIGTERM. Pods continue.
    pub async fn stop_kubelet(&mut self) {
        self.kubelet.take().expect("the kubelet runs").terminate().await;
    }

    /// Starts the kubelet again, and waits until it serves requests. The node may be ready only later: see
    /// [`Cluster::wait_for_node`].
    pub async fn start_kubelet(&mut self) {
        assert!(self.kubelet.is_none(), "the kubelet is still running");
        self.kubelet = Some(start_kubelet(&self.host, &self.arguments, self.address).await);
    }

    /// Ends containerd with SIGTERM. Pods continue.
    pub async fn stop_containerd(&mut self) {
        self.containerd.take().expect("containerd runs").terminate().await;
    }

    /// Starts containerd again, and waits until it serves requests.
    pub async fn start_containerd(&mut self) {
        assert!(self.containerd.is_none(), "containerd is still running");
        self.containerd = Some(containerd::start(&self.host).await);
    }

    /// Ends everything on the node at once, also the Pods, and takes it off the network, as a power cut does.
    pub fn kill(&mut self) {
        self.namespace().ip(&["link set eth0 down"]);
        self.host.kill();
        self.proxy.kill();
    }
}

impl Cluster {
    /// Starts real nodes with a Pod network: one for each of [`Cluster::nodes`]. Waits until they are ready.
    pub async fn start_real_nodes(&self, network: PodNetwork) -> RealNodes {
        assert_eq!(self.era(), Era::Objects, "kubelet has the version of these API servers");
        allow_watches();
        let scheduler = self.start_scheduler();
        let starts = (0..self.nodes.len()).map(|number| self.start_real_node(number, network));
        let nodes = join_all(starts).await;
        self.store_configuration(&nodes.first().expect("the cluster has nodes").proxy).await;
        RealNodes { nodes, _scheduler: scheduler }
    }

    /// Waits until a node is ready.
    pub async fn wait_for_node(&self, name: &str) {
        let path = format!("/api/v1/nodes/{name}");
        wait_until(&format!("{name} is ready"), STARTUP, async || {
            let conditions = self.api.get(&path).await["status"]["conditions"].take();
            if is_true(&conditions, "Ready") { Ok(()) } else { Err(conditions.to_string()) }
        })
        .await;
    }

    /// Creates a Pod with a `spec` and waits until it is ready; returns it. It has a label `app` with its name.
    pub async fn run_pod(&self, namespace: &str, name: &str, spec: Value) -> Value {
        let metadata = json!({"namespace": namespace, "name": name, "labels": {"app": name}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        self.create_when_accepted(&pod).await;
        self.wait_for_pod(namespace, name).await
    }

    /// Waits until a Pod is ready; returns it.
    pub async fn wait_for_pod(&self, namespace: &str, name: &str) -> Value {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        wait_until(&format!("the Pod {namespace}/{name} is ready"), STARTUP, async || {
            let pod = self.api.get(&path).await;
            if is_true(&pod["status"]["conditions"], "Ready") {
                Ok(pod)
            } else {
                Err(pod["status"].to_string())
            }
        })
        .await
    }

    /// Runs a command in a container of a Pod to its end, through the API; returns its standard output.
    pub async fn exec(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        command: &[&str],
    ) -> Result<String, String> {
        let pods: kube::Api<Pod> = kube::Api::namespaced(self.api.client(), namespace);
        let parameters = AttachParams::default().container(container);
        let mut attached =
            pods.exec(pod, command.to_vec(), &parameters).await.map_err(|error| error.to_string())?;
        let (mut output, mut errors) = (String::new(), String::new());
        let status = attached.take_status().expect("it is taken once");
        let (mut stdout, mut stderr) =
            (attached.stdout().expect("attached"), attached.stderr().expect("attached"));
        let read = tokio::try_join!(stdout.read_to_string(&mut output), stderr.read_to_string(&mut errors));
        read.map_err(|error| error.to_string())?;
        let status = status.await;
        attached.join().await.map_err(|error| error.to_string())?;
        match status {
            Some(status) if status.status.as_deref() == Some("Success") => Ok(output),
            status => Err(format!("{status:?}\n{output}{errors}")),
        }
    }

    /// Deletes an object, and waits until it is deleted.
    pub async fn delete_and_wait(&self, path: &str) {
        self.api.delete(path).await;
        wait_until(&format!("{path} is deleted"), STARTUP, async || match self.api.find(path).await {
            None => Ok(()),
            Some(object) => Err(object["status"].to_string()),
        })
        .await;
    }

    /// Creates an object as soon as its namespace has a service account.
    async fn create_when_accepted(&self, object: &Value) {
        wait_until(&format!("{} is accepted", object_path(object)), STARTUP, async || {
            self.api.try_create(object).await.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }

    async fn start_real_node(&self, number: usize, network: PodNetwork) -> RealNode {
        let node = &self.nodes[number];
        let directory = self.directory().join(&node.name);
        std::fs::create_dir_all(&directory).expect("a folder");
        let images = super::image::archive().parent().expect("a file is in a folder");
        let shared = [self.directory().to_owned(), folder(), images.to_owned()];
        let host = Machine::start(&node.name, node.namespace(), &directory, &shared).await;
        // kube-proxy depends on it if Pods of one node share a bridge.
        node.namespace().sysctl("bridge/bridge-nf-call-iptables", "1");
        node.namespace().sysctl("bridge/bridge-nf-call-ip6tables", "1");
        let containerd = containerd::install(&host).await;
        self.create_node_without_status(node).await;
        let programs = network.install(self, number, &host).await;
        let arguments = self.kubelet_arguments(node, &host);
        let address = node.addresses()[self.families()[0]];
        let kubelet = start_kubelet(&host, &arguments, address).await;
        self.wait_for_node_addresses(&node.name).await;
        let proxy = self.start_proxy(number, &ProxyOptions::new(ProxyMode::Nftables)).await;
        self.wait_for_node(&node.name).await;
        let (kubelet, containerd) = (Some(kubelet), Some(containerd));
        RealNode { name: node.name.clone(), proxy, programs, kubelet, containerd, arguments, address, host }
    }

    /// A kube-proxy reads them once, at its start.
    async fn wait_for_node_addresses(&self, name: &str) {
        let path = format!("/api/v1/nodes/{name}");
        wait_until(&format!("the kubelet reports the addresses of {name}"), STARTUP, async || {
            let status = self.api.get(&path).await["status"].take();
            if status["addresses"].is_array() { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    /// Writes the configuration of a kubelet, as kubeadm does; returns its arguments.
    fn kubelet_arguments(&self, node: &Node, host: &Machine) -> Vec<String> {
        let addresses = self.of_families(&node.addresses().map(|address| address.to_string()));
        let user = format!("system:node:{}", node.name);
        let names: Vec<String> = addresses.iter().cloned().chain([node.name.clone()]).collect();
        let serving = self.issue(&format!("kubelet-{}", node.name), &user, &names);
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": false}, "webhook": {"enabled": true},
                "x509": {"clientCAFile": self.credentials.authority.certificate},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": serving.certificate,
            "tlsPrivateKeyFile": serving.key,
            "clusterDNS": [self.dns_address().to_string()],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": format!("unix://{}", containerd::SOCKET),
            "staticPodPath": "/etc/kubernetes/manifests",
            "resolvConf": "",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", host.cgroup()),
            "enforceNodeAllocatable": ["none"],
            "failCgroupV1": false,
            "failSwapOn": false,
            "oomScoreAdj": 0,
            // The images are in memory, and the disk belongs to the machine.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "50Mi"},
        });
        let file: PathBuf = host.folder().join("kubelet.json");
        std::fs::write(&file, config.to_string()).expect("a configuration");
        vec![
            "kubelet".to_owned(),
            format!("--config={}", file.display()),
            format!("--kubeconfig={}", self.kubeconfig_as(0, &user, Some("system:nodes")).display()),
            format!("--hostname-override={}", node.name),
            format!("--node-ip={}", addresses.join(",")),
            "--v=2".to_owned(),
        ]
    }

    fn start_scheduler(&self) -> Process {
        let kubeconfig = self.kubeconfig_as(0, "system:kube-scheduler", None);
        let arguments = [
            "kube-scheduler".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        Process::start("kube-scheduler", &kubelet(), &arguments, &self.directory().join("kube-scheduler.log"))
    }
}

/// Raises the number of inotify instances that root may have on this machine, if it is lower: a node needs about twelve, the default of
/// 128 is for the whole machine, and without one a kubelet never becomes ready. It is a limit, so raising it harms no program.
fn allow_watches() {
    const LIMIT: &str = "/proc/sys/fs/inotify/max_user_instances";
    const ENOUGH: u32 = 1024;
    let limit = std::fs::read_to_string(LIMIT).expect("the kernel has inotify");
    if limit.trim().parse::<u32>().is_ok_and(|limit| limit < ENOUGH) {
        let raised = std::fs::write(LIMIT, ENOUGH.to_string());
        raised.unwrap_or_else(|error| panic!("{LIMIT} is {}: {error}; set it to {ENOUGH}", limit.trim()));
    }
}

async fn start_kubelet(host: &Machine, arguments: &[String], address: IpAddr) -> HostProcess {
    let mut process = host.start_process("kubelet", &kubelet(), arguments);
    let probe = async || {
        let connected = TcpStream::connect((address, PORT)).await;
        connected.map(drop).map_err(|error| error.to_string())
    };
    let ready = process.ready("the kubelet serves requests", STARTUP, probe).await;
    ready.unwrap_or_else(|message| panic!("{message}"));
    process
}

fn is_true(conditions: &Value, name: &str) -> bool {
    let conditions = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == name && condition["status"] == "True")
}

//! A whole control plane: etcd, one or several API servers on it, and the controllers that Services need; on loopback, or with
//! nodes in its own network.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use super::api::Api;
use super::apiserver::{ApiServer, ApiServerOptions, KubernetesVersion, advertised};
use super::controllers::{ControllerOptions, start as start_controllers};
use super::etcd::{Etcd, EtcdOptions};
use super::network::{Network, Node, gateway};
use super::pki::{Authority, Pair, service_account_key, serving_names};
use super::process::{Process, wait_until};
use super::times::Timed;
use super::workspace::Workspace;

/// How long a new cluster may take to create its own objects after it is ready; about a second.
const BOOTSTRAP: Duration = Duration::from_mins(1);

/// How a cluster stores its Service addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// IPAddress and ServiceCIDR objects only: 1.37.2 with its defaults.
    Objects,
    /// The objects and the bitmap, both written: 1.36.3 behaving as 1.33.
    DualWrite,
    /// The bitmap only: 1.32.2.
    Bitmap,
}

impl Era {
    /// All eras.
    pub const ALL: [Self; 3] = [Self::Objects, Self::DualWrite, Self::Bitmap];

    /// Returns the version of Kubernetes that represents the era.
    pub fn version(self) -> KubernetesVersion {
        match self {
            Self::Objects => KubernetesVersion::V1_37_2,
            Self::DualWrite => KubernetesVersion::V1_36_3,
            Self::Bitmap => KubernetesVersion::V1_32_2,
        }
    }

    /// Returns the flags that every component needs.
    fn flags(self) -> Vec<String> {
        match self {
            Self::DualWrite => vec!["--emulated-version=1.33".to_owned()],
            Self::Objects | Self::Bitmap => Vec::new(),
        }
    }
}

/// The cluster to start.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    pub era: Era,
    /// Comma-separated, as in `--service-cluster-ip-range`.
    pub service_cidrs: String,
    /// More ranges whose first address the API servers' certificates cover, as after `netsurgeon certs reissue`.
    pub certified_cidrs: String,
    pub etcd: EtcdOptions,
    /// How many API servers run on the one etcd.
    pub api_servers: u8,
    /// Whether the controllers run.
    pub controllers: bool,
    /// Whether they use their own service accounts, as with kubeadm, instead of the administrator's; then the controllers of
    /// Deployments and quotas run too.
    pub controllers_as_themselves: bool,
    /// Whether the controllers of CronJobs, Jobs, Deployments and StatefulSets run too.
    pub workload_controllers: bool,
    /// More flags for every API server.
    pub api_server_flags: Vec<String>,
    /// How many nodes there are. With nodes, the cluster is in a network of namespaces, which the thread that starts it enters;
    /// see [`super::network`].
    pub nodes: u8,
    pub node_kind: NodeKind,
}

/// What the nodes of a cluster are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// Network namespaces; the rig writes the objects of Nodes and Pods.
    Simulated,
    /// Hosts for kubelets: see [`Cluster::start_real_nodes`].
    Real,
}

impl ClusterOptions {
    /// One API server on a plain etcd 3.6, with controllers, on 10.96.0.0/16.
    pub fn new(era: Era) -> Self {
        Self {
            era,
            service_cidrs: "10.96.0.0/16".to_owned(),
            certified_cidrs:
                "10.150.0.0/16,10.192.0.0/12,10.200.0.0/16,10.201.0.0/16,10.210.0.0/16,fd00:10:200::/112"
                    .to_owned(),
            etcd: EtcdOptions::default(),
            api_servers: 1,
            controllers: true,
            controllers_as_themselves: false,
            workload_controllers: false,
            api_server_flags: Vec::new(),
            nodes: 0,
            node_kind: NodeKind::Simulated,
        }
    }

    /// The same on so many hosts for [`Cluster::start_real_nodes`], with all controllers.
    pub fn with_real_nodes(nodes: u8) -> Self {
        Self { nodes, node_kind: NodeKind::Real, ..Self::new(Era::Objects) }
    }
}

/// The certificates of a cluster, in one directory with the names that kubeadm uses.
pub struct Credentials {
    /// The cluster's authority.
    pub authority: Authority,
    /// A client's pair in the group `system:masters`.
    pub admin: Pair,
    service_account: Pair,
}

/// A running cluster. On drop everything is killed and removed.
pub struct Cluster {
    controllers: Option<Process>,
    /// The manifest of the controllers, if they are a static Pod.
    pub controllers_manifest: Option<PathBuf>,
    /// The API servers, in the order of their start.
    pub api_servers: Vec<ApiServer>,
    /// The etcd below them.
    pub etcd: Etcd,
    /// The API, through the first server.
    pub api: Api,
    pub credentials: Credentials,
    /// The nodes, named `node-1` and so on. None has a kube-proxy: see [`Cluster::start_proxy`].
    pub nodes: Vec<Node>,
    kubeconfig: PathBuf,
    options: ClusterOptions,
    network: Option<Network>,
    workspace: Workspace,
    /// The last field: it is dropped after everything has ended.
    _timed: Timed,
}

impl Cluster {
    /// Starts a cluster and waits until it has created its own objects: the first namespaces, the Service `default/kubernetes`,
    /// and with controllers the service account `default/default`.
    pub async fn start(options: ClusterOptions) -> Self {
        // On the heap: this future is large.
        Box::pin(Self::launch(options)).await
    }

    async fn launch(options: ClusterOptions) -> Self {
        let timed = Timed::start(format!("{:?}", options.era));
        let network = (options.nodes > 0).then(|| Network::enter(options.api_servers));
        let workspace = Workspace::create("cluster");
        let authority = Authority::create(&workspace, "kubernetes", "ca");
        let admin = authority.issue(&workspace, "admin", "admin", Some("system:masters"), &[]);
        let credentials = Credentials { service_account: service_account_key(&workspace), authority, admin };
        let etcd = Etcd::start(options.etcd.clone()).await;
        let mut api_servers = Vec::new();
        for number in 0..options.api_servers {
            let server_options = server_options(&options, number, &credentials, &etcd, &workspace);
            let probe = async |url: &str| is_ready(url, &credentials).await;
            api_servers.push(ApiServer::start(server_options, probe).await);
        }
        let url = api_servers.first().expect("a cluster has an API server").url();
        let kubeconfig = workspace
            .write("admin.conf", kubeconfig(&url, &credentials, &certificate_of(&credentials.admin)));
        let api = Api::new(client_of(&url, &credentials, true).await.expect("the rig's kubeconfig is valid"));
        let mut cluster = Self {
            controllers: None,
            controllers_manifest: None,
            api_servers,
            etcd,
            api,
            credentials,
            nodes: Vec::new(),
            kubeconfig,
            options,
            network,
            workspace,
            _timed: timed,
        };
        if cluster.options.controllers {
            cluster.start_controllers();
        }
        cluster.wait_for_bootstrap().await;
        for _ in 0..cluster.options.nodes {
            match cluster.options.node_kind {
                NodeKind::Simulated => cluster.add_node().await,
                NodeKind::Real => {
                    let host = cluster.network().add_host(&cluster.nodes);
                    cluster.nodes.push(host);
                }
            }
        }
        cluster
    }

    /// Adds one more node.
    pub async fn add_node(&mut self) {
        let node = self.network().add_node(&self.nodes);
        self.create_node_object(&node).await;
        self.nodes.push(node);
    }

    /// Returns the network, which exists if the cluster was started with nodes.
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("a cluster that was started with nodes")
    }

    /// Returns the era.
    pub fn era(&self) -> Era {
        self.options.era
    }

    /// Returns the version of its components.
    pub fn version(&self) -> KubernetesVersion {
        self.options.era.version()
    }

    /// Returns the Service CIDRs, comma-separated.
    pub fn service_cidrs(&self) -> &str {
        &self.options.service_cidrs
    }

    /// Returns the address families of its Services in order, 0 for IPv4 and 1 for IPv6.
    pub fn families(&self) -> Vec<usize> {
        self.options.service_cidrs.split(',').map(|cidr| usize::from(cidr.contains(':'))).collect()
    }

    /// Returns the text of a kubeconfig file for an API server at that address.
    pub fn kubeconfig_for(&self, url: &str) -> String {
        kubeconfig(url, &self.credentials, &certificate_of(&self.credentials.admin))
    }

    /// Writes a kubeconfig file for one of the API servers, for a user in a group.
    pub fn kubeconfig_as(&self, number: usize, user: &str, group: Option<&str>) -> PathBuf {
        let file = format!("{}-{number}", user.replace(':', "-"));
        let pair = self.credentials.authority.issue(&self.workspace, &file, user, group, &[]);
        let text = kubeconfig(&self.api_servers[number].url(), &self.credentials, &certificate_of(&pair));
        self.workspace.write(&format!("{file}.conf"), text)
    }

    /// Returns the API through one of several servers, as a user in a group.
    pub async fn api_as(&self, number: usize, user: &str, group: Option<&str>) -> Api {
        let text = std::fs::read_to_string(self.kubeconfig_as(number, user, group)).expect("a kubeconfig");
        Api::new(client_with(&text, true).await.expect("the rig's kubeconfig is valid"))
    }

    /// Returns a new token of an existing service account.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> String {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let made = self.api.request(http::Method::POST, &path, "application/json", Some(&request)).await;
        made.expect("a token")["status"]["token"].as_str().expect("a token").to_owned()
    }

    /// Returns the API as an existing service account.
    pub async fn api_as_service_account(&self, namespace: &str, name: &str) -> Api {
        self.api_by(&self.kubeconfig_of_service_account(namespace, name).await).await
    }

    /// Returns the API with a kubeconfig file.
    pub async fn api_by(&self, file: &Path) -> Api {
        let text = std::fs::read_to_string(file).expect("a kubeconfig");
        Api::new(client_with(&text, true).await.expect("the rig's kubeconfig is valid"))
    }

    /// Writes a kubeconfig file for the first API server with a token of an existing service account.
    pub async fn kubeconfig_of_service_account(&self, namespace: &str, name: &str) -> PathBuf {
        let user = format!("token: '{}'", self.service_account_token(namespace, name).await);
        let text = kubeconfig(&self.api_servers[0].url(), &self.credentials, &user);
        self.workspace.write(&format!("{namespace}-{name}.conf"), text)
    }

    /// Binds a Pod to a node, as a scheduler does, and writes a kubeconfig file with a token of its service account that is bound
    /// to it, as the node's kubelet requests one (`pkg/kubelet/kubelet_volumes.go` and `token_manager.go`, v1.36.3).
    pub async fn kubeconfig_of_pod(&self, pod: &serde_json::Value, node: &str) -> PathBuf {
        let text = |path: &str| {
            pod.pointer(path).and_then(serde_json::Value::as_str).expect("the Pod has the field")
        };
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let bound = self.api.request(http::Method::POST, &path, "application/json", Some(&binding)).await;
        bound.expect("a Pod without a node");
        let account = text("/spec/serviceAccountName");
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": text("/metadata/uid")});
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound},
        });
        let made = self.api.request(http::Method::POST, &path, "application/json", Some(&request)).await;
        let user =
            format!("token: '{}'", made.expect("a token")["status"]["token"].as_str().expect("a token"));
        let text = kubeconfig(&self.api_servers[0].url(), &self.credentials, &user);
        self.workspace.write(&format!("{namespace}-{name}.conf"), text)
    }

    /// Issues a certificate of the cluster's authority to a common name, for these names and addresses.
    pub fn issue(&self, file: &str, common_name: &str, names: &[String]) -> Pair {
        self.credentials.authority.issue(&self.workspace, file, common_name, None, names)
    }

    /// Writes a file into [`Cluster::directory`].
    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        self.workspace.write(name, content)
    }

    /// Returns a kubeconfig file for the first API server, with the permissions of `system:masters`.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the directory of certificates, kubeconfig and logs.
    pub fn directory(&self) -> &Path {
        self.workspace.path()
    }

    /// Returns the API through one of several servers.
    pub async fn api_of(&self, number: usize) -> Api {
        let url = self.api_servers[number].url();
        Api::new(client_of(&url, &self.credentials, true).await.expect("the rig's kubeconfig is valid"))
    }

    /// Sends a GET request for a path to the first API server; returns the status code and the body, of any status.
    pub async fn ask(&self, path: &str) -> Result<(u16, String), String> {
        let client = client_of(&self.api_servers[0].url(), &self.credentials, false).await?;
        let request = http::Request::get(path).body(Body::empty()).expect("the request is well formed");
        let answer = client.send(request).await.map_err(|error| error.to_string())?;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect_bytes().await.map_err(|error| error.to_string())?;
        Ok((code, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Ends all API servers with SIGTERM. The stored objects stay.
    pub fn stop_api_servers(&mut self) {
        self.api_servers.iter_mut().for_each(ApiServer::stop);
    }

    /// Sets the Service CIDRs that API servers and controllers are started with from now on.
    pub fn set_service_cidrs(&mut self, service_cidrs: &str) {
        service_cidrs.clone_into(&mut self.options.service_cidrs);
        for number in 0..self.options.api_servers {
            let options =
                server_options(&self.options, number, &self.credentials, &self.etcd, &self.workspace);
            self.api_servers[usize::from(number)].options = options;
        }
    }

    /// Starts the API servers that do not run, on the same etcd and the same ports, and waits for them.
    pub async fn start_api_servers(&mut self) {
        for server in self.api_servers.iter_mut().filter(|server| !server.is_running()) {
            server.start_again(async |url: &str| is_ready(url, &self.credentials).await).await;
        }
        self.wait_for_bootstrap().await;
    }

    /// Stops an API server (SIGSTOP): its connections stay open, and it sends nothing.
    pub fn pause_api_server(&mut self, number: usize) {
        self.api_servers[number].pause();
    }

    /// Lets a paused API server continue.
    pub fn resume_api_server(&mut self, number: usize) {
        self.api_servers[number].resume();
    }

    /// Ends one API server and starts it again with its present options.
    pub async fn restart_api_server(&mut self, number: usize) {
        let server = &mut self.api_servers[number];
        server.stop();
        server.start_again(async |url: &str| is_ready(url, &self.credentials).await).await;
    }

    /// The same as the kubelet of its host does it: until it is ready.
    pub async fn restart_api_server_as_a_kubelet(&mut self, number: usize) {
        let server = &mut self.api_servers[number];
        server.stop();
        server.start_until_ready(async |url: &str| is_ready(url, &self.credentials).await).await;
    }

    /// Starts the controllers, or restarts them.
    pub fn start_controllers(&mut self) {
        self.stop_controllers();
        self.controllers = Some(start_controllers(&self.controller_options()));
    }

    /// The options of the controllers.
    pub fn controller_options(&self) -> ControllerOptions<'_> {
        let as_themselves = self.options.controllers_as_themselves;
        let own = as_themselves.then(|| self.kubeconfig_as(0, "system:kube-controller-manager", None));
        ControllerOptions {
            version: self.options.era.version(),
            kubeconfig: own.unwrap_or_else(|| self.kubeconfig.clone()),
            as_themselves,
            of_workloads: self.options.workload_controllers,
            all: self.options.node_kind == NodeKind::Real,
            service_account_key: &self.credentials.service_account.key,
            authority: &self.credentials.authority.certificate,
            service_cidrs: &self.options.service_cidrs,
            flags: self.options.era.flags(),
            manifest: self.controllers_manifest.as_deref(),
            log: self.workspace.join("kube-controller-manager.log"),
        }
    }

    /// Ends the controllers.
    pub fn stop_controllers(&mut self) {
        if let Some(mut controllers) = self.controllers.take() {
            controllers.terminate();
        }
    }

    /// Stops the controllers (SIGSTOP): their connections stay open, and they do nothing.
    pub fn pause_controllers(&mut self) {
        self.controllers.as_mut().expect("the controllers run").pause();
    }

    /// Lets paused controllers continue.
    pub fn resume_controllers(&mut self) {
        self.controllers.as_mut().expect("the controllers run").resume();
    }

    async fn wait_for_bootstrap(&self) {
        let mut paths = vec![
            "/api/v1/namespaces/default",
            "/api/v1/namespaces/kube-system",
            "/api/v1/namespaces/default/services/kubernetes",
        ];
        if self.controllers.is_some() {
            paths.push("/api/v1/namespaces/default/serviceaccounts/default");
        }
        for path in paths {
            wait_until(&format!("{path} exists"), BOOTSTRAP, async || {
                self.api.find(path).await.map(drop).ok_or_else(|| "not found".to_owned())
            })
            .await;
        }
    }
}

fn server_options(
    options: &ClusterOptions,
    number: u8,
    credentials: &Credentials,
    etcd: &Etcd,
    workspace: &Workspace,
) -> ApiServerOptions {
    let mut names = serving_names(&[&options.service_cidrs, &options.certified_cidrs]);
    if options.nodes > 0 {
        // A relay that a test places before the server listens at the gateway's address.
        names.extend([advertised(&options.service_cidrs, number), gateway().to_string()]);
    }
    let file = format!("apiserver-{number}");
    let mut flags = options.era.flags();
    if options.node_kind == NodeKind::Real {
        flags.extend(kubelet_flags(credentials, workspace));
    }
    flags.extend(options.api_server_flags.iter().cloned());
    ApiServerOptions {
        version: options.era.version(),
        service_cidrs: options.service_cidrs.clone(),
        etcd_flags: etcd_flags(etcd),
        flags,
        manifest: None,
        number,
        networked: options.nodes > 0,
        serving: credentials.authority.issue(workspace, &file, "kube-apiserver", None, &names),
        authority: credentials.authority.certificate.clone(),
        service_account: credentials.service_account.clone(),
        log: workspace.join(&format!("{file}.log")),
    }
}

/// What an API server needs to accept kubelets, and to connect to them for the logs of Pods and for `exec`.
fn kubelet_flags(credentials: &Credentials, workspace: &Workspace) -> Vec<String> {
    let file = "apiserver-kubelet-client";
    let pair = credentials.authority.issue(
        workspace,
        file,
        "kube-apiserver-kubelet-client",
        Some("system:masters"),
        &[],
    );
    vec![
        "--authorization-mode=Node".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--kubelet-certificate-authority={}", credentials.authority.certificate.display()),
        format!("--kubelet-client-certificate={}", pair.certificate.display()),
        format!("--kubelet-client-key={}", pair.key.display()),
    ]
}

fn etcd_flags(etcd: &Etcd) -> Vec<String> {
    let mut flags = vec![format!("--etcd-servers={}", etcd.endpoints().join(","))];
    if let Some(tls) = etcd.tls() {
        flags.extend([
            format!("--etcd-cafile={}", tls.authority.display()),
            format!("--etcd-certfile={}", tls.client.certificate.display()),
            format!("--etcd-keyfile={}", tls.client.key.display()),
        ]);
    }
    flags
}

async fn is_ready(url: &str, credentials: &Credentials) -> Result<(), String> {
    let client = client_of(url, credentials, false).await?;
    let request = http::Request::get("/readyz").body(Vec::new()).expect("the request is well formed");
    client.request_text(request).await.map(drop).map_err(|error| error.to_string())
}

/// Returns a client, which retries a request that the server is too busy for, or returns that answer too.
async fn client_of(url: &str, credentials: &Credentials, repeats: bool) -> Result<Client, String> {
    client_with(&kubeconfig(url, credentials, &certificate_of(&credentials.admin)), repeats).await
}

async fn client_with(kubeconfig: &str, repeats: bool) -> Result<Client, String> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(|e| e.to_string())?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| error.to_string())?;
    config.default_retry = repeats;
    Client::try_from(config).map_err(|error| error.to_string())
}

fn certificate_of(pair: &Pair) -> String {
    format!("client-certificate: '{}', client-key: '{}'", pair.certificate.display(), pair.key.display())
}

/// `user` is the text of a kubeconfig's user, between the braces.
fn kubeconfig(url: &str, credentials: &Credentials, user: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
current-context: rig
clusters: [{{name: rig, cluster: {{server: '{url}', certificate-authority: '{authority}'}}}}]
users: [{{name: rig, user: {{{user}}}}}]
contexts: [{{name: rig, context: {{cluster: rig, user: rig}}}}]
",
        authority = credentials.authority.certificate.display(),
    )
}

//! A real etcd server: the current version as built by `make rig`, or Debian's, plain or with mutual TLS,
//! with or without users and passwords.

use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, GetOptions, Identity, TlsOptions};

use super::pki::{Authority, Pair};
use super::process::{PORT_ATTEMPTS, Process, free_port, run};
use super::programs::{ETCD_VERSION, built, debian_etcd};
use super::workspace::Workspace;

/// How long a server may take until it answers. It takes a third of a second on an idle machine.
const STARTUP: Duration = Duration::from_mins(1);

/// Which etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EtcdVersion {
    /// 3.6.16, from the Go module.
    #[default]
    Current,
    /// The one of the Debian package `etcd-server`, 3.4.
    Debian,
}

impl EtcdVersion {
    fn program(self) -> PathBuf {
        match self {
            Self::Current => built(&format!("etcd-{ETCD_VERSION}/etcd")),
            Self::Debian => debian_etcd(),
        }
    }
}

/// How to run a server.
#[derive(Debug, Clone, Default)]
pub struct EtcdOptions {
    pub version: EtcdVersion,
    /// Serve TLS and demand clients' certificates of our authority.
    pub mutual_tls: bool,
    /// The password of the user `root`, who is then made and authentication switched on.
    pub root_password: Option<String>,
}

/// The files of a server with mutual TLS.
#[derive(Debug, Clone)]
pub struct EtcdTls {
    /// The authority's certificate.
    pub authority: PathBuf,
    /// A client's pair, with the common name `root`.
    pub client: Pair,
    server: Pair,
}

/// A server. Killed on drop, its data removed.
pub struct Etcd {
    process: Option<Process>,
    options: EtcdOptions,
    port: u16,
    peer_port: u16,
    users_enabled: bool,
    tls: Option<EtcdTls>,
    workspace: Workspace,
}

impl Etcd {
    /// Starts a server on an empty data directory and waits until it answers.
    pub async fn start(options: EtcdOptions) -> Self {
        let workspace = Workspace::create("etcd");
        let tls = options.mutual_tls.then(|| make_certificates(&workspace));
        let mut etcd =
            Self { process: None, options, port: 0, peer_port: 0, users_enabled: false, tls, workspace };
        let mut last = String::new();
        for _ in 0..PORT_ATTEMPTS {
            (etcd.port, etcd.peer_port) = (free_port(), free_port());
            match etcd.launch().await {
                Ok(()) => {
                    etcd.enable_users().await;
                    return etcd;
                }
                Err(message) => last = message,
            }
            let taken = etcd.process.as_ref().is_some_and(Process::port_was_taken);
            assert!(taken, "{last}");
            etcd.process = None;
            let _ = std::fs::remove_file(etcd.log());
        }
        panic!("no free port in {PORT_ATTEMPTS} attempts; last: {last}")
    }

    /// Returns the client's address, as in `http://127.0.0.1:40123`.
    pub fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme(), self.port)
    }

    /// Returns the certificates, `None` without TLS.
    pub fn tls(&self) -> Option<&EtcdTls> {
        self.tls.as_ref()
    }

    /// Returns the data directory.
    pub fn data(&self) -> PathBuf {
        self.workspace.join("data")
    }

    /// Returns a client of the server, as `root` where there are users.
    pub async fn client(&self) -> Client {
        self.connect().await.unwrap_or_else(|error| panic!("{}: {error}", self.endpoint()))
    }

    /// Returns the value of a key.
    pub async fn get(&self, key: &str) -> Option<Vec<u8>> {
        let response = self.client().await.get(key, None).await.expect("etcd answers");
        response.kvs().first().map(|pair| pair.value().to_vec())
    }

    /// Returns the keys under a prefix, in order.
    pub async fn keys(&self, prefix: &str) -> Vec<String> {
        let options = GetOptions::new().with_prefix().with_keys_only();
        let response = self.client().await.get(prefix, Some(options)).await.expect("etcd answers");
        response.kvs().iter().map(|pair| String::from_utf8_lossy(pair.key()).into_owned()).collect()
    }

    /// Stores a value, unconditionally.
    pub async fn put(&self, key: &str, value: impl Into<Vec<u8>>) {
        self.client().await.put(key, value, None).await.expect("etcd answers");
    }

    /// Removes a key.
    pub async fn delete(&self, key: &str) {
        self.client().await.delete(key, None).await.expect("etcd answers");
    }

    /// Ends the server in good order; its data stay. etcd 3.6 takes five seconds over it: where a test only
    /// wants the server gone, [`Etcd::kill`] does.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.terminate();
        }
    }

    /// Kills the server as a power cut would; its data stay.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts the server again, on the same data and ports.
    pub async fn start_again(&mut self) {
        assert!(self.process.is_none(), "the server is still running");
        self.launch().await.unwrap_or_else(|message| panic!("{message}"));
    }

    /// Runs the real `etcdctl` with this server's address and credentials; returns its output.
    pub fn etcdctl(&self, arguments: &[&str]) -> String {
        let endpoint = self.endpoint();
        let mut environment = vec![("ETCDCTL_API", "3"), ("ETCDCTL_ENDPOINTS", endpoint.as_str())];
        let user = self.options.root_password.as_ref().map(|password| format!("root:{password}"));
        if let Some(user) = user.as_deref().filter(|_| self.users_enabled) {
            environment.push(("ETCDCTL_USER", user));
        }
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let files = self
            .tls
            .as_ref()
            .map(|tls| (text(&tls.authority), text(&tls.client.certificate), text(&tls.client.key)));
        if let Some((authority, certificate, key)) = &files {
            environment.push(("ETCDCTL_CACERT", authority));
            environment.push(("ETCDCTL_CERT", certificate));
            environment.push(("ETCDCTL_KEY", key));
        }
        run(&built(&format!("etcd-{ETCD_VERSION}/etcdctl")), arguments, &environment)
    }

    /// Saves a snapshot with the real `etcdctl snapshot save`.
    pub fn snapshot(&self, file: &Path) {
        self.etcdctl(&["snapshot", "save", &file.to_string_lossy()]);
    }

    /// Forgets all history and gives the free pages back, so that a snapshot is small.
    pub async fn compact_and_defragment(&self) {
        let mut client = self.client().await;
        let header = client.get("\0", None).await.expect("etcd answers");
        let revision = header.header().expect("every answer has a header").revision();
        let options = etcd_client::CompactionOptions::new().with_physical();
        client.compact(revision, Some(options)).await.expect("etcd compacts");
        self.etcdctl(&["defrag"]);
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    fn log(&self) -> PathBuf {
        self.workspace.join("etcd.log")
    }

    async fn launch(&mut self) -> Result<(), String> {
        let program = self.options.version.program();
        let mut process = Process::start("etcd", &program, &self.arguments(), &self.log());
        let this = &*self;
        let outcome = process
            .ready("etcd answers", STARTUP, async || {
                let mut client = this.connect().await.map_err(|error| error.to_string())?;
                client.get("health", None).await.map(drop).map_err(|error| error.to_string())
            })
            .await;
        self.process = Some(process);
        outcome
    }

    async fn connect(&self) -> Result<Client, etcd_client::Error> {
        let mut options = ConnectOptions::new().with_connect_timeout(Duration::from_secs(5));
        if let Some(password) = self.options.root_password.as_ref().filter(|_| self.users_enabled) {
            options = options.with_user("root", password);
        }
        if let Some(tls) = &self.tls {
            let read = |path: &Path| std::fs::read(path).expect("our own file can be read");
            let identity = Identity::from_pem(read(&tls.client.certificate), read(&tls.client.key));
            let authority = Certificate::from_pem(read(&tls.authority));
            options = options.with_tls(TlsOptions::new().ca_certificate(authority).identity(identity));
        }
        Client::connect([self.endpoint()], Some(options)).await
    }

    async fn enable_users(&mut self) {
        let Some(password) = self.options.root_password.clone() else { return };
        let mut client = self.client().await;
        client.user_add("root", password, None).await.expect("the user can be made");
        client.role_add("root").await.expect("the role can be made");
        client.user_grant_role("root", "root").await.expect("the role can be given");
        client.auth_enable().await.expect("authentication can be switched on");
        self.users_enabled = true;
    }

    fn arguments(&self) -> Vec<String> {
        let (client, peer) = (self.endpoint(), format!("http://127.0.0.1:{}", self.peer_port));
        let mut arguments = vec![
            "--name=rig".to_owned(),
            format!("--data-dir={}", self.data().display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=rig={peer}"),
            // A member that is alone need not wait a second and more for others before it leads.
            "--heartbeat-interval=10".to_owned(),
            "--election-timeout=100".to_owned(),
        ];
        if self.options.version == EtcdVersion::Current {
            // What survives a killed process is in the page cache; only a machine's crash needs the sync.
            arguments.push("--unsafe-no-fsync".to_owned());
        }
        if let Some(tls) = &self.tls {
            arguments.extend([
                "--client-cert-auth".to_owned(),
                format!("--trusted-ca-file={}", tls.authority.display()),
                format!("--cert-file={}", tls.server.certificate.display()),
                format!("--key-file={}", tls.server.key.display()),
            ]);
        }
        arguments
    }
}

fn make_certificates(workspace: &Workspace) -> EtcdTls {
    let authority = Authority::create(workspace, "etcd-ca", "ca");
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    EtcdTls {
        server: authority.issue(workspace, "server", "etcd", None, &names),
        client: authority.issue(workspace, "client", "root", None, &[]),
        authority: authority.certificate,
    }
}

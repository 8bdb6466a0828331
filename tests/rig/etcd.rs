//! A real etcd: the current version as built by `make rig`, or Debian's, with one member or several, plain or with mutual TLS,
//! with or without users and passwords.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, GetOptions, Identity, TlsOptions};

use super::pki::{Authority, Pair};
use super::process::{PORT_ATTEMPTS, Process, free_port, run, wait_until};
use super::programs::{ETCD_VERSION, built, debian_etcd};
use super::workspace::Workspace;

/// How long a server may take until it answers: a third of a second on an idle machine.
const STARTUP: Duration = Duration::from_mins(1);

/// The version of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EtcdVersion {
    /// 3.7.3, from the Go module.
    #[default]
    Current,
    /// The version of the Debian package `etcd-server`, 3.4.
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

/// The options of an etcd.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    pub version: EtcdVersion,
    /// How many members it has.
    pub members: u8,
    /// Serve TLS and require clients' certificates of the rig's authority.
    pub mutual_tls: bool,
    /// The password of the user `root`, who is then created, and authentication enabled.
    pub root_password: Option<String>,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self { version: EtcdVersion::default(), members: 1, mutual_tls: false, root_password: None }
    }
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

/// One member.
struct Member {
    process: Option<Process>,
    name: String,
    port: u16,
    peer_port: u16,
}

impl Member {
    fn peer(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer_port)
    }
}

/// An etcd. Killed on drop, its data removed.
pub struct Etcd {
    members: Vec<Member>,
    options: EtcdOptions,
    users_enabled: bool,
    tls: Option<EtcdTls>,
    workspace: Workspace,
}

impl Etcd {
    /// Starts all members on empty data directories and waits until each answers.
    pub async fn start(options: EtcdOptions) -> Self {
        let workspace = Workspace::create("etcd");
        let tls = options.mutual_tls.then(|| make_certificates(&workspace));
        let mut etcd = Self { members: Vec::new(), options, users_enabled: false, tls, workspace };
        let mut last = String::new();
        for _ in 0..PORT_ATTEMPTS {
            let member = |number| Member {
                process: None,
                name: format!("rig-{number}"),
                port: free_port(),
                peer_port: free_port(),
            };
            etcd.members = (0..etcd.options.members).map(member).collect();
            match etcd.launch().await {
                Ok(()) => {
                    etcd.enable_users().await;
                    return etcd;
                }
                Err(message) => last = message,
            }
            let mut processes = etcd.members.iter().filter_map(|member| member.process.as_ref());
            assert!(processes.any(Process::port_was_taken), "{last}");
            for number in 0..etcd.members.len() {
                etcd.kill_member(number);
                let _ = std::fs::remove_file(etcd.log(number));
                let _ = std::fs::remove_dir_all(etcd.data_of(number));
            }
        }
        panic!("no free port in {PORT_ATTEMPTS} attempts; last: {last}")
    }

    /// Returns the first member's address for clients, as in `http://127.0.0.1:40123`.
    pub fn endpoint(&self) -> String {
        self.endpoint_of(0)
    }

    /// Returns every member's address for clients.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|number| self.endpoint_of(number)).collect()
    }

    /// Returns the certificates, `None` without TLS.
    pub fn tls(&self) -> Option<&EtcdTls> {
        self.tls.as_ref()
    }

    /// Returns the first member's data directory.
    pub fn data(&self) -> PathBuf {
        self.data_of(0)
    }

    /// Returns a client of the members that run, as `root` where there are users.
    pub async fn client(&self) -> Client {
        let endpoints = self.running();
        self.connect(&endpoints).await.unwrap_or_else(|error| panic!("{endpoints:?}: {error}"))
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

    /// Returns the keys under a prefix, each with the revision of its last change.
    pub async fn revisions(&self, prefix: &str) -> BTreeMap<String, i64> {
        let options = GetOptions::new().with_prefix().with_keys_only();
        let response = self.client().await.get(prefix, Some(options)).await.expect("etcd answers");
        let pairs = response.kvs().iter();
        pairs.map(|pair| (String::from_utf8_lossy(pair.key()).into_owned(), pair.mod_revision())).collect()
    }

    /// Stores a value, unconditionally.
    pub async fn put(&self, key: &str, value: impl Into<Vec<u8>>) {
        self.client().await.put(key, value, None).await.expect("etcd answers");
    }

    /// Removes a key.
    pub async fn delete(&self, key: &str) {
        self.client().await.delete(key, None).await.expect("etcd answers");
    }

    /// Returns the number of the member that leads.
    pub async fn leader(&self) -> usize {
        wait_until("a member of etcd leads", STARTUP, async || {
            for number in (0..self.members.len()).filter(|number| self.is_running(*number)) {
                let client = self.connect(&[self.endpoint_of(number)]).await;
                let mut client = client.map_err(|error| error.to_string())?;
                let status = client.status().await.map_err(|error| error.to_string())?;
                if status.header().is_some_and(|header| header.member_id() == status.leader()) {
                    return Ok(number);
                }
            }
            Err("no member leads".to_owned())
        })
        .await
    }

    /// Ends all members with SIGTERM; their data stay. etcd 3.6 takes five seconds for that: where a test only needs them to end,
    /// use [`Etcd::kill`].
    pub fn stop(&mut self) {
        for process in self.members.iter_mut().filter_map(|member| member.process.as_mut()) {
            process.terminate();
        }
        self.kill();
    }

    /// Kills all members, as a power failure does; their data stay.
    pub fn kill(&mut self) {
        (0..self.members.len()).for_each(|number| self.kill_member(number));
    }

    /// Kills one member, as a power failure does; its data stay.
    pub fn kill_member(&mut self, number: usize) {
        self.members[number].process = None;
    }

    /// Stops one member (SIGSTOP): its connections stay open, and it sends nothing.
    pub fn pause_member(&mut self, number: usize) {
        self.members[number].process.as_mut().expect("the member runs").pause();
    }

    /// Lets a paused member continue.
    pub fn resume_member(&mut self, number: usize) {
        self.members[number].process.as_mut().expect("the member runs").resume();
    }

    /// Starts the members that do not run, on the same data and ports.
    pub async fn start_again(&mut self) {
        assert!(self.running().len() < self.members.len(), "all members are still running");
        self.launch().await.unwrap_or_else(|message| panic!("{message}"));
    }

    /// Runs the real `etcdctl` with the address of a running member and the rig's credentials; returns its output.
    pub fn etcdctl(&self, arguments: &[&str]) -> String {
        let endpoint = self.running().into_iter().next().unwrap_or_else(|| self.endpoint());
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

    /// Removes all history and returns the free pages, so that a snapshot is small.
    pub async fn compact_and_defragment(&self) {
        let mut client = self.client().await;
        let header = client.get("\0", None).await.expect("etcd answers");
        let revision = header.header().expect("every answer has a header").revision();
        let options = etcd_client::CompactionOptions::new().with_physical();
        client.compact(revision, Some(options)).await.expect("etcd compacts");
        self.etcdctl(&["defrag"]);
    }

    /// Returns the size of the database of a member that runs, in bytes.
    pub async fn size(&self) -> u64 {
        let status = self.client().await.status().await.expect("etcd answers");
        u64::try_from(status.db_size()).expect("a size")
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    fn endpoint_of(&self, number: usize) -> String {
        format!("{}://127.0.0.1:{}", self.scheme(), self.members[number].port)
    }

    fn is_running(&self, number: usize) -> bool {
        self.members[number].process.is_some()
    }

    fn running(&self) -> Vec<String> {
        let running = (0..self.members.len()).filter(|number| self.is_running(*number));
        running.map(|number| self.endpoint_of(number)).collect()
    }

    fn data_of(&self, number: usize) -> PathBuf {
        self.workspace.join(&format!("data-{number}"))
    }

    fn log(&self, number: usize) -> PathBuf {
        self.workspace.join(&format!("etcd-{number}.log"))
    }

    /// Starts the members that do not run, all before any is waited for: one alone has no quorum.
    async fn launch(&mut self) -> Result<(), String> {
        let program = self.options.version.program();
        let idle: Vec<_> = (0..self.members.len()).filter(|number| !self.is_running(*number)).collect();
        for &number in &idle {
            let process = Process::start("etcd", &program, &self.arguments(number), &self.log(number));
            self.members[number].process = Some(process);
        }
        for number in idle {
            let mut process = self.members[number].process.take().expect("it was just started");
            let endpoint = [self.endpoint_of(number)];
            let this = &*self;
            let outcome = process
                .ready("etcd answers", STARTUP, async || {
                    let client = this.connect(&endpoint).await;
                    let mut client = client.map_err(|error| error.to_string())?;
                    client.get("health", None).await.map(drop).map_err(|error| error.to_string())
                })
                .await;
            self.members[number].process = Some(process);
            outcome?;
        }
        Ok(())
    }

    async fn connect(&self, endpoints: &[String]) -> Result<Client, etcd_client::Error> {
        let mut options = ConnectOptions::new().with_connect_timeout(Duration::from_secs(5));
        if let Some(password) = self.options.root_password.as_ref().filter(|_| self.users_enabled) {
            options = options.with_user("root", password);
        }
        if let Some(tls) = &self.tls {
            let read = |path: &Path| std::fs::read(path).expect("the rig's file can be read");
            let identity = Identity::from_pem(read(&tls.client.certificate), read(&tls.client.key));
            let authority = Certificate::from_pem(read(&tls.authority));
            options = options.with_tls(TlsOptions::new().ca_certificate(authority).identity(identity));
        }
        Client::connect(endpoints, Some(options)).await
    }

    async fn enable_users(&mut self) {
        let Some(password) = self.options.root_password.clone() else { return };
        let mut client = self.client().await;
        client.user_add("root", password, None).await.expect("the user can be created");
        client.role_add("root").await.expect("the role can be created");
        client.user_grant_role("root", "root").await.expect("the role can be granted");
        client.auth_enable().await.expect("authentication can be enabled");
        self.users_enabled = true;
    }

    fn arguments(&self, number: usize) -> Vec<String> {
        let member = &self.members[number];
        let (client, peer) = (self.endpoint_of(number), member.peer());
        let all = self.members.iter().map(|member| format!("{}={}", member.name, member.peer()));
        let mut arguments = vec![
            format!("--name={}", member.name),
            format!("--data-dir={}", self.data_of(number).display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={}", all.collect::<Vec<_>>().join(",")),
        ];
        if self.members.len() == 1 {
            // A single member need not wait for other members for more than a second before it leads.
            arguments.extend(["--heartbeat-interval=10", "--election-timeout=100"].map(str::to_owned));
        }
        if self.options.version == EtcdVersion::Current {
            // The page cache survives a killed process; only a crash of the machine needs the sync.
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

//! One real kube-apiserver, on loopback or in a network of namespaces.
//!
//! On loopback it binds 127.0.0.1 only, and a loopback address is no valid endpoint of the Service `default/kubernetes`; so the
//! server advertises an address of the documentation range 192.0.2.0/24 (IPv6: 2001:db8::/32). No client connects to it. An
//! explicit address also prevents the server from searching for a default route, without which it refuses to start. In a network
//! of namespaces the same address is a real one, where the server listens, at the same port on each.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::pki::Pair;
use super::process::{PORT_ATTEMPTS, Process, free_port};
use super::programs::built;
use super::static_pods::command_in;

/// How long a server may take until it is ready: 3 s on an idle machine, ten times that on a busy one.
const STARTUP: Duration = Duration::from_mins(2);

/// The port of a server in a network of namespaces, which it does not share.
const NETWORKED_PORT: u16 = 6443;

/// A version of Kubernetes that `make rig` builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubernetesVersion {
    V1_37_2,
    V1_36_3,
    V1_32_2,
}

impl KubernetesVersion {
    /// The version as components print it.
    pub fn text(self) -> &'static str {
        match self {
            Self::V1_37_2 => "v1.37.2",
            Self::V1_36_3 => "v1.36.3",
            Self::V1_32_2 => "v1.32.2",
        }
    }

    /// Returns the multi-call program of this version.
    pub fn program(self) -> PathBuf {
        built(match self {
            Self::V1_37_2 => "k8s-1.37.2/controlplane",
            Self::V1_36_3 => "k8s-1.36.3/controlplane",
            Self::V1_32_2 => "k8s-1.32.2/controlplane",
        })
    }
}

/// Everything that a server is started with, except its port.
#[derive(Debug, Clone)]
pub struct ApiServerOptions {
    pub version: KubernetesVersion,
    /// Comma-separated, as in `--service-cluster-ip-range`.
    pub service_cidrs: String,
    /// Flags of the etcd to use: `--etcd-servers` and what goes with it.
    pub etcd_flags: Vec<String>,
    /// Any other flags.
    pub flags: Vec<String>,
    /// The manifest with its command, if the server is a static Pod.
    pub manifest: Option<PathBuf>,
    /// Which of several servers of one cluster this is, from 0: each advertises an address of its own.
    pub number: u8,
    /// Whether to listen at that address instead of on loopback.
    pub networked: bool,
    /// The server's certificate.
    pub serving: Pair,
    /// The authority of clients' certificates.
    pub authority: PathBuf,
    /// The key of service account tokens.
    pub service_account: Pair,
    /// The file of the log.
    pub log: PathBuf,
}

/// A server. Killed on drop.
pub struct ApiServer {
    process: Option<Process>,
    /// The options for the next start: change them between [`ApiServer::stop`] and [`ApiServer::start_again`].
    pub options: ApiServerOptions,
    port: u16,
}

impl ApiServer {
    /// Starts a server and waits until `probe`, which gets its address, finds it ready.
    pub async fn start(
        options: ApiServerOptions,
        mut probe: impl AsyncFnMut(&str) -> Result<(), String>,
    ) -> Self {
        let mut server = Self { process: None, options, port: 0 };
        let mut last = String::new();
        for _ in 0..PORT_ATTEMPTS {
            server.port = if server.options.networked { NETWORKED_PORT } else { free_port() };
            match server.launch(&mut probe).await {
                Ok(()) => return server,
                Err(message) => last = message,
            }
            let taken = server.process.as_ref().is_some_and(Process::port_was_taken);
            assert!(taken, "{last}");
            server.process = None;
            let _ = std::fs::remove_file(&server.options.log);
        }
        panic!("no free port in {PORT_ATTEMPTS} attempts; last: {last}")
    }

    /// Returns the address, as in `https://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        format!("https://{}", SocketAddr::new(self.address(), self.port))
    }

    /// Returns where the server listens.
    pub fn address(&self) -> IpAddr {
        if self.options.networked {
            self.advertised().parse().expect("an address")
        } else {
            Ipv4Addr::LOCALHOST.into()
        }
    }

    /// Returns the address that the server advertises as an endpoint of `default/kubernetes`.
    pub fn advertised(&self) -> String {
        advertised(&self.options.service_cidrs, self.options.number)
    }

    /// Returns the name of its host, in a network of namespaces.
    pub fn host(&self) -> String {
        format!("cp-{}", self.options.number)
    }

    /// Whether the server was started and not stopped since.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Ends the server with SIGTERM.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.terminate();
        }
    }

    /// Kills the server as a power cut would.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Stops the server (SIGSTOP): its connections stay open, and it sends nothing.
    pub fn pause(&mut self) {
        self.process.as_mut().expect("the server runs").pause();
    }

    /// Lets a paused server continue.
    pub fn resume(&mut self) {
        self.process.as_mut().expect("the server runs").resume();
    }

    /// Starts the server again with its present options, on the same port.
    pub async fn start_again(&mut self, mut probe: impl AsyncFnMut(&str) -> Result<(), String>) {
        assert!(self.process.is_none(), "the server is still running");
        self.launch(&mut probe).await.unwrap_or_else(|message| panic!("{message}"));
    }

    /// The same as a kubelet does it, which restarts a server that has ended: an API server whose repair loops do not complete
    /// within a minute of its start ends itself (`PostStartHook`, `pkg/registry/core/rest/storage_core.go`, v1.36.3).
    pub async fn start_until_ready(&mut self, mut probe: impl AsyncFnMut(&str) -> Result<(), String>) {
        assert!(self.process.is_none(), "the server is still running");
        for _ in 0..PORT_ATTEMPTS {
            match self.launch(&mut probe).await {
                Ok(()) => return,
                Err(message) => println!("{message}\n{}", self.complaints()),
            }
            self.stop();
        }
        panic!("{} does not become ready", self.url());
    }

    /// The errors and warnings in its log.
    fn complaints(&self) -> String {
        let log = std::fs::read_to_string(&self.options.log).unwrap_or_default();
        log.lines().filter(|line| line.starts_with(['E', 'W', 'F'])).collect::<Vec<_>>().join("\n")
    }

    async fn launch(
        &mut self,
        probe: &mut impl AsyncFnMut(&str) -> Result<(), String>,
    ) -> Result<(), String> {
        let program = self.options.version.program();
        let mut process = if self.options.networked {
            // Its identity Lease has the name of its host: in a network each host has its own name.
            let name = ["sh", "-c", "hostname \"$0\" && exec \"$@\""].map(str::to_owned);
            let mut arguments = vec!["--uts".to_owned()];
            arguments.extend(name);
            arguments.extend([self.host(), program.display().to_string()]);
            arguments.extend(self.command());
            Process::start("kube-apiserver", Path::new("unshare"), &arguments, &self.options.log)
        } else {
            Process::start("kube-apiserver", &program, &self.command(), &self.options.log)
        };
        let url = self.url();
        let outcome = process.ready("the API server is ready", STARTUP, async || probe(&url).await).await;
        self.process = Some(process);
        outcome
    }

    /// Returns its command line, the program's name first.
    pub fn command(&self) -> Vec<String> {
        let options = &self.options;
        if let Some(manifest) = &options.manifest {
            return command_in(manifest);
        }
        let mut arguments = vec!["kube-apiserver".to_owned()];
        arguments.extend(options.etcd_flags.iter().cloned());
        arguments.extend([
            format!("--bind-address={}", self.address()),
            format!("--secure-port={}", self.port),
            format!("--advertise-address={}", self.advertised()),
            format!("--service-cluster-ip-range={}", options.service_cidrs),
            format!("--tls-cert-file={}", options.serving.certificate.display()),
            format!("--tls-private-key-file={}", options.serving.key.display()),
            format!("--client-ca-file={}", options.authority.display()),
            format!("--service-account-key-file={}", options.service_account.certificate.display()),
            format!("--service-account-signing-key-file={}", options.service_account.key.display()),
            "--authorization-mode=RBAC".to_owned(),
            "--allow-privileged".to_owned(),
            // Without this a server waits after SIGTERM for a minute until its clients end their watches.
            "--shutdown-watch-termination-grace-period=1s".to_owned(),
        ]);
        arguments.extend(options.flags.iter().cloned());
        // The first of several would be the issuer.
        if !options.flags.iter().any(|flag| flag.starts_with("--service-account-issuer=")) {
            arguments.push("--service-account-issuer=https://kubernetes.default.svc".to_owned());
        }
        arguments
    }
}

/// Returns the address that a server advertises; it must be of the cluster's first address family.
pub fn advertised(service_cidrs: &str, number: u8) -> String {
    let first = service_cidrs.split(',').next().unwrap_or_default();
    let mut address = String::from(if first.contains(':') { "2001:db8::" } else { "192.0.2." });
    let _ = write!(address, "{}", 10 + number);
    address
}

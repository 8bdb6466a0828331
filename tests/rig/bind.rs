//! Name servers: BIND, each at its own address on port 53, which needs a network namespace that no other run uses.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tokio::net::TcpStream;

use super::process::Process;
use super::programs::bind;
use super::workspace::Workspace;

/// How long one may take to serve its zones.
const DEADLINE: Duration = Duration::from_mins(1);

/// The text of a zone with two name servers, `ns1` and `ns2`. `names` are its other records; `primary` is the name of its primary.
pub fn zone_file(zone: &str, primary: &str, [ns1, ns2]: [&str; 2], names: &str) -> String {
    format!(
        "$TTL 60\n@ IN SOA {primary}.{zone}. admin.{zone}. 7 3600 600 86400 60\n@ IN NS ns1\n@ IN NS ns2\n\
         ns1 IN A {ns1}\nns2 IN A {ns2}\n{names}"
    )
}

/// The text of a file with a TSIG key, as `tsig-keygen` writes it.
pub fn key_file((name, secret): (&str, &str)) -> String {
    format!("key \"{name}\" {{\n\talgorithm hmac-sha256;\n\tsecret \"{secret}\";\n}};\n")
}

/// A running name server. Killed on drop.
pub struct NameServer {
    process: Process,
    address: IpAddr,
    workspace: Workspace,
}

impl NameServer {
    /// Starts one that answers at an address; `zones` is the rest of its configuration, and `files` are the files that it names,
    /// in the server's own folder.
    pub async fn start(address: IpAddr, options: &str, zones: &str, files: &[(&str, &str)]) -> Self {
        let workspace = Workspace::create("named");
        for (name, content) in files {
            workspace.write(name, content);
        }
        let folder = workspace.path().display();
        // BIND waits five seconds between two notifications of a zone, unless a test asks for that.
        let delay = if options.contains("notify-delay") { "" } else { "notify-delay 0;" };
        let configuration = format!(
            "options {{\n\
             directory \"{folder}\"; pid-file \"{folder}/named.pid\"; session-keyfile \"{folder}/session.key\";\n\
             listen-on port 53 {{ {address}; }}; listen-on-v6 {{ none; }}; dnssec-validation no; {delay} {options}\n\
             }};\ncontrols {{ }};\n{zones}\n"
        );
        let file = workspace.write("named.conf", configuration);
        let process = Self::run(&file, &workspace);
        let mut server = Self { process, address, workspace };
        server.wait().await;
        server
    }

    fn run(configuration: &Path, workspace: &Workspace) -> Process {
        let (program, libraries) = bind();
        let arguments = [
            format!("LD_LIBRARY_PATH={libraries}"),
            program.display().to_string(),
            "-g".to_owned(),
            "-n".to_owned(),
            "1".to_owned(),
            "-c".to_owned(),
            configuration.display().to_string(),
        ];
        Process::start("named", Path::new("/usr/bin/env"), &arguments, &workspace.join("named.log"))
    }

    async fn wait(&mut self) {
        let at = SocketAddr::new(self.address, 53);
        let log = self.workspace.join("named.log");
        let probe = async || {
            let said = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
            if !said.contains("all zones loaded") {
                return Err("its zones are not loaded".to_owned());
            }
            TcpStream::connect(at).await.map(|_| ()).map_err(|error| error.to_string())
        };
        self.process
            .ready("the name server serves its zones", DEADLINE, probe)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// Stops it.
    pub fn stop(&mut self) {
        self.process.terminate();
    }

    /// Starts it again.
    pub async fn start_again(&mut self) {
        let file = self.workspace.join("named.conf");
        std::fs::remove_file(self.workspace.join("named.log")).expect("a log");
        self.process = Self::run(&file, &self.workspace);
        self.wait().await;
    }

    /// Stops it, replaces a text in its configuration, and starts it again.
    pub async fn start_with(&mut self, from: &str, to: &str) {
        self.stop();
        let file = self.workspace.join("named.conf");
        let text = std::fs::read_to_string(&file).expect("a configuration");
        assert!(text.contains(from), "{text}");
        self.workspace.write("named.conf", text.replace(from, to));
        self.start_again().await;
    }

    /// Stops it and starts it again without its copy of a zone, so that it transfers the zone at once.
    pub async fn start_empty(&mut self, zone: &str) {
        self.stop();
        std::fs::remove_file(self.workspace.join(zone)).expect("a copy of the zone");
        self.start_again().await;
    }
}

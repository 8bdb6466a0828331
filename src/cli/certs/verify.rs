//! `netsurgeon certs verify`: verifies the certificate that every API server serves.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::now;
use super::words::{date, lacking, line, lines as all_lines, wrong_time};
use crate::certs::{Certificate, Name, certificates, is_trusted, is_valid_for};
use crate::cli::api::KubeArgs;
use crate::cli::file::at;
use crate::cli::output::{Output, counted};
use crate::cli::{Context, Outcome, findings};
use crate::ip::ServiceCidr;
use crate::kube_api::presented_certificate;
use crate::session::Failure;
use crate::survey::{Finding, Severity};

/// The pause between two checks.
const PAUSE: Duration = Duration::from_secs(1);
/// The name that clients in a cluster use. An API server can have another certificate for this name (`--tls-sni-cert-key`).
const NAME: &str = "kubernetes.default.svc";

/// Verify the certificate that every API server serves
///
/// Connects to each API server twice: by its address, and by the name `kubernetes.default.svc`. Checks the certificate that the
/// API server serves, not the file. An API server loads a replaced file within a minute, without a restart. The exit status is 3
/// if an API server does not answer, or if clients would reject its certificate.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # after `certs reissue`, on each host
  netsurgeon certs verify --cidr 10.96.0.0/16 --cidr 10.200.0.0/16 --wait 120
  # after `--drop-old`
  netsurgeon certs verify --without-cidr 10.96.0.0/16
  netsurgeon certs verify --server 192.0.2.10:6443 --ca-cert ca.crt \\
      --name api.example.org")]
pub struct VerifyArgs {
    /// An API server, as `HOST:PORT`; can be repeated [default: the endpoints of `default/kubernetes`]
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    server: Vec<String>,
    /// A Service range. The certificate must cover the first address of this range; can be repeated
    #[arg(long, value_name = "CIDR")]
    cidr: Vec<ServiceCidr>,
    /// A Service range. The certificate must not cover the first address of this range
    #[arg(long, value_name = "CIDR")]
    without_cidr: Vec<ServiceCidr>,
    /// A name or address that the certificate must cover
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// The CA that clients trust [default: the CA of the kubeconfig]
    #[arg(long, value_name = "FILE")]
    ca_cert: Option<PathBuf>,
    /// Report a certificate that expires within this many days
    #[arg(long, value_name = "DAYS", default_value = "30")]
    within: u16,
    /// Retry for up to this many seconds, until there are no errors
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u32>,
    #[command(flatten)]
    kube: KubeArgs,
}

/// Reads the value of `--server`.
pub(super) fn host_and_port(text: &str) -> Result<String, String> {
    let is_host = |host: &str| !host.is_empty() && !host.contains(['@', '/']);
    let port =
        text.rsplit_once(':').and_then(|(host, port)| port.parse::<u16>().ok().filter(|_| is_host(host)));
    port.map(|_| text.to_string()).ok_or_else(|| "expected HOST:PORT, as in `192.0.2.10:6443`".to_string())
}

/// The output of `certs verify -o json`.
#[derive(Serialize)]
struct Verified {
    version: u8,
    servers: Vec<Presented>,
    findings: Vec<Finding>,
}

/// A certificate that a server serves. If the server has a different certificate for the name [`NAME`], the output contains both
/// certificates.
#[derive(Serialize)]
struct Presented {
    server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
    certificate: Certificate,
}

/// The servers to connect to, and the CAs that clients trust.
struct Asked {
    servers: Vec<String>,
    /// The CAs that clients trust; `None` if they are unknown.
    authorities: Option<Vec<Vec<u8>>>,
}

/// Runs the command.
pub(super) async fn run(context: &Context, args: &VerifyArgs) -> Result<Outcome, Failure> {
    let asked = args.asked().await?;
    if asked.authorities.is_none() {
        context
            .output
            .note("cannot check whether clients trust the certificates: give their CA with `--ca-cert`");
    }
    let (started, patience) = (Instant::now(), Duration::from_secs(args.wait.unwrap_or_default().into()));
    let mut said = BTreeSet::new();
    let mut verified = args.look(&asked).await;
    while verified.is_wrong() && started.elapsed() < patience {
        for finding in &verified.findings {
            let line = line(&context.output, finding);
            if said.insert(line.clone()) {
                context.output.progress(&line);
            }
        }
        sleep(PAUSE).await;
        verified = args.look(&asked).await;
    }
    context.output.data(&verified, |output| verified.text(output))?;
    let count = counted(asked.servers.len(), "API server", "API servers");
    context.output.progress(&format!("{count}, {}", counted(verified.findings.len(), "finding", "findings")));
    Ok(findings::outcome(&verified.findings))
}

impl VerifyArgs {
    async fn asked(&self) -> Result<Asked, Failure> {
        let mut asked = Asked { servers: self.server.clone(), authorities: None };
        if let Some(file) = &self.ca_cert {
            let text = std::fs::read_to_string(file).map_err(at(file))?;
            let found = certificates(&text).map_err(at(file))?;
            asked.authorities = Some(found.into_iter().map(|one| one.der).collect());
        }
        if asked.servers.is_empty() {
            let cluster = self.kube.connect().await?;
            let servers = cluster.api_servers().await.map_err(|error| {
                Failure::from(error).hint("give the API servers: `--server HOST:PORT`, with `--ca-cert`")
            })?;
            asked.servers = servers.iter().map(ToString::to_string).collect();
            if asked.authorities.is_none() {
                asked.authorities = Some(cluster.authorities()?).filter(|found| !found.is_empty());
            }
        }
        Ok(asked)
    }

    /// Checks all servers once.
    async fn look(&self, asked: &Asked) -> Verified {
        let mut verified = Verified { version: 1, servers: Vec::new(), findings: Vec::new() };
        for server in &asked.servers {
            let mut last = None;
            for name in [None, Some(NAME)] {
                match presented_certificate(server, name).await {
                    Ok(chain) if last.as_ref() == Some(&chain) => {}
                    Ok(chain) => {
                        self.judge(&mut verified, asked, server, name, &chain);
                        last = Some(chain);
                    }
                    Err(reason) => {
                        let finding = Finding::error("certificate-not-served", server.clone());
                        verified.findings.push(finding.says(format!("it serves no certificate: {reason}")));
                        break;
                    }
                }
            }
        }
        verified
    }

    fn judge(
        &self,
        verified: &mut Verified,
        asked: &Asked,
        server: &str,
        name: Option<&'static str>,
        chain: &[Vec<u8>],
    ) {
        let subject = name.map_or_else(|| server.to_string(), |name| format!("{server} as {name}"));
        let own = chain.first().map(Vec::as_slice).unwrap_or_default();
        let certificate = match Certificate::from_der(own.to_vec()) {
            Ok(certificate) => certificate,
            Err(reason) => {
                let finding = Finding::error("certificate-not-served", subject);
                verified.findings.push(finding.says(reason));
                return;
            }
        };
        let found = &mut verified.findings;
        found.extend(wrong_time(&certificate, &subject, self.within, now()));
        found.extend(lacking(&certificate, &subject, &self.cidr));
        found.extend(self.unwanted(&certificate, &subject));
        for name in &self.name {
            if let Err(error) = is_valid_for(own, &as_name(name)) {
                found.push(Finding::error("certificate-lacks-name", subject.clone()).says(error.to_string()));
            }
        }
        let others = chain.get(1..).unwrap_or_default();
        let trusted =
            asked.authorities.as_ref().map(|authorities| is_trusted(own, others, authorities, now()));
        if let Some(Err(error)) = trusted {
            found.push(Finding::error("certificate-untrusted", subject).says(error.to_string()));
        }
        verified.servers.push(Presented { server: server.to_string(), name, certificate });
    }

    fn unwanted(&self, certificate: &Certificate, subject: &str) -> Vec<Finding> {
        let carried = |range: &&ServiceCidr| range.first().is_some_and(|first| certificate.covers(first));
        let finding = |range: &ServiceCidr| {
            let first = range.first().map(|first| first.to_string()).unwrap_or_default();
            let finding = Finding::error("certificate-has-old-address", subject.to_string());
            finding.says(format!("it still covers `{first}`, the first address of `{range}`"))
        };
        self.without_cidr.iter().filter(carried).map(finding).collect()
    }
}

fn as_name(text: &str) -> Name {
    text.parse::<IpAddr>().map_or_else(|_| Name::Dns(text.to_string()), Name::Address)
}

impl Verified {
    fn is_wrong(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    fn text(&self, output: &Output) -> String {
        let mut lines: Vec<String> = Vec::new();
        for Presented { server, name, certificate } in &self.servers {
            let name = name.map(|name| format!(" as {name}")).unwrap_or_default();
            let (subject, serial, until) =
                (&certificate.subject, &certificate.serial, date(certificate.not_after));
            lines.push(format!("{server}{name}: {subject}, serial {serial}, valid until {until}"));
            let addresses: Vec<String> = certificate.addresses.iter().map(ToString::to_string).collect();
            for (what, all) in [("names", &certificate.dns_names), ("addresses", &addresses)] {
                if !all.is_empty() {
                    lines.push(format!("  {what}: {}", all.join(", ")));
                }
            }
        }
        lines.extend(all_lines(output, &self.findings));
        lines.join("\n")
    }
}

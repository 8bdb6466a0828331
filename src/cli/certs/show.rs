//! `netsurgeon certs show`: shows the purpose, the validity and the missing addresses of certificates.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use time::OffsetDateTime;

use super::now;
use super::places::files;
use super::verify::host_and_port;
use super::words::{date, days, described, lacking, lines as all_lines, wrong_time};
use crate::certs::{Certificate, IgnoredBlock, certificates, ignored, to_pem};
use crate::cli::file::at;
use crate::cli::output::{Output, counted};
use crate::cli::{Context, Outcome, findings};
use crate::ip::ServiceCidr;
use crate::kube_api::presented_certificate;
use crate::session::Failure;
use crate::survey::Finding;

/// Show certificates, and check their validity and addresses
///
/// Reads the files and folders that you give, and the certificates that servers serve (`--server`). If you give neither paths nor
/// servers, reads the certificate folder of kubeadm, K3s, RKE2 or kOps on this host. In a folder, reads only the files `*.crt`,
/// `*.pem` and `*.cert`, not the private keys `*.key`. The exit status is 3 if a certificate is not valid or expires soon, or if
/// an API server's certificate does not cover a required address. docs/findings.md explains what to do about each finding.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # on a control-plane host
  netsurgeon certs show
  netsurgeon certs show /etc/kubernetes/pki/apiserver.crt --cidr 10.96.0.0/16 \\
      --cidr 10.200.0.0/16
  netsurgeon certs show --pki /srv/kubernetes
  netsurgeon certs show --server 192.0.2.10:6443
  netsurgeon certs show --within 60 -o json \\
      | jq -r '.certificates[] | [.file, .not_after] | @tsv'")]
pub struct ShowArgs {
    /// Files or folders
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A folder of certificates, as for `certs reissue`; the same as `PATH`
    #[arg(long, value_name = "FOLDER")]
    pki: Option<PathBuf>,
    /// Read the certificates that this server serves, as `HOST:PORT`; can be repeated
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    server: Vec<String>,
    /// A Service range. Every API server's certificate must cover the first address of this range, because `default/kubernetes`
    /// has this address; can be repeated
    #[arg(long, value_name = "CIDR")]
    cidr: Vec<ServiceCidr>,
    /// Report a certificate that expires within this many days
    #[arg(long, value_name = "DAYS", default_value = "30")]
    within: u16,
}

#[derive(Serialize)]
struct CertificatesOutput {
    version: u8,
    certificates: Vec<CertificateOutput>,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct CertificateOutput {
    /// The file or the server that the certificate comes from.
    file: String,
    /// Position of the certificate in the file, counted from 1.
    number: usize,
    #[serde(flatten)]
    certificate: Certificate,
}

/// Runs the command.
pub(super) async fn run(context: &Context, args: &ShowArgs) -> Result<Outcome, Failure> {
    let now = now();
    let mut shown = CertificatesOutput { version: 1, certificates: Vec::new(), findings: Vec::new() };
    let paths: Vec<PathBuf> = args.paths.iter().chain(&args.pki).cloned().collect();
    if args.server.is_empty() || !paths.is_empty() {
        for file in files(&paths)? {
            let text = std::fs::read(&file).map_err(at(&file))?;
            let text = String::from_utf8_lossy(&text);
            let is_named = paths.contains(&file);
            shown.add(args, &file.display().to_string(), &text, is_named, now)?;
        }
    }
    for server in &args.server {
        let chain = presented_certificate(server, None).await;
        let chain = chain.map_err(at(Path::new(server)))?;
        let text: String = chain.iter().map(|der| to_pem(der)).collect();
        shown.add(args, server, &text, true, now)?;
    }
    shown.findings.extend(nobody_serves(&shown, args));
    context.output.data(&shown, |output| shown.text(output, now))?;
    let count = counted(shown.certificates.len(), "certificate", "certificates");
    context.output.progress(&format!("{count}, {}", counted(shown.findings.len(), "finding", "findings")));
    Ok(findings::outcome(&shown.findings))
}

/// Returns a finding if ranges are given and no certificate belongs to an API server.
fn nobody_serves(shown: &CertificatesOutput, args: &ShowArgs) -> Option<Finding> {
    let there_is = shown.certificates.iter().any(|one| one.certificate.is_of_an_api_server());
    (!args.cidr.is_empty() && !there_is).then(|| {
        Finding::error("certificate-not-found", "API server").says(
            "none of these certificates belongs to an API server: none is valid for `kubernetes.default.svc`",
        )
    })
}

impl CertificateOutput {
    fn text(&self, now: OffsetDateTime) -> String {
        let Self { file, number, certificate } = self;
        let issuer = if certificate.issuer == certificate.subject { "itself" } else { &certificate.issuer };
        let left = certificate.left(now);
        let left = if left.is_negative() { "expired".to_string() } else { format!("{} left", days(left)) };
        let mut lines = vec![
            format!("{file} ({number})"),
            format!("  {}, signed by {issuer}, serial {}", certificate.subject, certificate.serial),
            format!("  {}", described(certificate)),
            format!(
                "  valid from {} until {}: {left}",
                date(certificate.not_before),
                date(certificate.not_after)
            ),
        ];
        let addresses: Vec<String> = certificate.addresses.iter().map(ToString::to_string).collect();
        for (what, names) in [
            ("names", &certificate.dns_names),
            ("addresses", &addresses),
            ("others", &certificate.other_names),
        ] {
            if !names.is_empty() {
                lines.push(format!("  {what}: {}", names.join(", ")));
            }
        }
        lines.join("\n")
    }
}

impl CertificatesOutput {
    /// Adds the certificates in a text, and their findings.
    fn add(
        &mut self,
        args: &ShowArgs,
        file: &str,
        text: &str,
        is_named: bool,
        now: OffsetDateTime,
    ) -> Result<(), Failure> {
        let found = certificates(text).map_err(at(Path::new(file)))?;
        if found.is_empty() && is_named {
            return Err(at(Path::new(file))("it contains no certificate"));
        }
        self.findings.extend(ignored(text).into_iter().map(|IgnoredBlock { line, reason }| {
            let finding = Finding::warning("pem-block-ignored", file);
            finding.says(format!("Kubernetes ignores the block at line {line}, because {reason}"))
        }));
        for (number, certificate) in (1..).zip(found) {
            let subject = format!("{} of {file}", certificate.subject);
            self.findings.extend(wrong_time(&certificate, &subject, args.within, now));
            if certificate.is_of_an_api_server() {
                self.findings.extend(lacking(&certificate, &subject, &args.cidr));
            }
            self.certificates.push(CertificateOutput { file: file.to_string(), number, certificate });
        }
        Ok(())
    }

    fn text(&self, output: &Output, now: OffsetDateTime) -> String {
        let mut parts: Vec<String> = self.certificates.iter().map(|one| one.text(now)).collect();
        if !self.findings.is_empty() {
            parts.push(all_lines(output, &self.findings).join("\n"));
        }
        parts.join("\n\n")
    }
}

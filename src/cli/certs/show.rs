//! `netsurgeon certs show`: what certificates are for, how long, and what they lack.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::places::files;
use crate::certs::{Certificate, certificates};
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Tone, counted};
use crate::cli::{Context, Outcome};
use crate::ip::ServiceCidr;
use crate::operation::{Ambient as _, SystemAmbient};
use crate::survey::{Finding, Severity};

const DAY: i64 = 86_400;

/// Show certificates, and what they lack
///
/// Of files, or of all files in a folder; without either, of the place where kubeadm, K3s, RKE2 or kOps keeps them on this
/// host. Private keys are not opened. Exit status 3 if a certificate is not valid, expires soon, or an API server's lacks an
/// address that it must carry; docs/findings.md says what to do about each finding.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon certs show                                            # on a control-plane host
  netsurgeon certs show /etc/kubernetes/pki/apiserver.crt --cidr 10.96.0.0/16 --cidr 10.200.0.0/16
  netsurgeon certs show --within 60 -o json | jq -r '.certificates[] | [.file, .not_after] | @tsv'")]
pub(super) struct ShowArgs {
    /// Files or folders
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A Service range whose first address every API server's certificate must carry: the address of
    /// `default/kubernetes`. May be given several times
    #[arg(long, value_name = "CIDR")]
    cidr: Vec<ServiceCidr>,
    /// A certificate that expires within so many days is a finding
    #[arg(long, value_name = "DAYS", default_value = "30")]
    within: u16,
}

#[derive(Serialize)]
struct Shown {
    version: u8,
    certificates: Vec<ShownCertificate>,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct ShownCertificate {
    file: String,
    /// Its place in the file, from 1.
    number: usize,
    subject: String,
    issuer: String,
    serial: String,
    /// RFC 3339.
    not_before: String,
    not_after: String,
    key: String,
    is_ca: bool,
    usages: Vec<String>,
    purposes: Vec<String>,
    dns_names: Vec<String>,
    addresses: Vec<IpAddr>,
    other_names: Vec<String>,
    fingerprint: String,
    /// Seconds until it expires.
    #[serde(skip)]
    left: i64,
    #[serde(skip)]
    is_of_an_api_server: bool,
}

/// Runs the command.
pub(super) fn run(context: &Context, args: &ShowArgs) -> Result<Outcome, Failure> {
    let (now, mut shown) =
        (SystemAmbient.now(), Shown { version: 1, certificates: Vec::new(), findings: Vec::new() });
    for file in files(&args.paths)? {
        let text = std::fs::read(&file).map_err(|error| unreadable(&file, &error.to_string()))?;
        let found = certificates(&String::from_utf8_lossy(&text));
        let found = found.map_err(|error| unreadable(&file, &error.to_string()))?;
        if found.is_empty() && args.paths.contains(&file) {
            return Err(unreadable(&file, "there is no certificate in it"));
        }
        for (index, certificate) in found.iter().enumerate() {
            let number = index.saturating_add(1);
            let subject = format!("{} of {}", certificate.subject, file.display());
            shown.findings.extend(findings(certificate, &subject, args, now));
            shown.certificates.push(ShownCertificate::of(certificate, &file, number, now));
        }
    }
    shown.findings.extend(nobody_serves(&shown, args));
    context.output.data(&shown, |output| Ok(shown.text(output)))?;
    let count = counted(shown.certificates.len(), "certificate", "certificates");
    context.output.progress(&format!("{count}, {}", counted(shown.findings.len(), "finding", "findings")));
    let is_wrong = |finding: &Finding| finding.severity != Severity::Info;
    Ok(if shown.findings.iter().any(is_wrong) { Outcome::Findings } else { Outcome::Done })
}

fn unreadable(file: &Path, reason: &str) -> Failure {
    Failure::refused(format!("`{}`: {reason}", file.display()))
}

/// Returns what is wrong with a certificate at an instant.
fn findings(certificate: &Certificate, subject: &str, args: &ShowArgs, now: i64) -> Vec<Finding> {
    let mut found = Vec::new();
    let left = certificate.not_after.saturating_sub(now);
    let until = date(certificate.not_after);
    if left < 0 {
        let finding = Finding::error("certificate-expired", subject.to_string());
        found.push(finding.says(format!("it has expired: it was valid until {until}")));
    } else if left < i64::from(args.within).saturating_mul(DAY) {
        let finding = Finding::warning("certificate-expires", subject.to_string());
        found.push(finding.says(format!("it expires in {}: it is valid until {until}", days(left))));
    }
    if certificate.not_before > now {
        let finding = Finding::error("certificate-not-yet-valid", subject.to_string());
        found.push(finding.says(format!("it is valid from {} on", date(certificate.not_before))));
    }
    for range in args.cidr.iter().filter(|_| certificate.is_of_an_api_server()) {
        let Some(first) = range.first().filter(|first| !certificate.covers(*first)) else { continue };
        let finding = Finding::error("certificate-lacks-address", subject.to_string());
        found.push(finding.says(format!("it does not carry `{first}`, the first address of `{range}`")));
    }
    found
}

/// Ranges were asked about, and nothing here could carry their addresses.
fn nobody_serves(shown: &Shown, args: &ShowArgs) -> Option<Finding> {
    let there_is = shown.certificates.iter().any(|one| one.is_of_an_api_server);
    (!args.cidr.is_empty() && !there_is).then(|| {
        Finding::error("certificate-not-found", "API server")
            .says("none of these certificates is an API server's: none is valid for `kubernetes.default.svc`")
    })
}

fn date(seconds: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok();
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_else(|| seconds.to_string())
}

fn days(seconds: i64) -> String {
    counted(usize::try_from(seconds.div_euclid(DAY)).unwrap_or_default(), "day", "days")
}

impl ShownCertificate {
    fn of(certificate: &Certificate, file: &Path, number: usize, now: i64) -> Self {
        let (one, is_of_an_api_server) = (certificate.clone(), certificate.is_of_an_api_server());
        Self {
            is_of_an_api_server,
            file: file.display().to_string(),
            number,
            subject: one.subject,
            issuer: one.issuer,
            serial: one.serial,
            not_before: date(one.not_before),
            not_after: date(one.not_after),
            key: one.key.to_string(),
            is_ca: one.is_ca,
            usages: one.usages,
            purposes: one.purposes,
            dns_names: one.dns_names,
            addresses: one.addresses,
            other_names: one.other_names,
            fingerprint: one.fingerprint,
            left: one.not_after.saturating_sub(now),
        }
    }

    fn text(&self) -> String {
        let issuer = if self.issuer == self.subject { "itself" } else { &self.issuer };
        let left = if self.left < 0 { "expired".to_string() } else { format!("{} left", days(self.left)) };
        let authority = if self.is_ca { "certificate authority" } else { "" };
        let (purposes, usages) = (self.purposes.join(", "), self.usages.join(", "));
        let mut use_of_it = vec![self.key.as_str(), authority, &purposes, &usages];
        use_of_it.retain(|part| !part.is_empty());
        let mut lines = vec![
            format!("{} ({})", self.file, self.number),
            format!("  {}, signed by {issuer}, serial {}", self.subject, self.serial),
            format!("  {}", use_of_it.join("; ")),
            format!("  valid from {} until {}: {left}", self.not_before, self.not_after),
        ];
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        for (what, names) in
            [("names", &self.dns_names), ("addresses", &addresses), ("others", &self.other_names)]
        {
            if !names.is_empty() {
                lines.push(format!("  {what}: {}", names.join(", ")));
            }
        }
        lines.join("\n")
    }
}

impl Shown {
    fn text(&self, output: &Output) -> String {
        let mut parts: Vec<String> = self.certificates.iter().map(ShownCertificate::text).collect();
        let findings: Vec<String> = self
            .findings
            .iter()
            .map(|finding| {
                let tone = if finding.severity == Severity::Error { Tone::Bad } else { Tone::Careful };
                let severity = output.paint(tone, &finding.severity.to_string());
                format!("{severity} {}: {}: {}", finding.code, finding.subject, finding.message)
            })
            .collect();
        if !findings.is_empty() {
            parts.push(findings.join("\n"));
        }
        parts.join("\n\n")
    }
}

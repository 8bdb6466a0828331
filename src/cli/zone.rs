//! The options that select a zone and its names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use super::dns::certificates;
use crate::dns::Probing;
use crate::dns::reader::{Names, Probes};
use crate::inventory::read_key;
use crate::inventory::zone::Provider;
use crate::nameserver::canonical;
use crate::session::Failure;

/// Which names will point to the mirror.
#[derive(Debug, Clone, Args)]
pub(super) struct ZoneArgs {
    /// The zone that contains the names that will point to the mirror
    #[arg(long, value_name = "ZONE")]
    zone: String,
    /// A name in the zone; can be repeated [default: all host names in Ingresses, Services and routes of the Gateway API that are in
    /// the zone and point to this cluster]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    name: Vec<String>,
    /// A name to change although its records do not point to this cluster, or although no object of this cluster contains it; can
    /// be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    take: Vec<String>,
    /// A file with one name per line: `NAME` or `NAME PROBE`. PROBE has the format of `dns plan --probe`. `#` starts a comment
    #[arg(long, value_name = "FILE")]
    names_file: Option<PathBuf>,
    /// The DNS provider that hosts the zone. `rfc2136`: name servers that accept dynamic updates. `route53`: Amazon Route 53,
    /// with the credentials and the profile of the AWS CLI. `external-dns`: any provider that the cluster's ExternalDNS uses;
    /// netsurgeon then changes annotations of Ingresses and Services, and ExternalDNS updates the records
    #[arg(long, value_name = "PROVIDER", default_value = "rfc2136", value_parser = ["rfc2136", "route53", "external-dns"])]
    provider: String,
    /// With `--provider route53`: id of the hosted zone [default: the only hosted zone of the account that has this name]
    #[arg(long, value_name = "ID")]
    hosted_zone: Option<String>,
    /// The name server that accepts updates for the zone; with `--provider external-dns`, any name server of the zone. The port
    /// is optional [default: the primary in the SOA of the zone]
    #[arg(long, value_name = "HOST[:PORT]")]
    server: Option<String>,
    /// File with the key that signs updates, in the format of `tsig-keygen`. netsurgeon never prints the key
    #[arg(long, value_name = "FILE")]
    tsig_key_file: Option<PathBuf>,
    /// A resolver that clients use, with or without a port [default: the first resolver in /etc/resolv.conf]
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    resolver: Option<String>,
    /// The Deployment of ExternalDNS in this cluster, as `NAMESPACE/NAME`; can be repeated [default: Deployments that look like
    /// ExternalDNS, and whose service account is allowed to list Ingresses or Services in all namespaces]
    #[arg(long, value_name = "NAMESPACE/NAME", value_delimiter = ',', value_parser = place)]
    external_dns: Vec<String>,
    /// The Deployment of ExternalDNS on the mirror, as `NAMESPACE/NAME`; can be repeated
    #[arg(long, value_name = "NAMESPACE/NAME", value_delimiter = ',', value_parser = place)]
    mirror_external_dns: Vec<String>,
    #[command(flatten)]
    probes: ProbeArgs,
}

/// Parses `NAMESPACE/NAME`.
fn place(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(text.to_string())
        }
        _ => Err("give `NAMESPACE/NAME`, for example `external-dns/external-dns`".to_string()),
    }
}

/// How to probe the names on the mirror.
#[derive(Debug, Clone, Args)]
struct ProbeArgs {
    /// How to check that the mirror serves a name, before the records of the name change: `tcp:PORT`, `http[:PORT][/PATH]` or
    /// `https[:PORT][/PATH]` [default: `https` if an object declares TLS for the name, otherwise `http`]
    #[arg(long, value_name = "HOW")]
    probe: Option<Probing>,
    /// The only HTTP status that a probe accepts [default: 200 to 399]
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(100..=599))]
    probe_status: Option<u16>,
    /// Text that the body of the response must contain
    #[arg(long, value_name = "TEXT")]
    probe_body: Option<String>,
    /// CA certificates that probes trust, in addition to the system's CA certificates
    #[arg(long, value_name = "FILE")]
    probe_ca: Option<PathBuf>,
}

impl ProbeArgs {
    /// Returns the probe for every name, if it is given.
    fn probe(&self) -> Result<Option<Probing>, Failure> {
        match &self.probe {
            Some(probe) => {
                let (status, body) = (self.probe_status, self.probe_body.clone());
                Ok(Some(Probing { status, body, ..probe.clone() }))
            }
            // The other probe options need an explicit scheme, because the default scheme depends on the name.
            None if self.probe_status.is_some() || self.probe_body.is_some() => {
                Err(Failure::usage("`--probe-status` and `--probe-body` need `--probe`")
                    .hint("for example `--probe https/healthz`"))
            }
            None => Ok(None),
        }
    }

    /// Returns the file with additional CA certificates, as PEM.
    fn trusted(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.probe_ca else { return Ok(None) };
        let text = std::fs::read_to_string(path);
        let doing = || format!("cannot read `{}` (`--probe-ca`)", path.display());
        text.map(Some).map_err(|error| Failure::from(error).context(doing()))
    }
}

/// Probes for single names, read from a file.
type OfNames = BTreeMap<String, Probing>;

impl ZoneArgs {
    /// Returns the names that will point to the mirror, and the additional CA certificates for probes, as PEM. Reads the file
    /// with names and the file with certificates, if they are given.
    pub(super) fn names(&self) -> Result<(Names, Vec<String>), Failure> {
        let (mut name, mut of) = (self.name.clone(), OfNames::new());
        if let Some(path) = &self.names_file {
            let doing = || format!("cannot use the names in `{}`", path.display());
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| Failure::from(error).context(doing()))?;
            let (names, of_file) =
                parse(&text).map_err(|reason| Failure::refused(reason).context(doing()))?;
            name.extend(names);
            of = of_file;
        }
        let trusted: Vec<String> = self.probes.trusted()?.into_iter().collect();
        let of_pem = trusted.iter().map(|text| certificates(text, "`--probe-ca`"));
        let certificates = of_pem.collect::<Result<Vec<_>, _>>()?.concat();
        let probes = Probes { probe: self.probes.probe()?, of, trusted: certificates };
        let names = Names {
            provider: self.provider()?,
            zone: self.zone.clone(),
            name,
            take: self.take.clone(),
            external_dns: [self.external_dns.clone(), self.mirror_external_dns.clone()],
            probes,
            resolver: self.resolver.clone(),
        };
        Ok((names, trusted))
    }

    /// Returns the provider. Fails if an option for another provider is given.
    fn provider(&self) -> Result<Provider, Failure> {
        let is = |name: &str| self.provider == name;
        let others = [
            ("--hosted-zone", self.hosted_zone.is_some() && !is("route53"), "route53"),
            ("--server", self.server.is_some() && is("route53"), "rfc2136"),
            ("--tsig-key-file", self.tsig_key_file.is_some() && !is("rfc2136"), "rfc2136"),
        ];
        if let Some((option, _, of)) = others.iter().find(|(_, is_given, _)| *is_given) {
            let text = format!("`{option}` cannot be used with `--provider {}`", self.provider);
            return Err(Failure::usage(text).hint(format!("omit the option, or give `--provider {of}`")));
        }
        if is("external-dns") {
            return Ok(Provider::ExternalDns { server: self.server.clone() });
        }
        if is("route53") {
            return Ok(Provider::Route53(
                self.hosted_zone.as_deref().map(|id| id.trim_start_matches("/hostedzone/").to_string()),
            ));
        }
        let key = self.tsig_key_file.clone().map(|file| read_key(&file).map(|key| (key, file)));
        Ok(Provider::Rfc2136 { server: self.server.clone(), key: key.transpose()? })
    }
}

/// Parses a file with names.
fn parse(text: &str) -> Result<(Vec<String>, OfNames), String> {
    let (mut names, mut probes) = (Vec::new(), OfNames::new());
    for (number, line) in (1_usize..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            [name] => names.push((*name).to_string()),
            [name, probe] => {
                names.push((*name).to_string());
                let probe = probe.parse().map_err(|reason| format!("line {number}: {reason}"))?;
                probes.insert(canonical(name), probe);
            }
            _ => return Err(format!("line {number}: expected `NAME` or `NAME PROBE`")),
        }
    }
    if names.is_empty() { Err("the file has no names".to_string()) } else { Ok((names, probes)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_with_their_probes() {
        let (names, probes) =
            parse("# the shop\nwww.example.com\n\nDB.example.com tcp:5432 # no HTTP\n").unwrap();
        assert_eq!(names, ["www.example.com", "DB.example.com"]);
        assert_eq!(probes["db.example.com"].to_string(), "tcp:5432");
        assert_eq!(parse("a b c").unwrap_err(), "line 1: expected `NAME` or `NAME PROBE`");
        assert!(parse("\nwww.example.com ftp").unwrap_err().starts_with("line 2: give `tcp:PORT`"));
        assert_eq!(parse("# nothing\n").unwrap_err(), "the file has no names");
    }
}

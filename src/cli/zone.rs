//! The options that select a zone and its names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use crate::dns::Probing;
use crate::nameserver::canonical;
use crate::preflight::dns::{Names, Provider, read_key};
use crate::session::Failure;

/// Which names will point to the mirror.
#[derive(Debug, Clone, Args)]
pub(super) struct ZoneArgs {
    /// The zone that contains the names that will point to the mirror
    #[arg(long, value_name = "ZONE")]
    zone: String,
    /// A name in the zone; can be repeated [default: all host names of the zone in Ingresses, Services and HTTPRoutes]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    name: Vec<String>,
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
}

/// Probes for single names, read from a file.
pub(super) type Probes = BTreeMap<String, Probing>;

impl ZoneArgs {
    /// Returns the names that will point to the mirror, and the probes for single names. Reads the file with names, if one is
    /// given.
    pub(super) fn names(&self) -> Result<(Names, Probes), Failure> {
        let (mut name, mut probes) = (self.name.clone(), Probes::new());
        if let Some(path) = &self.names_file {
            let doing = || format!("cannot use the names in `{}`", path.display());
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| Failure::from(error).context(doing()))?;
            let (names, of_file) =
                parse(&text).map_err(|reason| Failure::refused(reason).context(doing()))?;
            name.extend(names);
            probes = of_file;
        }
        let provider = self.provider()?;
        let names = Names { provider, zone: self.zone.clone(), name, resolver: self.resolver.clone() };
        Ok((names, probes))
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
fn parse(text: &str) -> Result<(Vec<String>, Probes), String> {
    let (mut names, mut probes) = (Vec::new(), Probes::new());
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

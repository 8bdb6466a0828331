//! The zone whose names will point to the mirror: its servers, the permission to change it, its records, and their targets.

use std::collections::{BTreeMap, BTreeSet};

use super::exposed::{Exposed, covers};
use super::{Judged, first_few};
use crate::nameserver::{Answer, Kind, NameserverError, Record, Soa};
use crate::words::counted;

/// Longest accepted TTL in seconds. Five minutes fit into a maintenance window; an hour does not.
const LONGEST_TTL: u32 = 300;

/// In zones with at least this many names, a change of more than [`MUCH`] percent of them is a warning, as in octoDNS
/// (`octodns/provider/plan.py`).
const FEW_NAMES: usize = 10;
const MUCH: usize = 30;

/// A name that will point to the mirror, with its present records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Objects that contain the name, as text.
    pub by: Vec<String>,
    /// A, AAAA and CNAME records of the name.
    pub records: Vec<Record>,
    /// Whether the name has no records of its own, and a wildcard answers.
    pub is_wild: bool,
    /// Delegated child zone that contains the name, if there is one.
    pub below: Option<String>,
    /// Whether the name is served over TLS.
    pub has_tls: bool,
}

impl Entry {
    fn words(&self) -> String {
        format!("`{}` ({})", self.name, self.by.join(", "))
    }
}

/// Checks the name servers of a zone by their names and SOA answers.
pub fn authority(servers: &[(String, Result<Answer, NameserverError>)]) -> Judged {
    let (mut bad, mut serials) = (Vec::new(), BTreeMap::<u32, Vec<String>>::new());
    for (name, answer) in servers {
        match answer {
            Err(error) => bad.push(format!("`{name}`: {error}")),
            Ok(answer) if !answer.is_authoritative => {
                bad.push(format!("`{name}` is not authoritative for the zone"));
            }
            Ok(answer) => match answer.records.iter().find_map(Soa::of) {
                Some(soa) => serials.entry(soa.serial).or_default().push(format!("`{name}`")),
                None => bad.push(format!("`{name}` returns no SOA of the zone")),
            },
        }
    }
    if servers.is_empty() {
        return Judged::fail("the zone has no NS records", "check them: `dig NS ZONE`");
    }
    if !bad.is_empty() {
        return Judged::fail(
            first_few(&bad),
            "repair the server, or remove its NS record: resolvers that ask it get the old address, or none",
        );
    }
    if serials.len() > 1 {
        let told: Vec<String> =
            serials.iter().map(|(serial, who)| format!("{serial} at {}", who.join(", "))).collect();
        return Judged::warn(
            format!("the servers have different serials: {}", told.join("; ")),
            "run this check again in a minute; if the serials still differ, a server does not receive zone transfers: check its log",
        );
    }
    Judged::pass(match servers {
        [_] => {
            "only one server answers; with a second server, the zone stays available if one fails".to_string()
        }
        _ => format!("all {} servers are authoritative, with the same serial", servers.len()),
    })
}

/// Checks whether the zone accepts updates from netsurgeon. `looked_ahead`: whether the server checks the permission for single
/// names before prerequisites. `by_key`: name of the key that signed the update, if any. `hosted`: the DNS service that hosts the
/// zone, if it has its own API.
pub fn updates(
    outcome: &Result<(), NameserverError>,
    looked_ahead: bool,
    by_key: Option<&str>,
    hosted: Option<&str>,
) -> Judged {
    match (outcome, by_key) {
        (Err(error), _) if hosted.is_some() => Judged::unknown(
            format!(
                "the zone is hosted at {}, whose API is not checked: {error}",
                hosted.unwrap_or_default()
            ),
            "test a change of an unused name with the tool and the credentials that you will use for the cutover",
        ),
        (Ok(()), _) if !looked_ahead => Judged::warn(
            "the server checks prerequisites first, so it does not show whether netsurgeon is allowed to change these names",
            "test it on an unused name with `nsupdate -k FILE`: add a TXT record and delete it",
        ),
        (Ok(()), Some(key)) => Judged::pass(format!("the key `{key}` is allowed to change every name")),
        (Ok(()), None) => Judged::warn(
            "the server accepts unsigned updates: it authorizes this host, and perhaps others, by address alone",
            "require signed updates (`update-policy { grant KEY zonesub ANY; };` in BIND), and give the key: `--tsig-key-file FILE`",
        ),
        (Err(error @ NameserverError::Refused { .. }), None) => Judged::fail(
            format!("{error}, without a key"),
            "give a key that is allowed to change the zone: `--tsig-key-file FILE`",
        ),
        (Err(error), _) => {
            let remedy = error.hint().unwrap_or("check the server's log, and the zone in its configuration");
            Judged::fail(error.to_string(), remedy)
        }
    }
}

/// Checks whether the whole zone can be read (AXFR).
pub fn transfer(outcome: &Result<Vec<Record>, NameserverError>) -> Judged {
    match outcome {
        Ok(records) => {
            let names: BTreeSet<&str> = records.iter().map(|record| record.name.as_str()).collect();
            let records = counted(records.len(), "record", "records");
            Judged::pass(format!("{records} of {}", counted(names.len(), "name", "names")))
        }
        Err(error) => Judged::warn(
            error.to_string(),
            "allow zone transfers for the key that changes the zone (`allow-transfer` in BIND): ExternalDNS and the check `zone-share` \
             need them",
        ),
    }
}

/// SOA and name servers of a zone, as one server or resolver returns them.
pub type Seen = (Option<Soa>, BTreeSet<String>);

/// Checks by SOA, name servers and answers whether a resolver finds the zone to change. `differing`: records for which the
/// resolver has a different answer.
pub fn twins(zone: &str, ours: &Seen, theirs: &Seen, differing: &[String]) -> Judged {
    let Some(found) = &theirs.0 else {
        return Judged::fail(
            format!("the resolver finds no zone `{zone}`"),
            "check its delegation (`dig +trace NS ZONE`), or give a resolver that clients use: `--resolver`",
        );
    };
    let primary = |seen: &Seen| seen.0.as_ref().map(|soa| soa.primary.clone()).unwrap_or_default();
    let remedy = "find the other zone of this name, such as a private one beside a public one, and change both; or give a resolver that clients of \
                this zone use: `--resolver`";
    if primary(ours) != found.primary || ours.1 != theirs.1 {
        let servers = |seen: &Seen| {
            let names: Vec<String> = seen.1.iter().map(|name| format!("`{name}`")).collect();
            first_few(&names)
        };
        return Judged::fail(
            format!(
                "the resolver finds another zone `{zone}`: its primary is `{}` (servers {}), instead of `{}` (servers {})",
                found.primary,
                servers(theirs),
                primary(ours),
                servers(ours)
            ),
            remedy,
        );
    }
    if !differing.is_empty() {
        return Judged::warn(
            format!("the resolver has different answers for {}", first_few(differing)),
            "run this check again after the TTL; if the answers still differ, find the server that overrides the zone",
        );
    }
    Judged::pass(format!("the resolver finds the same zone, with its primary `{}`", found.primary))
}

/// Turns a pass of [`twins`] into a warning. netsurgeon found the zone through the same resolver, so it compared the zone with
/// itself.
pub fn by_itself(judged: Judged) -> Judged {
    if judged.verdict != super::Verdict::Pass {
        return judged;
    }
    Judged::warn(
        format!("{}; but netsurgeon found the zone through the same resolver", judged.observed),
        "give the server that accepts updates of the zone: `--server`",
    )
}

/// Checks whether every name is in the zone and has its own records.
pub fn names(zone: &str, entries: &[Entry]) -> Judged {
    if entries.is_empty() {
        return Judged::fail(
            format!("no Ingress, Service or HTTPRoute of this cluster names a host in `{zone}`"),
            "give the names to change: `--name`",
        );
    }
    let told =
        |is_it: &dyn Fn(&&Entry) -> bool| entries.iter().filter(is_it).map(Entry::words).collect::<Vec<_>>();
    let of = |entry: &Entry| entry.below.as_ref().map(|zone| format!("{} is in `{zone}`", entry.words()));
    let elsewhere: Vec<String> = entries.iter().filter_map(of).collect();
    if !elsewhere.is_empty() {
        return Judged::fail(
            format!("in a zone below this one: {}", first_few(&elsewhere)),
            "check each zone separately: `--zone`, `--name`",
        );
    }
    let missing = told(&|entry| entry.records.is_empty());
    if !missing.is_empty() {
        return Judged::fail(
            format!("not in the zone: {}", first_few(&missing)),
            "create the records, or remove the host from its object: a name that does not answer now cannot be verified later",
        );
    }
    let wild = told(&|entry| entry.is_wild && !entry.name.starts_with("*."));
    if !wild.is_empty() {
        return Judged::warn(
            format!("answered by a wildcard: {}", first_few(&wild)),
            "the change creates records for these names: a rollback must delete them, not restore earlier ones",
        );
    }
    let count = |kind: Kind| {
        entries.iter().filter(|entry| entry.records.iter().any(|record| record.kind == kind)).count()
    };
    let kinds = [Kind::A, Kind::Aaaa, Kind::Cname].map(|kind| (count(kind), kind));
    let kinds: Vec<String> =
        kinds.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}")).collect();
    Judged::pass(format!("{} in the zone: {}", entries.len(), kinds.join(", ")))
}

/// Checks how long resolvers cache the old records.
pub fn ttls(entries: &[Entry]) -> Judged {
    let longest = |entry: &Entry| entry.records.iter().map(|record| record.ttl).max().unwrap_or_default();
    let long: Vec<String> = entries
        .iter()
        .filter(|entry| longest(entry) > LONGEST_TTL)
        .map(|entry| format!("`{}` ({} s)", entry.name, longest(entry)))
        .collect();
    let all = entries.iter().map(longest).max().unwrap_or_default();
    if long.is_empty() {
        return Judged::pass(format!(
            "the longest is {all} s: for that time after a cutover or a rollback, both clusters must serve"
        ));
    }
    Judged::warn(
        format!("TTL longer than {LONGEST_TTL} s: {}", first_few(&long)),
        format!(
            "set it to 60 s at least {all} s before the change (with ExternalDNS: the annotation `external-dns.kubernetes.io/ttl`): otherwise \
             a rollback takes that long"
        ),
    )
}

/// Checks which share of a zone changes. `zone`: all names of the zone.
pub fn share(entries: &[Entry], zone: &BTreeSet<&str>) -> Judged {
    let (changed, all) = (entries.len(), zone.len());
    let percent = changed.saturating_mul(100).checked_div(all).unwrap_or_default();
    let seen = format!("{changed} of the zone's {all} names");
    if all >= FEW_NAMES && percent > MUCH {
        return Judged::warn(
            format!("{seen}, more than {MUCH} %"),
            "check that all these names must change, and change them in stages: `--name` selects them",
        );
    }
    Judged::pass(seen)
}

/// Returns whether an object of the mirror serves a name.
pub fn serves(exposed: &Exposed, entry: &Entry) -> bool {
    covers(&exposed.name, &entry.name)
}

/// Checks whether the mirror has an object and an address for every name.
pub fn targets(entries: &[Entry], mirror: &[Exposed]) -> Judged {
    let (mut missing, mut without) = (Vec::new(), Vec::new());
    for entry in entries {
        let mut serving = mirror.iter().filter(|one| serves(one, entry)).peekable();
        match serving.peek() {
            None => missing.push(format!("`{}`", entry.name)),
            Some(first) => {
                let first = format!("`{}` ({})", entry.name, first.by);
                if serving.all(|one| one.at.is_empty()) {
                    without.push(first);
                }
            }
        }
    }
    if !missing.is_empty() {
        return Judged::fail(
            format!("nothing on the mirror serves {}", first_few(&missing)),
            "first copy the objects with these hosts to the mirror",
        );
    }
    if !without.is_empty() {
        return Judged::fail(
            format!("no address on the mirror: {}", first_few(&without)),
            "find out why it has no load balancer: `kubectl describe` the object on the mirror, and check the log of its controller",
        );
    }
    Judged::pass(format!("the mirror has an address for all {}", entries.len()))
}

/// The certificate that a server presents for a name: the covered names, and the days until it expires, rounded down. If there is
/// none, the reason.
pub type Presented = Result<(Vec<String>, i64), String>;

/// Checks the certificates that the mirror presents, by name and address. `plain`: number of names for which no object declares
/// TLS.
pub fn certificates(presented: &[(String, String, Presented)], plain: usize) -> Judged {
    let (mut bad, mut soon) = (Vec::new(), Vec::new());
    for (name, at, presented) in presented {
        match presented {
            Err(reason) => bad.push(format!("`{name}` at {at}: {reason}")),
            Ok((_, days)) if *days < 0 => bad.push(format!("`{name}` at {at}: the certificate has expired")),
            Ok((names, _)) if !names.iter().any(|one| covers(&one.to_ascii_lowercase(), name)) => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                bad.push(format!("`{name}` at {at}: the certificate covers only {}", first_few(&names)));
            }
            Ok((_, days)) if *days < 7 => soon.push(format!("`{name}` at {at} (days left: {days})")),
            Ok(_) => {}
        }
    }
    if !bad.is_empty() {
        return Judged::fail(
            first_few(&bad),
            "issue a certificate for the name on the mirror before DNS points there: add the host to the Certificate, and wait until it is Ready",
        );
    }
    if !soon.is_empty() {
        return Judged::warn(
            format!("expires soon: {}", first_few(&soon)),
            "renew the certificate on the mirror first",
        );
    }
    match presented.len() {
        0 => Judged::pass(format!(
            "no object declares TLS, so no certificate was checked; names without TLS: {plain}"
        )),
        count => Judged::pass(format!(
            "certificates presented by the mirror: {count}, all valid; names without TLS: {plain}"
        )),
    }
}

/// Returns the DNS service that hosts a zone and has its own API, by the names of the zone's servers.
pub fn hosted(servers: &BTreeSet<String>) -> Option<&'static str> {
    let known = [
        (".awsdns-", "Amazon Route 53"),
        (".googledomains.com", "Google Cloud DNS"),
        (".azure-dns.", "Azure DNS"),
        (".ns.cloudflare.com", "Cloudflare"),
    ];
    known.iter().find(|(part, _)| servers.iter().any(|name| name.contains(part))).map(|(_, who)| *who)
}

#[cfg(test)]
#[path = "dns_tests.rs"]
mod tests;

//! The zone whose names are to lead elsewhere: who serves it, who may change it, what its names say now, and what will answer.

use std::collections::{BTreeMap, BTreeSet};

use super::exposed::{Exposed, covers};
use super::{Judged, first_few};
use crate::nameserver::{Answer, Kind, NameserverError, Record, Soa};
use crate::words::counted;

/// Seconds that a record may be kept: five minutes are waited out in a maintenance window, an hour is not.
const LONGEST_TTL: u32 = 300;

/// In a zone of so many names, one that has more than this share of them changed is looked at twice: in percent, as octoDNS has it
/// (`octodns/provider/plan.py`).
const FEW_NAMES: usize = 10;
const MUCH: usize = 30;

/// A name that is to lead elsewhere, as its zone has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Who says that the cluster has it, in words.
    pub by: Vec<String>,
    /// Its addresses, or the name that it is another for.
    pub records: Vec<Record>,
    /// Whether there is no such name, and a wildcard answers for it.
    pub is_wild: bool,
    /// The zone below this one that it is of, if there is one.
    pub below: Option<String>,
    /// Whether it is served over TLS.
    pub has_tls: bool,
}

impl Entry {
    fn words(&self) -> String {
        format!("`{}` ({})", self.name, self.by.join(", "))
    }
}

/// Judges the servers of a zone: by name, and what each says of its start.
pub fn authority(servers: &[(String, Result<Answer, NameserverError>)]) -> Judged {
    let (mut bad, mut serials) = (Vec::new(), BTreeMap::<u32, Vec<String>>::new());
    for (name, answer) in servers {
        match answer {
            Err(error) => bad.push(format!("`{name}`: {error}")),
            Ok(answer) if !answer.is_authoritative => {
                bad.push(format!("`{name}` does not speak for the zone"));
            }
            Ok(answer) => match answer.records.iter().find_map(Soa::of) {
                Some(soa) => serials.entry(soa.serial).or_default().push(format!("`{name}`")),
                None => bad.push(format!("`{name}` has no SOA of the zone")),
            },
        }
    }
    if servers.is_empty() {
        return Judged::fail("the zone names no server", "look at its NS records");
    }
    if !bad.is_empty() {
        return Judged::fail(
            first_few(&bad),
            "mend it, or take it out of the zone: whoever asks it gets the old address, or none",
        );
    }
    if serials.len() > 1 {
        let told: Vec<String> =
            serials.iter().map(|(serial, who)| format!("{serial} at {}", who.join(", "))).collect();
        return Judged::warn(
            format!("their serials differ: {}", told.join("; ")),
            "look again in a minute; if they still differ, changes do not reach every server: look at its log for the transfer",
        );
    }
    Judged::pass(match servers {
        [_] => "one server answers; with a second, names are found while it is down".to_string(),
        _ => format!("all {} answer for the zone, and agree", servers.len()),
    })
}

/// Judges whether the zone would be changed for us. `looked_ahead`: whether the server tells for single names; `by_key`: the name of the key
/// that signed, if any; `hosted`: who keeps the zone, if that is a service with an API of its own.
pub fn updates(
    outcome: &Result<(), NameserverError>,
    looked_ahead: bool,
    by_key: Option<&str>,
    hosted: Option<&str>,
) -> Judged {
    match (outcome, by_key) {
        (Err(error), _) if hosted.is_some() => Judged::unknown(
            format!("the zone is kept by {}, whose API is not tried: {error}", hosted.unwrap_or_default()),
            "try it with the credentials and the tool that are to make the change, on a name that nobody uses",
        ),
        (Ok(()), _) if !looked_ahead => Judged::warn(
            "the server looks at prerequisites first, and does not tell whether we may change these names",
            "try it on a name that nobody uses: `nsupdate -k FILE`, add a TXT record and delete it",
        ),
        (Ok(()), Some(key)) => {
            Judged::pass(format!("the key `{key}` may change every name that is to be changed"))
        }
        (Ok(()), None) => Judged::warn(
            "an update that nobody has signed would be made: by its address alone we may change the zone, and so may others",
            "have updates signed (`update-policy { grant KEY zonesub ANY; };` in BIND), and give the key: `--tsig-key-file`",
        ),
        (Err(error @ NameserverError::Refused { .. }), None) => Judged::fail(
            format!("{error}, without a key"),
            "give the key that may change the zone: `--tsig-key-file FILE`",
        ),
        (Err(error), _) => {
            let remedy =
                error.hint().unwrap_or("look at the log of the server, and at the zone in its configuration");
            Judged::fail(error.to_string(), remedy)
        }
    }
}

/// Judges whether the whole zone can be read, to find what else is in it.
pub fn transfer(outcome: &Result<Vec<Record>, NameserverError>) -> Judged {
    match outcome {
        Ok(records) => {
            let names: BTreeSet<&str> = records.iter().map(|record| record.name.as_str()).collect();
            let records = counted(records.len(), "record", "records");
            Judged::pass(format!("{records} of {}", counted(names.len(), "name", "names")))
        }
        Err(error) => Judged::warn(
            error.to_string(),
            "allow it to the key that changes the zone (`allow-transfer` in BIND): ExternalDNS needs it as well, and without it nobody \
             sees how much of the zone is changed",
        ),
    }
}

/// What one side says of a zone: its start and its servers.
pub type Seen = (Option<Soa>, BTreeSet<String>);

/// Judges whether resolvers and we see the same zone, by its start and its servers, and by what its names say. `differing`: names that
/// a resolver gives other answers for.
pub fn twins(zone: &str, ours: &Seen, theirs: &Seen, differing: &[String]) -> Judged {
    let Some(found) = &theirs.0 else {
        return Judged::fail(
            format!("a resolver finds no zone `{zone}`"),
            "look at its delegation (`dig +trace NS ZONE`), or name a resolver that clients ask: `--resolver`",
        );
    };
    let primary = |seen: &Seen| seen.0.as_ref().map(|soa| soa.primary.clone()).unwrap_or_default();
    let remedy = "find the other zone of this name, as a private one beside a public one, and change both; or name a resolver that its clients ask: \
                `--resolver`";
    if primary(ours) != found.primary || ours.1 != theirs.1 {
        let servers = |seen: &Seen| {
            let names: Vec<String> = seen.1.iter().map(|name| format!("`{name}`")).collect();
            first_few(&names)
        };
        return Judged::fail(
            format!(
                "a resolver knows another zone `{zone}`: its primary is `{}` with {}, ours `{}` with {}",
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
            format!("a resolver gives other answers for {}", first_few(differing)),
            "look again once the TTL is over; if it stays, find who answers in place of the zone",
        );
    }
    Judged::pass(format!("a resolver finds the same zone, with its primary `{}`", found.primary))
}

/// Judges the comparison, `Judged` by [`twins`], where the zone was found through the same resolver: it was compared with itself.
pub fn by_itself(judged: Judged) -> Judged {
    if judged.verdict != super::Verdict::Pass {
        return judged;
    }
    Judged::warn(
        format!("{}; but by it our own was found", judged.observed),
        "name the server that takes the zone's updates: `--server`",
    )
}

/// Judges the names themselves.
pub fn names(zone: &str, entries: &[Entry]) -> Judged {
    if entries.is_empty() {
        return Judged::fail(
            format!("no Ingress, Service or HTTPRoute of this cluster names a host in `{zone}`"),
            "say which names are to lead to the mirror: `--name`",
        );
    }
    let told =
        |is_it: &dyn Fn(&&Entry) -> bool| entries.iter().filter(is_it).map(Entry::words).collect::<Vec<_>>();
    let of = |entry: &Entry| entry.below.as_ref().map(|zone| format!("{} is of `{zone}`", entry.words()));
    let elsewhere: Vec<String> = entries.iter().filter_map(of).collect();
    if !elsewhere.is_empty() {
        return Judged::fail(
            format!("of a zone of their own: {}", first_few(&elsewhere)),
            "look at each zone by itself: `--zone`, `--name`",
        );
    }
    let missing = told(&|entry| entry.records.is_empty());
    if !missing.is_empty() {
        return Judged::fail(
            format!("not in the zone: {}", first_few(&missing)),
            "make them, or take the host out of what names it: what nobody reaches now cannot be seen to go on working",
        );
    }
    let wild = told(&|entry| entry.is_wild && !entry.name.starts_with("*."));
    if !wild.is_empty() {
        return Judged::warn(
            format!("answered for by a wildcard: {}", first_few(&wild)),
            "the change makes records of their own; its way back must delete them, not set them to what they were",
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

/// Judges how long the old answer is kept by those who have asked.
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
            "the longest is {all} s: so long after a change, and after its way back, both must answer"
        ));
    }
    Judged::warn(
        format!("kept for longer than {LONGEST_TTL} s: {}", first_few(&long)),
        format!(
            "set it to 60 s at least {all} s before the change (with ExternalDNS: the annotation `external-dns.kubernetes.io/ttl`), or a way \
             back takes as long"
        ),
    )
}

/// Judges how much of a zone is changed. `zone`: the names that it has.
pub fn share(entries: &[Entry], zone: &BTreeSet<&str>) -> Judged {
    let (changed, all) = (entries.len(), zone.len());
    let percent = changed.saturating_mul(100).checked_div(all).unwrap_or_default();
    let seen = format!("{changed} of the zone's {all} names");
    if all >= FEW_NAMES && percent > MUCH {
        return Judged::warn(
            format!("{seen}, more than {MUCH} %"),
            "make sure that so many are meant, and change them in stages: `--name` chooses",
        );
    }
    Judged::pass(seen)
}

/// Whether an object of the mirror serves a name.
pub fn serves(exposed: &Exposed, entry: &Entry) -> bool {
    covers(&exposed.name, &entry.name)
}

/// Judges whether the mirror answers for every name, and where.
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
            "mirror what serves them first, with their hosts",
        );
    }
    if !without.is_empty() {
        return Judged::fail(
            format!("no address on the mirror: {}", first_few(&without)),
            "find out why no load balancer came: `kubectl describe` of the object on the mirror, and the log of its controller",
        );
    }
    Judged::pass(format!("the mirror has an address for all {}", entries.len()))
}

/// What a server presented for a name: the names in its certificate and the days that it still holds, rounded down, or why there is none.
pub type Presented = Result<(Vec<String>, i64), String>;

/// Judges the certificates that the mirror presents, by name and address; `plain`: how many names are not known to be served over TLS.
pub fn certificates(presented: &[(String, String, Presented)], plain: usize) -> Judged {
    let (mut bad, mut soon) = (Vec::new(), Vec::new());
    for (name, at, presented) in presented {
        match presented {
            Err(reason) => bad.push(format!("`{name}` at {at}: {reason}")),
            Ok((_, days)) if *days < 0 => bad.push(format!("`{name}` at {at}: it has expired")),
            Ok((names, _)) if !names.iter().any(|one| covers(&one.to_ascii_lowercase(), name)) => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                bad.push(format!("`{name}` at {at}: it is for {}", first_few(&names)));
            }
            Ok((_, days)) if *days < 7 => soon.push(format!("`{name}` at {at}: {days} days")),
            Ok(_) => {}
        }
    }
    if !bad.is_empty() {
        return Judged::fail(
            first_few(&bad),
            "have it issued on the mirror before the names lead there: add the host to the Certificate, and wait until it is ready",
        );
    }
    if !soon.is_empty() {
        return Judged::warn(
            format!("ends soon: {}", first_few(&soon)),
            "have it renewed on the mirror first",
        );
    }
    match presented.len() {
        0 => Judged::pass(format!(
            "no object says that one of the {plain} is served over TLS: none was looked at"
        )),
        count => Judged::pass(format!(
            "all {count} that the mirror presents hold; names not said to be served over TLS: {plain}"
        )),
    }
}

/// Who keeps a zone, told by the names of its servers, where that has an API of its own.
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

//! `twin-zones`: whether a resolver that the clients use finds the zone to change.

use futures_util::{StreamExt as _, stream};

use crate::dns::reader::CutoverReader;
use crate::inventory::zone::{Hosted, Provider, Seen};
use crate::nameserver::AT_ONCE;
use crate::nameserver::is_answer;
use crate::preflight::{Check, Judged, Read, Source, Verdict, first_few};

/// The check.
pub const CHECK: Check<CutoverReader> = Check {
    name: "twin-zones",
    why: "with split-horizon DNS only one of the two zones would be updated",
    needs: &[Source::Api, Source::Mirror],
    judge: |dns| Box::pin(read(dns)),
};

async fn read(dns: &CutoverReader) -> Read<Judged> {
    let resolver = dns.zone.resolver()?;
    let hosted = dns.zone.hosted().await?;
    let ours = dns.zone.own_start().await?;
    let theirs = dns.zone.start(resolver, true).await?;
    let entries = dns.entries().await?.iter().filter(|entry| entry.is_in_zone());
    // An alias returns the addresses of another name, so it is not compared.
    let sets = entries.flat_map(|entry| &entry.sets).filter(|set| set.alias.is_none());
    let compared = sets.map(async |set| {
        let found = resolver.sets(&set.name, &[set.kind], true).await;
        let found = found.map_err(|error| dns.zone.unresolved(&error))?;
        if is_answer(&found, std::slice::from_ref(set)) {
            return Ok(None);
        }
        let without_key = dns.zone.without_key(&set.name, &[set.kind]).await?;
        let is_of_a_view = without_key.is_some_and(|seen| is_answer(&found, &seen));
        Ok(Some(Differing { what: format!("{} of `{}`", set.kind, set.name), is_of_a_view }))
    });
    let compared: Vec<Read<_>> = stream::iter(compared).buffered(AT_ONCE).collect().await;
    let differing: Read<Vec<Differing>> = compared.into_iter().filter_map(Result::transpose).collect();
    let differing = differing?;
    let judged = judge(&dns.zone.name, &ours, &theirs, &differing);
    Ok(match hosted {
        Some(hosted) => with_twins(judged, hosted),
        None if matches!(
            dns.zone.provider,
            Provider::Rfc2136 { server: None, .. } | Provider::ExternalDns { server: None }
        ) =>
        {
            by_itself(judged)
        }
        None => judged,
    })
}

/// A record for which the resolver has a different answer than the zone to change.
struct Differing {
    /// Type and name of the record.
    what: String,
    /// Whether the server that accepts updates gives the answer of the resolver to clients without the key.
    is_of_a_view: bool,
}

/// Checks whether a resolver finds the zone to change. Compares the SOA, the name servers and the answers. `differing`: records
/// for which the resolver has a different answer.
fn judge(zone: &str, ours: &Seen, theirs: &Seen, differing: &[Differing]) -> Judged {
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
            if names.is_empty() { "none".to_string() } else { first_few(&names) }
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
        let what: Vec<String> = differing.iter().map(|one| one.what.clone()).collect();
        if differing.iter().any(|one| one.is_of_a_view) {
            return Judged::fail(
                format!(
                    "the key selects another view of the zone than clients without the key use: they get different answers for {}",
                    first_few(&what)
                ),
                "give the key that the server assigns to the view of the clients (`match-clients` in BIND), or a resolver in the view of the key: \
                 `--tsig-key-file`, `--resolver`",
            );
        }
        return Judged::fail(
            format!(
                "compared with the records of the zone, the resolver gives different answers for {}",
                first_few(&what)
            ),
            "run this check again after the TTL; if the answers still differ, find the server that overrides the zone, or give a resolver of \
             clients that use this zone: `--resolver`",
        );
    }
    Judged::pass(format!("the resolver finds the same zone, with the primary `{}`", found.primary))
}

/// Fails if the account has other hosted zones with this name, because the clients of those zones do not get the change.
fn with_twins(judged: Judged, hosted: &Hosted) -> Judged {
    if judged.verdict == Verdict::Fail || hosted.twins.is_empty() {
        return judged;
    }
    let twins: Vec<String> = hosted.twins.iter().map(ToString::to_string).collect();
    Judged::fail(
        format!("the account has other hosted zones of this name: {}", first_few(&twins)),
        "plan a cutover for each of them: `--hosted-zone ID`, and allow it with `--force twin-zones`",
    )
}

/// Turns a pass of [`judge`] into a warning. netsurgeon found the zone through the same resolver, so it compared the zone with
/// itself.
fn by_itself(judged: Judged) -> Judged {
    if judged.verdict != Verdict::Pass {
        return judged;
    }
    Judged::warn(
        format!("{}; but netsurgeon found the zone through the same resolver", judged.observed),
        "give the server that accepts updates of the zone: `--server`",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::nameserver::Soa;

    #[test]
    fn resolver_must_find_the_same_zone() {
        let seen = |primary: &str, servers: &[&str]| -> Seen {
            let soa = Soa { primary: primary.into(), serial: 1, negative_ttl: 60 };
            (Some(soa), servers.iter().map(ToString::to_string).collect())
        };
        let ours = seen("ns1", &["ns1", "ns2"]);
        assert_eq!(judge("example.com", &ours, &ours, &[]).verdict, Verdict::Pass);
        assert_eq!(by_itself(judge("example.com", &ours, &ours, &[])).verdict, Verdict::Warn);
        for (is_of_a_view, reason) in [(false, "different answers for A of `www`"), (true, "another view")] {
            let differing = [Differing { what: "A of `www`".into(), is_of_a_view }];
            let judged = judge("example.com", &ours, &ours, &differing);
            assert!(judged.verdict == Verdict::Fail && judged.observed.contains(reason), "{judged:?}");
        }
        assert_eq!(judge("example.com", &ours, &seen("ns9", &["ns1", "ns2"]), &[]).verdict, Verdict::Fail);
        assert_eq!(judge("example.com", &ours, &seen("ns1", &["ns1"]), &[]).verdict, Verdict::Fail);
        assert!(judge("example.com", &ours, &(None, BTreeSet::new()), &[]).observed.contains("no zone"));
    }
}

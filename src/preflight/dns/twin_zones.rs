//! `twin-zones`: whether a resolver of the clients finds the zone to change.

use std::collections::BTreeSet;

use futures_util::{StreamExt as _, stream};

use super::{AT_ONCE, Dns, Seen, unanswered};
use crate::nameserver::{Answer, NameserverError};
use crate::preflight::{Check, Judged, Read, Verdict, first_few};

/// The check.
pub const CHECK: Check<Dns> = Check {
    name: "twin-zones",
    why: "with split-horizon DNS only one of the two zones would be updated",
    judge: |dns| Box::pin(read(dns)),
};

async fn read(dns: &Dns) -> Read<Judged> {
    let (primary, resolver) = (dns.primary().await?, dns.resolver()?);
    let ours = dns.start(primary, false).await?;
    let theirs = dns.start(resolver, true).await?;
    let compared = dns.sets().await?.into_iter().map(async |(name, kind)| {
        let told = |answer: Answer| -> BTreeSet<String> {
            answer.of(kind).into_iter().map(str::to_string).collect()
        };
        let (own, found) = tokio::try_join!(primary.ask(name, kind), resolver.resolve(name, kind))?;
        Ok((told(own) != told(found)).then(|| format!("{kind} of `{name}`")))
    });
    let compared: Vec<Result<_, NameserverError>> = stream::iter(compared).buffered(AT_ONCE).collect().await;
    let differing: Result<Vec<_>, _> = compared.into_iter().filter_map(Result::transpose).collect();
    let differing = differing.map_err(|error| unanswered(&error))?;
    let judged = judge(&dns.zone, &ours, &theirs, &differing);
    Ok(if dns.names.server.is_none() { by_itself(judged) } else { judged })
}

/// Checks by SOA, name servers and answers whether a resolver finds the zone to change. `differing`: records for which the
/// resolver has a different answer.
fn judge(zone: &str, ours: &Seen, theirs: &Seen, differing: &[String]) -> Judged {
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
        assert_eq!(judge("example.com", &ours, &ours, &["`www`".into()]).verdict, Verdict::Warn);
        assert_eq!(judge("example.com", &ours, &seen("ns9", &["ns1", "ns2"]), &[]).verdict, Verdict::Fail);
        assert_eq!(judge("example.com", &ours, &seen("ns1", &["ns1"]), &[]).verdict, Verdict::Fail);
        assert!(judge("example.com", &ours, &(None, BTreeSet::new()), &[]).observed.contains("no zone"));
    }
}

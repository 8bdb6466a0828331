//! `zone-updates`: whether the zone accepts updates of the names to change.

use std::collections::BTreeSet;

use futures_util::{StreamExt as _, stream};

use crate::dns::reader::CutoverReader;
use crate::inventory::zone::Hosted;
use crate::nameserver::AT_ONCE;
use crate::nameserver::NameserverError;
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::all_of;

/// The check.
pub const CHECK: Check<CutoverReader> = Check {
    name: "zone-updates",
    why: "a zone that rejects updates stops the cutover, or its rollback, half way",
    needs: &[Source::Api, Source::Mirror],
    judge: |dns| Box::pin(read(dns)),
};

async fn read(dns: &CutoverReader) -> Read<Judged> {
    if let Some(hosted) = dns.zone.hosted().await? {
        return by_route53(dns, hosted).await;
    }
    if dns.zone.is_published() {
        return by_annotations(dns).await;
    }
    let outcome = may_update(dns).await?;
    let servers = match &outcome {
        Ok(_) => BTreeSet::new(),
        Err(_) => match dns.zone.start(dns.zone.resolver()?, true).await {
            Ok((_, servers)) => servers,
            Err(_) => BTreeSet::new(),
        },
    };
    let by_key = dns.zone.key().map(|(key, _)| key.name());
    Ok(judge(&outcome, by_key.as_deref(), hosted(&servers)))
}

/// Tests the permission to change every name in Route 53, with a request that cannot succeed.
async fn by_route53(dns: &CutoverReader, Hosted { api, zone, .. }: &Hosted) -> Read<Judged> {
    let sets: Vec<_> = dns.sets().await?.into_iter().collect();
    Ok(match api.may_change(&zone.id, &sets).await {
        Ok(()) => Judged::pass("the credentials are allowed to change every name"),
        Err(error) => Judged::fail(error.to_string(), error.hint()),
    })
}

/// Checks whether the ExternalDNS of this cluster publishes each name from one object, and whether netsurgeon can change the
/// annotations of this object.
async fn by_annotations(dns: &CutoverReader) -> Read<Judged> {
    let mut reasons = Vec::new();
    for entry in dns.entries().await? {
        if let Err(reason) = dns.published(entry).await? {
            reasons.push(format!("`{}`: {reason}", entry.name));
        }
    }
    let count = dns.entries().await?.len();
    if reasons.is_empty() {
        return Ok(Judged::pass(format!(
            "ExternalDNS publishes {}, each from one object",
            all_of(count, "name", "names")
        )));
    }
    Ok(Judged::fail(
        format!("netsurgeon cannot change these names through annotations: {}", first_few(&reasons)),
        "leave these names out (`--name`), or change the zone itself: `--provider rfc2136`, `--provider route53`",
    ))
}

/// Tests an update of every name to change. Returns whether the server checks the permission for each name before it checks
/// prerequisites.
async fn may_update(dns: &CutoverReader) -> Read<Result<bool, NameserverError>> {
    let (primary, zone) = (dns.zone.primary().await?, dns.zone.name.as_str());
    if let Err(error) = primary.knows_us(zone).await {
        return Ok(Err(error));
    }
    let looks_ahead = match primary.looks_ahead(zone).await {
        Ok(looks_ahead) => looks_ahead,
        Err(error) => return Ok(Err(error)),
    };
    let tried = dns.sets().await?.into_iter();
    let tried = tried.map(async |(name, kind)| primary.would_change(zone, name, kind).await);
    let tried: Vec<_> = stream::iter(tried).buffered(AT_ONCE).collect().await;
    Ok(tried.into_iter().collect::<Result<(), _>>().map(|()| looks_ahead))
}

/// Checks whether the zone accepts updates from netsurgeon. `outcome`: whether the server checks the permission for each name
/// before it checks prerequisites. `by_key`: name of the key that signed the update, if any. `hosted`: the DNS service that hosts
/// the zone, if it has its own API.
fn judge(outcome: &Result<bool, NameserverError>, by_key: Option<&str>, hosted: Option<&str>) -> Judged {
    match (outcome, by_key) {
        (Err(error), _) if hosted.is_some() => Judged::unknown(
            format!(
                "the zone is hosted at {}; the API of this service is not checked: {error}",
                hosted.unwrap_or_default()
            ),
            "for Route 53: `--provider route53`; otherwise test a change of an unused name with the tool that you will use",
        ),
        (Ok(false), _) => Judged::warn(
            "the server checks prerequisites first, so it does not show whether netsurgeon is allowed to change these names",
            "test it on an unused name with `nsupdate -k FILE`: add a TXT record and delete it",
        ),
        (Ok(true), Some(key)) => Judged::pass(format!("the key `{key}` is allowed to change every name")),
        (Ok(true), None) => Judged::warn(
            "the server accepts unsigned updates: it authorizes this host, and perhaps others, by address alone",
            "require signed updates (`update-policy { grant KEY zonesub ANY; };` in BIND), and give the key: `--tsig-key-file FILE`",
        ),
        (Err(error @ NameserverError::Refused { .. }), None) => Judged::fail(
            format!("{error} (the request was not signed)"),
            "give a key that is allowed to change the zone: `--tsig-key-file FILE`",
        ),
        (Err(error), _) => {
            let remedy = error.hint().unwrap_or("check the server's log, and the zone in its configuration");
            Judged::fail(error.to_string(), remedy)
        }
    }
}

/// Returns the DNS service that hosts a zone and has its own API. The names of the zone's servers identify the service.
fn hosted(servers: &BTreeSet<String>) -> Option<&'static str> {
    let known = [
        (".awsdns-", "Amazon Route 53"),
        (".googledomains.com", "Google Cloud DNS"),
        (".azure-dns.", "Azure DNS"),
        (".ns.cloudflare.com", "Cloudflare"),
    ];
    known.iter().find(|(part, _)| servers.iter().any(|name| name.contains(part))).map(|(_, who)| *who)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    fn refused(code: &str) -> NameserverError {
        let at = "192.0.2.53:53".parse().unwrap();
        NameserverError::Refused { at, what: "an update of `example.com`".into(), code: code.into() }
    }

    #[test]
    fn updates_need_a_key_that_is_allowed_to_change_the_zone() {
        assert_eq!(judge(&Ok(true), Some("mirror"), None).verdict, Verdict::Pass);
        assert_eq!(judge(&Ok(true), None, None).verdict, Verdict::Warn);
        assert_eq!(judge(&Ok(false), Some("mirror"), None).verdict, Verdict::Warn, "permission unknown");
        assert!(judge(&Err(refused("REFUSED")), None, None).remedy.contains("--tsig-key-file"));
        let unknown = judge(&Err(refused("NOTAUTH BADKEY")), Some("mirror"), None);
        assert!(
            unknown.verdict == Verdict::Fail && unknown.remedy.contains("no key of this name"),
            "{unknown:?}"
        );
        let servers = BTreeSet::from(["ns-1.awsdns-09.org".to_string()]);
        let hosted = judge(&Err(refused("NOTIMP")), None, hosted(&servers));
        assert!(
            hosted.verdict == Verdict::Unknown && hosted.observed.contains("Amazon Route 53"),
            "{hosted:?}"
        );
    }
}

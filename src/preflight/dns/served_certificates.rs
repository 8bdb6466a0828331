//! `served-certificates`: whether the mirror presents a valid certificate for every name with TLS.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use futures_util::{StreamExt as _, stream};
use time::OffsetDateTime;

use super::{AT_ONCE, Dns};
use crate::certs::Certificate;
use crate::dns::addresses;
use crate::kube_api::served;
use crate::preflight::facts::exposed::{Exposed, covers};
use crate::preflight::{Check, Judged, Read, first_few};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Dns> = Check {
    name: "served-certificates",
    why: "clients reject a certificate that does not cover the host name",
    judge: |dns| Box::pin(read(dns)),
};

/// A day in seconds.
const DAY: i64 = 24 * 60 * 60;

/// The port of TLS servers.
const TLS_PORT: u16 = 443;

/// Checks the certificates that the mirror presents, for each name with TLS and at each of its addresses. A name has TLS if an
/// object in one of the two clusters declares TLS for it.
async fn read(dns: &Dns) -> Read<Judged> {
    let (mut asked, mut plain, mut lost) = (BTreeSet::new(), 0_usize, 0_usize);
    for entry in dns.entries().await? {
        let serving = dns.on_the_mirror().await?.iter().filter(|one| covers(&one.name, &entry.name));
        let serving: Vec<&Exposed> = serving.filter(|one| one.has_tls || entry.has_tls).collect();
        if serving.is_empty() && !entry.has_tls {
            plain = plain.saturating_add(1);
        } else if serving.iter().all(|one| one.at.is_empty()) {
            lost = lost.saturating_add(1);
        }
        let at = serving.into_iter().flat_map(|one| one.at.iter());
        asked.extend(at.map(|at| (entry.name.clone(), at.clone())));
    }
    let presented = asked.into_iter().map(async |(name, at)| {
        let presented = present(&name, &at, dns).await;
        (name, at, presented)
    });
    let presented: Vec<_> = stream::iter(presented).buffered(AT_ONCE).collect().await;
    Ok(judge(&presented, plain, lost))
}

/// Returns the certificate that a server presents for a name. `at`: the address of the server, or the name of its load balancer.
async fn present(name: &str, at: &str, dns: &Dns) -> Presented {
    let resolver = dns.zone.resolver().map_err(|judged| judged.observed)?;
    // For a wildcard name, clients send a host name that the wildcard covers, and not the asterisk.
    let asked = name.strip_prefix('*').map(|rest| format!("netsurgeon-preflight{rest}"));
    let mut chain = Err(String::new());
    for address in addresses(at, resolver).await? {
        let at = SocketAddr::new(address, TLS_PORT).to_string();
        chain = served(&at, Some(asked.as_deref().unwrap_or(name))).await;
        if chain.is_ok() {
            break;
        }
    }
    let chain = chain?;
    let first = chain.into_iter().next().ok_or("the server presents no certificate")?;
    let certificate = Certificate::from_der(first)?;
    let now = OffsetDateTime::now_utc();
    if now < certificate.not_before {
        return Err(format!("the certificate is not valid before {}", certificate.not_before));
    }
    let days = certificate.left(now).whole_seconds().div_euclid(DAY);
    Ok((certificate.dns_names, days))
}

/// The certificate that a server presents for a name: the covered names, and the number of days until it expires, rounded down.
/// The error is the reason why there is no valid certificate.
type Presented = Result<(Vec<String>, i64), String>;

/// Checks the certificates that the mirror presents, by name and address. `plain`: number of names for which no object declares
/// TLS. `lost`: number of names with TLS for which the mirror has no address.
fn judge(presented: &[(String, String, Presented)], plain: usize, lost: usize) -> Judged {
    let (mut bad, mut soon, mut is_served) = (Vec::new(), Vec::new(), false);
    for (name, at, presented) in presented {
        is_served |= presented.is_ok();
        match presented {
            Err(reason) => bad.push(format!("`{name}` at {at}: {reason}")),
            Ok((_, days)) if *days < 0 => bad.push(format!("`{name}` at {at}: the certificate has expired")),
            Ok((names, _)) if !names.iter().any(|one| covers(&one.to_ascii_lowercase(), name)) => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                let covered = if names.is_empty() {
                    "no DNS name".to_string()
                } else {
                    format!("only {}", first_few(&names))
                };
                bad.push(format!("`{name}` at {at}: the certificate covers {covered}"));
            }
            Ok((_, days)) if *days < 7 => soon.push(format!("`{name}` at {at} (days left: {days})")),
            Ok(_) => {}
        }
    }
    if !bad.is_empty() {
        if !is_served {
            return Judged::fail(
                first_few(&bad),
                "make sure that the mirror's load balancer answers this host, and that its certificate is valid",
            );
        }
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
        _ if lost > 0 => Judged::unknown(
            format!(
                "{} not checked, because the mirror has no address",
                counted(lost, "name is", "names are")
            ),
            "first solve the problem that the check `targets` reports",
        ),
        0 => Judged::pass(format!(
            "no object declares TLS, so no certificate was checked; names without TLS: {plain}"
        )),
        count => Judged::pass(format!(
            "certificates presented by the mirror: {count}; each covers its name and has not expired; names without TLS: {plain}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn certificate_must_cover_the_name_and_be_valid() {
        let judged =
            |presented: Presented| judge(&[("www.example.com".into(), "192.0.2.9".into(), presented)], 0, 0);
        let names = |name: &str| vec![name.to_string()];
        assert_eq!(judged(Ok((names("*.example.com"), 60))).verdict, Verdict::Pass);
        assert_eq!(judged(Ok((names("*.example.com"), 3))).verdict, Verdict::Warn);
        assert!(judged(Ok((names("*.example.com"), -1))).observed.contains("has expired"));
        assert_eq!(
            judged(Ok((names("ingress.local"), 60))).observed,
            "`www.example.com` at 192.0.2.9: the certificate covers only `ingress.local`"
        );
        assert_eq!(judged(Err("connection refused".into())).verdict, Verdict::Fail);
        assert_eq!(judge(&[], 1, 0).verdict, Verdict::Pass);
        assert_eq!(judge(&[], 1, 1).verdict, Verdict::Unknown, "a name with TLS was not checked");
    }
}

//! `zone-servers`: whether every name server of the zone is authoritative, and whether all of them return the same serial.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use crate::dns::reader::CutoverReader;
use crate::inventory::zone::unanswered;
use crate::nameserver::{Answer, NameserverError, RecordKind, Soa};
use crate::preflight::{Check, Judged, Read, first_few};

/// The check.
pub const CHECK: Check<CutoverReader> = Check {
    name: "zone-servers",
    why: "resolvers that ask an outdated or unavailable server do not get the change",
    needs: &[],
    judge: |dns| Box::pin(read(dns)),
};

async fn read(dns: &CutoverReader) -> Read<Judged> {
    if let Some(hosted) = dns.zone.hosted().await? {
        return Ok(Judged::pass(format!("Route 53 holds the zone: {}", hosted.zone)));
    }
    let primary = dns.zone.primary().await?;
    let servers = primary.authorities(&dns.zone.name, dns.zone.resolver()?).await;
    let servers = servers.map_err(|error| unanswered(&error))?;
    if let Some(error) = resolver_failure(&servers) {
        return Err(dns.zone.unresolved(error).into());
    }
    let asked = servers.into_iter().map(async |(name, server)| match server {
        Ok(server) => (name, server.ask(&dns.zone.name, RecordKind::Soa).await),
        Err(error) => (name, Err(error)),
    });
    Ok(judge(&join_all(asked).await))
}

/// Returns the first error that is not about a name server, but about the resolver that looks up the name of the server.
fn resolver_failure<T>(servers: &[(String, Result<T, NameserverError>)]) -> Option<&NameserverError> {
    let mut errors = servers.iter().filter_map(|(_, server)| server.as_ref().err());
    errors.find(|error| !matches!(error, NameserverError::NoAddress { .. }))
}

/// Checks the name servers of a zone. `servers`: name and SOA answer of each server.
fn judge(servers: &[(String, Result<Answer, NameserverError>)]) -> Judged {
    let (mut bad, mut serials) = (Vec::new(), BTreeMap::<u32, Vec<String>>::new());
    for (name, answer) in servers {
        match answer {
            Err(error @ NameserverError::NoAddress { .. }) => bad.push(error.to_string()),
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
            "repair the server or its address record, or remove its NS record: resolvers that ask it get the old address, or none",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;
    use crate::preflight::dns::testing::record;

    type Said = Result<Answer, NameserverError>;

    fn start(serial: u32, is_authoritative: bool) -> Answer {
        let data = format!("ns1.example.com admin.example.com {serial} 3600 600 86400 60");
        Answer {
            is_authoritative,
            exists: true,
            records: vec![record("example.com", RecordKind::Soa, 60, &data)],
        }
    }

    fn refused(code: &str) -> NameserverError {
        let at = "192.0.2.53:53".parse().unwrap();
        NameserverError::Refused { at, what: "an update of `example.com`".into(), code: code.into() }
    }

    #[test]
    fn failure_of_the_resolver_is_not_a_fault_of_a_name_server() {
        let name = |text: &str| text.to_string();
        let none = Err(NameserverError::NoAddress { name: name("ns2.example.com") });
        let mut servers = vec![(name("ns1.example.com"), Ok(())), (name("ns2.example.com"), none)];
        assert_eq!(resolver_failure(&servers), None);
        servers.push((name("ns3.example.com"), Err(refused("SERVFAIL"))));
        assert_eq!(resolver_failure(&servers), Some(&refused("SERVFAIL")));
    }

    #[test]
    fn every_server_must_be_authoritative() {
        let judged = |list: Vec<Said>| {
            let named = list
                .into_iter()
                .enumerate()
                .map(|(number, answer)| (format!("ns{number}.example.com"), answer));
            judge(&named.collect::<Vec<_>>())
        };
        assert_eq!(judged(vec![Ok(start(7, true)), Ok(start(7, true))]).verdict, Verdict::Pass);
        let lags = judged(vec![Ok(start(7, true)), Ok(start(6, true))]);
        assert_eq!(lags.verdict, Verdict::Warn);
        assert!(lags.observed.contains("6 at `ns1.example.com`; 7 at `ns0.example.com`"), "{lags:?}");
        assert_eq!(
            judged(vec![Ok(start(7, true)), Ok(start(7, false))]).observed,
            "`ns1.example.com` is not authoritative for the zone"
        );
        assert_eq!(judged(vec![Ok(start(7, true)), Err(refused("REFUSED"))]).verdict, Verdict::Fail);
        assert_eq!(judged(Vec::new()).verdict, Verdict::Fail);
        let name = "ns0.example.com".to_string();
        let unnamed = judge(&[(name.clone(), Err(NameserverError::NoAddress { name }))]);
        assert_eq!(unnamed.verdict, Verdict::Fail);
        assert!(
            unnamed.observed.contains("no address found for the name server `ns0.example.com`"),
            "{unnamed:?}"
        );
    }
}

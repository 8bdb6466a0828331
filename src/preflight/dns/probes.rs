//! `probes`: whether the mirror serves every name, judged by the same probe as a stage of the cutover.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::time::timeout;

use crate::dns::plan::probing;
use crate::dns::reader::{ByName, CutoverReader};
use crate::dns::{Prober, Served, TOO_MANY_TARGETS, target};
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::{all_of, counted};

/// The check.
pub const CHECK: Check<CutoverReader> = Check {
    name: "probes",
    why: "the cutover skips every name that the mirror does not serve",
    needs: &[Source::Api, Source::Mirror],
    judge: |dns| Box::pin(read(dns)),
};

/// Number of concurrent probes. An address that does not answer needs 17 s.
const PROBES_AT_ONCE: usize = 32;

/// Time limit for the probes of one name. A name can have several addresses.
const LIMIT: Duration = Duration::from_mins(1);

/// Expiry of a certificate that is reported.
const SOON: time::Duration = time::Duration::days(7);

/// Probes each name at each of its addresses on the mirror.
async fn read(dns: &CutoverReader) -> Read<Judged> {
    let mirror = ByName::new(dns.on_the_mirror().await?);
    let prober = Prober::new(dns.options.probes.trusted.clone());
    let prober = prober.map_err(|why| Judged::unknown(why, "check the file of `--probe-ca`"))?;
    let resolver = dns.zone.resolver()?;
    let (mut asked, mut lost) = (Vec::new(), 0_usize);
    for entry in dns.entries().await? {
        // The check `targets` reports a name whose objects on the mirror are unknown, and a target that must not be probed.
        let Ok(serving) = dns.serving(&mirror, entry).await? else { continue };
        let at: BTreeSet<&String> = serving.iter().flat_map(|one| one.at.iter()).collect();
        if at.len() >= TOO_MANY_TARGETS || at.iter().any(|at| target::refused(at).is_some()) {
            continue;
        }
        let has_tls = entry.has_tls || serving.iter().any(|one| one.has_tls);
        let options = &dns.options.probes;
        let probe = probing(&entry.name, has_tls, options.probe.as_ref(), &options.of);
        if at.is_empty() {
            lost = lost.saturating_add(1);
        } else {
            asked.push((entry, probe.at(at)));
        }
    }
    let answers = asked.into_iter().map(async |(entry, probe)| {
        let late = |_| Err(format!("no answer within {} s", LIMIT.as_secs()));
        let served = timeout(LIMIT, prober.check(&entry.name, &probe, resolver)).await.unwrap_or_else(late);
        (entry.name.clone(), served)
    });
    Ok(judge(&stream::iter(answers).buffered(PROBES_AT_ONCE).collect::<Vec<_>>().await, lost))
}

/// Judges the probes of names. `lost`: number of names for which the mirror has no address.
fn judge(probed: &[(String, Result<Served, String>)], lost: usize) -> Judged {
    let failed = probed.iter().filter_map(|(name, served)| Some((name, served.as_ref().err()?)));
    let failed: Vec<String> = failed.map(|(name, why)| format!("`{name}` at {why}")).collect();
    if !failed.is_empty() {
        return Judged::fail(
            format!(
                "{}: {}",
                counted(failed.len(), "name is not served", "names are not served"),
                first_few(&failed)
            ),
            "repair the mirror's load balancer or its certificate; or change the probe: `--probe`, `--probe-ca`, `--probe-status`, `--names-file`",
        );
    }
    let left = probed.iter().filter_map(|(name, served)| Some((name, served.as_ref().ok()?.left?)));
    let left: Vec<_> = left.collect();
    let soon = left.iter().filter(|(_, left)| *left < SOON);
    let soon: Vec<String> =
        soon.map(|(name, left)| format!("`{name}` (days left: {})", left.whole_days())).collect();
    if !soon.is_empty() {
        return Judged::warn(
            format!("the certificate expires soon: {}", first_few(&soon)),
            "renew the certificate on the mirror first",
        );
    }
    if lost > 0 {
        return Judged::unknown(
            format!(
                "{} not probed, because the mirror has no address",
                counted(lost, "name is", "names are")
            ),
            "first solve the problem that the check `targets` reports",
        );
    }
    Judged::pass(match probed.len() {
        0 => "no name to probe".to_string(),
        count => format!(
            "the mirror serves {}, {} of them with a valid certificate",
            all_of(count, "name", "names"),
            left.len()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn every_name_must_be_served() {
        let of = |served: Result<Served, String>| judge(&[("www.example.com".into(), served)], 0);
        let days = |days| Ok(Served { left: Some(time::Duration::days(days)) });
        assert_eq!(of(days(60)).observed, "the mirror serves 1 name, 1 of them with a valid certificate");
        assert_eq!(of(Ok(Served { left: None })).verdict, Verdict::Pass);
        assert_eq!(of(days(3)).verdict, Verdict::Warn);
        let failed = of(Err("192.0.2.9 (https:443/): HTTP status 500".into()));
        assert_eq!(
            (failed.verdict, failed.observed.as_str()),
            (
                Verdict::Fail,
                "1 name is not served: `www.example.com` at 192.0.2.9 (https:443/): HTTP status 500"
            )
        );
        assert_eq!(judge(&[], 0).verdict, Verdict::Pass);
        assert_eq!(judge(&[], 1).verdict, Verdict::Unknown, "a name was not probed");
    }
}

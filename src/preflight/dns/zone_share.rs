//! `zone-share`: which share of the names in the zone changes.

use std::collections::BTreeSet;

use crate::dns::external_dns::owner;
use crate::dns::reader::{CutoverReader, Entry};
use crate::preflight::{Check, Judged, Read, Source};

/// The check.
pub const CHECK: Check<CutoverReader> = Check {
    name: "zone-share",
    why: "a change of a large part of a zone is often a mistake",
    needs: &[Source::Api, Source::Mirror],
    judge: |dns| Box::pin(read(dns)),
};

async fn read(dns: &CutoverReader) -> Read<Judged> {
    let records = dns.zone.records().await?.as_ref().map_err(Clone::clone)?;
    // Ownership records of ExternalDNS do not count as names.
    let names = records.iter().filter(|set| !set.data.iter().all(|data| owner(data).is_some()));
    Ok(judge(dns.entries().await?, &names.map(|set| set.name.as_str()).collect()))
}

/// In a zone with at least this many names, a change of more than [`MUCH`] percent of the names is a warning. octoDNS has a
/// similar rule (`octodns/provider/plan.py`).
const FEW_NAMES: usize = 10;
const MUCH: usize = 30;

/// Checks which share of the names in a zone changes. `zone`: all names in the zone.
fn judge(entries: &[Entry], zone: &BTreeSet<&str>) -> Judged {
    let (changed, all) = (entries.len(), zone.len());
    let seen = format!("{changed} of the zone's {all} names");
    if all >= FEW_NAMES && changed.saturating_mul(100) > all.saturating_mul(MUCH) {
        return Judged::warn(
            format!("{seen}, more than {MUCH} %"),
            "make sure that all these names must change, and change them in stages: `--name` selects names",
        );
    }
    Judged::pass(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;
    use crate::preflight::dns::testing::www;

    #[test]
    fn changing_over_thirty_percent_of_a_zone_is_a_warning() {
        let zone: Vec<String> = (0..10).map(|number| format!("n{number}.example.com")).collect();
        let zone: BTreeSet<&str> = zone.iter().map(String::as_str).collect();
        let some = |count: usize| vec![www(); count];
        assert_eq!(judge(&some(3), &zone).verdict, Verdict::Pass);
        assert_eq!(judge(&some(4), &zone).verdict, Verdict::Warn);
        assert_eq!(judge(&some(2), &zone.iter().take(3).copied().collect()).verdict, Verdict::Pass);
    }
}

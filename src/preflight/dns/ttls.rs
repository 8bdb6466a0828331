//! `ttls`: how long resolvers cache the old records.

use crate::dns::reader::{CutoverReader, Entry};
use crate::preflight::{Check, Judged, Source, first_few};

/// The check.
pub const CHECK: Check<CutoverReader> = Check {
    name: "ttls",
    why: "resolvers cache the old record for its TTL, after a cutover and after a rollback",
    needs: &[Source::Api, Source::Mirror],
    judge: |dns| Box::pin(async { Ok(judge(dns.entries().await?)) }),
};

/// Longest accepted TTL in seconds. Five minutes fit into a maintenance window; an hour does not.
const LONGEST_TTL: u32 = 300;

/// Checks how long resolvers cache the old records.
fn judge(entries: &[Entry]) -> Judged {
    let longest = |entry: &Entry| entry.sets.iter().map(|set| set.ttl).max().unwrap_or_default();
    let long: Vec<String> = entries
        .iter()
        .filter(|entry| longest(entry) > LONGEST_TTL)
        .map(|entry| format!("`{}` ({} s)", entry.name, longest(entry)))
        .collect();
    let all = entries.iter().map(longest).max().unwrap_or_default();
    if long.is_empty() {
        return Judged::pass(format!(
            "the longest TTL is {all} s: both clusters must serve for that time after a cutover or a rollback"
        ));
    }
    Judged::warn(
        format!("TTL longer than {LONGEST_TTL} s: {}", first_few(&long)),
        format!(
            "at least {all} s before the change, set the TTL to 60 s (with ExternalDNS: the annotation `external-dns.kubernetes.io/ttl`): otherwise a rollback takes {all} s"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nameserver::RecordKind;
    use crate::preflight::Verdict;
    use crate::preflight::dns::testing::{entry, record, www};

    #[test]
    fn long_ttl_is_a_warning() {
        assert_eq!(judge(&[www()]).verdict, Verdict::Pass);
        let long = entry("api.example.com", &[record("api.example.com", RecordKind::A, 3600, "192.0.2.1")]);
        let judged = judge(&[www(), long]);
        assert_eq!(judged.observed, "TTL longer than 300 s: `api.example.com` (3600 s)");
        assert!(judged.remedy.contains("at least 3600 s before"), "{judged:?}");
    }
}

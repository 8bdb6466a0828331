//! `names`: whether every name to change is in the zone and has its own records.

use super::{Dns, Entry};
use crate::nameserver::Kind;
use crate::preflight::{Check, Judged, first_few};

/// The check.
pub const CHECK: Check<Dns> = Check {
    name: "names",
    why: "a name that does not answer now cannot be verified later",
    judge: |dns| Box::pin(async { Ok(judge(&dns.zone.name, dns.entries().await?)) }),
};

/// Checks whether every name is in the zone and has its own records.
fn judge(zone: &str, entries: &[Entry]) -> Judged {
    if entries.is_empty() {
        return Judged::fail(
            format!("no Ingress, Service or HTTPRoute of this cluster names a host in `{zone}`"),
            "give the names to change: `--name`",
        );
    }
    let told = |is_it: &dyn Fn(&&Entry) -> bool| entries.iter().filter(is_it).map(words).collect::<Vec<_>>();
    let of = |entry: &Entry| {
        entry.below.as_ref().map(|zone| format!("{} is in the child zone `{zone}`", words(entry)))
    };
    let elsewhere: Vec<String> = entries.iter().filter_map(of).collect();
    if !elsewhere.is_empty() {
        return Judged::fail(first_few(&elsewhere), "check each zone separately: `--zone`, `--name`");
    }
    let missing = told(&|entry| entry.sets.is_empty());
    if !missing.is_empty() {
        return Judged::fail(
            format!("not in the zone: {}", first_few(&missing)),
            "create the records, or remove the host from its object: a name that does not answer now cannot be verified later",
        );
    }
    let of = |entry: &Entry| entry.routing.as_ref().map(|why| format!("{} {why}", words(entry)));
    let routed: Vec<String> = entries.iter().filter_map(of).collect();
    if !routed.is_empty() {
        return Judged::fail(
            format!("netsurgeon changes only names with simple routing: {}", first_few(&routed)),
            "first change these names to simple routing in Route 53, or select only the other names with `--name`",
        );
    }
    let wild = told(&|entry| entry.is_wild && !entry.name.starts_with("*."));
    if !wild.is_empty() {
        return Judged::warn(
            format!("a wildcard record answers for: {}", first_few(&wild)),
            "the change creates records for these names: a rollback must delete them, not restore earlier ones",
        );
    }
    let count =
        |kind: Kind| entries.iter().filter(|entry| entry.sets.iter().any(|set| set.kind == kind)).count();
    let kinds = [Kind::A, Kind::Aaaa, Kind::Cname].map(|kind| (count(kind), kind));
    let kinds: Vec<String> =
        kinds.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}")).collect();
    Judged::pass(format!("names in the zone: {} ({})", entries.len(), kinds.join(", ")))
}

fn words(entry: &Entry) -> String {
    format!("`{}` ({})", entry.name, entry.by.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;
    use crate::preflight::dns::testing::{entry, www};

    #[test]
    fn names_must_have_records_in_the_zone() {
        assert_eq!(judge("example.com", &[www()]).observed, "names in the zone: 1 (1 A)");
        assert_eq!(judge("example.com", &[]).verdict, Verdict::Fail);
        let missing = judge("example.com", &[www(), entry("api.example.com", &[])]);
        assert_eq!(missing.observed, "not in the zone: `api.example.com` (Ingress `shop/web`)");
        let below = Entry { below: Some("dev.example.com".into()), ..www() };
        assert!(judge("example.com", &[below]).observed.ends_with("is in the child zone `dev.example.com`"));
        let routed = Entry { routing: Some("has latency routing".into()), ..www() };
        let routed = judge("example.com", &[routed]);
        assert!(
            routed.observed.ends_with("`www.example.com` (Ingress `shop/web`) has latency routing"),
            "{routed:?}"
        );
        let wild = Entry { is_wild: true, ..www() };
        assert_eq!(judge("example.com", &[wild]).verdict, Verdict::Warn);
    }
}

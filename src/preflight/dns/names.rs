//! `names`: whether every name to change is in the zone, has its own records, and points to this cluster.

use crate::dns::reader::{CutoverReader, Entry, Selected, Unfit};
use crate::nameserver::RecordKind;
use crate::preflight::{Check, Judged, Source, first_few};
use crate::words::and_more;

/// The check.
pub const CHECK: Check<CutoverReader> = Check {
    name: "names",
    why: "a name that does not answer now cannot be verified later, and a name of another site must not move",
    needs: &[Source::Api, Source::Mirror],
    judge: |dns| Box::pin(async { Ok(judge(&dns.zone.name, dns.selected().await?)) }),
};

/// Maximum number of names to list that do not change.
const MOST: usize = 20;

/// Checks whether every name is in the zone, has its own records, and points to this cluster. A name that the user selected must
/// meet these conditions. Other names are left out, because each user of the cluster can create an object with any host name.
fn judge(zone: &str, Selected { entries, left_out }: &Selected) -> Judged {
    if entries.is_empty() && left_out.is_empty() {
        return Judged::fail(
            format!("no Ingress, Service, HTTPRoute or other route of this cluster names a host in `{zone}`"),
            "give the names to change: `--name`",
        );
    }
    let unfit: Vec<(&Entry, &Unfit)> =
        entries.iter().filter_map(|entry| Some((entry, entry.unfit.as_ref()?))).collect();
    if let Some((_, first)) = unfit.first() {
        let told = unfit.iter().map(|(entry, unfit)| format!("{}: {}", entry.words(), unfit.reason()));
        return Judged::fail(first_few(&told.collect::<Vec<_>>()), first.remedy());
    }
    let told = left_out
        .iter()
        .take(MOST)
        .map(|one| format!("`{}` ({}): {}", one.name, one.by.join(", "), one.reason));
    let told = told.collect::<Vec<_>>().join("; ") + &and_more(left_out.len().saturating_sub(MOST));
    if entries.is_empty() {
        return Judged::fail(format!("no name can change: {told}"), TAKE);
    }
    let count = |kind: RecordKind| {
        entries.iter().filter(|entry| entry.sets.iter().any(|set| set.kind == kind)).count()
    };
    let kinds = [RecordKind::A, RecordKind::Aaaa, RecordKind::Cname].map(|kind| (count(kind), kind));
    let kinds: Vec<String> =
        kinds.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}")).collect();
    let observed = format!("names to change: {} ({})", entries.len(), kinds.join(", "));
    if left_out.is_empty() {
        return Judged::pass(observed);
    }
    Judged::warn(format!("{observed}; these names do not change: {told}"), TAKE)
}

/// What to do about names that are left out.
const TAKE: &str = "correct the records or the objects of these names; or remove the hosts from the objects; if a name must point to the mirror although \
     its records point elsewhere: `--take NAME`";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::LeftOut;
    use crate::preflight::Verdict;
    use crate::preflight::dns::testing::{entry, www};

    #[test]
    fn names_must_have_records_that_point_to_this_cluster() {
        let judged = |entries: Vec<Entry>, left_out: Vec<LeftOut>| {
            judge("example.com", &Selected { entries, left_out })
        };
        assert_eq!(judged(vec![www()], vec![]).observed, "names to change: 1 (1 A)");
        assert_eq!(judged(vec![], vec![]).verdict, Verdict::Fail);
        let given = |unfit| Entry { unfit: Some(unfit), is_given: true, ..entry("api.example.com", &[]) };
        for unfit in [
            Unfit::Missing,
            Unfit::Wild,
            Unfit::Below("dev.example.com".into()),
            Unfit::Routing("has latency routing".into()),
            Unfit::Elsewhere("its records are 198.51.100.9".into()),
        ] {
            let reason = unfit.reason();
            let refused = judged(vec![www(), given(unfit)], vec![]);
            assert_eq!(refused.verdict, Verdict::Fail);
            assert_eq!(refused.observed, format!("`api.example.com` (Ingress `shop/web`): {reason}"));
        }
        let left = LeftOut {
            name: "cdn.example.com".into(),
            by: vec!["Ingress `x/y`".into()],
            reason: "why".into(),
        };
        let warned = judged(vec![www()], vec![left.clone()]);
        assert_eq!(warned.verdict, Verdict::Warn, "the other names can change");
        assert!(
            warned.observed.ends_with("do not change: `cdn.example.com` (Ingress `x/y`): why"),
            "{warned:?}"
        );
        assert_eq!(judged(vec![], vec![left]).verdict, Verdict::Fail);
    }
}

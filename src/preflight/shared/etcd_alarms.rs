//! `etcd-alarms`: whether etcd has raised an alarm.

use crate::inventory::{ClusterReader, unread};
use crate::preflight::etcd_status::name;
use crate::preflight::{Check, Judged, Read, Source};
use crate::store::MAKE_ROOM;
use crate::store::etcd::{Alarm, Member};

/// Returns the check. `why`: why the check matters before this change.
pub const fn check<C: AsRef<ClusterReader>>(why: &'static str) -> Check<C> {
    Check { name: "etcd-alarms", why, needs: &[Source::Etcd], judge: |input| Box::pin(read(input.as_ref())) }
}

async fn read(reading: &ClusterReader) -> Read<Judged> {
    let raised = reading.store()?.bare().alarms().await.map_err(unread)?;
    Ok(judge(reading.members().await?, &raised))
}

/// Checks the alarms. Every alarm is a failure.
pub fn judge(members: &[Member], alarms: &[(u64, Alarm)]) -> Judged {
    let of =
        |id: &u64| members.iter().find(|member| member.id == *id).map_or_else(|| format!("{id:x}"), name);
    if alarms.is_empty() {
        return Judged::pass("no alarms");
    }
    let words = |(id, kind): &(u64, Alarm)| match kind {
        Alarm::NoSpace => format!("NOSPACE on `{}`", of(id)),
        Alarm::Corrupt => format!("CORRUPT on `{}`", of(id)),
    };
    let seen: Vec<String> = alarms.iter().map(words).collect();
    let remedy = |kind| match kind {
        Alarm::NoSpace => MAKE_ROOM,
        Alarm::Corrupt => "replace that member: remove it, delete its data, add it again",
    };
    let has = |kind: &Alarm| alarms.iter().any(|(_, raised)| raised == kind);
    let remedies: Vec<&str> = [Alarm::NoSpace, Alarm::Corrupt].into_iter().filter(has).map(remedy).collect();
    Judged::fail(seen.join(", "), remedies.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;
    use crate::preflight::etcd_status::testing::member;

    #[test]
    fn alarms_are_reported_with_their_members() {
        assert_eq!(judge(&[member(1)], &[]).verdict, Verdict::Pass);
        let found = judge(&[member(1)], &[(1, Alarm::NoSpace), (2, Alarm::Corrupt)]);
        assert_eq!(found.verdict, Verdict::Fail);
        assert_eq!(found.observed, "NOSPACE on `etcd-1`, CORRUPT on `2`");
        assert!(
            found.remedy.contains("alarm disarm") && found.remedy.contains("replace that member"),
            "{found:?}"
        );
    }
}

//! An etcd, by what its members say of themselves.

use std::collections::BTreeSet;

use super::{Judged, one_minor};
use crate::store::etcd::{Alarm, Member, MemberStatus};

/// What an etcd may grow to unless it is told otherwise (`DefaultQuotaBytes`, server/storage/quota.go, v3.6.16).
const DEFAULT_QUOTA: u64 = 2 * 1024 * 1024 * 1024;
/// From here on, in percent of the quota, it is taken care of first.
const FULL: u64 = 80;
const FILLING: u64 = 60;
const MEBIBYTE: u64 = 1024 * 1024;

fn name(member: &Member) -> String {
    if member.name.is_empty() { format!("{:x}", member.id) } else { member.name.clone() }
}

fn statuses(members: &[Member]) -> impl Iterator<Item = &MemberStatus> {
    members.iter().filter_map(|member| member.status.as_ref().ok())
}

/// The quorum is more than half of those who vote; a member that votes and is well beyond it is the margin.
pub fn members(members: &[Member]) -> Judged {
    let voting = members.iter().filter(|member| !member.is_learner).count();
    let quorum = voting.checked_div(2).unwrap_or_default().saturating_add(1);
    let ill: Vec<String> = members
        .iter()
        .filter_map(|member| Some(format!("`{}`: {}", name(member), illness(member)?)))
        .collect();
    let voting_ill = members.iter().filter(|member| !member.is_learner && illness(member).is_some()).count();
    let well = voting.saturating_sub(voting_ill);
    let seen = format!("{well} of {voting} voting members are well, the quorum is {quorum}");
    if let Some(first) = ill.first() {
        let seen = format!("{seen}; {}", ill.join("; "));
        let todo = format!("bring it back, or replace it, before anything else: {first}");
        // With one to spare beyond the one that is missing, work can go on.
        return if well > quorum { Judged::warn(seen, todo) } else { Judged::fail(seen, todo) };
    }
    let leaders: BTreeSet<u64> = statuses(members).map(|status| status.leader).collect();
    if leaders.len() > 1 {
        let seen = format!("{seen}; they do not agree who leads");
        return Judged::fail(
            seen,
            "look again in a moment; if it stays so, look at the network between them",
        );
    }
    let learners: Vec<String> = members.iter().filter(|member| member.is_learner).map(name).collect();
    if !learners.is_empty() {
        let seen = format!("{seen}; without a vote: {}", learners.join(", "));
        return Judged::warn(
            seen,
            "promote them, or remove them: a change of members should not be under way",
        );
    }
    if voting.is_multiple_of(2) {
        return Judged::warn(seen, "an even number of members bears no more than one member fewer does");
    }
    Judged::pass(seen)
}

/// Members complain of alarms as well, which are judged by themselves, and of a leader that is missing (`Status`,
/// server/etcdserver/api/v3rpc/maintenance.go, v3.6.16).
fn illness(member: &Member) -> Option<String> {
    let status = match &member.status {
        Ok(status) => status,
        Err(reason) => return Some(reason.clone()),
    };
    let complaint = status.errors.iter().find(|error| !error.contains("alarm:"));
    complaint.cloned().or_else(|| (status.leader == 0).then(|| "it knows no leader".to_string()))
}

/// Any alarm stops writes, or should.
pub fn alarms(members: &[Member], alarms: &[(u64, Alarm)]) -> Judged {
    let of =
        |id: &u64| members.iter().find(|member| member.id == *id).map_or_else(|| format!("{id:x}"), name);
    let Some((_, kind)) = alarms.first() else { return Judged::pass("no alarm is raised") };
    let words = |(id, kind): &(u64, Alarm)| match kind {
        Alarm::NoSpace => format!("NOSPACE on `{}`", of(id)),
        Alarm::Corrupt => format!("CORRUPT on `{}`", of(id)),
    };
    let seen: Vec<String> = alarms.iter().map(words).collect();
    let todo = match kind {
        Alarm::NoSpace => {
            "make room: `etcdctl compact REVISION`, `etcdctl defrag --cluster`, or a larger `--quota-backend-bytes`; then \
             `etcdctl alarm disarm`"
        }
        Alarm::Corrupt => "replace that member: remove it, empty its data, add it anew",
    };
    Judged::fail(seen.join(", "), todo)
}

/// The largest database against the smallest quota.
pub fn space(members: &[Member]) -> Judged {
    let Some(size) = statuses(members).map(|status| status.size).max() else {
        return Judged::unknown("no member says how large it is", "");
    };
    let quota = statuses(members).filter_map(|status| status.quota).min();
    let of = quota.unwrap_or(DEFAULT_QUOTA);
    let percent = size.saturating_mul(100).checked_div(of).unwrap_or(100);
    let mebibytes = |bytes: u64| bytes.checked_div(MEBIBYTE).unwrap_or_default();
    let assumed =
        if quota.is_some() { "" } else { ", if it has etcd's own quota: before 3.6 it does not say" };
    let seen = format!("{} of {} MiB are taken ({percent} %){assumed}", mebibytes(size), mebibytes(of));
    let todo = "make room first: `etcdctl compact REVISION`, then `etcdctl defrag --cluster`; or raise `--quota-backend-bytes`";
    match percent {
        FULL.. => Judged::fail(seen, todo),
        FILLING.. => Judged::warn(seen, todo),
        _ => Judged::pass(seen),
    }
}

/// One minor version.
pub fn versions(members: &[Member]) -> Judged {
    one_minor(
        "member",
        statuses(members).map(|status| status.version.as_str()),
        "end the upgrade of etcd first",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    fn member(id: u64) -> Member {
        let status = MemberStatus {
            version: "3.6.16".into(),
            size: 50 * MEBIBYTE,
            leader: 1,
            ..MemberStatus::default()
        };
        Member { id, name: format!("etcd-{id}"), is_learner: false, status: Ok(status) }
    }

    fn down(id: u64) -> Member {
        Member { status: Err("it does not answer at https://192.0.2.3:2379".into()), ..member(id) }
    }

    #[test]
    fn one_member_must_be_to_spare() {
        let verdict = |found: &[Member]| members(found).verdict;
        assert_eq!(verdict(&[member(1)]), Verdict::Pass);
        assert_eq!(verdict(&[member(1), member(2), member(3)]), Verdict::Pass);
        assert_eq!(verdict(&[member(1), member(2), down(3)]), Verdict::Fail, "two of three are the quorum");
        let five = [member(1), member(2), member(3), member(4), down(5)];
        assert_eq!(verdict(&five), Verdict::Warn);
        assert!(
            members(&five)
                .seen
                .contains("4 of 5 voting members are well, the quorum is 3; `etcd-5`: it does not")
        );
        assert_eq!(verdict(&[member(1), member(2)]), Verdict::Warn);
        let learner = Member { is_learner: true, ..member(4) };
        assert_eq!(verdict(&[member(1), member(2), member(3), learner]), Verdict::Warn);
        let mut other = member(3);
        other.status.as_mut().unwrap().leader = 2;
        assert_eq!(verdict(&[member(1), member(2), other]), Verdict::Fail);
        let complaining = |text: &str| {
            let mut found = member(1);
            found.status.as_mut().unwrap().errors = vec![text.to_string()];
            verdict(&[found])
        };
        assert_eq!(complaining("memberID:1 alarm:NOSPACE "), Verdict::Pass, "that is another check's");
        assert_eq!(complaining("etcdserver: no leader"), Verdict::Fail);
    }

    #[test]
    fn alarms_are_told_with_their_members() {
        assert_eq!(alarms(&[member(1)], &[]).verdict, Verdict::Pass);
        let found = alarms(&[member(1)], &[(1, Alarm::NoSpace), (2, Alarm::Corrupt)]);
        assert_eq!(found.verdict, Verdict::Fail);
        assert_eq!(found.seen, "NOSPACE on `etcd-1`, CORRUPT on `2`");
        assert!(found.todo.contains("alarm disarm"));
    }

    #[test]
    fn room_is_measured_against_the_quota() {
        let with = |size: u64, quota: Option<u64>| {
            let mut found = member(1);
            let status = found.status.as_mut().unwrap();
            (status.size, status.quota) = (size * MEBIBYTE, quota.map(|quota| quota * MEBIBYTE));
            space(&[found])
        };
        assert_eq!(with(100, Some(8192)).verdict, Verdict::Pass);
        assert_eq!(with(1300, None).verdict, Verdict::Warn);
        assert!(with(1300, None).seen.contains("63 %), if it has etcd's own quota"));
        assert_eq!(with(820, Some(1024)).verdict, Verdict::Fail);
        assert_eq!(space(&[down(1)]).verdict, Verdict::Unknown);
    }

    #[test]
    fn versions_may_differ_in_the_patch_only() {
        let with = |version: &str| {
            let mut found = member(1);
            found.status.as_mut().unwrap().version = version.to_string();
            found
        };
        assert_eq!(versions(&[with("3.6.16"), with("3.6.14")]).verdict, Verdict::Pass);
        assert_eq!(versions(&[with("3.6.16"), with("3.5.21")]).verdict, Verdict::Fail);
    }
}

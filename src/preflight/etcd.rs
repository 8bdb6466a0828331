//! Checks etcd by the status of its members.

use std::collections::BTreeSet;

use super::{Judged, one_minor};
use crate::store::etcd::{Alarm, Member, MemberStatus};

/// The default quota of etcd (`DefaultQuotaBytes`, server/storage/quota.go, v3.6.16).
const DEFAULT_QUOTA: u64 = 2 * 1024 * 1024 * 1024;
/// Share of the quota in percent at which the check fails. `FILLING` is the share that causes a warning.
const FULL: u64 = 80;
const FILLING: u64 = 60;
const MEBIBYTE: u64 = 1024 * 1024;
/// Number of log entries. A follower that is further behind receives the whole database (`DefaultSnapshotCatchUpEntries`,
/// server/etcdserver/server.go, v3.6.16).
const FAR_BEHIND: u64 = 5000;
/// Growth of etcd in bytes for each moved Service, until etcd is compacted and defragmented, by the kind of hold. Measured: 10
/// KiB (external IP) and 30 KiB (shadow) for each of 426 Services, on etcd 3.6.16 with API servers 1.36.3, between a
/// defragmentation and the end of `retire`.
const AN_EXTERNAL_IP: u64 = 12 * 1024;
const A_SHADOW: u64 = 34 * 1024;
/// Number of writes of the allocation bitmap for each shadow and each batch. API servers write it for the two temporary Services;
/// netsurgeon writes it to free their temporary addresses. On 1.32.2, with a bitmap of 8 KiB, 72 KiB were measured in total.
const BITMAPS: u64 = 4;
/// Overhead of a stored value: its last page, and its key.
const A_PAGE: u64 = 4096;

/// Number and size of the planned writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moves {
    /// Number of Services that are held by an external IP, or not held.
    pub external_ips: usize,
    /// Number of Services that are held by a shadow.
    pub shadows: usize,
    /// Number of batches.
    pub batches: usize,
    /// Length of the allocation bitmap in bytes. `None` if allocations are objects, and under dual write: 30 KiB were measured
    /// there, too.
    pub bitmap: Option<u64>,
}

impl Moves {
    /// Returns the expected growth of etcd in bytes, until etcd is compacted and defragmented.
    pub fn bytes(&self) -> u64 {
        let times = |count: usize, bytes: u64| u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(bytes);
        let bitmap = self.bitmap.map_or(0, |length| length.saturating_add(A_PAGE).saturating_mul(BITMAPS));
        times(self.external_ips, AN_EXTERNAL_IP)
            .saturating_add(times(self.shadows, A_SHADOW))
            .saturating_add(times(self.shadows.saturating_add(self.batches), bitmap))
    }
}

fn name(member: &Member) -> String {
    if member.name.is_empty() { format!("{:x}", member.id) } else { member.name.clone() }
}

fn statuses(members: &[Member]) -> impl Iterator<Item = &MemberStatus> {
    members.iter().filter_map(|member| member.status.as_ref().ok())
}

/// Checks the health of the members. Quorum is more than half of the voting members. Only healthy members beyond the quorum may
/// fail.
pub fn members(members: &[Member]) -> Judged {
    let voting = members.iter().filter(|member| !member.is_learner).count();
    let quorum = voting.checked_div(2).unwrap_or_default().saturating_add(1);
    let ill: Vec<String> = members
        .iter()
        .filter_map(|member| Some(format!("`{}`: {}", name(member), illness(member)?)))
        .collect();
    let voting_ill = members.iter().filter(|member| !member.is_learner && illness(member).is_some()).count();
    let well = voting.saturating_sub(voting_ill);
    let spare = match well.saturating_sub(quorum) {
        0 => "none".to_string(),
        some => some.to_string(),
    };
    let seen = format!("{well} of {voting} voting members are healthy, quorum {quorum}: {spare} may fail");
    if let Some(first) = ill.first() {
        let seen = format!("{seen}; {}", ill.join("; "));
        let remedy = format!("repair or replace it first: {first}");
        // If there are more healthy members than the quorum, this is only a warning.
        return if well > quorum { Judged::warn(seen, remedy) } else { Judged::fail(seen, remedy) };
    }
    let leaders: BTreeSet<u64> = statuses(members).map(|status| status.leader).collect();
    if leaders.len() > 1 {
        let seen = format!("{seen}; they do not agree on the leader");
        return Judged::fail(
            seen,
            "run this check again; if they still disagree, check the network between the members",
        );
    }
    let learners: Vec<String> = members.iter().filter(|member| member.is_learner).map(name).collect();
    if !learners.is_empty() {
        let seen = format!("{seen}; non-voting members: {}", learners.join(", "));
        return Judged::warn(seen, "promote or remove them: complete the membership change first");
    }
    if voting.is_multiple_of(2) {
        return Judged::warn(
            seen,
            "add or remove one: an even number tolerates no more failures than one member fewer, and restarting a control-plane \
             host also stops its member",
        );
    }
    Judged::pass(seen)
}

/// Returns why a member is unhealthy. The errors that it reports include alarms, which a separate check covers, and a missing
/// leader (`Status`, server/etcdserver/api/v3rpc/maintenance.go, v3.6.16).
fn illness(member: &Member) -> Option<String> {
    let status = match &member.status {
        Ok(status) => status,
        Err(reason) => return Some(reason.clone()),
    };
    let complaint = status.errors.iter().find(|error| !error.contains("alarm:"));
    complaint.cloned().or_else(|| (status.leader == 0).then(|| "it has no leader".to_string()))
}

/// Checks the alarms. Every alarm is a failure.
pub fn alarms(members: &[Member], alarms: &[(u64, Alarm)]) -> Judged {
    let of =
        |id: &u64| members.iter().find(|member| member.id == *id).map_or_else(|| format!("{id:x}"), name);
    let Some((_, kind)) = alarms.first() else { return Judged::pass("no alarms") };
    let words = |(id, kind): &(u64, Alarm)| match kind {
        Alarm::NoSpace => format!("NOSPACE on `{}`", of(id)),
        Alarm::Corrupt => format!("CORRUPT on `{}`", of(id)),
    };
    let seen: Vec<String> = alarms.iter().map(words).collect();
    let remedy = match kind {
        Alarm::NoSpace => {
            "make room: `etcdctl compact REVISION`, `etcdctl defrag --cluster`, or a larger `--quota-backend-bytes`; then \
             `etcdctl alarm disarm`"
        }
        Alarm::Corrupt => "replace that member: remove it, delete its data, add it again",
    };
    Judged::fail(seen.join(", "), remedy)
}

/// Compares the largest database with the smallest quota.
pub fn space(members: &[Member]) -> Judged {
    let Some(size) = statuses(members).map(|status| status.size).max() else {
        return Judged::unknown("no member reports its database size", "");
    };
    let quota = statuses(members).filter_map(|status| status.quota).min();
    let of = quota.unwrap_or(DEFAULT_QUOTA);
    let percent = size.saturating_mul(100).checked_div(of).unwrap_or(100);
    let mebibytes = |bytes: u64| bytes.checked_div(MEBIBYTE).unwrap_or_default();
    let assumed = if quota.is_some() {
        ""
    } else {
        ", with etcd's default quota: before 3.6 it does not report its own"
    };
    let seen = format!("{} of {} MiB used ({percent} %){assumed}", mebibytes(size), mebibytes(of));
    let remedy = "make room first: `etcdctl compact REVISION`, then `etcdctl defrag --cluster`; or raise `--quota-backend-bytes`";
    match percent {
        FULL.. => Judged::fail(seen, remedy),
        FILLING.. => Judged::warn(seen, remedy),
        _ => Judged::pass(seen),
    }
}

/// Checks the leader: every round must find the same leader in the same term. There is a pause between the rounds.
pub fn leader(rounds: &[Vec<Member>]) -> Judged {
    let led = |round: &Vec<Member>| -> BTreeSet<(u64, u64)> {
        statuses(round)
            .filter(|status| status.leader != 0)
            .map(|status| (status.term, status.leader))
            .collect()
    };
    let all: BTreeSet<(u64, u64)> = rounds.iter().flat_map(led).collect();
    let Some(last) = rounds.last() else { return Judged::unknown("no member was asked", "") };
    let called = |id: u64| last.iter().find(|member| member.id == id).map_or_else(|| format!("{id:x}"), name);
    let words = |(term, leader): &(u64, u64)| format!("`{}` in term {term}", called(*leader));
    let remedy = "find out why the leader changes: slow disks (`etcd_disk_wal_fsync_duration_seconds`), packet loss between members, or a \
                member without enough CPU";
    match all.iter().collect::<Vec<_>>().as_slice() {
        [] => Judged::fail("no member has a leader", remedy),
        [one] => behind(last, &format!("{}, the same {} times", words(one), rounds.len())),
        more => {
            let seen = more.iter().map(|one| words(one)).collect::<Vec<_>>().join(", then ");
            Judged::fail(format!("the leader changed during the check: {seen}"), remedy)
        }
    }
}

/// Warns about members whose log is far behind: such a member cannot become leader soon.
fn behind(members: &[Member], seen: &str) -> Judged {
    let furthest = statuses(members).map(|status| status.index).max().unwrap_or_default();
    let lag = |member: &Member| {
        let index = member.status.as_ref().ok()?.index;
        let entries = furthest.saturating_sub(index);
        (entries > FAR_BEHIND).then(|| format!("`{}` is {entries} entries behind", name(member)))
    };
    let slow: Vec<String> = members.iter().filter_map(lag).collect();
    if slow.is_empty() {
        return Judged::pass(seen);
    }
    Judged::warn(
        format!("{seen}; {}", slow.join(", ")),
        "wait until it has caught up, and check its disk and its network",
    )
}

/// Checks whether etcd stays below 80 % of its quota after the planned writes. `tracked`: the number of connections that this
/// host tracks, and the maximum.
pub fn room(members: &[Member], moves: &Moves, tracked: Option<(u64, u64)>) -> Judged {
    let Some(size) = statuses(members).map(|status| status.size).max() else {
        return Judged::unknown("no member reports its database size", "");
    };
    let of = statuses(members).filter_map(|status| status.quota).min().unwrap_or(DEFAULT_QUOTA);
    let more = moves.bytes();
    let percent = |part: u64, whole: u64| part.saturating_mul(100).checked_div(whole).unwrap_or(100);
    let mebibytes = more.div_ceil(MEBIBYTE);
    let then = percent(size.saturating_add(more), of);
    let mut seen = format!("needs about {mebibytes} MiB, which fills etcd to {then} %");
    if then >= FULL {
        return Judged::fail(
            seen,
            "make room first: `etcdctl compact REVISION`, then `etcdctl defrag --cluster`; or raise `--quota-backend-bytes`",
        );
    }
    let Some((count, most)) = tracked.filter(|(_, most)| *most > 0) else { return Judged::pass(seen) };
    let full = percent(count, most);
    seen = format!("{seen}; this host's conntrack table is {full} % full");
    if full >= FULL {
        return Judged::warn(
            seen,
            "raise `net.netfilter.nf_conntrack_max`: a full table drops new connections, which would look like a fault of the renumbering",
        );
    }
    Judged::pass(seen)
}

/// Checks whether all members have the same minor version.
pub fn versions(members: &[Member]) -> Judged {
    one_minor(
        "member",
        statuses(members).map(|status| status.version.as_str()),
        "finish the upgrade of etcd first",
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
        Member {
            id,
            name: format!("etcd-{id}"),
            is_learner: false,
            addresses: Vec::new(),
            status: Ok(status),
        }
    }

    fn down(id: u64) -> Member {
        Member { status: Err("it does not answer at https://192.0.2.3:2379".into()), ..member(id) }
    }

    #[test]
    fn quorum_must_survive_one_more_failure() {
        let verdict = |found: &[Member]| members(found).verdict;
        assert_eq!(verdict(&[member(1)]), Verdict::Pass);
        assert_eq!(verdict(&[member(1), member(2), member(3)]), Verdict::Pass);
        assert_eq!(verdict(&[member(1), member(2), down(3)]), Verdict::Fail, "two of three are the quorum");
        let five = [member(1), member(2), member(3), member(4), down(5)];
        assert_eq!(verdict(&five), Verdict::Warn);
        assert!(
            members(&five)
                .observed
                .contains("4 of 5 voting members are healthy, quorum 3: 1 may fail; `etcd-5`: it does not")
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
        assert_eq!(complaining("memberID:1 alarm:NOSPACE "), Verdict::Pass, "another check judges alarms");
        assert_eq!(complaining("etcdserver: no leader"), Verdict::Fail);
    }

    #[test]
    fn alarms_are_reported_with_their_members() {
        assert_eq!(alarms(&[member(1)], &[]).verdict, Verdict::Pass);
        let found = alarms(&[member(1)], &[(1, Alarm::NoSpace), (2, Alarm::Corrupt)]);
        assert_eq!(found.verdict, Verdict::Fail);
        assert_eq!(found.observed, "NOSPACE on `etcd-1`, CORRUPT on `2`");
        assert!(found.remedy.contains("alarm disarm"));
    }

    #[test]
    fn database_size_is_judged_against_the_quota() {
        let with = |size: u64, quota: Option<u64>| {
            let mut found = member(1);
            let status = found.status.as_mut().unwrap();
            (status.size, status.quota) = (size * MEBIBYTE, quota.map(|quota| quota * MEBIBYTE));
            space(&[found])
        };
        assert_eq!(with(100, Some(8192)).verdict, Verdict::Pass);
        assert_eq!(with(1300, None).verdict, Verdict::Warn);
        assert!(with(1300, None).observed.contains("63 %), with etcd's default quota"));
        assert_eq!(with(820, Some(1024)).verdict, Verdict::Fail);
        assert_eq!(space(&[down(1)]).verdict, Verdict::Unknown);
    }

    #[test]
    fn leader_must_be_stable_and_no_member_lag() {
        let round = |leader: u64, term: u64, lag: u64| {
            let mut members = vec![member(1), member(2)];
            for (found, behind) in members.iter_mut().zip([0, lag]) {
                let status = found.status.as_mut().unwrap();
                (status.leader, status.term, status.index) = (leader, term, 100_000 - behind);
            }
            members
        };
        let steady = leader(&[round(1, 4, 0), round(1, 4, 10)]);
        assert_eq!(steady.observed, "`etcd-1` in term 4, the same 2 times");
        assert_eq!(steady.verdict, Verdict::Pass);
        let moved = leader(&[round(1, 4, 0), round(2, 5, 0)]);
        assert_eq!(moved.verdict, Verdict::Fail);
        assert!(
            moved.observed.ends_with("`etcd-1` in term 4, then `etcd-2` in term 5"),
            "{}",
            moved.observed
        );
        assert_eq!(leader(&[round(1, 4, 0), round(1, 5, 0)]).verdict, Verdict::Fail, "elected again");
        assert_eq!(leader(&[round(0, 4, 0)]).verdict, Verdict::Fail);
        let slow = leader(&[round(1, 4, 6000)]);
        assert!(
            slow.verdict == Verdict::Warn && slow.observed.contains("`etcd-2` is 6000 entries behind"),
            "{slow:?}"
        );
    }

    #[test]
    fn planned_writes_must_fit_below_the_quota() {
        let with = |size: u64, moves: usize, tracked: Option<(u64, u64)>| {
            let mut found = member(1);
            let status = found.status.as_mut().unwrap();
            (status.size, status.quota) = (size * MEBIBYTE, Some(1024 * MEBIBYTE));
            room(&[found], &Moves { shadows: moves, batches: 1, ..Moves::default() }, tracked)
        };
        assert_eq!(with(100, 1000, Some((100, 1000))).verdict, Verdict::Pass);
        assert_eq!(with(100, 30_000, None).verdict, Verdict::Fail, "some 1000 MiB more");
        assert_eq!(with(790, 2000, None).verdict, Verdict::Fail, "the planned writes exceed the limit");
        assert_eq!(with(100, 10, Some((900, 1000))).verdict, Verdict::Warn);
        assert_eq!(room(&[down(1)], &Moves::default(), None).verdict, Verdict::Unknown);
    }

    #[test]
    fn bitmap_counts_for_every_shadow_and_every_batch() {
        let moves = Moves { external_ips: 100, shadows: 0, batches: 2, bitmap: None };
        assert_eq!(moves.bytes(), 100 * 12 * 1024);
        let shadows = Moves { external_ips: 0, shadows: 100, ..moves };
        assert_eq!(shadows.bytes(), 100 * 34 * 1024);
        let (small, large) = (Some(8 * 1024), Some(128 * 1024));
        assert_eq!(Moves { bitmap: small, ..moves }.bytes(), moves.bytes() + 2 * 4 * 12 * 1024);
        let with_bitmap = Moves { bitmap: large, ..shadows }.bytes();
        assert_eq!(with_bitmap, shadows.bytes() + 102 * 4 * 132 * 1024, "kubeadm's own range is a /12");
    }

    #[test]
    fn versions_must_have_one_minor_version() {
        let with = |version: &str| {
            let mut found = member(1);
            found.status.as_mut().unwrap().version = version.to_string();
            found
        };
        assert_eq!(versions(&[with("3.6.16"), with("3.6.14")]).verdict, Verdict::Pass);
        assert_eq!(versions(&[with("3.6.16"), with("3.5.21")]).verdict, Verdict::Fail);
    }
}

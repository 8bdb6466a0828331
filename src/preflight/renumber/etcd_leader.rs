//! `etcd-leader`: whether the leader of etcd is stable, and whether a member is far behind.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::sleep;

use super::Renumber;
use crate::inventory::unread;
use crate::preflight::etcd_status::{name, statuses};
use crate::preflight::{Check, Judged, Read, Source};
use crate::store::etcd::Member;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "etcd-leader",
    why: "an unstable leader interrupts writes during the renumbering",
    needs: &[Source::Etcd],
    judge: |input| Box::pin(read(input)),
};

/// Number of rounds, and the pause between two rounds. In each round, every member reports the leader.
const ROUNDS: usize = 3;
const BETWEEN: Duration = Duration::from_millis(500);
/// Number of log entries. If a follower is more than this number of entries behind, the leader sends it the whole database
/// (`DefaultSnapshotCatchUpEntries`, server/etcdserver/server.go, v3.6.16).
const FAR_BEHIND: u64 = 5000;

/// Asks the members for their leader several times, with a pause between two rounds.
async fn read(input: &Renumber) -> Read<Judged> {
    let mut rounds = vec![input.read.members().await?.clone()];
    while rounds.len() < ROUNDS {
        sleep(BETWEEN).await;
        rounds.push(input.read.store()?.bare().members().await.map_err(unread)?);
    }
    Ok(judge(&rounds))
}

/// Checks the leader: every round must find the same leader in the same term.
pub fn judge(rounds: &[Vec<Member>]) -> Judged {
    let led = |round: &Vec<Member>| -> BTreeSet<(u64, u64)> {
        statuses(round)
            .filter(|status| status.leader != 0)
            .map(|status| (status.term, status.leader))
            .collect()
    };
    let all: BTreeSet<(u64, u64)> = rounds.iter().flat_map(led).collect();
    let Some(last) = rounds.last() else { return Judged::unknown("no etcd member was queried", "") };
    let called = |id: u64| last.iter().find(|member| member.id == id).map_or_else(|| format!("{id:x}"), name);
    let words = |(term, leader): &(u64, u64)| format!("`{}` in term {term}", called(*leader));
    let remedy = "find out why the leader changes: slow disks (`etcd_disk_wal_fsync_duration_seconds`), packet loss between members, or a \
                member without enough CPU";
    match all.iter().collect::<Vec<_>>().as_slice() {
        [] => Judged::fail("no member has a leader", remedy),
        [one] => behind(last, &format!("{}, unchanged in {} rounds", words(one), rounds.len())),
        more => {
            let seen = more.iter().map(|one| words(one)).collect::<Vec<_>>().join(", then ");
            Judged::fail(format!("the leader changed during the check: {seen}"), remedy)
        }
    }
}

/// Warns about members with a log that is far behind, because such a member cannot become the leader soon.
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
        "wait until every slow member has caught up, and check its disk and network",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;
    use crate::preflight::etcd_status::testing::member;

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
        let steady = judge(&[round(1, 4, 0), round(1, 4, 10)]);
        assert_eq!(steady.observed, "`etcd-1` in term 4, unchanged in 2 rounds");
        assert_eq!(steady.verdict, Verdict::Pass);
        let moved = judge(&[round(1, 4, 0), round(2, 5, 0)]);
        assert_eq!(moved.verdict, Verdict::Fail);
        assert!(
            moved.observed.ends_with("`etcd-1` in term 4, then `etcd-2` in term 5"),
            "{}",
            moved.observed
        );
        assert_eq!(judge(&[round(1, 4, 0), round(1, 5, 0)]).verdict, Verdict::Fail, "elected again");
        assert_eq!(judge(&[round(0, 4, 0)]).verdict, Verdict::Fail);
        let slow = judge(&[round(1, 4, 6000)]);
        assert!(
            slow.verdict == Verdict::Warn && slow.observed.contains("`etcd-2` is 6000 entries behind"),
            "{slow:?}"
        );
    }
}

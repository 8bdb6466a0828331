//! `etcd-members`: whether etcd keeps its quorum if one more member fails.

use std::collections::BTreeSet;

use crate::inventory::ClusterReader;
use crate::preflight::etcd_status::{name, statuses};
use crate::preflight::{Check, Judged, Source};
use crate::store::etcd::Member;

/// Returns the check. `why`: why the check matters before this change.
pub const fn check<C: AsRef<ClusterReader>>(why: &'static str) -> Check<C> {
    Check {
        name: "etcd-members",
        why,
        needs: &[Source::Etcd],
        judge: |input| Box::pin(async move { Ok(judge(input.as_ref().members().await?)) }),
    }
}

/// Checks the health of the members. The quorum is more than half of the voting members. The number of members that can still
/// fail is the number of healthy voting members minus the quorum.
pub fn judge(members: &[Member]) -> Judged {
    let voting = members.iter().filter(|member| !member.is_learner).count();
    let quorum = voting.checked_div(2).unwrap_or_default().saturating_add(1);
    let ill: Vec<String> = members
        .iter()
        .filter_map(|member| Some(format!("`{}`: {}", name(member), illness(member)?)))
        .collect();
    let voting_ill = members.iter().filter(|member| !member.is_learner && illness(member).is_some()).count();
    let well = voting.saturating_sub(voting_ill);
    let spare = well.saturating_sub(quorum);
    let seen = format!("healthy voting members: {well} of {voting}, quorum {quorum}; {spare} more can fail");
    if let Some(first) = ill.first() {
        let seen = format!("{seen}; {}", ill.join("; "));
        let remedy = format!("repair or replace this member first: {first}");
        // If more members are healthy than the quorum needs, the result is only a warning.
        return if well > quorum { Judged::warn(seen, remedy) } else { Judged::fail(seen, remedy) };
    }
    let leaders: BTreeSet<u64> = statuses(members).map(|status| status.leader).collect();
    if leaders.len() > 1 {
        let seen = format!("{seen}; the members report different leaders");
        return Judged::fail(
            seen,
            "run this check again; if they still report different leaders, check the network between the members",
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
            "add or remove one member: an even number tolerates no more failures than the odd number below it; a restart of a \
             control-plane host also stops its member",
        );
    }
    Judged::pass(seen)
}

/// Returns why a member is unhealthy. The errors that the member reports include a missing leader (`Status`,
/// server/etcdserver/api/v3rpc/maintenance.go, v3.6.16). They also include alarms, which are ignored here because a separate
/// check covers them.
fn illness(member: &Member) -> Option<String> {
    let status = match &member.status {
        Ok(status) => status,
        Err(reason) => return Some(reason.clone()),
    };
    let complaint = status.errors.iter().find(|error| !error.contains("alarm:"));
    complaint.cloned().or_else(|| (status.leader == 0).then(|| "it has no leader".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;
    use crate::preflight::etcd_status::testing::{down, member};

    #[test]
    fn quorum_must_survive_one_more_failure() {
        let verdict = |found: &[Member]| judge(found).verdict;
        assert_eq!(verdict(&[member(1)]), Verdict::Pass);
        assert_eq!(verdict(&[member(1), member(2), member(3)]), Verdict::Pass);
        assert_eq!(verdict(&[member(1), member(2), down(3)]), Verdict::Fail, "two of three are the quorum");
        let five = [member(1), member(2), member(3), member(4), down(5)];
        assert_eq!(verdict(&five), Verdict::Warn);
        assert!(
            judge(&five)
                .observed
                .contains("healthy voting members: 4 of 5, quorum 3; 1 more can fail; `etcd-5`: it does not")
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
}

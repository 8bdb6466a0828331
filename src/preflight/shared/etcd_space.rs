//! `etcd-space`: how full the database of etcd is.

use crate::inventory::ClusterReader;
use crate::preflight::etcd_status::{DEFAULT_QUOTA, FULL, MEBIBYTE, statuses};
use crate::preflight::{Check, Judged, Source};
use crate::store::etcd::Member;

/// Returns the check. `why`: why the check matters before this change.
pub const fn check<C: AsRef<ClusterReader>>(why: &'static str) -> Check<C> {
    Check {
        name: "etcd-space",
        why,
        needs: &[Source::Etcd],
        judge: |input| Box::pin(async move { Ok(judge(input.as_ref().members().await?)) }),
    }
}

/// The check warns if at least this share of the quota is used, in percent.
const FILLING: u64 = 60;

/// Compares the largest database with the smallest quota.
pub fn judge(members: &[Member]) -> Judged {
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
        ", with etcd's default quota: etcd before 3.6 does not report its quota"
    };
    let seen = format!("{} of {} MiB used ({percent} %){assumed}", mebibytes(size), mebibytes(of));
    let remedy = "make room first: `etcdctl compact REVISION`, then `etcdctl defrag --cluster`; or raise `--quota-backend-bytes`";
    match percent {
        FULL.. => Judged::fail(seen, remedy),
        FILLING.. => Judged::warn(seen, remedy),
        _ => Judged::pass(seen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;
    use crate::preflight::etcd_status::testing::{down, member};

    #[test]
    fn database_size_is_judged_against_the_quota() {
        let with = |size: u64, quota: Option<u64>| {
            let mut found = member(1);
            let status = found.status.as_mut().unwrap();
            (status.size, status.quota) = (size * MEBIBYTE, quota.map(|quota| quota * MEBIBYTE));
            judge(&[found])
        };
        assert_eq!(with(100, Some(8192)).verdict, Verdict::Pass);
        assert_eq!(with(1300, None).verdict, Verdict::Warn);
        assert!(with(1300, None).observed.contains("63 %), with etcd's default quota"));
        assert_eq!(with(820, Some(1024)).verdict, Verdict::Fail);
        assert_eq!(judge(&[down(1)]).verdict, Verdict::Unknown);
    }
}

//! `etcd-versions`: whether all etcd members have the same minor version.

use crate::inventory::ClusterReader;
use crate::preflight::etcd_status::statuses;
use crate::preflight::{Check, Judged, Source, one_minor};
use crate::store::etcd::Member;

/// Returns the check. `why`: why the check matters before this change.
pub const fn check<C: AsRef<ClusterReader>>(why: &'static str) -> Check<C> {
    Check {
        name: "etcd-versions",
        why,
        needs: &[Source::Etcd],
        judge: |input| Box::pin(async move { Ok(judge(input.as_ref().members().await?)) }),
    }
}

/// Checks whether all members have the same minor version.
pub fn judge(members: &[Member]) -> Judged {
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
    use crate::preflight::etcd_status::testing::member;

    #[test]
    fn versions_must_have_one_minor_version() {
        let with = |version: &str| {
            let mut found = member(1);
            found.status.as_mut().unwrap().version = version.to_string();
            found
        };
        assert_eq!(judge(&[with("3.6.16"), with("3.6.14")]).verdict, Verdict::Pass);
        assert_eq!(judge(&[with("3.6.16"), with("3.5.21")]).verdict, Verdict::Fail);
    }
}

//! `record-space`: whether the etcd of the cluster has room for the record of the cutover.

use crate::dns::reader::CutoverReader;
use crate::dns::space::record_bytes;
use crate::inventory::unread;
use crate::preflight::etcd_status::{DEFAULT_QUOTA, FULL, MEBIBYTE};
use crate::preflight::{Check, Judged, Read, Source};
use crate::words::counted;

/// The check.
pub const CHECK: Check<CutoverReader> = Check {
    name: "record-space",
    why: "the cutover is recorded in the cluster, and a full etcd accepts no writes of any client",
    needs: &[Source::Api, Source::Mirror],
    judge: |dns| Box::pin(read(dns)),
};

async fn read(dns: &CutoverReader) -> Read<Judged> {
    let names = dns.entries().await?.len();
    let size = dns.read.cluster()?.storage_size().await.map_err(unread)?;
    Ok(judge(size, names))
}

/// Adds the record of a cutover with this number of names to the size of the database. The API does not report the quota, so the
/// check only warns.
fn judge(size: Option<u64>, names: usize) -> Judged {
    let Some(size) = size else {
        return Judged::unknown("the API server has no metric `apiserver_storage_size_bytes`", "");
    };
    let record = record_bytes(names);
    let mebibytes = |bytes: u64| bytes.div_ceil(MEBIBYTE);
    let percent = size.saturating_add(record).saturating_mul(100).checked_div(DEFAULT_QUOTA).unwrap_or(100);
    let observed = format!(
        "etcd uses {} MiB, and the record of {} writes up to {} MiB in total ({percent} % of etcd's default quota)",
        mebibytes(size),
        counted(names, "name", "names"),
        mebibytes(record)
    );
    if percent < FULL {
        return Judged::pass(observed);
    }
    Judged::warn(
        observed,
        "check the quota of etcd (`--quota-backend-bytes`); make room (`etcdctl compact REVISION`, then `etcdctl defrag --cluster`), or cut over fewer names at a time: `--name`, `--names-file`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn record_is_added_to_the_size_of_the_database() {
        assert_eq!(judge(Some(100 * MEBIBYTE), 10).verdict, Verdict::Pass);
        let full = judge(Some(1630 * MEBIBYTE), 1000);
        assert_eq!(full.verdict, Verdict::Warn, "{}", full.observed);
        assert!(full.remedy.contains("`--names-file`"), "{}", full.remedy);
        assert_eq!(judge(None, 10).verdict, Verdict::Unknown);
    }
}

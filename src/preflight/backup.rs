//! Checks whether an existing snapshot of etcd is usable for a restore.

use super::Judged;

/// Facts about a snapshot file and the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Whether the snapshot is of this cluster. `None` if the file or the cluster does not show its identity.
    pub is_its: Option<bool>,
    /// The newest revision in the file.
    pub revision: i64,
    /// The newest revision of the cluster.
    pub newest: i64,
    /// Age of the file in seconds, by its modification time.
    pub age: u64,
    /// Whether the file has a checksum, and the checksum is correct.
    pub has_checksum: bool,
}

/// The largest accepted age, in seconds.
const OLD: u64 = 24 * 60 * 60;
const HOUR: u64 = 60 * 60;
const TAKE_ONE: &str = "take a snapshot: `etcdctl snapshot save FILE`, then `--backup FILE`";

/// Checks a snapshot: it must be of this cluster, complete, and at most a day old.
pub fn judge(backup: &Backup) -> Judged {
    let behind = backup.newest.saturating_sub(backup.revision);
    let hours = backup.age.checked_div(HOUR).unwrap_or_default();
    let seen = format!("revision {}, {behind} behind the cluster, written {hours} h ago", backup.revision);
    match backup.is_its {
        Some(true) => {}
        Some(false) => return Judged::fail("the snapshot belongs to another cluster", TAKE_ONE),
        None => return Judged::fail("the snapshot does not show to which cluster it belongs", TAKE_ONE),
    }
    if behind < 0 {
        return Judged::fail(
            format!("{seen}: it is newer than the cluster"),
            "find out whether etcd was restored from an older snapshot; then take a new one: `etcdctl snapshot save FILE`",
        );
    }
    if backup.age > OLD {
        return Judged::warn(seen, TAKE_ONE);
    }
    if !backup.has_checksum {
        let seen = format!("{seen}; it has no checksum, so netsurgeon cannot detect a changed byte");
        return Judged::warn(seen, TAKE_ONE);
    }
    Judged::pass(seen)
}

/// Returns the result if no snapshot is given.
pub fn none() -> Judged {
    Judged::warn("no snapshot given; `renumber apply --snapshot-to FILE` takes one and verifies it", TAKE_ONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn snapshot_must_be_complete_recent_and_of_this_cluster() {
        let good =
            Backup { is_its: Some(true), revision: 90, newest: 100, age: 2 * HOUR, has_checksum: true };
        assert_eq!(judge(&good).observed, "revision 90, 10 behind the cluster, written 2 h ago");
        let verdict = |backup: Backup| judge(&backup).verdict;
        assert_eq!(verdict(good.clone()), Verdict::Pass);
        assert_eq!(verdict(Backup { age: 25 * HOUR, ..good.clone() }), Verdict::Warn);
        assert_eq!(verdict(Backup { has_checksum: false, ..good.clone() }), Verdict::Warn);
        assert_eq!(verdict(Backup { is_its: Some(false), ..good.clone() }), Verdict::Fail);
        assert_eq!(verdict(Backup { is_its: None, ..good.clone() }), Verdict::Fail);
        assert_eq!(verdict(Backup { newest: 80, ..good }), Verdict::Fail);
        assert_eq!(none().verdict, Verdict::Warn);
    }
}

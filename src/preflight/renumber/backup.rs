//! `backup`: whether the given snapshot of etcd can be used for a restore.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tokio::task::spawn_blocking;

use super::Renumber;
use crate::inventory::unread;
use crate::preflight::{Check, Judged, Read, Source};
use crate::session::Failure;
use crate::store::seal::Sealed;
use crate::store::snapshot::SnapshotStore;
use crate::store::{KeyRange, ReadStore as _};
use crate::survey::Survey;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "backup",
    why: "a complete, recent snapshot of this cluster is the last resort for a rollback",
    needs: &[Source::Etcd],
    judge: |input| Box::pin(read(input)),
};

/// The largest accepted age of a snapshot, in seconds.
const OLD: u64 = 24 * 60 * 60;
const HOUR: u64 = 60 * 60;
const TAKE_ONE: &str = "save a snapshot with `etcdctl snapshot save FILE`, then give it with `--backup FILE`";

/// Opens the given snapshot, and compares it with etcd.
async fn read(input: &Renumber) -> Read<Judged> {
    let Some(path) = &input.backup else { return Ok(none()) };
    let newest = input.read.store()?.revision().await.map_err(unread)?.0;
    let own = Survey::identity(input.read.store()?, &input.read.layout).await.map_err(unread)?;
    let broken = |failure: Failure| {
        Judged::fail(format!("{:#}", failure.error), "take a new one: `etcdctl snapshot save FILE`")
    };
    let scope = [KeyRange::exact(&input.read.layout.kube_system())];
    let snapshot = open(path.clone(), scope).await.map_err(broken)?;
    let snapshot = Sealed::new(snapshot, input.read.store()?.seal().cloned());
    let of = Survey::identity(&snapshot, &input.read.layout).await.map_err(|error| broken(error.into()))?;
    let is_its = own.zip(of).map(|(own, of)| own == of);
    let (revision, age) = (snapshot.bare().newest_revision().0, age(path).map_err(unread)?);
    Ok(judge(is_its, revision, newest, age, snapshot.bare().has_checksum()))
}

/// Opens the snapshot and reads the whole file. This runs on a thread for blocking work.
async fn open(path: PathBuf, scope: [KeyRange; 1]) -> Result<SnapshotStore, Failure> {
    match spawn_blocking(move || SnapshotStore::open(&path, &scope)).await {
        Ok(opened) => Ok(opened?),
        Err(error) => Err(Failure::refused(error.to_string())),
    }
}

/// Returns the time since a file was written, in seconds.
fn age(path: &Path) -> std::io::Result<u64> {
    let written = std::fs::metadata(path)?.modified()?;
    Ok(SystemTime::now().duration_since(written).unwrap_or_default().as_secs())
}

/// Checks a snapshot: it must belong to this cluster, be complete, and be at most a day old. `is_its`: whether the snapshot
/// belongs to this cluster; `None` if the identity of the file or of the cluster is unknown. `revision`: newest revision in the
/// file. `newest`: newest revision in the cluster. `age`: age of the file in seconds, according to its modification time.
/// `has_checksum`: whether the file has a correct checksum.
fn judge(is_its: Option<bool>, revision: i64, newest: i64, age: u64, has_checksum: bool) -> Judged {
    let behind = newest.saturating_sub(revision);
    let hours = age.checked_div(HOUR).unwrap_or_default();
    let seen = format!("written {hours} h ago at revision {revision}; the cluster is at revision {newest}");
    match is_its {
        Some(true) => {}
        Some(false) => return Judged::fail("the snapshot belongs to another cluster", TAKE_ONE),
        None => return Judged::fail("the snapshot does not identify its cluster", TAKE_ONE),
    }
    if behind < 0 {
        return Judged::fail(
            format!("{seen}: the snapshot is newer than the cluster"),
            "find out whether etcd was restored from an older snapshot; then take a new one: `etcdctl snapshot save FILE`",
        );
    }
    if age > OLD {
        return Judged::warn(seen, TAKE_ONE);
    }
    if !has_checksum {
        let seen = format!("{seen}; the file has no checksum, so netsurgeon cannot detect damage");
        return Judged::warn(seen, TAKE_ONE);
    }
    Judged::pass(seen)
}

/// Returns the result if no snapshot is given.
fn none() -> Judged {
    Judged::warn(
        "no snapshot given; `renumber apply --snapshot-to FILE` saves a snapshot and verifies it",
        TAKE_ONE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn snapshot_must_be_complete_recent_and_of_this_cluster() {
        let judged = |is_its, newest, age, has_checksum| judge(is_its, 90, newest, age, has_checksum);
        let good = judged(Some(true), 100, 2 * HOUR, true);
        assert_eq!(good.observed, "written 2 h ago at revision 90; the cluster is at revision 100");
        assert_eq!(good.verdict, Verdict::Pass);
        assert_eq!(judged(Some(true), 100, 25 * HOUR, true).verdict, Verdict::Warn);
        assert_eq!(judged(Some(true), 100, 2 * HOUR, false).verdict, Verdict::Warn);
        assert_eq!(judged(Some(false), 100, 2 * HOUR, true).verdict, Verdict::Fail);
        assert_eq!(judged(None, 100, 2 * HOUR, true).verdict, Verdict::Fail);
        assert_eq!(judged(Some(true), 80, 2 * HOUR, true).verdict, Verdict::Fail);
        assert_eq!(none().verdict, Verdict::Warn);
    }
}

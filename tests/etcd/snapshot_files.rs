//! Files that real servers wrote, read by this crate's reader: they must hold what the server reports.

use std::path::Path;

use netsurgeon::store::etcd::{EtcdOptions, EtcdStore};
use netsurgeon::store::memory::MemoryStore;
use netsurgeon::store::snapshot::SnapshotStore;
use netsurgeon::store::{KeyRange, Revision, StoreError, WriteStore};

use crate::contract::{self, create, everything, remove, scan, transaction};
use crate::rig::etcd::{Etcd, EtcdOptions as Server, EtcdVersion};
use crate::rig::process::run;
use crate::rig::programs::{ETCD_VERSION, built};

fn open(path: &Path) -> SnapshotStore {
    SnapshotStore::open(path, &[KeyRange::everything()]).expect("a good file")
}

/// Asserts that a file holds what the model holds, from the compacted revision on.
async fn assert_file_is(model: &MemoryStore, file: &SnapshotStore, revisions: &[Revision], oldest: usize) {
    let (gone, kept) = revisions.split_at(oldest);
    assert_eq!(file.newest_revision(), *kept.last().expect("revisions"));
    contract::assert_same(model, file, kept).await;
    contract::check_reads(file).await;
    for revision in gone.iter().filter(|_| oldest > 0) {
        let outcome = scan(file, &[KeyRange::everything()], Some(*revision)).await;
        let expected = kept[0];
        assert!(
            matches!(outcome, Err(StoreError::Compacted { oldest, .. }) if oldest == expected),
            "{outcome:?}"
        );
    }
}

/// `etcdutl snapshot restore --bump-revision`, which the documentation of Kubernetes recommends, leaves a revision without a
/// record and marks everything before it as compacted.
async fn restored_with_a_bumped_revision(saved: &Path, model: &MemoryStore, revisions: &[Revision]) {
    let directory = saved.parent().expect("a directory").join("restored");
    let data = directory.to_string_lossy().into_owned();
    let saved = saved.to_string_lossy().into_owned();
    let program = built(&format!("etcd-{ETCD_VERSION}/etcdutl"));
    let bump = ["--bump-revision=1000", "--mark-compacted"];
    let arguments =
        [&["snapshot", "restore", saved.as_str(), "--data-dir", data.as_str()][..], &bump].concat();
    run(&program, &arguments, &[]);
    let file = open(&directory.join("member/snap/db"));
    let last = *revisions.last().expect("revisions");
    assert_eq!(file.newest_revision(), Revision(last.0 + 1000));
    assert_eq!(file.oldest_revision(), file.newest_revision());
    assert!(everything(&file, None).await == everything(model, Some(last)).await);
}

async fn files_of(version: EtcdVersion) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut etcd = Etcd::start(Server { version, ..Server::default() }).await;
    let store = EtcdStore::connect(EtcdOptions::new([etcd.endpoint()])).await.expect("a connection");
    let model = MemoryStore::new();
    let revisions = contract::write_history(&store).await;
    assert_eq!(contract::write_history(&model).await, revisions);
    contract::assert_same(&model, &store, &revisions).await;

    let saved = directory.path().join("whole.db");
    etcd.snapshot(&saved);
    let file = open(&saved);
    assert!(file.has_checksum());
    assert_file_is(&model, &file, &revisions, 0).await;

    restored_with_a_bumped_revision(&saved, &model, &revisions).await;

    etcd.etcdctl(&["compact", "--physical=true", &revisions[17].to_string()]);
    let saved = directory.path().join("compacted.db");
    etcd.snapshot(&saved);
    let compacted = open(&saved);
    assert!(compacted.revision_count() < file.revision_count());
    assert_file_is(&model, &compacted, &revisions, 17).await;

    // A server that shuts down cleanly has written everything to its database.
    etcd.stop();
    let raw = open(&etcd.data().join("member/snap/db"));
    assert!(!raw.has_checksum());
    assert_file_is(&model, &raw, &revisions, 17).await;
}

#[tokio::test]
async fn files_of_current_version_equal_the_server() {
    files_of(EtcdVersion::Current).await;
}

#[tokio::test]
async fn files_of_version_3_4_equal_the_server() {
    files_of(EtcdVersion::Debian).await;
}

/// Thousands of keys with names and values of many lengths: branches, overflow pages, several levels.
#[tokio::test]
async fn large_tree_is_read() {
    for version in [EtcdVersion::Current, EtcdVersion::Debian] {
        let directory = tempfile::tempdir().expect("a directory");
        let etcd = Etcd::start(Server { version, ..Server::default() }).await;
        let store = EtcdStore::connect(EtcdOptions::new([etcd.endpoint()])).await.expect("a connection");
        for group in 0..80_usize {
            let changes: Vec<_> = (0..100_usize)
                .map(|number| {
                    let key = format!("/{}/{group}/{number}", "p".repeat(number % 90));
                    create(&key, &"v".repeat((group * number * 13) % 3000))
                })
                .collect();
            let at = store.commit(&transaction(changes.clone())).await.expect("a commit");
            let gone: Vec<_> =
                changes.iter().step_by(9).map(|change| remove(&change.key.to_string(), at)).collect();
            store.commit(&transaction(gone)).await.expect("a commit");
        }
        let saved = directory.path().join("large.db");
        etcd.snapshot(&saved);
        let file = open(&saved);
        assert!(everything(&file, None).await == everything(&store, None).await);
        let middle = Revision(file.newest_revision().0 / 2);
        assert!(everything(&file, Some(middle)).await == everything(&store, Some(middle)).await);
        let narrow = SnapshotStore::open(&saved, &[KeyRange::prefix("/ppp/")]).expect("a good file");
        let range = [KeyRange::prefix("/ppp/")];
        let (_, found) = scan(&narrow, &range, None).await.expect("a scan");
        assert!(found == scan(&store, &range, None).await.expect("a scan").1);
        assert_eq!(found.len(), narrow.key_count());
    }
}

/// The file of a server without any key, and of one whose only keys were deleted and compacted.
#[tokio::test]
async fn empty_keyspaces_are_read() {
    for version in [EtcdVersion::Current, EtcdVersion::Debian] {
        let directory = tempfile::tempdir().expect("a directory");
        let etcd = Etcd::start(Server { version, ..Server::default() }).await;
        let saved = directory.path().join("empty.db");
        etcd.snapshot(&saved);
        let file = open(&saved);
        assert_eq!((file.newest_revision(), file.key_count(), file.revision_count()), (Revision(1), 0, 0));
        assert!(everything(&file, None).await.is_empty());

        let store = EtcdStore::connect(EtcdOptions::new([etcd.endpoint()])).await.expect("a connection");
        let at = store.commit(&transaction([create("/a", "1")])).await.expect("a commit");
        let at = store.commit(&transaction([remove("/a", at)])).await.expect("a commit");
        etcd.etcdctl(&["compact", "--physical=true", &at.to_string()]);
        let saved = directory.path().join("emptied.db");
        etcd.snapshot(&saved);
        let file = open(&saved);
        assert_eq!((file.newest_revision(), file.key_count()), (at, 0));
    }
}

/// A server that was killed: its database holds a revision that it had, whichever was written last.
#[tokio::test]
async fn database_of_killed_server_is_read() {
    let mut etcd = Etcd::start(Server::default()).await;
    let store = EtcdStore::connect(EtcdOptions::new([etcd.endpoint()])).await.expect("a connection");
    let model = MemoryStore::new();
    let revisions = contract::write_history(&store).await;
    contract::write_history(&model).await;
    etcd.kill();
    let file = open(&etcd.data().join("member/snap/db"));
    let newest = file.newest_revision();
    assert!(newest == Revision(1) || revisions.contains(&newest));
    if newest > Revision(1) {
        contract::assert_same(&model, &file, &[newest]).await;
    }
}

/// The snapshot that an operation saves before its first write: complete, readable only for its owner, and never over another
/// file.
async fn taken_from(version: EtcdVersion) {
    let directory = tempfile::tempdir().expect("a directory");
    let etcd = Etcd::start(Server { version, ..Server::default() }).await;
    let store = EtcdStore::connect(EtcdOptions::new([etcd.endpoint()])).await.expect("a connection");
    let model = MemoryStore::new();
    let revisions = contract::write_history(&store).await;
    contract::write_history(&model).await;
    let path = directory.path().join("before.db");
    let backup = store.save_snapshot(&path).await.expect("a snapshot");
    assert_eq!(backup.revision, *revisions.last().expect("revisions"));
    assert_eq!(backup.size, std::fs::metadata(&path).expect("the file").len());
    assert_file_is(&model, &open(&path), &revisions, 0).await;
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).expect("a file").permissions());
    assert_eq!(mode & 0o777, 0o600);
    let saved = std::fs::read(&path).expect("the file");
    let again = store.save_snapshot(&path).await;
    assert!(matches!(again, Err(StoreError::Write { .. })), "{again:?}");
    assert_eq!(std::fs::read(&path).expect("the file"), saved);
    let nowhere = store.save_snapshot(&directory.path().join("absent/before.db")).await;
    assert!(matches!(nowhere, Err(StoreError::Write { .. })), "{nowhere:?}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 1, "nothing else is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_of_current_version_is_saved() {
    taken_from(EtcdVersion::Current).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_of_debian_version_is_saved() {
    taken_from(EtcdVersion::Debian).await;
}

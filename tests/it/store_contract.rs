//! The contract of a store, for the stores that need no server. The tier `etcd` tests the live one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use netsurgeon::store::lease::LeaseStore;
use netsurgeon::store::memory::MemoryStore;
use netsurgeon::store::overlay::Overlay;
use netsurgeon::store::seal::{Seal, SealError, Sealed};
use netsurgeon::store::snapshot::SnapshotStore;
use netsurgeon::store::{KeyRange, ReadStore, Revision, StoreError};

use crate::contract;

/// A snapshot that `etcdctl snapshot save` made of an API server's store.
fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

fn snapshot(scope: &[KeyRange]) -> SnapshotStore {
    SnapshotStore::open(&testdata("objects.snapshot.db"), scope).expect("a good snapshot")
}

#[tokio::test]
async fn memory_store_fulfils_contract() {
    contract::check_writes(&MemoryStore::new()).await;
}

#[tokio::test]
async fn leases_in_memory_store_expire() {
    let store = MemoryStore::new();
    contract::check_leases(&store).await;
    let second = Duration::from_secs(1);
    let (short, long) = (store.grant(second * 2).await.unwrap(), store.grant(second * 3).await.unwrap());
    for (lease, key) in [(short, "/short"), (short, "/short/too"), (long, "/long")] {
        store.create(&key.into(), b"1", lease.lease).await.expect("a creation");
    }
    let before = store.revision().await.expect("a revision");
    store.advance(second);
    assert!(store.keep_alive(long.lease, second).await.expect("an answer"));
    store.advance(second);
    assert_eq!(store.revision().await.expect("a revision"), Revision(before.0 + 1), "at one revision");
    let left: Vec<_> = contract::everything(&store, None).await.into_iter().map(|entry| entry.key).collect();
    assert_eq!(left, ["/long".into()]);
    assert_eq!(store.time_left(long.lease).await.expect("an answer"), Some(second * 2));
}

#[tokio::test]
async fn memory_store_from_entries_fulfils_contract() {
    let entries = contract::everything(&snapshot(&[KeyRange::everything()]), None).await;
    let store = MemoryStore::from_entries(entries.clone());
    assert_eq!(contract::everything(&store, None).await, entries);
    contract::check_writes(&store).await;
}

#[tokio::test]
async fn overlay_over_memory_store_fulfils_contract() {
    let base = Arc::new(MemoryStore::new());
    contract::write_history(base.as_ref()).await;
    let overlay = Overlay::new(base.clone()).await.expect("an overlay");
    let before = contract::everything(base.as_ref(), None).await;
    contract::check_writes(&overlay).await;
    assert_eq!(contract::everything(base.as_ref(), None).await, before, "the base is as it was");
}

#[tokio::test]
async fn overlay_over_snapshot_fulfils_contract() {
    let base = Arc::new(snapshot(&[KeyRange::everything()]));
    contract::check_writes(&Overlay::new(base).await.expect("an overlay")).await;
}

#[tokio::test]
async fn overlay_over_overlay_fulfils_contract() {
    let base = Arc::new(Overlay::new(Arc::new(MemoryStore::new())).await.expect("an overlay"));
    contract::check_writes(&Overlay::new(base).await.expect("an overlay")).await;
}

#[tokio::test]
async fn snapshot_fulfils_read_contract_with_any_scope() {
    let whole = snapshot(&[KeyRange::everything()]);
    contract::check_reads(&whole).await;
    for scope in [vec![], vec![KeyRange::prefix("/registry/services/")]] {
        let narrow = snapshot(&scope);
        assert!(narrow.key_count() < whole.key_count());
        contract::check_reads(&narrow).await;
        let all = contract::everything(&whole, None).await;
        assert_eq!(contract::everything(&narrow, None).await, all, "outside the scope, too");
    }
}

#[tokio::test]
async fn overlay_history_equals_that_of_plain_store() {
    let model = MemoryStore::new();
    let overlay = Overlay::new(Arc::new(MemoryStore::new())).await.expect("an overlay");
    let revisions = contract::write_history(&model).await;
    assert_eq!(contract::write_history(&overlay).await, revisions);
    contract::assert_same(&model, &overlay, &revisions).await;
}

#[tokio::test]
async fn overlay_reads_its_base_at_one_revision() {
    let base = Arc::new(MemoryStore::new());
    contract::write_history(base.as_ref()).await;
    let overlay = Overlay::new(base.clone()).await.expect("an overlay");
    let before = contract::everything(&overlay, None).await;
    contract::check_writes(base.as_ref()).await;
    assert_eq!(contract::everything(&overlay, None).await, before, "writes of other clients are not visible");
    let own = contract::transaction([contract::create("/own", "1")]);
    let revision = netsurgeon::store::WriteStore::commit(&overlay, &own).await.expect("a commit");
    assert_eq!(revision.0, overlay.base_revision().0 + 1);
    let changed: Vec<_> = overlay.changes().into_iter().map(|change| change.key).collect();
    assert_eq!(changed, ["/own".into()]);
    base.compact(base.revision().await.expect("a revision")).expect("a compaction");
    let outcome = contract::scan(&overlay, &[KeyRange::everything()], None).await;
    assert!(matches!(outcome, Err(StoreError::Compacted { .. })), "{outcome:?}");
}

#[tokio::test]
async fn memory_store_forgets_only_compacted_revisions() {
    let (whole, compacted) = (MemoryStore::new(), MemoryStore::new());
    let revisions = contract::write_history(&whole).await;
    contract::write_history(&compacted).await;
    let (gone, kept) = revisions.split_at(25);
    compacted.compact(kept[0]).expect("a compaction");
    contract::assert_same(&whole, &compacted, kept).await;
    for revision in gone {
        let outcome = contract::scan(&compacted, &[KeyRange::everything()], Some(*revision)).await;
        let expected = kept[0];
        assert!(matches!(outcome, Err(StoreError::Compacted { oldest, .. }) if oldest == expected));
    }
    let outcome = compacted.compact(Revision(3));
    assert!(matches!(outcome, Err(StoreError::Compacted { .. })), "{outcome:?}");
}

/// Inverts every byte.
struct Turned;

impl Seal for Turned {
    fn open(&self, _: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>, SealError> {
        Ok(Some(value.iter().map(|byte| !byte).collect()))
    }

    fn seal(&self, key: &[u8], plain: &[u8]) -> Result<Option<Vec<u8>>, SealError> {
        self.open(key, plain)
    }
}

#[tokio::test]
async fn sealed_store_fulfils_contract_without_plain_values() {
    let sealed = Sealed::new(MemoryStore::new(), Some(Arc::new(Turned)));
    contract::check_writes(&sealed).await;
    let (above, below) =
        (contract::everything(&sealed, None).await, contract::everything(sealed.bare(), None).await);
    assert!(!above.is_empty() && above.len() == below.len());
    for (above, below) in above.iter().zip(&below) {
        assert_eq!((&above.key, above.mod_revision), (&below.key, below.mod_revision));
        assert_eq!(Turned.open(b"", &below.value).unwrap().as_ref(), Some(&above.value));
    }
    contract::check_writes(&Sealed::new(MemoryStore::new(), None)).await;
}

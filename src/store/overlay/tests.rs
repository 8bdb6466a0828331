//! Tests of the overlay. They compare the overlay with the memory store. Other tests compare the memory store with a model.

use proptest::prelude::*;

use super::*;
use crate::store::memory::MemoryStore;
use crate::store::random_transactions::{build, everything, histories, run};

proptest! {
    /// Runs the first part of a history on a memory store, and the rest on an overlay above this store. Results, revisions and
    /// keys must be the same as for the whole history on one memory store.
    #[test]
    fn overlay_behaves_like_the_base(history in histories(), cut in 0..25_usize) {
        run(async {
            let whole = MemoryStore::new();
            let base = Arc::new(MemoryStore::new());
            let (below, above) = history.split_at(cut.min(history.len()));
            for wishes in below {
                let now = everything(&whole, whole.revision().await.unwrap()).await;
                let transaction = build(wishes, |key| now.iter().find(|entry| entry.key == *key).cloned());
                let outcome = format!("{:?}", whole.commit(&transaction).await);
                assert_eq!(format!("{:?}", base.commit(&transaction).await), outcome);
            }
            let overlay = Overlay::new(base.clone()).await.unwrap();
            for wishes in above {
                let now = everything(&whole, whole.revision().await.unwrap()).await;
                let transaction = build(wishes, |key| now.iter().find(|entry| entry.key == *key).cloned());
                let outcome = format!("{:?}", whole.commit(&transaction).await);
                assert_eq!(format!("{:?}", overlay.commit(&transaction).await), outcome);
            }
            let newest = whole.revision().await.unwrap();
            assert_eq!(overlay.revision().await.unwrap(), newest);
            for revision in (1..=newest.0).map(Revision) {
                assert_eq!(everything(&overlay, revision).await, everything(&whole, revision).await);
            }
            for entry in everything(&whole, newest).await {
                assert_eq!(overlay.get(&entry.key).await.unwrap().as_ref(), Some(&entry));
            }
            check_changes(&overlay, &base, &whole).await;
        });
    }
}

/// Checks that the listed changes are exactly the differences from the base.
async fn check_changes(overlay: &Overlay, base: &MemoryStore, whole: &MemoryStore) {
    let mut changed = Vec::new();
    for change in overlay.changes() {
        assert_eq!(whole.get(&change.key).await.unwrap(), change.entry);
        changed.push(change.key);
    }
    assert!(changed.is_sorted());
    for number in 0..7 {
        let key = Key::from(format!("/k/{number}"));
        let same = base.get(&key).await.unwrap() == whole.get(&key).await.unwrap();
        assert!(same || changed.contains(&key), "{key} is not listed");
    }
}

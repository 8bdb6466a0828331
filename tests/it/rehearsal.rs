//! The whole operation on snapshots of real clusters, one of every storage era and encoding.

use std::path::PathBuf;
use std::sync::Arc;

use netsurgeon::operation::{Silent, SystemAmbient};
use netsurgeon::renumber::rehearse::{Rollback, scope};
use netsurgeon::renumber::{PlanOptions, Rehearsal, rehearse};
use netsurgeon::store::ReadStore;
use netsurgeon::store::snapshot::SnapshotStore;
use netsurgeon::survey::Layout;

fn fixture(name: &str) -> Arc<dyn ReadStore> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/{name}.snapshot.db"));
    Arc::new(SnapshotStore::open(&path, &scope(&Layout::default())).unwrap())
}

fn options(to: &str, batch_size: usize) -> PlanOptions {
    PlanOptions { batch_size, ..PlanOptions::new(to.parse().unwrap()) }
}

async fn run(name: &str, to: &str, batch_size: usize) -> Rehearsal {
    let (plan, rehearsal) =
        rehearse(fixture(name), &Layout::default(), &options(to, batch_size), &SystemAmbient, &mut Silent)
            .await
            .unwrap_or_else(|error| panic!("{name} to {to}: {error}"));
    assert_eq!(plan.work.moves.len(), rehearsal.moved);
    let batches = plan.work.batches();
    assert!(batches.iter().all(|batch| (1..=batch_size).contains(&batch.len())), "{batches:?}");
    assert!(batches.into_iter().flatten().eq(0..rehearsal.moved), "every Service is in one batch");
    rehearsal
}

#[tokio::test]
async fn every_era_and_encoding_is_moved_retired_and_rolled_back() {
    for (name, to) in [
        ("objects", "10.200.0.0/16"),
        ("dualwrite", "10.200.0.0/16"),
        ("bitmap", "10.200.0.0/16"),
        ("json", "10.200.0.0/16"),
        ("dualstack", "10.200.0.0/16"),
        ("dualstack", "fd00:200::/112"),
        ("objects", "10.200.0.0/25"),
        ("bitmap", "10.200.0.0/25"),
    ] {
        for batch_size in [1, 7, 1000] {
            let rehearsal = run(name, to, batch_size).await;
            let context = format!("{name} to {to} in batches of {batch_size}: {rehearsal:#?}");
            assert_eq!(rehearsal.rollback, Rollback::Identical, "{context}");
            assert!(rehearsal.succeeded(), "{context}");
            assert_eq!(rehearsal.findings_after, Vec::new(), "{context}");
            assert!(rehearsal.moved > 20 || name == "dualstack", "{context}");
            assert_eq!(rehearsal.services, rehearsal.moved + rehearsal.skipped, "{context}");
        }
    }
}

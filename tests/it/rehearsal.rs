//! The whole operation on snapshots of real clusters, one of every storage era and encoding.

use std::path::PathBuf;
use std::sync::Arc;

use netsurgeon::operation::{Silent, SystemAmbient};
use netsurgeon::renumber::rehearse::{Rollback, scope};
use netsurgeon::renumber::{Hold, Move, PlanOptions, Rehearsal, rehearse};
use netsurgeon::store::ReadStore;
use netsurgeon::store::snapshot::SnapshotStore;
use netsurgeon::survey::{Finding, Layout};

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

/// Ranges that share addresses with the old one, `10.96.0.0/16`. Services that stay get no write.
#[tokio::test]
async fn ranges_grow_shrink_and_shift_in_place() {
    for (name, to) in [
        ("objects", "10.96.0.0/15"),
        ("dualwrite", "10.96.0.0/15"),
        ("bitmap", "10.96.0.0/15"),
        ("json", "10.96.0.0/12"),
        ("objects", "10.64.0.0/10"),
        ("dualstack", "10.96.0.0/14"),
        ("dualstack", "fd00:10:96::/108"),
        ("objects", "10.96.0.0/24"),
        ("dualwrite", "10.96.0.0/24"),
        ("bitmap", "10.96.0.0/24"),
        ("objects", "10.96.128.0/17"),
        ("dualwrite", "10.96.128.0/17"),
        ("bitmap", "10.96.128.0/17"),
        ("dualstack", "fd00:10:96::8000/113"),
    ] {
        for (move_all, hold) in [(false, None), (true, None), (false, Some(Hold::Shadow))] {
            let options = PlanOptions { move_all, hold, ..options(to, 5) };
            let context = format!("{name} to {to}, move_all {move_all}, hold {hold:?}");
            let (plan, rehearsal) =
                rehearse(fixture(name), &Layout::default(), &options, &SystemAmbient, &mut Silent)
                    .await
                    .unwrap_or_else(|error| panic!("{context}: {error}"));
            let context = format!("{context}: {rehearsal:#?}");
            assert!(rehearsal.succeeded(), "{context}");
            // The ServiceCIDR of the old range is still there, because only a live run deletes it.
            let has_found = |finding: &&Finding| finding.code != "ranges-overlap";
            assert_eq!(rehearsal.findings_after.iter().find(has_found), None, "{context}");
            assert_eq!(rehearsal.services, rehearsal.moved + rehearsal.skipped, "{context}");
            let stays = |candidate: &Move| options.to.contains(candidate.old_address);
            let staying = plan.work.moves.iter().filter(|moved| stays(moved) && moved.turn.is_any()).count();
            assert!(move_all || staying == 0, "{context}");
            assert!(plan.work.moves.iter().all(|moved| options.to.contains(moved.new_address)), "{context}");
        }
    }
}

/// Growth on the same base changes no Service: only the range, in bitmap, flag and ConfigMap.
#[tokio::test]
async fn growth_moves_nothing() {
    for name in ["objects", "dualwrite", "bitmap"] {
        let rehearsal = run(name, "10.96.0.0/15", 50).await;
        assert_eq!((rehearsal.moved, rehearsal.batches, rehearsal.waits), (0, 0, 0), "{rehearsal:#?}");
        assert!(rehearsal.steps < 14, "{rehearsal:#?}");
        let external: Vec<&str> = rehearsal.external.iter().map(|outside| outside.what.as_str()).collect();
        assert!(external.iter().any(|what| what.contains("set-range --to 10.96.0.0/15")), "{external:#?}");
        assert!(
            !external.iter().any(|what| what.contains("certs") || what.contains("restart Pods")),
            "{external:#?}"
        );
    }
}

async fn refused(name: &str, to: &str) -> String {
    let options = options(to, 50);
    let planned = rehearse(fixture(name), &Layout::default(), &options, &SystemAmbient, &mut Silent).await;
    planned.map(|(plan, _)| plan.work.moves.len()).unwrap_err().to_string()
}

#[tokio::test]
async fn ranges_without_room_and_the_same_range_are_refused() {
    for name in ["objects", "dualwrite", "bitmap"] {
        let same = refused(name, "10.96.0.0/16").await;
        assert_eq!(same, "the cluster's IPv4 Service range is already `10.96.0.0/16`");
        let small = refused(name, "10.96.0.0/28").await;
        assert!(small.contains("too few addresses"), "{small}");
    }
}

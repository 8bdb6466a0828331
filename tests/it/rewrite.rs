//! The rewrite of a RangeAllocation as an operation: stopped at each write, resumed, rolled back, done twice, undone twice.

use std::sync::Arc;

use netsurgeon::operation::{
    EtcdRecord, Journal, LeaseHolder, Listed, OperationError, Plan, Report, Status, Summary,
};
use netsurgeon::renumber::rewrite::run::Rewriting;
use netsurgeon::renumber::rewrite::{RangeRewrite, plan_rewrite, wanted_meanwhile};
use netsurgeon::session::Recorded;
use netsurgeon::store::memory::MemoryStore;
use netsurgeon::store::overlay::Overlay;
use netsurgeon::store::{Entry, Guard, Key, ReadStore as _};
use netsurgeon::survey::{Layout, Survey};
use netsurgeon::wire::Field;
use netsurgeon::wire::FieldEdit;
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::objects::{Encoding, NewIpAddress};
use serde_json::Value;

use crate::harness::{Bench, Constant, OPERATION, entries};
use crate::saboteur::{Sabotage, Saboteur};

const BITMAP: &str = "/registry/ranges/serviceips";
/// Bits of the range 10.96.0.0/16: one that a Service has, and two that no Service has.
const OF_A_SERVICE: u64 = 9;
const OF_NOBODY: u64 = 4000;
const LATER: u64 = 4001;

/// A bitmap that does not match the Services, and the plan that repairs it.
struct Drifted {
    base: Arc<MemoryStore>,
    plan: Plan<RangeRewrite>,
    before: Vec<u8>,
}

impl Drifted {
    async fn of(fixture: &str) -> Self {
        let mut entries = entries(fixture).await;
        let bitmap = entries.iter_mut().find(|entry| entry.key == Key::from(BITMAP)).expect("a bitmap");
        bitmap.value = with_bits(&bitmap.value, vec![OF_NOBODY], vec![OF_A_SERVICE]);
        let before = bitmap.value.clone();
        let base = Arc::new(MemoryStore::from_entries(entries));
        let survey = Survey::read(base.as_ref(), &Layout::default(), None).await.expect("a survey");
        let plan = plan_rewrite(&survey, "serviceips", None).expect("a plan");
        assert!(plan.work.frees() && plan.work.is_still_right(&survey));
        Self { base, plan, before }
    }

    async fn store(&self) -> Saboteur {
        Saboteur::over(Overlay::new(self.base.clone()).await.expect("an overlay"))
    }

    async fn bitmap(&self, store: &Saboteur) -> Vec<u8> {
        store.get(&Key::from(BITMAP)).await.expect("a read").expect("a bitmap").value
    }

    async fn listed(&self, store: &Saboteur) -> Option<Listed> {
        Journal::list(store, None).await.expect("a list").pop()
    }

    /// Starts the operation and runs it, as a process does that may be stopped anywhere.
    async fn begin(&self, store: &Saboteur, guards: Vec<Guard>) -> Result<Report, OperationError> {
        let by = LeaseHolder { operation: OPERATION.into(), ..LeaseHolder::default() };
        let mut journal = Journal::begin_plan(store, &self.plan, &by, Value::Null, &guards).await?;
        let rewriting = Rewriting { store, ambient: &Constant, guards };
        rewriting.run(&self.plan.work, &mut journal).await.map_err(|failure| failure.source)
    }

    async fn journal(&self, store: &Saboteur) -> Journal {
        Journal::open(store, &self.plan.header.cluster, OPERATION).await.expect("a journal").0
    }

    /// Continues forward, or back, from the journal.
    async fn again(&self, store: &Saboteur, back: bool) -> Result<Report, OperationError> {
        let mut journal = self.journal(store).await;
        let rewriting = Rewriting { store, ambient: &Constant, guards: Vec::new() };
        let outcome = if back || journal.is_being_undone() {
            rewriting.roll_back(&self.plan.work, &mut journal).await
        } else {
            rewriting.run(&self.plan.work, &mut journal).await
        };
        outcome.map_err(|failure| failure.source)
    }

    async fn assert_ended(&self, store: &Saboteur, status: &str, context: &str) {
        let listed = self.listed(store).await.expect("it is listed");
        assert_eq!(listed.summary.status.name(), status, "{context}");
        assert_eq!(listed.summary.kind, "rewrite-range", "{context}");
        let bitmap = self.bitmap(store).await;
        assert_eq!(bitmap == self.before, status == "rolled-back", "{context}");
    }
}

fn with_bits(value: &[u8], set: Vec<u64>, clear: Vec<u64>) -> Vec<u8> {
    let change = FieldChange::Bits { capacity: (1 << 16) - 2, set, clear };
    edit::apply(value, &[FieldEdit { field: Field::data(), change }]).expect("an edit")
}

/// An IPAddress that no Service lists belongs to a Service that is being created, and then has its bit, or to one that was just
/// deleted, whose bit was freed first. To set a freed bit again would lose the address for good.
#[tokio::test]
async fn released_address_gets_no_bit() {
    for (set, is_wanted) in [(vec![OF_NOBODY], true), (Vec::new(), false)] {
        let mut entries = entries("dualwrite").await;
        let created = NewIpAddress {
            api_version: "networking.k8s.io/v1",
            address: "10.96.15.161".parse().expect("an address"),
            parent: ("default", "passing"),
            uid: "",
            created: 0,
        };
        let like = entries.iter().find(|it| it.key == Key::from(BITMAP)).expect("a bitmap").clone();
        let key = Key::from("/registry/ipaddresses/10.96.15.161");
        entries.push(Entry { key, value: created.encode(Encoding::Protobuf), ..like });
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        let bitmap = entries.iter_mut().find(|entry| entry.key == Key::from(BITMAP)).expect("a bitmap");
        bitmap.value = with_bits(&bitmap.value, set, vec![OF_A_SERVICE]);
        let base = MemoryStore::from_entries(entries);
        let survey = Survey::read(&base, &Layout::default(), None).await.expect("a survey");
        let plan = plan_rewrite(&survey, "serviceips", None).expect("a plan");
        let marked = plan.work.after.marked();
        let is_marked = |wanted: &str| marked.iter().any(|item| item.to_string() == wanted);
        assert!(is_marked("10.96.0.10"), "{marked:?}");
        assert_eq!(is_marked("10.96.15.161"), is_wanted);
    }
}

/// Another version started it: it is completed with that version, or forgotten if it has ended.
#[tokio::test]
async fn hint_for_the_plan_of_another_version_fits_the_status() {
    let plan = r#"{"version": 99, "header": {"kind": "rewrite-range", "tool": "netsurgeon 9.9"}}"#;
    for (status, command) in [(Status::Running, "resume"), (Status::Done, "forget")] {
        let store = MemoryStore::new();
        let summary = Summary { kind: "rewrite-range".into(), status, ..Summary::default() };
        Journal::begin(&store, "one", OPERATION, plan.as_bytes(), summary, &[]).await.expect("a journal");
        let opened =
            Recorded::<RangeRewrite>::open(OPERATION, &EtcdRecord::new(&store, "one", OPERATION)).await;
        let refused = opened.err().expect("it is refused");
        assert!(refused.error.to_string().contains("netsurgeon 9.9"), "{:#}", refused.error);
        assert!(
            refused.hints.concat().contains(&format!("operation {command} {OPERATION}`")),
            "{:?}",
            refused.hints
        );
    }
}

/// The process that deleted the journal was killed after the plan.
#[tokio::test]
async fn journal_that_is_being_deleted_is_reported_with_its_next_command() {
    let drifted = Drifted::of("dualwrite").await;
    let store = drifted.store().await;
    let summary = Summary { kind: "rewrite-range".into(), status: Status::Removing, ..Summary::default() };
    Journal::begin(&store, "one", OPERATION, b"{}", summary, &[]).await.expect("a journal");
    store.delete(&Key::from(format!("/netsurgeon/one/{OPERATION}/plan/00000"))).await;
    let opened = Recorded::<RangeRewrite>::open(OPERATION, &EtcdRecord::new(&store, "one", OPERATION)).await;
    let refused = opened.err().expect("it is refused");
    assert!(
        refused.hints.concat().contains(&format!("operation forget {OPERATION}`")),
        "{:?}",
        refused.hints
    );
}

/// The plan has the format of this version, but another version compiled it to other steps.
#[tokio::test]
async fn operation_of_another_version_that_has_ended_does_not_have_to_be_completed() {
    let drifted = Drifted::of("dualwrite").await;
    let by = LeaseHolder { operation: OPERATION.into(), ..LeaseHolder::default() };
    for (status, is_over) in [(Status::Running, false), (Status::Done, true)] {
        let store = MemoryStore::new();
        let (text, summary) = Journal::of_plan(&drifted.plan, &by, Value::Null).expect("a plan");
        let summary = Summary { compiled: "other steps".into(), status, ..summary };
        Journal::begin(&store, "one", OPERATION, &text, summary, &[]).await.expect("a journal");
        let record = EtcdRecord::new(&store, "one", OPERATION);
        Recorded::<RangeRewrite>::open(OPERATION, &record).await.expect("it can be shown");
        let refused =
            Recorded::<RangeRewrite>::open_to_change(OPERATION, &record, &drifted.plan.header.cluster)
                .await
                .err()
                .expect("it is refused");
        assert_eq!(refused.hints.concat().contains("operation forget"), is_over, "{:?}", refused.hints);
    }
}

/// The ways in which a write may fail.
const FAULTS: [fn(usize) -> Sabotage; 5] =
    [Sabotage::Stop, Sabotage::LostBefore, Sabotage::LostAfter, Sabotage::LostAndLate, Sabotage::Conflict];

async fn commits(drifted: &Drifted) -> usize {
    let store = drifted.store().await;
    drifted.begin(&store, Vec::new()).await.expect("undisturbed");
    drifted.assert_ended(&store, "done", "undisturbed").await;
    store.commits()
}

/// Meets each fault at each write, then continues forward or back.
async fn disturbed(back: bool) {
    for fixture in ["bitmap", "dualwrite"] {
        let drifted = Drifted::of(fixture).await;
        let total = commits(&drifted).await;
        assert!(total >= 4, "plan, summary, step, status: {total}");
        for fault in FAULTS {
            for at in 1..=total {
                let context = format!("{fixture}, {:?} of {total}", fault(at));
                let store = drifted.store().await;
                store.arm(fault(at));
                drop(drifted.begin(&store, Vec::new()).await);
                store.arm(Sabotage::None);
                // Stopped before the operation existed: the command is run again. A lost earlier write may still arrive, once.
                if drifted.listed(&store).await.is_none() && drifted.begin(&store, Vec::new()).await.is_err()
                {
                    drifted.begin(&store, Vec::new()).await.expect("it starts");
                }
                let ended = drifted
                    .listed(&store)
                    .await
                    .is_some_and(|listed| listed.summary.status.name() == "rolled-back");
                if back || !ended {
                    drifted.again(&store, back).await.unwrap_or_else(|error| panic!("{context}: {error}"));
                }
                let status = if back || ended { "rolled-back" } else { "done" };
                drifted.assert_ended(&store, status, &context).await;
            }
        }
    }
}

#[tokio::test]
async fn rewrite_stopped_at_each_write_is_resumed() {
    disturbed(false).await;
}

#[tokio::test]
async fn rewrite_stopped_at_each_write_is_rolled_back() {
    disturbed(true).await;
}

#[tokio::test]
async fn rollback_stopped_at_each_write_is_resumed() {
    let drifted = Drifted::of("dualwrite").await;
    for fault in FAULTS {
        for at in 1..=2 {
            let context = format!("{:?} of 2", fault(at));
            let store = drifted.store().await;
            drifted.begin(&store, Vec::new()).await.expect("undisturbed");
            store.arm(fault(at));
            drop(drifted.again(&store, true).await);
            store.arm(Sabotage::None);
            drifted.again(&store, true).await.unwrap_or_else(|error| panic!("{context}: {error}"));
            drifted.assert_ended(&store, "rolled-back", &context).await;
        }
    }
}

#[tokio::test]
async fn second_rewrite_or_rollback_writes_nothing() {
    let drifted = Drifted::of("bitmap").await;
    let store = drifted.store().await;
    drifted.begin(&store, Vec::new()).await.expect("undisturbed");
    for (back, status) in [(false, "done"), (true, "rolled-back")] {
        drifted.again(&store, back).await.expect("once");
        store.arm(Sabotage::None);
        let report = drifted.again(&store, back).await.expect("twice");
        assert_eq!((report.done, store.commits()), (0, 0), "{status}");
        drifted.assert_ended(&store, status, "twice").await;
    }
}

/// Addresses that an API server has allocated since the plan are not overwritten, and nothing is left to resume.
#[tokio::test]
async fn rewrite_of_changed_bitmap_ends_rolled_back() {
    let drifted = Drifted::of("dualwrite").await;
    let store = drifted.store().await;
    let changed = with_bits(&drifted.before, vec![LATER], Vec::new());
    store.meddle(&Key::from(BITMAP), changed.clone()).await;
    let error = drifted.begin(&store, Vec::new()).await.expect_err("it changed");
    assert!(error.is_about_one_object(), "{error}");
    assert_eq!(drifted.bitmap(&store).await, changed);
    assert_eq!(drifted.listed(&store).await.expect("it is listed").summary.status.name(), "rolled-back");
}

#[tokio::test]
async fn rollback_after_allocation_keeps_rewrite() {
    let drifted = Drifted::of("dualwrite").await;
    let store = drifted.store().await;
    drifted.begin(&store, Vec::new()).await.expect("undisturbed");
    let allocated = with_bits(&drifted.bitmap(&store).await, vec![LATER], Vec::new());
    store.meddle(&Key::from(BITMAP), allocated.clone()).await;
    let report = drifted.again(&store, true).await.expect("a report");
    assert_eq!(report.stuck.len(), 1);
    assert_eq!(drifted.bitmap(&store).await, allocated);
    assert_eq!(drifted.listed(&store).await.expect("it is listed").summary.status.name(), "stuck");
}

#[tokio::test]
async fn rewrite_without_lease_writes_nothing() {
    let drifted = Drifted::of("dualwrite").await;
    for at in 1..=4 {
        let store = drifted.store().await;
        let guards = vec![store.take_lock("alice@here").await];
        store.arm(Sabotage::LockLost(at));
        let error = drifted.begin(&store, guards).await.expect_err("the lease is lost");
        assert!(matches!(error, OperationError::LockLost { .. }), "{at}: {error}");
        assert_eq!(drifted.bitmap(&store).await == drifted.before, at <= 3, "{at}");
    }
}

/// A shadow that has the address of its Service leaves the IPAddress of its temporary one behind, which needs no bit.
#[tokio::test]
async fn temporary_address_has_bit_only_while_shadow_has_it() {
    let bench = Bench::of("dualwrite", "10.200.0.0/16").await;
    let work = &bench.plan.work;
    let shadow = work.moves.iter().find_map(|candidate| candidate.shadow.as_deref()).expect("a shadow");
    let until = work.batches().iter().position(|batch| {
        let mut moves = work.moves[batch.clone()].iter();
        moves.any(|candidate| candidate.shadow.as_deref() == Some(shadow))
    });
    for temporary in shadow.temporary {
        let mut seen = Vec::new();
        for at in 1..400 {
            let store = bench.fresh().await;
            store.arm(Sabotage::Stop(at));
            let is_there = bench.run(&store, work.flip_stage(until.expect("a batch"))).await.is_ok();
            let survey = Survey::read(&store, &Layout::default(), None).await.expect("a survey");
            seen.push(wanted_meanwhile(work, &survey, false).contains(&(temporary, true)));
            if is_there {
                break;
            }
        }
        assert!(seen.len() > 10, "{seen:?}");
        seen.dedup();
        assert_eq!(seen, [false, true, false]);
    }
}

//! Tests of the journals of several operations and clusters in one store.

use super::super::put_new;
use super::*;
use crate::operation::{EtcdLedger, StepId};
use crate::store::lease::LeaseStore as _;
use crate::store::memory::MemoryStore;

fn summary(started: i64) -> Summary {
    Summary { kind: "test".into(), started, ..Summary::default() }
}

async fn begin(store: &MemoryStore, cluster: &str, operation: &str) -> Journal {
    Journal::begin(store, cluster, operation, b"a plan", summary(7), &[]).await.unwrap()
}

async fn note(store: &MemoryStore, journal: &mut Journal, step: &str, state: State) {
    let step = StepId(step.into());
    let (change, record) = journal.record(&step, state, 8, Noted::default()).unwrap();
    let ledger = journal.in_store(store, &[]);
    let revision = ledger.write(vec![change], Transaction::default()).await.unwrap();
    journal.recorded(&step, record, revision);
}

async fn all_keys(store: &MemoryStore) -> Vec<String> {
    let mut keys = Vec::new();
    let mut visitor = |record: StoreRecord<'_>| -> Visit {
        keys.push(Key::from(record.key).to_string());
        ControlFlow::Continue(())
    };
    store.scan(&[KeyRange::everything()], None, &mut visitor).await.unwrap();
    keys
}

fn names(listed: &[Listed]) -> Vec<(&str, &str)> {
    listed.iter().map(|one| (one.cluster.as_str(), one.operation.as_str())).collect()
}

#[tokio::test]
async fn list_contains_operations_and_no_leases() {
    let store = MemoryStore::new();
    assert_eq!(Journal::list(&store, None).await.unwrap(), []);
    for (cluster, operation) in [("one", "b"), ("one", "a"), ("one", "a-later"), ("two", "a"), ("on", "x")] {
        let mut journal = begin(&store, cluster, operation).await;
        note(&store, &mut journal, "flip/default/web", State::Done).await;
    }
    let lease = store.grant(std::time::Duration::from_mins(1)).await.unwrap().lease;
    for key in ["/netsurgeon/one/lock", "/netsurgeon/three/lock", "/other/one/a/operation"] {
        store.create(&key.into(), b"x", lease).await.unwrap();
    }
    let all = Journal::list(&store, None).await.unwrap();
    assert_eq!(names(&all), [("on", "x"), ("one", "a"), ("one", "a-later"), ("one", "b"), ("two", "a")]);
    assert_eq!(names(&Journal::list(&store, Some("one")).await.unwrap()).len(), 3);
    assert_eq!(names(&Journal::list(&store, Some("three")).await.unwrap()), []);
    assert!(all.iter().all(|one| one.summary.plan_parts == 1 && one.summary.started == 7));
}

#[tokio::test]
async fn steps_are_counted_by_state() {
    let store = MemoryStore::new();
    let mut journal = begin(&store, "one", "op").await;
    for number in 0..5 {
        note(&store, &mut journal, &format!("flip/{number}"), State::Done).await;
    }
    note(&store, &mut journal, "create/0", State::Started).await;
    note(&store, &mut journal, "flip/0", State::UndoDone).await;
    let progress = Journal::progress(&EtcdRecord::new(&store, "one", "op")).await.unwrap();
    let counts = [State::Started, State::Done, State::UndoDone, State::Failed].map(|s| progress.of(s));
    assert_eq!((counts, progress.begun()), ([1, 4, 1, 0], 6));
    assert_eq!(
        Journal::progress(&EtcdRecord::new(&store, "one", "other")).await.unwrap(),
        StepCounts::default()
    );
}

#[tokio::test]
async fn remove_all_leaves_no_key() {
    let store = MemoryStore::new();
    let mut other = begin(&store, "one", "op-2").await;
    note(&store, &mut other, "flip/0", State::Done).await;
    let before = all_keys(&store).await;
    let mut journal = begin(&store, "one", "op").await;
    for number in 0..250 {
        note(&store, &mut journal, &format!("flip/{number}"), State::Done).await;
    }
    journal.set_status(&journal.in_store(&store, &[]), Status::Done, 99).await.unwrap();
    let lost = Guard::SameCreation("/netsurgeon/one/lock".into(), Revision(3));
    let refused = Journal::remove_all(&store, "one", "op", &[lost]).await.unwrap_err();
    assert!(matches!(refused, OperationError::LockLost { .. }), "{refused}");
    assert_eq!(Journal::list(&store, None).await.unwrap()[0].summary.ended, Some(99));

    // After an interrupted removal only the summary remains, with the status `removing`.
    let keys: Vec<_> = journal.keys(&store).await.unwrap();
    journal.set_status(&journal.in_store(&store, &[]), Status::Removing, 99).await.unwrap();
    let summary = journal.key(&Part::Summary);
    let some: Vec<_> = keys.into_iter().filter(|(key, _)| *key != summary).take(120).collect();
    remove(&store, &some, &[]).await.unwrap();
    let listed = Journal::list(&store, None).await.unwrap();
    assert_eq!((listed[0].operation.as_str(), listed[0].summary.status), ("op", Status::Removing));

    assert_eq!(Journal::remove_all(&store, "one", "op", &[]).await.unwrap(), 252 - 120);
    assert_eq!(all_keys(&store).await, before);
    assert_eq!(Journal::remove_all(&store, "one", "op", &[]).await.unwrap(), 0);
}

#[tokio::test]
async fn begin_removes_remains_of_an_interrupted_start() {
    let store = MemoryStore::new();
    begin(&store, "one", "whole").await;
    for (cluster, operation) in [("one", "half"), ("one", "other"), ("two", "half")] {
        for part in 0..3 {
            let ledger = EtcdLedger::new(&store, cluster, operation, &[]);
            put_new(&ledger, Part::Plan(part), b"part").await.unwrap();
        }
    }
    assert_eq!(names(&Journal::list(&store, None).await.unwrap()), [("one", "whole")]);
    begin(&store, "one", "half").await;
    assert_eq!(names(&Journal::list(&store, None).await.unwrap()), [("one", "half"), ("one", "whole")]);
    let (_, _, plan) = Journal::open(&store, "one", "half").await.unwrap();
    assert_eq!(plan, b"a plan");
    let left: Vec<_> = all_keys(&store).await.into_iter().filter(|key| !key.contains("/one/")).collect();
    assert_eq!(left.len(), 3, "keys of another cluster stay: {left:?}");
    assert!(!all_keys(&store).await.iter().any(|key| key.contains("/other/")));
}

#[test]
fn summary_of_an_older_version_is_readable() {
    let old = br#"{"kind":"renumber","digest":"d","plan_parts":1,"started":7,"status":"done"}"#;
    let read: Summary = serde_json::from_slice(old).unwrap();
    assert_eq!((read.started, read.status, read.holder, read.ended), (7, Status::Done, None, None));
    assert_eq!((read.manual_step, read.gates), (None, serde_json::Value::Null));
}

#[tokio::test]
async fn amendments_are_read_in_order_and_removed_with_the_journal() {
    let store = MemoryStore::default();
    let journal = Journal::begin(&store, "one", "op", b"plan", Summary::default(), &[]).await.unwrap();
    for number in [2, 1, 10] {
        Journal::amend(&journal.in_store(&store, &[]), number, number.to_string().as_bytes()).await.unwrap();
    }
    let texts = |journal: Vec<Vec<u8>>| journal.into_iter().map(|text| String::from_utf8(text).unwrap());
    let found: Vec<String> =
        texts(Journal::amendments(&EtcdRecord::new(&store, "one", "op")).await.unwrap()).collect();
    assert_eq!(found, ["1", "2", "10"]);
    // An amendment is never changed, so only one of two concurrent sweeps succeeds.
    Journal::amend(&journal.in_store(&store, &[]), 2, b"other").await.unwrap_err();
    Journal::remove_all(&store, "one", "op", &[]).await.unwrap();
    assert_eq!(
        Journal::amendments(&EtcdRecord::new(&store, "one", "op")).await.unwrap(),
        Vec::<Vec<u8>>::new()
    );
}

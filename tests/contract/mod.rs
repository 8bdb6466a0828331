//! The contract of every store, as one body that runs over each of them: the in-memory ones in the tier `it`, a real etcd in the
//! tier `etcd`.

#![allow(dead_code, reason = "each tier uses a part of the contract")]

use std::ops::ControlFlow;
use std::time::Duration;

use netsurgeon::store::lease::LeaseStore;
use netsurgeon::store::{
    Action, Change, CommitError, Entry, Expected, Guard, Key, KeyRange, ReadStore, Record, Revision,
    StoreError, Transaction, WriteStore,
};

/// A creation.
pub fn create(key: &str, value: &str) -> Change {
    Change { key: key.into(), expected: Expected::Absent, action: Action::Put(value.into()) }
}

/// An update.
pub fn update(key: &str, at: Revision, value: &str) -> Change {
    Change { key: key.into(), expected: Expected::At(at), action: Action::Put(value.into()) }
}

/// A deletion.
pub fn remove(key: &str, at: Revision) -> Change {
    Change { key: key.into(), expected: Expected::At(at), action: Action::Delete }
}

/// A transaction without preconditions.
pub fn transaction(changes: impl Into<Vec<Change>>) -> Transaction {
    Transaction { guards: Vec::new(), changes: changes.into() }
}

/// Everything in the ranges, in the order of the visits.
pub async fn scan(
    store: &dyn ReadStore,
    ranges: &[KeyRange],
    at: Option<Revision>,
) -> Result<(Revision, Vec<Entry>), StoreError> {
    store.entries(ranges, at).await
}

/// Every key of the store.
pub async fn everything(store: &dyn ReadStore, at: Option<Revision>) -> Vec<Entry> {
    scan(store, &[KeyRange::everything()], at).await.expect("a scan of everything").1
}

fn keys(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.key.to_string()).collect()
}

/// The contract of any store with at least two keys, for readers. No client may write meanwhile.
pub async fn check_reads(store: &dyn ReadStore) {
    let newest = store.revision().await.expect("a revision");
    let (read_at, all) = scan(store, &[KeyRange::everything()], None).await.expect("a scan");
    assert_eq!(read_at, newest);
    assert!(all.len() >= 2, "the contract needs two keys");
    assert!(all.is_sorted_by(|a, b| a.key < b.key), "in key order");
    for entry in &all {
        assert!(entry.create_revision <= entry.mod_revision && entry.mod_revision <= newest, "{entry:?}");
        assert!(entry.version >= 1 && entry.create_revision.0 >= 1, "{entry:?}");
    }
    assert_eq!(everything(store, Some(newest)).await, all, "the newest revision, requested");
    check_gets(store, &all).await;
    check_ranges(store, &all).await;
    check_revisions(store, newest).await;
}

async fn check_gets(store: &dyn ReadStore, all: &[Entry]) {
    for entry in all.iter().step_by(all.len() / 5 + 1) {
        assert_eq!(store.get(&entry.key).await.expect("a get").as_ref(), Some(entry));
        let exact = scan(store, &[KeyRange::exact(&entry.key)], None).await.expect("a scan").1;
        assert_eq!(exact, std::slice::from_ref(entry));
    }
    let absent = ["", "\0", "/no/such/key", "\u{10ffff}"];
    for absent in absent {
        assert_eq!(store.get(&absent.into()).await.expect("a get"), None, "{absent:?}");
    }
    // More than fit into one of etcd's transactions, one of them twice.
    let mut wanted: Vec<Key> = absent.into_iter().map(Key::from).collect();
    wanted.extend(all.iter().map(|entry| entry.key.clone()).cycle().take(all.len().max(150) + 1));
    let found = store.get_many(&wanted).await.expect("gets");
    assert_eq!(found.len(), wanted.len());
    for (key, found) in wanted.iter().zip(found) {
        assert_eq!(found, store.get(key).await.expect("a get"), "{key}");
    }
}

async fn check_ranges(store: &dyn ReadStore, all: &[Entry]) {
    let (_, nothing) = scan(store, &[], None).await.expect("a scan of nothing");
    assert!(nothing.is_empty());
    let middle = &all[all.len() / 2].key;
    let prefix = Key::from(&middle.as_bytes()[..middle.as_bytes().len() - 1]);
    let expected: Vec<_> =
        all.iter().filter(|entry| entry.key.as_bytes().starts_with(prefix.as_bytes())).cloned().collect();
    let ranges = [KeyRange::prefix(prefix), KeyRange::exact(middle)];
    let (_, found) = scan(store, &ranges, None).await.expect("a scan");
    let (last, first) = found.split_last().expect("the key is in both ranges");
    assert_eq!(first, expected, "range by range");
    assert_eq!(last.key, *middle, "a key of two ranges is visited twice");

    let mut visits = 0;
    let mut visitor = |_: Record<'_>| {
        visits += 1;
        if visits == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let ranges = [KeyRange::everything(), KeyRange::everything()];
    store.scan(&ranges, None, &mut visitor).await.expect("a scan");
    assert_eq!(visits, 2, "the visitor ends the whole scan");
}

async fn check_revisions(store: &dyn ReadStore, newest: Revision) {
    let beyond = Revision(newest.0 + 1);
    match scan(store, &[KeyRange::everything()], Some(beyond)).await {
        Err(StoreError::FutureRevision { asked, newest: told }) => {
            assert_eq!((asked, told), (beyond, newest));
        }
        other => panic!("a future revision: {other:?}"),
    }
    match scan(store, &[KeyRange::everything()], Some(Revision(0))).await {
        Err(StoreError::Compacted { asked, oldest }) => assert!(asked < oldest && oldest <= newest),
        other => panic!("revision 0: {other:?}"),
    }
}

/// The contract of any store for writers. It must hold no key below `/contract/`, and no other client may write meanwhile.
pub async fn check_writes(store: &dyn WriteStore) {
    let before = store.revision().await.expect("a revision");
    let created = Revision(before.0 + 1);
    let changes = [create("/contract/b", "b1"), create("/contract/a", "a1"), create("/contract/c", "c1")];
    assert_eq!(store.commit(&transaction(changes)).await.expect("a commit"), created, "one revision");
    assert_eq!(store.revision().await.expect("a revision"), created);
    let a = entry("/contract/a", "a1", created, created, 1);
    assert_eq!(store.get(&a.key).await.expect("a get"), Some(a.clone()));

    let changes = [update("/contract/a", created, "a2"), remove("/contract/b", created)];
    let updated = store.commit(&transaction(changes)).await.expect("a commit");
    assert_eq!(updated.0, created.0 + 1);
    let a = entry("/contract/a", "a2", created, updated, 2);
    assert_eq!(store.get(&a.key).await.expect("a get"), Some(a.clone()));
    assert_eq!(store.get(&"/contract/b".into()).await.expect("a get"), None);

    let recreated = store.commit(&transaction([create("/contract/b", "b2")])).await.expect("a commit");
    let b = entry("/contract/b", "b2", recreated, recreated, 1);
    assert_eq!(store.get(&b.key).await.expect("a get"), Some(b.clone()), "a new life");

    check_history(store, [before, created, updated, recreated]).await;
    check_conflicts(store, &a, &b).await;
    check_guards(store, &a, &b).await;
    check_refusals(store, &a).await;
    check_reads(store).await;
}

fn entry(key: &str, value: &str, created: Revision, changed: Revision, version: i64) -> Entry {
    Entry {
        key: key.into(),
        value: value.into(),
        create_revision: created,
        mod_revision: changed,
        version,
        lease: 0,
    }
}

async fn check_history(store: &dyn WriteStore, revisions: [Revision; 4]) {
    let expected: [&[(&str, &str)]; 4] = [
        &[],
        &[("/contract/a", "a1"), ("/contract/b", "b1"), ("/contract/c", "c1")],
        &[("/contract/a", "a2"), ("/contract/c", "c1")],
        &[("/contract/a", "a2"), ("/contract/b", "b2"), ("/contract/c", "c1")],
    ];
    for (revision, expected) in revisions.into_iter().zip(expected) {
        let range = [KeyRange::prefix("/contract/")];
        let (read_at, found) = scan(store, &range, Some(revision)).await.expect("an older revision");
        assert_eq!(read_at, revision);
        let found: Vec<_> = found
            .iter()
            .map(|e| (e.key.to_string(), String::from_utf8_lossy(&e.value).into_owned()))
            .collect();
        let expected: Vec<_> = expected.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
        assert_eq!(found, expected, "at revision {revision}");
    }
}

/// Asserts that a transaction conflicts in this way and changes nothing.
async fn assert_conflict(
    store: &dyn WriteStore,
    transaction: &Transaction,
    expected: (&str, Expected, Option<Revision>),
) {
    let before = everything(store, None).await;
    match store.commit(transaction).await {
        Err(CommitError::Conflict { key, expected: wanted, found }) => {
            assert_eq!((key.to_string().as_str(), wanted, found), expected);
        }
        other => panic!("{other:?}, expected a conflict"),
    }
    assert_eq!(everything(store, None).await, before, "a conflict changes nothing");
}

async fn check_conflicts(store: &dyn WriteStore, a: &Entry, b: &Entry) {
    let stale = Revision(a.mod_revision.0 - 1);
    let fine = update("/contract/b", b.mod_revision, "never");
    let cases = [
        (
            vec![fine.clone(), update("/contract/a", stale, "never")],
            Expected::At(stale),
            Some(a.mod_revision),
        ),
        (vec![remove("/contract/a", stale), fine.clone()], Expected::At(stale), Some(a.mod_revision)),
        (vec![create("/contract/a", "never")], Expected::Absent, Some(a.mod_revision)),
    ];
    for (changes, expected, found) in cases {
        assert_conflict(store, &transaction(changes), ("/contract/a", expected, found)).await;
    }
    let absent = transaction([update("/contract/absent", stale, "never")]);
    assert_conflict(store, &absent, ("/contract/absent", Expected::At(stale), None)).await;
    let absent = transaction([fine, remove("/contract/absent", stale)]);
    assert_conflict(store, &absent, ("/contract/absent", Expected::At(stale), None)).await;
}

async fn check_guards(store: &dyn WriteStore, a: &Entry, b: &Entry) {
    let (a_key, b_key) = (a.key.clone(), b.key.clone());
    let with = |guards: Vec<Guard>, change: Change| Transaction { guards, changes: vec![change] };
    let failing = [
        (Guard::Unchanged(a_key.clone(), a.create_revision), Expected::At(a.create_revision), a.mod_revision),
        (Guard::SameCreation(a_key.clone(), a.mod_revision), Expected::At(a.mod_revision), a.create_revision),
        (Guard::Absent(a_key.clone()), Expected::Absent, a.mod_revision),
    ];
    for (guard, expected, found) in failing {
        let guarded = with(vec![guard], create("/contract/d", "never"));
        assert_conflict(store, &guarded, ("/contract/a", expected, Some(found))).await;
    }
    let gone: Key = "/contract/gone".into();
    let guarded = with(vec![Guard::SameCreation(gone, Revision(1))], create("/contract/d", "never"));
    assert_conflict(store, &guarded, ("/contract/gone", Expected::At(Revision(1)), None)).await;

    let holding = vec![
        Guard::Unchanged(b_key, b.mod_revision),
        Guard::SameCreation(a_key, a.create_revision),
        Guard::Absent("/contract/d".into()),
    ];
    let guarded = with(holding, update("/contract/c", a.create_revision, "c2"));
    let revision = store.commit(&guarded).await.expect("every precondition holds");
    let c = entry("/contract/c", "c2", a.create_revision, revision, 2);
    assert_eq!(store.get(&c.key).await.expect("a get"), Some(c));
}

async fn check_refusals(store: &dyn WriteStore, a: &Entry) {
    let before = store.revision().await.expect("a revision");
    let guard = Guard::Unchanged(a.key.clone(), a.mod_revision);
    let twice = [update("/contract/a", a.mod_revision, "x"), remove("/contract/a", a.mod_revision)];
    let nothing = Change { key: "/contract/z".into(), expected: Expected::Absent, action: Action::Delete };
    let refused = [
        Transaction::default(),
        Transaction { guards: vec![guard], changes: Vec::new() },
        transaction(twice),
        transaction([create("", "x")]),
        transaction([update("/contract/z", Revision(0), "x")]),
        transaction([nothing]),
    ];
    for refused in refused {
        let outcome = store.commit(&refused).await;
        assert!(matches!(outcome, Err(CommitError::Refused { .. })), "{refused:?}: {outcome:?}");
    }
    assert_eq!(store.revision().await.expect("a revision"), before);
}

/// Writes a history with updates, deletions and re-creations, spread over many transactions; returns its revisions. It is the
/// same on every store, so that two stores can be compared.
pub async fn write_history(store: &dyn WriteStore) -> Vec<Revision> {
    let mut revisions = Vec::new();
    for round in 0..40_u32 {
        let mut changes = Vec::new();
        for number in 0..12_u32 {
            let key = format!("/history/{number:02}");
            // A fixed, irregular pattern of the keys that change in each round.
            match (round * 7 + number * 11) % 5 {
                0 | 1 => {}
                choice => {
                    let found = store.get(&key.as_str().into()).await.expect("a get");
                    let value = format!("{round}:{}", "x".repeat((round * number * 37 % 9000) as usize));
                    changes.push(match found {
                        None => create(&key, &value),
                        Some(entry) if choice == 2 => remove(&key, entry.mod_revision),
                        Some(entry) => update(&key, entry.mod_revision, &value),
                    });
                }
            }
        }
        revisions.push(store.commit(&transaction(changes)).await.expect("a commit"));
    }
    revisions
}

/// Asserts that two stores hold the same at these revisions.
pub async fn assert_same(left: &dyn ReadStore, right: &dyn ReadStore, revisions: &[Revision]) {
    for revision in revisions {
        let (left, right) =
            (everything(left, Some(*revision)).await, everything(right, Some(*revision)).await);
        assert_eq!(keys(&left), keys(&right), "the keys at revision {revision}");
        assert!(left == right, "the records at revision {revision} differ");
    }
}

/// The contract of any store with leases; a caller that controls the clock also tests that they expire.
pub async fn check_leases(store: &dyn LeaseStore) {
    let ttl = Duration::from_mins(1);
    let (key, other) = (Key::from("/leased/lock"), Key::from("/leased/other"));
    let granted = store.grant(ttl).await.expect("a lease");
    assert!(granted.lease.0 != 0 && granted.ttl >= ttl, "{granted:?}");
    let rival = store.grant(ttl).await.expect("a second lease").lease;
    assert_ne!(rival, granted.lease);

    let created = store.create(&key, b"mine", granted.lease).await.expect("a creation");
    let entry = store.get(&key).await.expect("a get").expect("it exists");
    assert_eq!((entry.create_revision, entry.lease, entry.version), (created, granted.lease.0, 1));
    match store.create(&key, b"theirs", rival).await {
        Err(CommitError::Conflict { key: found, .. }) => assert_eq!(found, key),
        other => panic!("{other:?}"),
    }
    assert!(store.keep_alive(granted.lease, ttl).await.expect("an answer"));
    let left = store.time_left(granted.lease).await.expect("an answer").expect("it runs");
    assert!(left <= granted.ttl && left + Duration::from_secs(30) > granted.ttl, "{left:?}");

    let guarded =
        |guard: Guard| Transaction { guards: vec![guard], changes: vec![create("/leased/by", "1")] };
    let fence = Guard::SameCreation(key.clone(), created);
    assert!(fence.holds(Some(&entry)) && !fence.holds(None));
    store.revoke(granted.lease).await.expect("it ends");
    store.revoke(granted.lease).await.expect("it has ended");
    assert_eq!(store.get(&key).await.expect("a get"), None, "the key ends with the lease");
    assert!(!store.keep_alive(granted.lease, ttl).await.expect("an answer"));
    assert_eq!(store.time_left(granted.lease).await.expect("an answer"), None);
    let late = store.create(&other, b"late", granted.lease).await;
    assert!(matches!(late, Err(CommitError::Refused { .. })), "{late:?}");

    store.create(&key, b"theirs", rival).await.expect("the key is free");
    let late = store.commit(&guarded(fence)).await;
    assert!(matches!(late, Err(CommitError::Conflict { .. })), "{late:?}");
    assert_eq!(store.get(&"/leased/by".into()).await.expect("a get"), None);
    store.revoke(rival).await.expect("it ends");
}

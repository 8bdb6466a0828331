//! Tests of the operation lease with paused clocks. Only the tests advance the clocks of the store and the runtime.

use super::*;
use crate::store::WriteStore as _;
use crate::store::memory::MemoryStore;

const TTL: Duration = Duration::from_secs(30);

fn claim(holder: &str, operation: &str) -> LeaseHolder {
    LeaseHolder {
        holder: holder.into(),
        pid: 4711,
        operation: operation.into(),
        purpose: "renumber to 10.200.0.0/16".into(),
        since: 1_800_000_000,
    }
}

async fn acquire(store: &Arc<MemoryStore>, holder: &str) -> Result<Lock, OperationError> {
    Lock::acquire(store.clone(), "one", &claim(holder, holder), TTL).await
}

/// Advances the clocks of store and runtime, in steps shorter than any sleep.
async fn pass(store: &MemoryStore, time: Duration) {
    let second = Duration::from_secs(1);
    for _ in 0..time.as_secs() {
        tokio::time::advance(second).await;
        // Lets the woken tasks run.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        store.advance(second);
    }
}

/// Commits a change with the operation lease as its precondition.
async fn write(store: &MemoryStore, lock: &Lock, key: &str) -> Result<Revision, CommitError> {
    let change = Change { key: key.into(), expected: Expected::Absent, action: Action::Put(b"1".to_vec()) };
    store.commit(&Transaction { guards: vec![lock.guard()], changes: vec![change] }).await
}

#[tokio::test(start_paused = true)]
async fn second_operation_is_refused_and_holder_is_named() {
    let store = Arc::new(MemoryStore::new());
    let lock = acquire(&store, "alice").await.unwrap();
    pass(&store, Duration::from_secs(4)).await;
    let refused = acquire(&store, "bob").await.err().unwrap();
    assert_eq!(
        refused.to_string(),
        "`alice` (pid 4711) holds the operation lease for operation `alice` (renumber to 10.200.0.0/16) since \
         2027-01-15T08:00:00Z; it expires in 26 s unless it is renewed"
    );
    let other = Lock::acquire(store.clone(), "two", &claim("bob", "bob"), TTL).await;
    assert!(other.is_ok(), "another cluster has its own operation lease");
    let held = Lock::holder(store.as_ref(), "one").await.unwrap().unwrap();
    assert_eq!(held.claim, claim("alice", "alice"));
    lock.release().await.unwrap();
    assert_eq!(Lock::holder(store.as_ref(), "one").await.unwrap(), None);
    acquire(&store, "bob").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn lease_is_renewed_while_held_and_expires_once_dropped() {
    let store = Arc::new(MemoryStore::new());
    let lock = acquire(&store, "alice").await.unwrap();
    pass(&store, TTL * 5).await;
    assert_eq!(lock.lost(), None);
    write(&store, &lock, "/alice").await.unwrap();
    let guard = lock.guard();
    drop(lock);
    assert!(acquire(&store, "bob").await.is_err(), "it has not expired");
    pass(&store, TTL).await;
    let bob = acquire(&store, "bob").await.expect("it has expired");
    assert_ne!(bob.guard(), guard);
}

#[tokio::test(start_paused = true)]
async fn loser_learns_the_holder_and_cannot_write() {
    let store = Arc::new(MemoryStore::new());
    let alice = acquire(&store, "alice").await.unwrap();
    // Only the clock of the store advances, so no keep-alive runs.
    store.advance(TTL);
    let bob = acquire(&store, "bob").await.expect("it has expired");
    let late = write(&store, &alice, "/alice").await;
    assert!(matches!(late, Err(CommitError::Conflict { .. })), "{late:?}");
    write(&store, &bob, "/bob").await.unwrap();
    assert_eq!(alice.until_lost().await, "it has expired");
    assert!(alice.lost().is_some() && bob.lost().is_none());
    let Guard::SameCreation(key, _) = alice.guard() else { panic!("{:?}", alice.guard()) };
    let words = lost_to(store.as_ref(), &key).await.to_string();
    let expected = "the operation lease was lost: `bob` (pid 4711) for operation `bob`";
    assert!(words.starts_with(expected), "{words}");
    drop(alice);
    assert!(write(&store, &bob, "/bob/again").await.is_ok(), "the loser does not release bob's lease");
}

#[tokio::test(start_paused = true)]
async fn take_over_succeeds_for_the_same_operation_only() {
    let store = Arc::new(MemoryStore::new());
    let hangs = Lock::acquire(store.clone(), "one", &claim("alice", "op"), TTL).await.unwrap();
    let other = Lock::take_over(store.clone(), "one", &claim("bob", "other"), TTL).await;
    assert!(matches!(other, Err(OperationError::Locked(_))));
    assert_eq!(hangs.lost(), None);
    let resumed = Lock::take_over(store.clone(), "one", &claim("bob", "op"), TTL).await.unwrap();
    assert!(matches!(write(&store, &hangs, "/a").await, Err(CommitError::Conflict { .. })));
    write(&store, &resumed, "/a").await.unwrap();
    assert_eq!(hangs.until_lost().await, "it has expired");
    assert_eq!(resumed.lost(), None);
    resumed.release().await.unwrap();
    Lock::take_over(store.clone(), "one", &claim("bob", "op"), TTL).await.expect("it is free");
}

#[tokio::test(start_paused = true)]
async fn lease_is_lost_when_its_key_is_deleted_by_hand() {
    let store = Arc::new(MemoryStore::new());
    let lock = acquire(&store, "alice").await.unwrap();
    let entry = store.get(&lock.key).await.unwrap().unwrap();
    let expected = Expected::At(entry.mod_revision);
    let change = Change { key: lock.key.clone(), expected, action: Action::Delete };
    store.commit(&Transaction { guards: Vec::new(), changes: vec![change] }).await.unwrap();
    assert_eq!(lock.until_lost().await, NO_HOLDER);
}

#[tokio::test(start_paused = true)]
async fn key_without_etcd_lease_or_with_unknown_format_is_respected() {
    let store = Arc::new(MemoryStore::new());
    let put = |cluster: &str, value: Vec<u8>| {
        let (key, expected) = (key_of(cluster), Expected::Absent);
        let changes = vec![Change { key, expected, action: Action::Put(value) }];
        Transaction { guards: Vec::new(), changes }
    };
    store.commit(&put("one", serde_json::to_vec(&claim("alice", "op")).unwrap())).await.unwrap();
    let refused = acquire(&store, "bob").await.err().unwrap().to_string();
    assert!(refused.contains("never expires") && refused.contains("/netsurgeon/one/lock"), "{refused}");
    Lock::take_over(store.clone(), "one", &claim("bob", "op"), TTL).await.expect("its own operation");
    store.commit(&put("two", b"{}".to_vec())).await.unwrap();
    let refused = Lock::take_over(store.clone(), "two", &claim("bob", "op"), TTL).await.err().unwrap();
    assert!(refused.to_string().contains("cannot be read"), "{refused}");
}

/// Tries to acquire the lease for an operation while time passes, and records each reported remaining TTL.
async fn acquire_after(
    store: &Arc<MemoryStore>,
    holder: &str,
    operation: &str,
) -> (Result<Lock, OperationError>, Vec<u64>) {
    let (claim, mut told) = (claim(holder, operation), Vec::new());
    let mut waiting = |held: &Held| told.push(held.left.unwrap_or_default().as_secs());
    let outcome = tokio::select! {
        outcome = Lock::acquire_after(store.clone(), "one", &claim, TTL, &mut waiting) => outcome,
        () = async { loop { pass(store, Duration::from_secs(1)).await } } => unreachable!(),
    };
    (outcome, told)
}

#[tokio::test(start_paused = true)]
async fn acquire_after_waits_for_the_lease_of_a_dead_process() {
    let store = Arc::new(MemoryStore::new());
    let dead = Lock::acquire(store.clone(), "one", &claim("alice", "op"), TTL).await.unwrap();
    dead.keeping.end();
    pass(&store, Duration::from_secs(4)).await;
    let (outcome, told) = acquire_after(&store, "bob", "op").await;
    assert_eq!(outcome.unwrap().claim().holder, "bob");
    assert!(told.len() > 20 && told.is_sorted_by(|one, next| one >= next), "it counts down: {told:?}");
    assert_eq!(told.first(), Some(&26));
}

#[tokio::test(start_paused = true)]
async fn acquire_after_stops_waiting_once_the_lease_is_renewed() {
    let store = Arc::new(MemoryStore::new());
    let alive = Lock::acquire(store.clone(), "one", &claim("alice", "op"), TTL).await.unwrap();
    pass(&store, Duration::from_secs(4)).await;
    let (outcome, told) = acquire_after(&store, "bob", "op").await;
    assert!(matches!(outcome.err().unwrap(), OperationError::Locked(held) if held.claim.holder == "alice"));
    assert!(!told.is_empty() && told.len() < 20, "until it was renewed: {told:?}");
    assert_eq!(alive.lost(), None);
}

#[tokio::test(start_paused = true)]
async fn acquire_after_fails_at_once_for_another_operation() {
    let store = Arc::new(MemoryStore::new());
    let _other = Lock::acquire(store.clone(), "one", &claim("alice", "other"), TTL).await.unwrap();
    let (outcome, told) = acquire_after(&store, "bob", "op").await;
    assert!(matches!(outcome, Err(OperationError::Locked(held)) if held.claim.operation == "other"));
    assert_eq!(told, Vec::<u64>::new());
}

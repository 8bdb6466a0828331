//! The lock over a store whose clock stands still until it is told, on a runtime whose clock does so, too.

use super::*;
use crate::store::WriteStore as _;
use crate::store::memory::MemoryStore;

const TTL: Duration = Duration::from_secs(30);

fn claim(holder: &str, operation: &str) -> Claim {
    Claim {
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

/// Lets time pass for the store and for whoever sleeps, in steps short enough that nobody sleeps too long.
async fn pass(store: &MemoryStore, time: Duration) {
    let second = Duration::from_secs(1);
    for _ in 0..time.as_secs() {
        tokio::time::advance(second).await;
        // Whoever has woken up is given the time to do something.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        store.advance(second);
    }
}

/// Commits something under a lock's guard.
async fn write(store: &MemoryStore, lock: &Lock, key: &str) -> Result<Revision, CommitError> {
    let change = Change { key: key.into(), expected: Expected::Absent, action: Action::Put(b"1".to_vec()) };
    store.commit(&Transaction { guards: vec![lock.guard()], changes: vec![change] }).await
}

#[tokio::test(start_paused = true)]
async fn a_second_operation_is_refused_by_name() {
    let store = Arc::new(MemoryStore::new());
    let lock = acquire(&store, "alice").await.unwrap();
    pass(&store, Duration::from_secs(4)).await;
    let refused = acquire(&store, "bob").await.err().unwrap();
    assert_eq!(
        refused.to_string(),
        "`alice` (pid 4711) holds the operation lease for operation `alice` (renumber to 10.200.0.0/16) since \
         2027-01-15T08:00:00Z; it ends in 26 s unless it is renewed"
    );
    let other = Lock::acquire(store.clone(), "two", &claim("bob", "bob"), TTL).await;
    assert!(other.is_ok(), "another cluster has a lock of its own");
    let held = Lock::holder(store.as_ref(), "one").await.unwrap().unwrap();
    assert_eq!(held.claim, claim("alice", "alice"));
    lock.release().await.unwrap();
    assert_eq!(Lock::holder(store.as_ref(), "one").await.unwrap(), None);
    acquire(&store, "bob").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn it_is_kept_as_long_as_it_is_wanted_and_ends_when_it_is_dropped() {
    let store = Arc::new(MemoryStore::new());
    let lock = acquire(&store, "alice").await.unwrap();
    pass(&store, TTL * 5).await;
    assert_eq!(lock.lost(), None);
    write(&store, &lock, "/alice").await.unwrap();
    let guard = lock.guard();
    drop(lock);
    assert!(acquire(&store, "bob").await.is_err(), "its lease still runs");
    pass(&store, TTL).await;
    let bob = acquire(&store, "bob").await.expect("it has run out");
    assert_ne!(bob.guard(), guard);
}

#[tokio::test(start_paused = true)]
async fn who_has_lost_it_is_told_and_cannot_write() {
    let store = Arc::new(MemoryStore::new());
    let alice = acquire(&store, "alice").await.unwrap();
    // Nobody gets to keep it alive meanwhile.
    store.advance(TTL);
    let bob = acquire(&store, "bob").await.expect("it has run out");
    let late = write(&store, &alice, "/alice").await;
    assert!(matches!(late, Err(CommitError::Conflict { .. })), "{late:?}");
    write(&store, &bob, "/bob").await.unwrap();
    assert_eq!(alice.until_lost().await, "its lease has ended");
    assert!(alice.lost().is_some() && bob.lost().is_none());
    let Guard::SameCreation(key, _) = alice.guard() else { panic!("{:?}", alice.guard()) };
    let words = lost_to(store.as_ref(), &key).await.to_string();
    assert!(words.starts_with("the lock was lost to `bob` (pid 4711) for operation `bob`"), "{words}");
    drop(alice);
    assert!(write(&store, &bob, "/bob/again").await.is_ok(), "the loser's end is not the holder's");
}

#[tokio::test(start_paused = true)]
async fn ones_own_operation_is_taken_over_and_no_other() {
    let store = Arc::new(MemoryStore::new());
    let hangs = Lock::acquire(store.clone(), "one", &claim("alice", "op"), TTL).await.unwrap();
    let other = Lock::take_over(store.clone(), "one", &claim("bob", "other"), TTL).await;
    assert!(matches!(other, Err(OperationError::Locked(_))));
    assert_eq!(hangs.lost(), None);
    let resumed = Lock::take_over(store.clone(), "one", &claim("bob", "op"), TTL).await.unwrap();
    assert!(matches!(write(&store, &hangs, "/a").await, Err(CommitError::Conflict { .. })));
    write(&store, &resumed, "/a").await.unwrap();
    assert_eq!(hangs.until_lost().await, "its lease has ended");
    assert_eq!(resumed.lost(), None);
    resumed.release().await.unwrap();
    Lock::take_over(store.clone(), "one", &claim("bob", "op"), TTL).await.expect("nobody holds it");
}

#[tokio::test(start_paused = true)]
async fn a_key_removed_by_hand_is_a_lost_lock() {
    let store = Arc::new(MemoryStore::new());
    let lock = acquire(&store, "alice").await.unwrap();
    let entry = store.get(&lock.key).await.unwrap().unwrap();
    let expected = Expected::At(entry.mod_revision);
    let change = Change { key: lock.key.clone(), expected, action: Action::Delete };
    store.commit(&Transaction { guards: Vec::new(), changes: vec![change] }).await.unwrap();
    assert_eq!(lock.until_lost().await, NOBODY);
}

#[tokio::test(start_paused = true)]
async fn a_lock_without_a_lease_or_of_another_make_is_respected() {
    let store = Arc::new(MemoryStore::new());
    let put = |cluster: &str, value: Vec<u8>| {
        let (key, expected) = (key_of(cluster), Expected::Absent);
        let changes = vec![Change { key, expected, action: Action::Put(value) }];
        Transaction { guards: Vec::new(), changes }
    };
    store.commit(&put("one", serde_json::to_vec(&claim("alice", "op")).unwrap())).await.unwrap();
    let refused = acquire(&store, "bob").await.err().unwrap().to_string();
    assert!(
        refused.contains("never ends by itself") && refused.contains("/netsurgeon/one/lock"),
        "{refused}"
    );
    Lock::take_over(store.clone(), "one", &claim("bob", "op"), TTL).await.expect("its own operation");
    store.commit(&put("two", b"{}".to_vec())).await.unwrap();
    let refused = Lock::take_over(store.clone(), "two", &claim("bob", "op"), TTL).await.err().unwrap();
    assert!(refused.to_string().contains("cannot be read"), "{refused}");
}

/// Tries to take the lock for an operation while time passes, and notes how long the lease was said to run.
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
async fn the_lease_of_a_dead_process_is_waited_for() {
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
async fn a_lease_that_is_renewed_is_not_waited_for() {
    let store = Arc::new(MemoryStore::new());
    let alive = Lock::acquire(store.clone(), "one", &claim("alice", "op"), TTL).await.unwrap();
    pass(&store, Duration::from_secs(4)).await;
    let (outcome, told) = acquire_after(&store, "bob", "op").await;
    assert!(matches!(outcome.err().unwrap(), OperationError::Locked(held) if held.claim.holder == "alice"));
    assert!(!told.is_empty() && told.len() < 20, "until it was renewed: {told:?}");
    assert_eq!(alive.lost(), None);
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_another_operation_is_refused_at_once() {
    let store = Arc::new(MemoryStore::new());
    let _other = Lock::acquire(store.clone(), "one", &claim("alice", "other"), TTL).await.unwrap();
    let (outcome, told) = acquire_after(&store, "bob", "op").await;
    assert!(matches!(outcome, Err(OperationError::Locked(held)) if held.claim.operation == "other"));
    assert_eq!(told, Vec::<u64>::new());
}

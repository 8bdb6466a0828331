//! The operation lease on real servers: which process gets it, and what happens to one that loses it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use netsurgeon::operation::{
    Action, Executor, Journal, KeyChange, KeyEdit, LeaseHolder, Lock, NoEffect, NoEnvironment,
    OperationError, Report, RunFailure, Silent, Stage, Status, Step, StepId, Summary, Swap, SystemAmbient,
    Work,
};
use netsurgeon::store::etcd::{EtcdOptions, EtcdStore};
use netsurgeon::store::lease::LeaseStore;
use netsurgeon::store::{Guard, Key, ReadStore};

use crate::contract;
use crate::rig::etcd::{Etcd, EtcdOptions as Server};
use crate::rig::process::wait_until;
use crate::rig::relay::Relay;
use crate::rig::run::says;
use crate::store::{VERSIONS, connect, options, plain};

const CLUSTER: &str = "one";
/// The shortest that etcd grants with its default settings, rounded up.
const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_mins(1);
const DEADLINE: Duration = Duration::from_secs(30);

async fn handle(etcd: &Etcd) -> Arc<EtcdStore> {
    Arc::new(connect(options(etcd)).await)
}

fn claim(holder: &str, operation: &str) -> LeaseHolder {
    LeaseHolder { holder: holder.into(), ..LeaseHolder::of_this_process(operation, "a test", 1_800_000_000) }
}

async fn acquire(store: &Arc<EtcdStore>, holder: &str, ttl: Duration) -> Result<Lock, OperationError> {
    Lock::acquire(store.clone(), CLUSTER, &claim(holder, holder), ttl).await
}

/// Acquires the lease as soon as it is free.
async fn acquire_at_last(store: &Arc<EtcdStore>, holder: &str, ttl: Duration) -> Lock {
    wait_until("the lease is free", DEADLINE, async || {
        acquire(store, holder, ttl).await.map_err(|error| error.to_string())
    })
    .await
}

/// An operation with one step for each name, which creates a key; all have different subjects.
struct Keys(Vec<&'static str>);

impl Work for Keys {
    type Effect = NoEffect;

    fn stages(&self) -> Vec<Stage> {
        vec![Stage { index: 0, name: "make".into(), batch: None, title: "make keys".into() }]
    }

    fn steps(&self, _stage: &Stage) -> Vec<Step<NoEffect>> {
        let step = |name: &&str| {
            let key = Key::from(format!("/made/{name}"));
            let value = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#.to_vec();
            let edits = vec![KeyEdit { key, change: KeyChange::Create { value, fill: Vec::new() } }];
            let forward = Swap { edits, checks: Vec::new() };
            let action = Action::Swap { forward, backward: None };
            let (id, about) = (StepId(format!("make/{name}")), (*name).to_string());
            Step { id, subject: about, action, independent: false, back_of: Vec::new() }
        };
        self.0.iter().map(step).collect()
    }
}

async fn carry_out(
    store: &EtcdStore,
    journal: &mut Journal,
    guards: Vec<Guard>,
    names: &[&'static str],
) -> Result<Report, RunFailure> {
    let mut silent = Silent;
    let ledger = journal.in_store(store, &guards);
    let executor = Executor::new(&ledger, &NoEnvironment, &SystemAmbient, &mut silent, journal);
    Executor { parallel: 4, ..executor }.run(&Keys(names.to_vec()), None).await
}

async fn begin(store: &EtcdStore, operation: &str, lock: &Lock) -> Journal {
    let summary = Summary::default();
    let guards = [lock.guard()];
    Journal::begin(store, CLUSTER, operation, b"", summary, &guards).await.expect("a journal")
}

fn assert_lost_to(failure: &RunFailure, holder: &str) {
    assert!(matches!(failure.source, OperationError::LockLost { .. }), "{failure:?}");
    says(&failure.to_string(), &[&format!("`{holder}`")]);
}

#[tokio::test]
async fn etcd_leases_fulfil_contract() {
    for version in VERSIONS {
        let password = "secret".to_string();
        for (mutual_tls, root_password) in [(false, None), (true, None), (false, Some(password))] {
            let user = root_password.clone().map(|password| ("root".to_string(), password));
            let etcd = Etcd::start(Server { version, mutual_tls, root_password, ..Server::default() }).await;
            contract::check_leases(&connect(EtcdOptions { user, ..options(&etcd) }).await).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_of_two_processes_acquires_lease() {
    for version in VERSIONS {
        let etcd = plain(version).await;
        let (one, other) = (handle(&etcd).await, handle(&etcd).await);
        let mut wins = [0, 0];
        for round in 0..50 {
            let race = |store: Arc<EtcdStore>, holder: &'static str| {
                tokio::spawn(async move { acquire(&store, holder, LONG).await })
            };
            // The one that starts first has a small advantage.
            let (alice, bob) = if round % 2 == 0 {
                (race(one.clone(), "alice"), race(other.clone(), "bob"))
            } else {
                let bob = race(other.clone(), "bob");
                (race(one.clone(), "alice"), bob)
            };
            let winner = match (alice.await.expect("the task"), bob.await.expect("the task")) {
                (Ok(lock), Err(refused)) => {
                    assert!(refused.to_string().contains("`alice` (pid"), "{refused}");
                    wins[0] += 1;
                    lock
                }
                (Err(refused), Ok(lock)) => {
                    assert!(refused.to_string().contains("`bob` (pid"), "{refused}");
                    wins[1] += 1;
                    lock
                }
                (Ok(_), Ok(_)) => panic!("round {round}: both"),
                (Err(alice), Err(bob)) => panic!("round {round}: neither: {alice}; {bob}"),
            };
            winner.release().await.expect("it is released");
        }
        println!("{version:?}: {wins:?}");
        let left = contract::everything(one.as_ref(), None).await;
        assert_eq!(left, [], "no key is left");
    }
}

#[tokio::test]
async fn refused_process_receives_the_holder() {
    for version in VERSIONS {
        let etcd = plain(version).await;
        let (one, other) = (handle(&etcd).await, handle(&etcd).await);
        let lock = acquire(&one, "alice@cp-1", LONG).await.expect("it is free");
        let Err(OperationError::Locked(held)) = acquire(&other, "bob@cp-2", LONG).await else {
            panic!("it is held")
        };
        assert_eq!(held.claim, claim("alice@cp-1", "alice@cp-1"));
        let left = held.left.expect("it has a lease");
        assert!(left <= LONG && left > LONG / 2, "{left:?}");
        lock.release().await.expect("it is released");
    }
}

/// The holder's process is stopped for minutes, and then continues.
#[tokio::test]
async fn late_write_of_dead_holder_is_rejected() {
    for version in VERSIONS {
        let etcd = plain(version).await;
        let (one, other) = (handle(&etcd).await, handle(&etcd).await);
        let lock = acquire(&one, "alice", SHORT).await.expect("it is free");
        let mut journal = begin(&one, "alice", &lock).await;
        carry_out(&one, &mut journal, vec![lock.guard()], &["a"]).await.expect("the process holds the lease");
        let guard = lock.guard();
        drop(lock);
        let taken = acquire_at_last(&other, "bob", SHORT).await;

        let names = ["a", "b", "c", "d"];
        let late = carry_out(&one, &mut journal, vec![guard], &names).await.expect_err("the lease is lost");
        assert_lost_to(&late, "bob");
        let made = contract::scan(one.as_ref(), &[netsurgeon::store::KeyRange::prefix("/made/")], None).await;
        assert_eq!(made.expect("a scan").1.len(), 1, "no late write");
        let ledger = journal.in_store(one.as_ref(), &[Guard::Absent("/x".into())]);
        let refused = journal.set_status(&ledger, Status::Done, 0).await;
        refused.expect("it is written without the precondition");

        carry_out(&other, &mut journal, vec![taken.guard()], &names).await.expect("bob holds the lease");
        // With keep-alives it outlives its TTL by far.
        let lost = tokio::time::timeout(SHORT * 3, taken.until_lost()).await;
        assert!(lost.is_err(), "{lost:?}");
        taken.release().await.expect("it is released");
    }
}

/// The holder is cut off from etcd while it runs: it notices by its own clock.
#[tokio::test]
async fn holder_without_connection_notices_loss() {
    for version in VERSIONS {
        let etcd = plain(version).await;
        let relay = Relay::start(&etcd.endpoint().replace("http://", ""));
        let far = EtcdOptions { request_timeout: SHORT * 5, ..EtcdOptions::new([relay.address()]) };
        let (far, near) = (Arc::new(connect(far).await), handle(&etcd).await);
        let lock = acquire(&far, "alice", SHORT).await.expect("it is free");
        let mut journal = begin(&far, "alice", &lock).await;

        // A cut connection alone does not lose the lease: it is dialled again.
        for _ in 0..3 {
            relay.cut();
            let lost = tokio::time::timeout(SHORT, lock.until_lost()).await;
            assert!(lost.is_err(), "{lost:?}");
        }
        relay.be_silent(true);
        let silent = Instant::now();
        let reason = tokio::time::timeout(DEADLINE, lock.until_lost()).await.expect("it notices");
        assert!(silent.elapsed() < SHORT * 4, "{:?}: {reason}", silent.elapsed());
        let taken = acquire_at_last(&near, "bob", LONG).await;
        relay.be_silent(false);
        relay.cut();
        let late = carry_out(&far, &mut journal, vec![lock.guard()], &["a"]).await.expect_err("it is lost");
        assert_lost_to(&late, "bob");
        assert_eq!(near.get(&"/made/a".into()).await.expect("a get"), None);
        taken.release().await.expect("it is released");
    }
}

#[tokio::test]
async fn same_operation_takes_over_from_hanging_holder() {
    for version in VERSIONS {
        let etcd = plain(version).await;
        let (one, other) = (handle(&etcd).await, handle(&etcd).await);
        let hangs = Lock::acquire(one.clone(), CLUSTER, &claim("alice", "op"), LONG).await.expect("free");
        let mut journal = begin(&one, "op", &hangs).await;
        let wrong = Lock::take_over(other.clone(), CLUSTER, &claim("bob", "other"), LONG).await;
        assert!(matches!(wrong, Err(OperationError::Locked(_))), "another operation");
        let resumed =
            Lock::take_over(other.clone(), CLUSTER, &claim("bob", "op"), LONG).await.expect("its own");
        let late = carry_out(&one, &mut journal, vec![hangs.guard()], &["a"]).await.expect_err("it is lost");
        assert_lost_to(&late, "bob");
        drop(hangs);
        let (mut journal, ..) = Journal::open(other.as_ref(), CLUSTER, "op").await.expect("the journal");
        carry_out(&other, &mut journal, vec![resumed.guard()], &["a", "b"]).await.expect("bob continues");
        let removed = Journal::remove_all(other.as_ref(), CLUSTER, "op", &[resumed.guard()]).await;
        assert_eq!(removed.expect("it is removed"), 3);
        resumed.release().await.expect("it is released");
        let left = contract::everything(other.as_ref(), None).await;
        assert!(left.iter().all(|entry| entry.key.as_bytes().starts_with(b"/made/")), "{left:?}");
    }
}

/// If many processes take the same operation over at once, one has it in the end, and knows it.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_takeovers_wins() {
    for version in VERSIONS {
        let etcd = plain(version).await;
        let store = handle(&etcd).await;
        let first = Lock::acquire(store.clone(), CLUSTER, &claim("alice", "op"), LONG).await.expect("free");
        let mut tasks = Vec::new();
        for number in 0..6 {
            let store = handle(&etcd).await;
            tasks.push(tokio::spawn(async move {
                Lock::take_over(store, CLUSTER, &claim(&format!("bob-{number}"), "op"), LONG).await
            }));
        }
        let mut locks = vec![first];
        for task in tasks {
            locks.extend(task.await.expect("the task").ok());
        }
        let entry = store.get(&"/netsurgeon/one/lock".into()).await.expect("a get").expect("it is held");
        let holding: Vec<_> = locks.iter().filter(|lock| lock.guard().holds(Some(&entry))).collect();
        assert_eq!(holding.len(), 1);
        assert_eq!(holding[0].lost(), None);
    }
}

#[tokio::test]
async fn holder_keeps_lease_when_etcd_restarts() {
    for version in VERSIONS {
        let mut etcd = plain(version).await;
        let store = handle(&etcd).await;
        let ttl = Duration::from_secs(5);
        let lock = acquire(&store, "alice", ttl).await.expect("it is free");
        etcd.kill();
        etcd.start_again().await;
        let lost = tokio::time::timeout(ttl * 2, lock.until_lost()).await;
        assert!(lost.is_err(), "{lost:?}");
        let left = store.time_left(entry_lease(&store).await).await.expect("an answer");
        assert!(left.is_some_and(|left| left <= ttl), "{left:?}");
        lock.release().await.expect("it is released");
    }
}

async fn entry_lease(store: &EtcdStore) -> netsurgeon::store::lease::LeaseId {
    let entry = store.get(&"/netsurgeon/one/lock".into()).await.expect("a get").expect("it is held");
    netsurgeon::store::lease::LeaseId(entry.lease)
}

/// Another process may be about to resume the operation: its journal is not removed meanwhile.
#[tokio::test]
async fn forget_needs_the_operation_lease() {
    let etcd = plain(VERSIONS[0]).await;
    let store = handle(&etcd).await;
    let lock = acquire(&store, "holder", LONG).await.expect("it is free");
    let journal = begin(&store, "ended", &lock).await;
    journal
        .set_status(&journal.in_store(store.as_ref(), &[lock.guard()]), Status::RolledBack, 1_800_000_000)
        .await
        .expect("this process holds the lease");
    let before = etcd.keys("/netsurgeon/").await;
    let forget = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
        command.env_clear().args(["operation", "forget", "ended"]);
        let output = command.env("ETCDCTL_ENDPOINTS", etcd.endpoint()).output().expect("netsurgeon runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, says) = forget();
    assert_eq!(code, Some(1), "{says}");
    assert!(says.contains("`holder` (pid "), "{says}");
    assert_eq!(etcd.keys("/netsurgeon/").await, before, "nothing is removed");
    lock.release().await.expect("it is released");
    assert_eq!(forget().0, Some(0));
    assert_eq!(etcd.keys("/netsurgeon/").await, Vec::<String>::new(), "the lease is deleted, too");
}

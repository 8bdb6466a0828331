//! An operator's process is frozen in the middle of an operation, and continues after another process has resumed the operation:
//! its pending write fails, and it reports the reason.
//!
//! `make soak` does this at many more instants.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use netsurgeon::store::{KeyRange, ReadStore, Record};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use tokio::time::sleep;

use super::kill_points::{Lab, Standing, forget, is_soak, settled};
use super::rig::cluster::Era;
use super::rig::process::wait_until;
use super::serving_cluster::{NEW_RANGE, Watched, command, lines_of};

const DEADLINE: Duration = Duration::from_mins(2);
/// How long the lock of the frozen process outlives the freeze, in seconds.
const TTL: u32 = 2;
/// How much later than the awaited record a process is frozen, at most: longer than a step takes.
const JITTER: Duration = Duration::from_millis(20);
/// A process prints this when it has lost the operation lease.
const LOST: &str = "the operation lease was lost: ";
/// How many equal checks in a row show that no process writes.
const QUIET: usize = 20;

/// The direction of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Back,
}

impl Direction {
    /// The command of the first process.
    fn begins(self, operation: Option<&str>) -> String {
        match self {
            Self::Forward => format!(
                "renumber apply --to {NEW_RANGE} --no-snapshot --yes --batch-size 3 --confirm certificates"
            ),
            Self::Back => self.goes_on(operation.expect("an operation")),
        }
    }

    /// The command of the process that resumes.
    fn goes_on(self, operation: &str) -> String {
        match self {
            Self::Forward => {
                format!("operation resume {operation} --confirm snapshot --confirm certificates")
            }
            Self::Back => format!("operation rollback {operation} --yes --linger 0 --confirm flags"),
        }
    }

    /// The exit status at the end: forward, everything has moved and the operation waits for the flags.
    fn end(self) -> i32 {
        if self == Self::Forward { 6 } else { 0 }
    }

    /// How many steps were run.
    async fn steps(self, lab: &Lab) -> usize {
        let state = if self == Self::Forward { "done" } else { "undo-done" };
        lab.records().await.values().filter(|found| *found == state).count()
    }
}

fn start(lab: &Lab, words: &str) -> Watched {
    println!("$ netsurgeon {words} &");
    Watched::start(command(&lab.cluster, words))
}

/// Everything that is stored about the cluster and by netsurgeon, with the revision of its last change. Without objects that
/// other processes write all the time: events, and Leases of running processes. Allocations are compared by their content: the
/// API server allocates a port for a barrier's sentinel and frees it, and a process that is frozen between the check of the lock
/// and the request gets a port.
async fn stored(lab: &Lab) -> BTreeMap<String, Vec<u8>> {
    let mut stored = BTreeMap::new();
    let mut visitor = |record: Record<'_>| {
        let key = String::from_utf8_lossy(record.key).into_owned();
        let passing = ["events", "leases", "masterleases", "peerserverleases"];
        if !passing.iter().any(|resource| key.starts_with(&format!("/registry/{resource}/"))) {
            let is_allocation = key.starts_with("/registry/ranges/");
            let revision = record.mod_revision.0.to_be_bytes().to_vec();
            stored.insert(key, if is_allocation { record.value.to_vec() } else { revision });
        }
        ControlFlow::Continue(())
    };
    let ranges = [KeyRange::prefix("/registry/"), KeyRange::prefix("/netsurgeon/")];
    lab.store.scan(&ranges, None, &mut visitor).await.expect("etcd answers");
    stored
}

/// The same, once the controllers have finished their work.
async fn standing_still(lab: &Lab) -> BTreeMap<String, Vec<u8>> {
    let mut last = stored(lab).await;
    let mut looks = 0;
    wait_until("no process writes", DEADLINE, async || {
        let now = stored(lab).await;
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
        if looks >= QUIET { Ok(()) } else { Err(format!("{looks} equal checks")) }
    })
    .await;
    last
}

/// Waits until no process has the lock. A write that was on its way to etcd has arrived by then, or arrives too late.
async fn lock_is_free(lab: &Lab) {
    wait_until("the lease of the frozen process has ended", DEADLINE, async || match holder(lab).await {
        Some(pid) => Err(format!("process {pid} has the lock")),
        None => Ok(()),
    })
    .await;
}

/// Resumes an operation whose lock is free. Returns the process once it has the lock.
async fn take_up(lab: &Lab, way: Direction, operation: &str) -> Watched {
    wait_until("another process has the lock", DEADLINE, async || {
        let mut second = start(lab, &way.goes_on(operation));
        wait_until("the process has the lock, or is refused", DEADLINE, async || {
            let ended = second.ended();
            if ended.is_some() || holder(lab).await == Some(second.id()) {
                Ok(())
            } else {
                Err(format!("{ended:?}"))
            }
        })
        .await;
        match second.ended() {
            Some(1) => Err(said(&second)),
            _ => Ok(second),
        }
    })
    .await
}

fn said(run: &Watched) -> String {
    lines_of(&run.err).join("\n")
}

/// The process that has the lock.
async fn holder(lab: &Lab) -> Option<u32> {
    let keys = lab.cluster.etcd.keys("/netsurgeon/").await;
    let key = keys.into_iter().find(|key| key.ends_with("/lock"))?;
    let claim: Value = serde_json::from_slice(&lab.cluster.etcd.get(&key).await?).expect("a claim is JSON");
    claim["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
}

/// Runs in one direction, with a process that is frozen after so many steps and a moment. Returns whether it was frozen before
/// its end.
async fn go(
    lab: &Lab,
    before: &Standing,
    way: Direction,
    steps: usize,
    moment: Duration,
    late: bool,
) -> bool {
    let operation = lab.operation().await;
    let mut first = start(lab, &format!("{} --lock-ttl {TTL}", way.begins(operation.as_deref())));
    let mut ended = None;
    while ended.is_none() && way.steps(lab).await < steps {
        ended = first.ended();
    }
    // This waits for no condition: the process is frozen at any instant.
    sleep(moment).await;
    ended = ended.or_else(|| first.ended());
    if let Some(code) = ended {
        return came_to_an_end(lab, way, code, &said(&first)).await;
    }
    first.freeze();
    lock_is_free(lab).await;
    let frozen_at = way.steps(lab).await;
    let operation = lab.operation().await.expect("an operation");
    let mut second = take_up(lab, way, &operation).await;
    let no_holder = "it has expired, and no process holds it".to_owned();
    let mut to = vec![no_holder];
    if late {
        assert_eq!(second.end().await, way.end(), "{}", said(&second));
        if way == Direction::Back {
            settled(lab, before).await;
        }
        let left = standing_still(lab).await;
        first.thaw();
        first.end().await;
        let now = stored(lab).await;
        let differs = |key: &&String| left.get(*key) != now.get(*key);
        let different: BTreeSet<&String> = left.keys().chain(now.keys()).filter(differs).collect();
        assert!(different.is_empty(), "{way:?}, frozen after {frozen_at} steps: it changed {different:?}");
    } else {
        first.thaw();
        first.end().await;
        assert_eq!(second.end().await, way.end(), "{}", said(&second));
        // Or the other process had finished before the first one checked.
        to.push(format!("(pid {}) for operation `{operation}`", second.id()));
    }
    let words = said(&first);
    println!("{way:?}, frozen after {frozen_at} steps: {words}");
    let code = first.end().await;
    if code == way.end() && way.steps(lab).await == frozen_at {
        // It was frozen after its last record: only its output was missing.
        return false;
    }
    assert_eq!(code, 5, "{words}");
    let is_named = to.iter().any(|to| words.contains(to));
    assert!(words.contains(LOST) && is_named, "{to:?}: {words}");
    true
}

/// Checks the end of a process that was not frozen. On a busy machine its lease may expire, which has the same effect: another
/// process continues.
async fn came_to_an_end(lab: &Lab, way: Direction, code: i32, words: &str) -> bool {
    if code == way.end() {
        return false;
    }
    assert!([1, 5].contains(&code) && words.contains(LOST), "status {code}: {words}");
    println!("{way:?}, not frozen: {words}");
    lock_is_free(lab).await;
    // Before its first record there is nothing to resume: the next process starts the operation.
    let Some(operation) = lab.operation().await else {
        assert_eq!(start(lab, &way.begins(None)).end().await, way.end());
        return false;
    };
    let mut second = take_up(lab, way, &operation).await;
    assert_eq!(second.end().await, way.end(), "{}", said(&second));
    true
}

#[tokio::test]
async fn frozen_process_changes_nothing_after_it_lost_the_lease() {
    let lab = Lab::start(Era::Objects).await;
    let before = lab.standing().await;
    let mut most = [0; 2];
    let mut held = None;
    let mut random = StdRng::seed_from_u64(5);
    let (mut stopped, enough) = (0, if is_soak() { 200 } else { 6 });
    while stopped < enough {
        for (number, way) in [Direction::Forward, Direction::Back].into_iter().enumerate() {
            // The first run is not frozen: it shows the number of steps and the end state.
            let steps = most[number];
            let after = if steps == 0 { usize::MAX } else { random.random_range(1..steps) };
            let moment = JITTER.mul_f64(random.random());
            // Every third process has to name the holder of the lock, and competes with it.
            let late = stopped % 3 != 2;
            stopped += usize::from(go(&lab, &before, way, after, moment, late).await);
            if steps == 0 {
                most[number] = way.steps(&lab).await;
            }
            if way == Direction::Forward {
                let now = lab.standing().await;
                assert_eq!(*held.get_or_insert_with(|| now.clone()), now, "the end state is the same");
            } else {
                settled(&lab, &before).await;
            }
        }
        forget(&lab).await;
    }
    println!("frozen {stopped} times, of {most:?} steps");
}

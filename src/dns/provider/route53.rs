//! A hosted zone in Amazon Route 53. Concurrent changes of several names share one request, because Route 53 allows only five
//! requests per second for an account.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::{Mutex as Turn, oneshot};
use tokio::time::{Instant, sleep};

use super::{Behind, Compared, Expected, Provider, stale_servers};
use crate::dns::{Change, Cutover, Name};
use crate::nameserver::{RecordKind, RecordSet, SetChange};
use crate::operation::{Ambient as _, Fence, StepFault, SystemAmbient};
use crate::route53::{Listed, MOST_RECORDS, Route53, Route53Error};
use crate::session::Failure;

/// How long the cached list of record sets is used. A list that took long to read is used for longer. netsurgeon adds its own
/// changes to the list. If another client changed a record, Route 53 rejects the request.
const FRESH: Duration = Duration::from_secs(10);
/// Pause between two rounds of requests that ask whether changes have reached every server.
const LOOK: Duration = Duration::from_secs(2);
/// Maximum number of changes to ask about in one round, because Route 53 allows five requests per second for an account.
const MOST_ASKED: usize = 10;

/// Time after which netsurgeon assumes that a change with an unknown id has reached every Route 53 server. According to the
/// Route 53 Developer Guide, a change usually reaches all servers within 60 s.
const SPREAD: Duration = Duration::from_mins(1);
/// Number of attempts for a throttled request, and the pauses between them. Each pause is twice as long as the previous pause, and
/// half of it is jitter.
const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// Maximum number of names to try one by one if the credentials are not allowed to change all names.
const MOST_TRIED: usize = 8;
/// Maximum number of characters in the values of one request. This is half of the limit of Route 53.
const MOST_CHARACTERS: usize = 16_000;

/// The record sets of a zone, by name.
type Sets = BTreeMap<String, Vec<RecordSet>>;
type Outcome = Result<Value, StepFault>;

/// The listed record sets of the zone, or the error of the list request.
struct Known {
    at: Instant,
    /// How long the list is used.
    fresh: Duration,
    sets: Result<Sets, Route53Error>,
}

/// A change that has not been sent yet.
struct Waiting {
    changes: Vec<SetChange>,
    tell: oneshot::Sender<Outcome>,
}

/// Tracks which changes of this operation have reached every server.
#[derive(Default)]
struct Spreading {
    /// Ids of the changes, and whether each change has reached every server.
    changes: BTreeMap<String, bool>,
    /// Time at which Route 53 was last asked about a change; `None` before the first request, and after all changes have
    /// reached every server.
    asked: Option<Instant>,
    /// Time at which this process last found a change without an id.
    without_id: Option<Instant>,
}

/// A zone in Route 53.
pub(super) struct Route53Zone {
    api: Route53,
    id: String,
    /// This mutex also serializes the requests that list or change the zone.
    known: Turn<Option<Known>>,
    waiting: Mutex<Vec<Waiting>>,
    spreading: Mutex<Spreading>,
    /// Serializes the requests that ask whether changes have reached every server.
    asking: Turn<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Route53Zone {
    /// Returns the zone with an id.
    pub async fn new(id: &str) -> Result<Self, Failure> {
        Ok(Self {
            api: Route53::new().await.map_err(|error| refused(&error))?,
            id: id.to_string(),
            known: Turn::default(),
            waiting: Mutex::default(),
            spreading: Mutex::default(),
            asking: Turn::default(),
        })
    }

    /// Sends one request. Retries a throttled request. Checks the fence directly before each attempt. Changes of other names in
    /// the same request belong to the same process, so they have the same fence.
    async fn attempt(&self, changes: &[SetChange], fence: &dyn Fence) -> Result<String, Route53Error> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            match self.attempt_once(changes, fence).await {
                Err(error) if error.is_throttled() => {
                    sleep(pause.mul_f64(f64::midpoint(1.0, SystemAmbient.fraction()))).await;
                    pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
                }
                outcome => return outcome,
            }
        }
        self.attempt_once(changes, fence).await
    }

    async fn attempt_once(&self, changes: &[SetChange], fence: &dyn Fence) -> Result<String, Route53Error> {
        let held = fence.still_ours().await;
        held.map_err(|fault| Route53Error::Unsent { reason: fault.to_string() })?;
        self.api.replace(&self.id, changes).await
    }

    /// Sends as many waiting changes as one request can contain. If Route 53 refuses the request because of one of its changes,
    /// sends each half of the changes again, so that one name does not stop the others.
    async fn send(&self, known: &mut Option<Known>, fence: &dyn Fence) {
        let mut parts = vec![self.next_batch()];
        while let Some(mut batch) = parts.pop() {
            let all: Vec<SetChange> = batch.iter().flat_map(|one| one.changes.clone()).collect();
            let outcome = self.attempt(&all, fence).await;
            let is_shared = batch.len() > 1;
            if outcome.as_ref().is_err_and(|error| is_shared && error.is_of_changes()) {
                let rest = batch.split_off(batch.len() / 2);
                parts.extend([rest, batch]);
                continue;
            }
            for Waiting { changes, tell } in batch {
                let outcome = match outcome.clone() {
                    Ok(change) => {
                        note(known, &changes);
                        let made = json!(change);
                        self.recall(&[Some(Box::new(made.clone()))]);
                        Ok(made)
                    }
                    Err(error) => {
                        *known = None;
                        self.why(error, &changes).await
                    }
                };
                // If the step of the change was dropped, the receiver no longer exists.
                let _ = tell.send(outcome);
            }
        }
    }

    /// Takes as many waiting changes as one request can contain.
    fn next_batch(&self) -> Vec<Waiting> {
        let mut waiting = lock(&self.waiting);
        // A closed channel means that the step of the change was dropped.
        waiting.retain(|one| !one.tell.is_closed());
        let (mut records, mut characters) = (0_usize, 0_usize);
        let fits = |one: &&Waiting| {
            let data = || one.changes.iter().flat_map(|change| change.from.iter().chain(&change.to));
            let data = || data().flat_map(|set| &set.data);
            records = records.saturating_add(data().count());
            characters = characters.saturating_add(data().map(String::len).sum());
            records <= MOST_RECORDS && characters <= MOST_CHARACTERS
        };
        let count = waiting.iter().take_while(fits).count().max(1).min(waiting.len());
        waiting.drain(..count).collect()
    }

    async fn may_change(&self, sets: &BTreeSet<(String, RecordKind)>) -> Result<(), Route53Error> {
        let sets: Vec<(&str, RecordKind)> = sets.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
        self.api.may_change(&self.id, &sets).await
    }

    /// Returns the outcome of a rejected change. Reads the current record sets after a conflict, because Route 53 can have
    /// executed an earlier attempt of the same request.
    async fn why(&self, error: Route53Error, changes: &[SetChange]) -> Outcome {
        if !error.is_conflict() {
            return Err(fault(&error));
        }
        let names: BTreeSet<&str> = changes.iter().filter_map(SetChange::of).map(|(name, _)| name).collect();
        let mut present = Vec::new();
        for name in names {
            present.extend(self.api.sets_of(&self.id, name).await.map_err(|error| fault(&error))?);
        }
        present.retain(|set| changes.iter().any(|change| change.of() == Some((&set.name, set.kind))));
        match Compared::of(&present, changes) {
            Compared::After => {
                self.recall(&[None]);
                Ok(Value::Null)
            }
            Compared::Before => Err(StepFault::Skip(error.to_string())),
            Compared::Neither(why) => Err(StepFault::Skip(why)),
        }
    }
}

/// Adds changes that Route 53 has executed to the cached record sets.
fn note(known: &mut Option<Known>, changes: &[SetChange]) {
    let Some(Known { sets: Ok(sets), .. }) = known else { return };
    for SetChange { from, to } in changes {
        if let Some(from) = from
            && let Some(of_name) = sets.get_mut(&from.name)
        {
            of_name.retain(|set| set != from);
        }
        if let Some(to) = to {
            sets.entry(to.name.clone()).or_default().push(to.clone());
        }
    }
}

fn fault(error: &Route53Error) -> StepFault {
    let why = format!("{error}; {}", error.hint());
    match error {
        Route53Error::Lost { .. } => StepFault::InDoubt(why),
        Route53Error::Unsent { .. } => StepFault::Retry { why, after: None },
        _ if error.is_throttled() => StepFault::Retry { why, after: None },
        _ if error.is_of_changes() => StepFault::Skip(why),
        _ => StepFault::Halt(why),
    }
}

fn refused(error: &Route53Error) -> Failure {
    Failure::refused(error.to_string()).hint(error.hint())
}

#[async_trait]
impl Provider for Route53Zone {
    /// Checks that the hosted zone is the planned zone, and that the credentials allow changes to at least one name. The other
    /// names are skipped.
    async fn check(&self, work: &Cutover) -> Result<(), Failure> {
        let zone = self.api.zone(&self.id).await.map_err(|error| refused(&error))?;
        if zone.name != work.zone {
            let (planned, found) = (&work.zone, &zone.name);
            return Err(Failure::refused(format!("the hosted zone {zone} is `{found}`, not `{planned}`"))
                .hint("create a new plan: `netsurgeon dns plan`"));
        }
        let owned = |name: &'_ Name| {
            let owned = name.ownership.iter();
            owned.flat_map(|owned| owned.before.iter().chain(&owned.after).cloned()).collect::<Vec<_>>()
        };
        let sets = |name: &Name| {
            let sets = name.before.iter().chain(&name.after).cloned().chain(owned(name));
            sets.map(|set| (set.name, set.kind)).collect::<BTreeSet<_>>()
        };
        let all: BTreeSet<(String, RecordKind)> = work.names.iter().flat_map(sets).collect();
        let mut outcome = self.may_change(&all).await;
        // Some names are tried one by one.
        for name in work.names.iter().take(MOST_TRIED) {
            if !outcome.as_ref().is_err_and(Route53Error::is_of_changes) {
                break;
            }
            outcome = self.may_change(&sets(name)).await;
        }
        outcome.map_err(|error| refused(&error))
    }

    async fn read(&self, name: &str, kinds: &[RecordKind]) -> Result<Vec<RecordSet>, StepFault> {
        let mut known = self.known.lock().await;
        if known.as_ref().is_none_or(|known| known.at.elapsed() > known.fresh) {
            let started = Instant::now();
            let listed = self.api.list(&self.id).await.map(|listed| {
                let mut sets = Sets::new();
                for Listed { set, .. } in listed {
                    sets.entry(set.name.clone()).or_default().push(set);
                }
                sets
            });
            // The list of a large zone has many pages. It is used for ten times as long as the request took, so that list
            // requests need at most a tenth of the time. An error is kept only for a short time, for the names that wait for the
            // same list.
            let fresh = match listed {
                Ok(_) => FRESH.max(started.elapsed().saturating_mul(10)),
                Err(_) => LOOK,
            };
            *known = Some(Known { at: Instant::now(), fresh, sets: listed });
        }
        let Some(Known { sets, .. }) = known.as_ref() else { return Ok(Vec::new()) };
        let sets = sets.as_ref().map_err(fault)?.get(name);
        let is_of = |set: &&RecordSet| kinds.contains(&set.kind);
        let mut found: Vec<RecordSet> = sets.into_iter().flatten().filter(is_of).cloned().collect();
        found.sort();
        Ok(found)
    }

    async fn refresh(&self) {
        *self.known.lock().await = None;
    }

    async fn replace(&self, change: &Change, fence: &dyn Fence) -> Result<Value, StepFault> {
        let (tell, mut told) = oneshot::channel();
        lock(&self.waiting).push(Waiting { changes: change.sets.clone(), tell });
        loop {
            let mut known = self.known.lock().await;
            match told.try_recv() {
                Ok(outcome) => return outcome,
                Err(oneshot::error::TryRecvError::Empty) => self.send(&mut known, fence).await,
                Err(oneshot::error::TryRecvError::Closed) => {
                    return Err(StepFault::InDoubt("the request with this change was dropped".to_string()));
                }
            }
        }
    }

    fn recall(&self, made: &[Option<Box<Value>>]) {
        let mut spreading = lock(&self.spreading);
        for made in made {
            match made.as_deref().and_then(Value::as_str) {
                Some(change) => drop(spreading.changes.entry(change.to_string()).or_insert(false)),
                None => spreading.without_id = Some(Instant::now()),
            }
        }
        if made.is_empty() && spreading.changes.is_empty() {
            spreading.without_id = Some(Instant::now());
        }
    }

    fn delay(&self) -> Duration {
        SPREAD
    }

    async fn behind(&self, names: &[Expected<'_>]) -> Vec<Behind> {
        if names.is_empty() {
            return Vec::new();
        }
        let late = self.late().await.unwrap_or_else(|error| Some(error.to_string()));
        stale_servers(names.iter().map(|_| late.clone()).collect()).into_iter().collect()
    }
}

impl Route53Zone {
    /// Returns what has not reached every server of Route 53. Asks about some of the changes. Later calls ask about the others.
    async fn late(&self) -> Result<Option<String>, Route53Error> {
        let _turn = self.asking.lock().await;
        let (open, asked) = {
            let spreading = lock(&self.spreading);
            if spreading.without_id.is_some_and(|since| since.elapsed() < SPREAD) {
                return Ok(Some("Route 53 may still be sending a change to its servers".to_string()));
            }
            let open = spreading.changes.iter().filter(|(_, is_everywhere)| !**is_everywhere);
            (open.map(|(change, _)| change.clone()).collect::<Vec<_>>(), spreading.asked)
        };
        let late = |change: &str| format!("the change {change} has not reached every server of Route 53");
        if let Some(first) = open.first()
            && asked.is_some_and(|asked| asked.elapsed() < LOOK)
        {
            return Ok(Some(late(first)));
        }
        let mut pending = open.iter().skip(MOST_ASKED).take(1).cloned().collect::<Vec<_>>();
        for change in open.into_iter().take(MOST_ASKED) {
            // This time is set before the request, so that the next call does not ask immediately after an error.
            lock(&self.spreading).asked = Some(Instant::now());
            if self.api.is_in_sync(&change).await? {
                lock(&self.spreading).changes.insert(change, true);
            } else {
                pending.push(change);
            }
        }
        if pending.is_empty() {
            lock(&self.spreading).asked = None;
        }
        Ok(pending.first().map(|change| late(change)))
    }
}

//! A hosted zone in Amazon Route 53. Names that change at the same time share a request, because Route 53 allows five requests a
//! second for an account.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::{Mutex as Turn, oneshot};
use tokio::time::Instant;

use super::Provider;
use crate::dns::Cutover;
use crate::nameserver::{Kind, RecordSet, SetChange, described};
use crate::operation::Fault;
use crate::route53::{MOST_RECORDS, Route53, Route53Error};
use crate::session::Failure;

/// How long the list of record sets is used. Own changes are added to it, and a change of another client is found when Route 53
/// rejects the request.
const FRESH: Duration = Duration::from_secs(10);
/// Pause between two questions whether a change has reached every server.
const LOOK: Duration = Duration::from_secs(2);

/// The record sets of a zone, by name.
type Sets = BTreeMap<String, Vec<RecordSet>>;
type Outcome = Result<Value, Fault>;

/// A change that waits for its request.
struct Waiting {
    changes: Vec<SetChange>,
    tell: oneshot::Sender<Outcome>,
}

/// Changes of this operation that have not reached every server, as far as is known.
#[derive(Default)]
struct Spreading {
    /// Ids of the changes, and whether they have.
    changes: BTreeMap<String, bool>,
    asked: Option<Instant>,
}

/// A zone in Route 53.
pub(super) struct Route53Zone {
    api: Route53,
    id: String,
    /// The record sets at a time. Also the turn to send a request.
    known: Turn<Option<(Instant, Sets)>>,
    waiting: Mutex<Vec<Waiting>>,
    spreading: Turn<()>,
    changes: Mutex<Spreading>,
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
            spreading: Turn::default(),
            changes: Mutex::default(),
        })
    }

    /// Sends changes that wait, as many as one request can have. The names of a request that Route 53 rejects are sent again, each
    /// in its own request.
    async fn send(&self, known: &mut Option<(Instant, Sets)>) {
        let batch = {
            let mut waiting = lock(&self.waiting);
            let mut records = 0_usize;
            let fits = |one: &&Waiting| {
                records = records.saturating_add(one.changes.iter().map(size).sum());
                records <= MOST_RECORDS
            };
            let count = waiting.iter().take_while(fits).count().max(1).min(waiting.len());
            waiting.drain(..count).collect::<Vec<_>>()
        };
        let all: Vec<SetChange> = batch.iter().flat_map(|one| one.changes.clone()).collect();
        let outcome = self.api.replace(&self.id, &all).await;
        let is_one = batch.len() < 2;
        for Waiting { changes, tell } in batch {
            let outcome = match &outcome {
                Ok(change) => Ok(change.clone()),
                Err(error) if error.is_conflict() && !is_one => self.api.replace(&self.id, &changes).await,
                Err(error) => Err(error.clone()),
            };
            let outcome = match outcome {
                Ok(change) => {
                    note(known, &changes);
                    self.recall(&json!(change));
                    Ok(json!(change))
                }
                Err(error) => {
                    *known = None;
                    self.why(error, &changes).await
                }
            };
            // The receiver is gone if its step was dropped.
            let _ = tell.send(outcome);
        }
    }

    /// Returns the outcome of a rejected change. An earlier attempt of the same request may have been executed.
    async fn why(&self, error: Route53Error, changes: &[SetChange]) -> Outcome {
        if !error.is_conflict() {
            return Err(fault(&error));
        }
        let mut present = Vec::new();
        for name in names(changes) {
            present.extend(self.api.sets_of(&self.id, name).await.map_err(|error| fault(&error))?);
        }
        let is = |set: Option<&RecordSet>| set.is_none_or(|set| present.contains(set));
        if changes.iter().all(|change| is(change.to.as_ref())) {
            return Ok(Value::Null);
        }
        if changes.iter().all(|change| is(change.from.as_ref())) {
            return Err(Fault::Halt(error.to_string()));
        }
        present.retain(|set| changes.iter().any(|change| change.of() == Some((&set.name, set.kind))));
        Err(Fault::Skip(format!("another client changed its records: {}", described(&present))))
    }
}

/// Returns the names of changes, each once.
fn names(changes: &[SetChange]) -> impl Iterator<Item = &str> {
    let names: std::collections::BTreeSet<&str> =
        changes.iter().filter_map(SetChange::of).map(|(name, _)| name).collect();
    names.into_iter()
}

/// Returns how many records a change has in a request.
fn size(change: &SetChange) -> usize {
    change.from.iter().chain(&change.to).map(|set| set.data.len()).sum()
}

/// Adds own changes to the known record sets.
fn note(known: &mut Option<(Instant, Sets)>, changes: &[SetChange]) {
    let Some((_, sets)) = known else { return };
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

fn fault(error: &Route53Error) -> Fault {
    let why = format!("{error}; {}", error.hint());
    match error {
        Route53Error::Lost { .. } => Fault::InDoubt(why),
        _ if error.is_throttled() => Fault::Retry { why, after: None },
        _ => Fault::Halt(why),
    }
}

fn refused(error: &Route53Error) -> Failure {
    Failure::refused(error.to_string()).hint(error.hint())
}

#[async_trait]
impl Provider for Route53Zone {
    /// Checks that the hosted zone is the planned one, and that the credentials allow to change every name.
    async fn check(&self, work: &Cutover) -> Result<(), Failure> {
        let zone = self.api.zone(&self.id).await.map_err(|error| refused(&error))?;
        if zone.name != work.zone {
            let (planned, found) = (&work.zone, &zone.name);
            return Err(Failure::refused(format!("the hosted zone {zone} is `{found}`, not `{planned}`"))
                .hint("make a new plan: `netsurgeon dns plan`"));
        }
        let sets: Vec<(&str, Kind)> = work
            .names
            .iter()
            .flat_map(|name| &name.before)
            .map(|set| (set.name.as_str(), set.kind))
            .collect();
        self.api.may_change(&self.id, &sets).await.map_err(|error| refused(&error))
    }

    async fn read(&self, name: &str, kinds: &[Kind]) -> Result<Vec<RecordSet>, Fault> {
        let mut known = self.known.lock().await;
        if known.as_ref().is_none_or(|(at, _)| at.elapsed() > FRESH) {
            let at = Instant::now();
            let listed = self.api.list(&self.id).await.map_err(|error| fault(&error))?;
            let mut sets = Sets::new();
            for listed in listed {
                sets.entry(listed.set.name.clone()).or_default().push(listed.set);
            }
            *known = Some((at, sets));
        }
        let sets = known.as_ref().and_then(|(_, sets)| sets.get(name));
        let is_of = |set: &&RecordSet| kinds.contains(&set.kind);
        let mut found: Vec<RecordSet> = sets.into_iter().flatten().filter(is_of).cloned().collect();
        found.sort();
        Ok(found)
    }

    async fn replace(&self, changes: &[SetChange]) -> Result<Value, Fault> {
        let (tell, mut told) = oneshot::channel();
        lock(&self.waiting).push(Waiting { changes: changes.to_vec(), tell });
        loop {
            let mut known = self.known.lock().await;
            match told.try_recv() {
                Ok(outcome) => return outcome,
                Err(oneshot::error::TryRecvError::Empty) => self.send(&mut known).await,
                Err(oneshot::error::TryRecvError::Closed) => {
                    return Err(Fault::InDoubt("the request with this change was dropped".to_string()));
                }
            }
        }
    }

    fn recall(&self, made: &Value) {
        if let Some(change) = made.as_str() {
            lock(&self.changes).changes.entry(change.to_string()).or_insert(false);
        }
    }

    async fn behind(&self, _: &str, _: &[Kind], _: &[RecordSet]) -> Result<Option<String>, Fault> {
        let _turn = self.spreading.lock().await;
        loop {
            let (change, asked) = {
                let spreading = lock(&self.changes);
                let open = spreading.changes.iter().find(|(_, is_everywhere)| !**is_everywhere);
                let Some((change, _)) = open else { return Ok(None) };
                (change.clone(), spreading.asked)
            };
            let late = format!("the change {change} has not reached every server of Route 53");
            if asked.is_some_and(|asked| asked.elapsed() < LOOK) {
                return Ok(Some(late));
            }
            let is_everywhere = self.api.is_in_sync(&change).await.map_err(|error| fault(&error))?;
            let mut spreading = lock(&self.changes);
            if is_everywhere {
                spreading.changes.insert(change, true);
            } else {
                spreading.asked = Some(Instant::now());
                return Ok(Some(late));
            }
        }
    }
}

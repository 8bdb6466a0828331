//! What was done, step by step, in the store that was changed, so that any machine can go on.
//!
//! Its keys, outside every API server's prefix, are those of [`EtcdLedger`].

mod keep;
mod record;
mod returning;
mod status;
mod summary;

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::keep::commit;
pub use self::keep::{Listed, Progress};
pub use self::record::{Noted, Record, State};
pub use self::returning::Returning;
pub use self::status::Status;
pub use self::summary::Summary;
use super::ledger::{base_of, key_of};
use super::{Claim, EtcdLedger, Kind, Ledger, OperationError, Part, PartChange, Plan, StepId, Work};
use crate::store::{
    Action, Change, CommitError, Expected, Guard, Key, KeyRange, ReadStore, Record as StoreRecord, Revision,
    Visit, WriteStore,
};

/// A part of a plan stays well below etcd's limit of 1.5 MiB a request (`--max-request-bytes`).
const PLAN_PART: usize = 512 * 1024;

/// The journal of one operation.
pub struct Journal {
    base: String,
    records: HashMap<StepId, (Record, Revision)>,
    returning: Option<Returning>,
}

impl Journal {
    /// Returns the keys of all journals of all clusters.
    pub fn of_all_clusters() -> KeyRange {
        KeyRange::prefix("/netsurgeon/")
    }

    fn at(cluster: &str, operation: &str) -> Self {
        Self { base: base_of(cluster, operation), records: HashMap::new(), returning: None }
    }

    fn key(&self, part: &Part) -> Key {
        key_of(&self.base, part)
    }

    fn steps_prefix(&self) -> String {
        format!("{}/steps/", self.base)
    }

    /// Returns its ledger in etcd, for whoever carries the operation out. The guards must hold of every write: on a live
    /// cluster the lock's ([`super::Lock::guard`]).
    pub fn in_store<'a>(&self, store: &'a dyn WriteStore, guards: &[Guard]) -> EtcdLedger<'a> {
        EtcdLedger::new(store, self.base.clone(), guards)
    }

    /// Returns the key of a step's record in etcd.
    pub fn step_key(&self, step: &StepId) -> Key {
        self.key(&Part::Step(step.clone()))
    }

    /// Begins the journal of a plan that is about to be carried out: by whom, as which operation and since
    /// when. For `guards` see [`Self::begin`].
    pub async fn begin_plan<W: Kind + Work>(
        store: &dyn WriteStore,
        plan: &Plan<W>,
        by: &Claim,
        guards: &[Guard],
    ) -> Result<Self, OperationError> {
        Self::begin_gated(store, plan, by, Value::Null, guards).await
    }

    /// The same with what is asked between batches, to be recorded with the operation.
    pub async fn begin_gated<W: Kind + Work>(
        store: &dyn WriteStore,
        plan: &Plan<W>,
        by: &Claim,
        gates: Value,
        guards: &[Guard],
    ) -> Result<Self, OperationError> {
        let begun = Summary::begun(&plan.header.kind, &plan.digest, by);
        let summary = Summary { gates, compiled: plan.compiled(), ..begun };
        Self::begin(store, &plan.header.cluster, &by.operation, &to_json(plan), summary, guards).await
    }

    /// Begins a journal: stores the plan, then the record by which the operation exists. What others have
    /// left behind that were interrupted in between is removed first.
    ///
    /// The guards must hold of every write: on a live cluster the lock's ([`super::Lock::guard`]).
    pub async fn begin(
        store: &dyn WriteStore,
        cluster: &str,
        operation: &str,
        plan: &[u8],
        summary: Summary,
        guards: &[Guard],
    ) -> Result<Self, OperationError> {
        Self::sweep(store, cluster, guards).await?;
        let journal = Self::at(cluster, operation);
        let parts: Vec<&[u8]> = plan.chunks(PLAN_PART).collect();
        let mut guards = guards.to_vec();
        for (index, part) in parts.iter().enumerate() {
            let key = journal.key(&Part::Plan(index));
            let revision = put_new(store, &guards, &key, part).await?;
            if index == 0 {
                // Somebody else who begins may take this for a leftover.
                guards.push(Guard::Unchanged(key, revision));
            }
        }
        let summary = Summary { plan_parts: parts.len(), ..summary };
        put_new(store, &guards, &journal.key(&Part::Summary), &to_json(&summary)).await?;
        Ok(journal)
    }

    /// Opens the journal of an operation that was begun before: its summary, its plan and its records.
    pub async fn open(
        store: &dyn ReadStore,
        cluster: &str,
        operation: &str,
    ) -> Result<(Self, Summary, Vec<u8>), OperationError> {
        Self::open_at(store, cluster, operation, None).await
    }

    /// The same with the records as they were at a revision, so that they agree with what else was read at it
    /// while the operation goes on. The summary is the newest.
    pub async fn open_at(
        store: &dyn ReadStore,
        cluster: &str,
        operation: &str,
        at: Option<Revision>,
    ) -> Result<(Self, Summary, Vec<u8>), OperationError> {
        let mut journal = Self::at(cluster, operation);
        let key = journal.key(&Part::Summary);
        let found = Self::read_at::<Summary>(store, &key).await?;
        let (summary, _) = found.ok_or_else(|| Self::broken(&key, "there is no such operation"))?;
        let mut plan = Vec::new();
        for index in 0..summary.plan_parts {
            let key = journal.key(&Part::Plan(index));
            let part = store.get(&key).await?;
            plan.extend(part.ok_or_else(|| Self::broken(&key, "a part of the plan is missing"))?.value);
        }
        journal.returning.clone_from(&summary.returning);
        journal.load(store, at).await?;
        Ok((journal, summary, plan))
    }

    async fn load(&mut self, store: &dyn ReadStore, at: Option<Revision>) -> Result<(), OperationError> {
        let prefix = self.steps_prefix();
        let mut records = HashMap::new();
        let mut bad = None;
        let mut visitor = |record: StoreRecord<'_>| -> Visit {
            let name = record.key.get(prefix.len()..).unwrap_or_default();
            match serde_json::from_slice::<Record>(record.value) {
                Ok(parsed) => {
                    let step = StepId(String::from_utf8_lossy(name).into_owned());
                    records.insert(step, (parsed, record.mod_revision));
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    bad = Some((Key::from(record.key), error.to_string()));
                    ControlFlow::Break(())
                }
            }
        };
        store.scan(&[KeyRange::prefix(prefix.clone())], at, &mut visitor).await?;
        if let Some((key, reason)) = bad {
            return Err(Self::broken(&key, &reason));
        }
        self.records = records;
        Ok(())
    }

    fn broken(key: &Key, reason: &str) -> OperationError {
        OperationError::Journal { what: format!("`{key}`"), reason: reason.to_string() }
    }

    /// Returns the record of a step, `None` if it was never begun.
    pub fn find(&self, step: &StepId) -> Option<&Record> {
        self.records.get(step).map(|(record, _)| record)
    }

    /// Returns the revision at which a step was done, `None` if it is not.
    pub fn done_at(&self, step: &StepId) -> Option<Revision> {
        self.records.get(step).filter(|(record, _)| record.state == State::Done).map(|(_, at)| *at)
    }

    /// Returns the revision at which the record of a step changed last, `None` if it has none.
    pub fn changed_at(&self, step: &StepId) -> Option<Revision> {
        self.records.get(step).map(|(_, revision)| *revision)
    }

    /// Returns how a step stands, `None` if it was never begun, or is to be begun anew.
    pub fn state(&self, step: &StepId) -> Option<State> {
        self.records.get(step).map(|(record, _)| record.state).filter(|state| *state != State::Reset)
    }

    /// Returns the records of all steps, in the order in which they started; those that started in one second in the
    /// order of their last change.
    pub fn records(&self) -> Vec<(&StepId, &Record)> {
        let mut all: Vec<_> = self.records.iter().collect();
        let started = |record: &Record| record.history.first().map(|(_, time)| *time);
        all.sort_by_key(|(step, (record, revision))| (started(record), *revision, *step));
        all.into_iter().map(|(step, (record, _))| (step, record)).collect()
    }

    /// Whether undoing the operation as a whole has begun: something is undone, and not for the sake of a batch
    /// ([`Self::returning`]).
    pub fn is_being_undone(&self) -> bool {
        self.returning.is_none() && self.records.values().any(|(record, _)| record.state.is_of_the_way_back())
    }

    /// Returns the condition that a step stands as it does here: its record unchanged, or still none.
    pub fn guard_of(&self, step: &StepId) -> Guard {
        let key = self.step_key(step);
        match self.records.get(step) {
            Some((_, revision)) => Guard::Unchanged(key, *revision),
            None => Guard::Absent(key),
        }
    }

    /// Returns the key of what was mended of something.
    pub(super) fn mended_key(&self, subject: &str) -> Key {
        self.key(&Part::Mended(subject.to_string()))
    }

    /// Returns the change that brings a step's record to a state, and the record, to be handed to
    /// [`Self::recorded`] once it is committed.
    ///
    /// Fails when the step may not go there from where it stands.
    pub fn record(
        &self,
        step: &StepId,
        to: State,
        now: i64,
        noted: Noted,
    ) -> Result<(PartChange, Record), OperationError> {
        let from = self.records.get(step);
        let state = from.map(|(record, _)| record.state);
        if !State::may_follow(state, to) {
            return Err(OperationError::IllegalTransition {
                step: step.clone(),
                from: state.map_or_else(|| "nothing".to_string(), |s| s.to_string()),
                to: to.to_string(),
            });
        }
        let mut history = from.map(|(record, _)| record.history.clone()).unwrap_or_default();
        history.push((to, now));
        let known =
            |of: fn(&Record) -> &Value| from.map(|(record, _)| of(record).clone()).unwrap_or_default();
        let before = noted.before.unwrap_or_else(|| known(|record| &record.before));
        let made = noted.made.unwrap_or_else(|| known(|record| &record.made));
        let record = Record { state: to, history, error: noted.error, before, made };
        let expected = from.map_or(Expected::Absent, |(_, revision)| Expected::At(*revision));
        let (part, action) = (Part::Step(step.clone()), Action::Put(to_json(&record)));
        Ok((PartChange { part, expected, action }, record))
    }

    /// Takes note of a committed record.
    pub fn recorded(&mut self, step: &StepId, record: Record, revision: Revision) {
        self.records.insert(step.clone(), (record, revision));
    }

    /// Reads a record or a summary as it is now, `None` if there is none.
    pub(super) async fn read_at<T: DeserializeOwned>(
        store: &dyn ReadStore,
        key: &Key,
    ) -> Result<Option<(T, Revision)>, OperationError> {
        let Some(entry) = store.get(key).await? else { return Ok(None) };
        let value = serde_json::from_slice(&entry.value).map_err(|e| Self::broken(key, &e.to_string()))?;
        Ok(Some((value, entry.mod_revision)))
    }

    /// Reads the record of a step as it is now, `None` if there is none.
    pub(super) async fn read_record(
        ledger: &dyn Ledger,
        step: &StepId,
    ) -> Result<Option<(Record, Revision)>, OperationError> {
        Self::read_part(ledger, &Part::Step(step.clone())).await
    }

    async fn read_part<T: DeserializeOwned>(
        ledger: &dyn Ledger,
        part: &Part,
    ) -> Result<Option<(T, Revision)>, OperationError> {
        let Some((value, revision)) = ledger.read(part).await? else { return Ok(None) };
        let value = serde_json::from_slice(&value)
            .map_err(|error| OperationError::Journal { what: part.to_string(), reason: error.to_string() })?;
        Ok(Some((value, revision)))
    }

    /// Takes note of a record as it was read, in place of what was known of it.
    pub(super) fn replace(&mut self, step: &StepId, found: Option<(Record, Revision)>) {
        match found {
            Some(found) => drop(self.records.insert(step.clone(), found)),
            None => drop(self.records.remove(step)),
        }
    }
}

/// Makes a key; returns the revision of its creation. Where the answer is lost, the key says what came of it.
async fn put_new(
    store: &dyn WriteStore,
    guards: &[Guard],
    key: &Key,
    value: &[u8],
) -> Result<Revision, OperationError> {
    let change = Change { key: key.clone(), expected: Expected::Absent, action: Action::Put(value.to_vec()) };
    match commit(store, guards, vec![change]).await {
        Err(OperationError::Commit(lost @ CommitError::OutcomeUnknown { .. })) => {
            match store.get(key).await? {
                Some(entry) if entry.value == value => Ok(entry.mod_revision),
                _ => Err(lost.into()),
            }
        }
        outcome => outcome,
    }
}

fn to_json<T: Serialize>(value: &T) -> Vec<u8> {
    // Plain data with text keys always serialises.
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Transaction;
    use crate::store::memory::MemoryStore;

    fn summary() -> Summary {
        Summary { kind: "test".into(), digest: "d".into(), started: 7, ..Summary::default() }
    }

    #[tokio::test]
    async fn a_journal_is_read_back_and_no_other_clusters() {
        let store = MemoryStore::new();
        let plan = vec![b'x'; PLAN_PART + 1];
        let mut journal = Journal::begin(&store, "one", "op", &plan, summary(), &[]).await.unwrap();
        let step = StepId("flip/default/web".into());
        let (change, record) = journal.record(&step, State::Done, 8, Noted::default()).unwrap();
        let ledger = journal.in_store(&store, &[]);
        let revision = ledger.write(vec![change], Transaction::default()).await.unwrap();
        journal.recorded(&step, record, revision);
        assert!(matches!(
            journal.record(&step, State::Started, 9, Noted::default()),
            Err(OperationError::IllegalTransition { .. })
        ));
        let (opened, found, text) = Journal::open(&store, "one", "op").await.unwrap();
        assert_eq!((found.plan_parts, text), (2, plan));
        assert_eq!(opened.state(&step), Some(State::Done));
        let before = Some(Revision(revision.0 - 1));
        let (earlier, ..) = Journal::open_at(&store, "one", "op", before).await.unwrap();
        assert_eq!(earlier.state(&step), None);
        for (cluster, operation) in [("two", "op"), ("one", "other"), ("on", "e/op")] {
            let error = Journal::open(&store, cluster, operation).await.err().unwrap();
            assert!(error.to_string().contains("there is no such operation"), "{error}");
        }
        let again = Journal::begin(&store, "one", "op", b"", summary(), &[]).await;
        assert!(again.is_err(), "a second operation of one name");
    }

    #[tokio::test]
    async fn a_damaged_record_is_named() {
        let store = MemoryStore::new();
        let journal = Journal::begin(&store, "one", "op", b"", summary(), &[]).await.unwrap();
        let key = journal.step_key(&StepId("flip/default/web".into()));
        put_new(&store, &[], &key, b"{").await.unwrap();
        let error = Journal::open(&store, "one", "op").await.err().unwrap();
        assert!(error.to_string().contains(&key.to_string()), "{error}");
    }
}

//! The journal of an operation records the steps, so that any machine can resume the operation. The ledger determines where the
//! journal is stored.

mod batch_rollback;
mod etcd;
mod listing;
mod record;
mod run;
mod status;
mod summary;
mod waiver;

use std::collections::HashMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::batch_rollback::Returning;
pub use self::listing::{Listed, Listing, StepCounts};
pub use self::record::{Noted, Record, State};
pub use self::run::{Run, RunEnd};
pub use self::status::Status;
pub use self::summary::Summary;
pub use self::waiver::Waiver;
use super::{
    LeaseHolder, Ledger, OperationError, OperationKind, Part, PartChange, Parts, Plan, ReadLedger, StepId,
    Work,
};
use crate::store::{Action, CommitError, Expected, Revision, Transaction};

/// Size of one part of a stored plan, in bytes. This is well below etcd's limit of 1.5 MiB per request (`--max-request-bytes`)
/// and the limit of 1 MiB per ConfigMap.
const PLAN_PART: usize = 512 * 1024;
/// Maximum number of parts of a plan that is read. A plan for 50,000 Services needs about 40.
const MOST_PLAN_PARTS: usize = 512;

/// The journal of one operation.
pub struct Journal {
    cluster: String,
    operation: String,
    records: HashMap<StepId, (Record, Revision)>,
    /// The newest revision of any record so far.
    newest: Revision,
    returning: Option<Returning>,
    given_up: Vec<Waiver>,
    /// See [`Summary::is_recovered`].
    is_recovered: bool,
}

impl Journal {
    fn at(cluster: &str, operation: &str) -> Self {
        let (cluster, operation) = (cluster.to_string(), operation.to_string());
        Self {
            cluster,
            operation,
            records: HashMap::new(),
            newest: Revision::default(),
            returning: None,
            given_up: Vec::new(),
            is_recovered: false,
        }
    }

    /// Returns the first content of the journal for a plan that is about to run. The content is the plan as JSON, and the
    /// summary. `by` contains the operation's id, holder and start time. `gates` are the gates between batches (`null` if there
    /// are none).
    pub fn of_plan<W: OperationKind + Work>(
        plan: &Plan<W>,
        by: &LeaseHolder,
        gates: Value,
    ) -> Result<(Vec<u8>, Summary), OperationError> {
        let begun = Summary::begun(&plan.header.kind, &plan.digest, by);
        let summary = Summary { gates, compiled: plan.compiled(), ..begun };
        let text = serde_json::to_vec(plan).map_err(|error| OperationError::Journal {
            what: format!("`{}`", by.operation),
            reason: format!("its plan cannot be written as JSON: {error}"),
        })?;
        Ok((text, summary))
    }

    /// Creates a journal in a ledger: stores the plan, then the summary. The operation exists once its summary is stored.
    pub async fn begin_in(
        ledger: &dyn Ledger,
        plan: &[u8],
        summary: Summary,
    ) -> Result<Self, OperationError> {
        let parts: Vec<&[u8]> = plan.chunks(PLAN_PART).collect();
        for (index, part) in parts.iter().enumerate() {
            put_new(ledger, Part::Plan(index), part).await?;
        }
        let summary = Summary { plan_parts: parts.len(), ..summary };
        put_new(ledger, Part::Summary, &to_json(&summary)).await?;
        let (cluster, operation) = ledger.operation();
        Ok(Self { is_recovered: summary.is_recovered, ..Self::at(cluster, operation) })
    }

    /// Reads the journal of an existing operation: its summary, its plan and its records.
    pub async fn open_in(ledger: &dyn ReadLedger) -> Result<(Self, Summary, Vec<u8>), OperationError> {
        let (cluster, operation) = ledger.operation();
        let mut journal = Self::at(cluster, operation);
        let summary = Self::summary_in(ledger).await?;
        let summary = summary.ok_or_else(|| ledger.broken(&Part::Summary, "there is no such operation"))?;
        if summary.plan_parts > MOST_PLAN_PARTS {
            let reason = format!("its plan has {} parts, more than {MOST_PLAN_PARTS}", summary.plan_parts);
            return Err(ledger.broken(&Part::Summary, &reason));
        }
        let mut plan = Vec::new();
        for index in 0..summary.plan_parts {
            let part = Part::Plan(index);
            let found = ledger.read(&part).await?;
            plan.extend(found.ok_or_else(|| ledger.broken(&part, "a part of the plan is missing"))?.0);
        }
        journal.returning.clone_from(&summary.returning);
        journal.given_up.clone_from(&summary.given_up);
        journal.is_recovered = summary.is_recovered;
        journal.records = Self::read_records(ledger).await?;
        journal.newest = journal.records.values().map(|(_, revision)| *revision).max().unwrap_or_default();
        Ok((journal, summary, plan))
    }

    /// Reads the summary of an operation; `None` if the operation has no journal.
    pub async fn summary_in(ledger: &dyn ReadLedger) -> Result<Option<Summary>, OperationError> {
        Ok(Self::read_part::<Summary>(ledger, &Part::Summary).await?.map(|(summary, _)| summary))
    }

    async fn read_records(
        ledger: &dyn ReadLedger,
    ) -> Result<HashMap<StepId, (Record, Revision)>, OperationError> {
        let (mut records, mut bad) = (HashMap::new(), None);
        let mut visit = |part: Part, value: &[u8], revision| {
            let parsed = serde_json::from_slice::<Record>(value);
            match (part, parsed) {
                (Part::Step(step), Ok(record)) => drop(records.insert(step, (record, revision))),
                (part, Err(error)) => drop(bad.get_or_insert((part, error.to_string()))),
                (_, Ok(_)) => {}
            }
        };
        ledger.read_all(Parts::Steps, &mut visit).await?;
        match bad {
            Some((part, reason)) => Err(ledger.broken(&part, &reason)),
            None => Ok(records),
        }
    }

    /// Returns the amendments of the plan, in order.
    pub async fn amendments(ledger: &dyn ReadLedger) -> Result<Vec<Vec<u8>>, OperationError> {
        let mut amendments = Vec::new();
        let mut visit = |_, value: &[u8], _| amendments.push(value.to_vec());
        ledger.read_all(Parts::Amendments, &mut visit).await?;
        Ok(amendments)
    }

    /// Returns the record of a step; `None` if the step never started.
    pub fn find(&self, step: &StepId) -> Option<&Record> {
        self.records.get(step).map(|(record, _)| record)
    }

    /// Returns the revision at which a step was done; `None` if the step is not done.
    pub fn done_at(&self, step: &StepId) -> Option<Revision> {
        self.records.get(step).filter(|(record, _)| record.state == State::Done).map(|(_, at)| *at)
    }

    /// Returns the time at which a step reached a state, in seconds since 1970. `None` if the step is in another state, or if the
    /// record of another step was written later.
    pub fn begun_last(&self, step: &StepId, state: State) -> Option<i64> {
        let since = self.begun(step, state)?;
        (self.newest <= self.changed_at(step)?).then_some(since)
    }

    /// Returns the time at which a step reached a state, in seconds since 1970; `None` if the step is in another state.
    pub fn begun(&self, step: &StepId, state: State) -> Option<i64> {
        let record = self.find(step).filter(|record| record.state == state)?;
        record.history.last().map(|(_, since)| *since)
    }

    /// Returns the revision at which the record of a step last changed; `None` if the step has no record.
    pub fn changed_at(&self, step: &StepId) -> Option<Revision> {
        self.records.get(step).map(|(_, revision)| *revision)
    }

    /// Returns the state of a step; `None` if the step never started or was reset. If the records of earlier runs are lost, each
    /// step without a record counts as [`State::Started`], because its outcome is unknown.
    pub fn state(&self, step: &StepId) -> Option<State> {
        let unrecorded = self.is_recovered.then_some(State::Started);
        let state = self.records.get(step).map(|(record, _)| record.state).or(unrecorded);
        state.filter(|state| *state != State::Reset)
    }

    /// Returns the records of all steps, ordered by start; steps that started in the same second are ordered by their last
    /// change.
    pub fn records(&self) -> Vec<(&StepId, &Record)> {
        let mut all: Vec<_> = self.records.iter().collect();
        let started = |record: &Record| record.history.first().map(|(_, time)| *time);
        all.sort_by_key(|(step, (record, revision))| (started(record), *revision, *step));
        all.into_iter().map(|(step, (record, _))| (step, record)).collect()
    }

    /// Returns whether the records of earlier runs are lost ([`Summary::is_recovered`]).
    pub fn is_recovered(&self) -> bool {
        self.is_recovered
    }

    /// Returns whether a rollback of the whole operation has started. This is the case if the undo of a step has started, and no
    /// batch is being rolled back ([`Self::returning`]).
    pub fn is_being_undone(&self) -> bool {
        self.returning.is_none() && self.records.values().any(|(record, _)| record.state.is_of_the_way_back())
    }

    /// Returns whether the operation is being rolled back. This is the case if its last run was a rollback (`summary`), or if the
    /// undo of a step has started. A rollback of a batch does not count.
    pub fn is_going_back(&self, summary: &Summary) -> bool {
        self.is_being_undone() || (summary.back && self.returning.is_none())
    }

    /// Returns the change that records a new state of a step, and the new record. Pass the record to [`Self::recorded`] once the
    /// change is committed.
    ///
    /// Fails if the step cannot change from its current state to the new state.
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
                from: state.map_or_else(|| "none".to_string(), |s| s.to_string()),
                to: to.to_string(),
            });
        }
        let mut history = from.map(|(record, _)| record.history.clone()).unwrap_or_default();
        history.push((to, now));
        let boxed = |value: Value| (!value.is_null()).then(|| Box::new(value));
        let known = from.map(|(record, _)| record);
        let before = noted.before.map_or_else(|| known.and_then(|record| record.before.clone()), boxed);
        let made = noted.made.map_or_else(|| known.and_then(|record| record.made.clone()), boxed);
        let record = Record { state: to, history, error: noted.error, before, made };
        let expected = from.map_or(Expected::Absent, |(_, revision)| Expected::At(*revision));
        let (part, action) = (Part::Step(step.clone()), Action::Put(to_json(&record)));
        Ok((PartChange { part, expected, action }, record))
    }

    /// Caches a record that was committed.
    pub fn recorded(&mut self, step: &StepId, record: Record, revision: Revision) {
        self.replace(step, Some((record, revision)));
    }

    /// Reads the current record of a step; `None` if the step has no record.
    pub(super) async fn read_record(
        ledger: &dyn Ledger,
        step: &StepId,
    ) -> Result<Option<(Record, Revision)>, OperationError> {
        Self::read_part(ledger, &Part::Step(step.clone())).await
    }

    pub(super) async fn read_part<T: DeserializeOwned>(
        ledger: &dyn ReadLedger,
        part: &Part,
    ) -> Result<Option<(T, Revision)>, OperationError> {
        let Some((value, revision)) = ledger.read(part).await? else { return Ok(None) };
        let value =
            serde_json::from_slice(&value).map_err(|error| ledger.broken(part, &error.to_string()))?;
        Ok(Some((value, revision)))
    }

    /// Replaces the cached record of a step with the record that was read. `None` removes the cached record.
    pub(super) fn replace(&mut self, step: &StepId, found: Option<(Record, Revision)>) {
        match found {
            Some(found) => {
                self.newest = self.newest.max(found.1);
                self.records.insert(step.clone(), found);
            }
            None => drop(self.records.remove(step)),
        }
    }
}

/// Creates a part that never changes. If the answer is lost, reads the part to find out whether it was created.
async fn put_new(ledger: &dyn Ledger, part: Part, value: &[u8]) -> Result<(), OperationError> {
    let action = Action::Put(value.to_vec());
    let change = PartChange { part: part.clone(), expected: Expected::Absent, action };
    match ledger.write(vec![change], Transaction::default()).await {
        Err(OperationError::Commit(lost @ CommitError::OutcomeUnknown { .. })) => {
            match ledger.read(&part).await? {
                Some((found, _)) if found == value => Ok(()),
                _ => Err(lost.into()),
            }
        }
        outcome => outcome.map(drop),
    }
}

fn to_json<T: Serialize>(value: &T) -> Vec<u8> {
    // Serialising plain data with text keys cannot fail.
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::EtcdRecord;
    use crate::store::memory::MemoryStore;

    fn summary() -> Summary {
        Summary { kind: "test".into(), digest: "d".into(), started: 7, ..Summary::default() }
    }

    #[tokio::test]
    async fn journal_is_read_back_for_its_own_cluster_only() {
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
        let before = EtcdRecord::new(&store, "one", "op").at(Some(Revision(revision.0 - 1)));
        let (earlier, ..) = Journal::open_in(&before).await.unwrap();
        assert_eq!(earlier.state(&step), None);
        for (cluster, operation) in [("two", "op"), ("one", "other"), ("on", "e/op")] {
            let error = Journal::open(&store, cluster, operation).await.err().unwrap();
            assert!(error.to_string().contains("there is no such operation"), "{error}");
        }
        let again = Journal::begin(&store, "one", "op", b"", summary(), &[]).await;
        assert!(again.is_err(), "a second operation with the same id");
    }

    #[tokio::test]
    async fn wait_continues_only_if_no_other_record_is_newer() {
        let store = MemoryStore::new();
        let mut journal = Journal::begin(&store, "one", "op", b"", summary(), &[]).await.unwrap();
        let (wait, flip) = (StepId("wait/soak".into()), StepId("flip/default/web".into()));
        let since = |journal: &Journal| journal.begun_last(&wait, State::Started);
        for (step, now, expected) in [(&wait, 8, Some(8)), (&flip, 9, None), (&wait, 10, Some(10))] {
            let (change, record) = journal.record(step, State::Started, now, Noted::default()).unwrap();
            let written = journal.in_store(&store, &[]).write(vec![change], Transaction::default()).await;
            journal.recorded(step, record, written.unwrap());
            assert_eq!(since(&journal), expected, "{step} at {now}");
            let (opened, ..) = Journal::open(&store, "one", "op").await.unwrap();
            assert_eq!(since(&opened), expected, "{step} at {now}, read again");
        }
        assert_eq!(journal.begun_last(&wait, State::Done), None);
        assert_eq!(journal.begun_last(&StepId("wait/other".into()), State::Started), None);
    }

    #[tokio::test]
    async fn error_names_the_damaged_record() {
        let store = MemoryStore::new();
        let journal = Journal::begin(&store, "one", "op", b"", summary(), &[]).await.unwrap();
        let step = StepId("flip/default/web".into());
        put_new(&journal.in_store(&store, &[]), Part::Step(step.clone()), b"{").await.unwrap();
        let error = Journal::open(&store, "one", "op").await.err().unwrap();
        assert!(error.to_string().contains(&journal.step_key(&step).to_string()), "{error}");
    }
}

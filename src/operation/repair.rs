//! Restores the changes of an operation if another client reverts them while no process runs the operation.
//!
//! Like a step, a repair is one transaction that includes its record. Unlike a step, a repair runs whenever it is needed, any
//! number of times. A repair does not acquire the operation lease, so no lease has to be kept alive during a soak, which can take
//! a week.
//!
//! A repair has two preconditions: the lease is free, and the records of the steps that the repair relies on are unchanged. So a
//! repair fails if a process starts to run the operation in the meantime. If two repairs for the same subject run concurrently,
//! only one succeeds.

use serde::{Deserialize, Serialize};

use super::lock::key_of;
use super::swap::prepare;
use super::{Ambient, Journal, Ledger, Noted, OperationError, Part, PartChange, State, StepId, Swap};
use crate::store::{Action, Change, CommitError, Expected, Guard, WriteStore};

/// Maximum number of repairs in the record of a subject; older repairs are dropped.
const KEPT: usize = 20;

/// A repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Subject of the repair, as a part of a key: `NAMESPACE/NAME`.
    pub subject: String,
    /// OperationKind of the repair.
    pub code: &'static str,
    /// Description of the repair for people.
    pub says: String,
    /// The change. It is empty if the repair was done through the Kubernetes API and is only recorded here.
    pub swap: Swap,
    /// Steps that the repair relies on. Their records must be unchanged since the journal was read.
    pub steps: Vec<StepId>,
    /// Further preconditions of the repair.
    pub guards: Vec<Guard>,
}

/// The outcome of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairOutcome {
    /// The repair is done.
    Done,
    /// A process holds the operation lease. Nothing was written.
    Locked,
    /// The objects changed after they were read, and must be checked again. Either nothing was written, or the outcome is
    /// unknown.
    Stale,
}

/// The repairs of a subject.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairRecord {
    /// The number of repairs.
    pub count: u64,
    /// The last repairs: seconds since 1970, the kind, and a description.
    pub last: Vec<(i64, String, String)>,
}

/// Executes a repair, unless a process holds the cluster's operation lease.
pub async fn repair(
    store: &dyn WriteStore,
    cluster: &str,
    journal: &Journal,
    repair: &Repair,
    ambient: &dyn Ambient,
) -> Result<RepairOutcome, OperationError> {
    let lock = key_of(cluster);
    let mut transaction = match prepare(store, &repair.swap, ambient).await {
        Ok(transaction) if transaction.changes.is_empty() && !repair.swap.edits.is_empty() => {
            return Ok(RepairOutcome::Stale);
        }
        Ok(transaction) => transaction,
        Err(error) if error.is_about_one_object() => return Ok(RepairOutcome::Stale),
        Err(error) => return Err(error),
    };
    transaction.changes.push(record(store, journal, repair, ambient.now()).await?);
    transaction.guards.push(Guard::Absent(lock.clone()));
    transaction.guards.extend(repair.steps.iter().map(|step| journal.guard_of(step)));
    transaction.guards.extend(repair.guards.iter().cloned());
    match store.commit(&transaction).await {
        Ok(_) => Ok(RepairOutcome::Done),
        Err(CommitError::Conflict { key, .. }) if key == lock => Ok(RepairOutcome::Locked),
        Err(CommitError::Conflict { .. } | CommitError::OutcomeUnknown { .. }) => Ok(RepairOutcome::Stale),
        Err(error) => Err(error.into()),
    }
}

/// Executes a repair instead of steps that can no longer be executed (or undone), and records these steps as done (or undone).
/// The caller must hold the operation lease, and pass its own ledger. After [`RepairOutcome::Stale`], check the objects again.
pub async fn settle(
    ledger: &dyn Ledger,
    journal: &mut Journal,
    steps: (&[StepId], State),
    repair: &Repair,
    ambient: &dyn Ambient,
) -> Result<RepairOutcome, OperationError> {
    settle_with(ledger, journal, steps, (repair, Vec::new()), ambient).await
}

/// Executes a repair that undoes steps, and records the new state of these steps. Adds the replacement steps to the plan, as the
/// amendment with this number. One transaction makes all these changes.
pub async fn replace(
    ledger: &dyn Ledger,
    journal: &mut Journal,
    steps: (&[StepId], State),
    repair: &Repair,
    (number, amendment): (usize, Vec<u8>),
    ambient: &dyn Ambient,
) -> Result<RepairOutcome, OperationError> {
    let (part, action) = (Part::Amendment(number), Action::Put(amendment));
    let amended = vec![PartChange { part, expected: Expected::Absent, action }];
    settle_with(ledger, journal, steps, (repair, amended), ambient).await
}

async fn settle_with(
    ledger: &dyn Ledger,
    journal: &mut Journal,
    (steps, to): (&[StepId], State),
    (repair, mut parts): (&Repair, Vec<PartChange>),
    ambient: &dyn Ambient,
) -> Result<RepairOutcome, OperationError> {
    let mut transaction = match prepare(ledger.store(), &repair.swap, ambient).await {
        Ok(transaction) => transaction,
        Err(error) if error.is_about_one_object() => return Ok(RepairOutcome::Stale),
        Err(error) => return Err(error),
    };
    let mut records = Vec::with_capacity(steps.len());
    if transaction.changes.is_empty() && parts.is_empty() && steps.is_empty() {
        return Ok(RepairOutcome::Done);
    }
    for step in steps {
        let (change, record) = journal.record(step, to, ambient.now(), Noted::default())?;
        parts.push(change);
        records.push((step, record));
    }
    transaction.guards.extend(repair.steps.iter().map(|step| journal.guard_of(step)));
    transaction.guards.extend(repair.guards.iter().cloned());
    match ledger.write(parts, transaction).await {
        Ok(revision) => {
            for (step, record) in records {
                journal.recorded(step, record, revision);
            }
            Ok(RepairOutcome::Done)
        }
        Err(OperationError::Commit(CommitError::Conflict { .. })) => Ok(RepairOutcome::Stale),
        Err(error) => Err(error),
    }
}

async fn record(
    store: &dyn WriteStore,
    journal: &Journal,
    repair: &Repair,
    now: i64,
) -> Result<Change, OperationError> {
    let key = journal.repaired_key(&repair.subject);
    let entry = store.get(&key).await?;
    let expected = entry.as_ref().map_or(Expected::Absent, |entry| Expected::At(entry.mod_revision));
    // The repair is done even if the record cannot be read.
    let mut record: RepairRecord =
        entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()).unwrap_or_default();
    record.count = record.count.saturating_add(1);
    record.last.push((now, repair.code.to_string(), repair.says.clone()));
    let surplus = record.last.len().saturating_sub(KEPT);
    record.last.drain(..surplus);
    // Serialising plain data with text keys cannot fail.
    let value = serde_json::to_vec(&record).unwrap_or_default();
    Ok(Change { key, expected, action: Action::Put(value) })
}

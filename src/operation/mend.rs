//! Putting right what others have undone of an operation, while nobody carries it out.
//!
//! A mend is one transaction, with its record in it, like a step; but it is no step: it happens when it is
//! needed, any number of times. It takes no lock, so that it need not be kept alive for a week of soak, and
//! respects the one there is: the transaction compares that nobody holds the lock, and that the steps which it
//! relies on stand as they were read. Whoever begins to carry the operation out meanwhile makes it fail, and
//! two who mend the same thing do it once.

use serde::{Deserialize, Serialize};

use super::lock::key_of;
use super::swap::prepare;
use super::{Ambient, Journal, Ledger, Noted, OperationError, Part, PartChange, State, StepId, Swap};
use crate::store::{Action, Change, CommitError, Expected, Guard, WriteStore};

/// How many of the last mends of a thing its record keeps.
const KEPT: usize = 20;

/// A mend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mend {
    /// What it is about, as a part of a key: `NAMESPACE/NAME`.
    pub subject: String,
    /// Its kind, in a word.
    pub code: &'static str,
    /// What is done, in words.
    pub says: String,
    /// The change; none for what was done elsewhere, and is only recorded.
    pub swap: Swap,
    /// The steps that it relies on: they must stand as the journal has them.
    pub steps: Vec<StepId>,
    /// What else must hold.
    pub guards: Vec<Guard>,
}

/// What came of a mend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mended {
    /// It is done.
    Done,
    /// Somebody has the lock. Nothing was written.
    Locked,
    /// Things are not as they were read: look again. Nothing was written, or it is not known.
    Moved,
}

/// What was put right of a thing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MendRecord {
    /// How often.
    pub count: u64,
    /// The last times: seconds since 1970, the kind, and words.
    pub last: Vec<(i64, String, String)>,
}

/// Carries a mend out, unless somebody has the cluster's lock.
pub async fn mend(
    store: &dyn WriteStore,
    cluster: &str,
    journal: &Journal,
    mend: &Mend,
    ambient: &dyn Ambient,
) -> Result<Mended, OperationError> {
    let lock = key_of(cluster);
    let mut transaction = match prepare(store, &mend.swap, ambient).await {
        Ok(transaction) if transaction.changes.is_empty() && !mend.swap.edits.is_empty() => {
            return Ok(Mended::Moved);
        }
        Ok(transaction) => transaction,
        Err(error) if error.is_about_one_object() => return Ok(Mended::Moved),
        Err(error) => return Err(error),
    };
    transaction.changes.push(record(store, journal, mend, ambient.now()).await?);
    transaction.guards.push(Guard::Absent(lock.clone()));
    transaction.guards.extend(mend.steps.iter().map(|step| journal.guard_of(step)));
    transaction.guards.extend(mend.guards.iter().cloned());
    match store.commit(&transaction).await {
        Ok(_) => Ok(Mended::Done),
        Err(CommitError::Conflict { key, .. }) if key == lock => Ok(Mended::Locked),
        Err(CommitError::Conflict { .. } | CommitError::OutcomeUnknown { .. }) => Ok(Mended::Moved),
        Err(error) => Err(error.into()),
    }
}

/// Carries a mend out in the place of steps that cannot be carried out, or undone, any more, and writes that they
/// are; for whoever has the lock, whose ledger this is. [`Mended::Moved`] means to look again.
pub async fn settle(
    ledger: &dyn Ledger,
    journal: &mut Journal,
    steps: (&[StepId], State),
    mend: &Mend,
    ambient: &dyn Ambient,
) -> Result<Mended, OperationError> {
    settle_with(ledger, journal, steps, (mend, Vec::new()), ambient).await
}

/// Takes back what these steps did, writes how they stand then, and adds to the plan what they become, as number so-and-so:
/// all in one transaction.
pub async fn replace(
    ledger: &dyn Ledger,
    journal: &mut Journal,
    steps: (&[StepId], State),
    mend: &Mend,
    (number, amendment): (usize, Vec<u8>),
    ambient: &dyn Ambient,
) -> Result<Mended, OperationError> {
    let (part, action) = (Part::Amendment(number), Action::Put(amendment));
    let amended = vec![PartChange { part, expected: Expected::Absent, action }];
    settle_with(ledger, journal, steps, (mend, amended), ambient).await
}

async fn settle_with(
    ledger: &dyn Ledger,
    journal: &mut Journal,
    (steps, to): (&[StepId], State),
    (mend, mut parts): (&Mend, Vec<PartChange>),
    ambient: &dyn Ambient,
) -> Result<Mended, OperationError> {
    let mut transaction = match prepare(ledger.store(), &mend.swap, ambient).await {
        Ok(transaction) => transaction,
        Err(error) if error.is_about_one_object() => return Ok(Mended::Moved),
        Err(error) => return Err(error),
    };
    let mut records = Vec::with_capacity(steps.len());
    if transaction.changes.is_empty() && parts.is_empty() && steps.is_empty() {
        return Ok(Mended::Done);
    }
    for step in steps {
        let (change, record) = journal.record(step, to, ambient.now(), Noted::default())?;
        parts.push(change);
        records.push((step, record));
    }
    transaction.guards.extend(mend.steps.iter().map(|step| journal.guard_of(step)));
    transaction.guards.extend(mend.guards.iter().cloned());
    match ledger.write(parts, transaction).await {
        Ok(revision) => {
            for (step, record) in records {
                journal.recorded(step, record, revision);
            }
            Ok(Mended::Done)
        }
        Err(OperationError::Commit(CommitError::Conflict { .. })) => Ok(Mended::Moved),
        Err(error) => Err(error),
    }
}

async fn record(
    store: &dyn WriteStore,
    journal: &Journal,
    mend: &Mend,
    now: i64,
) -> Result<Change, OperationError> {
    let key = journal.mended_key(&mend.subject);
    let entry = store.get(&key).await?;
    let expected = entry.as_ref().map_or(Expected::Absent, |entry| Expected::At(entry.mod_revision));
    // A record that cannot be read keeps nobody from mending.
    let mut record: MendRecord =
        entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()).unwrap_or_default();
    record.count = record.count.saturating_add(1);
    record.last.push((now, mend.code.to_string(), mend.says.clone()));
    let surplus = record.last.len().saturating_sub(KEPT);
    record.last.drain(..surplus);
    // Plain data with text keys always serialises.
    let value = serde_json::to_vec(&record).unwrap_or_default();
    Ok(Change { key, expected, action: Action::Put(value) })
}

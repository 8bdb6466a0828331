//! Runs the rewrite of a RangeAllocation, with the operation lease and a journal like any other operation.
//!
//! A rewrite is one transaction, so it takes effect completely or not at all. If the RangeAllocation changed after planning,
//! nothing is written, and the operation is recorded as rolled back. After any other error, the operation can be resumed or
//! rolled back.

use std::ops::Deref;
use std::time::Duration;

use serde_json::Value;

use super::{KIND, RangeRewrite};
use crate::operation::{
    Ambient, EtcdLedger, EtcdRecord, Executor, Journal, Lock, NoEffect, NoEnvironment, OperationError, Plan,
    Report, RunFailure, Silent, State, Status, StepId, Work, new_id,
};
use crate::session::{ExitKind, Failure, Recorded, Session, Taking, refuse_ended, refuse_removing, release};
use crate::store::{Guard, WriteStore};
use crate::survey::Survey;

/// Maximum time between the allocation of an address and the write of its Service. Admission runs before the allocation, so only
/// the write to etcd follows the allocation.
const ALLOCATION: Duration = Duration::from_secs(3);

/// Executor of a rewrite and of its rollback.
pub struct Rewriting<'a> {
    /// The store that contains the RangeAllocation and the journal.
    pub store: &'a dyn WriteStore,
    /// The clock.
    pub ambient: &'a dyn Ambient,
    /// The preconditions of every write. On a live cluster, this is the operation lease ([`crate::operation::Lock::guard`]).
    pub guards: Vec<Guard>,
}

/// Returns the step of a rewrite.
fn step_of(work: &RangeRewrite) -> StepId {
    let mut steps = work.stages().into_iter().flat_map(|stage| work.steps(&stage));
    steps.next().map_or_else(|| StepId(KIND.to_string()), |step| step.id)
}

/// Returns whether the RangeAllocation was written and not restored.
pub fn is_written(work: &RangeRewrite, journal: &Journal) -> bool {
    journal.state(&step_of(work)).is_some_and(State::is_in_force)
}

impl Rewriting<'_> {
    /// Writes the RangeAllocation, unless an earlier run has written it. The report shows whether this run or an earlier run
    /// wrote the RangeAllocation.
    pub async fn run(&self, work: &RangeRewrite, journal: &mut Journal) -> Result<Report, RunFailure> {
        let (ledger, mut silent) = (self.ledger(journal), Silent);
        let outcome = self.executor(&ledger, &mut silent, journal).run(work, None).await;
        match outcome {
            Ok(report) => {
                self.note(work, journal, Status::Done).await?;
                Ok(report)
            }
            Err(failure) if failure.source.is_about_one_object() => {
                self.roll_back(work, journal).await?;
                Err(failure)
            }
            Err(failure) => {
                let is_ours =
                    !matches!(failure.source, OperationError::LockLost { .. } | OperationError::BeingUndone);
                if is_ours && let Err(unnoted) = self.note(work, journal, Status::Stopped).await {
                    tracing::warn!(error = %unnoted.source, "cannot write the status to the journal");
                }
                Err(failure)
            }
        }
    }

    /// Restores the old value, if the new value was written. If the RangeAllocation was changed after the rewrite, nothing is
    /// written. Then the report lists the step as stuck, and the rewrite stays in effect.
    pub async fn roll_back(&self, work: &RangeRewrite, journal: &mut Journal) -> Result<Report, RunFailure> {
        let (ledger, mut silent) = (self.ledger(journal), Silent);
        let report = self.executor(&ledger, &mut silent, journal).unwind(work).await?;
        let status = if report.stuck.is_empty() { Status::RolledBack } else { Status::Stuck };
        self.note(work, journal, status).await?;
        Ok(report)
    }

    fn ledger(&self, journal: &Journal) -> EtcdLedger<'_> {
        journal.in_store(self.store, &self.guards)
    }

    fn executor<'e>(
        &'e self,
        ledger: &'e EtcdLedger<'e>,
        silent: &'e mut Silent,
        journal: &'e mut Journal,
    ) -> Executor<'e, NoEffect> {
        Executor::new(ledger, &NoEnvironment, self.ambient, silent, journal)
    }

    async fn note(&self, work: &RangeRewrite, journal: &Journal, status: Status) -> Result<(), RunFailure> {
        let noted = journal.set_status(&self.ledger(journal), status, self.ambient.now()).await;
        noted.map_err(|source| RunFailure { step: step_of(work), source })
    }
}

/// A session that rewrites RangeAllocations. It needs only etcd.
pub struct RewriteSession {
    session: Session,
}

impl Deref for RewriteSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

/// What a run of a rewrite has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewriteResult {
    /// The RangeAllocation is written.
    Written,
    /// The old value is restored.
    Restored,
    /// The rewrite is rolled back, and the RangeAllocation was never written.
    NeverWritten,
}

impl RewriteSession {
    /// Returns a session that rewrites RangeAllocations.
    pub fn new(session: Session) -> Self {
        Self { session }
    }

    /// Reads a rewrite of this cluster, in order to run it.
    pub async fn read(&self, operation: &str) -> Result<Recorded<RangeRewrite>, Failure> {
        let record = EtcdRecord::new(self.store.as_ref(), &self.id, operation);
        Recorded::open_to_change(operation, &record, &self.id).await
    }

    /// Executes a plan as a new operation, and returns the id of the operation.
    pub async fn begin(&self, plan: &Plan<RangeRewrite>) -> Result<String, Failure> {
        let operation = format!("{KIND}-{}", new_id());
        let lock = self.take(&operation, &plan.work).await?;
        let begun = async {
            self.refuse_beside_another().await?;
            self.refuse_beside_marked(KIND).await?;
            if !self.is_still_right(&plan.work).await? {
                return Err(changed(&plan.work));
            }
            let (store, guards) = (self.store.as_ref(), [lock.guard()]);
            let mut journal = Journal::begin_plan(store, plan, lock.claim(), Value::Null, &guards).await?;
            self.marked(&lock, false, self.write(&plan.work, &mut journal, &lock)).await
        };
        let begun = begun.await;
        release(lock, begun).await?;
        Ok(operation)
    }

    /// Continues a rewrite in its direction.
    pub async fn resume(&self, operation: &str) -> Result<(RangeRewrite, RewriteResult), Failure> {
        let known = self.read(operation).await?;
        refuse_ended(operation, &known.summary)?;
        refuse_removing(operation, &known.summary)?;
        let lock = self.take(operation, &known.plan.work).await?;
        let is_back = known.journal.is_being_undone();
        let resumed = self.marked(&lock, is_back, self.resume_locked(operation, &lock)).await;
        release(lock, resumed).await
    }

    /// Continues a rewrite while this process holds the operation lease. Reads the journal again, because the previous holder
    /// could have changed it.
    async fn resume_locked(
        &self,
        operation: &str,
        lock: &Lock,
    ) -> Result<(RangeRewrite, RewriteResult), Failure> {
        let Recorded { plan, mut journal, summary, .. } = self.read(operation).await?;
        refuse_ended(operation, &summary)?;
        let result = if journal.is_being_undone() {
            self.restore(&plan.work, &mut journal, lock).await?
        } else if is_written(&plan.work, &journal) || self.is_still_right(&plan.work).await? {
            self.write(&plan.work, &mut journal, lock).await?;
            RewriteResult::Written
        } else {
            self.rewriting(lock).roll_back(&plan.work, &mut journal).await?;
            return Err(changed(&plan.work));
        };
        Ok((plan.work, result))
    }

    /// Restores the old value.
    pub async fn roll_back(
        &self,
        operation: &str,
        work: &RangeRewrite,
    ) -> Result<(RangeRewrite, RewriteResult), Failure> {
        let lock = self.take(operation, work).await?;
        let undone = async {
            let Recorded { plan, mut journal, .. } = self.read(operation).await?;
            let result = self.restore(&plan.work, &mut journal, &lock).await?;
            Ok((plan.work, result))
        };
        let undone = self.marked(&lock, true, undone).await;
        release(lock, undone).await
    }

    /// Marks the operation during a run. The mark stays after the run only if the operation must be resumed or rolled back: a
    /// rollback that is stuck leaves the rewrite in effect, and nothing is to be continued.
    async fn marked<T>(
        &self,
        lock: &Lock,
        is_back: bool,
        run: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let operation = &lock.claim().operation;
        self.mark(operation, KIND, is_back).await?;
        let result = run.await;
        let status = self.read(operation).await.map(|recorded| recorded.summary.status);
        if status.is_ok_and(|status| status.has_ended() || status == Status::Stuck) {
            self.unmark(operation).await;
        }
        result
    }

    async fn take(&self, operation: &str, work: &RangeRewrite) -> Result<Lock, Failure> {
        let purpose = format!("rewrite RangeAllocation `{}`", work.name);
        self.lock(&Taking { operation, purpose: &purpose }).await
    }

    fn rewriting(&self, lock: &Lock) -> Rewriting<'_> {
        Rewriting { store: self.store.as_ref(), ambient: self.ambient(), guards: vec![lock.guard()] }
    }

    /// Plans again, and returns whether the new plan is equal to the current plan. If the rewrite frees bits, waits before it
    /// plans again.
    async fn is_still_right(&self, work: &RangeRewrite) -> Result<bool, Failure> {
        if work.frees() {
            tokio::time::sleep(ALLOCATION).await;
        }
        Ok(work.is_still_right(&Survey::read(self.store.as_ref(), &self.layout, None).await?))
    }

    async fn write(&self, work: &RangeRewrite, journal: &mut Journal, lock: &Lock) -> Result<(), Failure> {
        match self.rewriting(lock).run(work, journal).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.source.is_about_one_object() => Err(changed(work)),
            Err(failure) => Err(left_open(failure.into(), &lock.claim().operation, "resume")),
        }
    }

    async fn restore(
        &self,
        work: &RangeRewrite,
        journal: &mut Journal,
        lock: &Lock,
    ) -> Result<RewriteResult, Failure> {
        let operation = &lock.claim().operation;
        let was_written = is_written(work, journal);
        let report = self.rewriting(lock).roll_back(work, journal).await;
        let report = report.map_err(|failure| left_open(failure.into(), operation, "rollback"))?;
        if let Some(stuck) = report.stuck.first() {
            let text = format!("the old value cannot be restored: {}", stuck.reason);
            return Err(Failure::of(ExitKind::Stuck, text)
                .hint(format!("the allocations changed since the rewrite, so the rewrite stays in effect; `{}` creates a new plan", command(work)))
                .hint(format!("to remove this journal: `netsurgeon operation forget {operation}`")));
        }
        Ok(if was_written { RewriteResult::Restored } else { RewriteResult::NeverWritten })
    }
}

fn changed(work: &RangeRewrite) -> Failure {
    Failure::refused("allocations changed concurrently; nothing was written")
        .hint(format!("run `{}` again while no client creates or deletes Services", command(work)))
}

/// Returns the command that plans this rewrite again.
fn command(work: &RangeRewrite) -> String {
    let is_same = work.before.as_ref().is_some_and(|before| before.range == work.after.range);
    let to = if is_same { String::new() } else { format!(" --to {}", work.after.range) };
    format!("netsurgeon ranges rewrite {}{to}", work.name)
}

fn left_open(failure: Failure, operation: &str, verb: &str) -> Failure {
    failure.kind(ExitKind::Stuck).hint(format!(
        "the journal records whether the RangeAllocation was written; to continue: `netsurgeon operation {verb} {operation}`"
    ))
}

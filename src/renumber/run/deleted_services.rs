//! Handles Services of the plan that were deleted or recreated during the operation. In a rollback, and when the old addresses
//! are retired, the steps of the plan cannot find such a Service. So repairs replace these steps, and remove the objects that
//! netsurgeon created for the Service.

use k8s_openapi::api::core::v1::Namespace;

use super::{Direction, Ongoing, RenumberSession};
use crate::operation::{Lock, Record, RepairOutcome, Report, State, StepId, settle};
use crate::renumber::environment::delete_again;
use crate::renumber::{Move, Renumbering, drift, guard};
use crate::session::{Arrival, Failure};
use crate::survey::{ServiceRecord, Survey};

/// Reason for skipping the steps of a Service that can no longer move. The journal stores this text. Later commands compare the
/// stored reason with this text.
pub const DELETED: &str = "after planning, the Service or its namespace was deleted, or the Service has another ClusterIP or \
                           none";

/// Maximum number of checks of the Services. Several checks may be needed, because clients can delete more Services concurrently.
const MOST_LOOKS: u32 = 10;

impl RenumberSession {
    /// Retires the holds of deleted Services.
    pub async fn retire_strays(&self, ongoing: &mut Ongoing, lock: &Lock) -> Result<(), Failure> {
        self.outlast_requests(ongoing).await;
        if self.settle_all_gone(ongoing, lock, State::Done).await? {
            return Ok(());
        }
        Err(keeps_changing("retire"))
    }

    /// Calls [`Self::settle_gone`] until no deleted Service is left. Several calls may be needed, because one transaction changes
    /// only one object of each kind per Service. Returns false if clients continue to delete Services.
    async fn settle_all_gone(&self, ongoing: &mut Ongoing, lock: &Lock, to: State) -> Result<bool, Failure> {
        for _ in 0..MOST_LOOKS {
            if self.settle_gone(ongoing, lock, to).await? == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Rolls the operation back. First removes the objects that were created for deleted Services. If more Services are deleted
    /// meanwhile, removes their objects, too. Without the API, only the moves are undone: every Service gets its old address.
    pub async fn roll_back(&self, ongoing: &mut Ongoing, lock: &Lock) -> Result<Report, Failure> {
        let way = if self.cluster().is_none() { Direction::MovesBack } else { Direction::Back };
        self.outlast_requests(ongoing).await;
        let mut done: usize = 0;
        for _ in 0..MOST_LOOKS {
            // Past the point of no return, the rollback is refused and no object is removed.
            if !ongoing.has_begun_to_retire() {
                self.settle_all_gone(ongoing, lock, State::UndoDone).await?;
            }
            let Arrival::There(report) = self.carry(ongoing, lock, way).await? else {
                continue;
            };
            done = done.saturating_add(report.done);
            if report.stuck.is_empty()
                || (self.settle_gone(ongoing, lock, State::UndoDone).await? == 0
                    && !self.replan(ongoing, lock, true).await?)
            {
                return Ok(Report { done, ..report });
            }
        }
        Err(keeps_changing("roll back"))
    }

    /// Skips a step that failed because its Service was deleted or recreated after planning. The Service cannot move; the other
    /// Services continue. The journal records the reason. A step that failed before is retried, and is not counted as a new skip.
    pub(super) async fn skip_deleted(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        step: &StepId,
    ) -> Result<bool, Failure> {
        let store = self.store.as_ref();
        let survey = Survey::read(store, &self.layout, None).await?;
        let work = &ongoing.plan.work;
        let Some(moved) = work.moves.iter().find(|moved| moved.has_step(step)) else { return Ok(false) };
        let is_moved = moved.has_moved(|step| ongoing.journal.state(step));
        let is_its = |service: &ServiceRecord| service.uid == moved.uid && service.is_going();
        let is_deleted = drift::deleted(work, &survey).any(|other| other.uid == moved.uid)
            || (!is_moved && survey.services.iter().any(is_its));
        if !is_deleted && !self.is_namespace_ending(&moved.namespace).await? {
            return Ok(false);
        }
        let subject = moved.subject();
        let now = self.ambient().now();
        let ledger = self.ledger(&ongoing.journal, lock);
        ongoing.journal.fail(&ledger, step, DELETED, now).await?;
        self.ui.note(&format!("{subject}: skipped, {DELETED}"));
        self.drop_deserted(ongoing, lock).await?;
        Ok(true)
    }

    /// For every skipped step of a deleted Service, replaces the recorded reason with [`DELETED`]. Then removes the shadows of
    /// these Services.
    pub(super) async fn settle_deleted(&self, ongoing: &mut Ongoing, lock: &Lock) -> Result<(), Failure> {
        let is_failed = |(_, record): &(&StepId, &Record)| record.state == State::Failed;
        let failed: Vec<_> = ongoing.journal.records().into_iter().filter(is_failed).collect();
        if failed.is_empty() {
            return Ok(());
        }
        let open = failed.iter().filter(|(_, record)| record.error.as_deref() != Some(DELETED));
        let open: Vec<StepId> = open.map(|(step, _)| (*step).clone()).collect();
        let store = self.store.as_ref();
        let survey = Survey::read(store, &self.layout, None).await?;
        let work = &ongoing.plan.work;
        let deleted: Vec<&Move> = drift::deleted(work, &survey).collect();
        let ledger = self.ledger(&ongoing.journal, lock);
        for step in open.iter().filter(|step| deleted.iter().any(|moved| moved.has_step(step))) {
            ongoing.journal.fail(&ledger, step, DELETED, self.ambient().now()).await?;
        }
        self.drop_deserted(ongoing, lock).await
    }

    /// Removes the shadows and the finalizers of Services that were deleted before they moved. The shadows must be removed,
    /// because an API server may allocate their addresses to other Services.
    async fn drop_deserted(&self, ongoing: &mut Ongoing, lock: &Lock) -> Result<(), Failure> {
        let store = self.store.as_ref();
        for _ in 0..MOST_LOOKS {
            let survey = Survey::read(store, &self.layout, None).await?;
            let repairs = guard::deserted(
                &ongoing.plan.work,
                &survey,
                |step| ongoing.journal.state(step),
                self.ambient().now(),
            );
            if repairs.is_empty() {
                return self.end_deletions(&ongoing.plan.work, &survey).await;
            }
            for repair in &repairs {
                let (ledger, none) = (self.ledger(&ongoing.journal, lock), (&[][..], State::Done));
                settle(&ledger, &mut ongoing.journal, none, repair, self.ambient()).await?;
            }
        }
        Ok(())
    }

    /// Removes Services that have a deletion timestamp but no finalizer. Warns about a Service whose deletion is refused.
    async fn end_deletions(&self, work: &Renumbering, survey: &Survey) -> Result<(), Failure> {
        let Some(cluster) = self.cluster() else { return Ok(()) };
        for moved in guard::left_over(work, survey) {
            if let Some(refusal) = delete_again(cluster, moved).await? {
                self.ui.warn(&format!(
                    "{} was deleted, but still exists: {refusal}; fix the cause, then: `kubectl delete service {} -n {}`",
                    moved.subject(),
                    moved.name,
                    moved.namespace
                ));
            }
        }
        Ok(())
    }

    /// Reads the current Services and calls [`Self::end_deletions`], if the plan has shadows.
    pub(super) async fn end_all_deletions(&self, work: &Renumbering) -> Result<(), Failure> {
        if work.shadows().next().is_none() {
            return Ok(());
        }
        let survey = Survey::read(self.store.as_ref(), &self.layout, None).await?;
        self.end_deletions(work, &survey).await
    }

    /// Returns whether a namespace is deleted or terminating. In such a namespace, no object can be created, and the Services are
    /// being deleted.
    async fn is_namespace_ending(&self, name: &str) -> Result<bool, Failure> {
        let Some(cluster) = self.cluster() else { return Ok(false) };
        let found = cluster.object::<Namespace>(None, name).await?;
        Ok(found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()))
    }

    /// Checks once for deleted Services, removes the objects that were created for them, and sets the state of their steps to
    /// `to`. The state is [`State::Done`] when retiring, and [`State::UndoDone`] in a rollback. Returns the number of repairs
    /// that were needed.
    async fn settle_gone(&self, ongoing: &mut Ongoing, lock: &Lock, to: State) -> Result<usize, Failure> {
        let store = self.store.as_ref();
        let survey = Survey::read(store, &self.layout, None).await?;
        let (state, now) = (|step: &_| ongoing.journal.state(step), self.ambient().now());
        let gone = match to {
            State::Done => guard::strays(&ongoing.plan.work, &survey, state, now),
            _ => guard::given_up(&ongoing.plan.work, &survey, state, now),
        };
        for (steps, repair) in &gone {
            let (ledger, steps) = (self.ledger(&ongoing.journal, lock), (steps.as_slice(), to));
            let settled = settle(&ledger, &mut ongoing.journal, steps, repair, self.ambient()).await?;
            if settled == RepairOutcome::Done {
                self.ui
                    .note(&format!("{} was deleted, recreated or changed: {}", repair.subject, repair.says));
            }
        }
        Ok(gone.len())
    }
}

fn keeps_changing(what: &str) -> Failure {
    Failure::refused("Services of the plan are deleted and recreated continuously")
        .hint(format!("stop the clients that do this (`netsurgeon lock --reason TEXT`), then {what} again"))
}

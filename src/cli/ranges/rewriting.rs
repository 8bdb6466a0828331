//! Runs the rewrite of a RangeAllocation as an operation on a live cluster. The operation acquires the operation lease. Like any
//! other operation, it is resumed and rolled back from its journal. It needs only etcd. If an API server answers, it also
//! acquires the cluster's Lease.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::rewritten::{describe, show};
use crate::cli::api::KubeArgs;
use crate::cli::ledger_args::LedgerArgs;
use crate::cli::run_args::{LeaseArgs, PATIENCE};
use crate::cli::{Context, Outcome};
use crate::kube_api::Cluster;
use crate::operation::{EtcdRecord, Journal, Lock, Plan, Status, SystemAmbient, new_id};
use crate::renumber::ranges::{KIND, RangeRewrite, RewriteError};
use crate::renumber::rewriting::{Rewriting, is_written};
use crate::renumber::run::refuse_beside_another;
use crate::session::LiveEtcd;
use crate::session::{ExitKind, Failure};
use crate::session::{Recorded, Taking, refuse_ended, refuse_removing, release};
use crate::store::ReadStore as _;
use crate::survey::{Layout, Survey};

/// Maximum time between the allocation of an address and the write of its Service. Admission runs before the allocation, so only
/// the write to etcd follows the allocation.
const ALLOCATION: Duration = Duration::from_secs(3);

/// Runs the rewrites of a cluster, with a connection to its etcd.
pub(in crate::cli) struct Rewrites<'a> {
    context: &'a Context,
    pub(super) store: Arc<LiveEtcd>,
    layout: Layout,
    cluster: String,
    kube: &'a KubeArgs,
    lock: &'a LeaseArgs,
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

impl<'a> Rewrites<'a> {
    /// Connects to etcd.
    pub async fn connect(
        context: &'a Context,
        home: &'a LedgerArgs,
        lock: &'a LeaseArgs,
    ) -> Result<Self, Failure> {
        let (store, layout) = (home.etcd.connect().await?, home.etcd.layout());
        let cluster = Survey::identity(store.as_ref(), &layout).await?.ok_or(RewriteError::NoIdentity)?;
        Ok(Self { context, store, layout, cluster, kube: &home.kube, lock })
    }

    /// Executes a plan as a new operation, and returns the id of the operation.
    pub async fn begin(&self, plan: &Plan<RangeRewrite>) -> Result<String, Failure> {
        let operation = format!("{KIND}-{}", new_id());
        let lock = self.take(&operation, &plan.work).await?;
        let written = self.begin_locked(plan, &lock).await;
        release(lock, written).await?;
        Ok(operation)
    }

    async fn begin_locked(&self, plan: &Plan<RangeRewrite>, lock: &Lock) -> Result<(), Failure> {
        refuse_beside_another(self.store.as_ref(), &self.cluster).await?;
        if !self.is_still_right(&plan.work).await? {
            return Err(changed(&plan.work));
        }
        let store = self.store.as_ref();
        let (by, guards) = (lock.claim(), [lock.guard()]);
        let mut journal = Journal::begin_plan(store, plan, by, Value::Null, &guards).await?;
        self.write(&plan.work, &mut journal, lock).await
    }

    /// Continues a rewrite from its journal.
    pub async fn resume(&self, operation: &str) -> Result<Outcome, Failure> {
        let opened = self.open(operation).await?;
        refuse_ended(operation, &opened.summary)?;
        refuse_removing(operation, &opened.summary)?;
        let lock = self.take(operation, &opened.plan.work).await?;
        let resumed = self.resume_locked(operation, &lock).await;
        release(lock, resumed).await
    }

    /// Continues a rewrite while this process holds the operation lease. Reads the journal again, because the previous holder
    /// could have changed it.
    async fn resume_locked(&self, operation: &str, lock: &Lock) -> Result<Outcome, Failure> {
        let mut opened = self.open(operation).await?;
        refuse_ended(operation, &opened.summary)?;
        if opened.journal.is_being_undone() {
            return self.put_back(operation, &mut opened, lock).await;
        }
        let Recorded { plan, journal, .. } = &mut opened;
        if !is_written(&plan.work, journal) && !self.is_still_right(&plan.work).await? {
            self.rewriting(lock).roll_back(&plan.work, journal).await?;
            return Err(changed(&plan.work));
        }
        self.write(&plan.work, journal, lock).await?;
        self.say_written(&plan.work, operation)?;
        Ok(Outcome::Done)
    }

    /// Restores the old value, after confirmation.
    pub async fn roll_back(&self, operation: &str, yes: bool) -> Result<Outcome, Failure> {
        let Recorded { plan, journal, summary, .. } = self.open(operation).await?;
        let (output, work) = (&self.context.output, &plan.work);
        if summary.status == Status::RolledBack {
            output.progress("the old value was already restored; nothing was written");
            return Ok(Outcome::Done);
        }
        refuse_removing(operation, &summary)?;
        if is_written(work, &journal) {
            output.progress(&describe(output, &work.inverse()));
        } else {
            output.progress(&format!("RangeAllocation `{}` is not written yet", work.name));
        }
        let question =
            format!("Restore the old value of RangeAllocation `{}` in {}?", work.name, self.store.describe());
        output.ask(&question, yes)?;
        let lock = self.take(operation, work).await?;
        let undone = async {
            let mut opened = self.open(operation).await?;
            self.put_back(operation, &mut opened, &lock).await
        };
        let undone = undone.await;
        release(lock, undone).await
    }

    async fn put_back(
        &self,
        operation: &str,
        opened: &mut Recorded<RangeRewrite>,
        lock: &Lock,
    ) -> Result<Outcome, Failure> {
        let Recorded { plan, journal, .. } = opened;
        let was_written = is_written(&plan.work, journal);
        let report = self.rewriting(lock).roll_back(&plan.work, journal).await;
        let report = report.map_err(|failure| left_open(failure.into(), operation, "rollback"))?;
        if let Some(stuck) = report.stuck.first() {
            let text = format!("the old value cannot be restored: {}", stuck.reason);
            return Err(Failure::of(ExitKind::Stuck, text)
                .hint(format!("the allocations changed since the rewrite, so the rewrite stays in effect; `{}` creates a new plan", command(&plan.work)))
                .hint(format!("to remove this journal: `netsurgeon operation forget {operation}`")));
        }
        if self.context.output.is_structured() {
            show(self.context, &plan.work.inverse(), "undone", Some(operation))?;
        }
        let text = if was_written { "the old value is restored" } else { "rolled back: nothing was written" };
        self.context.output.progress(text);
        Ok(Outcome::Done)
    }

    /// Reports that the RangeAllocation is written, and how to restore the old value.
    pub fn say_written(&self, work: &RangeRewrite, operation: &str) -> Result<(), Failure> {
        if self.context.output.is_structured() {
            show(self.context, work, "rewritten", Some(operation))?;
        }
        self.context.output.progress(&format!(
            "RangeAllocation `{}` is rewritten; to restore the old value: `netsurgeon operation rollback {operation}`",
            work.name
        ));
        Ok(())
    }

    async fn open(&self, operation: &str) -> Result<Recorded<RangeRewrite>, Failure> {
        let record = EtcdRecord::new(self.store.as_ref(), &self.cluster, operation);
        Recorded::open_to_change(operation, &record, &self.cluster).await
    }

    async fn take(&self, operation: &str, work: &RangeRewrite) -> Result<Lock, Failure> {
        let purpose = format!("rewrite RangeAllocation `{}`", work.name);
        let taking = Taking { operation, purpose: &purpose };
        let (api, ui) = (self.api().await, self.context.ui());
        self.lock.terms().take_both(&ui, &self.store, &self.cluster, api.as_ref(), &taking).await
    }

    /// Connects to the API of this cluster. Fails if no API server answers, or if the API belongs to another cluster.
    async fn api(&self) -> Result<Cluster, Failure> {
        let identified = async {
            let api = self.kube.connect().await?;
            let identity = api.identity().await?;
            Ok::<_, Failure>((api, identity))
        };
        let silent = |_| Failure::refused("no API server answers");
        let (api, identity) = timeout(PATIENCE, identified).await.map_err(silent)??;
        if identity != self.cluster {
            return Err(Failure::refused(format!("the API at {} belongs to another cluster", api.server())));
        }
        Ok(api)
    }

    fn rewriting(&self, lock: &Lock) -> Rewriting<'_> {
        Rewriting { store: self.store.as_ref(), ambient: &SystemAmbient, guards: vec![lock.guard()] }
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
}

fn left_open(failure: Failure, operation: &str, verb: &str) -> Failure {
    failure.kind(ExitKind::Stuck).hint(format!(
        "the journal records whether the RangeAllocation was written; to continue: `netsurgeon operation {verb} {operation}`"
    ))
}

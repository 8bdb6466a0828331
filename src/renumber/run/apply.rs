//! Moves every Service of a live cluster: checks that the plan matches the cluster, then starts the operation.

use std::path::Path;

use super::situation::Situation;
use super::{Ongoing, RenumberSession};
use crate::operation::{Journal, Lock, Plan, Report, Summary, new_id};
use crate::renumber::plan::KIND;
use crate::renumber::{Renumbering, drift};
use crate::session::gates::GateSettings;
use crate::session::{Failure, Taking, is_leased, release};
use crate::store::etcd::Backup;
use crate::survey::Survey;
use crate::words::and_more;

impl RenumberSession {
    /// Refuses while another operation of this cluster is unfinished.
    pub async fn refuse_beside_others(&self) -> Result<(), Failure> {
        let listing = Journal::listing(self.store.as_ref(), Some(&self.id)).await?;
        listing.unreadable.iter().for_each(|text| self.ui.warn(text));
        refuse_beside_renumbering(self).await?;
        self.refuse_beside_another().await?;
        self.refuse_beside_marked(KIND).await
    }

    /// Refuses a plan that was created for another cluster, or that does not match the cluster.
    pub async fn refuse_unfit(&self, plan: &Plan<Renumbering>, survey: &Survey) -> Result<(), Failure> {
        if plan.header.cluster != self.id {
            return Err(Failure::refused(format!(
                "the plan is for cluster `{}`, but this cluster is `{}`",
                plan.header.cluster, self.id
            )));
        }
        refuse_changed(plan, survey)?;
        self.refuse_other_allocation(&plan.work, survey).await?;
        self.confirm_only_planned(&plan.work)?;
        let Some(gap) = plan.work.gap.as_ref().filter(|_| !plan.work.gap_accepted) else { return Ok(()) };
        Err(Failure::refused(format!("cannot tell whether every node can hold old addresses: {gap}"))
            .hint("if kube-proxy routes Services on every node, plan again with its configuration: `--kube-proxy-config FILE`")
            .hint("or plan again, and accept failing connections to old addresses: `--accept-gap`"))
    }

    /// Starts an operation: acquires the operation lease, saves a snapshot of etcd if requested, and moves every Service.
    /// Afterwards the old addresses are held.
    pub async fn apply(
        &self,
        plan: Plan<Renumbering>,
        gates: &GateSettings,
        snapshot: Option<&Path>,
    ) -> Result<(Ongoing, Report, Option<Backup>), Failure> {
        let operation = format!("renumber-{}", new_id());
        let purpose = format!("renumber to {}", plan.work.to);
        let taking = Taking { operation: &operation, purpose: &purpose };
        let lock = self.lock(&taking).await?;
        let started = self.begin(plan, gates, snapshot, &lock).await;
        release(lock, started).await
    }

    /// Starts the operation once the lease is held. First checks the cluster again, because hours can pass between the approval
    /// and the acquisition of the lease.
    async fn begin(
        &self,
        plan: Plan<Renumbering>,
        gates: &GateSettings,
        snapshot: Option<&Path>,
        lock: &Lock,
    ) -> Result<(Ongoing, Report, Option<Backup>), Failure> {
        let (store, ui) = (self.store.as_ref(), &self.ui);
        self.refuse_beside_another().await?;
        self.refuse_beside_marked(KIND).await?;
        refuse_changed(&plan, &Survey::read(store, &self.layout, None).await?)?;
        self.try_external_ips(&lock.claim().operation, &plan.work).await?;
        let snapshot = match snapshot {
            Some(path) => Some(store.bare().save_snapshot(path).await?),
            None => None,
        };
        if let Some(backup) = &snapshot {
            let (path, revision) = (backup.path.display(), backup.revision);
            ui.progress(&format!("snapshot `{path}`: revision {revision}, {} keys", backup.keys));
        }
        let (by, record) = (lock.claim(), gates.record()?);
        let journal = Journal::begin_plan(store, &plan, by, record, &[lock.guard()]).await?;
        let summary = Summary::begun(&plan.header.kind, &plan.digest, by);
        let operation = by.operation.clone();
        ui.progress(&format!("operation {operation}"));
        gates.report(ui, &summary.gates);
        let (options, gates) = (String::new(), self.gate_options().to_string());
        let mut ongoing = Ongoing { operation, plan, journal, summary, options, gates };
        let report = self.move_all(&mut ongoing, lock).await?;
        Ok((ongoing, report, snapshot))
    }
}

async fn refuse_beside_renumbering(session: &RenumberSession) -> Result<(), Failure> {
    let Some(other) = session.unfinished().await?.into_iter().next() else { return Ok(()) };
    let holder = session.holder().await?;
    let is_leased = is_leased(holder.as_ref(), &other);
    // The operation is reported even if this version cannot read its journal.
    let situation = session.find(Some(&other)).await.ok();
    let situation = situation.map(|ongoing| Situation::of_ongoing(&ongoing, is_leased));
    let status = situation.as_ref().map(|found| format!(" ({})", found.words())).unwrap_or_default();
    let by = holder.filter(|_| is_leased).map_or_else(String::new, |held| format!(": {held}"));
    let text = format!("renumbering `{other}` of this cluster has not ended{status}{by}");
    let next = situation.as_ref().and_then(Situation::next);
    let next = next.unwrap_or_else(|| format!("netsurgeon operation resume {other}"));
    let back = situation.and_then(|found| found.rollback_hint());
    let failure = Failure::refused(text);
    let failure = if is_leased {
        failure
            .hint("`netsurgeon renumber status --watch` shows what that process does")
            .hint(format!("if that process has died: `{next}` waits until its lease expires, then continues"))
    } else {
        failure.hint(format!("to continue it: `{next}`"))
    };
    Err(failure.hints(back))
}

fn refuse_changed(plan: &Plan<Renumbering>, survey: &Survey) -> Result<(), Failure> {
    let fit = drift::compare(&plan.work, survey);
    let Some(first) = fit.drifts.first() else { return Ok(()) };
    let text = format!(
        "the cluster has changed since the plan was created: {first}{}",
        and_more(fit.drifts.len().saturating_sub(1))
    );
    Err(Failure::refused(text).hint("create a new plan and review it"))
}

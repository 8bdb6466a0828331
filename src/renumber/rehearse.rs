//! Rehearses the whole operation on a private copy: forward to the end, and a rollback from the middle.
//!
//! The copy is an [`Overlay`] over any store, usually over a recent snapshot. The steps, the executor and the journal are the
//! same as in a live run. Actions that need a live cluster are not simulated: changes of flags, the work of controllers, the
//! removal of finalizers, and the work of nodes. The rehearsal assumes that these actions are done, and lists them.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::intention::Renumbering;
use super::plan::{PlanError, PlanOptions, plan};
use super::simulate::Simulation;
use crate::operation::{
    Ambient, EtcdLedger, Executor, Journal, LeaseHolder, Observer, OperationError, Plan, RunFailure, Stuck,
    Summary, Work,
};
use crate::store::overlay::Overlay;
use crate::store::{KeyRange, ReadStore, StoreError};
use crate::survey::audit::audit;
use crate::survey::{Finding, Layout, Survey, SurveyError};
use crate::wire::Text;

/// Reason why a rehearsal could not complete.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The survey failed.
    #[error(transparent)]
    Survey(#[from] SurveyError),
    /// No plan could be created.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A step failed.
    #[error("{phase}: {failure}")]
    Step {
        /// The part of the rehearsal: `move` or `rollback`.
        phase: &'static str,
        /// The failure.
        failure: RunFailure,
    },
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] OperationError),
}

/// The result of a rehearsal.
#[derive(Debug, Clone, Serialize)]
pub struct Rehearsal {
    /// Number of Services in the cluster.
    pub services: usize,
    /// Number of Services that moved.
    pub moved: usize,
    /// Number of Services that did not move.
    pub skipped: usize,
    /// Number of executed steps.
    pub steps: usize,
    /// Number of batches.
    pub batches: usize,
    /// Number of waits for the data plane that a live run would have.
    pub waits: usize,
    /// Findings before the operation.
    pub findings_before: Vec<Finding>,
    /// Findings after every Service has moved and every old address is retired.
    pub findings_after: Vec<Finding>,
    /// Services that do not have their planned address.
    pub misplaced: Vec<String>,
    /// Result of the rollback from the middle of the operation.
    pub rollback: Rollback,
    /// Keys that do not have their original value after the rollback.
    pub rollback_differences: Vec<String>,
    /// Steps that the rollback could not undo.
    pub rollback_stuck: Vec<String>,
    /// The stage at which the rollback started.
    pub rollback_from: String,
    /// Actions outside etcd that were assumed to be done.
    pub external: Vec<Outside>,
}

/// Result of a rollback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rollback {
    /// Every key has its original bytes.
    Identical,
    /// Some keys do not have their original bytes.
    Differs,
}

/// An action that a rehearsal cannot execute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outside {
    /// The action.
    pub what: String,
    /// Why the action is necessary.
    pub why: String,
}

impl Rehearsal {
    /// Returns whether every Service has its planned address and the rollback restored every key.
    pub fn succeeded(&self) -> bool {
        self.misplaced.is_empty() && self.rollback == Rollback::Identical && self.rollback_stuck.is_empty()
    }
}

/// Returns the key ranges that a snapshot must index for a rehearsal: the ranges that a survey reads, and the range of the
/// journal. Every step reads its record in the journal. Without the index, each of these reads would read the whole file.
pub fn scope(layout: &Layout) -> Vec<KeyRange> {
    let mut ranges = layout.surveyed();
    ranges.push(Journal::of_all_clusters());
    ranges
}

/// Rehearses a renumbering on the content of a store. The store is only read. If the store is a snapshot, open it with the key
/// ranges that [`scope`] returns.
pub async fn rehearse(
    base: Arc<dyn ReadStore>,
    layout: &Layout,
    options: &PlanOptions,
    ambient: &dyn Ambient,
    observer: &mut dyn Observer,
) -> Result<(Plan<Renumbering>, Rehearsal), RehearsalError> {
    let before = Survey::read_annotated(base.as_ref(), layout, None, options.annotation()).await?;
    let plan = plan(&before, options)?;
    let forward = Rehearsing { base: base.clone(), plan: &plan, ambient };
    let finished = forward.run(None, false, observer).await?;
    let after = Survey::read(&finished.overlay, layout, None).await?;
    // The overlay holds every version of every object, and the rollback needs the same amount of memory again.
    drop(finished.overlay);
    let middle = middle(&plan.work);
    let rolled_back = forward.run(middle, true, observer).await?;
    let differences = compare(base.as_ref(), &rolled_back.overlay, layout).await?;
    let stages = plan.work.stages();
    let rehearsal = Rehearsal {
        services: before.services.len(),
        moved: plan.work.moves.len(),
        skipped: plan.work.staying(),
        steps: finished.steps,
        batches: plan.work.batches().len(),
        waits: finished.waits,
        findings_before: audit(&before),
        findings_after: audit(&after),
        misplaced: misplaced(&plan.work, &after),
        rollback: if differences.is_empty() { Rollback::Identical } else { Rollback::Differs },
        rollback_differences: differences,
        rollback_stuck: rolled_back.stuck.iter().map(|s| format!("{}: {}", s.step, s.reason)).collect(),
        rollback_from: middle
            .and_then(|index| stages.get(index))
            .map(|s| s.title.clone())
            .unwrap_or_default(),
        external: finished.taken_as_done.into_iter().map(|[what, why]| Outside { what, why }).collect(),
    };
    Ok((plan, rehearsal))
}

/// Returns the stage after the flips of the middle batch. At this stage some Services have moved, some are moving, and some have
/// not moved. If no Service moves, returns the soak stage, which comes after all changes that a rollback can undo.
fn middle(work: &Renumbering) -> Option<usize> {
    let batch = work.batches().len().saturating_sub(1) / 2;
    work.flip_stage(batch).map(|index| index.saturating_add(1)).or_else(|| work.soak_stage())
}

/// One run of the operation on its own overlay.
struct Rehearsing<'a> {
    base: Arc<dyn ReadStore>,
    plan: &'a Plan<Renumbering>,
    ambient: &'a dyn Ambient,
}

struct Finished {
    overlay: Overlay,
    steps: usize,
    waits: usize,
    stuck: Vec<Stuck>,
    taken_as_done: Vec<[String; 2]>,
}

impl Rehearsing<'_> {
    /// Executes the plan up to a stage, or to the end. With `back`, rolls the operation back afterwards.
    async fn run(
        &self,
        until: Option<usize>,
        back: bool,
        observer: &mut dyn Observer,
    ) -> Result<Finished, RehearsalError> {
        let overlay = Overlay::new(self.base.clone()).await?;
        let simulation = Simulation::new(&overlay, &self.plan.work, self.ambient);
        let by = LeaseHolder {
            operation: "rehearsal".into(),
            since: self.ambient.now(),
            ..LeaseHolder::default()
        };
        let header = &self.plan.header;
        let summary = Summary::begun(&header.kind, &self.plan.digest, &by);
        let ledger = EtcdLedger::new(&overlay, &header.cluster, &by.operation, &[]);
        // A rehearsal is never resumed, so its plan is never read.
        let mut journal = Journal::begin_in(&ledger, b"", summary).await?;
        let mut executor = Executor::new(&ledger, &simulation, self.ambient, observer, &mut journal);
        let forward = executor.run(&self.plan.work, until).await;
        let report = forward.map_err(|failure| RehearsalError::Step { phase: "move", failure })?;
        let mut stuck = Vec::new();
        if back {
            let unwound = executor.unwind(&self.plan.work).await;
            stuck = unwound.map_err(|failure| RehearsalError::Step { phase: "rollback", failure })?.stuck;
        }
        let (taken_as_done, waits) = simulation.into_notes();
        Ok(Finished { overlay, steps: report.done, waits, stuck, taken_as_done })
    }
}

/// Returns the Services that do not have their planned addresses.
fn misplaced(work: &Renumbering, after: &Survey) -> Vec<String> {
    let mut found: HashMap<(&str, &str), &[Text]> = HashMap::new();
    for service in &after.services {
        found.insert((&service.namespace, &service.name), &service.spec.cluster_ips);
    }
    work.moves
        .iter()
        .filter(|m| found.get(&(m.namespace.as_str(), m.name.as_str())).is_none_or(|ips| **ips != *m.new))
        .map(super::intention::Move::subject)
        .collect()
}

/// Compares every changed key under the API server's prefix with its original value. Returns the keys that differ.
async fn compare(
    base: &dyn ReadStore,
    overlay: &Overlay,
    layout: &Layout,
) -> Result<Vec<String>, StoreError> {
    let mut differences = Vec::new();
    let within = layout.everything();
    for change in overlay.changes() {
        let was = base.get(&change.key).await?.map(|entry| entry.value);
        if within.contains(change.key.as_bytes()) && was != change.entry.map(|entry| entry.value) {
            differences.push(change.key.to_string());
        }
    }
    Ok(differences)
}

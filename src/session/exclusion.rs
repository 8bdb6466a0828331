//! Excludes operations of different ledgers from each other while no process runs them ([`Mark`]).

use super::{Failure, Ui, status_hint};
use crate::kube_api::{Cluster, ClusterError};
use crate::operation::{ClusterLock, ClusterRecord, Journal, LedgerKind, Mark, OperationError, Summary};
use crate::store::ReadStore;

/// The operations of one cluster, as far as a session can read them.
pub(super) struct Marks<'a> {
    pub api: &'a Cluster,
    /// The etcd of the cluster, with the identity of the cluster; `None` without access to etcd.
    pub etcd: Option<(&'a dyn ReadStore, &'a str)>,
}

impl Marks<'_> {
    /// Fails if an operation of this kind cannot start beside an operation that has not ended. Removes stale marks.
    pub async fn refuse_beside(&self, ui: &Ui, kind: &str) -> Result<(), Failure> {
        let excluding = async { self.excluding(Mark::list(self.api).await?, kind).await };
        match excluding.await {
            Ok(Some(other)) => Err(refusal(&other)),
            Ok(None) => Ok(()),
            Err(error) => {
                warn(ui, &error);
                Ok(())
            }
        }
    }

    /// Marks an operation that starts or continues. Must be called while this process holds the Lease. Fails if the operation has
    /// no mark yet, runs forward, and cannot start beside another one.
    pub async fn claim(&self, ui: &Ui, mark: &Mark, is_back: bool) -> Result<(), Failure> {
        let marked = async {
            let marks = Mark::list(self.api).await?;
            if marks.contains(mark) {
                return Ok(None);
            }
            let other = if is_back { None } else { self.excluding(marks, &mark.kind).await? };
            if other.is_none() {
                mark.put(self.api).await?;
            }
            Ok::<_, OperationError>(other)
        };
        match marked.await {
            Ok(Some(other)) => Err(refusal(&other)),
            Ok(None) => Ok(()),
            // A rollback must not depend on the Lease.
            Err(error) => {
                warn(ui, &error);
                Ok(())
            }
        }
    }

    /// Returns the first of these marks whose operation has not ended and excludes operations of this kind. Removes stale marks.
    async fn excluding(&self, marks: Vec<Mark>, kind: &str) -> Result<Option<Mark>, OperationError> {
        for mark in marks.into_iter().filter(|mark| !mark.allows(kind)) {
            if !self.has_ended(&mark).await? {
                return Ok(Some(mark));
            }
            Mark::remove(self.api, &mark.operation).await?;
        }
        Ok(None)
    }

    /// Returns the summary of an operation that is recorded in the cluster; `None` if its record is missing or damaged, because no
    /// process can continue it.
    async fn in_cluster(&self, operation: &str) -> Result<Option<Summary>, OperationError> {
        let Some(record) = ClusterRecord::find(self.api, operation).await? else { return Ok(None) };
        match Journal::open_in(&record).await {
            Ok((_, summary, _)) => Ok(Some(summary)),
            Err(OperationError::Journal { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the operation of a mark has ended, or has no record. Returns `false` if its ledger cannot be read.
    async fn has_ended(&self, mark: &Mark) -> Result<bool, OperationError> {
        let id = &mark.operation;
        let summary = match (mark.ledger, self.etcd) {
            (LedgerKind::Cluster, _) => match self.in_cluster(id).await {
                Err(error) if is_forbidden(&error) => return Ok(false),
                found => found?,
            },
            (LedgerKind::Etcd, Some((store, cluster))) => {
                let listed = Journal::list(store, Some(cluster)).await?;
                listed.into_iter().find(|one| one.operation == *id).map(|one| one.summary)
            }
            (LedgerKind::Etcd, None) => return Ok(false),
        };
        Ok(summary.is_none_or(|summary| summary.has_ended()))
    }
}

/// Removes the mark of an operation that has ended.
pub(super) async fn unmark(ui: &Ui, api: &Cluster, operation: &str) {
    if let Err(error) = Mark::remove(api, operation).await {
        let lease = ClusterLock::LEASE;
        ui.warn(&format!(
            "the Lease `{lease}` still says that operation `{operation}` has not ended: {error}; the next operation that can read its journal corrects this"
        ));
    }
}

fn is_forbidden(error: &OperationError) -> bool {
    matches!(error, OperationError::Cluster(error) if matches!(**error, ClusterError::Forbidden { .. }))
}

fn warn(ui: &Ui, error: &OperationError) {
    let lease = ClusterLock::LEASE;
    ui.warn(&format!(
        "cannot compare with the operations that the Lease `{lease}` lists: {error}; an operation that is recorded elsewhere could be under way"
    ));
}

fn refusal(mark: &Mark) -> Failure {
    let (id, kind) = (&mark.operation, &mark.kind);
    let place = match mark.ledger {
        LedgerKind::Etcd => "etcd",
        LedgerKind::Cluster => "the cluster",
    };
    Failure::refused(format!(
        "operation `{id}` ({kind}) of this cluster has not ended; it is recorded in {place}"
    ))
    .hint(status_hint(id))
    .hint(format!("if {place} has no such operation any more: `{}`", mark.removal()))
}

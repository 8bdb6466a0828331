//! An operation as its journal records it, in etcd or in the cluster.

use super::{Failure, refuse_removing};
use crate::kube_api::Cluster;
use crate::operation::{ClusterRecord, Journal, Kind, Plan, PlanFileError, ReadLedger, Summary, Work};

/// An operation with its journal, which is in etcd or in the cluster.
pub struct Recorded<W> {
    /// Id of the operation.
    pub operation: String,
    /// Plan of the operation.
    pub plan: Plan<W>,
    /// Journal of the operation.
    pub journal: Journal,
    /// Summary of the operation, with its status.
    pub summary: Summary,
}

impl<W: Kind + Work> Recorded<W> {
    /// Reads an operation from the API of its cluster.
    pub async fn read(api: &Cluster, operation: &str) -> Result<Self, Failure> {
        let record = ClusterRecord::find(api, operation).await?;
        let record = record.ok_or_else(|| {
            Failure::refused(format!("there is no operation `{operation}`"))
                .hint("`netsurgeon operation list` lists the operations of this cluster")
        })?;
        Self::open(operation, &record).await
    }

    /// Opens an operation. Fails if the operation is of another kind.
    pub async fn open(operation: &str, ledger: &dyn ReadLedger) -> Result<Self, Failure> {
        let (journal, summary, text) = match Journal::open_in(ledger).await {
            Ok(found) => found,
            Err(error) => {
                // A journal that is being deleted lacks parts.
                if let Some(summary) = Journal::summary_in(ledger).await? {
                    refuse_removing(operation, &summary)?;
                }
                return Err(error.into());
            }
        };
        if summary.kind != W::NAME {
            let (found, wanted) = (&summary.kind, W::NAME);
            let text = format!("operation `{operation}` is of kind `{found}`, not `{wanted}`");
            return Err(Failure::refused(text));
        }
        let plan = Plan::of_operation(&text, operation).map_err(|error| unreadable(error, &summary))?;
        Ok(Self { operation: operation.to_string(), plan, journal, summary })
    }

    /// Opens an operation in order to run it. Its plan must compile to the same steps as when the operation started.
    pub async fn open_to_change(operation: &str, ledger: &dyn ReadLedger) -> Result<Self, Failure> {
        let opened = Self::open(operation, ledger).await?;
        let compiled = opened.plan.compiles_as(&opened.summary.compiled, operation);
        compiled.map_err(|error| unreadable(error, &opened.summary))?;
        Ok(opened)
    }
}

/// Returns the failure for a plan that this version cannot use. If the operation has ended, it does not have to be completed, so
/// the hint is different.
fn unreadable(error: PlanFileError, summary: &Summary) -> Failure {
    let hint = match &error {
        PlanFileError::Begun { operation, tool, .. } if summary.has_ended() => Some(format!(
            "the operation has ended: use {tool} for it, or remove its journal: `netsurgeon operation forget {operation}`"
        )),
        _ => None,
    };
    let failure = Failure::from(error);
    match hint {
        Some(hint) => Failure { hints: vec![hint], ..failure },
        None => failure,
    }
}

//! An operation as its journal records it, in etcd or in the cluster.

use super::{Failure, refuse_removing};
use crate::kube_api::Cluster;
use crate::operation::{
    ClusterRecord, Journal, OperationError, OperationKind, Part, Plan, PlanFileError, ReadLedger, Summary,
    Work,
};

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

impl<W: OperationKind + Work> Recorded<W> {
    /// Reads an operation from the API of its cluster.
    pub async fn read(api: &Cluster, operation: &str) -> Result<Self, Failure> {
        Self::open(operation, &record(api, operation).await?).await
    }

    /// Reads an operation from the API of its cluster. Fails if its plan is for another cluster than `cluster`.
    pub async fn read_of(api: &Cluster, operation: &str, cluster: &str) -> Result<Self, Failure> {
        let record = record(api, operation).await?;
        let opened = Self::open(operation, &record).await?;
        opened.refuse_other_cluster(cluster, &record)?;
        Ok(opened)
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
        let plan: Plan<W> =
            Plan::of_operation(&text, operation).map_err(|error| unreadable(error, &summary))?;
        if plan.digest != summary.digest {
            let reason = format!("it has digest `{}`, but the summary has `{}`", plan.digest, summary.digest);
            return Err(ledger.broken(&Part::Plan(0), &reason).into());
        }
        Ok(Self { operation: operation.to_string(), plan, journal, summary })
    }

    /// Opens an operation in order to run it. Its plan must be for this cluster, and must compile to the same steps as when the
    /// operation started.
    pub async fn open_to_change(
        operation: &str,
        ledger: &dyn ReadLedger,
        cluster: &str,
    ) -> Result<Self, Failure> {
        let opened = Self::open(operation, ledger).await?;
        opened.refuse_other_cluster(cluster, ledger)?;
        let compiled = opened.plan.compiles_as(&opened.summary.compiled, operation);
        compiled.map_err(|error| unreadable(error, &opened.summary))?;
        Ok(opened)
    }

    /// Fails if the plan is for another cluster. A record can be copied, for example by a backup that is restored to another
    /// cluster. Its steps would then change the wrong objects.
    fn refuse_other_cluster(&self, cluster: &str, ledger: &dyn ReadLedger) -> Result<(), Failure> {
        let (operation, planned) = (&self.operation, &self.plan.header.cluster);
        if planned == cluster {
            return Ok(());
        }
        let place = ledger.place(&Part::Summary);
        let text = format!(
            "operation `{operation}` is for cluster `{planned}`, but this cluster is `{cluster}`: its record was copied"
        );
        Err(Failure::refused(text).hint("check `--kubeconfig`, `--context` and `--etcd-endpoints`").hint(
            format!(
                "this operation cannot run here; its record is {place}: delete it if no operator needs it"
            ),
        ))
    }
}

/// Reads the whole record of an operation in the cluster. If the record is missing or damaged, returns the reason why no process
/// can continue the operation.
pub async fn damage(api: &Cluster, operation: &str) -> Result<Option<OperationError>, Failure> {
    let Some(record) = ClusterRecord::find(api, operation).await? else {
        let (what, reason) = (format!("operation `{operation}`"), "it has no record".to_string());
        return Ok(Some(OperationError::Journal { what, reason }));
    };
    match Journal::open_in(&record).await {
        Ok(_) => Ok(None),
        Err(reason @ OperationError::Journal { .. }) => Ok(Some(reason)),
        Err(error) => Err(error.into()),
    }
}

/// Finds the record of an operation in the API of its cluster.
async fn record(api: &Cluster, operation: &str) -> Result<ClusterRecord, Failure> {
    ClusterRecord::find(api, operation).await?.ok_or_else(|| {
        Failure::refused(format!("there is no operation `{operation}`"))
            .hint("`netsurgeon operation list` lists the operations of this cluster")
    })
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

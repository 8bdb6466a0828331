//! The options that select where operations are recorded: in etcd, or in the cluster through its API. If both are available, both
//! are read.

use std::time::Duration;

use clap::Args;
use tokio::time::timeout;

use crate::cli::Context;
use crate::cli::api::KubeArgs;
use crate::cli::source::EtcdArgs;
use crate::kube_api::ClusterError;
use crate::session::ledger_place::{FoundOperation, FoundOperations, LedgerPlace};
use crate::session::{Candidates, Failure};

/// Maximum time to wait for an answer from the API if operations are also read from etcd.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where operations are recorded: etcd, or the cluster. One of the two is sufficient.
#[derive(Debug, Clone, Args)]
pub(super) struct LedgerArgs {
    #[command(flatten)]
    pub(super) etcd: EtcdArgs,
    #[command(flatten)]
    pub(super) kube: KubeArgs,
}

impl LedgerArgs {
    /// Returns the operations that are recorded in etcd and in the cluster. If etcd is given, a failed request to the API only
    /// causes a warning. Warns about records that are skipped.
    pub(super) async fn list(&self, context: &Context) -> Result<Vec<FoundOperation>, Failure> {
        let mut all = warned(context, self.in_etcd().await?);
        all.extend(warned(context, self.in_cluster(context).await?));
        Ok(all)
    }

    /// Returns the operations that are recorded in etcd. The list is empty if no etcd is given.
    async fn in_etcd(&self) -> Result<FoundOperations, Failure> {
        if !self.etcd.is_given() {
            return Ok(FoundOperations::default());
        }
        LedgerPlace::Etcd(self.etcd.connect().await?).all().await
    }

    async fn in_cluster(&self, context: &Context) -> Result<FoundOperations, Failure> {
        let is_beside = self.etcd.is_given();
        match self.ask(is_beside).await {
            Ok(found) => return Ok(found),
            // Neither etcd nor the API is given, so return the error that explains how to connect to etcd.
            Err(failure) if !is_beside && is_nowhere(&failure) => drop(self.etcd.connect().await?),
            Err(failure) if !is_beside => return Err(failure),
            Err(failure) if is_nowhere(&failure) => {}
            Err(failure) => context.output.warn(&format!(
                "operations that are recorded in the cluster are not listed: {}",
                failure.error
            )),
        }
        Ok(FoundOperations::default())
    }

    async fn ask(&self, is_beside: bool) -> Result<FoundOperations, Failure> {
        let looked = async { LedgerPlace::Cluster(Box::new(self.kube.connect().await?)).all().await };
        if !is_beside {
            return looked.await;
        }
        let late = |_| Failure::refused(format!("the API did not answer within {} s", PATIENCE.as_secs()));
        timeout(PATIENCE, looked).await.map_err(late)?
    }

    /// Finds an operation of any cluster by its id. If etcd is given, searches etcd first, then the cluster. Without an id, finds
    /// the only operation that has not ended.
    pub(super) async fn find(&self, context: &Context, id: Option<&str>) -> Result<FoundOperation, Failure> {
        let Some(id) = id else {
            let own = self.list(context).await?.into_iter().filter(|found| !found.is_foreign);
            return Candidates::ANY.only_under_way(own.collect(), |found| &found.listed);
        };
        let of_id = |all: Vec<FoundOperation>| all.into_iter().find(|found| found.listed.operation == id);
        let stored = self.in_etcd().await?;
        if let Some(found) = of_id(stored.found) {
            return Ok(found);
        }
        let in_cluster = self.in_cluster(context).await?;
        let skipped = stored.skipped.iter().chain(&in_cluster.skipped);
        of_id(in_cluster.found).ok_or_else(|| {
            // The operation may be one of them.
            skipped.for_each(|text| context.output.warn(text));
            Failure::refused(format!("there is no operation `{id}`"))
                .hint("`netsurgeon operation list` lists all operations in this etcd and this cluster")
        })
    }

    /// Returns the operations that can be read from etcd and from the cluster, for completion. Prints nothing, and ignores
    /// errors.
    pub(super) async fn quietly(&self) -> Vec<FoundOperation> {
        let in_cluster = async {
            let api = self.kube.connect_silently().await?;
            LedgerPlace::Cluster(Box::new(api)).all().await
        };
        let (stored, in_cluster) = tokio::join!(self.in_etcd(), in_cluster);
        let found = |inventory: Result<FoundOperations, Failure>| inventory.unwrap_or_default().found;
        found(stored).into_iter().chain(found(in_cluster)).collect()
    }
}

/// Returns the operations, and warns about records that are skipped.
fn warned(context: &Context, FoundOperations { found, skipped }: FoundOperations) -> Vec<FoundOperation> {
    for text in &skipped {
        context.output.warn(text);
    }
    found
}

/// Returns whether a failure means that no API is configured.
fn is_nowhere(failure: &Failure) -> bool {
    matches!(failure.error.downcast_ref(), Some(ClusterError::NoConfiguration))
}

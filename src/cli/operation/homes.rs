//! Where operations are recorded: in an etcd, in a cluster through its API, or in both, as far as each is there to be asked.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::timeout;

use crate::cli::Context;
use crate::cli::api::KubeArgs;
use crate::cli::failure::Failure;
use crate::cli::live::is_leased;
use crate::cli::source::{EtcdArgs, LiveEtcd};
use crate::cluster::{Cluster, ClusterError};
use crate::operation::{
    ClusterLock, ClusterRecord, EtcdRecord, Journal, Listed, Lock, OperationError, Progress, ReadLedger,
    Status, Summary,
};

/// How long an API may take to answer where there is an etcd to be read.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where operations are recorded: neither is needed if the other is there.
#[derive(Debug, Clone, Args)]
pub(super) struct HomeArgs {
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(flatten)]
    kube: KubeArgs,
}

/// Where an operation is recorded.
#[derive(Clone)]
pub(super) enum Home {
    /// In the etcd that it changes.
    Etcd(Arc<LiveEtcd>),
    /// In a cluster, through its API.
    Cluster(Box<Cluster>),
}

/// An operation, and where it is recorded.
pub(super) struct Found {
    pub(super) home: Home,
    pub(super) listed: Listed,
}

/// The name of a home, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ledger {
    /// In etcd.
    Etcd,
    /// In the cluster.
    Cluster,
}

impl HomeArgs {
    /// Returns those of a command that has them among others.
    pub(super) fn of(etcd: &EtcdArgs, kube: &KubeArgs) -> Self {
        Self { etcd: etcd.clone(), kube: kube.clone() }
    }

    /// Returns the operations of every home that is there. Where there is an etcd, an API that does not answer, or does not
    /// permit it, is said not to, and no more.
    pub(super) async fn list(&self, context: &Context) -> Result<Vec<Found>, Failure> {
        let mut all = self.in_etcd().await?;
        all.extend(self.in_cluster(context).await?);
        Ok(all)
    }

    /// None where there is no etcd.
    async fn in_etcd(&self) -> Result<Vec<Found>, Failure> {
        if !self.etcd.is_given() {
            return Ok(Vec::new());
        }
        Home::Etcd(self.etcd.connect().await?).all().await
    }

    async fn in_cluster(&self, context: &Context) -> Result<Vec<Found>, Failure> {
        let is_beside = self.etcd.is_given();
        match self.ask(is_beside).await {
            Ok(found) => return Ok(found),
            // What is to be said where there is neither.
            Err(failure) if !is_beside && is_nowhere(&failure) => drop(self.etcd.connect().await?),
            Err(failure) if !is_beside => return Err(failure),
            Err(failure) if is_nowhere(&failure) => {}
            Err(failure) => context.output.warn(&format!(
                "operations that are recorded in the cluster are not looked for: {}",
                failure.error
            )),
        }
        Ok(Vec::new())
    }

    async fn ask(&self, is_beside: bool) -> Result<Vec<Found>, Failure> {
        let looked = async { Home::Cluster(Box::new(self.kube.connect().await?)).all().await };
        if !is_beside {
            return looked.await;
        }
        let late = |_| Failure::refused(format!("the API does not answer within {} s", PATIENCE.as_secs()));
        timeout(PATIENCE, looked).await.map_err(late)?
    }

    /// Finds an operation by its id, of whatever cluster: in the etcd, if there is one, and if it is not there in the cluster.
    pub(super) async fn find(&self, context: &Context, id: &str) -> Result<Found, Failure> {
        let of_id = |all: Vec<Found>| all.into_iter().find(|found| found.listed.operation == id);
        if let Some(found) = of_id(self.in_etcd().await?) {
            return Ok(found);
        }
        of_id(self.in_cluster(context).await?).ok_or_else(|| {
            Failure::refused(format!("there is no operation `{id}`"))
                .hint("`netsurgeon operation list` lists all operations of this etcd and this cluster")
        })
    }
}

/// Whether nothing says where an API would be.
fn is_nowhere(failure: &Failure) -> bool {
    matches!(failure.error.downcast_ref(), Some(ClusterError::NoConfiguration))
}

impl Home {
    /// Returns its operations, in the order of their ids.
    async fn all(self) -> Result<Vec<Found>, Failure> {
        let listed = match &self {
            Self::Etcd(store) => Journal::list(store.as_ref(), None).await?,
            Self::Cluster(api) => ClusterRecord::list(api).await?,
        };
        Ok(listed.into_iter().map(|listed| Found { home: self.clone(), listed }).collect())
    }

    pub(super) fn ledger(&self) -> Ledger {
        match self {
            Self::Etcd(_) => Ledger::Etcd,
            Self::Cluster(_) => Ledger::Cluster,
        }
    }
}

impl Found {
    /// Returns how it stands now, and how many of its steps are in which state.
    pub(super) async fn status(&self) -> Result<(Status, Progress), Failure> {
        let progress = Journal::progress(self.record().await?.as_ref()).await?;
        let is_leased = self.is_leased().await?;
        Ok((self.listed.summary.status_now(progress.has_undone(), is_leased), progress))
    }

    /// Reads its journal.
    pub(super) async fn journal(&self) -> Result<(Journal, Summary), Failure> {
        let (journal, summary, _) = Journal::open_in(self.record().await?.as_ref()).await?;
        Ok((journal, summary))
    }

    async fn record(&self) -> Result<Box<dyn ReadLedger + '_>, Failure> {
        let Listed { cluster, operation, .. } = &self.listed;
        Ok(match &self.home {
            Home::Etcd(store) => Box::new(EtcdRecord::new(store.as_ref(), cluster, operation)),
            Home::Cluster(api) => {
                let found = ClusterRecord::find(api, operation).await?;
                Box::new(found.ok_or_else(|| OperationError::Journal {
                    what: format!("`{operation}`"),
                    reason: "it is gone".to_string(),
                })?)
            }
        })
    }

    /// Whether a process runs it.
    pub(super) async fn is_leased(&self) -> Result<bool, Failure> {
        let held = match &self.home {
            Home::Etcd(store) => Lock::holder(store.as_ref(), &self.listed.cluster).await?,
            Home::Cluster(api) => ClusterLock::holder(api).await?,
        };
        Ok(is_leased(held.as_ref(), &self.listed.operation))
    }
}

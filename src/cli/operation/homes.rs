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

    /// Connects to what is there. An API that does not answer is said not to, where there is an etcd.
    pub(super) async fn open(&self, context: &Context) -> Result<Vec<Home>, Failure> {
        let mut homes = Vec::new();
        if self.etcd.is_given() {
            homes.push(Home::Etcd(self.etcd.connect().await?));
        }
        match self.api(!homes.is_empty()).await {
            Ok(api) => homes.push(Home::Cluster(Box::new(api))),
            Err(failure) if homes.is_empty() && is_nowhere(&failure) => {
                self.etcd.connect().await?;
            }
            Err(failure) if homes.is_empty() => return Err(failure),
            Err(failure) if is_nowhere(&failure) => {}
            Err(failure) => context.output.warn(&format!(
                "operations that are recorded in the cluster are not looked for: {}",
                failure.error
            )),
        }
        Ok(homes)
    }

    async fn api(&self, is_beside: bool) -> Result<Cluster, Failure> {
        if !is_beside {
            return self.kube.connect().await;
        }
        let late = |_| Failure::refused(format!("the API does not answer within {} s", PATIENCE.as_secs()));
        timeout(PATIENCE, self.kube.connect()).await.map_err(late)?
    }

    /// Finds an operation by its id, of whatever cluster: in the etcd, if there is one, and if it is not there in the cluster.
    pub(super) async fn find(&self, context: &Context, id: &str) -> Result<Found, Failure> {
        if self.etcd.is_given()
            && let Some(found) = Home::Etcd(self.etcd.connect().await?).find(id).await?
        {
            return Ok(found);
        }
        for home in self.open(context).await? {
            if let Some(found) = home.find(id).await? {
                return Ok(found);
            }
        }
        Err(Failure::refused(format!("there is no operation `{id}`"))
            .hint("`netsurgeon operation list` lists all operations of this etcd and this cluster"))
    }
}

/// Whether nothing says where an API would be.
fn is_nowhere(failure: &Failure) -> bool {
    matches!(failure.error.downcast_ref(), Some(ClusterError::NoConfiguration))
}

impl Home {
    /// Returns its operations, in the order of their ids.
    pub(super) async fn list(&self) -> Result<Vec<Listed>, Failure> {
        Ok(match self {
            Self::Etcd(store) => Journal::list(store.as_ref(), None).await?,
            Self::Cluster(api) => ClusterRecord::list(api).await?,
        })
    }

    async fn find(self, id: &str) -> Result<Option<Found>, Failure> {
        let listed = self.list().await?.into_iter().find(|listed| listed.operation == id);
        Ok(listed.map(|listed| Found { home: self, listed }))
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

//! The options that say where operations are recorded: in an etcd, in a cluster through its API, or in both, as far as each is
//! there to be asked.

use std::time::Duration;

use clap::Args;
use tokio::time::timeout;

use crate::cli::Context;
use crate::cli::api::KubeArgs;
use crate::cli::source::EtcdArgs;
use crate::cluster::ClusterError;
use crate::session::Failure;
use crate::session::homes::{Found, Home};

/// How long an API may take to answer where there is an etcd to be read.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where operations are recorded: one of the two is enough.
#[derive(Debug, Clone, Args)]
pub(super) struct HomeArgs {
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(flatten)]
    kube: KubeArgs,
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

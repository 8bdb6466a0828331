//! Where operations are recorded: in etcd, or in a cluster through its API.

use std::sync::Arc;

use super::base::LEASE;
use super::lease::{lock_cluster, release, release_cluster};
use super::recorded::damage;
use super::{Failure, LiveEtcd, Ui, is_leased, status_hint};
use crate::kube_api::Cluster;
use crate::operation::{
    Ambient as _, ClusterLedger, ClusterLock, ClusterRecord, EtcdRecord, Held, Journal, LeaseHolder, Listed,
    Listing, Lock, Mark, OperationError, ReadLedger, Silence, Status, StepCounts, Summary, SystemAmbient,
    Terms,
};
use crate::words::counted;

/// Where an operation is recorded.
#[derive(Clone)]
pub enum LedgerPlace {
    /// In the etcd that the operation changes.
    Etcd(Arc<LiveEtcd>),
    /// In a cluster, through its API.
    Cluster(Box<Cluster>),
}

/// An operation, and where it is recorded.
pub struct FoundOperation {
    /// Where the operation is recorded.
    pub home: LedgerPlace,
    /// Entry of the operation in the list.
    pub listed: Listed,
    /// Whether the record in a cluster names another cluster, for example because it was copied.
    pub is_foreign: bool,
}

/// The operations of a home.
#[derive(Default)]
pub struct FoundOperations {
    /// The operations, ordered by id.
    pub found: Vec<FoundOperation>,
    /// Records that cannot be read, and records of another cluster, as sentences. They do not prevent other operations.
    pub skipped: Vec<String>,
}

impl FoundOperation {
    /// If the record is in the cluster and is damaged, returns the reason why no process can continue the operation.
    pub async fn damage(&self) -> Result<Option<OperationError>, Failure> {
        match &self.home {
            LedgerPlace::Etcd(_) => Ok(None),
            LedgerPlace::Cluster(api) => damage(api, &self.listed.operation).await,
        }
    }
}

impl LedgerPlace {
    /// Returns the operations that are recorded here.
    pub async fn all(self) -> Result<FoundOperations, Failure> {
        let (listing, identity) = match &self {
            Self::Etcd(store) => (Journal::listing(store.as_ref(), None).await?, None),
            // A user without permission to read the identity of the cluster can still list the operations.
            Self::Cluster(api) => (ClusterRecord::listing(api).await?, api.identity().await.ok()),
        };
        let Listing { operations, unreadable: mut skipped } = listing;
        let mut found = Vec::with_capacity(operations.len());
        for listed in operations {
            let is_foreign = identity.as_ref().is_some_and(|identity| *identity != listed.cluster);
            if is_foreign {
                let (id, cluster) = (&listed.operation, &listed.cluster);
                skipped.push(format!(
                    "operation `{id}` belongs to another cluster (`{cluster}`), so it does not run here; to remove its record: `netsurgeon operation forget {id}`"
                ));
            }
            found.push(FoundOperation { home: self.clone(), listed, is_foreign });
        }
        Ok(FoundOperations { found, skipped })
    }

    /// Fails if one of these operations, which are recorded here, must be resumed or rolled back before another operation of the
    /// cluster can start. Warns about records that are damaged.
    pub(super) async fn refuse_beside(
        &self,
        ui: &Ui,
        cluster: &str,
        listed: Vec<Listed>,
    ) -> Result<(), Failure> {
        let is_open = |one: &Listed| one.cluster == cluster && one.summary.is_under_way();
        for listed in listed.into_iter().filter(is_open) {
            let found = FoundOperation { home: self.clone(), listed, is_foreign: false };
            let Listed { operation: id, summary, .. } = &found.listed;
            let other = format!("operation `{id}` ({}) of this cluster has not ended", summary.kind);
            if let Some(reason) = found.damage().await? {
                ui.warn(&format!("{other}, but it cannot be continued: {reason}"));
                continue;
            }
            let by = found.holder().await?.map_or_else(String::new, |held| format!(": {held}"));
            return Err(Failure::refused(format!("{other}{by}")).hint(status_hint(id)));
        }
        Ok(())
    }

    /// Returns the name of the place where these operations are recorded, for JSON output.
    pub fn ledger(&self) -> &'static str {
        match self {
            Self::Etcd(_) => "etcd",
            Self::Cluster(_) => "cluster",
        }
    }
}

impl FoundOperation {
    /// Returns the current status of the operation, and the number of its steps in each state.
    pub async fn status(&self) -> Result<(Status, StepCounts), Failure> {
        let progress = Journal::progress(self.record().await?.as_ref()).await?;
        let is_leased = self.is_leased().await?;
        Ok((self.listed.summary.status_now(progress.has_undone(), is_leased), progress))
    }

    /// Reads the journal of the operation.
    pub async fn journal(&self) -> Result<(Journal, Summary), Failure> {
        let (journal, summary, _) = Journal::open_in(self.record().await?.as_ref()).await?;
        Ok((journal, summary))
    }

    async fn record(&self) -> Result<Box<dyn ReadLedger + '_>, Failure> {
        let Listed { cluster, operation, .. } = &self.listed;
        Ok(match &self.home {
            LedgerPlace::Etcd(store) => Box::new(EtcdRecord::new(store.as_ref(), cluster, operation)),
            LedgerPlace::Cluster(api) => {
                let found = ClusterRecord::find(api, operation).await?;
                Box::new(found.ok_or_else(|| OperationError::Journal {
                    what: format!("`{operation}`"),
                    reason: "it was deleted".to_string(),
                })?)
            }
        })
    }

    /// Removes the record of the operation. Holds the operation lease meanwhile, and calls `check` first, because another process
    /// could have resumed the operation before this process acquired the lease. Returns what was removed, such as `3 ConfigMaps`.
    pub async fn remove(
        &self,
        ui: &Ui,
        check: impl AsyncFnOnce() -> Result<(), Failure>,
    ) -> Result<String, Failure> {
        let Listed { cluster, operation, .. } = &self.listed;
        let claim = LeaseHolder::of_this_process(operation, "remove its journal", SystemAmbient.now());
        match &self.home {
            LedgerPlace::Etcd(store) => {
                let lock = Lock::acquire(store.clone(), cluster, &claim, LEASE).await?;
                let removed = async {
                    check().await?;
                    Ok(Journal::remove_all(store.as_ref(), cluster, operation, &[lock.guard()]).await?)
                };
                let removed = removed.await;
                Ok(counted(release(lock, removed).await?, "key", "keys"))
            }
            LedgerPlace::Cluster(api) => {
                let terms = Terms { ttl: LEASE, silence: Silence::Loses, take_over: false };
                let lock = lock_cluster(ui, api, &claim, terms).await?;
                let removed = async {
                    check().await?;
                    let count = ClusterLedger::remove(api, operation).await?;
                    // A damaged record is removed although its operation has not ended.
                    Mark::remove(api, operation).await?;
                    Ok(counted(count, "ConfigMap", "ConfigMaps"))
                };
                let removed: Result<String, Failure> = removed.await;
                release_cluster(lock).await;
                removed
            }
        }
    }

    /// Returns whether a process runs the operation.
    pub async fn is_leased(&self) -> Result<bool, Failure> {
        Ok(self.holder().await?.is_some())
    }

    /// Returns the process that runs the operation, if there is one.
    async fn holder(&self) -> Result<Option<Held>, Failure> {
        let held = match &self.home {
            LedgerPlace::Etcd(store) => match Lock::holder(store.as_ref(), &self.listed.cluster).await {
                // A record of a holder that cannot be read names no operation.
                Err(OperationError::Journal { .. }) => None,
                held => held?,
            },
            LedgerPlace::Cluster(api) => ClusterLock::holder(api).await?,
        };
        Ok(held.filter(|held| is_leased(Some(held), &self.listed.operation)))
    }
}

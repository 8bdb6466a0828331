//! A session with a live cluster: its etcd and its API, which must belong to the same cluster. On request, a rollback can use a
//! session with etcd only.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use tokio::time::timeout;

use super::base::{SessionBase, Settings};
use super::encryption_check::same_seal;
use super::exclusion::{Marks, unmark};
use super::failure::Failure;
use super::gates::Gates;
use super::ledger_place::LedgerPlace;
use super::servers::alive;
use super::time::StoredTime;
use super::ui::Ui;
use crate::kube_api::Cluster;
use crate::operation::{self, Ambient, EtcdLedger, Journal, LedgerKind, Lock, Mark};
use crate::store::etcd::EtcdStore;
use crate::store::seal::Sealed;
use crate::survey::{Layout, Survey};
use crate::words::counted;

/// Connects to a Kubernetes API when the connection is needed, and reconnects.
#[async_trait]
pub trait Connect: Send + Sync {
    /// Connects to the API.
    async fn connect(&self) -> Result<Cluster, Failure>;
}

/// A live etcd. Values that the cluster encrypts are decrypted on read and encrypted on write.
pub type LiveEtcd = Sealed<EtcdStore>;

/// A live cluster, with its etcd and its API. [`Session::open`] verifies that both belong to the same cluster.
pub struct Session {
    base: SessionBase,
    /// The etcd of the cluster.
    pub store: Arc<LiveEtcd>,
    /// Layout of the API server's keys in etcd.
    pub layout: Layout,
    api: Api,
}

impl Deref for Session {
    type Target = SessionBase;

    fn deref(&self) -> &SessionBase {
        &self.base
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut SessionBase {
        &mut self.base
    }
}

/// The Kubernetes API of a session.
pub enum Api {
    /// The API answers.
    Answers(Box<Cluster>),
    /// The session sends no requests to the API.
    Silent {
        /// Each wait takes this fixed time.
        pause: Duration,
        /// The time that etcd shows, for dates.
        time: StoredTime,
        /// Why there is no API; `None` if the operator chose a session without API.
        why: Option<Failure>,
    },
}

impl Session {
    /// Starts a session with etcd and API. Fails if they belong to different clusters, or if the given encryption configuration
    /// differs from the configuration of the API server.
    pub async fn open(
        ui: Ui,
        (store, layout): (Arc<LiveEtcd>, Layout),
        cluster: Cluster,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let (stored, served) = (Survey::identity(store.as_ref(), &layout).await?, cluster.identity().await?);
        if stored.as_ref() != Some(&served) {
            let stored = stored.map_or_else(|| "none".to_string(), |uid| format!("`{uid}`"));
            let text = format!(
                "etcd and API belong to different clusters: namespace `kube-system` has uid {stored} in etcd, \
                 `{served}` at {}",
                cluster.server()
            );
            return Err(Failure::refused(text)
                .hint("check `--etcd-endpoints`, `--etcd-prefix`, `--kubeconfig` and `--context`"));
        }
        same_seal(&store, &cluster, &layout).await?;
        let api = Api::Answers(Box::new(cluster));
        Self::with(ui, (store, layout), api, served, settings).await
    }

    /// Starts a session with etcd only. The session sends no requests to an API server, so each wait takes the fixed time
    /// `pause`. Fails if `answers` contains the address of an API server that answers.
    pub async fn open_without_api(
        ui: Ui,
        (store, layout): (Arc<LiveEtcd>, Layout),
        answers: Option<String>,
        pause: Duration,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let id = identity(&store, &layout).await?;
        let alive = alive(&*store, &layout).await?;
        if let Some(server) = answers {
            let text = format!("an API server answers: {server}");
            return Err(
                Failure::refused(text).hint("omit `--without-api`, so that the rollback uses the API")
            );
        }
        if !alive.is_empty() {
            let list = alive.iter().map(|address| format!("`{address}`")).collect::<Vec<_>>().join(", ");
            ui.warn(&format!(
                "{} renewed a lease in etcd in the last 15 s, and can still serve nodes: {list}. Each wait is only a pause of {} s: nodes must apply each change within this time",
                counted(alive.len(), "API server has", "API servers have"),
                pause.as_secs()
            ));
        }
        let time = StoredTime::read(&*store, &layout).await;
        if !time.is_of_the_cluster() {
            ui.warn(
                "etcd has no Lease of the control plane, so the time of the cluster is not known; dates use the clock of this host",
            );
        }
        Self::with(ui, (store, layout), Api::Silent { pause, time, why: None }, id, settings).await
    }

    /// Starts a session for an operation that needs only etcd. If the API of this cluster does not answer within `patience`, the
    /// session has no API, and [`Self::lock`] warns about it.
    pub async fn open_beside_api(
        ui: Ui,
        (store, layout): (Arc<LiveEtcd>, Layout),
        (kube, patience): (&dyn Connect, Duration),
        settings: Settings,
    ) -> Result<Self, Failure> {
        let id = identity(&store, &layout).await?;
        let identified = async {
            let api = kube.connect().await?;
            let served = api.identity().await?;
            Ok::<_, Failure>((api, served))
        };
        let connected = match timeout(patience, identified).await {
            Ok(Ok((api, served))) if served == id => Ok(api),
            Ok(Ok((api, _))) => {
                Err(Failure::refused(format!("the API at {} belongs to another cluster", api.server())))
            }
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::refused("no API server answers")),
        };
        let api = match connected {
            Ok(api) => Api::Answers(Box::new(api)),
            Err(failure) => {
                let time = StoredTime::read(&*store, &layout).await;
                Api::Silent { pause: Duration::ZERO, time, why: Some(failure) }
            }
        };
        Self::with(ui, (store, layout), api, id, settings).await
    }

    async fn with(
        ui: Ui,
        (store, layout): (Arc<LiveEtcd>, Layout),
        api: Api,
        id: String,
        settings: Settings,
    ) -> Result<Self, Failure> {
        Ok(Self { base: SessionBase::open(ui, id, settings).await?, store, layout, api })
    }

    /// Adds gates between batches.
    #[must_use]
    pub fn with_gates(self, gates: Gates) -> Self {
        Self { base: self.base.with_gates(gates), ..self }
    }

    /// Returns the Kubernetes API, or how long each wait takes without the API.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Returns the Kubernetes API; `None` in a session without API.
    pub fn cluster(&self) -> Option<&Cluster> {
        match &self.api {
            Api::Answers(cluster) => Some(cluster),
            Api::Silent { .. } => None,
        }
    }

    /// Returns the clock of the cluster; in a session without API, the time that etcd shows.
    pub fn ambient(&self) -> &dyn Ambient {
        match &self.api {
            Api::Answers(cluster) => cluster.clock(),
            Api::Silent { time, .. } => time,
        }
    }

    /// Returns the current time of the cluster.
    pub fn now(&self) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(self.ambient().now()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    /// Fails if etcd records an operation of this cluster that must be resumed or rolled back first.
    pub async fn refuse_beside_another(&self) -> Result<(), Failure> {
        let listed = Journal::list(self.store.as_ref(), Some(&self.id)).await?;
        LedgerPlace::Etcd(self.store.clone()).refuse_beside(&self.ui, &self.id, listed).await
    }

    /// Fails if an operation of this kind cannot start beside an operation that has not ended and that another ledger records.
    pub async fn refuse_beside_marked(&self, kind: &str) -> Result<(), Failure> {
        match self.marks() {
            Some(marks) => marks.refuse_beside(&self.ui, kind).await,
            None => Ok(()),
        }
    }

    /// Marks an operation of this kind that starts or continues, so that clients without access to etcd see it.
    pub async fn mark(&self, operation: &str, kind: &str, is_back: bool) -> Result<(), Failure> {
        let Some(marks) = self.marks() else { return Ok(()) };
        let (operation, kind) = (operation.to_string(), kind.to_string());
        marks.claim(&self.ui, &Mark { operation, kind, ledger: LedgerKind::Etcd }, is_back).await
    }

    /// Removes the mark of an operation that has ended.
    pub async fn unmark(&self, operation: &str) {
        if let Some(api) = self.cluster() {
            unmark(&self.ui, api, operation).await;
        }
    }

    fn marks(&self) -> Option<Marks<'_>> {
        let api = self.cluster()?;
        Some(Marks { api, etcd: Some((self.store.as_ref(), &self.id)) })
    }

    /// Returns the names of the Nodes; empty in a session without API.
    pub async fn nodes(&self) -> Result<Vec<String>, Failure> {
        let Some(cluster) = self.cluster() else { return Ok(Vec::new()) };
        Ok(cluster.nodes().await?.into_iter().map(|node| node.name).collect())
    }

    /// Returns the ledger of an operation, for the holder of the operation lease.
    pub fn ledger(&self, journal: &Journal, lock: &Lock) -> EtcdLedger<'_> {
        journal.in_store(self.store.as_ref(), &[lock.guard()])
    }

    /// Returns the holder of the cluster's operation lease; `None` if the lease is free.
    pub async fn holder(&self) -> Result<Option<operation::Held>, Failure> {
        Ok(Lock::holder(self.store.as_ref(), &self.id).await?)
    }
}

/// Returns the uid of the namespace `kube-system`, which identifies the cluster.
async fn identity(store: &LiveEtcd, layout: &Layout) -> Result<String, Failure> {
    Survey::identity(store, layout).await?.ok_or_else(|| {
        Failure::refused("this etcd has no namespace `kube-system`").hint("check `--etcd-prefix`")
    })
}

/// Returns whether the operation lease of a cluster is held for this operation.
pub fn is_leased(held: Option<&operation::Held>, operation: &str) -> bool {
    held.is_some_and(|held| held.claim.operation == operation)
}

//! A session with a live cluster: its etcd and its API, which must be the same cluster's, or, on the way back and if the
//! operator says so, its etcd alone.

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use super::counted;
use super::failure::Failure;
use super::gates::Gates;
use super::lease::LeaseTerms;
use super::metrics::{Figures, Metrics};
use super::said::Said;
use super::sealing::same_seal;
use super::voice::Voice;
use crate::cluster::Cluster;
use crate::operation::{self, EtcdLedger, Journal, Lock};
use crate::store::etcd::EtcdStore;
use crate::store::seal::Sealed;
use crate::store::{KeyRange, ReadStore as _, Record};
use crate::survey::{Layout, Survey};

/// How long the operation lease outlives a process that was killed, where nothing else is said.
const LEASE: Duration = Duration::from_mins(1);

/// How an API is connected to, where that is to be done later, or again.
#[async_trait]
pub trait Connect: Send + Sync {
    /// Connects.
    async fn connect(&self) -> Result<Cluster, Failure>;
}

/// A live etcd, its values opened and sealed where the cluster encrypts them.
pub type LiveEtcd = Sealed<EtcdStore>;

/// How operations of a session are run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How the operation lease is taken.
    pub lease: LeaseTerms,
    /// Subjects in flight at the same time.
    pub parallel: usize,
    /// Writes a second, at most.
    pub rate: Option<NonZeroU32>,
    /// Subjects that may be skipped; with one more it stops.
    pub max_failures: usize,
    /// Whether nothing is to be asked.
    pub agreed: bool,
    /// The manual steps that are said to be complete, by name.
    pub confirm: Vec<String>,
    /// Where `GET /metrics` is answered: `127.0.0.1:9464`.
    pub metrics: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: LeaseTerms { take_over: false, ttl: LEASE },
            parallel: 8,
            rate: None,
            max_failures: 0,
            agreed: false,
            confirm: Vec::new(),
            metrics: None,
        }
    }
}

/// A live cluster: its etcd and its API, which were found to be the same cluster's.
pub struct Session {
    /// What the session reports, and asks.
    pub voice: Voice,
    /// The etcd.
    pub store: Arc<LiveEtcd>,
    /// Where the API server keeps what in it.
    pub layout: Layout,
    /// The uid of the namespace `kube-system`.
    pub id: String,
    /// How operations are run.
    pub settings: Settings,
    api: Api,
    pub(super) metrics: Option<Metrics>,
    /// What is asked between batches.
    pub(super) gates: Gates,
}

/// The Kubernetes API.
pub enum Api {
    /// It answers.
    Answers(Box<Cluster>),
    /// It does not, and nobody asks: each wait takes as long as this.
    Silent(Duration),
}

impl Session {
    /// Begins a session with both. Refuses if they are not the same cluster's, or encrypt in another way.
    pub async fn open(
        voice: Voice,
        (store, layout): (Arc<LiveEtcd>, Layout),
        cluster: Cluster,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let (stored, served) = (Survey::identity(store.as_ref(), &layout).await?, cluster.identity().await?);
        if stored.as_ref() != Some(&served) {
            let stored = stored.map_or_else(|| "none".to_string(), |uid| format!("`{uid}`"));
            let text = format!(
                "etcd and API are not the same cluster's: namespace `kube-system` has uid {stored} in etcd, \
                 `{served}` at {}",
                cluster.server()
            );
            return Err(Failure::refused(text)
                .hint("check `--etcd-endpoints`, `--etcd-prefix`, `--kubeconfig` and `--context`"));
        }
        same_seal(&store, &cluster, &layout).await?;
        let api = Api::Answers(Box::new(cluster));
        Self::with(voice, (store, layout), api, served, settings).await
    }

    /// Begins a session with etcd alone; `pause` is how long each wait takes in place of what an API server would be asked.
    /// Refuses where an API server answers: `answers` is its address.
    pub async fn open_without_api(
        voice: Voice,
        (store, layout): (Arc<LiveEtcd>, Layout),
        answers: Option<String>,
        pause: Duration,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let id = Survey::identity(store.as_ref(), &layout).await?.ok_or_else(|| {
            Failure::refused("this etcd has no namespace `kube-system`").hint("check `--etcd-prefix`")
        })?;
        let alive = alive(&store, &layout).await?;
        if let Some(server) = answers {
            let text = format!("the API server at {server} answers");
            return Err(Failure::refused(text).hint("roll back without `--without-api`"));
        }
        if !alive.is_empty() {
            let list = alive.iter().map(|address| format!("`{address}`")).collect::<Vec<_>>().join(", ");
            voice.warn(&format!(
                "{} a lease of 15 s in etcd that has not ended, and may be serving nodes: {list}. Nothing but {} s \
                 per wait gives them time to follow",
                counted(alive.len(), "API server has", "API servers have"),
                pause.as_secs()
            ));
        }
        Self::with(voice, (store, layout), Api::Silent(pause), id, settings).await
    }

    async fn with(
        voice: Voice,
        (store, layout): (Arc<LiveEtcd>, Layout),
        api: Api,
        id: String,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let metrics = Metrics::listen_if(settings.metrics.as_deref()).await?;
        Ok(Self { voice, store, layout, id, settings, api, metrics, gates: Gates::default() })
    }

    /// The same with gates between batches.
    #[must_use]
    pub fn with_gates(self, gates: Gates) -> Self {
        Self { gates, ..self }
    }

    /// The API, or what takes its place.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The API; `None` while no API server is asked.
    pub fn cluster(&self) -> Option<&Cluster> {
        match &self.api {
            Api::Answers(cluster) => Some(cluster),
            Api::Silent(_) => None,
        }
    }

    /// Returns the names of the Nodes; none while no API server is asked.
    pub async fn nodes(&self) -> Result<Vec<String>, Failure> {
        let Some(cluster) = self.cluster() else { return Ok(Vec::new()) };
        Ok(cluster.nodes().await?.into_iter().map(|node| node.name).collect())
    }

    /// Returns the ledger of an operation, for whoever has the lock.
    pub fn ledger(&self, journal: &Journal, lock: &Lock) -> EtcdLedger<'_> {
        journal.in_store(self.store.as_ref(), &[lock.guard()])
    }

    /// Returns who holds the cluster's lock, `None` if nobody does.
    pub async fn holder(&self) -> Result<Option<operation::Held>, Failure> {
        Ok(Lock::holder(self.store.as_ref(), &self.id).await?)
    }

    /// Asks, unless all is agreed to.
    pub fn ask(&self, question: &str) -> Result<(), Failure> {
        if self.settings.agreed { Ok(()) } else { self.voice.ask(question) }
    }

    /// Shows these figures as metrics from here on, where they are listened for.
    pub fn show(&self, figures: impl Figures + 'static) {
        if let Some(metrics) = &self.metrics {
            show(metrics, &self.voice, figures);
        }
    }
}

/// Shows figures as metrics from here on, and reports where.
pub fn show(metrics: &Metrics, voice: &Voice, figures: impl Figures + 'static) {
    metrics.show(Arc::new(figures));
    let url = metrics.url();
    voice.say(Said::Note, &format!("metrics are at {url}"), &[("url", Value::from(url.as_str()))]);
}

/// Whether the operation lease of a cluster is held for an operation.
pub fn is_leased(held: Option<&operation::Held>, operation: &str) -> bool {
    held.is_some_and(|held| held.claim.operation == operation)
}

/// Returns the addresses of the API servers that have a lease: each renews its own, which ends 15 s after its death
/// (`DefaultEndpointReconcilerTTL`, `pkg/controlplane/instance.go`, v1.36.3).
async fn alive(store: &LiveEtcd, layout: &Layout) -> Result<Vec<String>, Failure> {
    let prefix = layout.api_server_leases();
    let mut found = Vec::new();
    let mut visit = |record: Record<'_>| {
        found.push(String::from_utf8_lossy(record.key.get(prefix.len()..).unwrap_or_default()).into_owned());
        ControlFlow::Continue(())
    };
    store.scan(&[KeyRange::prefix(prefix.clone())], None, &mut visit).await?;
    Ok(found)
}

//! Reads the data of a cluster from etcd, the API, and this host.

use std::ops::ControlFlow;
use std::sync::Arc;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::etcd_host::without_etcd;
use super::plugin_reader::{list_if_served, ranges_told};
use super::pod::TrimmedPod;
use super::read_error::{Read, ReadError, unread};
use super::retention::Retained;
use super::server_state::{ServerState, inspect};
use super::service::TrimmedService;
use crate::host::routes::routes;
use crate::ip::ServiceCidr;
use crate::kube_api::{ApiServer, Cluster, ClusterError, Collection, ReadOnly};
use crate::session::{Failure, LiveEtcd};
use crate::store::etcd::Member;
use crate::store::{KeyRange, ReadStore as _, Record};
use crate::survey::{Layout, Survey};

/// Maximum number of concurrent requests to nodes, and of concurrent list requests.
pub const AT_ONCE: usize = 64;

/// The connections to etcd and the API, or why a connection failed. `None`: no data of this source is needed.
pub struct Connections {
    /// Connection to etcd, or why it failed.
    pub store: Option<Result<Arc<LiveEtcd>, Failure>>,
    /// Connection to the API, or why it failed.
    pub cluster: Option<Result<Cluster, Failure>>,
    /// Layout of the API server's keys in etcd.
    pub layout: Layout,
}

/// Permissions: verbs, API group, and resource.
pub type Rights = [(&'static [&'static str], (&'static str, &'static str))];

/// A permission, and whether the user has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// Name of the permission, for example `create services`.
    pub name: String,
    /// Whether the user has the permission, according to the API server.
    pub is_granted: bool,
}

/// The data of a cluster. Each part is read once, on first use.
pub struct ClusterReader {
    store: Read<Arc<LiveEtcd>>,
    cluster: Read<Cluster>,
    /// Layout of the API server's keys in etcd.
    pub layout: Layout,
    members: OnceCell<Read<Vec<Member>>>,
    servers: OnceCell<Read<Vec<ApiServer>>>,
    states: OnceCell<Read<Vec<ServerState>>>,
    pods: OnceCell<Read<Vec<TrimmedPod>>>,
    services: OnceCell<Read<Vec<TrimmedService>>>,
    nodes: OnceCell<Read<Vec<Node>>>,
}

fn connected<T>(what: &str, connection: Option<Result<T, Failure>>) -> Read<T> {
    let connection = connection.ok_or_else(|| ReadError::unknown(format!("{what} is not read"), ""))?;
    connection.map_err(|failure| {
        ReadError::fault(format!("{what} cannot be used: {:#}", failure.error), failure.hints.join("; "))
    })
}

impl ClusterReader {
    /// Creates the reader with connections to etcd and the API. Each of them can be missing.
    pub async fn begin(reached: Connections) -> Self {
        let Connections { store, cluster, layout } = reached;
        let mut reading = Self::with(store, cluster, "the API", layout);
        reading.of_one_cluster().await;
        reading.explain().await;
        reading
    }

    /// Creates the reader with a connection to the API only. `what`: name of the API, for example `the API of the mirror`.
    pub fn of_api(cluster: Option<Result<Cluster, Failure>>, what: &str) -> Self {
        Self::with(None, cluster, what, Layout::default())
    }

    fn with(
        store: Option<Result<Arc<LiveEtcd>, Failure>>,
        cluster: Option<Result<Cluster, Failure>>,
        what: &str,
        layout: Layout,
    ) -> Self {
        Self {
            store: connected("etcd", store),
            cluster: connected(what, cluster),
            layout,
            members: OnceCell::new(),
            servers: OnceCell::new(),
            states: OnceCell::new(),
            pods: OnceCell::new(),
            services: OnceCell::new(),
            nodes: OnceCell::new(),
        }
    }

    /// Replaces the API connection with a failure if the API and etcd belong to different clusters.
    async fn of_one_cluster(&mut self) {
        let (Ok(store), Ok(cluster)) = (&self.store, &self.cluster) else { return };
        let stored = Survey::identity(store.as_ref(), &self.layout).await;
        let (Ok(Some(stored)), Ok(served)) = (stored, cluster.identity().await) else { return };
        if stored != served {
            let seen = "the kubeconfig and etcd belong to different clusters: the UIDs of their `kube-system` namespaces differ";
            self.cluster = Err(ReadError::fault(
                seen,
                "give the kubeconfig of this cluster: `--kubeconfig`, `--context`",
            ));
        }
    }

    /// Adds the reason why etcd is not reachable, if the Nodes show it.
    async fn explain(&mut self) {
        let (Err(error), Ok(cluster)) = (&self.store, &self.cluster) else { return };
        let nodes: Vec<Node> = cluster.objects(None, None).await.unwrap_or_default();
        if let Some((reason, remedy)) = without_etcd(&nodes) {
            self.store = Err(ReadError::fault(format!("{reason}; {}", error.observed), remedy));
        }
    }

    /// Returns the connection to etcd.
    pub fn store(&self) -> Read<&LiveEtcd> {
        self.store.as_deref().map_err(Clone::clone)
    }

    /// Returns the connection to the API.
    pub fn cluster(&self) -> Read<&Cluster> {
        self.cluster.as_ref().map_err(Clone::clone)
    }

    /// Returns a client that only reads.
    pub fn read_only(&self) -> Read<ReadOnly> {
        Ok(ReadOnly::new(self.cluster()?.clone()))
    }

    /// Returns the members of etcd.
    pub async fn members(&self) -> Read<&Vec<Member>> {
        let members =
            self.members.get_or_init(async || self.store()?.bare().members().await.map_err(unread)).await;
        members.as_ref().map_err(Clone::clone)
    }

    /// Returns the API servers.
    pub async fn servers(&self) -> Read<&Vec<ApiServer>> {
        let judged = |error: ClusterError| match error {
            error @ ClusterError::Forbidden { .. } => unread(error),
            other => ReadError::fault(other.to_string(), other.hint().unwrap_or_default()),
        };
        let listed = async || self.cluster()?.api_servers().await.map_err(judged);
        self.servers.get_or_init(listed).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the state of each API server.
    pub async fn server_states(&self) -> Read<&Vec<ServerState>> {
        let asked = async || {
            let cluster = self.cluster()?;
            Ok(join_all(self.servers().await?.iter().map(|server| inspect(cluster, *server))).await)
        };
        self.states.get_or_init(asked).await.as_ref().map_err(Clone::clone)
    }

    /// Asks the API server whether the user has each permission, for example `get services`, in one namespace or in all
    /// namespaces.
    pub async fn permissions(&self, rights: &Rights, namespace: Option<&str>) -> Read<Vec<Permission>> {
        let cluster = self.cluster()?;
        let each = rights.iter().flat_map(|(verbs, kind)| verbs.iter().map(move |verb| (*verb, *kind)));
        let answers = each.map(async |(verb, kind)| {
            let is_granted = cluster.may(verb, kind, namespace).await.map_err(unread)?;
            Ok(Permission { name: format!("{verb} {}", kind.1.replace('@', " ")), is_granted })
        });
        join_all(answers).await.into_iter().collect()
    }

    /// Reads the objects of a type in all namespaces. [`Retained`] describes which fields are omitted.
    pub async fn objects<K: Retained>(&self) -> Read<Vec<K>> {
        objects(self.cluster()?, None).await.map_err(unread)
    }

    /// Returns the Nodes.
    pub async fn nodes(&self) -> Read<&Vec<Node>> {
        let read = async || self.objects().await;
        self.nodes.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the Pods of all namespaces.
    pub async fn pods(&self) -> Read<&Vec<TrimmedPod>> {
        let read = async || self.objects().await;
        self.pods.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the Services of all namespaces.
    pub async fn services(&self) -> Read<&Vec<TrimmedService>> {
        let read = async || self.objects().await;
        self.services.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Reads the stored Secrets from etcd, without decrypting them. No API permission is needed.
    pub async fn each_secret(&self, mut take: impl FnMut(Record<'_>) + Send) -> Read<()> {
        let range = KeyRange::prefix(self.layout.secrets());
        let mut visitor = |record: Record<'_>| {
            take(record);
            ControlFlow::Continue(())
        };
        self.store()?.bare().scan(&[range], None, &mut visitor).await.map_err(unread)?;
        Ok(())
    }

    /// Lists the objects of an optional kind; `None` if this cluster does not serve the kind.
    pub async fn list_if_served(&self, api_version: &str, kind: &str) -> Read<Option<Vec<Value>>> {
        list_if_served(&self.read_only()?, api_version, kind).await
    }

    /// Reads the ranges from a flag in the Pods of a control-plane component. Each range has a text that names the flag and the
    /// Pod.
    pub async fn ranges_told(&self, component: &str, flag: &'static str) -> Read<Vec<(String, ServiceCidr)>> {
        ranges_told(&self.read_only()?, component, flag).await
    }
}

/// Reads the objects of a type in one namespace, or in all namespaces. [`Retained`] describes which fields are omitted.
pub async fn objects<K: Retained>(
    cluster: &Cluster,
    namespace: Option<&str>,
) -> Result<Vec<K>, ClusterError> {
    cluster.objects_as(namespace, &|object| Some(K::of(object))).await
}

/// Reads the objects of a kind that has no Rust type. `managedFields` is omitted.
pub async fn listed(cluster: &Cluster, collection: &Collection<'_>) -> Result<Vec<Value>, ClusterError> {
    cluster.list_as(collection, &listed_by).await
}

/// Drops `managedFields` of an object in a list.
#[expect(clippy::unnecessary_wraps, reason = "a list can also drop objects")]
pub(super) fn listed_by(mut object: Value) -> Option<Value> {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    Some(object)
}

/// A route of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination of the route.
    pub range: ServiceCidr,
    /// Network device of the route.
    pub device: String,
}

/// Returns the routes of this host.
pub fn own_routes() -> Read<Vec<Route>> {
    let route = |route: crate::host::routes::Route| {
        let range = format!("{}/{}", route.network, route.prefix_len).parse().ok()?;
        Some(Route { range, device: route.device })
    };
    let found = routes().map_err(|error| unread(format!("cannot read the routes of this host: {error}")))?;
    Ok(found.into_iter().filter_map(route).collect())
}

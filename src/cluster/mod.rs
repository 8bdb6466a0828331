//! The Kubernetes API, as far as this program needs it.
//!
//! ```text
//! Cluster ─ whichever API server the kubeconfig leads to: create, get, list, merge, delete; identity; nodes
//!   ├ ApiServers, each dialled at its own address: readiness, caches, gates   (server)
//!   ├ barrier: every kube-proxy has applied what was written before           (barrier)
//!   └ trial: which nodes route external IPs                                    (external_ips)
//! Probe ─ something beside the cluster that speaks HTTP                        (probe)
//! ```
//!
//! Objects are `serde_json::Value`s: what the API server stores is edited elsewhere, in its own bytes; here it
//! is looked at. Every request ends in time and says what failed. Only this room names `kube`.

mod access;
mod allocator;
mod answer;
mod barrier;
mod chain;
mod connection;
mod dial;
mod discovery;
mod endpoints;
mod error;
mod event;
mod external_ips;
mod health;
mod lease;
mod node;
mod options;
mod probe;
mod proxy;
mod resource;
mod served;
mod server;
mod shell;
mod trial;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub use access::User;
pub use barrier::{Barrier, BarrierError, Crossed, Passage, Reach, SilentNode, sentinel};
pub use dial::dial;
pub use discovery::{ServedKind, ServedKinds};
pub use endpoints::SliceChange;
pub use error::ClusterError;
pub use event::ServiceEvent;
pub use external_ips::{ExternalIpTrial, ExternalIpsTried};
pub use lease::{Lease, LeaseHolder};
pub use node::Node;
pub use options::ClusterOptions;
pub use probe::{Probe, Response, escaped};
pub use proxy::ProxyFault;
pub use resource::{Collection, ObjectRef};
pub use served::served;
pub use server::{ApiServer, ApiServerClient, ApiServerLease, Version};

use connection::{Call, Connection, Verb};

/// The label of everything that netsurgeon makes in a cluster, and its value.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "netsurgeon");

/// Objects asked for at once by a list: as many as kubectl (`--chunk-size`).
const PAGE_SIZE: usize = 500;

/// How often a list begins anew because the API server has forgotten the revision of its pages: it remembers
/// them for five minutes (etcd's compaction interval), so once is rare.
const MOST_LISTS: usize = 4;

/// A cluster's API, through whichever API server the kubeconfig leads to. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    connection: Arc<Connection>,
    /// Names of sentinels that barriers of this process wait for.
    sentinels: Arc<Mutex<BTreeSet<String>>>,
}

/// What is kept of an object of a list, if anything is.
pub type Keep<'k, T> = &'k (dyn Fn(Value) -> Option<T> + Sync);

/// A page of a list, whose objects are read one by one.
#[derive(Deserialize)]
struct Page<'a> {
    /// `null` where there are none.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    metadata: PageMetadata,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    /// What the next page is asked for with; empty on the last one.
    #[serde(rename = "continue", default)]
    next: String,
}

impl Cluster {
    /// Finds the API and makes sure that it answers and knows us.
    pub async fn connect(options: &ClusterOptions) -> Result<Self, ClusterError> {
        let connection = Connection::new(options.config().await?, options.timeout)?;
        let cluster = Self { connection: Arc::new(connection), sentinels: Arc::default() };
        cluster.identity().await?;
        Ok(cluster)
    }

    /// Returns the URL, for headings and errors.
    pub fn server(&self) -> &str {
        self.connection.server()
    }

    /// Whether the kubeconfig says that certificates are not verified (`insecure-skip-tls-verify`).
    pub fn is_unverified(&self) -> bool {
        self.connection.config().accept_invalid_certs
    }

    /// Returns the authorities that the kubeconfig trusts, as DER; none if it trusts those of this machine.
    pub fn authorities(&self) -> Result<Vec<Vec<u8>>, ClusterError> {
        let config = self.connection.config();
        let Some(file) = &config.root_cert_file else {
            return Ok(config.root_cert.clone().unwrap_or_default());
        };
        let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let read = read.map_err(|error| ClusterError::Configuration {
            what: format!("the authorities in `{}`", file.display()),
            reason: error.to_string(),
        })?;
        Ok(read.into_iter().map(|one| one.to_vec()).collect())
    }

    /// Returns the cluster's identity: the uid of the namespace `kube-system`, which lives as long as the
    /// cluster does.
    pub async fn identity(&self) -> Result<String, ClusterError> {
        let object = ObjectRef::new("v1", "Namespace", None, "kube-system");
        let namespace = self.get(&object).await?.ok_or_else(|| ClusterError::NotFound {
            subject: object.to_string(),
            reason: "every cluster has it".to_string(),
        })?;
        let uid = namespace.pointer("/metadata/uid").and_then(Value::as_str);
        uid.map(str::to_string).ok_or_else(|| ClusterError::Answer {
            server: self.server().to_string(),
            subject: object.to_string(),
            reason: "it has no `metadata.uid`".to_string(),
        })
    }

    /// Makes an object and returns it as the API server made it.
    pub async fn create(&self, manifest: &Value) -> Result<Value, ClusterError> {
        let object = ObjectRef::of(manifest)?;
        object.path()?;
        let call = Call {
            verb: Verb::Create,
            path: object.collection.path()?,
            body: Some(manifest),
            subject: object.to_string(),
        };
        self.connection.json(&call).await
    }

    /// Reads an object as it is stored now; `None` if there is none of that name.
    pub async fn get(&self, object: &ObjectRef<'_>) -> Result<Option<Value>, ClusterError> {
        get(&self.connection, object, "").await
    }

    /// Reads all objects of a kind, page by page, at one revision; `labels` is a selector, as in
    /// `app=web,tier!=db`.
    pub async fn list(
        &self,
        collection: &Collection<'_>,
        labels: Option<&str>,
    ) -> Result<Vec<Value>, ClusterError> {
        self.list_each(Verb::List, collection, labels, &Some).await
    }

    /// Reads all objects of a kind as [`list`](Self::list) does, and keeps what `keep` makes of each: what an object takes in memory is
    /// many times what whoever made it has sent, and there may be many of them.
    pub async fn list_as<T>(
        &self,
        collection: &Collection<'_>,
        keep: Keep<'_, T>,
    ) -> Result<Vec<T>, ClusterError> {
        self.list_each(Verb::List, collection, None, keep).await
    }

    async fn list_each<T>(
        &self,
        verb: Verb,
        collection: &Collection<'_>,
        labels: Option<&str>,
        keep: Keep<'_, T>,
    ) -> Result<Vec<T>, ClusterError> {
        let mut attempts = 1;
        loop {
            match self.list_once(verb, collection, labels, keep).await {
                // 410: the revision of the pages read so far is gone.
                Err(ClusterError::Server { code: 410, .. }) if attempts < MOST_LISTS => {
                    attempts = attempts.saturating_add(1);
                }
                outcome => return outcome,
            }
        }
    }

    async fn list_once<T>(
        &self,
        verb: Verb,
        collection: &Collection<'_>,
        labels: Option<&str>,
        keep: Keep<'_, T>,
    ) -> Result<Vec<T>, ClusterError> {
        let path = collection.path()?;
        let selector = labels.map(|labels| format!("&labelSelector={}", escaped(labels))).unwrap_or_default();
        let mut items = Vec::new();
        let (mut from, mut objects) = (String::new(), PAGE_SIZE);
        loop {
            let path = format!("{path}?limit={objects}{selector}{from}");
            let call = Call { verb, path, body: None, subject: collection.to_string() };
            let answer = match self.connection.request(&call).await {
                Err(ClusterError::TooLarge { .. }) if objects > 1 => {
                    objects = objects.saturating_div(4).max(1);
                    continue;
                }
                outcome => outcome?,
            };
            let page: Page<'_> = self.connection.read(&call, &answer.body)?;
            objects = objects.saturating_mul(2).min(PAGE_SIZE);
            for item in page.items.unwrap_or_default() {
                items.extend(keep(self.connection.read(&call, item.get().as_bytes())?));
            }
            if page.metadata.next.is_empty() {
                return Ok(items);
            }
            from = format!("&continue={}", escaped(&page.metadata.next));
        }
    }

    /// Replaces an object by what was made of it; a [`ClusterError::Conflict`] if it has changed since it was read.
    pub async fn replace(&self, manifest: &Value) -> Result<Value, ClusterError> {
        let object = ObjectRef::of(manifest)?;
        let (path, subject) = (object.path()?, object.to_string());
        self.connection.json(&Call { verb: Verb::Replace, path, body: Some(manifest), subject }).await
    }

    /// Changes an object by a JSON merge patch (RFC 7386) and returns it as it is then.
    pub async fn merge(&self, object: &ObjectRef<'_>, change: &Value) -> Result<Value, ClusterError> {
        let call =
            Call { verb: Verb::Merge, path: object.path()?, body: Some(change), subject: object.to_string() };
        self.connection.json(&call).await
    }

    /// Deletes an object, what depends on it in the background. None of that name is fine. With `uid` only the
    /// object that has it is deleted, and another of the same name is a [`ClusterError::Conflict`].
    ///
    /// An object with finalizers is there until they are done.
    pub async fn delete(&self, object: &ObjectRef<'_>, uid: Option<&str>) -> Result<(), ClusterError> {
        self.delete_if(object, uid.map(|uid| json!({"uid": uid}))).await
    }

    /// Deletes an object, given as it was read, as [`Self::delete`] does; a [`ClusterError::Conflict`] if it has changed since.
    pub async fn delete_unchanged(&self, object: &ObjectRef<'_>, read: &Value) -> Result<(), ClusterError> {
        let of = |name: &str| read.pointer(&format!("/metadata/{name}")).cloned().unwrap_or_default();
        let conditions = json!({"uid": of("uid"), "resourceVersion": of("resourceVersion")});
        self.delete_if(object, Some(conditions)).await
    }

    async fn delete_if(&self, object: &ObjectRef<'_>, conditions: Option<Value>) -> Result<(), ClusterError> {
        let mut options =
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        if let (Some(conditions), Some(members)) = (conditions, options.as_object_mut()) {
            members.insert("preconditions".to_string(), conditions);
        }
        let call = Call {
            verb: Verb::Delete,
            path: object.path()?,
            body: Some(&options),
            subject: object.to_string(),
        };
        match self.connection.request(&call).await {
            Ok(_) | Err(ClusterError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Reads an object; `query` begins with a question mark, or is empty.
async fn get(
    connection: &Connection,
    object: &ObjectRef<'_>,
    query: &str,
) -> Result<Option<Value>, ClusterError> {
    let path = format!("{}{query}", object.path()?);
    let call = Call { verb: Verb::Get, path, body: None, subject: object.to_string() };
    match connection.json(&call).await {
        Ok(found) => Ok(Some(found)),
        Err(ClusterError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

//! Checks before the objects of some namespaces are copied from one cluster (the source) to another cluster (the mirror).

mod capacity;
mod classes;
mod fixed_addresses;
mod issuers;
mod kinds;
mod mirror_nodes;
mod mirror_rights;
mod mirror_webhooks;
mod namespaces;
mod placement;
mod pull_secrets;
mod source_rights;
mod stateless;
mod two_clusters;

use futures_util::future::join_all;
use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::OnceCell;

use super::facts::copied::{COPIED, Copied, SECRETS, is_made_anew};
use super::facts::templates::{Template, templates};
use super::reading::{Reading, objects, unread};
use super::{Check, Read, shared};
use crate::kube_api::accessors::{name, namespace};
use crate::kube_api::{Cluster, ClusterError, Collection, Typed};
use crate::session::Failure;

/// The checks, in display order. Shared checks read the source.
pub const CHECKS: &[Check<Mirror>] = &[
    shared::api_servers::check("the copy reads from these API servers while they serve clients"),
    two_clusters::CHECK,
    namespaces::CHECK,
    mirror_nodes::CHECK,
    kinds::CHECK,
    stateless::CHECK,
    classes::CHECK,
    issuers::CHECK,
    pull_secrets::CHECK,
    placement::CHECK,
    capacity::CHECK,
    fixed_addresses::CHECK,
    shared::gitops::check("a GitOps controller changes the source while it is copied"),
    mirror_webhooks::CHECK,
    source_rights::CHECK,
    mirror_rights::CHECK,
];

/// Namespaces that every cluster has. They are mirrored only if the user names them.
const OWN_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// Input of the checks, from the APIs of both clusters.
pub struct Mirror {
    source: Reading,
    target: Reading,
    /// Namespaces that the user names. If the list is empty, all namespaces are chosen, except [`OWN_NAMESPACES`].
    named: Vec<String>,
    namespaces: OnceCell<Read<Vec<Namespace>>>,
    templates: OnceCell<Read<Vec<Template>>>,
    /// Metadata of the copied objects.
    copied: OnceCell<Read<Found>>,
}

/// Kind and metadata of each copied object.
struct Found {
    objects: Vec<(&'static Copied, ObjectMeta)>,
    /// Whether Secrets are missing because the user has no permission to list them.
    is_without_secrets: bool,
}

impl AsRef<Reading> for Mirror {
    fn as_ref(&self) -> &Reading {
        &self.source
    }
}

impl Mirror {
    /// Creates the input with connections to the source and the mirror. `named`: namespaces that the user names.
    pub fn new(
        (source, mirror): (Result<Cluster, Failure>, Result<Cluster, Failure>),
        mut named: Vec<String>,
    ) -> Self {
        named.sort_unstable();
        named.dedup();
        Self {
            source: Reading::of_api(source, "the API of the source"),
            target: Reading::of_api(mirror, "the API of the mirror"),
            named,
            namespaces: OnceCell::new(),
            templates: OnceCell::new(),
            copied: OnceCell::new(),
        }
    }

    /// Returns whether the user names namespaces.
    fn is_named(&self) -> bool {
        !self.named.is_empty()
    }

    /// Returns the chosen namespaces that exist in the source.
    async fn namespaces(&self) -> Read<&Vec<Namespace>> {
        let read = async || {
            let mut found: Vec<Namespace> = self.source.objects().await?;
            found.retain(|one| {
                if self.named.is_empty() {
                    !OWN_NAMESPACES.contains(&name(one))
                } else {
                    self.named.iter().any(|named| named == name(one))
                }
            });
            Ok(found)
        };
        self.namespaces.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    async fn names(&self) -> Read<Vec<String>> {
        let found = self.namespaces().await?;
        Ok(found.iter().map(|one| name(one).to_string()).collect())
    }

    /// Returns the named namespaces that exist in the source. If the user names no namespace, returns a single `None`, which
    /// stands for all namespaces.
    async fn places(&self) -> Read<Vec<Option<String>>> {
        if self.named.is_empty() {
            return Ok(vec![None]);
        }
        Ok(self.names().await?.into_iter().map(Some).collect())
    }

    /// Reads the objects of a type in the chosen namespaces of the source.
    async fn chosen<K: Typed + Metadata<Ty = ObjectMeta>>(&self) -> Read<Vec<K>> {
        self.within(self.source.cluster()?, namespace, objects).await
    }

    /// Reads objects in the chosen namespaces from one of the clusters.
    async fn within<T>(
        &self,
        cluster: &Cluster,
        namespace: fn(&T) -> &str,
        read: impl AsyncFn(&Cluster, Option<&str>) -> Result<Vec<T>, ClusterError>,
    ) -> Read<Vec<T>> {
        within(cluster, &self.names().await?, self.is_named(), namespace, read).await
    }

    async fn templates(&self) -> Read<&Vec<Template>> {
        let read = async || {
            let mut all = Vec::new();
            all.extend(templates::<Deployment>(self.chosen().await?));
            all.extend(templates::<DaemonSet>(self.chosen().await?));
            all.extend(templates::<Job>(self.chosen().await?));
            all.extend(templates::<CronJob>(self.chosen().await?));
            Ok(all)
        };
        self.templates.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    async fn copied(&self) -> Read<&Found> {
        let read = async || {
            let names = self.names().await?;
            let mut all = found(self.source.cluster()?, &names, self.is_named()).await?;
            all.objects.retain(|(copied, object)| !is_made_anew(copied.kind.1, object));
            Ok(all)
        };
        self.copied.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }
}

/// Reads the metadata (name, labels, owners) of the objects of a kind, in some namespaces of a cluster.
async fn metadata(
    cluster: &Cluster,
    (api_version, kind): (&str, &str),
    names: &[String],
    each: bool,
) -> Read<Vec<ObjectMeta>> {
    let read = async |cluster: &Cluster, namespace: Option<&str>| {
        cluster.list_metadata(&Collection::new(api_version, kind, namespace)).await
    };
    within(cluster, names, each, |one| place(one).0, read).await
}

/// Reads the metadata of the objects of each copied kind.
async fn found(cluster: &Cluster, names: &[String], each: bool) -> Read<Found> {
    let asked = COPIED.iter().map(async |one| (one, metadata(cluster, one.kind, names, each).await));
    let mut all = Found { objects: Vec::new(), is_without_secrets: false };
    for (copied, found) in join_all(asked).await {
        match found {
            Err(judged) if copied.resource == SECRETS && judged.denied.is_some() => {
                all.is_without_secrets = true;
            }
            found => all.objects.extend(found?.into_iter().map(|object| (copied, object))),
        }
    }
    Ok(all)
}

/// Reads objects in some namespaces. With `each`, reads each namespace separately. Otherwise reads all namespaces and drops
/// the objects of other namespaces.
async fn within<T>(
    cluster: &Cluster,
    names: &[String],
    each: bool,
    namespace: fn(&T) -> &str,
    read: impl AsyncFn(&Cluster, Option<&str>) -> Result<Vec<T>, ClusterError>,
) -> Read<Vec<T>> {
    if each {
        let found = join_all(names.iter().map(async |name| read(cluster, Some(name)).await)).await;
        let found: Result<Vec<_>, _> = found.into_iter().collect();
        return Ok(found.map_err(unread)?.into_iter().flatten().collect());
    }
    let mut found = read(cluster, None).await.map_err(unread)?;
    found.retain(|one| names.iter().any(|name| name == namespace(one)));
    Ok(found)
}

/// Returns the namespace and the name of an object.
fn place(metadata: &ObjectMeta) -> (&str, &str) {
    [&metadata.namespace, &metadata.name].map(|text| text.as_deref().unwrap_or_default()).into()
}

//! Reads some namespaces of a cluster: the objects, which kinds they have, and the Pod templates of workloads.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::OnceCell;

use super::kinds::{CopiedKind, SECRETS, copied_kinds, is_made_anew, why_not_copied};
use super::pod_templates::{Template, templates};
use super::{AT_ONCE, ClusterReader, Read, Retained, objects, unread};
use crate::kube_api::accessors::{name, namespace};
use crate::kube_api::{Cluster, ClusterError, Collection, ServedKind};
use crate::session::Failure;

/// Namespaces that every cluster has. They are selected only by name.
const OWN_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// The selected namespaces of a cluster. Each part is read once, on first use.
pub struct NamespaceReader {
    /// The cluster.
    pub reader: ClusterReader,
    /// Namespaces that the user names. If the list is empty, all namespaces are selected, except [`OWN_NAMESPACES`].
    pub named: Vec<String>,
    namespaces: OnceCell<Read<Vec<Namespace>>>,
    templates: OnceCell<Read<Vec<Template>>>,
    copied: OnceCell<Read<CopiedObjects>>,
}

/// Kind and metadata of each object to copy.
pub struct CopiedObjects {
    /// The objects, without their content.
    pub objects: Vec<(CopiedKind, ObjectMeta)>,
    /// Whether Secrets are missing because the user has no permission to list them.
    pub is_without_secrets: bool,
}

/// Kinds with objects to copy, by API group and resource. Each kind has the name of one object (`shop/web`), or the reason why its
/// objects cannot be listed.
pub type UsedKinds = BTreeMap<(String, String), Result<String, String>>;

impl NamespaceReader {
    /// Selects namespaces of a cluster, and reads nothing yet. `what`: name of the API, for example `the API of the source`. `named`:
    /// namespaces that the user names.
    pub fn new(cluster: Option<Result<Cluster, Failure>>, what: &str, mut named: Vec<String>) -> Self {
        named.sort_unstable();
        named.dedup();
        Self {
            reader: ClusterReader::of_api(cluster, what),
            named,
            namespaces: OnceCell::new(),
            templates: OnceCell::new(),
            copied: OnceCell::new(),
        }
    }

    /// Returns the selected namespaces that exist.
    /// Returns the names of the selected namespaces.
    pub async fn namespaces(&self) -> Read<&Vec<Namespace>> {
        let read = async || {
            let mut found: Vec<Namespace> = self.reader.objects().await?;
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

    /// Returns the names of the selected namespaces.
    pub async fn names(&self) -> Read<Vec<String>> {
        let found = self.namespaces().await?;
        Ok(found.iter().map(|one| name(one).to_string()).collect())
    }

    /// Returns the named namespaces that exist. If the user names no namespace, returns a single `None`, which
    /// stands for all namespaces.
    pub async fn places(&self) -> Read<Vec<Option<String>>> {
        if self.named.is_empty() {
            return Ok(vec![None]);
        }
        Ok(self.names().await?.into_iter().map(Some).collect())
    }

    /// Reads the objects of a type in the selected namespaces of the cluster.
    pub async fn selected<K: Retained>(&self) -> Read<Vec<K>> {
        self.within(self.reader.cluster()?, namespace, objects).await
    }

    /// Reads objects in the selected namespaces, from this cluster or from another one.
    pub async fn within<T>(
        &self,
        cluster: &Cluster,
        namespace: fn(&T) -> &str,
        read: impl AsyncFn(&Cluster, Option<&str>) -> Result<Vec<T>, ClusterError>,
    ) -> Read<Vec<T>> {
        within(cluster, &self.names().await?, !self.named.is_empty(), namespace, read).await
    }

    /// Returns the Pod templates of the workloads.
    pub async fn templates(&self) -> Read<&Vec<Template>> {
        let read = async || {
            let mut all = Vec::new();
            all.extend(templates::<Deployment>(self.selected().await?));
            all.extend(templates::<DaemonSet>(self.selected().await?));
            all.extend(templates::<Job>(self.selected().await?));
            all.extend(templates::<CronJob>(self.selected().await?));
            Ok(all)
        };
        self.templates.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Returns the objects of the copied kinds, except the objects that the mirror makes itself.
    pub async fn copied(&self) -> Read<&CopiedObjects> {
        let read = async || {
            let names = self.names().await?;
            let mut all = copied_objects(self.reader.cluster()?, &names, !self.named.is_empty()).await?;
            all.objects.retain(|(copied, object)| !is_made_anew(copied.kind.1, object));
            Ok(all)
        };
        self.copied.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Reads the metadata of the objects of a kind.
    pub async fn metadata(&self, kind: (&str, &str)) -> Read<Vec<ObjectMeta>> {
        metadata(self.reader.cluster()?, kind, &self.names().await?, !self.named.is_empty()).await
    }

    /// Returns the kinds that have objects to copy, including custom resources. `served`: the kinds that the cluster serves.
    pub async fn used_kinds(&self, served: &[ServedKind]) -> Read<UsedKinds> {
        let (cluster, places) = (self.reader.cluster()?, self.places().await?);
        let without: &[&str] = if self.named.is_empty() { &OWN_NAMESPACES } else { &[] };
        let mut seen = BTreeSet::new();
        // For each kind, the preferred version is first in the list.
        let asked = served.iter().filter(|kind| {
            let is_copied = || why_not_copied(&kind.group, &kind.plural, &kind.verbs).is_none();
            kind.is_namespaced && is_copied() && seen.insert((&kind.group, &kind.plural))
        });
        let asked: Vec<&ServedKind> = asked.collect();
        let questions =
            asked.iter().flat_map(|kind| places.iter().map(move |place| (*kind, place.as_deref())));
        let questions: Vec<_> = questions.collect();
        let answers = questions.into_iter().map(async |(kind, place)| {
            let is_wanted = |one: &ObjectMeta| !is_made_anew(&kind.kind, one);
            (kind, cluster.first_of(kind, place, without, is_wanted).await)
        });
        let answers: Vec<_> = stream::iter(answers).buffered(AT_ONCE).collect().await;
        let mut used = UsedKinds::new();
        for (kind, answer) in answers {
            let of = (kind.group.clone(), kind.plural.clone());
            match answer {
                Ok(None) => {}
                Ok(Some(one)) => {
                    let (namespace, name) = place(&one);
                    used.insert(of, Ok(format!("{namespace}/{name}")));
                }
                Err(error) => {
                    used.entry(of).or_insert_with(|| Err(error.to_string()));
                }
            }
        }
        Ok(used)
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

/// Reads the metadata of the objects of each copied kind. With `each`, reads each namespace separately.
pub async fn copied_objects(cluster: &Cluster, names: &[String], each: bool) -> Read<CopiedObjects> {
    let asked = copied_kinds().map(async |kind| (kind, metadata(cluster, kind.kind, names, each).await));
    let mut all = CopiedObjects { objects: Vec::new(), is_without_secrets: false };
    for (kind, found) in join_all(asked).await {
        match found {
            Err(error) if kind.resource == SECRETS && error.denied.is_some() => {
                all.is_without_secrets = true;
            }
            found => all.objects.extend(found?.into_iter().map(|object| (kind, object))),
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
pub fn place(metadata: &ObjectMeta) -> (&str, &str) {
    [&metadata.namespace, &metadata.name].map(|text| text.as_deref().unwrap_or_default()).into()
}

//! Reads the input of the checks of `preflight mirror`, from the APIs of two clusters.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::Selection;
use super::permissions::{self, Asked};
use super::reading::{AT_ONCE, Read, Reading, carry_out, listed, objects, unread};
use crate::kube_api::{Cluster, ClusterError, Collection, ServedKind, ServedKinds, Typed};
use crate::preflight::mirror::capacity::{self, Compared};
use crate::preflight::mirror::classes::{self, Classes, Users};
use crate::preflight::mirror::issuers::{self, Asking, Issuers};
use crate::preflight::mirror::kinds::{self, Kind, Kinds, Used, is_copied};
use crate::preflight::mirror::templates::{self, Left, Pulling, Template, templates};
use crate::preflight::mirror::{
    self, COPIED, Copied, Identity, OWN_NAMESPACES, fixed, is_made_anew, placement,
};
use crate::preflight::objects::{name, namespace};
use crate::preflight::webhooks::{Admitted, Written};
use crate::preflight::{Check, Judged, MIRROR, MirrorCheck, text};
use crate::session::Failure;

const CERT_MANAGER: &str = "cert-manager.io/v1";

/// Verbs that a copy needs for namespaces and for each copied kind: on the source and on the mirror.
const READS: &[&str] = &["get", "list"];
const CHANGES: &[&str] = &["create", "patch", "delete"];
const SECRETS: (&str, &str) = ("", "secrets");
const NAMESPACES: (&str, &str) = ("", "namespaces");

/// Input of the checks of `preflight mirror`.
struct Looking {
    source: Reading,
    mirror: Reading,
    /// Namespaces that the user names. If empty, all namespaces except those of the system.
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

impl Found {
    /// Returns kind, namespace and name of an object, as text.
    fn told((copied, object): &(&Copied, ObjectMeta)) -> String {
        let (namespace, name) = place(object);
        format!("{} `{namespace}/{name}`", copied.kind.1)
    }
}

/// Runs the checks of `preflight mirror`.
pub async fn look(
    (source, mirror): (Result<Cluster, Failure>, Result<Cluster, Failure>),
    mut named: Vec<String>,
    asked: &Selection,
) -> Vec<Check> {
    let source = Reading::of_api(source, "the API of the source");
    let mirror = Reading::of_api(mirror, "the API of the mirror");
    named.sort_unstable();
    named.dedup();
    let looking = Looking {
        source,
        mirror,
        named,
        namespaces: OnceCell::new(),
        templates: OnceCell::new(),
        copied: OnceCell::new(),
    };
    carry_out(MIRROR, asked, async |check| looking.judge(check).await).await
}

impl Looking {
    async fn judge(&self, check: MirrorCheck) -> Read<Judged> {
        match check {
            MirrorCheck::TwoClusters => {
                let (source, mirror) = tokio::try_join!(identity(&self.source), identity(&self.mirror))?;
                Ok(mirror::two(&source, &mirror))
            }
            MirrorCheck::Namespaces => self.free().await,
            MirrorCheck::MirrorNodes => Ok(mirror::nodes(self.mirror.nodes().await?)),
            MirrorCheck::Kinds => self.kinds().await,
            MirrorCheck::Stateless => {
                let (sets, claims, services, pods) =
                    tokio::try_join!(self.chosen(), self.chosen(), self.chosen(), self.chosen())?;
                let templates = self.templates().await?;
                Ok(templates::stateless(&Left {
                    templates,
                    sets: &sets,
                    claims: &claims,
                    services: &services,
                    pods: &pods,
                }))
            }
            MirrorCheck::Classes => self.classes().await,
            MirrorCheck::Issuers => self.issuers().await,
            MirrorCheck::PullSecrets => self.pull_secrets().await,
            MirrorCheck::Placement => {
                Ok(placement::judge(self.templates().await?, self.mirror.nodes().await?))
            }
            MirrorCheck::Capacity => self.capacity().await,
            MirrorCheck::FixedAddresses => {
                let services = self.chosen::<Service>().await?;
                let there = self.mirror.services().await?;
                Ok(fixed::judge(&services, there, self.templates().await?))
            }
            MirrorCheck::MirrorWebhooks => self.webhooks().await,
            MirrorCheck::SourceRights => self.source_rights().await,
            MirrorCheck::MirrorRights => self.mirror_rights().await,
            MirrorCheck::Shared(check) => self.source.judge(check).await,
        }
    }

    async fn capacity(&self) -> Read<Judged> {
        let (pods, nodes, taken) = tokio::try_join!(self.chosen(), self.mirror.nodes(), self.mirror.pods())?;
        let (namespaces, templates) = (self.names().await?, self.templates().await?);
        Ok(capacity::judge(&Compared { namespaces: &namespaces, pods: &pods, templates, nodes, taken }))
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

    /// Returns the named namespaces. If none is named, returns a single `None`, which stands for all namespaces.
    async fn places(&self) -> Read<Vec<Option<String>>> {
        if self.named.is_empty() {
            return Ok(vec![None]);
        }
        Ok(self.names().await?.into_iter().map(Some).collect())
    }

    /// Reads the objects of a type in the chosen namespaces of the source.
    async fn chosen<K: Typed + Metadata<Ty = ObjectMeta>>(&self) -> Read<Vec<K>> {
        let (cluster, names) = (self.source.cluster()?, self.names().await?);
        within(cluster, &names, !self.named.is_empty(), namespace, objects).await
    }

    /// Reads the objects of one kind of cert-manager in the chosen namespaces of the source.
    async fn of_cert_manager(&self, kind: &str) -> Read<Vec<Value>> {
        let (cluster, names) = (self.source.cluster()?, self.names().await?);
        let read = async |cluster: &Cluster, namespace: Option<&str>| {
            listed(cluster, &Collection::new(CERT_MANAGER, kind, namespace)).await
        };
        within(cluster, &names, !self.named.is_empty(), |one| text(one, "/metadata/namespace"), read).await
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
        let asked =
            COPIED.iter().map(async |one| (one, Self::metadata(cluster, one.kind, names, each).await));
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
            let mut all = Self::found(self.source.cluster()?, &names, !self.named.is_empty()).await?;
            all.objects.retain(|(copied, object)| !is_made_anew(copied.kind.1, object));
            Ok(all)
        };
        self.copied.get_or_init(read).await.as_ref().map_err(Clone::clone)
    }

    /// Checks whether the namespaces exist in the source, and which of their objects already exist on the mirror.
    async fn free(&self) -> Read<Judged> {
        let (names, cluster) = (self.names().await?, self.mirror.cluster()?);
        let missing: Vec<String> = self.named.iter().filter(|name| !names.contains(name)).cloned().collect();
        let there = self.mirror.objects::<Namespace>().await?;
        let both = there.iter().map(|one| name(one).to_string()).filter(|name| names.contains(name));
        let there = Self::found(cluster, &both.collect::<Vec<_>>(), true).await?;
        let on_mirror: BTreeSet<_> = there.objects.iter().map(Found::told).collect();
        let copied = self.copied().await?;
        let taken = copied.objects.iter().map(Found::told).filter(|one| on_mirror.contains(one));
        let judged = mirror::namespaces(&names, &missing, &taken.collect::<Vec<_>>());
        let is_partial = there.is_without_secrets || copied.is_without_secrets;
        Ok(if is_partial { mirror::without_secrets(judged) } else { judged })
    }

    async fn kinds(&self) -> Read<Judged> {
        let (source, mirror) = (self.source.cluster()?, self.mirror.cluster()?);
        let (of_source, of_mirror) =
            tokio::try_join!(source.served_kinds(), mirror.served_kinds()).map_err(unread)?;
        let used = self.used(&of_source).await?;
        let definitions = definitions(self.mirror.cluster()?).await?;
        let kinds = |served: &ServedKinds| Kinds {
            all: by_place(&served.kinds),
            silent: served.silent.iter().cloned().collect(),
        };
        Ok(kinds::judge(&used, &kinds(&of_source), &kinds(&of_mirror), &definitions))
    }

    /// Returns the kinds that have objects to copy, including custom resources.
    async fn used(&self, served: &ServedKinds) -> Read<Used> {
        let (cluster, places) = (self.source.cluster()?, self.places().await?);
        let without: &[&str] = if self.named.is_empty() { &OWN_NAMESPACES } else { &[] };
        let mut seen = BTreeSet::new();
        // The preferred version of each kind comes first in the list.
        let asked = served.kinds.iter().filter(|kind| {
            let can_be = kind.is_namespaced && is_copied(&kind.group, &kind.plural, &kind.verbs);
            can_be && seen.insert((&kind.group, &kind.plural))
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
        let mut used = Used::new();
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

    async fn classes(&self) -> Read<Judged> {
        let (ingresses, sets, claims) = tokio::try_join!(self.chosen(), self.chosen(), self.chosen())?;
        let users =
            Users { ingresses: &ingresses, templates: self.templates().await?, sets: &sets, claims: &claims };
        let source = Classes::default().with::<IngressClass>(&self.source.objects().await?);
        let (ingress, priority, runtime, storage) = tokio::try_join!(
            self.mirror.objects::<IngressClass>(),
            self.mirror.objects::<PriorityClass>(),
            self.mirror.objects::<RuntimeClass>(),
            self.mirror.objects::<StorageClass>()
        )?;
        let there = Classes::default().with(&ingress).with(&priority).with(&runtime).with(&storage);
        Ok(classes::judge(&users, &source, &there))
    }

    async fn issuers(&self) -> Read<Judged> {
        let is_served = Collection::new(CERT_MANAGER, "Certificate", None);
        let cluster = self.source.cluster()?;
        let has_group = cluster.groups().await.map_err(unread)?.contains(issuers::GROUP);
        let certificates = if cluster.serves(&is_served).await.map_err(unread)? {
            Some(self.of_cert_manager("Certificate").await?)
        } else {
            None
        };
        let of_source = match certificates {
            Some(_) => self.of_cert_manager("Issuer").await?,
            None => Vec::new(),
        };
        let ingresses = self.chosen::<Ingress>().await?;
        let of_mirror = self.mirror.list_if_served(CERT_MANAGER, "ClusterIssuer").await?;
        let asking = Asking { certificates: certificates.as_deref(), has_group, ingresses: &ingresses };
        Ok(issuers::judge(&asking, &Issuers { of_source: &of_source, of_mirror: of_mirror.as_deref() }))
    }

    async fn pull_secrets(&self) -> Read<Judged> {
        let accounts = self.chosen::<ServiceAccount>().await?;
        let (cluster, names) = (self.source.cluster()?, self.names().await?);
        let each = !self.named.is_empty();
        let on_mirror = within(self.mirror.cluster()?, &names, each, namespace, objects).await?;
        let secrets = Self::metadata(cluster, ("v1", "Secret"), &names, each)
            .await
            .map_err(|judged| if judged.denied.is_some() { mirror::no_pull_secrets() } else { judged })?;
        let secrets =
            secrets.iter().map(place).map(|(namespace, name)| (namespace.to_string(), name.to_string()));
        let secrets: BTreeSet<_> = secrets.collect();
        let templates = self.templates().await?;
        Ok(templates::pull_secrets(&Pulling {
            templates,
            accounts: &accounts,
            on_mirror: &on_mirror,
            secrets: &secrets,
        }))
    }

    /// Checks the mirror's webhooks for the copied objects, for their namespaces, and for the Pods that workloads create.
    async fn webhooks(&self) -> Read<Judged> {
        let namespaces: BTreeMap<String, _> = self
            .namespaces()
            .await?
            .iter()
            .map(|one| (name(one).to_string(), one.metadata.labels.clone().unwrap_or_default()))
            .collect();
        let found = self.copied().await?;
        let copied = found
            .objects
            .iter()
            .filter_map(|(copied, object)| Written::of(copied.admitted, object, &namespaces));
        let made = self.namespaces().await?.iter();
        let made = made.filter_map(|one| Written::of(Admitted::Namespace, &one.metadata, &namespaces));
        let pod = |template: &Template| {
            let (namespace, labels) = (Some(template.namespace.clone()), Some(template.labels.clone()));
            let metadata = ObjectMeta { namespace, labels, ..ObjectMeta::default() };
            Written::of(Admitted::Pod, &metadata, &namespaces)
        };
        let pods = self.templates().await?.iter().filter_map(pod);
        let written: Vec<Written> =
            copied.chain(pods).chain(made).collect::<BTreeSet<_>>().into_iter().collect();
        let webhooks = self.mirror.called(&written).await?;
        let backends = self.mirror.backends(&webhooks).await?;
        let judged = mirror::webhooks(&webhooks, &backends);
        Ok(if found.is_without_secrets { mirror::without_secrets(judged) } else { judged })
    }

    /// Checks the permissions to read the copied objects, in all namespaces or in the named ones.
    async fn source_rights(&self) -> Read<Judged> {
        let need = permissions::SOURCE;
        let of_all = Asked { reads: &[(READS, NAMESPACES)], changes: &[], need };
        let copied = COPIED.iter().map(|kind| kind.resource).filter(|resource| *resource != SECRETS);
        let copied: Vec<_> = copied.map(|resource| (READS, resource)).collect();
        let asked = Asked { reads: &copied, changes: &[(READS, SECRETS)], need };
        let mut judged = self.source.rights(&of_all).await?;
        for place in self.places().await? {
            if judged.remedy.is_empty() {
                judged = self.source.rights_in(&asked, place.as_deref()).await?;
            }
        }
        Ok(judged)
    }

    /// Checks the permissions to create the copied objects and their namespaces on the mirror. The permission to read Secrets on
    /// the mirror is not checked.
    async fn mirror_rights(&self) -> Read<Judged> {
        let kinds = || COPIED.iter().map(|kind| kind.resource).chain([NAMESPACES]);
        let reads: Vec<_> = kinds().filter(|kind| *kind != SECRETS).map(|kind| (READS, kind)).collect();
        let changes: Vec<_> = kinds().map(|kind| (CHANGES, kind)).collect();
        let asked = Asked { reads: &reads, changes: &changes, need: permissions::MIRROR };
        self.mirror.rights(&asked).await
    }
}

/// Reads the objects of some namespaces. With `each`, reads each namespace separately; otherwise reads all namespaces and drops
/// objects of others.
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

/// Reads the CustomResourceDefinitions without their schemas.
async fn definitions(cluster: &Cluster) -> Read<Vec<CustomResourceDefinition>> {
    let keep = |CustomResourceDefinition { metadata, status, .. }| {
        Some(CustomResourceDefinition { metadata, status, ..CustomResourceDefinition::default() })
    };
    cluster.objects_as(None, &keep).await.map_err(unread)
}

/// Returns namespace and name of an object.
fn place(metadata: &ObjectMeta) -> (&str, &str) {
    [&metadata.namespace, &metadata.name].map(|text| text.as_deref().unwrap_or_default()).into()
}

async fn identity(reading: &Reading) -> Read<Identity> {
    let cluster = reading.cluster()?;
    let (uid, version) = tokio::try_join!(cluster.identity(), cluster.version()).map_err(unread)?;
    Ok(Identity { uid, version: version.git, emulated: version.emulated })
}

fn by_place(served: &[ServedKind]) -> BTreeMap<(String, String), Kind> {
    let mut all: BTreeMap<(String, String), Kind> = BTreeMap::new();
    for one in served {
        let fresh = || Kind { kind: one.kind.clone(), versions: Vec::new() };
        let kind = all.entry((one.group.clone(), one.plural.clone())).or_insert_with(fresh);
        kind.versions.push(one.version.clone());
    }
    all
}

//! Reads the source and the mirror, and creates the plan. Neither cluster can be changed through this reader.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::activation::MovedCopies;
use super::copy::wish;
use super::decision::{Around, Decision, KindPair, pairs};
use super::difference::{Change, MANAGER, is_same};
use super::left_out::{self, Reason};
use super::order::level;
use super::refusal;
use super::work::{DryRun, Entry, KindLeftOut, Mirror, Planned, Reference};
use crate::inventory::kinds::{Copying, copying_of, is_made_anew, why_not_copied};
use crate::inventory::{AT_ONCE, text};
use crate::kube_api::{ClusterError, Collection, FieldApply, ObjectRef, ReadOnly, Replaces, ServedKinds};
use crate::operation::Plan;
use crate::session::Failure;
use crate::store::Revision;

/// What to copy, and how.
#[derive(Debug, Clone, Default)]
pub struct MirrorOptions {
    /// The namespaces.
    pub namespaces: Vec<String>,
    /// Whether copies of Services have the same node ports.
    pub keep_node_ports: bool,
    /// Workloads to copy although no Service selects them, as `NAMESPACE/NAME`.
    pub run: Vec<String>,
    /// Uids of the objects that mirror operations created in the mirror ([`super::ledger::created`]).
    pub ours: BTreeSet<String>,
    /// The copies that activations have moved ([`super::activation::ledger::in_force`]).
    pub moved: MovedCopies,
}

/// Namespaces that belong to a cluster, and the namespace of netsurgeon's records. They are not copied.
const NOT_COPIED: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "netsurgeon"];

/// Reads both clusters.
pub struct MirrorReader {
    source: ReadOnly,
    mirror: ReadOnly,
    options: MirrorOptions,
}

/// The entries of one kind, or why the kind is not in the plan.
type OfKind = Result<Vec<Entry>, KindLeftOut>;

impl MirrorReader {
    /// Returns a reader. It reads nothing yet.
    pub fn new(source: ReadOnly, mirror: ReadOnly, options: MirrorOptions) -> Self {
        Self { source, mirror, options }
    }

    /// Reads both clusters, and creates the plan. Sends dry runs to the mirror.
    pub async fn plan(&self) -> Result<Plan<Mirror>, Failure> {
        if let Some(name) = self.options.namespaces.iter().find(|name| NOT_COPIED.contains(&name.as_str())) {
            let text = format!("the namespace `{name}` belongs to its cluster, so it is not copied");
            return Err(Failure::refused(text).hint("give the namespaces of your workloads: `--namespace`"));
        }
        let (source, mirror) = different(&self.source, &self.mirror).await?;
        let (served, at_mirror) = tokio::try_join!(self.source.served_kinds(), self.mirror.served_kinds())?;
        let mut around = self.around().await?;
        let (mut objects, existing) = self.namespaces(&mut around).await?;
        let mut left_out = unread(&served, &at_mirror);
        let is_read = |pair: &KindPair| !left_out.iter().any(|kind| kind.resource == pair.kind.group);
        let kinds: Vec<KindPair> =
            pairs(&served.kinds, &at_mirror.kinds).into_iter().filter(is_read).collect();
        let reads = kinds.iter().map(|pair| self.of_kind(pair, &around, &existing));
        let found: Vec<Result<OfKind, Failure>> = stream::iter(reads).buffered(AT_ONCE).collect().await;
        for of_kind in found {
            match of_kind? {
                Ok(entries) => objects.extend(entries),
                Err(kind) => left_out.push(kind),
            }
        }
        objects.sort_by_cached_key(|entry| (level(&entry.object.resource), entry.object.clone()));
        left_out.sort_by(|one, other| one.resource.cmp(&other.resource));
        let mut namespaces = self.options.namespaces.clone();
        namespaces.sort_unstable();
        let work = Mirror { source, namespaces, objects, kinds_left_out: left_out };
        Ok(Plan::new(&mirror, Revision(0), work))
    }

    /// Reads the Services and the autoscalers of the source.
    async fn around(&self) -> Result<Around, Failure> {
        let MirrorOptions { keep_node_ports, run, ours, moved, .. } = self.options.clone();
        let run = run.into_iter().collect();
        let mut around = Around { keep_node_ports, run, ours, moved, ..Around::default() };
        for namespace in &self.options.namespaces {
            let services = Collection::new("v1", "Service", Some(namespace));
            let selector = |service: Value| {
                let map = service.pointer("/spec/selector")?.as_object()?.clone();
                let of = |(key, value): (String, Value)| Some((key, value.as_str()?.to_string()));
                Some(map.into_iter().filter_map(of).collect::<BTreeMap<_, _>>())
            };
            let selectors = self.source.list_as(&services, &selector).await?;
            around.selectors.extend(selectors.into_iter().map(|selector| (namespace.clone(), selector)));
            let scalers = Collection::new("autoscaling/v1", "HorizontalPodAutoscaler", Some(namespace));
            let target = |scaler: Value| {
                let of = |field: &str| text(&scaler, &format!("/spec/scaleTargetRef/{field}")).to_string();
                Some((of("kind"), namespace.clone(), of("name")))
            };
            around.scaled.extend(self.source.list_as(&scalers, &target).await?);
        }
        Ok(around)
    }

    /// Returns the entries of the namespaces, and the namespaces that exist in the mirror.
    async fn namespaces(&self, around: &mut Around) -> Result<(Vec<Entry>, BTreeSet<String>), Failure> {
        let (mut entries, mut existing) = (Vec::new(), BTreeSet::new());
        for name in &self.options.namespaces {
            let reference = Reference {
                resource: "/namespaces".to_string(),
                api_version: "v1".to_string(),
                kind: "Namespace".to_string(),
                namespace: None,
                name: name.clone(),
            };
            let found = self.source.get(&reference.object()).await?.ok_or_else(|| {
                Failure::refused(format!("the source has no namespace `{name}`"))
                    .hint("check `--namespace`, `--kubeconfig` and `--context`")
            })?;
            let live = self.mirror.get(&reference.object()).await?;
            if let Some(live) = &live {
                existing.insert(name.clone());
                if !text(live, "/metadata/deletionTimestamp").is_empty() {
                    around.terminating.insert(name.clone());
                }
            }
            entries.push(self.entry(reference, &found, live.as_ref(), around, true).await?);
        }
        Ok((entries, existing))
    }

    /// Returns the entries of a kind, or the reason why the kind is not in the plan.
    async fn of_kind(
        &self,
        pair: &KindPair,
        around: &Around,
        existing: &BTreeSet<String>,
    ) -> Result<OfKind, Failure> {
        let (group, plural) = (pair.kind.group.as_str(), pair.kind.plural.as_str());
        let has = |verb: &str| pair.kind.verbs.contains(verb);
        let not_copied = why_not_copied(group, plural, &pair.kind.verbs);
        let mut entries = Vec::new();
        for namespace in &self.options.namespaces {
            let found = match not_copied {
                // Objects that cannot be listed and created are not stored.
                Some(_) if !has("list") || !has("create") => return Ok(Ok(Vec::new())),
                Some(why) => self.named(pair, namespace, why).await,
                None if !pair.is_served => self.unserved(pair, namespace).await,
                None => self.copied(pair, namespace, around, existing).await?,
            };
            match found {
                Ok(found) => entries.extend(found),
                Err(error) if refusal::is_of_object(&error) => {
                    let (resource, reason) = (pair.resource.clone(), error.to_string());
                    return Ok(Err(KindLeftOut { resource, reason }));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Ok(entries))
    }

    /// Reads the objects of a kind in both clusters. The inner error is of the source.
    async fn copied(
        &self,
        pair: &KindPair,
        namespace: &str,
        around: &Around,
        existing: &BTreeSet<String>,
    ) -> Result<Result<Vec<Entry>, ClusterError>, Failure> {
        let version = pair.api_version();
        let collection = Collection::new(&version, &pair.kind.kind, Some(namespace));
        let keep = |mut object: Value| {
            // The items of a list have no `kind` or `apiVersion`.
            let fields = object.as_object_mut()?;
            fields.insert("apiVersion".to_string(), version.as_str().into());
            fields.insert("kind".to_string(), pair.kind.kind.as_str().into());
            Some(object)
        };
        let found = match self.source.list_as(&collection, &keep).await {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let is_there = existing.contains(namespace);
        let mut live = HashMap::new();
        if is_there && !found.is_empty() {
            for object in self.mirror.list_as(&collection, &keep).await? {
                live.insert(text(&object, "/metadata/name").to_string(), object);
            }
        }
        let entries = found.iter().map(|object| {
            let name = text(object, "/metadata/name");
            let reference = reference(pair, Some(namespace), name);
            self.entry(reference, object, live.get(name), around, is_there)
        });
        let entries: Vec<Result<Entry, Failure>> = stream::iter(entries).buffered(AT_ONCE).collect().await;
        Ok(Ok(entries.into_iter().collect::<Result<_, _>>()?))
    }

    /// Returns the entry of an object. `is_there`: whether the namespace of the object exists in the mirror.
    async fn entry(
        &self,
        object: Reference,
        found: &Value,
        live: Option<&Value>,
        around: &Around,
        is_there: bool,
    ) -> Result<Entry, Failure> {
        let decision = around.decide(&object.resource, found, live);
        let mut entry = Entry {
            uid: text(found, "/metadata/uid").to_string(),
            resource_version: text(found, "/metadata/resourceVersion").to_string(),
            action: Planned::Same,
            reason: None,
            detail: None,
            mirror_uid: live.map(|live| text(live, "/metadata/uid").to_string()),
            fields: Vec::new(),
            passive: None,
            dry_run: None,
            shape: around.shape(&object.resource, found, live),
            object,
        };
        match decision {
            Decision::LeftOut(reason) => refuse(&mut entry, Planned::LeftOut, reason),
            Decision::Conflict(reason) => refuse(&mut entry, Planned::Conflict, reason),
            Decision::Same => {}
            Decision::Create(manifest) => {
                entry.action = Planned::Create;
                self.try_create(&mut entry, &manifest, is_there).await?;
            }
            Decision::Differs(manifest, changes) => {
                let is_ours = live.is_some_and(|live| around.is_ours(live));
                self.try_update(&mut entry, (&manifest, &changes), live, is_ours).await?;
            }
        }
        if entry.action.is_copied() {
            entry.passive =
                if entry.shape.moved.is_some() { None } else { wish(&entry.object.resource, found) };
        }
        Ok(entry)
    }

    async fn try_create(&self, entry: &mut Entry, manifest: &Value, is_there: bool) -> Result<(), Failure> {
        if !is_there {
            entry.dry_run = Some(DryRun::Unchecked);
            return Ok(());
        }
        let options = FieldApply { manager: MANAGER, replaces: Replaces::Nothing };
        match self.mirror.try_apply_fields(manifest, options).await {
            Ok(_) => entry.dry_run = Some(DryRun::Accepted),
            Err(error) => refused(entry, &error)?,
        }
        Ok(())
    }

    /// Finds out in a dry run whether an apply changes an object of the mirror, and who owns the object.
    async fn try_update(
        &self,
        entry: &mut Entry,
        (manifest, changes): (&Value, &[Change]),
        live: Option<&Value>,
        is_ours: bool,
    ) -> Result<(), Failure> {
        let options = FieldApply { manager: MANAGER, replaces: Replaces::Anything };
        let tried = self.mirror.try_apply_fields(manifest, options).await;
        // An empty value of the source can mean the default, which the comparison of fields cannot know.
        if let (Ok(tried), Some(live)) = (&tried, live)
            && is_same(tried, live)
        {
            return Ok(());
        }
        entry.fields = changes.iter().map(Change::field).collect();
        if !is_ours {
            refuse(entry, Planned::Conflict, left_out::EXISTS);
            return Ok(());
        }
        entry.action = Planned::Update;
        match tried {
            Ok(_) => entry.dry_run = Some(DryRun::Accepted),
            Err(ClusterError::Conflict { .. }) => refuse(entry, Planned::Conflict, left_out::OTHER_MANAGER),
            Err(error) => refused(entry, &error)?,
        }
        Ok(())
    }

    /// Returns the objects of a kind that is not copied. Objects that a controller creates are not in the plan.
    async fn named(
        &self,
        pair: &KindPair,
        namespace: &str,
        why: &'static str,
    ) -> Result<Vec<Entry>, ClusterError> {
        let (group, plural) = (pair.kind.group.as_str(), pair.kind.plural.as_str());
        let reason = match (copying_of(group, plural), plural) {
            (Some(Copying::MadeAnew(_)), "pods") => left_out::BARE_POD,
            (Some(Copying::MadeAnew(_)), "endpointslices") => left_out::MANUAL_ENDPOINTS,
            (Some(Copying::MadeAnew(_)), "replicasets") => left_out::KIND_NOT_COPIED,
            (Some(Copying::MadeAnew(_)), _) => return Ok(Vec::new()),
            _ => Reason { text: why, ..left_out::KIND_NOT_COPIED },
        };
        let is_to_name = |found: &ObjectMeta| match plural {
            "endpointslices" => !is_managed(found),
            _ => !is_made_anew(&pair.kind.kind, found),
        };
        self.metadata(pair, namespace, reason, is_to_name).await
    }

    /// Returns the objects of a kind that the mirror does not serve.
    async fn unserved(&self, pair: &KindPair, namespace: &str) -> Result<Vec<Entry>, ClusterError> {
        self.metadata(pair, namespace, left_out::NOT_SERVED, |_| true).await
    }

    async fn metadata(
        &self,
        pair: &KindPair,
        namespace: &str,
        reason: Reason,
        is_to_name: impl Fn(&ObjectMeta) -> bool,
    ) -> Result<Vec<Entry>, ClusterError> {
        let version = pair.api_version();
        let collection = Collection::new(&version, &pair.kind.kind, Some(namespace));
        let found = self.source.list_metadata(&collection).await?;
        let entry = |found: ObjectMeta| {
            let mut entry = Entry {
                object: reference(pair, Some(namespace), found.name.as_deref().unwrap_or_default()),
                uid: found.uid.unwrap_or_default(),
                resource_version: String::new(),
                action: Planned::LeftOut,
                reason: None,
                detail: None,
                mirror_uid: None,
                fields: Vec::new(),
                passive: None,
                dry_run: None,
                shape: super::copy::Shape::default(),
            };
            refuse(&mut entry, Planned::LeftOut, reason);
            entry
        };
        Ok(found.into_iter().filter(is_to_name).map(entry).collect())
    }
}

/// Returns the identities of the source and of the mirror. Fails if they are the same cluster.
pub(super) async fn different(source: &ReadOnly, mirror: &ReadOnly) -> Result<(String, String), Failure> {
    let (one, other) = tokio::try_join!(source.identity(), mirror.identity())?;
    if one == other {
        let servers = format!("`{}` and `{}`", source.server(), mirror.server());
        return Err(Failure::refused(format!("the source and the mirror are the same cluster: {servers}"))
            .hint("`--context` selects the source, and `--mirror-context` the mirror"));
    }
    Ok((one, other))
}

/// Returns whether a controller writes an EndpointSlice.
fn is_managed(slice: &ObjectMeta) -> bool {
    let label = slice.labels.as_ref().and_then(|labels| labels.get("endpointslice.kubernetes.io/managed-by"));
    label.is_some_and(|by| by.ends_with("controller.k8s.io"))
}

/// Returns the API groups that a cluster could not list.
fn unread(source: &ServedKinds, mirror: &ServedKinds) -> Vec<KindLeftOut> {
    let of = |where_: &'static str, (group, why): &(String, String)| KindLeftOut {
        resource: group.clone(),
        reason: format!("the kinds of this API group could not be read in the {where_}: {why}"),
    };
    let source = source.silent.iter().map(|one| of("source", one));
    source.chain(mirror.silent.iter().map(|one| of("mirror", one))).collect()
}

fn reference(pair: &KindPair, namespace: Option<&str>, name: &str) -> Reference {
    Reference {
        resource: pair.resource.clone(),
        api_version: pair.api_version(),
        kind: pair.kind.kind.clone(),
        namespace: namespace.map(str::to_string),
        name: name.to_string(),
    }
}

fn refuse(entry: &mut Entry, action: Planned, reason: Reason) {
    entry.action = action;
    (entry.reason, entry.detail) = (Some(reason.code.to_string()), Some(reason.text.to_string()));
}

/// Notes that the mirror's API server refuses a change. Fails if the error does not concern only this object.
fn refused(entry: &mut Entry, error: &ClusterError) -> Result<(), Failure> {
    if !refusal::is_of_object(error) {
        return Err(Failure::refused(refusal::words(error, entry.object.is_secret())).hints(error.hint()));
    }
    entry.dry_run = Some(DryRun::Refused);
    entry.detail = Some(refusal::words(error, entry.object.is_secret()));
    Ok(())
}

/// Compares an object of the mirror with its copy, in the same way as a plan. Returns the fields that an apply would change.
pub(super) async fn differing(
    mirror: &ReadOnly,
    manifest: &Value,
    live: &Value,
) -> Result<Vec<Change>, ClusterError> {
    let changes = super::difference::changes(manifest, live);
    if changes.is_empty() {
        return Ok(changes);
    }
    let options = FieldApply { manager: MANAGER, replaces: Replaces::Anything };
    match mirror.try_apply_fields(manifest, options).await {
        Ok(tried) if is_same(&tried, live) => Ok(Vec::new()),
        Ok(_) => Ok(changes),
        Err(error) if refusal::is_of_object(&error) => Ok(changes),
        Err(error) => Err(error),
    }
}

/// Reads an object, unless its uid is another one.
pub(super) async fn planned_object(
    source: &ReadOnly,
    object: &ObjectRef<'_>,
    uid: &str,
) -> Result<Option<Value>, ClusterError> {
    Ok(source.get(object).await?.filter(|found| text(found, "/metadata/uid") == uid))
}

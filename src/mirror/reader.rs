//! Reads the source and the mirror, and creates the plan. Neither cluster can be changed through this reader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::activation::MovedCopies;
use super::cluster_kind::Needs;
use super::config::Config;
use super::content_diff::ContentDiff;
use super::decision::{Around, KindPair, pairs};
use super::difference::{Change, is_same};
use super::ledger::Created;
use super::left_out::{self, Reason};
use super::namespace_choice::refuse_namespaces;
use super::object_write;
use super::order::level;
use super::refusal;
use super::rules::{Choices, Workload, pod_labels, pull_secret, warnings};
use super::work::{Entry, KindLeftOut, Mirror, Planned, Reference};
use crate::inventory::kinds::{Copying, can_be_included, copying_of, is_made_anew, why_not_copied};
use crate::inventory::outside_owner::{OutsideOwner, OwnerComparison};
use crate::inventory::text;
use crate::kube_api::{ClusterError, Collection, ObjectRef, ReadOnly, ServedKinds};
use crate::operation::Plan;
use crate::session::Failure;
use crate::store::Revision;

/// Number of kinds that are read at the same time. A few pages of each are in memory.
const KINDS_AT_ONCE: usize = 16;
/// Number of dry runs at the same time. More are not faster: the API server needs about 2 ms of a processor for each.
const DRY_RUNS_AT_ONCE: usize = 32;

/// What happens if controllers of both clusters own things outside of them by the same name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EqualOwners {
    /// There is no plan.
    #[default]
    Refuse,
    /// The plan is made.
    Allow,
}

/// What to copy, and how.
#[derive(Debug, Clone, Default)]
pub struct MirrorOptions {
    /// The namespaces.
    pub namespaces: Vec<String>,
    /// Whether copies of Services have the same node ports.
    pub keep_node_ports: bool,
    /// Workloads to copy although no Service selects them, as `NAMESPACE/NAME`.
    pub run: Vec<String>,
    /// The objects that mirror operations created in the mirror ([`super::ledger::created`]).
    pub ours: Created,
    /// The copies that activations have moved ([`super::activation::ledger::in_force`]).
    pub moved: MovedCopies,
    /// The rules that change copies.
    pub config: Config,
    /// Whether objects of other clients are adopted.
    pub adopts: bool,
    /// What happens if controllers of both clusters own things outside of them by the same name.
    pub equal_owners: EqualOwners,
    /// Whether the reader notes what each change changes ([`MirrorReader::diffs`]).
    pub with_diffs: bool,
}

/// Reads both clusters.
pub struct MirrorReader {
    pub(super) source: ReadOnly,
    pub(super) mirror: ReadOnly,
    pub(super) options: MirrorOptions,
    /// What the copied objects refer to, collected while they are read.
    pub(super) needs: Mutex<Needs>,
    /// What each change changes, by the place of the object in the plan.
    pub(super) diffs: Mutex<BTreeMap<(usize, Reference), ContentDiff>>,
    /// Limits the dry runs.
    pub(super) dry_runs: Semaphore,
}

/// Definitions of kinds that the mirror does not serve, by the name of the kind (`GROUP/PLURAL`).
pub(super) type Definitions = BTreeMap<String, Value>;

/// What the mirror has, or gets before the objects of the namespaces.
struct Existing {
    /// The namespaces that exist in the mirror.
    namespaces: BTreeSet<String>,
    /// Definitions of kinds that the mirror does not serve yet.
    definitions: Definitions,
}

impl Existing {
    /// Returns whether the mirror serves a kind, or will serve it.
    fn will_serve(&self, pair: &KindPair) -> bool {
        pair.is_served || self.definitions.contains_key(&pair.resource)
    }
}

/// The entries of one kind, or why the kind is not in the plan.
type OfKind = Result<Vec<Entry>, KindLeftOut>;

impl MirrorReader {
    /// Returns a reader. It reads nothing yet.
    pub fn new(source: ReadOnly, mirror: ReadOnly, options: MirrorOptions) -> Self {
        let dry_runs = Semaphore::new(DRY_RUNS_AT_ONCE);
        Self { source, mirror, options, needs: Mutex::default(), diffs: Mutex::default(), dry_runs }
    }

    /// Returns what each change of the plan changes, with values, in the order of the plan.
    pub fn diffs(&self) -> Vec<ContentDiff> {
        std::mem::take(&mut *self.diffs.lock().unwrap_or_else(PoisonError::into_inner))
            .into_values()
            .collect()
    }

    /// Reads both clusters, and creates the plan. Sends dry runs to the mirror.
    pub async fn plan(&self) -> Result<Plan<Mirror>, Failure> {
        refuse_namespaces(&self.options.namespaces, &self.options.config)?;
        let (source, mirror) = different(&self.source, &self.mirror).await?;
        let (served, at_mirror) = tokio::try_join!(self.source.served_kinds(), self.mirror.served_kinds())?;
        let (mut around, unknown_owners) = tokio::try_join!(self.around(), self.refuse_equal_owners())?;
        for (finding, subject) in unknown_owners {
            around.uses.note(finding, subject);
        }
        let (mut objects, existing) = self.namespaces(&mut around).await?;
        let mut left_out = unread(&served, &at_mirror);
        left_out.extend(around.excluded(&pairs(&served.kinds, &at_mirror.kinds)));
        let is_read = |pair: &KindPair| {
            !left_out.iter().any(|kind| kind.resource == pair.kind.group || kind.resource == pair.resource)
        };
        let kinds: Vec<KindPair> =
            pairs(&served.kinds, &at_mirror.kinds).into_iter().filter(is_read).collect();
        let definitions = self.definitions(&kinds, &left_out).await?;
        let there = Existing { namespaces: existing, definitions };
        let reads = kinds.iter().map(|pair| self.of_kind(pair, &around, &there));
        let found: Vec<Result<OfKind, Failure>> = stream::iter(reads).buffered(KINDS_AT_ONCE).collect().await;
        for of_kind in found {
            match of_kind? {
                Ok(entries) => objects.extend(entries),
                Err(kind) => left_out.push(kind),
            }
        }
        objects.extend(self.pull_secrets(&around, &there.namespaces).await?);
        self.add_cluster_scoped(&mut objects, &mut left_out, (&around, &there.definitions)).await?;
        self.add_orphans(&mut objects, &left_out).await?;
        objects.sort_by_cached_key(|entry| (level(&entry.object.resource), entry.object.clone()));
        left_out.sort_by(|one, other| one.resource.cmp(&other.resource));
        let mut namespaces = self.options.namespaces.clone();
        namespaces.sort_unstable();
        let config = self.options.config.clone();
        let warnings = warnings(&config, &around.uses);
        let work = Mirror { source, namespaces, objects, kinds_left_out: left_out, config, warnings };
        Ok(Plan::new(&mirror, Revision(0), work))
    }

    /// Reads the Services and the autoscalers of the source.
    pub(super) async fn around(&self) -> Result<Around, Failure> {
        let MirrorOptions { keep_node_ports, run, ours, moved, config, .. } = self.options.clone();
        let choices = Choices::new(&config, &run).map_err(Failure::refused)?;
        let run = run.into_iter().collect();
        let mut around = Around { keep_node_ports, run, ours, moved, config, choices, ..Around::default() };
        for namespace in &self.options.namespaces {
            let services = Collection::new("v1", "Service", Some(namespace));
            let selector = |service: Value| {
                let map = service.pointer("/spec/selector").and_then(Value::as_object).cloned();
                let of = |(key, value): (String, Value)| Some((key, value.as_str()?.to_string()));
                let map = map.unwrap_or_default().into_iter().filter_map(of).collect::<BTreeMap<_, _>>();
                Some((text(&service, "/metadata/name").to_string(), map))
            };
            for (service, selector) in self.source.list_as(&services, &selector).await? {
                if selector.is_empty() {
                    around.without_selector.insert((namespace.clone(), service));
                } else {
                    around.selectors.push((namespace.clone(), selector));
                }
            }
            let scalers = Collection::new("autoscaling/v1", "HorizontalPodAutoscaler", Some(namespace));
            let target = |scaler: Value| {
                let of = |field: &str| text(&scaler, &format!("/spec/scaleTargetRef/{field}")).to_string();
                Some((of("kind"), namespace.clone(), of("name")))
            };
            around.scaled.extend(self.source.list_as(&scalers, &target).await?);
        }
        if around.choices.has_passive() {
            around.choices.workloads = self.workloads(&around).await?;
        }
        Ok(around)
    }

    /// Reads the workloads that are copied, for the decision about budgets of passive workloads.
    async fn workloads(&self, around: &Around) -> Result<Vec<Workload>, Failure> {
        const KINDS: [(&str, &str, &str); 5] = [
            ("apps/v1", "Deployment", "apps/deployments"),
            ("apps/v1", "StatefulSet", "apps/statefulsets"),
            ("apps/v1", "DaemonSet", "apps/daemonsets"),
            ("apps/v1", "ReplicaSet", "apps/replicasets"),
            ("v1", "ReplicationController", "/replicationcontrollers"),
        ];
        let mut found = Vec::new();
        for namespace in &self.options.namespaces {
            for (version, kind, resource) in KINDS {
                let workload = |object: Value| {
                    let is_passive = around.copied_workload(resource, &object)?;
                    let name = (kind.to_string(), text(&object, "/metadata/name").to_string());
                    Some(Workload {
                        namespace: namespace.clone(),
                        name,
                        labels: pod_labels(&object),
                        is_passive,
                    })
                };
                let collection = Collection::new(version, kind, Some(namespace));
                found.extend(self.source.list_as(&collection, &workload).await?);
            }
        }
        Ok(found)
    }

    /// Returns the entries of the pull secrets of the configuration.
    async fn pull_secrets(
        &self,
        around: &Around,
        existing: &BTreeSet<String>,
    ) -> Result<Vec<Entry>, Failure> {
        let mut entries = Vec::new();
        for namespace in &self.options.namespaces {
            for rule in &self.options.config.pull_secrets {
                let reference = Reference::to_secret(namespace, &rule.name);
                let made = pull_secret(rule, namespace).map_err(|fault| Failure::refused(fault.0))?;
                let is_there = existing.contains(namespace);
                let target = reference.renamed(&self.options.config);
                let live = if is_there { self.mirror.get(&target.object()).await? } else { None };
                entries.push(self.entry(reference, &made, live.as_ref(), around, is_there).await?);
            }
        }
        Ok(entries)
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
            let target = reference.renamed(&self.options.config);
            let live = self.mirror.get(&target.object()).await?;
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
        existing: &Existing,
    ) -> Result<OfKind, Failure> {
        let (group, plural) = (pair.kind.group.as_str(), pair.kind.plural.as_str());
        let has = |verb: &str| pair.kind.verbs.contains(verb);
        let not_copied = why_not_copied(group, plural, &pair.kind.verbs);
        // Single objects of this kind can be copied.
        let is_included = not_copied.is_some()
            && can_be_included(group, plural, &pair.kind.verbs)
            && around.includes(&pair.resource, &pair.kind.kind);
        let not_copied = not_copied.filter(|_| !is_included && !around.copies_single(&pair.resource));
        let mut entries = Vec::new();
        for namespace in &self.options.namespaces {
            let found = match not_copied {
                // Objects that cannot be listed and created are not stored.
                Some(_) if !has("list") || !has("create") => return Ok(Ok(Vec::new())),
                Some(why) => self.named(pair, namespace, why).await,
                None if !existing.will_serve(pair) => self.unserved(pair, namespace).await,
                None => {
                    let is_there = pair.is_served && existing.namespaces.contains(namespace);
                    self.copied(pair, namespace, around, is_there).await?
                }
            };
            match found {
                Ok(found) => entries.extend(found),
                Err(error) if refusal::is_of_object(&error) => {
                    let (resource, reason) =
                        (pair.resource.clone(), refusal::reason_and_advice(&error, false));
                    return Ok(Err(KindLeftOut { resource, reason }));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Ok(entries))
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
            (Some(Copying::MadeAnew(_)), "replicasets") => left_out::KIND_NOT_COPIED,
            (Some(Copying::MadeAnew(_)), _) => return Ok(Vec::new()),
            _ => Reason { text: why, ..left_out::KIND_NOT_COPIED },
        };
        let is_to_name = |found: &ObjectMeta| !is_made_anew(&pair.kind.kind, found);
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
            let object = reference(pair, Some(namespace), found.name.as_deref().unwrap_or_default());
            let mut entry = Entry { uid: found.uid.unwrap_or_default(), ..Entry::new(object) };
            entry.refuse(Planned::LeftOut, reason);
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

impl MirrorReader {
    /// Refuses a plan if controllers of both clusters own things outside of them by the same name. Returns what could not be compared:
    /// why, and what.
    async fn refuse_equal_owners(&self) -> Result<Vec<(String, String)>, Failure> {
        if self.options.equal_owners == EqualOwners::Allow {
            return Ok(Vec::new());
        }
        let deployments = Collection::new("apps/v1", "Deployment", None);
        let owner = |found: Value| OutsideOwner::of_json(&found);
        let read = tokio::try_join!(
            self.source.list_as(&deployments, &owner),
            self.mirror.list_as(&deployments, &owner)
        );
        let (source, mirror) = match read {
            Ok(read) => read,
            Err(error) if refusal::is_of_object(&error) => {
                let finding = "it was not checked whether both clusters have an ExternalDNS or a load balancer controller of the same name";
                return Ok(vec![(finding.to_string(), error.to_string())]);
            }
            Err(error) => return Err(error.into()),
        };
        let OwnerComparison { equal, unknown } = OwnerComparison::of(&source, &mirror);
        match equal.first() {
            None => Ok(unknown),
            Some(first) => Err(Failure::refused(first.clone()).hint(OwnerComparison::REMEDY)),
        }
    }
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

pub(super) fn reference(pair: &KindPair, namespace: Option<&str>, name: &str) -> Reference {
    Reference {
        resource: pair.resource.clone(),
        api_version: pair.api_version(),
        kind: pair.kind.kind.clone(),
        namespace: namespace.map(str::to_string),
        name: name.to_string(),
    }
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
    match object_write::try_change(mirror, (manifest, &changes), live).await {
        Ok((tried, _)) if is_same(&tried.object, live) => Ok(Vec::new()),
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

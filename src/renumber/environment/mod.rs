//! The environment of a live renumbering: the cluster's API, its nodes, and the operators who complete manual steps.

mod bitmap;
mod compare;
mod list;
mod service_cidr;
mod shadows;
mod waits;

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use self::compare::difference;
pub use self::shadows::delete_again;
use super::effect::{Awaited, Effect};
use super::intention::Renumbering;
use super::steps::{FLAGS, OTHER_RANGES, Wait, routed};
use crate::kube_api::accessors::subject;
use crate::kube_api::{Barrier, BarrierError, BarrierRoute, Cluster, ClusterError, MANAGED_BY, ObjectRef};
use crate::operation::{Answer, Applied, Doing, Environment, Manual, Observed, Records, StepFault};
use crate::store::{Guard, ReadStore, Revision};

/// Time limit of a wait. It is longer than the time that a kube-proxy needs to reconnect after it has lost its API server. This
/// time is up to a minute (`NewReflectorWithOptions`, back-off of 30 s with a jitter of 1.0, client-go
/// `tools/cache/reflector.go`, v0.32.2).
const DEADLINE: Duration = Duration::from_secs(150);

/// How long a client can still connect to an address that it has resolved. CoreDNS answers with a TTL of 30 s (`ttl 30` in the
/// Corefile of kubeadm, `cmd/kubeadm/app/phases/addons/dns/manifests.go`, v1.36.3). The client can cache the answer for another
/// 30 s, for example a JVM (`networkaddress.cache.ttl`).
pub const LINGER: Duration = Duration::from_mins(1);

/// Checks whether a manual step is complete.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Returns [`Answer::Confirmed`] if the manual step is complete. Otherwise returns [`Answer::Open`], and the operation
    /// pauses.
    async fn confirm(&self, manual: &Manual, back: bool) -> Result<Answer, StepFault>;
}

/// Returns the wait that is needed after addresses of a batch were repaired. It is the same wait as before the flips of the
/// batch.
pub fn seen_again(batch: usize) -> Wait {
    routed(batch)
}

/// Options for the waits of a live renumbering.
#[derive(Debug, Clone)]
pub struct LiveOptions {
    /// The operation's id.
    pub operation: String,
    /// Namespace in which barriers create their sentinel Services.
    pub namespace: String,
    /// How to query the nodes.
    pub reach: BarrierRoute,
    /// Nodes that no barrier waits for.
    pub without: BTreeSet<String>,
    /// API servers that are stopped permanently, by host name or Lease name. No step waits for them.
    pub without_api_servers: BTreeSet<String>,
    /// The time limit of a wait.
    pub deadline: Duration,
    /// In a rollback: how long the new addresses still answer after the last Service has moved back.
    pub linger: Duration,
    /// Preconditions of every wait, and of every request that changes something. If this process loses the operation lease, the
    /// awaited state might never be reached, so the wait stops.
    pub guards: Vec<Guard>,
}

impl LiveOptions {
    /// Returns the defaults.
    pub fn new(operation: &str) -> Self {
        Self {
            operation: operation.to_string(),
            namespace: "kube-system".to_string(),
            reach: BarrierRoute::Auto,
            without: BTreeSet::new(),
            without_api_servers: BTreeSet::new(),
            deadline: DEADLINE,
            linger: LINGER,
            guards: Vec::new(),
        }
    }
}

/// The names of the manual steps that a renumbering can have. Operators or other components complete these steps.
pub const MANUAL_STEPS: [&str; 8] = [
    "snapshot",
    "certificates",
    FLAGS,
    OTHER_RANGES,
    "node-local-dns",
    "cluster-dns",
    "soak",
    "certificates-after",
];

/// The environment of a live renumbering.
pub struct LiveEnvironment<'a> {
    /// The Kubernetes API.
    pub cluster: &'a Cluster,
    /// The cluster's etcd.
    pub store: &'a dyn ReadStore,
    /// The renumbering that the plan describes.
    pub work: &'a Renumbering,
    /// Confirms manual steps.
    pub approver: &'a dyn Approver,
    /// Options for the waits.
    pub options: LiveOptions,
}

/// Returns the record of a created object for the journal: its uid, and the revision of its creation. The revision is included
/// only if this process certainly created the object.
fn made(object: &Value, is_known: bool) -> Value {
    let text = |path: &str| object.pointer(path).cloned().unwrap_or_default();
    let revision = if is_known { text("/metadata/resourceVersion") } else { Value::Null };
    json!({"uid": text("/metadata/uid"), "revision": revision})
}

/// State of an object before its deletion.
enum Found {
    Nothing,
    /// The object is managed by netsurgeon, and has this uid.
    Ours(String),
    /// The object is managed by netsurgeon, and is being deleted.
    Leaving,
    /// The object is not managed by netsurgeon.
    Others,
}

impl LiveEnvironment<'_> {
    /// Creates an object, unless it already exists and matches the manifest. Returns the record of the object for the journal.
    async fn create(&self, manifest: &Value) -> Result<Value, StepFault> {
        let object = ObjectRef::of(manifest)?;
        // The ServiceCIDR of an earlier attempt may still be terminating. It terminates until its last address is deleted.
        if object.collection.kind == "ServiceCIDR" && matches!(self.find(&object).await?, Found::Leaving) {
            self.is_gone(&object).await?;
        }
        self.look_at_guards().await?;
        match self.cluster.create_once_allocated(manifest).await {
            Ok(object) => Ok(made(&object, true)),
            Err(error @ ClusterError::AlreadyExists { .. }) => match self.compare(manifest).await? {
                Observed::Done(found) => Ok(found),
                Observed::Changed(reason) => Err(StepFault::Skip(reason)),
                Observed::NotDone => Err(error.into()),
            },
            Err(error) => {
                let whose = self.whose_address(manifest).await;
                Err(whose.map_or_else(
                    || StepFault::of(&error),
                    |whose| StepFault::Skip(format!("{error}; {whose}")),
                ))
            }
        }
    }

    /// Returns a message that names the Service that already has the address of a manifest; `None` if there is no such Service.
    async fn whose_address(&self, manifest: &Value) -> Option<String> {
        let wanted = manifest.pointer("/spec/clusterIP").and_then(Value::as_str)?;
        self.cluster.objects_as(None, &|service| owner(&service, wanted)).await.ok()?.into_iter().next()
    }

    /// Compares a manifest with the existing object of the same name. If they match, returns the record of the object for the
    /// journal.
    async fn compare(&self, manifest: &Value) -> Result<Observed, StepFault> {
        let object = ObjectRef::of(manifest)?;
        let Some(found) = self.cluster.get(&object).await? else { return Ok(Observed::NotDone) };
        let difference = difference(manifest, &found);
        Ok(match difference {
            None => Observed::Done(made(&found, false)),
            Some(difference) => Observed::Changed(format!(
                "{object} exists and differs from the planned object: {difference}; delete or rename it, then resume"
            )),
        })
    }

    async fn find(&self, object: &ObjectRef<'_>) -> Result<Found, StepFault> {
        let Some(found) = self.cluster.get(object).await? else { return Ok(Found::Nothing) };
        let text = |path: &[&str]| {
            path.iter().try_fold(&found, |value, name| value.get(name)).and_then(Value::as_str)
        };
        if text(&["metadata", "labels", MANAGED_BY.0]) != Some(MANAGED_BY.1) {
            return Ok(Found::Others);
        }
        if text(&["metadata", "deletionTimestamp"]).is_some() {
            return Ok(Found::Leaving);
        }
        Ok(Found::Ours(text(&["metadata", "uid"]).unwrap_or_default().to_string()))
    }

    /// Deletes an object by its uid, if netsurgeon manages the object.
    async fn delete(&self, object: &ObjectRef<'_>) -> Result<(), StepFault> {
        match self.find(object).await? {
            Found::Nothing | Found::Leaving => Ok(()),
            Found::Ours(uid) => {
                self.look_at_guards().await?;
                Ok(self.cluster.delete(object, Some(&uid)).await?)
            }
            Found::Others => Err(StepFault::Skip(not_ours(object))),
        }
    }

    async fn barrier(&self) -> Result<(), StepFault> {
        let options = &self.options;
        let barrier = Barrier {
            namespace: options.namespace.clone(),
            operation: options.operation.clone(),
            family: self.work.family,
            reach: options.reach,
            deadline: options.deadline,
            without: options.without.clone(),
        };
        match self.cluster.barrier(&barrier).await {
            Ok(crossed) => {
                tracing::info!(nodes = crossed.nodes.len(), "every kube-proxy has applied the changes");
                Ok(())
            }
            Err(BarrierError::Cluster(error)) => Err(error.into()),
            Err(error @ BarrierError::NotCrossed { .. }) => Err(StepFault::Halt(format!(
                "{error}; repair the kube-proxy there, or delete a Node that is permanently lost, then resume"
            ))),
        }
    }
}

fn owner(service: &Service, wanted: &str) -> Option<String> {
    let addresses = service.spec.as_ref()?.cluster_ips.as_ref()?;
    if addresses.iter().all(|address| address != wanted) {
        return None;
    }
    Some(format!(
        "`{wanted}` is the address of Service {}: delete that Service or change its address, then resume",
        subject(service)
    ))
}

fn not_ours(object: &ObjectRef<'_>) -> String {
    let (label, value) = MANAGED_BY;
    format!("{object} has no label `{label}: {value}`: netsurgeon did not create it, and leaves it unchanged")
}

impl LiveEnvironment<'_> {
    async fn undo(&self, effect: &Effect) -> Result<Applied, StepFault> {
        match effect {
            Effect::Create { manifest } => self.delete(&ObjectRef::of(manifest)?).await?,
            Effect::List(list) => self.change_list(list, true).await?,
            Effect::ReserveBits { batch } => return self.reserved_bits(*batch, true).await,
            Effect::RestoreBitmap => return self.rewritten_bitmap(true).await,
            Effect::AlignBits => return self.aligned_bits(true).await,
            Effect::ReopenRange => self.reopen_old_range().await?,
            Effect::KeepBits { .. }
            | Effect::RewriteBitmap
            | Effect::CloseRange
            | Effect::ReplaceRange
            | Effect::RemoveTemporaryRange => {}
        }
        Ok(Applied::NOTHING)
    }
}

#[async_trait]
impl Environment<Effect> for LiveEnvironment<'_> {
    async fn apply(&self, doing: &Doing<'_, Effect>) -> Result<Applied, StepFault> {
        if doing.back {
            return self.undo(doing.effect).await;
        }
        match doing.effect {
            Effect::Create { manifest } => return Ok(Applied::Made(self.create(manifest).await?)),
            Effect::List(list) => self.change_list(list, false).await?,
            Effect::ReserveBits { batch } | Effect::KeepBits { batch } => {
                return self.reserved_bits(*batch, false).await;
            }
            Effect::RewriteBitmap => return self.rewritten_bitmap(false).await,
            Effect::AlignBits => return self.aligned_bits(false).await,
            Effect::CloseRange => self.close_old_range().await?,
            Effect::ReplaceRange => self.replace_range().await?,
            Effect::RemoveTemporaryRange => self.remove_temporary_range().await?,
            Effect::RestoreBitmap | Effect::ReopenRange => {}
        }
        Ok(Applied::NOTHING)
    }

    async fn take_back(&self, doing: &Doing<'_, Effect>, ended: Option<Revision>) -> Result<bool, StepFault> {
        let (Effect::Create { manifest }, false) = (doing.effect, doing.back) else { return Ok(false) };
        let text = |name: &str| doing.made.get(name).and_then(Value::as_str);
        // The API's resourceVersion is etcd's mod_revision.
        let made = text("revision").and_then(|revision| revision.parse().ok()).map(Revision);
        let (Some(uid), Some(made)) = (text("uid"), made) else { return Ok(false) };
        // `ended` is the revision at which another process completed the step. An older object belongs to that process.
        if ended.is_some_and(|ended| made < ended) {
            return Ok(false);
        }
        self.cluster.delete(&ObjectRef::of(manifest)?, Some(uid)).await?;
        Ok(true)
    }

    async fn observe(&self, doing: &Doing<'_, Effect>) -> Result<Observed, StepFault> {
        // All other effects are idempotent.
        let Effect::Create { manifest } = doing.effect else { return Ok(Observed::NotDone) };
        if !doing.back {
            return self.compare(manifest).await;
        }
        let object = ObjectRef::of(manifest)?;
        Ok(match self.find(&object).await? {
            Found::Nothing | Found::Leaving => Observed::Done(Value::Null),
            Found::Ours(_) => Observed::NotDone,
            Found::Others => Observed::Changed(not_ours(&object)),
        })
    }

    fn lasts(&self, wait: &Wait) -> Option<Duration> {
        (wait.kind == Awaited::Linger).then_some(self.options.linger)
    }

    async fn wait(&self, wait: &Wait, _: Records<'_>) -> Result<(), StepFault> {
        self.wait_for(wait).await
    }

    async fn manual(&self, manual: &Manual, back: bool) -> Result<Answer, StepFault> {
        let answer = self.approver.confirm(manual, back).await?;
        if manual.name == FLAGS && matches!(answer, Answer::Confirmed) {
            self.allocation_follows(back).await?;
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn address_owner_is_reported() {
        let service = |name: &str, address: &str| {
            let metadata = json!({"name": name, "namespace": "shop"});
            let service = json!({"metadata": metadata, "spec": {"clusterIPs": [address, "fd00::1"]}});
            serde_json::from_value(service).unwrap()
        };
        let services = [service("api", "10.200.0.1"), service("web", "10.200.0.2")];
        let owner = |wanted| services.iter().find_map(|service| owner(service, wanted));
        let said = owner("10.200.0.2").unwrap();
        assert!(said.starts_with("`10.200.0.2` is the address of Service `shop/web`"), "{said}");
        assert_eq!(owner("10.200.0.3"), None);
    }
}

//! The environment of a live renumbering: the cluster's API, its nodes, and the people who do what no program does.

mod bitmap;
mod closing;
mod compare;
mod list;
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
use crate::cluster::{Barrier, BarrierError, Cluster, ClusterError, MANAGED_BY, ObjectRef, Reach};
use crate::operation::{Answer, Applied, Doing, Environment, Fault, Manual, Observed};
use crate::preflight::objects::subject;
use crate::store::{Guard, ReadStore, Revision};

/// How long a wait may take: longer
/// than a kube-proxy that has lost its API server may take to look for it again, which is up to a minute
/// (`NewReflectorWithOptions`, back-off of 30 s with a jitter of 1.0, client-go `tools/cache/reflector.go`, v0.32.2).
const DEADLINE: Duration = Duration::from_secs(150);

/// How long a client may go on connecting to what it resolved a name to: CoreDNS answers with a TTL of 30 s (`ttl 30`
/// in the Corefile of kubeadm, `cmd/kubeadm/app/phases/addons/dns/manifests.go`, v1.36.3), and the client may keep the
/// answer for as long on its own account (a JVM: `networkaddress.cache.ttl`, 30 s).
pub const LINGER: Duration = Duration::from_mins(1);

/// Asks whether a manual step is done.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Returns [`Answer::Confirmed`] once it is done, or [`Answer::Open`] if nobody says so: then the operation
    /// pauses.
    async fn confirm(&self, manual: &Manual, back: bool) -> Result<Answer, Fault>;
}

/// Returns what must be waited for when addresses of a batch were put right: as the batch itself does before its flips.
pub fn seen_again(batch: usize) -> Wait {
    routed(batch)
}

/// How to wait for the cluster.
#[derive(Debug, Clone)]
pub struct LiveOptions {
    /// Id of the operation.
    pub operation: String,
    /// Where the sentinels of barriers are made.
    pub namespace: String,
    /// How the nodes are asked.
    pub reach: Reach,
    /// Nodes that no barrier waits for.
    pub without: BTreeSet<String>,
    /// API servers that are stopped for good, by host or Lease: nothing waits for them.
    pub without_api_servers: BTreeSet<String>,
    /// How long one wait may take.
    pub deadline: Duration,
    /// How long, on the way back, the new addresses go on answering after the last Service has moved back.
    pub linger: Duration,
    /// What must hold, or a wait is given up: without the lock, what is waited for may never come.
    pub guards: Vec<Guard>,
}

impl LiveOptions {
    /// Returns the usual ones.
    pub fn new(operation: &str) -> Self {
        Self {
            operation: operation.to_string(),
            namespace: "kube-system".to_string(),
            reach: Reach::Auto,
            without: BTreeSet::new(),
            without_api_servers: BTreeSet::new(),
            deadline: DEADLINE,
            linger: LINGER,
            guards: Vec::new(),
        }
    }
}

/// The manual steps that a renumbering may have, by name: people or other components do them.
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
    /// What is carried out.
    pub work: &'a Renumbering,
    /// Who is asked about what others do.
    pub approver: &'a dyn Approver,
    /// How to wait.
    pub options: LiveOptions,
}

/// What the journal keeps of an object that was made: its uid, and the revision of its creation if this process is known to
/// have made it.
fn made(object: &Value, is_known: bool) -> Value {
    let text = |path: &str| object.pointer(path).cloned().unwrap_or_default();
    let revision = if is_known { text("/metadata/resourceVersion") } else { Value::Null };
    json!({"uid": text("/metadata/uid"), "revision": revision})
}

/// Words an error of the API, with what to do about it. What a policy, a webhook or the API refuses of one object is no
/// fault of the others.
fn failed(error: &ClusterError) -> Fault {
    let words = match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    };
    if error.is_of_one_object() { Fault::Skip(words) } else { Fault::Halt(words) }
}

impl From<ClusterError> for Fault {
    fn from(error: ClusterError) -> Self {
        failed(&error)
    }
}

/// What is found where an object is to be deleted.
enum Found {
    Nothing,
    /// Ours, with its uid.
    Ours(String),
    /// Ours, and already on its way out.
    Leaving,
    Others,
}

impl LiveEnvironment<'_> {
    /// Creates an object, unless it is there as asked for; returns what the journal keeps of it.
    async fn create(&self, manifest: &Value) -> Result<Value, Fault> {
        let object = ObjectRef::of(manifest)?;
        // A ServiceCIDR of the last attempt may end only when its last address does.
        if object.collection.kind == "ServiceCIDR" && matches!(self.find(&object).await?, Found::Leaving) {
            self.is_gone(&object).await?;
        }
        match self.cluster.create_once_allocated(manifest).await {
            Ok(object) => Ok(made(&object, true)),
            Err(error @ ClusterError::AlreadyExists { .. }) => match self.compare(manifest).await? {
                Observed::Done(found) => Ok(found),
                Observed::Changed(reason) => Err(Fault::Skip(reason)),
                Observed::NotDone => Err(error.into()),
            },
            Err(error) => {
                let whose = self.whose_address(manifest).await;
                Err(whose.map_or_else(|| failed(&error), |whose| Fault::Skip(format!("{error}; {whose}"))))
            }
        }
    }

    /// Says which Service has the address that a manifest asks for, if one has.
    async fn whose_address(&self, manifest: &Value) -> Option<String> {
        let wanted = manifest.pointer("/spec/clusterIP").and_then(Value::as_str)?;
        self.cluster.objects_as(None, &|service| owner(&service, wanted)).await.ok()?.into_iter().next()
    }

    /// Compares what is there under a manifest's name with the manifest; returns what the journal keeps of it if it is that.
    async fn compare(&self, manifest: &Value) -> Result<Observed, Fault> {
        let object = ObjectRef::of(manifest)?;
        let Some(found) = self.cluster.get(&object).await? else { return Ok(Observed::NotDone) };
        let difference = difference(manifest, &found);
        Ok(match difference {
            None => Observed::Done(made(&found, false)),
            Some(difference) => Observed::Changed(format!(
                "{object} exists and is not what would be made: {difference}; delete or rename it, then resume"
            )),
        })
    }

    async fn find(&self, object: &ObjectRef<'_>) -> Result<Found, Fault> {
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

    /// Deletes an object of ours, and that one alone.
    async fn delete(&self, object: &ObjectRef<'_>) -> Result<(), Fault> {
        match self.find(object).await? {
            Found::Nothing | Found::Leaving => Ok(()),
            Found::Ours(uid) => Ok(self.cluster.delete(object, Some(&uid)).await?),
            Found::Others => Err(Fault::Skip(not_ours(object))),
        }
    }

    async fn barrier(&self) -> Result<(), Fault> {
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
            Err(error @ BarrierError::NotCrossed { .. }) => Err(Fault::Halt(format!(
                "{error}; mend the kube-proxy there, or leave out a node that is gone for good, then resume"
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
        "`{wanted}` is the address of Service {}: once that is gone, or has another one, resume",
        subject(service)
    ))
}

fn not_ours(object: &ObjectRef<'_>) -> String {
    let (label, value) = MANAGED_BY;
    format!("{object} has no label `{label}: {value}`: someone else has made it, and it stays as it is")
}

impl LiveEnvironment<'_> {
    async fn undo(&self, effect: &Effect) -> Result<Applied, Fault> {
        match effect {
            Effect::Create { manifest } => self.delete(&ObjectRef::of(manifest)?).await?,
            Effect::List(list) => self.change_list(list, true).await?,
            Effect::ReserveBits { batch } => return self.reserved_bits(*batch, true).await,
            Effect::RestoreBitmap => return self.rewritten_bitmap(true).await,
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
    async fn apply(&self, doing: &Doing<'_, Effect>) -> Result<Applied, Fault> {
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
            Effect::CloseRange => self.close_old_range().await?,
            Effect::ReplaceRange => self.replace_range().await?,
            Effect::RemoveTemporaryRange => self.remove_temporary_range().await?,
            Effect::RestoreBitmap | Effect::ReopenRange => {}
        }
        Ok(Applied::NOTHING)
    }

    async fn take_back(&self, doing: &Doing<'_, Effect>, ended: Option<Revision>) -> Result<bool, Fault> {
        let (Effect::Create { manifest }, false) = (doing.effect, doing.back) else { return Ok(false) };
        let text = |name: &str| doing.made.get(name).and_then(Value::as_str);
        // The API's resourceVersion is etcd's mod_revision.
        let made = text("revision").and_then(|revision| revision.parse().ok()).map(Revision);
        let (Some(uid), Some(made)) = (text("uid"), made) else { return Ok(false) };
        // What was there when they came to the end of the step is theirs.
        if ended.is_some_and(|ended| made < ended) {
            return Ok(false);
        }
        self.cluster.delete(&ObjectRef::of(manifest)?, Some(uid)).await?;
        Ok(true)
    }

    async fn observe(&self, doing: &Doing<'_, Effect>) -> Result<Observed, Fault> {
        // Carrying out anything else once more is the same as once.
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

    async fn wait(&self, wait: &Wait) -> Result<(), Fault> {
        self.wait_for(wait).await
    }

    async fn manual(&self, manual: &Manual, back: bool) -> Result<Answer, Fault> {
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
    fn whose_an_address_is_is_said() {
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

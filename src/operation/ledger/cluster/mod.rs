//! A ledger in ConfigMaps of the cluster, which netsurgeon reads and writes through the cluster's API. This ledger is for
//! operations that do not change etcd, and for clients without access to etcd.
//!
//! ```text
//! ConfigMaps in the namespace `netsurgeon`, for the operation OPERATION:
//! netsurgeon-OPERATION              the head: cluster, holder, epoch, summary
//! netsurgeon-OPERATION-plan-00000   the plan, in parts; immutable
//! netsurgeon-OPERATION-records-00   the states of steps, by name, as JSON; the head has the number of these ConfigMaps
//! ```
//!
//! Earlier versions stored them in `kube-system`. Such an operation stays there until its record is removed.
//!
//! etcd stores each write of a ConfigMap as a whole new value. So the ConfigMaps of records are small, and are filled in the order
//! in which the steps start ([`places`]). Steps that run at the same time share writes ([`gather`]).
//!
//! The head is the owner of the other ConfigMaps, so deleting the head deletes all of them. The head is created first. The
//! operation exists once the head contains a summary.
//!
//! The API server has no transactions across several objects. So parts in different ConfigMaps need separate writes, and a step
//! cannot change an object and its record in one write. Therefore a record is written before and after each effect of a step
//! ([`Action::Do`](crate::operation::Action::Do)).
//!
//! The fencing token is an epoch. A process that takes over the operation first writes a higher epoch into the head, then into
//! each ConfigMap of records. Each write names the `resourceVersion` that it replaces. So a write of the previous holder fails,
//! and the previous holder then finds the higher epoch. No clocks are compared. The cluster's Lease decides whether the previous
//! holder has ended.

mod gather;
mod objects;
mod places;
mod record;
mod shard;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;

use self::gather::Writers;
use self::objects::{Head, NAMESPACE, Placement, RecordMap, Role, config_maps, named, place, uid_of};
use self::places::Places;
pub use self::record::ClusterRecord;
use self::record::{SUMMARY, found, heads, record_name, see_all, value_of};
use self::shard::{Fence, RecordChange, Shard, may_have_happened};
use super::{Ledger, Part, PartChange, Parts, ReadLedger, SeePart};
use crate::kube_api::{Cluster, ClusterError};
use crate::operation::{LeaseHolder, OperationError};
use crate::store::{Action, Entry, Key, KeyRange, ReadStore, Revision, StoreError, Transaction, Visitor};

/// Number of steps recorded in one ConfigMap. A record has about 300 bytes, or more if it contains a previous state and a result.
/// The limit for a ConfigMap is 1 MiB.
const STEPS_IN_ONE: usize = 64;
/// Maximum number of ConfigMaps with records, for any number of steps.
const MOST_SHARDS: usize = 1024;
/// Maximum number of ConfigMaps that are created or taken over at the same time.
const AT_ONCE: usize = 8;
/// Maximum number of attempts to create an object or to take over an operation.
const MOST_ATTEMPTS: u32 = 5;

/// The record of one operation in the cluster, for the process that runs the operation.
pub struct ClusterLedger {
    record: ClusterRecord,
    uid: String,
    fence: Fence,
    summary: Shard,
    shards: Vec<Shard>,
    /// The ConfigMap of each record, with [`Placement::Order`].
    places: Mutex<Places>,
    writers: Arc<Writers>,
}

impl ClusterLedger {
    /// Creates the ledger of an operation that starts. `steps` is the approximate number of its steps. The caller must hold the
    /// cluster's Lease. First removes the remains of operations that were interrupted at their start.
    pub async fn begin(
        api: &Cluster,
        cluster: &str,
        by: &LeaseHolder,
        steps: usize,
    ) -> Result<Self, OperationError> {
        Self::sweep(api).await?;
        let shards = steps.div_ceil(STEPS_IN_ONE).clamp(1, MOST_SHARDS);
        let head = objects::head(cluster, by, shards);
        let head = match made(api, &head).await {
            Err(OperationError::Cluster(error)) if matches!(*error, ClusterError::NotFound { .. }) => {
                create_namespace(api).await?;
                made(api, &head).await?
            }
            made => made?,
        };
        let kept = RecordMap::of(head)?;
        if kept.head()?.holder != *by {
            let what = place(NAMESPACE, &objects::head_name(&by.operation));
            return Err(OperationError::Journal {
                what,
                reason: "another operation has this id".to_string(),
            });
        }
        let manifests = (0..shards).map(|number| objects::shard(&by.operation, number, kept.uid()));
        let all = manifests.map(|manifest| async move { made(api, &manifest).await.map(drop) });
        stream::iter(all).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let ledger = Self::of(api, kept)?;
        ledger.take_shards().await?;
        Ok(ledger)
    }

    /// Takes over the ledger of a started operation. The caller must hold the cluster's Lease. Afterwards no previous holder can
    /// write.
    pub async fn take(api: &Cluster, by: &LeaseHolder) -> Result<Self, OperationError> {
        let ledger = Self::of(api, taken(api, by).await?)?;
        ledger.take_shards().await?;
        Ok(ledger)
    }

    fn of(api: &Cluster, kept: RecordMap) -> Result<Self, OperationError> {
        let (head, uid) = (kept.head()?, kept.uid().to_string());
        let fence = Fence::new(kept.epoch);
        fence.saw(&kept);
        let summary = Shard::new(api, &head.namespace, objects::head_name(&head.operation), Some(kept));
        let shard =
            |number| Shard::new(api, &head.namespace, objects::shard_name(&head.operation, number), None);
        let shards = (0..head.shards).map(shard).collect();
        let places = Mutex::new(Places::new(head.shards, STEPS_IN_ONE));
        let (record, writers) = (ClusterRecord { api: api.clone(), head }, Arc::default());
        Ok(Self { record, uid, fence, summary, shards, places, writers })
    }

    async fn take_shards(&self) -> Result<(), OperationError> {
        let take = |(number, shard)| async move {
            let shard: &Shard = shard;
            Ok::<_, OperationError>((number, shard.take(&self.fence).await?))
        };
        let all = stream::iter(self.shards.iter().enumerate().map(take)).buffer_unordered(AT_ONCE);
        let names: Vec<(usize, Vec<String>)> = all.try_collect().await?;
        let mut places = self.places();
        for (number, names) in names {
            places.found(number, names);
        }
        Ok(())
    }

    /// Adds the writes of this process to a counter.
    #[must_use]
    pub fn counting(mut self, writes: Arc<AtomicU64>) -> Self {
        self.fence.writes = writes;
        self
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the ConfigMap that stores the record of a part; `None` if the head stores it. Chooses a ConfigMap for a
    /// part without a record.
    fn index_of(&self, part: &Part) -> Option<usize> {
        match (part, self.record.head.placement) {
            (Part::Summary, _) => None,
            (part, Placement::Hash) => Some(self.record.shard_of(part)),
            (part, Placement::Order) => Some(self.places().choose(&record_name(part))),
        }
    }

    /// Returns whether a part can have a record. A part without a place has none.
    fn has_place(&self, part: &Part) -> bool {
        let is_placed = *part != Part::Summary && self.record.head.placement == Placement::Order;
        !is_placed || self.places().of(&record_name(part)).is_some()
    }

    fn shard(&self, index: Option<usize>) -> &Shard {
        index.and_then(|index| self.shards.get(index)).unwrap_or(&self.summary)
    }

    /// Creates a part of the plan, before the operation exists.
    async fn write_plan(&self, number: usize, part: &[u8]) -> Result<Revision, OperationError> {
        let manifest = objects::plan(&self.record.head.operation, number, part, &self.uid);
        let made = made(&self.record.api, &manifest).await?;
        if objects::plan_of(&made)? == part {
            return Ok(Revision(0));
        }
        let what = place(NAMESPACE, objects::name_of(&manifest));
        Err(OperationError::Journal { what, reason: "it contains a part of another plan".to_string() })
    }

    /// Removes the record of an operation that has ended, and returns the number of removed ConfigMaps. The caller must hold the
    /// cluster's Lease.
    ///
    /// Deletes the head first, unless the head has changed since it was read. Without its head, the operation does not exist. If
    /// the call is interrupted, Kubernetes garbage collection deletes the other ConfigMaps, because their owner is deleted.
    pub async fn remove(api: &Cluster, operation: &str) -> Result<usize, OperationError> {
        let Some(head) = found(api, operation).await? else { return Ok(0) };
        Self::remove_whole(api, &head).await
    }

    async fn remove_whole(api: &Cluster, head: &RecordMap) -> Result<usize, OperationError> {
        let Head { operation, namespace, .. } = head.head()?;
        api.delete_unchanged(&named(&namespace, &objects::head_name(&operation)), head.object()).await?;
        let mut removed: usize = 1;
        for role in [Role::Records, Role::Plan] {
            let selector = objects::selector(Some(&operation), role);
            for object in api.list(&config_maps(&namespace), Some(&selector)).await? {
                api.delete(&named(&namespace, objects::name_of(&object)), Some(uid_of(&object))).await?;
                removed = removed.saturating_add(1);
            }
        }
        Ok(removed)
    }

    /// Removes the remains of operations that were interrupted at their start. If a head has changed since it was read, its
    /// operation is starting now and stays unchanged. Skips heads that cannot be read.
    async fn sweep(api: &Cluster) -> Result<(), OperationError> {
        let heads = heads(api, NAMESPACE).await?.into_iter().filter_map(|object| RecordMap::of(object).ok());
        let is_remains = |head: &RecordMap| !head.records.contains_key(SUMMARY) && head.head().is_ok();
        for head in heads.filter(is_remains) {
            match Self::remove_whole(api, &head).await {
                Ok(_) => {}
                Err(OperationError::Cluster(error)) if matches!(*error, ClusterError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Creates the namespace of the records.
async fn create_namespace(api: &Cluster) -> Result<(), OperationError> {
    match api.create(&objects::namespace()).await {
        Ok(_) | Err(ClusterError::AlreadyExists { .. }) => Ok(()),
        Err(error) if may_have_happened(&error) => Ok(()),
        Err(error) => Err(OperationError::NoNamespace { name: NAMESPACE, reason: error.to_string() }),
    }
}

/// Creates an object and returns it. If the object already exists, returns the existing object, because an earlier attempt may
/// have created it although the answer was lost.
async fn made(api: &Cluster, manifest: &Value) -> Result<Value, OperationError> {
    let name = objects::name_of(manifest);
    for _ in 0..MOST_ATTEMPTS {
        match api.create(manifest).await {
            Ok(made) => return Ok(made),
            Err(ClusterError::AlreadyExists { .. }) => {}
            Err(error) if may_have_happened(&error) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(found) = api.get(&named(NAMESPACE, name)).await? {
            return Ok(found);
        }
    }
    Err(OperationError::Contended { what: place(NAMESPACE, name), attempts: MOST_ATTEMPTS })
}

/// Sets `by` as the holder of an operation, with the next epoch, and returns the head of the operation.
async fn taken(api: &Cluster, by: &LeaseHolder) -> Result<RecordMap, OperationError> {
    let name = objects::head_name(&by.operation);
    let broken =
        |reason: &str| OperationError::Journal { what: place(NAMESPACE, &name), reason: reason.to_string() };
    let mut tried = None;
    for _ in 0..MOST_ATTEMPTS {
        let found = found(api, &by.operation).await?.ok_or_else(|| broken("there is no such operation"))?;
        // Before any write, because this version can write only a layout that it knows.
        let holder = found.head()?.holder;
        // An earlier attempt succeeded, but its answer was lost.
        if tried == Some(found.epoch) && holder == *by {
            return Ok(found);
        }
        let epoch = found.epoch.checked_add(1).ok_or_else(|| broken("its `epoch` has no successor"))?;
        match api.replace(&objects::held_by(found.with(epoch, &found.records), by)).await {
            Ok(object) => return RecordMap::of(object),
            Err(error) if may_have_happened(&error) => tried = Some(epoch),
            Err(error) => return Err(error.into()),
        }
    }
    Err(OperationError::Contended { what: place(NAMESPACE, &name), attempts: MOST_ATTEMPTS })
}

#[async_trait]
impl ReadLedger for ClusterLedger {
    fn operation(&self) -> (&str, &str) {
        self.record.operation()
    }

    fn place(&self, part: &Part) -> String {
        self.record.place(part)
    }

    async fn read(&self, part: &Part) -> Result<Option<(Vec<u8>, Revision)>, OperationError> {
        if let Part::Plan(number) = part {
            return self.record.plan(*number).await;
        }
        if !self.has_place(part) {
            return Ok(None);
        }
        Ok(value_of(&self.shard(self.index_of(part)).read().await?, part))
    }

    async fn read_all(&self, parts: Parts, see: SeePart<'_>) -> Result<(), OperationError> {
        let mut all = Vec::with_capacity(self.shards.len());
        for shard in &self.shards {
            all.push(shard.read().await?);
        }
        see_all(&all, parts, see);
        Ok(())
    }
}

#[async_trait]
impl Ledger for ClusterLedger {
    /// Changes all parts in the same ConfigMap with one write. Writes one ConfigMap after the other.
    async fn write(&self, parts: Vec<PartChange>, with: Transaction) -> Result<Revision, OperationError> {
        if !with.changes.is_empty() || !with.guards.is_empty() {
            return Err(OperationError::Store(no_store()));
        }
        let mut revision = Revision(0);
        let mut of_shards: Vec<(Option<usize>, Vec<RecordChange>)> = Vec::new();
        for PartChange { part, expected, action } in parts {
            if let (Part::Plan(number), Action::Put(value)) = (&part, &action) {
                revision = self.write_plan(*number, value).await?;
                continue;
            }
            let index = self.index_of(&part);
            let change = RecordChange { name: record_name(&part), expected, action };
            match of_shards.iter_mut().find(|(shard, _)| *shard == index) {
                Some((_, changes)) => changes.push(change),
                None => of_shards.push((index, vec![change])),
            }
        }
        for (index, changes) in of_shards {
            revision = self.shard(index).write(changes, (&self.fence, &self.writers)).await?;
        }
        Ok(revision)
    }

    fn store(&self) -> &dyn ReadStore {
        &NoStore
    }

    fn set_running(&self, steps: usize) {
        self.writers.set_running(steps);
    }

    async fn still_ours(&self) -> Result<(), OperationError> {
        let head = self.summary.fetch().await?;
        if head.epoch == self.fence.epoch {
            return Ok(());
        }
        Err(OperationError::LockLost { to: format!("{} holds it", head.head()?.holder) })
    }
}

/// The store of a ledger that is not in etcd. Every read fails, because steps with this ledger cannot change keys.
struct NoStore;

fn no_store() -> StoreError {
    StoreError::Configuration {
        what: "etcd".to_string(),
        reason: "this operation is recorded in the cluster's API, so it cannot change etcd keys".to_string(),
    }
}

#[async_trait]
impl ReadStore for NoStore {
    fn describe(&self) -> String {
        "no etcd".to_string()
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        Err(no_store())
    }

    async fn get(&self, _key: &Key) -> Result<Option<Entry>, StoreError> {
        Err(no_store())
    }

    async fn scan(
        &self,
        _ranges: &[KeyRange],
        _at: Option<Revision>,
        _visitor: &mut Visitor<'_>,
    ) -> Result<Revision, StoreError> {
        Err(no_store())
    }
}

//! A ledger in ConfigMaps of the cluster, which netsurgeon reads and writes through the cluster's API. This ledger is for
//! operations that do not change etcd, and for clients without access to etcd.
//!
//! ```text
//! ConfigMaps in kube-system, for the operation OPERATION:
//! netsurgeon-OPERATION              the head: cluster, holder, epoch, summary
//! netsurgeon-OPERATION-plan-00000   the plan, in parts; immutable
//! netsurgeon-OPERATION-records-00   the states of steps, by name, as JSON; the head has the number of these ConfigMaps
//! ```
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

mod objects;
mod shard;

use async_trait::async_trait;
use serde_json::Value;

use self::objects::{Head, Kept, Role, config_maps, named, place, uid_of};
use self::shard::{Fence, RecordChange, Shard, may_have_happened};
use super::{Ledger, Part, PartChange, Parts, ReadLedger, SeePart};
use crate::kube_api::{Cluster, ClusterError};
use crate::operation::journal::{Listed, Summary};
use crate::operation::{LeaseHolder, OperationError, StepId};
use crate::store::{Action, Entry, Key, KeyRange, ReadStore, Revision, StoreError, Transaction, Visitor};

/// Number of steps recorded in one ConfigMap. A record has about 300 bytes, or more if it contains a previous state and a result.
/// The limit for a ConfigMap is 1 MiB.
const STEPS_IN_ONE: usize = 400;
/// Maximum number of ConfigMaps with records, for any number of steps.
const MOST_SHARDS: usize = 64;
/// Maximum number of attempts to create an object or to take over an operation.
const MOST_ATTEMPTS: u32 = 5;

/// The record of one operation in the cluster, read-only.
pub struct ClusterRecord {
    api: Cluster,
    head: Head,
}

/// The record of one operation in the cluster, for the process that runs the operation.
pub struct ClusterLedger {
    record: ClusterRecord,
    uid: String,
    fence: Fence,
    summary: Shard,
    shards: Vec<Shard>,
}

impl ClusterRecord {
    /// Reads the head of an operation's record; returns `None` if the operation has no record.
    pub async fn find(api: &Cluster, operation: &str) -> Result<Option<Self>, OperationError> {
        let Some(object) = api.get(&named(&objects::head_name(operation))).await? else { return Ok(None) };
        Ok(Some(Self { api: api.clone(), head: Kept::of(object)?.head()? }))
    }

    /// Returns the operations with a record in this cluster, ordered by id.
    pub async fn list(api: &Cluster) -> Result<Vec<Listed>, OperationError> {
        let mut listed = Vec::new();
        for head in heads(api).await? {
            let Head { cluster, operation, .. } = head.head()?;
            let Some(stored) = head.records.get(SUMMARY) else { continue };
            let summary = serde_json::from_str::<Summary>(stored.value.get());
            let what = place(&objects::head_name(&operation));
            let summary =
                summary.map_err(|error| OperationError::Journal { what, reason: error.to_string() })?;
            listed.push(Listed { cluster, operation, summary });
        }
        listed.sort_by(|one, other| (&one.cluster, &one.operation).cmp(&(&other.cluster, &other.operation)));
        Ok(listed)
    }

    /// Returns the name of the ConfigMap that stores a part.
    fn name_of(&self, part: &Part) -> String {
        let operation = &self.head.operation;
        match part {
            Part::Summary => objects::head_name(operation),
            Part::Plan(number) => objects::plan_name(operation, *number),
            part => objects::shard_name(operation, self.shard_of(part)),
        }
    }

    /// Returns the number of the ConfigMap that stores the record of a part.
    fn shard_of(&self, part: &Part) -> usize {
        // FNV-1a: stable across builds and versions.
        let hash = record_name(part).bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let shards = u64::try_from(self.head.shards.max(1)).unwrap_or(1);
        hash.checked_rem(shards).and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
    }

    async fn plan(&self, number: usize) -> Result<Option<(Vec<u8>, Revision)>, OperationError> {
        let found = self.api.get(&named(&objects::plan_name(&self.head.operation, number))).await?;
        found.map(|object| Ok((objects::plan_of(&object)?, Revision(0)))).transpose()
    }

    async fn kept(&self, name: &str) -> Result<Option<Kept>, OperationError> {
        self.api.get(&named(name)).await?.map(Kept::of).transpose()
    }
}

/// Name of the summary in the records of the head.
const SUMMARY: &str = "summary";

/// Returns the name of a part in the records of its ConfigMap.
fn record_name(part: &Part) -> String {
    match part {
        Part::Summary => SUMMARY.to_string(),
        Part::Plan(number) => format!("plan/{number:05}"),
        Part::Amendment(number) => format!("{AMENDED}{number:05}"),
        Part::Step(step) => format!("{STEPS}{step}"),
        Part::Repaired(subject) => format!("repaired/{subject}"),
    }
}

const AMENDED: &str = "amended/";
const STEPS: &str = "steps/";

/// Passes each record of a kind to `see`, ordered by name.
fn see_all(all: &[Kept], parts: Parts, see: SeePart<'_>) {
    let mut found = Vec::new();
    for (name, stored) in all.iter().flat_map(|kept| &kept.records) {
        let part = match parts {
            Parts::Amendments => name.strip_prefix(AMENDED).and_then(|n| n.parse().ok()).map(Part::Amendment),
            Parts::Steps => name.strip_prefix(STEPS).map(|step| Part::Step(StepId(step.to_string()))),
        };
        found.extend(part.map(|part| (part, stored)));
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (part, stored) in found {
        see(part, stored.value.get().as_bytes(), stored.revision);
    }
}

fn value_of(kept: &Kept, part: &Part) -> Option<(Vec<u8>, Revision)> {
    let stored = kept.records.get(&record_name(part))?;
    Some((stored.value.get().as_bytes().to_vec(), stored.revision))
}

#[async_trait]
impl ReadLedger for ClusterRecord {
    fn operation(&self) -> (&str, &str) {
        (&self.head.cluster, &self.head.operation)
    }

    fn place(&self, part: &Part) -> String {
        format!("{part} in {}", place(&self.name_of(part)))
    }

    async fn read(&self, part: &Part) -> Result<Option<(Vec<u8>, Revision)>, OperationError> {
        if let Part::Plan(number) = part {
            return self.plan(*number).await;
        }
        Ok(self.kept(&self.name_of(part)).await?.and_then(|kept| value_of(&kept, part)))
    }

    async fn read_all(&self, parts: Parts, see: SeePart<'_>) -> Result<(), OperationError> {
        let selector = objects::selector(Some(&self.head.operation), Role::Records);
        let found = self.api.list(&config_maps(), Some(&selector)).await?;
        // The items of a list have no `kind` or `apiVersion`.
        let all = found.into_iter().map(Kept::of).collect::<Result<Vec<_>, _>>()?;
        see_all(&all, parts, see);
        Ok(())
    }
}

async fn heads(api: &Cluster) -> Result<Vec<Kept>, OperationError> {
    let found = api.list(&config_maps(), Some(&objects::selector(None, Role::Head))).await?;
    found.into_iter().map(Kept::of).collect()
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
        let head = made(api, &objects::head(cluster, by, shards)).await?;
        let kept = Kept::of(head)?;
        if kept.head()?.holder != *by {
            let what = place(&objects::head_name(&by.operation));
            return Err(OperationError::Journal {
                what,
                reason: "another operation has this id".to_string(),
            });
        }
        for number in 0..shards {
            made(api, &objects::shard(&by.operation, number, kept.uid())).await?;
        }
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

    fn of(api: &Cluster, kept: Kept) -> Result<Self, OperationError> {
        let (head, uid) = (kept.head()?, kept.uid().to_string());
        let fence = Fence::new(kept.epoch);
        fence.saw(&kept);
        let summary = Shard::new(api, objects::head_name(&head.operation), Some(kept));
        let shard = |number| Shard::new(api, objects::shard_name(&head.operation, number), None);
        let shards = (0..head.shards).map(shard).collect();
        Ok(Self { record: ClusterRecord { api: api.clone(), head }, uid, fence, summary, shards })
    }

    async fn take_shards(&self) -> Result<(), OperationError> {
        for shard in &self.shards {
            shard.take(&self.fence).await?;
        }
        Ok(())
    }

    /// Returns the number of the ConfigMap that stores the record of a part; `None` if the head stores it.
    fn index_of(&self, part: &Part) -> Option<usize> {
        (*part != Part::Summary).then(|| self.record.shard_of(part))
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
        let what = place(objects::name_of(&manifest));
        Err(OperationError::Journal { what, reason: "it contains a part of another plan".to_string() })
    }

    /// Removes the record of an operation that has ended, and returns the number of removed ConfigMaps. The caller must hold the
    /// cluster's Lease.
    ///
    /// Deletes the head first, unless the head has changed since it was read. Without its head, the operation does not exist. If
    /// the call is interrupted, Kubernetes garbage collection deletes the other ConfigMaps, because their owner is deleted.
    pub async fn remove(api: &Cluster, operation: &str) -> Result<usize, OperationError> {
        let name = objects::head_name(operation);
        let Some(head) = api.get(&named(&name)).await? else { return Ok(0) };
        Self::remove_whole(api, &Kept::of(head)?).await
    }

    async fn remove_whole(api: &Cluster, head: &Kept) -> Result<usize, OperationError> {
        let operation = head.head()?.operation;
        api.delete_unchanged(&named(&objects::head_name(&operation)), head.object()).await?;
        let mut removed: usize = 1;
        for role in [Role::Records, Role::Plan] {
            for object in api.list(&config_maps(), Some(&objects::selector(Some(&operation), role))).await? {
                api.delete(&named(objects::name_of(&object)), Some(uid_of(&object))).await?;
                removed = removed.saturating_add(1);
            }
        }
        Ok(removed)
    }

    /// Removes the remains of operations that were interrupted at their start. If a head has changed since it was read, its
    /// operation is starting now and stays unchanged.
    async fn sweep(api: &Cluster) -> Result<(), OperationError> {
        for head in heads(api).await?.iter().filter(|head| !head.records.contains_key(SUMMARY)) {
            match Self::remove_whole(api, head).await {
                Ok(_) => {}
                Err(OperationError::Cluster(error)) if matches!(*error, ClusterError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
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
        if let Some(found) = api.get(&named(name)).await? {
            return Ok(found);
        }
    }
    Err(OperationError::Contended { what: place(name), attempts: MOST_ATTEMPTS })
}

/// Sets `by` as the holder of an operation, with the next epoch, and returns the head of the operation.
async fn taken(api: &Cluster, by: &LeaseHolder) -> Result<Kept, OperationError> {
    let name = objects::head_name(&by.operation);
    let gone =
        || OperationError::Journal { what: place(&name), reason: "there is no such operation".to_string() };
    let mut tried = None;
    for _ in 0..MOST_ATTEMPTS {
        let found = Kept::of(api.get(&named(&name)).await?.ok_or_else(gone)?)?;
        // An earlier attempt succeeded, but its answer was lost.
        if tried == Some(found.epoch) && found.head()?.holder == *by {
            return Ok(found);
        }
        let epoch = found.epoch.saturating_add(1);
        match api.replace(&objects::held_by(found.with(epoch, &found.records), by)).await {
            Ok(object) => return Kept::of(object),
            Err(error) if may_have_happened(&error) => tried = Some(epoch),
            Err(error) => return Err(error.into()),
        }
    }
    Err(OperationError::Contended { what: place(&name), attempts: MOST_ATTEMPTS })
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
            revision = self.shard(index).write(changes, &self.fence).await?;
        }
        Ok(revision)
    }

    fn store(&self) -> &dyn ReadStore {
        &NoStore
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

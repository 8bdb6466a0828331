//! The record of one operation in the cluster, read-only, and the list of all operations.

use std::collections::HashSet;

use async_trait::async_trait;
use serde_json::Value;

use super::objects::{
    self, Head, NAMESPACE, NAMESPACES, Placement, RecordMap, Role, config_maps, named, place,
};
use crate::kube_api::{Cluster, ClusterError};
use crate::operation::journal::{Listed, Listing, Summary};
use crate::operation::ledger::{Part, Parts, ReadLedger, SeePart};
use crate::operation::{OperationError, StepId};
use crate::store::Revision;

/// The record of one operation in the cluster, read-only.
pub struct ClusterRecord {
    pub(super) api: Cluster,
    pub(super) head: Head,
}

impl ClusterRecord {
    /// Reads the head of an operation's record; returns `None` if the operation has no record.
    pub async fn find(api: &Cluster, operation: &str) -> Result<Option<Self>, OperationError> {
        let Some(kept) = found(api, operation).await? else { return Ok(None) };
        Ok(Some(Self { api: api.clone(), head: kept.head()? }))
    }

    /// Returns the operations with a record in this cluster, ordered by id. Skips records that cannot be read.
    pub async fn list(api: &Cluster) -> Result<Vec<Listed>, OperationError> {
        Ok(Self::listing(api).await?.operations)
    }

    /// Returns the operations with a record in this cluster, ordered by id, and the records that cannot be read.
    pub async fn listing(api: &Cluster) -> Result<Listing, OperationError> {
        let mut listing = Listing::default();
        for namespace in NAMESPACES {
            let heads = match heads(api, namespace).await {
                Ok(heads) => heads,
                // A user without permissions there has only operations in the other namespace.
                Err(error @ ClusterError::Forbidden { .. }) if namespace != NAMESPACE => {
                    let text = format!(
                        "operations that an earlier version recorded in `{namespace}` are not listed: {error}"
                    );
                    listing.unreadable.push(text);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for object in heads {
                let remedy = format!(
                    "to delete it: `kubectl -n {namespace} delete configmap {}`",
                    objects::name_of(&object)
                );
                match listed(object) {
                    Ok(found) => listing.operations.extend(found),
                    Err(error) => listing.unreadable.push(format!("a record is skipped: {error}; {remedy}")),
                }
            }
        }
        listing
            .operations
            .sort_by(|one, other| (&one.cluster, &one.operation).cmp(&(&other.cluster, &other.operation)));
        Ok(listing)
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

    /// Returns the number of the ConfigMap that stores the record of a part, with [`Placement::Hash`].
    pub(super) fn shard_of(&self, part: &Part) -> usize {
        // FNV-1a: stable across builds and versions.
        let hash = record_name(part).bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let shards = u64::try_from(self.head.shards.max(1)).unwrap_or(1);
        hash.checked_rem(shards).and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
    }

    pub(super) async fn plan(&self, number: usize) -> Result<Option<(Vec<u8>, Revision)>, OperationError> {
        let name = objects::plan_name(&self.head.operation, number);
        let found = self.api.get(&named(&self.head.namespace, &name)).await?;
        found.map(|object| Ok((objects::plan_of(&object)?, Revision(0)))).transpose()
    }

    async fn kept(&self, name: &str) -> Result<Option<RecordMap>, OperationError> {
        self.api.get(&named(&self.head.namespace, name)).await?.map(RecordMap::of).transpose()
    }

    /// Reads all ConfigMaps of records. Fails if one of them is missing, because its steps would count as never started.
    async fn all_records(&self) -> Result<Vec<RecordMap>, OperationError> {
        let Head { operation, namespace, shards, .. } = &self.head;
        let selector = objects::selector(Some(operation), Role::Records);
        let found = self.api.list(&config_maps(namespace), Some(&selector)).await?;
        let names: HashSet<&str> = found.iter().map(objects::name_of).collect();
        let mut all = (0..*shards).map(|number| objects::shard_name(operation, number));
        if let Some(missing) = all.find(|name| !names.contains(name.as_str())) {
            return Err(objects::missing(namespace, &missing));
        }
        // The items of a list have no `kind` or `apiVersion`.
        found.into_iter().map(RecordMap::of).collect()
    }
}

/// Returns the head of an operation's record; `None` if there is none.
pub(super) async fn found(api: &Cluster, operation: &str) -> Result<Option<RecordMap>, OperationError> {
    let name = objects::head_name(operation);
    for namespace in NAMESPACES {
        match api.get(&named(namespace, &name)).await {
            Ok(None) => {}
            Ok(Some(object)) => return RecordMap::of(object).map(Some),
            Err(ClusterError::Forbidden { .. }) if namespace != NAMESPACE => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Returns the operation of a head; `None` if it was interrupted at its start.
fn listed(object: Value) -> Result<Option<Listed>, OperationError> {
    let kept = RecordMap::of(object)?;
    let Head { cluster, operation, namespace, .. } = kept.head()?;
    let Some(stored) = kept.records.get(SUMMARY) else { return Ok(None) };
    let summary = serde_json::from_str::<Summary>(stored.value.get());
    let what = place(&namespace, &objects::head_name(&operation));
    let summary = summary.map_err(|error| OperationError::Journal { what, reason: error.to_string() })?;
    Ok(Some(Listed { cluster, operation, summary }))
}

/// Name of the summary in the records of the head.
pub(super) const SUMMARY: &str = "summary";

/// Returns the name of a part in the records of its ConfigMap.
pub(super) fn record_name(part: &Part) -> String {
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
pub(super) fn see_all(all: &[RecordMap], parts: Parts, see: SeePart<'_>) {
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

pub(super) fn value_of(kept: &RecordMap, part: &Part) -> Option<(Vec<u8>, Revision)> {
    let stored = kept.records.get(&record_name(part))?;
    Some((stored.value.get().as_bytes().to_vec(), stored.revision))
}

#[async_trait]
impl ReadLedger for ClusterRecord {
    fn operation(&self) -> (&str, &str) {
        (&self.head.cluster, &self.head.operation)
    }

    fn place(&self, part: &Part) -> String {
        let is_record = !matches!(part, Part::Summary | Part::Plan(_));
        let name = match self.head.placement {
            Placement::Order if is_record => objects::head_name(&self.head.operation) + "-records-*",
            _ => self.name_of(part),
        };
        format!("{part} in {}", place(&self.head.namespace, &name))
    }

    async fn read(&self, part: &Part) -> Result<Option<(Vec<u8>, Revision)>, OperationError> {
        if let Part::Plan(number) = part {
            return self.plan(*number).await;
        }
        if *part == Part::Summary || self.head.placement == Placement::Hash {
            return Ok(self.kept(&self.name_of(part)).await?.and_then(|kept| value_of(&kept, part)));
        }
        Ok(self.all_records().await?.iter().find_map(|kept| value_of(kept, part)))
    }

    async fn read_all(&self, parts: Parts, see: SeePart<'_>) -> Result<(), OperationError> {
        see_all(&self.all_records().await?, parts, see);
        Ok(())
    }
}

pub(super) async fn heads(api: &Cluster, namespace: &str) -> Result<Vec<Value>, ClusterError> {
    api.list(&config_maps(namespace), Some(&objects::selector(None, Role::Head))).await
}

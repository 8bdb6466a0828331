//! Marks of operations that have not ended, as annotations of the Lease `kube-system/netsurgeon`.
//!
//! An operation can soak for days without a process. Then no process holds the Lease, and only its record shows that it has not ended.
//! Clients without access to etcd cannot read a record in etcd, and clients of etcd can lack permission for records in the cluster.
//! Both can read this Lease. So each operation marks itself there before its first step, and removes its mark when it has ended.
//!
//! A mark can be stale: its process was killed between the end of the operation and the removal of the mark, or no API server
//! answered. A client that can read the ledger of the mark checks this, and removes a stale mark.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cluster_lock::{NAME, NAMESPACE};
use super::{Status, Summary};
use crate::kube_api::{Cluster, ClusterError, ObjectRef};

/// Prefix of the annotations; the rest is the id of an operation.
const PREFIX: &str = "operations.netsurgeon.io/";
/// Pairs of kinds that can be under way at the same time on one cluster. A rewrite of a RangeAllocation changes no address, and a
/// cutover changes no object that it reads. A renumbering excludes all other operations.
const BESIDE: &[(&str, &str)] = &[("dns-cutover", REWRITE)];
/// The kind of a rewrite of a RangeAllocation.
const REWRITE: &str = "rewrite-range";

/// The ledger that records an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LedgerKind {
    /// etcd.
    Etcd,
    /// ConfigMaps of the cluster.
    Cluster,
}

/// An operation that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Id of the operation.
    #[serde(skip)]
    pub operation: String,
    /// OperationKind of the operation.
    pub kind: String,
    /// Where the operation is recorded.
    pub ledger: LedgerKind,
}

impl Mark {
    /// Returns the marks of a cluster, ordered by operation. Skips annotations that are not valid.
    pub async fn list(api: &Cluster) -> Result<Vec<Self>, ClusterError> {
        let Some(lease) = api.get(&lease()).await? else { return Ok(Vec::new()) };
        let annotations = lease.pointer("/metadata/annotations").cloned().unwrap_or_default();
        let annotations: BTreeMap<String, Value> = serde_json::from_value(annotations).unwrap_or_default();
        let mark = |(key, value): (String, Value)| {
            let mark: Self = serde_json::from_str(value.as_str()?).ok()?;
            Some(Self { operation: key.strip_prefix(PREFIX)?.to_string(), ..mark })
        };
        Ok(annotations.into_iter().filter_map(mark).collect())
    }

    /// Writes this mark. The Lease must exist, so the caller must have acquired it.
    pub async fn put(&self, api: &Cluster) -> Result<(), ClusterError> {
        let text = serde_json::to_string(self).unwrap_or_default();
        annotate(api, &self.operation, Value::from(text)).await
    }

    /// Removes the mark of an operation, if there is one.
    pub async fn remove(api: &Cluster, operation: &str) -> Result<(), ClusterError> {
        match annotate(api, operation, Value::Null).await {
            Err(ClusterError::NotFound { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Returns whether an operation of a kind can start while this operation has not ended.
    pub fn allows(&self, kind: &str) -> bool {
        let is_pair = |(one, other): &(&str, &str)| {
            (*one == kind && *other == self.kind) || (*other == kind && *one == self.kind)
        };
        BESIDE.iter().any(is_pair)
    }

    /// Returns the command that removes this mark by hand.
    pub fn removal(&self) -> String {
        format!("kubectl -n {NAMESPACE} annotate lease {NAME} {PREFIX}{}-", self.operation)
    }
}

impl Summary {
    /// Returns whether the operation must be resumed or rolled back before another operation can start. A rewrite that cannot be
    /// rolled back is completely in effect, so it blocks no other operation.
    pub fn is_under_way(&self) -> bool {
        let is_in_effect = self.kind == REWRITE && self.status == Status::Stuck;
        !self.has_ended() && !is_in_effect
    }
}

fn lease() -> ObjectRef<'static> {
    ObjectRef::new("coordination.k8s.io/v1", "Lease", Some(NAMESPACE), NAME)
}

async fn annotate(api: &Cluster, operation: &str, value: Value) -> Result<(), ClusterError> {
    let key = format!("{PREFIX}{operation}");
    api.merge(&lease(), &json!({"metadata": {"annotations": {key: value}}})).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrite_that_cannot_be_rolled_back_is_not_under_way() {
        let of = |kind: &str, status| Summary { kind: kind.into(), status, ..Summary::default() };
        assert!(!of("rewrite-range", Status::Stuck).is_under_way());
        assert!(of("rewrite-range", Status::Stopped).is_under_way());
        assert!(of("renumber", Status::Stuck).is_under_way());
        assert!(!of("renumber", Status::Done).is_under_way());
    }

    #[test]
    fn kinds_exclude_each_other_both_ways() {
        let of = |kind: &str| Mark { operation: "one".into(), kind: kind.into(), ledger: LedgerKind::Etcd };
        for (one, other, allowed) in [
            ("renumber", "dns-cutover", false),
            ("renumber", "rewrite-range", false),
            ("renumber", "renumber", false),
            ("dns-cutover", "dns-cutover", false),
            ("dns-cutover", "rewrite-range", true),
            ("unknown", "renumber", false),
        ] {
            assert_eq!((of(one).allows(other), of(other).allows(one)), (allowed, allowed), "{one} {other}");
        }
    }
}

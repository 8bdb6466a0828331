//! What a copy is like after an activation has moved it. The object of the source is then quiet, because netsurgeon made it quiet: its
//! owner still wants it active.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ledger::InForce;
use super::workload::replicas;
use crate::inventory::text;
use crate::mirror::wish;

/// A copy that an activation has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedCopy {
    /// The number of replicas of a workload; `None` for a `CronJob`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}

impl MovedCopy {
    /// Changes a passive copy to the active one.
    pub(in crate::mirror) fn awaken(self, copy: &mut Value) {
        match self.replicas {
            Some(replicas) => {
                wish::set(copy, ("replicas", replicas.into()), (wish::REPLICAS, replicas.to_string()));
            }
            None => wish::set(copy, ("suspend", false.into()), (wish::SUSPEND, "false".to_string())),
        }
    }
}

/// The copies that activations have moved, by the uids of the copies.
#[derive(Debug, Clone, Default)]
pub struct MovedCopies(BTreeMap<String, (MovedCopy, bool)>);

impl MovedCopies {
    /// Returns the copies of activations in force.
    pub fn new(in_force: &[InForce]) -> Self {
        let of = |one: &InForce| {
            let moved = MovedCopy { replicas: one.entry.replicas };
            (one.entry.mirror_uid.clone(), (moved, one.is_active))
        };
        Self(in_force.iter().map(of).collect())
    }

    /// Returns what an activation has made of an object of the mirror; `None` if it has not moved the object.
    pub(in crate::mirror) fn of(&self, kind: &str, live: &Value) -> Option<MovedCopy> {
        let (moved, is_active) = self.0.get(text(live, "/metadata/uid")).copied()?;
        let is_awake = match kind {
            "batch/cronjobs" => live.pointer("/spec/suspend") != Some(&Value::Bool(true)),
            _ => replicas(live) > 0,
        };
        // The record of a step that is under way does not say whether the copy is active.
        (is_active || is_awake).then_some(moved)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn moved_copy_has_what_the_owner_wants() {
        let mut cron_job = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"suspend": true}});
        MovedCopy { replicas: None }.awaken(&mut cron_job);
        assert_eq!(cron_job["spec"]["suspend"], false);
        assert_eq!(
            cron_job["metadata"]["annotations"],
            json!({"a": "b", "mirror.netsurgeon.io/suspend": "false"})
        );
        let mut workload = json!({"metadata": {}, "spec": {"replicas": 0}});
        MovedCopy { replicas: Some(3) }.awaken(&mut workload);
        assert_eq!(workload["spec"]["replicas"], 3);
        assert_eq!(workload["metadata"]["annotations"], json!({(wish::REPLICAS): "3"}));
    }
}

//! What the recorded mirror operations of a cluster have created. Only these objects belong to netsurgeon: a label or an annotation
//! can be copied.

use std::collections::BTreeMap;

use serde_json::Value;

use super::work::{Entry, KIND, Mirror, Reference};
use crate::kube_api::Cluster;
use crate::operation::{ClusterRecord, State};
use crate::session::{Failure, Recorded};

/// The objects that mirror operations created in a cluster and have not removed, by uid: each in the source, and in the mirror, where
/// its namespace can have another name.
pub type Created = BTreeMap<String, (Reference, Reference)>;

/// Returns the objects that mirror operations created in a cluster and have not removed. The second value contains the operations
/// whose records cannot be read, each with the reason.
pub async fn created(mirror: &Cluster) -> Result<(Created, Vec<(String, String)>), Failure> {
    let id = mirror.identity().await?;
    let (mut uids, mut unread) = (Created::new(), Vec::new());
    for listed in ClusterRecord::list(mirror).await? {
        if listed.cluster != id || listed.summary.kind != KIND {
            continue;
        }
        match Recorded::<Mirror>::read_of(mirror, &listed.operation, &id).await {
            Ok(recorded) => uids.extend(of_operation(&recorded)),
            Err(failure) => unread.push((listed.operation, failure.to_string())),
        }
    }
    Ok((uids, unread))
}

pub(super) fn of_operation(recorded: &Recorded<Mirror>) -> Vec<(String, (Reference, Reference))> {
    let made = |entry: &Entry| {
        let record = recorded.journal.find(&entry.step())?;
        let made = record.made.as_deref()?;
        let created = created_uid(made).filter(|_| record.state != State::UndoDone);
        Some((
            created.or_else(|| recreated_uid(made))?,
            (entry.object.clone(), recorded.plan.work.target(&entry.object)),
        ))
    };
    recorded.plan.work.changes().filter_map(made).collect()
}

/// Returns the uid in the result of a step that created an object.
pub(super) fn created_uid(made: &Value) -> Option<String> {
    (made["created"] == true).then(|| made["uid"].as_str().map(str::to_string)).flatten()
}

/// Returns the uid in the result of a rollback that created a deleted object again.
pub(super) fn recreated_uid(made: &Value) -> Option<String> {
    made["recreated"].as_str().map(str::to_string)
}

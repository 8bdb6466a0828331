//! What the recorded mirror operations of a cluster have created. Only these objects belong to netsurgeon: a label or an annotation
//! can be copied.

use std::collections::BTreeSet;

use serde_json::Value;

use super::work::{KIND, Mirror};
use crate::kube_api::Cluster;
use crate::operation::{ClusterRecord, State};
use crate::session::{Failure, Recorded};

/// Returns the uids of the objects that mirror operations created in a cluster and have not deleted. The second value contains the
/// operations whose records cannot be read, each with the reason.
pub async fn created(mirror: &Cluster) -> Result<(BTreeSet<String>, Vec<(String, String)>), Failure> {
    let id = mirror.identity().await?;
    let (mut uids, mut unread) = (BTreeSet::new(), Vec::new());
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

pub(super) fn of_operation(recorded: &Recorded<Mirror>) -> Vec<String> {
    let records = recorded.journal.records();
    let in_force = records.into_iter().filter(|(_, record)| record.state != State::UndoDone);
    in_force.filter_map(|(_, record)| created_uid(record.made.as_deref()?)).collect()
}

/// Returns the uid in the result of a step that created an object.
pub(super) fn created_uid(made: &Value) -> Option<String> {
    (made["created"] == true).then(|| made["uid"].as_str().map(str::to_string)).flatten()
}

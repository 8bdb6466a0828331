//! The copies of mirror operations, and which of them an activation has moved, from the records in the mirror.

use std::collections::BTreeSet;

use serde_json::Value;

use super::work::{Activation, Entry, KIND};
use crate::kube_api::Cluster;
use crate::mirror::ledger::{created, of_operation};
use crate::mirror::{Mirror, Reference};
use crate::operation::{ClusterRecord, Record, State, Status};
use crate::session::{Failure, Recorded};

/// A copy that a mirror operation created.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Copied {
    /// The object of the source.
    pub object: Reference,
    /// The copy. Its namespace can have another name.
    pub copy: Reference,
    /// Uid of the copy.
    pub mirror_uid: String,
}

/// A copy that an activation moves or has moved, and has not moved back.
#[derive(Debug, Clone, PartialEq)]
pub struct InForce {
    /// Id of the activation.
    pub operation: String,
    /// Status of the activation.
    pub status: Status,
    /// The copy, as the activation planned it.
    pub entry: Entry,
    /// Whether the copy is active in the mirror.
    pub is_active: bool,
}

/// Returns the copies of one or more kinds that mirror operations created and have not deleted. The second value contains the
/// operations whose records cannot be read, each with the reason.
pub(super) async fn copied(
    mirror: &Cluster,
    kinds: &[&str],
) -> Result<(Vec<Copied>, Vec<(String, String)>), Failure> {
    let (created, unread) = created(mirror).await?;
    let of_kind = created.into_iter().filter(|(_, (object, _))| kinds.contains(&object.resource.as_str()));
    let mut found: Vec<Copied> =
        of_kind.map(|(mirror_uid, (object, copy))| Copied { object, copy, mirror_uid }).collect();
    found.sort_by(|one, other| one.object.cmp(&other.object));
    Ok((found, unread))
}

/// Returns the copies that activations have moved, or may have moved, and have not moved back.
pub async fn in_force(mirror: &Cluster) -> Result<Vec<InForce>, Failure> {
    let id = mirror.identity().await?;
    let mut found = Vec::new();
    for listed in ClusterRecord::list(mirror).await? {
        // A journal that is being removed lacks parts. It is removed only after a rollback.
        let is_over = matches!(listed.summary.status, Status::RolledBack | Status::Removing);
        if listed.cluster != id || listed.summary.kind != KIND || is_over {
            continue;
        }
        let recorded = Recorded::<Activation>::read_of(mirror, &listed.operation, &id).await?;
        for entry in recorded.plan.work.moves() {
            let Some(record) = recorded.journal.find(&entry.step()).filter(|record| may_apply(record)) else {
                continue;
            };
            found.push(InForce {
                operation: listed.operation.clone(),
                status: listed.summary.status,
                entry: entry.clone(),
                is_active: record.state == State::Done,
            });
        }
    }
    Ok(found)
}

/// Returns whether the copy of a step can be active. A step that failed has left its object in the source.
fn may_apply(record: &Record) -> bool {
    match record.state {
        State::Started | State::Done | State::UndoStarted => true,
        State::UndoFailed => record.made.as_deref().is_some_and(is_active),
        State::Failed | State::UndoDone | State::Reset => false,
    }
}

fn is_active(made: &Value) -> bool {
    made["active"] == true
}

/// Fails if an activation has moved a copy that this mirror operation created. The source does not run it then, so a teardown would
/// stop it everywhere.
pub(in crate::mirror) async fn refuse_active(
    mirror: &Cluster,
    recorded: &Recorded<Mirror>,
) -> Result<(), Failure> {
    let created: BTreeSet<String> = of_operation(recorded).into_iter().map(|(uid, _)| uid).collect();
    let found = in_force(mirror).await?;
    let Some(first) = found.iter().find(|one| created.contains(&one.entry.mirror_uid)) else { return Ok(()) };
    let (operation, object) = (&first.operation, &first.entry.object);
    let text = format!(
        "the activation `{operation}` has moved {object} to the mirror, so the source does not run it"
    );
    Err(Failure::refused(text).hint(format!(
        "move it back first: `netsurgeon mirror deactivate {operation} --mirror-context NAME`"
    )))
}

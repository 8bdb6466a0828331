//! Building blocks of steps: edits of single fields, and changes of whole objects.

use std::net::IpAddr;

use super::Action;
use crate::operation::{Fill, Generated, KeyChange, KeyEdit, Swap};
use crate::renumber::intention::Move;
use crate::store::Key;
use crate::wire::edit::Condition;
use crate::wire::objects::{ALLOCATOR, MANAGED_BY};
use crate::wire::{Field, FieldEdit, Value};

pub(super) fn text(text: &str) -> Value {
    Value::Text(text.to_string())
}

pub(super) fn one(address: IpAddr) -> Value {
    Value::Texts(vec![address.to_string()])
}

pub(super) fn bytes(data: &[u8]) -> Value {
    Value::Bytes(data.to_vec())
}

pub(super) fn inverse(edits: &[FieldEdit]) -> Vec<FieldEdit> {
    edits.iter().filter_map(FieldEdit::inverse).collect()
}

/// Returns the conditions for an IPAddress that belongs to this Service: the allocator's label, and the Service as parent. If an
/// IPAddress has another label, the repair loop recreates it (`syncService`, `repairip.go`, v1.36.3).
pub(super) fn owned_by(candidate: &Move) -> Vec<Condition> {
    owned_as(candidate, &candidate.name)
}

/// Returns the conditions for an IPAddress that belongs to the Service `parent` of the same namespace.
pub(super) fn owned_as(candidate: &Move, parent: &str) -> Vec<Condition> {
    vec![
        Condition::Holds(Field::label(MANAGED_BY), text(ALLOCATOR)),
        Condition::Holds(Field::parent_namespace(), text(&candidate.namespace)),
        Condition::Holds(Field::parent_name(), text(parent)),
    ]
}

/// Creates an object with a creation timestamp `ahead` seconds from now.
pub(super) fn create(key: Key, value: Vec<u8>, ahead: i64) -> KeyEdit {
    let uid = Fill { field: Field::uid(), with: Generated::FreshUid };
    let fill = [vec![uid], date(ahead)].concat();
    KeyEdit { key, change: KeyChange::Create { value, fill } }
}

pub(super) fn date(ahead: i64) -> Vec<Fill> {
    vec![Fill { field: Field::creation_timestamp(), with: Generated::Now { ahead } }]
}

/// Sets the creation timestamp of an object to `ahead` seconds from now. Fails if the object does not fulfil `require`.
pub(super) fn dated(key: Key, require: Vec<Condition>, ahead: i64) -> KeyEdit {
    KeyEdit { key, change: KeyChange::Edit { require, edits: Vec::new(), fill: date(ahead) } }
}

/// Makes an edit conditional: it is applied only if the conditions in `holds` are met. Otherwise the object belongs to another
/// client, and the edit does not change the object.
pub(super) fn only_if(holds: Vec<Condition>, edit: KeyEdit) -> KeyEdit {
    KeyEdit { key: edit.key, change: KeyChange::If { holds, change: Box::new(edit.change) } }
}

/// Deletes an object if the conditions hold.
pub(super) fn discard(key: Key, holds: Vec<Condition>) -> KeyEdit {
    only_if(holds, KeyEdit { key, change: KeyChange::Delete { require: Vec::new() } })
}

pub(super) fn swap(edits: Vec<KeyEdit>) -> Swap {
    Swap { edits, checks: Vec::new() }
}

pub(super) fn both(forward: Vec<KeyEdit>, backward: Vec<KeyEdit>) -> Action {
    Action::Swap { forward: swap(forward), backward: Some(swap(backward)) }
}

//! The words in which steps are written: edits of single fields, and changes of whole objects.

use std::net::IpAddr;

use crate::operation::{Action, Fill, Generated, KeyChange, KeyEdit, Swap};
use crate::store::Key;
use crate::wire::edit::Condition;
use crate::wire::objects::MANAGED_BY;
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

pub(super) fn managed_by(who: &str) -> Condition {
    Condition::Holds(Field::label(MANAGED_BY), text(who))
}

pub(super) fn fresh(ahead: i64) -> Vec<Fill> {
    vec![
        Fill { field: Field::uid(), with: Generated::FreshUid },
        Fill { field: Field::creation_timestamp(), with: Generated::Now { ahead } },
    ]
}

pub(super) fn create(key: Key, value: Vec<u8>, ahead: i64) -> KeyEdit {
    KeyEdit { key, change: KeyChange::Create { value, fill: fresh(ahead) } }
}

/// Changes who manages an IPAddress; `ahead` dates it as made anew, that far ahead of now.
pub(super) fn relabel(key: Key, from: &str, to: &str, ahead: Option<i64>) -> KeyEdit {
    let edits = vec![FieldEdit::replace(Field::label(MANAGED_BY), text(from), text(to))];
    let fill = ahead.map(fresh).unwrap_or_default();
    KeyEdit { key, change: KeyChange::Edit { require: Vec::new(), edits, fill } }
}

/// Changes whose address an IPAddress is, as made anew, so far ahead of now.
pub(super) fn reparent(key: Key, from: &str, to: &str, ahead: i64) -> KeyEdit {
    let edits = vec![FieldEdit::replace(Field::parent_name(), text(from), text(to))];
    KeyEdit { key, change: KeyChange::Edit { require: Vec::new(), edits, fill: fresh(ahead) } }
}

pub(super) fn date(ahead: i64) -> Vec<Fill> {
    vec![Fill { field: Field::creation_timestamp(), with: Generated::Now { ahead } }]
}

pub(super) fn date_now(key: Key) -> KeyEdit {
    KeyEdit { key, change: KeyChange::Edit { require: Vec::new(), edits: Vec::new(), fill: date(0) } }
}

pub(super) fn swap(edits: Vec<KeyEdit>) -> Swap {
    Swap { edits, checks: Vec::new() }
}

pub(super) fn both(forward: Vec<KeyEdit>, backward: Vec<KeyEdit>) -> Action {
    Action::Swap { forward: swap(forward), backward: Some(swap(backward)) }
}

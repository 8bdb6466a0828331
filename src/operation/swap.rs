//! Turns a [`Swap`] into a transaction on the current store.

use super::step::{Fill, Generated, KeyChange, KeyCheck, KeyEdit};
use super::{Ambient, OperationError, Swap};
use crate::store::{Action, Change, Entry, Expected, Guard, Key, ReadStore, Transaction};
use crate::wire::edit::{self, Condition, FieldChange};
use crate::wire::{FieldEdit, Value};

/// Reads the keys of a swap and returns its transaction. A key that already has its target value becomes a precondition.
///
/// Fails if a key is not in the state that the swap expects.
pub(super) async fn prepare(
    store: &dyn ReadStore,
    swap: &Swap,
    ambient: &dyn Ambient,
) -> Result<Transaction, OperationError> {
    let mut transaction = Transaction::default();
    for key_edit in &swap.edits {
        let entry = store.get(&key_edit.key).await?;
        match change_of(key_edit, entry.as_ref(), ambient)? {
            Some(change) => transaction.changes.push(change),
            None => transaction.guards.push(guard_of(&key_edit.key, entry.as_ref())),
        }
    }
    for KeyCheck { key, conditions } in &swap.checks {
        let entry = store.get(key).await?.ok_or_else(|| OperationError::Gone { key: key.clone() })?;
        check_all(key, &entry, conditions)?;
        transaction.guards.push(guard_of(key, Some(&entry)));
    }
    Ok(transaction)
}

fn guard_of(key: &Key, entry: Option<&Entry>) -> Guard {
    match entry {
        Some(entry) => Guard::Unchanged(key.clone(), entry.mod_revision),
        None => Guard::Absent(key.clone()),
    }
}

fn change_of(
    key_edit: &KeyEdit,
    entry: Option<&Entry>,
    ambient: &dyn Ambient,
) -> Result<Option<Change>, OperationError> {
    let key = &key_edit.key;
    let gone = || OperationError::Gone { key: key.clone() };
    let changed = |source| OperationError::Changed { key: key.clone(), source };
    match (&key_edit.change, entry) {
        (KeyChange::If { holds, change }, Some(entry)) => {
            if holds.iter().any(|condition| edit::check(&entry.value, condition).is_err()) {
                return Ok(None);
            }
            change_of(&KeyEdit { key: key.clone(), change: (**change).clone() }, Some(entry), ambient)
        }
        (KeyChange::Create { .. }, Some(_)) => Err(OperationError::Exists { key: key.clone() }),
        (KeyChange::Create { value, fill }, None) => {
            let value = edit::apply(value, &filled(fill, ambient)).map_err(changed)?;
            Ok(Some(Change { key: key.clone(), expected: Expected::Absent, action: Action::Put(value) }))
        }
        (KeyChange::Edit { .. }, None) => Err(gone()),
        (KeyChange::Edit { require, edits, fill }, Some(entry)) => {
            check_all(key, entry, require)?;
            let edited = edit::apply(&entry.value, edits).map_err(changed)?;
            // If the edits do not change the object, no values are generated and the object stays unchanged. If there are no
            // edits, values are always generated.
            if edited == entry.value && (fill.is_empty() || !edits.is_empty()) {
                return Ok(None);
            }
            let value = edit::apply(&edited, &filled(fill, ambient)).map_err(changed)?;
            let expected = Expected::At(entry.mod_revision);
            Ok(Some(Change { key: key.clone(), expected, action: Action::Put(value) }))
        }
        (KeyChange::If { .. } | KeyChange::Delete { .. }, None) => Ok(None),
        (KeyChange::Delete { require }, Some(entry)) => {
            check_all(key, entry, require)?;
            let expected = Expected::At(entry.mod_revision);
            Ok(Some(Change { key: key.clone(), expected, action: Action::Delete }))
        }
    }
}

fn check_all(key: &Key, entry: &Entry, conditions: &[Condition]) -> Result<(), OperationError> {
    for condition in conditions {
        edit::check(&entry.value, condition)
            .map_err(|source| OperationError::Changed { key: key.clone(), source })?;
    }
    Ok(())
}

fn filled(fill: &[Fill], ambient: &dyn Ambient) -> Vec<FieldEdit> {
    fill.iter()
        .map(|fill| {
            let value = match fill.with {
                Generated::FreshUid => Value::Text(ambient.uid()),
                Generated::Now { ahead } => Value::Time(ambient.now().saturating_add(ahead)),
            };
            FieldEdit { field: fill.field.clone(), change: FieldChange::Set(value) }
        })
        .collect()
}

//! Generates random transactions for the property tests of the memory store and the overlay.

use std::future::Future;

use proptest::prelude::*;

use super::{Action, Change, Entry, Expected, Guard, Key, KeyRange, ReadStore, Revision, Transaction};

/// A planned change to one of a few keys, or a precondition on the key if `guard` is set. It expects the state that the key has
/// when the transaction is built. If `mistaken` is set, a change expects a random revision instead.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    key: u8,
    delete: bool,
    mistaken: bool,
    guard: bool,
    value: u8,
}

/// Generates sequences of transactions with a few changes each.
pub(super) fn histories() -> impl Strategy<Value = Vec<Vec<Wish>>> {
    let wish = (
        0..7_u8,
        prop::bool::weighted(0.35),
        prop::bool::weighted(0.05),
        prop::bool::weighted(0.2),
        any::<u8>(),
    )
        .prop_map(|(key, delete, mistaken, guard, value)| Wish { key, delete, mistaken, guard, value });
    prop::collection::vec(prop::collection::vec(wish, 0..5), 0..25)
}

/// Builds a transaction from planned changes and the current state of their keys.
pub(super) fn build(wishes: &[Wish], now: impl Fn(&Key) -> Option<Entry>) -> Transaction {
    let mut transaction = Transaction::default();
    for wish in wishes {
        let key = Key::from(format!("/k/{}", wish.key));
        let state = now(&key);
        let expected = match &state {
            _ if wish.mistaken => Expected::At(Revision(i64::from(wish.value).max(1))),
            Some(entry) => Expected::At(entry.mod_revision),
            None => Expected::Absent,
        };
        if wish.guard {
            transaction.guards.push(match &state {
                Some(entry) if wish.value % 2 == 0 => Guard::SameCreation(key, entry.create_revision),
                Some(entry) => Guard::Unchanged(key, entry.mod_revision),
                None => Guard::Absent(key),
            });
            continue;
        }
        let action = if wish.delete { Action::Delete } else { Action::Put(vec![wish.value]) };
        transaction.changes.push(Change { key, expected, action });
    }
    transaction
}

/// Returns all keys of a store at a revision.
pub(super) async fn everything(store: &dyn ReadStore, at: Revision) -> Vec<Entry> {
    store.entries(&[KeyRange::everything()], Some(at)).await.unwrap().1
}

/// Runs a future that does not wait for I/O or timers.
pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

//! Random transactions for the property tests of the stores that execute transactions themselves.

use std::future::Future;
use std::ops::ControlFlow;

use proptest::prelude::*;

use super::{
    Action, Change, Entry, Expected, Guard, Key, KeyRange, ReadStore, Record, Revision, Transaction,
};

/// A change of one of a few keys. Its expectation is set to the present state when the transaction is built, except in
/// those that are meant to fail.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    key: u8,
    delete: bool,
    mistaken: bool,
    guard: bool,
    value: u8,
}

/// Sequences of transactions, each of a few changes.
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

/// Builds the transaction from the present state of each key.
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

/// Everything at a revision.
pub(super) async fn everything(store: &dyn ReadStore, at: Revision) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut visitor = |record: Record<'_>| {
        entries.push(record.to_entry());
        ControlFlow::Continue(())
    };
    store.scan(&[KeyRange::everything()], Some(at), &mut visitor).await.unwrap();
    entries
}

/// Runs a future that has no external waits.
pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

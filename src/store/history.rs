//! Keeps all versions of keys in memory, in key order. The memory store and the overlay use this data structure.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::{CommitError, Entry, Key, KeyRange, Revision, Transaction};

/// The version of a key at one revision.
#[derive(Debug, Clone)]
pub(super) struct Version {
    /// Revision of this version.
    pub revision: Revision,
    /// Content of the key at this revision; `None` for a deletion. The content is shared, so a visitor needs no lock.
    pub entry: Option<Arc<Entry>>,
}

/// Every version of every key. Versions must be pushed in the order of their revisions.
#[derive(Debug, Default)]
pub(super) struct History {
    keys: BTreeMap<Key, Vec<Version>>,
}

impl History {
    /// Adds a version of a key, which must be newer than the earlier versions.
    pub(super) fn push(&mut self, key: Key, revision: Revision, entry: Option<Entry>) {
        self.keys.entry(key).or_default().push(Version { revision, entry: entry.map(Arc::new) });
    }

    /// Executes a transaction at the revision after `newest`, and returns this revision. If a condition does not hold, fails and
    /// changes nothing. `base` returns the entry of a key that has no version in this history. A key that the transaction creates
    /// gets the lease `lease`; 0 means no lease.
    pub(super) fn commit<'b>(
        &mut self,
        transaction: &Transaction,
        newest: Revision,
        base: impl Fn(&Key) -> Option<&'b Entry>,
        lease: i64,
    ) -> Result<Revision, CommitError> {
        if let Some(conflict) = transaction.first_conflict(|key| self.current(key, newest, &base)) {
            return Err(conflict);
        }
        let revision = Revision(newest.0.saturating_add(1));
        for change in &transaction.changes {
            let entry = change.outcome(self.current(&change.key, newest, &base), revision, lease);
            self.push(change.key.clone(), revision, entry);
        }
        Ok(revision)
    }

    fn current<'h, 'b: 'h>(
        &'h self,
        key: &Key,
        newest: Revision,
        base: &impl Fn(&Key) -> Option<&'b Entry>,
    ) -> Option<&'h Entry> {
        self.version_at(key, newest).map_or_else(|| base(key), |version| version.entry.as_deref())
    }

    /// Returns the version of a key at a revision; `None` if the key has no version up to this revision.
    pub(super) fn version_at(&self, key: &Key, at: Revision) -> Option<&Version> {
        self.keys.get(key).and_then(|versions| newest_until(versions, at))
    }

    /// Returns the keys of a range at a revision, in key order. Keys without a version at or before this revision are omitted.
    pub(super) fn range_at<'h>(
        &'h self,
        range: &'h KeyRange,
        at: Revision,
    ) -> impl Iterator<Item = (&'h Key, &'h Version)> {
        let empty = range.end().is_some_and(|end| end <= range.start());
        let end = match range.end() {
            Some(end) if !empty => Bound::Excluded(end),
            Some(_) => Bound::Included(range.start()),
            None => Bound::Unbounded,
        };
        self.keys
            .range::<Key, _>((Bound::Included(range.start()), end))
            .filter(move |_| !empty)
            .filter_map(move |(key, versions)| newest_until(versions, at).map(|version| (key, version)))
    }

    /// Drops the versions that no read at this revision or a later revision can return.
    pub(super) fn compact(&mut self, at: Revision) {
        self.keys.retain(|_, versions| {
            let superseded = versions.partition_point(|version| version.revision <= at).saturating_sub(1);
            versions.drain(..superseded);
            if versions.first().is_some_and(|first| first.revision <= at && first.entry.is_none()) {
                versions.remove(0);
            }
            !versions.is_empty()
        });
    }
}

fn newest_until(versions: &[Version], at: Revision) -> Option<&Version> {
    versions.iter().rev().find(|version| version.revision <= at)
}

//! etcd's use of the pages: bucket `key`, which holds every revision of every key, replayed into the keys
//! as they were at one revision.
//!
//! A revision's key is 17 bytes, or 18 for a removal: the main revision (8 bytes, big-endian), `_`, the
//! sub revision, and `t` for a removal (server/storage/mvcc/revision.go, v3.6.16; v3.4 has the same). Its
//! value is a `mvccpb.KeyValue`. Revisions ascend in the tree, so replaying them is one walk.
//!
//! An index entry holds offsets into the file, no copies: 24 bytes per key in scope.

use std::cmp::Ordering;

use super::bytes::{i64_big_endian_at, slice};
use super::fault::Fault;
use super::message::KeyValue;
use super::pages::{Leaf, Pages};
use crate::store::KeyRange;

/// The index is tidied (superseded revisions dropped) when it has doubled since the last time, and not
/// below this many entries: 1.5 MB.
const TIDY_FROM: usize = 65_536;

/// The bucket of revisions (server/storage/schema/bucket.go, v3.6.16).
const KEY_BUCKET: &[u8] = b"key";
/// The bucket with the compaction's progress.
const META_BUCKET: &[u8] = b"meta";

/// The revisions that a file can be read at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Extent {
    /// The revision compacted to, which can still be read; 0 if there was no compaction.
    pub compacted: i64,
    /// The newest revision.
    pub newest: i64,
    /// How many revisions the bucket holds, removals included.
    pub count: u64,
}

/// A key in the index.
#[derive(Debug, Clone, Copy)]
struct Located {
    /// Where its message begins, in bytes from the start of the file.
    offset: u64,
    length: u32,
    /// Where its key begins, from the start of the message.
    key_offset: u32,
    key_length: u32,
    removed: bool,
}

impl Located {
    fn key<'m>(&self, content: &'m [u8]) -> &'m [u8] {
        let start = self.offset.saturating_add(u64::from(self.key_offset));
        slice(content, start, u64::from(self.key_length)).unwrap_or_default()
    }
}

/// The live keys of some ranges at one revision, in key order.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: Vec<Located>,
}

impl Index {
    /// Bytes of memory for a key.
    #[cfg(test)]
    pub(super) const ENTRY_SIZE: usize = size_of::<Located>();

    /// Visits the keys of a range in order until the visitor says false.
    pub(super) fn visit<'m>(
        &self,
        content: &'m [u8],
        page_size: u64,
        range: &KeyRange,
        mut visitor: impl FnMut(&KeyValue<'m>) -> bool,
    ) -> Result<bool, Fault> {
        let start = range.start().as_bytes();
        let first = self.entries.partition_point(|entry| entry.key(content) < start);
        for entry in self.entries.get(first..).unwrap_or_default() {
            if !range.contains(entry.key(content)) {
                break;
            }
            let message = slice(content, entry.offset, u64::from(entry.length)).unwrap_or_default();
            match KeyValue::parse(message) {
                Ok(key_value) if !visitor(&key_value) => return Ok(false),
                Ok(_) => {}
                Err(reason) => {
                    let page = entry.offset.checked_div(page_size).unwrap_or_default();
                    return Fault::damaged(page, entry.offset, reason);
                }
            }
        }
        Ok(true)
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Sorts by key, keeps the last revision of each, drops removed keys. Entries come in the order of
    /// their revisions; what was tidied before is older than what came since, and a stable sort keeps it so.
    fn tidy(&mut self, content: &[u8]) {
        self.entries.sort_by(|a, b| a.key(content).cmp(b.key(content)));
        self.entries.reverse();
        self.entries.dedup_by(|later, kept| later.key(content).cmp(kept.key(content)) == Ordering::Equal);
        self.entries.reverse();
        self.entries.retain(|entry| !entry.removed);
    }
}

/// Replays the revisions until `at` (or all of them) into an index of the keys in these ranges. The extent
/// counts what was replayed.
pub(super) fn replay(
    content: &[u8],
    pages: Pages<'_>,
    ranges: &[KeyRange],
    at: Option<i64>,
) -> Result<(Index, Extent), Fault> {
    let Some(walk) = pages.bucket(KEY_BUCKET)? else {
        return Err(Fault::NotASnapshot("a bbolt database, but without etcd's bucket `key`".to_string()));
    };
    let mut index = Index::default();
    let mut extent = Extent { newest: 1, ..Extent::default() };
    let mut tidy_at = TIDY_FROM;
    for leaf in walk {
        let leaf = leaf?;
        let revision = BucketKey::parse(&leaf)?;
        if at.is_some_and(|at| revision.main > at) {
            break;
        }
        extent.newest = extent.newest.max(revision.main);
        extent.count = extent.count.saturating_add(1);
        if let Some(located) = locate(&leaf, revision, ranges)? {
            index.entries.push(located);
        }
        if index.entries.len() >= tidy_at {
            index.tidy(content);
            tidy_at = index.entries.len().saturating_mul(2).max(TIDY_FROM);
        }
    }
    index.tidy(content);
    index.entries.shrink_to_fit();
    let (finished, scheduled) = compactions(pages)?;
    // As etcd does when it starts (`store.restore`, server/storage/mvcc/kvstore.go, v3.6.16): a scheduled
    // compaction that is not finished may have removed some revisions already, and a compaction may have
    // removed the newest one.
    extent.compacted = finished.max(scheduled);
    if at.is_none() {
        extent.newest = extent.newest.max(extent.compacted);
    }
    Ok((index, extent))
}

/// Returns an index entry for a revision whose key is in the ranges.
fn locate(leaf: &Leaf<'_>, revision: BucketKey, ranges: &[KeyRange]) -> Result<Option<Located>, Fault> {
    // `etcdutl snapshot restore --bump-revision` puts a revision without a message
    // (`unsafeBumpBucketsRevision`, etcdutl/snapshot/v3_snapshot.go, v3.6.16).
    if leaf.value.is_empty() {
        return Ok(None);
    }
    let fault = |reason: &str| Fault::Damaged {
        page: leaf.page,
        offset: leaf.value_offset,
        reason: format!("revision {}: {reason}", revision.main),
    };
    let message = KeyValue::parse(leaf.value).map_err(fault)?;
    if message.key.is_empty() {
        return Err(fault("a record without a key"));
    }
    if !revision.removed && message.mod_revision != revision.main {
        return Err(fault(&format!("its record says revision {}", message.mod_revision)));
    }
    if !ranges.iter().any(|range| range.contains(message.key)) {
        return Ok(None);
    }
    let small = |number: usize| u32::try_from(number).map_err(|_| fault("a record of 4 GiB"));
    Ok(Some(Located {
        offset: leaf.value_offset,
        length: small(leaf.value.len())?,
        key_offset: small(message.key_offset)?,
        key_length: small(message.key.len())?,
        removed: revision.removed,
    }))
}

/// Returns the revisions of the last finished and the last scheduled compaction, 0 for none
/// (`UnsafeReadFinishedCompact`, server/storage/mvcc/store.go, v3.6.16).
fn compactions(pages: Pages<'_>) -> Result<(i64, i64), Fault> {
    let (mut finished, mut scheduled) = (0, 0);
    let Some(walk) = pages.bucket(META_BUCKET)? else { return Ok((finished, scheduled)) };
    for leaf in walk {
        let leaf = leaf?;
        let target = match leaf.key {
            b"finishedCompactRev" => &mut finished,
            b"scheduledCompactRev" => &mut scheduled,
            _ => continue,
        };
        match i64_big_endian_at(leaf.value, 0) {
            Some(revision) if revision >= 0 => *target = revision,
            _ => return Fault::damaged(leaf.page, leaf.value_offset, "a compaction without its revision"),
        }
    }
    Ok((finished, scheduled))
}

/// The key of a revision.
#[derive(Debug, Clone, Copy)]
struct BucketKey {
    main: i64,
    removed: bool,
}

impl BucketKey {
    fn parse(leaf: &Leaf<'_>) -> Result<Self, Fault> {
        let key = leaf.key;
        let removed = match (key.len(), key.last()) {
            (17, _) => Some(false),
            (18, Some(b't')) => Some(true),
            _ => None,
        };
        let main = i64_big_endian_at(key, 0).filter(|main| *main > 0);
        let sub = i64_big_endian_at(key, 9).filter(|sub| *sub >= 0);
        match (removed, main, sub) {
            (Some(removed), Some(main), Some(_)) if key.get(8) == Some(&b'_') && !leaf.is_bucket => {
                Ok(Self { main, removed })
            }
            _ => {
                let reason = format!("`{}` is no revision", key.escape_ascii());
                Fault::damaged(leaf.page, leaf.value_offset, reason)
            }
        }
    }
}

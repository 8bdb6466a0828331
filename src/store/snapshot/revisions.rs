//! Reads etcd's bucket `key`, which contains every revision of every key. Replays the revisions to get the keys at one revision.
//!
//! The key of a revision has 17 bytes, or 18 for a deletion: main revision (8 bytes, big-endian), `_`, sub revision, and `t` for
//! a deletion (server/storage/mvcc/revision.go, v3.6.16; v3.4 has the same format). The value is a `mvccpb.KeyValue`. The tree is
//! sorted by revision, so one walk replays all revisions.
//!
//! An index entry contains offsets into the file instead of copies. It takes 24 bytes per key in scope.

use std::cmp::Ordering;

use super::bytes::{i64_big_endian_at, slice};
use super::fault::SnapshotFault;
use super::message;
use super::pages::{Leaf, Pages};
use crate::store::{Key, KeyRange, Record};

/// Number of records that are prefetched together. With one or two kilobytes each, the records fit into the smallest CPU cache.
const AHEAD: usize = 16;
/// Size of a cache line, in bytes.
const CACHE_LINE: usize = 64;
/// Maximum number of bytes of a record to prefetch.
const NEAR: usize = 4096;

/// Prefetches records by reading one byte of every cache line. Records in key order are scattered over the file. Without
/// prefetching, parsing waits for each cache line separately. With prefetching, it waits for many cache lines concurrently, and a
/// survey takes 20 % less time.
fn bring_near<'m>(records: impl Iterator<Item = &'m [u8]>) {
    let mut sum = 0_u8;
    for record in records {
        for byte in record.iter().take(NEAR).step_by(CACHE_LINE) {
            sum = sum.wrapping_add(*byte);
        }
    }
    std::hint::black_box(sum);
}

/// Minimum number of index entries for a cleanup (about 3 MB). The cleanup drops superseded revisions. It runs when the index has
/// doubled since the last cleanup and has at least this many entries.
const TIDY_FROM: usize = 65_536;

/// Name of the bucket with the revisions (server/storage/schema/bucket.go, v3.6.16).
const KEY_BUCKET: &[u8] = b"key";
/// Name of the bucket with the progress of compactions.
const META_BUCKET: &[u8] = b"meta";

/// The range of readable revisions in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Extent {
    /// Revision of the last compaction, or 0 without a compaction. This revision is still readable.
    pub compacted: i64,
    /// The newest revision.
    pub newest: i64,
    /// Number of revisions in the bucket, including deletions.
    pub count: u64,
}

/// The position of a key's record in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Located {
    /// Offset of the message from the start of the file, in bytes.
    offset: u64,
    length: u32,
    /// Offset of the key from the start of the message, in bytes.
    key_offset: u32,
    key_length: u32,
    removed: bool,
}

impl Located {
    fn message<'m>(&self, content: &'m [u8]) -> &'m [u8] {
        slice(content, self.offset, u64::from(self.length)).unwrap_or_default()
    }

    fn key<'m>(&self, content: &'m [u8]) -> &'m [u8] {
        let start = self.offset.saturating_add(u64::from(self.key_offset));
        slice(content, start, u64::from(self.key_length)).unwrap_or_default()
    }
}

/// Index of the live keys in some ranges at one revision, in key order.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: Vec<Located>,
}

impl Index {
    /// Memory per key, in bytes.
    #[cfg(test)]
    pub(super) const ENTRY_SIZE: usize = size_of::<Located>();

    /// Returns the entries of a range.
    pub(super) fn stretch(&self, content: &[u8], range: &KeyRange) -> &[Located] {
        let before = |key: &Key| self.entries.partition_point(|entry| entry.key(content) < key.as_bytes());
        let (first, end) = (before(range.start()), range.end().map_or(self.entries.len(), before));
        self.entries.get(first..end).unwrap_or_default()
    }

    /// Visits the keys of a range in order until the visitor stops.
    pub(super) fn visit<'m>(
        &self,
        content: &'m [u8],
        page_size: u64,
        range: &KeyRange,
        mut visitor: impl FnMut(Record<'m>) -> bool,
    ) -> Result<bool, SnapshotFault> {
        for entries in self.stretch(content, range).chunks(AHEAD) {
            bring_near(entries.iter().map(|entry| entry.message(content)));
            for entry in entries {
                match message::parse(entry.message(content)) {
                    Ok((record, _)) if !visitor(record) => return Ok(false),
                    Ok(_) => {}
                    Err(reason) => {
                        let page = entry.offset.checked_div(page_size).unwrap_or_default();
                        return SnapshotFault::damaged(page, entry.offset, reason);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// Unsorted entries of an index under construction.
#[derive(Default)]
struct Gathered(Vec<(Head, Located)>);

/// Sort key of an entry: the first bytes in which keys of a scope can differ. The keys themselves are scattered over the file.
/// Sorting by these bytes avoids reading most keys again.
type Head = [u8; 24];

impl Gathered {
    /// Sorts the entries by key, keeps the last revision of each key, and drops deleted keys. Entries of the same key are in the
    /// order of their revisions, also after an earlier cleanup. The stable sort keeps this order.
    fn tidy(&mut self, content: &[u8]) {
        let compare = |(head, one): &(Head, Located), (other_head, other): &(Head, Located)| {
            head.cmp(other_head).then_with(|| one.key(content).cmp(other.key(content)))
        };
        self.0.sort_by(compare);
        self.0.reverse();
        self.0.dedup_by(|later, kept| compare(later, kept) == Ordering::Equal);
        self.0.reverse();
        self.0.retain(|(_, entry)| !entry.removed);
    }
}

/// The union of key ranges, as sorted stretches that do not overlap, so that a key is compared with only a few stretches. Start
/// and end of a stretch have the same meaning as in [`KeyRange`].
struct Scope<'r>(Vec<Stretch<'r>>);

#[derive(Clone, Copy)]
struct Stretch<'r> {
    start: &'r Key,
    end: Option<&'r Key>,
    /// Length of the common prefix of all keys in the stretch.
    shared: usize,
}

impl<'r> Scope<'r> {
    fn new(ranges: &'r [KeyRange]) -> Self {
        let mut ranges: Vec<_> = ranges.iter().map(|range| (range.start(), range.end())).collect();
        ranges.sort_unstable_by_key(|(start, _)| *start);
        let mut union: Vec<Stretch<'_>> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges {
            match union.last_mut() {
                Some(last) if last.end.is_none_or(|last| start <= last) => {
                    last.end = last.end.zip(end).map(|(last, end)| last.max(end));
                }
                _ => union.push(Stretch { start, end, shared: 0 }),
            }
        }
        for stretch in &mut union {
            let end = stretch.end.map(Key::as_bytes).unwrap_or_default();
            let alike = stretch.start.as_bytes().iter().zip(end).take_while(|(a, b)| a == b);
            stretch.shared = alike.count();
        }
        Self(union)
    }

    /// Returns the last stretch that starts at or before a key, and the position of the stretch in the list.
    fn stretch_at(&self, key: &[u8]) -> Option<(usize, &Stretch<'r>)> {
        let started = self.0.partition_point(|stretch| stretch.start.as_bytes() <= key);
        let last = started.checked_sub(1)?;
        Some((last, self.0.get(last)?))
    }

    /// Returns the sort key of a key; `None` if the key is outside the scope. A sort key contains the position of the stretch,
    /// and the first bytes after the common prefix of the stretch. Different keys can have the same sort key.
    fn head(&self, key: &[u8]) -> Option<Head> {
        let mut head = Head::default();
        let (place, stretch) = self.stretch_at(key)?;
        if stretch.end.is_some_and(|end| key >= end.as_bytes()) {
            return None;
        }
        let [first, rest @ ..] = &mut head;
        // The 256th stretch and all later stretches share one position, so their bytes are not comparable.
        *first = u8::try_from(place).unwrap_or(u8::MAX);
        if *first < u8::MAX {
            rest.iter_mut().zip(key.iter().skip(stretch.shared)).for_each(|(to, from)| *to = *from);
        }
        Some(head)
    }
}

/// Replays the revisions up to `at`, or all revisions, and builds an index of the keys in these ranges. The extent counts the
/// replayed revisions.
pub(super) fn replay(
    content: &[u8],
    pages: Pages<'_>,
    ranges: &[KeyRange],
    at: Option<i64>,
) -> Result<(Index, Extent), SnapshotFault> {
    let Some(walk) = pages.bucket(KEY_BUCKET)? else {
        return Err(SnapshotFault::NotASnapshot(
            "it is a bbolt database without etcd's bucket `key`".to_string(),
        ));
    };
    let scope = Scope::new(ranges);
    let mut gathered = Gathered::default();
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
        if let Some(located) = locate(&leaf, revision, &scope)? {
            gathered.0.push(located);
        }
        if gathered.0.len() >= tidy_at {
            gathered.tidy(content);
            tidy_at = gathered.0.len().saturating_mul(2).max(TIDY_FROM);
        }
    }
    gathered.tidy(content);
    let mut entries: Vec<Located> = gathered.0.into_iter().map(|(_, entry)| entry).collect();
    entries.shrink_to_fit();
    let index = Index { entries };
    let (finished, scheduled) = compactions(pages)?;
    // etcd uses the same rules when it starts (`store.restore`, server/storage/mvcc/kvstore.go, v3.6.16). A scheduled but
    // unfinished compaction may have deleted some revisions already. A compaction may also have deleted the newest revision.
    extent.compacted = finished.max(scheduled);
    if at.is_none() {
        extent.newest = extent.newest.max(extent.compacted);
    }
    Ok((index, extent))
}

/// Returns an index entry for a revision if its key is in the scope.
fn locate(
    leaf: &Leaf<'_>,
    revision: BucketKey,
    scope: &Scope<'_>,
) -> Result<Option<(Head, Located)>, SnapshotFault> {
    // `etcdutl snapshot restore --bump-revision` writes a revision without a message
    // (`unsafeBumpBucketsRevision`, etcdutl/snapshot/v3_snapshot.go, v3.6.16).
    if leaf.value.is_empty() {
        return Ok(None);
    }
    let fault = |reason: &str| SnapshotFault::Damaged {
        page: leaf.page,
        offset: leaf.value_offset,
        reason: format!("revision {}: {reason}", revision.main),
    };
    let (record, key_offset) = message::parse(leaf.value).map_err(fault)?;
    if record.key.is_empty() {
        return Err(fault("a record without a key"));
    }
    if !revision.removed && record.mod_revision.0 != revision.main {
        return Err(fault(&format!("its record has revision {}", record.mod_revision)));
    }
    let Some(head) = scope.head(record.key) else { return Ok(None) };
    let small = |number: usize| u32::try_from(number).map_err(|_| fault("a record of 4 GiB"));
    let located = Located {
        offset: leaf.value_offset,
        length: small(leaf.value.len())?,
        key_offset: small(key_offset)?,
        key_length: small(record.key.len())?,
        removed: revision.removed,
    };
    Ok(Some((head, located)))
}

/// Returns the revision of the last finished compaction and the revision of the last scheduled compaction; each is 0 without a
/// compaction (`UnsafeReadFinishedCompact`, server/storage/mvcc/store.go, v3.6.16).
fn compactions(pages: Pages<'_>) -> Result<(i64, i64), SnapshotFault> {
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
            _ => {
                return SnapshotFault::damaged(
                    leaf.page,
                    leaf.value_offset,
                    "a compaction has no valid revision",
                );
            }
        }
    }
    Ok((finished, scheduled))
}

/// Key of a revision in the bucket.
#[derive(Debug, Clone, Copy)]
struct BucketKey {
    main: i64,
    removed: bool,
}

impl BucketKey {
    fn parse(leaf: &Leaf<'_>) -> Result<Self, SnapshotFault> {
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
                let reason = format!("`{}` is not a revision", key.escape_ascii());
                SnapshotFault::damaged(leaf.page, leaf.value_offset, reason)
            }
        }
    }
}

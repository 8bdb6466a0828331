//! etcd's part of the format: bucket `key`, which has every revision of every key. The revisions are replayed into the keys
//! at one revision.
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
use crate::store::{Key, KeyRange};

/// Records that are prefetched together: at a kilobyte or two each they fit into the smallest cache.
const AHEAD: usize = 16;
/// Bytes of a cache line.
const CACHE_LINE: usize = 64;
/// At most this many bytes of a record are prefetched.
const NEAR: usize = 4096;

/// Reads a byte of every cache line of some records. Records in key order are scattered over the file. Without this,
/// parsing waits for one line after the other; this waits for many at once and takes a fifth less time for a survey.
fn bring_near<'m>(records: impl Iterator<Item = &'m [u8]>) {
    let mut sum = 0_u8;
    for record in records {
        for byte in record.iter().take(NEAR).step_by(CACHE_LINE) {
            sum = sum.wrapping_add(*byte);
        }
    }
    std::hint::black_box(sum);
}

/// The index is tidied (superseded revisions dropped) when it has doubled since the last time, and has
/// at least this many entries: 3 MB.
const TIDY_FROM: usize = 65_536;

/// The bucket of revisions (server/storage/schema/bucket.go, v3.6.16).
const KEY_BUCKET: &[u8] = b"key";
/// The bucket with the compaction's progress.
const META_BUCKET: &[u8] = b"meta";

/// The readable revisions of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Extent {
    /// The revision of the last compaction, which is still readable; 0 if there was no compaction.
    pub compacted: i64,
    /// The newest revision.
    pub newest: i64,
    /// The number of revisions in the bucket, removals included.
    pub count: u64,
}

/// A key in the index.
#[derive(Debug, Clone, Copy)]
pub(super) struct Located {
    /// Where its message starts, in bytes from the start of the file.
    offset: u64,
    length: u32,
    /// Where its key starts, from the start of the message.
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

/// The live keys of some ranges at one revision, in key order.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: Vec<Located>,
}

impl Index {
    /// Bytes of memory per key.
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
        mut visitor: impl FnMut(&KeyValue<'m>) -> bool,
    ) -> Result<bool, Fault> {
        for entries in self.stretch(content, range).chunks(AHEAD) {
            bring_near(entries.iter().map(|entry| entry.message(content)));
            for entry in entries {
                match KeyValue::parse(entry.message(content)) {
                    Ok(key_value) if !visitor(&key_value) => return Ok(false),
                    Ok(_) => {}
                    Err(reason) => {
                        let page = entry.offset.checked_div(page_size).unwrap_or_default();
                        return Fault::damaged(page, entry.offset, reason);
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

/// An index under construction.
#[derive(Default)]
struct Gathered(Vec<(Head, Located)>);

/// The first bytes in which keys of a scope can differ. Keys are scattered over the file, so sorting by these bytes avoids
/// reading the keys again.
type Head = [u8; 24];

impl Gathered {
    /// Sorts by key, keeps the last revision of each, drops removed keys. Entries are in the order of
    /// their revisions; tidied entries are older than later ones, and a stable sort keeps this order.
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

/// The union of some ranges as ordered, disjoint stretches (start and end as in [`KeyRange`]), so that
/// a key is compared with few of them.
struct Scope<'r>(Vec<Stretch<'r>>);

#[derive(Clone, Copy)]
struct Stretch<'r> {
    start: &'r Key,
    end: Option<&'r Key>,
    /// The length of the common prefix of its keys.
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

    /// Returns the last stretch that starts at or before a key, and its place.
    fn stretch_at(&self, key: &[u8]) -> Option<(usize, &Stretch<'r>)> {
        let started = self.0.partition_point(|stretch| stretch.start.as_bytes() <= key);
        let last = started.checked_sub(1)?;
        Some((last, self.0.get(last)?))
    }

    /// Returns the sort key of a key, if it is in the scope: the place of its stretch, and the first bytes after the
    /// common prefix of the stretch. Equal sort keys do not mean equal keys.
    fn head(&self, key: &[u8]) -> Option<Head> {
        let mut head = Head::default();
        let (place, stretch) = self.stretch_at(key)?;
        if stretch.end.is_some_and(|end| key >= end.as_bytes()) {
            return None;
        }
        let [first, rest @ ..] = &mut head;
        // Stretches from the 256th on have the same place, so their bytes are not comparable.
        *first = u8::try_from(place).unwrap_or(u8::MAX);
        if *first < u8::MAX {
            rest.iter_mut().zip(key.iter().skip(stretch.shared)).for_each(|(to, from)| *to = *from);
        }
        Some(head)
    }
}

/// Replays the revisions until `at` (or all of them) into an index of the keys in these ranges. The extent
/// counts the replayed revisions.
pub(super) fn replay(
    content: &[u8],
    pages: Pages<'_>,
    ranges: &[KeyRange],
    at: Option<i64>,
) -> Result<(Index, Extent), Fault> {
    let Some(walk) = pages.bucket(KEY_BUCKET)? else {
        return Err(Fault::NotASnapshot("a bbolt database, but without etcd's bucket `key`".to_string()));
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
    // As etcd does when it starts (`store.restore`, server/storage/mvcc/kvstore.go, v3.6.16): a scheduled but
    // unfinished compaction can have removed some revisions already, and a compaction can have
    // removed the newest one.
    extent.compacted = finished.max(scheduled);
    if at.is_none() {
        extent.newest = extent.newest.max(extent.compacted);
    }
    Ok((index, extent))
}

/// Returns an index entry for a revision if its key is in the ranges.
fn locate(leaf: &Leaf<'_>, revision: BucketKey, scope: &Scope<'_>) -> Result<Option<(Head, Located)>, Fault> {
    // `etcdutl snapshot restore --bump-revision` writes a revision without a message
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
        return Err(fault(&format!("its record has revision {}", message.mod_revision)));
    }
    let Some(head) = scope.head(message.key) else { return Ok(None) };
    let small = |number: usize| u32::try_from(number).map_err(|_| fault("a record of 4 GiB"));
    let located = Located {
        offset: leaf.value_offset,
        length: small(leaf.value.len())?,
        key_offset: small(message.key_offset)?,
        key_length: small(message.key.len())?,
        removed: revision.removed,
    };
    Ok(Some((head, located)))
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
                let reason = format!("`{}` is not a revision", key.escape_ascii());
                Fault::damaged(leaf.page, leaf.value_offset, reason)
            }
        }
    }
}

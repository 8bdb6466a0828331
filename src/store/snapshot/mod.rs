//! Reads a snapshot file as a store. The file is written by `etcdctl snapshot save`, or is the raw database `member/snap/db` of a
//! member.
//!
//! No Rust library can open these files, because etcd omits bbolt's freelist. So this module has its own read-only reader. The
//! reader never panics and always finishes, even if the file is damaged. It rejects a damaged file, and reports the page and the
//! offset if the structure is broken. Records are read directly from a memory map. Whatever the size of the file, memory contains
//! only an index of the keys in scope (24 bytes per key).
//!
//! A file from `snapshot save` ends with a SHA-256, so every change to the file is detected. A raw database has checksums only in
//! its meta pages, so a changed byte in a value cannot be detected. The raw database of a running member is not up to date (etcd
//! writes every 100 ms) and can change during the read. Stop the member first, or take a snapshot.
//!
//! The submodules: [`file`] contains the memory map, [`checksum`] checks the SHA-256, [`meta`] and [`pages`] read bbolt's format,
//! [`revisions`] and [`message`] read etcd's data in the pages.

mod bytes;
mod checksum;
mod fault;
mod file;
mod message;
mod meta;
mod pages;
mod revisions;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use self::checksum::Checksum;
use self::file::SnapshotFile;
use self::meta::Meta;
use self::pages::Pages;
use self::revisions::{Extent, Index};
use super::{Entry, Key, KeyRange, ReadStore, Record, Revision, StoreError, Visitor, readable};

/// A snapshot file, open for reading. See the module documentation.
#[derive(Debug)]
pub struct SnapshotStore {
    path: PathBuf,
    file: Arc<SnapshotFile>,
    checksum: Checksum,
    meta: Meta,
    scope: Vec<KeyRange>,
    /// Index of the live keys in the scope, at the newest revision.
    index: Index,
    extent: Extent,
}

impl SnapshotStore {
    /// Opens a file, checks its checksum if it has one, and indexes the keys of the scope (`[KeyRange::everything()]` for all
    /// keys). Keys outside the scope can also be read, but each such read scans all records of the file.
    ///
    /// Fails with [`StoreError::Io`], [`StoreError::NotASnapshot`], [`StoreError::Truncated`], [`StoreError::Checksum`] or
    /// [`StoreError::Damaged`]. If the structure is damaged and the checksum is wrong, the error is [`StoreError::Checksum`].
    ///
    /// Reads the whole file once, and blocks the thread during the read. This takes 25 ms for a file of 41 MB in the page cache,
    /// on two cores with SHA instructions.
    pub fn open(path: &Path, scope: &[KeyRange]) -> Result<Self, StoreError> {
        Self::open_ahead(path, scope)?.checked()
    }

    /// Opens a file like [`Self::open`], but does not wait for the checksum. Instead, every read waits for the checksum before it
    /// returns. A visitor can therefore get records before the read fails with [`StoreError::Checksum`]. Callers must not use the
    /// records before the read has succeeded.
    pub fn open_ahead(path: &Path, scope: &[KeyRange]) -> Result<Self, StoreError> {
        Self::from_file(SnapshotFile::open(path)?, path, scope)
    }

    /// Opens a snapshot in memory, for tests and fuzzing. Errors show the file name `(memory)`.
    pub fn from_bytes(content: Vec<u8>, scope: &[KeyRange]) -> Result<Self, StoreError> {
        let path = Path::new("(memory)");
        let file = SnapshotFile::from_vec(content).map_err(|fault| fault.at(path))?;
        Self::from_file(file, path, scope)?.checked()
    }

    fn from_file(file: SnapshotFile, path: &Path, scope: &[KeyRange]) -> Result<Self, StoreError> {
        let file = Arc::new(file);
        let checksum = Checksum::begin(&file, path);
        let replayed = Meta::newest(file.content()).and_then(|meta| {
            let pages = Pages::new(file.content(), meta);
            Ok((meta, revisions::replay(file.content(), pages, scope, None)?))
        });
        match replayed {
            Ok((meta, (index, extent))) => {
                let (path, scope) = (path.to_path_buf(), scope.to_vec());
                Ok(Self { path, file, checksum, meta, scope, index, extent })
            }
            Err(fault) => Err(checksum.explain(fault, path)),
        }
    }

    /// Waits until the checksum is verified.
    fn checked(self) -> Result<Self, StoreError> {
        self.checksum.check(&self.path)?;
        Ok(self)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the file ends with a checksum. If [`Self::open`] opened the file, this checksum is correct. A raw database
    /// has no checksum.
    pub fn has_checksum(&self) -> bool {
        self.file.has_checksum()
    }

    /// Returns the size of the file in bytes, including the checksum.
    pub fn file_size(&self) -> u64 {
        self.file.size()
    }

    /// Returns the size of a page in bytes.
    pub fn page_size(&self) -> u64 {
        self.meta.page_size
    }

    /// Returns the number of revisions in the file, including deletions.
    pub fn revision_count(&self) -> u64 {
        self.extent.count
    }

    /// Returns the newest revision.
    pub fn newest_revision(&self) -> Revision {
        Revision(self.extent.newest)
    }

    /// Returns the oldest revision that can be read.
    pub fn oldest_revision(&self) -> Revision {
        Revision(self.extent.compacted.max(1))
    }

    /// Returns the number of live keys in the scope, at the newest revision.
    pub fn key_count(&self) -> usize {
        self.index.len()
    }

    fn in_scope(&self, range: &KeyRange) -> bool {
        self.scope.iter().any(|scope| {
            let ends_before = match (range.end(), scope.end()) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(end), Some(scope_end)) => end <= scope_end,
            };
            scope.start() <= range.start() && ends_before
        })
    }

    /// Visits the keys in the ranges, and waits for the checksum only at the end.
    fn visit(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
        mut visitor: impl FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<Revision, StoreError> {
        let at = readable(at, self.oldest_revision(), self.newest_revision())?;
        let content = self.file.content();
        let indexed = at == self.newest_revision() && ranges.iter().all(|range| self.in_scope(range));
        let passed = if indexed {
            None
        } else {
            let pages = Pages::new(content, self.meta);
            let replayed = revisions::replay(content, pages, ranges, Some(at.0));
            Some(replayed.map_err(|fault| self.checksum.explain(fault, &self.path))?.0)
        };
        let index = passed.as_ref().unwrap_or(&self.index);
        for range in ranges {
            let visited =
                index.visit(content, self.meta.page_size, range, |record| visitor(record).is_continue());
            if !visited.map_err(|fault| self.checksum.explain(fault, &self.path))? {
                break;
            }
        }
        self.checksum.check(&self.path)?;
        Ok(at)
    }
}

#[async_trait]
impl ReadStore for SnapshotStore {
    fn describe(&self) -> String {
        format!("snapshot {}", self.path.display())
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(self.newest_revision())
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        let mut found = None;
        self.visit(&[KeyRange::exact(key)], None, |record| {
            found = Some(record.to_entry());
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    async fn scan(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
        visitor: &mut Visitor<'_>,
    ) -> Result<Revision, StoreError> {
        self.visit(ranges, at, visitor)
    }

    fn count_hint(&self, range: &KeyRange) -> Option<usize> {
        self.in_scope(range).then(|| self.index.stretch(self.file.content(), range).len())
    }
}

#[cfg(test)]
mod tests;

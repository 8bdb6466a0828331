//! Opens a snapshot file, maps it into memory, and checks its size.
//!
//! `etcdctl snapshot save` appends the SHA-256 of all preceding bytes. The size shows whether a file has this checksum, because
//! pages are multiples of 512 bytes. A remainder of 32 means a checksum, 0 means a raw database, and any other remainder means a
//! truncated file (`hasChecksum`, etcdutl/snapshot/v3_snapshot.go, v3.6.16).

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use super::fault::SnapshotFault;
use crate::store::StoreError;

const SECTOR: u64 = 512;
const CHECKSUM: usize = 32;
/// Magic number of bbolt, little-endian. A meta page contains it directly after the page header.
const MAGIC: [u8; 4] = 0xED0C_DAED_u32.to_le_bytes();

/// The bytes of a file.
#[derive(Debug)]
enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

/// A snapshot file or database file whose size is valid.
#[derive(Debug)]
pub(super) struct SnapshotFile {
    bytes: Bytes,
    has_checksum: bool,
}

impl SnapshotFile {
    /// Opens a file and maps it into memory.
    ///
    /// Fails if the file does not exist, is not a regular file (for example a directory or a pipe), or has a size that neither a
    /// snapshot nor a database can have.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let io = |source| StoreError::Io { path: path.to_path_buf(), source };
        // The type is checked before the file is opened, because opening a pipe blocks until another process opens its other end.
        let kind = std::fs::metadata(path).map_err(io)?;
        if !kind.is_file() {
            let reason = if kind.is_dir() { "it is a directory" } else { "it is not a regular file" };
            return Err(SnapshotFault::NotASnapshot(reason.to_string()).at(path));
        }
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Err(SnapshotFault::NotASnapshot("it is empty".to_string()).at(path));
        }
        #[expect(unsafe_code, reason = "a memory map: the only way to read gigabytes without copying them")]
        // SAFETY: the map is read-only and private to this process. Another process can change the file during the read. Changed
        // bytes have the same effect as damaged bytes, which every reader here expects (no `str` and no reference into the map is
        // built from unchecked bytes). If the file is truncated during the read, SIGBUS ends the process before netsurgeon writes
        // anything. etcd never truncates a database, and a snapshot is written under another name and then renamed.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Self::from_bytes(Bytes::Mapped(map)).map_err(|fault| fault.at(path))
    }

    /// Returns a file with its content in memory.
    pub(super) fn from_vec(content: Vec<u8>) -> Result<Self, SnapshotFault> {
        Self::from_bytes(Bytes::Owned(content))
    }

    fn from_bytes(bytes: Bytes) -> Result<Self, SnapshotFault> {
        let file = Self { bytes, has_checksum: false };
        let size = file.size();
        if size == 0 {
            return Err(SnapshotFault::NotASnapshot("it is empty".to_string()));
        }
        match size.checked_rem(SECTOR) {
            Some(0) => Ok(file),
            Some(32) => Ok(Self { has_checksum: true, ..file }),
            _ if file.all().get(16..20) == Some(&MAGIC) => Err(SnapshotFault::Truncated(format!(
                "its size is {size} bytes; a database is a multiple of {SECTOR} bytes, and a snapshot is \
                 {CHECKSUM} bytes larger because of its checksum"
            ))),
            _ => Err(SnapshotFault::NotASnapshot("it does not start with a bbolt meta page".to_string())),
        }
    }

    fn all(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }

    /// Returns the size of the whole file in bytes.
    pub(super) fn size(&self) -> u64 {
        self.all().len() as u64
    }

    /// Returns whether the file ends with a checksum.
    pub(super) fn has_checksum(&self) -> bool {
        self.has_checksum
    }

    /// Returns the pages of the file, without the checksum.
    pub(super) fn content(&self) -> &[u8] {
        if !self.has_checksum {
            return self.all();
        }
        self.all().split_last_chunk::<CHECKSUM>().map_or(&[], |(content, _)| content)
    }

    /// Returns the checksum at the end of the file, if the file has a checksum.
    pub(super) fn stored_checksum(&self) -> Option<&[u8; CHECKSUM]> {
        if !self.has_checksum {
            return None;
        }
        self.all().last_chunk()
    }
}

//! A snapshot of a live etcd. The file gets its name after it was read back.
//!
//! The bytes are those of `etcdctl snapshot save`: etcd streams its database and then the SHA-256 of it
//! (`sendSnapshot`, server/etcdserver/api/v3rpc/maintenance.go, v3.6.16).

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::NamedTempFile;
use tokio::time::timeout;

use super::EtcdStore;
use super::connection::Request;
use super::failure::Failure;
use crate::store::snapshot::SnapshotStore;
use crate::store::{Access, KeyRange, Revision, StoreError};

/// A snapshot that was saved and checked.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Backup {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// The newest revision in it.
    pub revision: Revision,
    /// The number of keys at that revision.
    pub keys: usize,
}

impl EtcdStore {
    /// Streams a snapshot of one member into a new file, reads it back (checksum and structure), and only
    /// then renames the file. An existing file is not changed.
    ///
    /// Fails as a read does, with [`StoreError::Write`] if the file cannot be written, and as
    /// [`SnapshotStore::open`] does if the received bytes are damaged; then no file is left.
    pub async fn save_snapshot(&self, path: &Path) -> Result<Backup, StoreError> {
        let write = |source| StoreError::Write { path: path.to_path_buf(), source };
        if path.exists() {
            return Err(write(std::io::Error::from(std::io::ErrorKind::AlreadyExists)));
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        // Readable only by its owner, and deleted unless it is kept: it has every Secret of the cluster.
        let mut partial = NamedTempFile::with_prefix_in(".snapshot-", directory).map_err(write)?;
        self.stream_into(partial.as_file_mut()).await?.map_err(write)?;
        partial.as_file().sync_all().map_err(write)?;
        let store = SnapshotStore::open(partial.path(), &[KeyRange::everything()])?;
        if !store.has_checksum() {
            let reason = "it was received without its checksum".to_string();
            return Err(StoreError::Truncated { path: path.to_path_buf(), reason });
        }
        let (size, revision, keys) = (store.file_size(), store.newest_revision(), store.key_count());
        partial.persist_noclobber(path).map_err(|error| write(error.error))?;
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(write)?;
        Ok(Backup { path: path.to_path_buf(), size, revision, keys })
    }

    /// Writes the member's stream. The outer error is etcd's, the inner one the file's.
    async fn stream_into(&self, file: &mut File) -> Result<std::io::Result<()>, StoreError> {
        let patience: Duration = self.connection.request_timeout();
        let denied = || Access::Administer("take a snapshot");
        let failed = |failure| self.connection.read_error(failure).denied(denied);
        let begin = |client: etcd_client::Client| async move { client.maintenance_client().snapshot().await };
        let mut stream = self.connection.request(Request::Read, begin).await.map_err(failed)?;
        loop {
            let next = match timeout(patience, stream.message()).await {
                Ok(next) => next.map_err(|error| failed(Failure::from(error)))?,
                Err(_) => return Err(failed(Failure::timed_out(patience.as_secs()))),
            };
            let Some(part) = next else { return Ok(Ok(())) };
            if let Err(error) = file.write_all(part.blob()) {
                return Ok(Err(error));
            }
        }
    }
}

//! Saves a snapshot of a live etcd. The file gets its final name only after its content is verified.
//!
//! The file has the same format as a file from `etcdctl snapshot save`: etcd streams its database, then the SHA-256 of the
//! database (`sendSnapshot`, server/etcdserver/api/v3rpc/maintenance.go, v3.6.16).

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::NamedTempFile;
use tokio::time::timeout;

use super::EtcdStore;
use super::connection::Request;
use super::failure::RequestFailure;
use crate::store::snapshot::SnapshotStore;
use crate::store::{Access, KeyRange, Revision, StoreError};

/// A saved and verified snapshot.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Backup {
    /// Path of the file.
    pub path: PathBuf,
    /// Size of the file, in bytes.
    pub size: u64,
    /// Newest revision in the snapshot.
    pub revision: Revision,
    /// Number of keys at the newest revision.
    pub keys: usize,
}

impl EtcdStore {
    /// Streams a snapshot of one member into a temporary file, verifies its checksum and structure, and then renames the file.
    /// Never changes an existing file.
    ///
    /// Fails with the errors of a read from etcd, with [`StoreError::Write`] if the file cannot be written, and with the errors
    /// of [`SnapshotStore::open`] if the received bytes are damaged. Deletes the temporary file after a failure.
    pub async fn save_snapshot(&self, path: &Path) -> Result<Backup, StoreError> {
        let write = |source| StoreError::Write { path: path.to_path_buf(), source };
        if path.exists() {
            return Err(write(std::io::Error::from(std::io::ErrorKind::AlreadyExists)));
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        // The file contains every Secret of the cluster, so only its owner is allowed to read it, and a failed backup deletes it.
        let mut partial = NamedTempFile::with_prefix_in(".snapshot-", directory).map_err(write)?;
        self.stream_into(partial.as_file_mut()).await?.map_err(write)?;
        partial.as_file().sync_all().map_err(write)?;
        let store = SnapshotStore::open(partial.path(), &[KeyRange::everything()])?;
        if !store.has_checksum() {
            let reason = "the received snapshot has no checksum".to_string();
            return Err(StoreError::Truncated { path: path.to_path_buf(), reason });
        }
        let (size, revision, keys) = (store.file_size(), store.newest_revision(), store.key_count());
        partial.persist_noclobber(path).map_err(|error| write(error.error))?;
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(write)?;
        Ok(Backup { path: path.to_path_buf(), size, revision, keys })
    }

    /// Writes the stream of a member to a file. The outer error comes from etcd, and the inner error comes from the file.
    async fn stream_into(&self, file: &mut File) -> Result<std::io::Result<()>, StoreError> {
        let patience: Duration = self.connection.request_timeout();
        let denied = || Access::Administer("take a snapshot");
        let failed = |failure| self.connection.read_error(failure).denied(denied);
        let begin = |client: etcd_client::Client| async move { client.maintenance_client().snapshot().await };
        let mut stream = self.connection.request(Request::Read, begin).await.map_err(failed)?;
        loop {
            let next = match timeout(patience, stream.message()).await {
                Ok(next) => next.map_err(|error| failed(RequestFailure::from(error)))?,
                Err(_) => return Err(failed(RequestFailure::timed_out(patience.as_secs()))),
            };
            let Some(part) = next else { return Ok(Ok(())) };
            if let Err(error) = file.write_all(part.blob()) {
                return Ok(Err(error));
            }
        }
    }
}

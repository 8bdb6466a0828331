//! Replaces a file, or two related files, atomically. At any instant, either all old files or all new files are in place, even if
//! this process is killed.
//!
//! To replace one file, netsurgeon writes the new content to a temporary file and renames this file. Two files cannot be renamed
//! in one step. So netsurgeon temporarily replaces both files with symbolic links into its folder `.netsurgeon`. Both links pass
//! through the link `now`, which points to the old or to the new files. One rename of the link `now` switches both files:
//!
//! ```text
//! apiserver.crt -> .netsurgeon/now/apiserver.crt      .netsurgeon/now -> old, then new
//! apiserver.key -> .netsurgeon/now/apiserver.key
//! ```
//!
//! Afterwards the links are replaced with the new files. All new files are written before a file is replaced, so a full disk
//! changes nothing. An interrupted replacement leaves the folder `.netsurgeon` behind, and possibly the links, which still work.
//! The next replacement first removes both. A program that opens one file before the switch and the other after the switch reads
//! two files that do not match. The program must then read both files again, as an API server does (`loadServingCert`,
//! `pkg/server/dynamiccertificates/dynamic_serving_content.go` of k8s.io/apiserver, v0.36.3).

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Gid, OFlags, Uid, flock};
use zeroize::Zeroizing;

/// Folder for temporary files.
const STAGE: &str = ".netsurgeon";
/// Name of the lock file.
const LOCK: &str = ".netsurgeon.lock";
const NEW: &str = "new";
const OLD: &str = "old";
const NOW: &str = "now";
const PERMISSIONS: u32 = 0o7777;

/// Why files were not replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The files are in different folders.
    #[error("`{0}` and `{1}` are in different folders: to replace both, put them in the same folder")]
    Apart(PathBuf, PathBuf),
    /// Another process is replacing files in the same folder.
    #[error("another process is replacing files in `{0}`")]
    Busy(PathBuf),
    /// A file operation failed.
    #[error("{operation}: {source}")]
    Io {
        /// The failed action.
        operation: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A file and its new content. The file keeps its owner, group and permissions.
#[derive(Clone)]
pub struct Replacement {
    /// Path of the file, which must exist.
    pub path: PathBuf,
    /// New content of the file, which may be a private key.
    pub content: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Replacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes for {}", self.content.len(), self.path.display())
    }
}

/// Place to keep the old content of a replaced file.
#[derive(Debug, Clone, Copy)]
pub enum BackupPlace<'a> {
    /// In the folder of the file, under its name with this suffix.
    Beside(&'a str),
    /// In another existing folder, under the file's name with this suffix.
    In(&'a Path, &'a str),
}

impl BackupPlace<'_> {
    /// Returns an unused path for the old content of a file.
    fn name_for(self, path: &Path) -> PathBuf {
        match self {
            BackupPlace::Beside(suffix) => free(path, suffix),
            BackupPlace::In(folder, suffix) => {
                free(&folder.join(path.file_name().unwrap_or_default()), suffix)
            }
        }
    }
}

/// A single change in the file system.
enum Operation {
    /// Create a folder with the owner and permissions of another folder.
    Folder {
        path: PathBuf,
        like: PathBuf,
    },
    /// Write a file with the owner and permissions of another file, and sync it to disk.
    File {
        path: PathBuf,
        content: Zeroizing<Vec<u8>>,
        like: PathBuf,
    },
    Link {
        path: PathBuf,
        to: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    /// Sync a folder, so that its renames are on disk.
    Sync(PathBuf),
    /// Delete a folder with its content.
    Clear(PathBuf),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder { path, .. } => write!(f, "creating folder `{}`", path.display()),
            Self::File { path, .. } => write!(f, "writing file `{}`", path.display()),
            Self::Link { path, to } => write!(f, "linking `{}` to `{}`", path.display(), to.display()),
            Self::Rename { from, to } => write!(f, "renaming `{}` to `{}`", from.display(), to.display()),
            Self::Sync(path) => write!(f, "syncing folder `{}` to disk", path.display()),
            Self::Clear(path) => write!(f, "deleting `{}`", path.display()),
        }
    }
}

/// Replaces a file, or two files of one folder at the same instant. With `keep`, saves the old content. Returns the paths of the
/// files in which the old content was saved.
///
/// Blocks the thread. After an error the files are unchanged. Exception: if only the cleanup fails, which is the last step, the
/// files are already replaced.
pub fn replace(files: &[Replacement], keep: Option<BackupPlace<'_>>) -> Result<Vec<PathBuf>, ReplaceError> {
    let files = with_real_paths(files)?;
    let Some(folder) = common_folder(&files)? else { return Ok(Vec::new()) };
    let _turn = Turn::take(&folder)?;
    carry_out(&recovery(&folder, &files))?;
    let (operations, kept) = operations(&folder, &files, keep)?;
    let outcome = carry_out(&operations);
    if outcome.is_err() {
        // Errors of the recovery are ignored, because the first error is returned.
        let _ = carry_out(&recovery(&folder, &files));
        let is_replaced = |file: &Replacement| fs::read(&file.path).is_ok_and(|now| now == *file.content);
        if !files.iter().any(is_replaced) {
            for path in &kept {
                let _ = fs::remove_file(path);
            }
        }
    }
    outcome.map(|()| kept)
}

/// A lock on a folder, which is held until this value is dropped. Only the holder replaces files in the folder. The lock is on a
/// file that only this user can open. A lock on the folder itself would not work, because every process that can read the folder
/// can lock it.
struct Turn {
    path: PathBuf,
    _locked: File,
}

impl Turn {
    fn take(folder: &Path) -> Result<Self, ReplaceError> {
        let path = folder.join(LOCK);
        let cannot = |error: io::Error| failed(format!("locking `{}`", path.display()), error);
        loop {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
            let file = options.open(&path).map_err(cannot)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(ReplaceError::Busy(folder.to_path_buf())),
                taken => taken.map_err(|error| cannot(error.into()))?,
            }
            // The previous holder may have deleted the file meanwhile, and another process may have created a new one.
            let is_there = fs::symlink_metadata(&path).is_ok_and(|there| {
                file.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
            });
            if is_there {
                return Ok(Self { path, _locked: file });
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn failed(operation: String, source: io::Error) -> ReplaceError {
    ReplaceError::Io { operation, source }
}

/// Resolves the symbolic links in the paths, except the links of an interrupted replacement.
fn with_real_paths(files: &[Replacement]) -> Result<Vec<Replacement>, ReplaceError> {
    let real = |file: &Replacement| {
        let path = match fs::read_link(&file.path) {
            Ok(to) if to.starts_with(STAGE) => canonical_parent(&file.path),
            _ => fs::canonicalize(&file.path),
        };
        let path = path.map_err(|error| failed(format!("resolving `{}`", file.path.display()), error))?;
        Ok(Replacement { path, content: file.content.clone() })
    };
    files.iter().map(real).collect()
}

fn canonical_parent(path: &Path) -> io::Result<PathBuf> {
    Ok(fs::canonicalize(path.parent().unwrap_or(Path::new("/")))?.join(path.file_name().unwrap_or_default()))
}

/// Returns the common folder of all files; `None` if the list is empty.
fn common_folder(files: &[Replacement]) -> Result<Option<PathBuf>, ReplaceError> {
    let Some(first) = files.first() else { return Ok(None) };
    match files.iter().find(|file| file.path.parent() != first.path.parent()) {
        Some(other) => Err(ReplaceError::Apart(first.path.clone(), other.path.clone())),
        None => Ok(first.path.parent().map(Path::to_path_buf)),
    }
}

/// Returns the operations that clean up after an interrupted replacement. They replace its links with files and delete its
/// folder.
fn recovery(folder: &Path, files: &[Replacement]) -> Vec<Operation> {
    let stage = folder.join(STAGE);
    if !stage.exists() {
        return Vec::new();
    }
    let mut all = Vec::new();
    for path in files.iter().map(|file| &file.path) {
        let is_ours = fs::read_link(path).is_ok_and(|to| to.starts_with(STAGE));
        if let Some(from) = is_ours.then(|| fs::canonicalize(path).ok()).flatten() {
            all.push(Operation::Rename { from, to: path.clone() });
        }
    }
    all.extend([Operation::Sync(folder.to_path_buf()), Operation::Clear(stage)]);
    all
}

/// Returns the operations that replace the files, and the paths that will have the old content.
fn operations(
    folder: &Path,
    files: &[Replacement],
    keep: Option<BackupPlace<'_>>,
) -> Result<(Vec<Operation>, Vec<PathBuf>), ReplaceError> {
    let stage = folder.join(STAGE);
    let place = |generation: &str, file: &Replacement| {
        stage.join(generation).join(file.path.file_name().unwrap_or_default())
    };
    let like = |path: &Path| Operation::Folder { path: path.to_path_buf(), like: folder.to_path_buf() };
    let write = |path: PathBuf, content: Zeroizing<Vec<u8>>, like: &Path| Operation::File {
        path,
        content,
        like: like.to_path_buf(),
    };
    let mut all = vec![like(&stage), like(&stage.join(NEW)), like(&stage.join(OLD))];
    let mut kept = Vec::new();
    for file in files {
        let old = fs::read(&file.path)
            .map(Zeroizing::new)
            .map_err(|error| failed(format!("reading `{}`", file.path.display()), error))?;
        if let Some(path) = keep.map(|keep| keep.name_for(&file.path)) {
            all.push(write(path.clone(), old.clone(), &file.path));
            kept.push(path);
        }
        all.push(write(place(NEW, file), file.content.clone(), &file.path));
        if files.len() > 1 {
            all.push(write(place(OLD, file), old, &file.path));
        }
    }
    if files.len() > 1 {
        all.extend(links(&stage, files));
    }
    for file in files {
        all.push(Operation::Rename { from: place(NEW, file), to: file.path.clone() });
    }
    all.extend([Operation::Sync(folder.to_path_buf()), Operation::Clear(stage)]);
    Ok((all, kept))
}

/// Returns the path with a suffix. Appends a number if this file already exists.
fn free(path: &Path, suffix: &str) -> PathBuf {
    let named = |number: u32| {
        let mut name = path.as_os_str().to_os_string();
        name.push(suffix);
        if number > 1 {
            name.push(format!(".{number}"));
        }
        PathBuf::from(name)
    };
    (1..u32::MAX).map(named).find(|path| !path.exists()).unwrap_or_else(|| named(1))
}

/// Returns the operations that replace the files with links, and then switch all links to the new files with one rename.
fn links(stage: &Path, files: &[Replacement]) -> Vec<Operation> {
    let (now, next) = (stage.join(NOW), stage.join("next"));
    let mut all = vec![Operation::Link { path: now.clone(), to: OLD.into() }];
    for file in files {
        let name = file.path.file_name().unwrap_or_default();
        let link = stage.join("link");
        all.push(Operation::Link { path: link.clone(), to: Path::new(STAGE).join(NOW).join(name) });
        all.push(Operation::Rename { from: link, to: file.path.clone() });
    }
    all.push(Operation::Link { path: next.clone(), to: NEW.into() });
    all.push(Operation::Rename { from: next, to: now });
    all
}

fn carry_out(operations: &[Operation]) -> Result<(), ReplaceError> {
    for operation in operations {
        carry(operation).map_err(|source| failed(operation.to_string(), source))?;
    }
    Ok(())
}

fn carry(operation: &Operation) -> io::Result<()> {
    match operation {
        Operation::Folder { path, like } => {
            fs::create_dir(path)?;
            resemble(&File::open(path)?, &fs::metadata(like)?)
        }
        Operation::File { path, content, like } => {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(content)?;
            resemble(&file, &fs::metadata(like)?)?;
            file.sync_all()
        }
        Operation::Link { path, to } => std::os::unix::fs::symlink(to, path),
        Operation::Rename { from, to } => fs::rename(from, to),
        Operation::Sync(path) => File::open(path)?.sync_all(),
        Operation::Clear(path) => fs::remove_dir_all(path),
    }
}

/// Gives a new file the owner, group and permissions of another file. The owner is set first, because a change of the owner
/// removes some permissions.
fn resemble(file: &File, like: &Metadata) -> io::Result<()> {
    let now = file.metadata()?;
    if (now.uid(), now.gid()) != (like.uid(), like.gid()) {
        rustix::fs::fchown(file, Some(Uid::from_raw(like.uid())), Some(Gid::from_raw(like.gid())))?;
    }
    file.set_permissions(fs::Permissions::from_mode(like.mode() & PERMISSIONS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(folder: &Path, generation: &str) -> [Replacement; 2] {
        ["a.crt", "a.key"].map(|name| Replacement {
            path: folder.join(name),
            content: format!("{name} {generation}").into_bytes().into(),
        })
    }

    fn start(generation: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in pair(folder.path(), generation) {
            fs::write(&file.path, &file.content).unwrap();
        }
        fs::set_permissions(folder.path().join("a.key"), fs::Permissions::from_mode(0o640)).unwrap();
        folder
    }

    fn found(folder: &Path) -> [String; 2] {
        ["a.crt", "a.key"].map(|name| fs::read_to_string(folder.join(name)).unwrap())
    }

    fn contents(generation: &str) -> [String; 2] {
        ["a.crt", "a.key"].map(|name| format!("{name} {generation}"))
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn interruption_leaves_one_whole_pair_and_the_next_run_cleans_up() {
        let count = {
            let folder = start("one");
            operations(folder.path(), &pair(folder.path(), "two"), Some(BackupPlace::Beside(".old")))
                .unwrap()
                .0
                .len()
        };
        let mut seen = Vec::new();
        for cut in 0..=count {
            let folder = start("one");
            let real = fs::canonicalize(folder.path()).unwrap();
            let (operations, _) =
                operations(&real, &pair(&real, "two"), Some(BackupPlace::Beside(".old"))).unwrap();
            carry_out(&operations[..cut]).unwrap();
            let now = found(&real);
            assert!(now == contents("one") || now == contents("two"), "after {cut}: {now:?}");
            seen.push(now);
            replace(&pair(&real, "three"), None).unwrap();
            assert_eq!(found(&real), contents("three"), "after {cut}");
            let links = names(&real).iter().any(|name| real.join(name).is_symlink() || name == STAGE);
            assert!(!links, "after {cut}: {:?}", names(&real));
            let mode = fs::metadata(real.join("a.key")).unwrap().mode() & PERMISSIONS;
            assert_eq!(mode, 0o640, "after {cut}");
        }
        seen.dedup();
        assert_eq!(seen, [contents("one"), contents("two")], "it changes once");
    }

    #[test]
    fn failure_before_the_switch_changes_nothing() {
        let is_switch =
            |operation: &Operation| matches!(operation, Operation::Rename { to, .. } if to.ends_with(NOW));
        for broken in 0.. {
            let folder = start("one");
            let real = fs::canonicalize(folder.path()).unwrap();
            let (mut operations, _) = operations(&real, &pair(&real, "two"), None).unwrap();
            let switch = operations.iter().position(is_switch).unwrap();
            let Some(operation) = operations.get_mut(broken) else { break };
            *operation = Operation::Sync(real.join("not there"));
            carry_out(&operations).unwrap_err();
            carry_out(&recovery(&real, &pair(&real, ""))).unwrap();
            assert_eq!(found(&real), contents(if broken <= switch { "one" } else { "two" }), "{broken}");
            assert_eq!(names(&real), ["a.crt", "a.key"]);
        }
    }

    #[test]
    fn existing_link_is_followed_and_the_old_content_kept() {
        let (folder, elsewhere) = (start("one"), tempfile::tempdir().unwrap());
        let link = elsewhere.path().join("server.crt");
        std::os::unix::fs::symlink(folder.path().join("a.crt"), &link).unwrap();
        let kept = replace(
            &[Replacement { path: link.clone(), content: b"two".to_vec().into() }],
            Some(BackupPlace::Beside(".old")),
        )
        .unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(folder.path().join("a.crt")).unwrap(), "two");
        assert_eq!(fs::read_to_string(&kept[0]).unwrap(), "a.crt one");
        let again = replace(
            &[Replacement { path: link.clone(), content: b"three".to_vec().into() }],
            Some(BackupPlace::Beside(".old")),
        )
        .unwrap();
        assert_eq!(fs::read_to_string(&again[0]).unwrap(), "two", "the kept file is not overwritten");
        assert_eq!(fs::read_to_string(&kept[0]).unwrap(), "a.crt one");
        let both = [Replacement { path: elsewhere.path().join("other.key"), content: Zeroizing::default() }];
        fs::write(&both[0].path, "").unwrap();
        let apart = [both[0].clone(), pair(folder.path(), "two")[0].clone()];
        assert!(matches!(replace(&apart, None), Err(ReplaceError::Apart(..))));
    }

    #[test]
    fn concurrent_replacement_is_refused() {
        let folder = start("one");
        // A process that can read the folder can lock the folder. This lock must not block a replacement.
        let folder_itself = File::open(folder.path()).unwrap();
        flock(&folder_itself, FlockOperation::NonBlockingLockExclusive).unwrap();
        let held = Turn::take(folder.path()).unwrap();
        let mode = fs::metadata(folder.path().join(LOCK)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(replace(&pair(folder.path(), "two"), None), Err(ReplaceError::Busy(_))));
        assert_eq!(found(folder.path()), contents("one"));
        drop(held);
        replace(&pair(folder.path(), "two"), None).unwrap();
        assert_eq!(found(folder.path()), contents("two"));
        assert!(!folder.path().join(LOCK).exists());
    }
}

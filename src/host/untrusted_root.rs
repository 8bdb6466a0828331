//! Opens files below an untrusted folder, such as the root of a container or of a mounted node. Links are resolved inside this
//! root and never lead out of it (`openat2(2)`, `RESOLVE_IN_ROOT`, Linux 5.6).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// A root folder, below which files are opened.
pub struct Root {
    folder: OwnedFd,
    /// Whether the folder is this machine's own root `/`. Links cannot lead out of it.
    is_own: bool,
}

/// An open file and its identity: device and inode.
pub struct Opened {
    file: File,
    /// Device and inode.
    pub identity: (u64, u64),
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// Whether it is a folder itself. False for a link to a folder.
    pub is_folder: bool,
}

impl Root {
    /// Opens the root folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { folder: openat(CWD, path, flags, Mode::empty())?, is_own: path == Path::new("/") })
    }

    /// Opens a regular file. Returns `None` for a folder, a socket, a FIFO or a device. The type is checked before opening,
    /// because opening a FIFO can block without a time limit, and opening a device such as a watchdog has side effects. The check
    /// uses a descriptor that does not open the file (`O_PATH`); the file is then opened through this descriptor.
    pub fn file(&self, path: &Path) -> io::Result<Option<Opened>> {
        let found = File::from(self.at(path, OFlags::PATH)?);
        let about = found.metadata()?;
        if !about.is_file() {
            return Ok(None);
        }
        // The file exists. An error here must not have the kind `NotFound`, because a missing `/proc` must not look like a
        // missing file.
        let file = File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(io::Error::other)?;
        Ok(Some(Opened { file, identity: (about.dev(), about.ino()) }))
    }

    /// Returns the sorted names in a folder; `None` if the path is not a folder. A link to a folder counts as a folder only if
    /// `follows` is true.
    pub fn names(&self, path: &Path, follows: bool) -> io::Result<Option<Vec<OsString>>> {
        let last = if follows { OFlags::empty() } else { OFlags::NOFOLLOW };
        let folder = match self.at(path, OFlags::DIRECTORY | last) {
            Err(error) if is(&error, Errno::NOTDIR) || is(&error, Errno::LOOP) => return Ok(None),
            folder => folder?,
        };
        let mut names = Vec::new();
        for entry in Dir::read_from(folder)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort();
        Ok(Some(names))
    }

    /// Returns the names and types of the entries of a folder, sorted, up to `most`, and whether there are more. `None` if the path
    /// is not a folder.
    pub fn entries(&self, path: &Path, most: usize) -> io::Result<Option<(Vec<Entry>, bool)>> {
        let folder = match self.at(path, OFlags::DIRECTORY) {
            Err(error) if is(&error, Errno::NOTDIR) || is(&error, Errno::LOOP) => return Ok(None),
            folder => folder?,
        };
        let (mut entries, mut is_cut) = (Vec::new(), false);
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if entries.len() >= most {
                is_cut = true;
                break;
            }
            let name = OsString::from_vec(name.to_vec());
            entries.push(Entry { name, is_folder: entry.file_type() == FileType::Directory });
        }
        entries.sort();
        Ok(Some((entries, is_cut)))
    }

    /// Returns whether a path exists. Does not follow a link at its end.
    pub fn has(&self, path: &Path) -> io::Result<bool> {
        match self.at(path, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(error) if is(&error, Errno::NOENT) || is(&error, Errno::NOTDIR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn at(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
        let path = path.strip_prefix("/").unwrap_or(path);
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.folder, path, flags, Mode::empty(), within) {
            Err(Errno::NOSYS) if self.is_own => Ok(openat(&self.folder, path, flags, Mode::empty())?),
            Err(Errno::NOSYS) => Err(io::Error::other(
                "this kernel cannot restrict links to a folder: Linux 5.6 or later is required",
            )),
            outcome => Ok(outcome?),
        }
    }
}

impl Opened {
    /// Reads the whole file. Fails if the file has more than `most` bytes.
    pub fn read(self, most: u64) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.file.take(most.saturating_add(1)).read_to_end(&mut content)?;
        if content.len() as u64 > most {
            return Err(io::Error::other(format!("it is larger than {} MiB", most >> 20)));
        }
        Ok(content)
    }
}

fn is(error: &io::Error, code: Errno) -> bool {
    error.raw_os_error() == Some(code.raw_os_error())
}

//! Files below an untrusted folder: the root of a container, or of a mounted node. Links are resolved as inside that root, and
//! never lead out of it (`openat2(2)`, `RESOLVE_IN_ROOT`, Linux 5.6).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// A folder, below which files are opened.
pub(super) struct Root {
    folder: OwnedFd,
    /// Whether it is this machine's own root, which links cannot leave anyway.
    is_own: bool,
}

/// An open file and its identity: device and inode.
pub(super) struct Opened {
    file: File,
    pub(super) identity: (u64, u64),
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { folder: openat(CWD, path, flags, Mode::empty())?, is_own: path == Path::new("/") })
    }

    /// Opens a file; `None` if it is not a regular file: a folder, a socket, a FIFO (opening it may block for ever), or a device
    /// such as a watchdog (opening it has effects). So its type is checked first, with a descriptor that opens nothing
    /// (`O_PATH`); the file is then opened through that descriptor.
    pub(super) fn file(&self, path: &Path) -> io::Result<Option<Opened>> {
        let found = File::from(self.at(path, OFlags::PATH)?);
        let about = found.metadata()?;
        if !about.is_file() {
            return Ok(None);
        }
        // The file exists: a failure now is reported, also if the machine has no `/proc`.
        let file = File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(io::Error::other)?;
        Ok(Some(Opened { file, identity: (about.dev(), about.ino()) }))
    }

    /// Returns the names in a folder, sorted; `None` if it is not a folder. A link to a folder counts only if links are followed.
    pub(super) fn names(&self, path: &Path, follows: bool) -> io::Result<Option<Vec<OsString>>> {
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

    fn at(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
        let path = path.strip_prefix("/").unwrap_or(path);
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.folder, path, flags, Mode::empty(), within) {
            Err(Errno::NOSYS) if self.is_own => Ok(openat(&self.folder, path, flags, Mode::empty())?),
            Err(Errno::NOSYS) => {
                Err(io::Error::other("this kernel cannot restrict links to a folder: that needs Linux 5.6"))
            }
            outcome => Ok(outcome?),
        }
    }
}

impl Opened {
    /// Reads the whole file. Fails if it has more than `most` bytes.
    pub(super) fn read(self, most: u64) -> io::Result<Vec<u8>> {
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

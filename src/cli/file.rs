//! Reads and writes files at paths that the user gives. Another user with access to the folder cannot redirect a write.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{Error, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::session::Failure;

/// The users that can read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Only the owner. Used for a plan, because a plan contains the names of all Services.
    Owner,
    /// Every user that the umask allows.
    All,
}

impl Readers {
    fn mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::All => 0o666,
        }
    }
}

/// Writes a new file with a random name, then renames it to `path`. Either the complete file appears at `path`, or `path` is
/// unchanged. If `path` is a symbolic link, replaces the link and does not follow it. Refuses a path that exists and is not a
/// regular file.
pub fn write_file(path: &Path, content: &[u8], readers: Readers) -> Result<(), Failure> {
    // A rename would replace a device, for example `/dev/null`, with a regular file.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(Failure::refused(format!("`{}` exists and is not a regular file", path.display()))
            .hint("give a new file, or a regular file to replace"));
    }
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new = folder.join(format!(".netsurgeon-{:016x}", rand::random::<u64>()));
    create_file(&new, content, readers).and_then(|()| fs::rename(&new, path)).map_err(|error| {
        // Only the first error is reported.
        let _ = fs::remove_file(&new);
        Failure::refused(format!("cannot write `{}`: {error}", path.display()))
            .hint("the folder must exist, and you must be allowed to write to it")
    })
}

/// Creates a file; fails if it exists.
pub fn create_file(path: &Path, content: &[u8], readers: Readers) -> Result<(), Error> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(readers.mode()).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Returns a function that adds the path of a file to an error.
pub fn at<E: Display>(path: &Path) -> impl Fn(E) -> Failure {
    move |error| Failure::refused(format!("`{}`: {error}", path.display()))
}

/// Reads a text file that the user gives.
pub fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::from(error).context(format!("cannot read `{}`", path.display())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn write_file_replaces_symlinks_and_leaves_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("precious"), "precious").unwrap();
        symlink(at("precious"), at("plan.json")).unwrap();
        write_file(&at("plan.json"), b"a plan", Readers::Owner).unwrap();
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "precious");
        assert_eq!(fs::read_to_string(at("plan.json")).unwrap(), "a plan");
        let found = at("plan.json").symlink_metadata().unwrap();
        assert!(found.is_file() && found.permissions().mode() & 0o777 == 0o600, "{found:?}");
        write_file(&at("report.html"), b"a report", Readers::All).unwrap();
        write_file(&at("report.html"), b"another", Readers::All).unwrap();
        assert_eq!(fs::read_to_string(at("report.html")).unwrap(), "another");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing else is left");
    }

    #[test]
    fn write_file_refuses_anything_but_regular_files() {
        let folder = tempfile::tempdir().unwrap();
        for place in [Path::new("/dev/null"), folder.path(), &folder.path().join("no/such/folder")] {
            let refused = write_file(place, b"a plan", Readers::Owner).unwrap_err();
            let said = format!("{:?}", refused.lines());
            assert!(said.contains(&place.display().to_string()), "{said}");
        }
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    }
}

//! Files that commands write where the user says: each appears whole or not at all, whoever else may write in its folder.

use std::fs::{self, OpenOptions};
use std::io::{Error, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::failure::Failure;

/// Who may read it: the owner alone, or whoever the umask lets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// What others could make use of, as a plan, which names every Service.
    Owner,
    /// What is to be handed on.
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

/// Writes a file in the place of one that is there. Through a new one, whose name nobody knows before it exists: neither that nor
/// the file's own name leads elsewhere, as a symbolic link that somebody else has put there would.
pub fn write_file(path: &Path, content: &[u8], readers: Readers) -> Result<(), Failure> {
    // A device is no file that can be replaced.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(Failure::refused(format!("`{}` is there, and no file", path.display()))
            .hint("name a file that is new, or may be replaced"));
    }
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new = folder.join(format!(".netsurgeon-{:016x}", rand::random::<u64>()));
    written(&new, content, readers.mode()).and_then(|()| fs::rename(&new, path)).map_err(|error| {
        // What could not be written is not worth a second complaint.
        let _ = fs::remove_file(&new);
        Failure::refused(format!("cannot write `{}`: {error}", path.display()))
            .hint("does its folder exist, and may you write to it?")
    })
}

fn written(new: &Path, content: &[u8], mode: u32) -> Result<(), Error> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(new)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_appears_whole_and_goes_nowhere_else() {
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
    fn what_is_no_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        for place in [Path::new("/dev/null"), folder.path(), &folder.path().join("no/such/folder")] {
            let refused = write_file(place, b"a plan", Readers::Owner).unwrap_err();
            let said = format!("{:?}", refused.lines());
            assert!(said.contains(&place.display().to_string()), "{said}");
        }
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    }
}

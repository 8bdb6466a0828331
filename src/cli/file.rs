//! Files appear whole: written under another name, synced, renamed.

use std::io::Write;
use std::path::Path;

use super::failure::Failure;

/// Writes a file so that nobody ever sees a part of it, and a failure leaves what was there.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let fail =
        |error: std::io::Error| Failure::from(error).context(format!("cannot write `{}`", path.display()));
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".netsurgeon-").tempfile_in(directory).map_err(fail)?;
    file.write_all(content).map_err(fail)?;
    file.as_file().sync_all().map_err(fail)?;
    file.persist(path).map_err(|error| fail(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_a_failure_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plan.json");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert!(write_whole(&directory.path().join("missing/plan.json"), b"x").is_err());
        assert!(write_whole(directory.path(), b"x").is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

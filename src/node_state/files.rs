//! Lists the names in the folders that network plug-ins use, and reads small files there. The root file system of the node is not
//! trusted: links stay inside it, and sizes are limited.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::model::{Part, TableName};
use crate::host::untrusted_root::{Entry, Root};

/// The folders whose names are listed.
const FOLDERS: &[&str] = &[
    "/etc/cni/net.d",
    "/etc/iproute2",
    "/etc/iproute2/rt_tables.d",
    "/etc/sysctl.d",
    "/opt/cni/bin",
    "/run",
    "/run/calico",
    "/run/cilium",
    "/run/flannel",
    "/run/netns",
    "/var/lib",
    "/var/lib/calico",
    "/var/lib/cni",
    "/var/lib/cni/cache",
    "/var/lib/cni/flannel",
    "/var/lib/cni/networks",
    "/var/lib/cni/results",
    "/var/lib/weave",
    "/var/log",
];
/// Limit for the number of names in a folder.
pub(super) const MOST_NAMES: usize = 20_000;
/// Folder of pinned BPF objects, and limits for its depth and number of objects.
const PINS: &str = "/sys/fs/bpf";
const DEEPEST: usize = 8;
const MOST_PINS: usize = 50_000;
/// Files with names of routing tables, and their largest size.
const TABLE_FILES: [&str; 2] = ["/etc/iproute2/rt_tables", "/usr/share/iproute2/rt_tables"];
const TABLE_FOLDER: &str = "/etc/iproute2/rt_tables.d";
const LARGEST: u64 = 1 << 20;

/// The root folder, or why it cannot be opened.
pub(super) type Opened = io::Result<Root>;

pub(super) fn unopened<T>(error: &io::Error) -> Part<T> {
    Part::incomplete(Vec::new(), format!("the root folder of the node: {error}"))
}

pub(super) fn read(root: &Opened) -> Part<String> {
    let root = match root {
        Ok(root) => root,
        Err(error) => return unopened(error),
    };
    let (mut names, mut gaps) = (Vec::new(), Vec::new());
    for folder in FOLDERS {
        match entries(root, Path::new(folder), MOST_NAMES) {
            Ok((entries, is_cut)) => {
                names
                    .extend(entries.iter().map(|entry| format!("{folder}/{}", entry.name.to_string_lossy())));
                if is_cut {
                    gaps.push(format!("`{folder}` contains more than {MOST_NAMES} names"));
                }
            }
            Err(error) => gaps.push(format!("`{folder}`: {error}")),
        }
    }
    let gap = (!gaps.is_empty()).then(|| gaps.join("; "));
    Part::with_gap(names, gap)
}

/// Returns the entries of a folder, up to a limit, and whether there are more. A folder that does not exist has no entries.
pub(super) fn entries(root: &Root, folder: &Path, most: usize) -> io::Result<(Vec<Entry>, bool)> {
    match root.entries(folder, most) {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Ok((Vec::new(), false)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((Vec::new(), false)),
        Err(error) => Err(error),
    }
}

pub(super) fn bpf_pins(root: &Opened) -> Part<String> {
    let root = match root {
        Ok(root) => root,
        Err(error) => return unopened(error),
    };
    match root.entries(Path::new(PINS), 1) {
        Ok(Some(_)) => {}
        Ok(None) => return Part::absent(format!("`{PINS}` is no folder")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Part::absent(format!("there is no `{PINS}`"));
        }
        Err(error) => return Part::unread(&error),
    }
    let (mut found, mut gap) = (BTreeSet::new(), None);
    let mut folders = vec![(PathBuf::from(PINS), 0_usize)];
    while let Some((folder, depth)) = folders.pop() {
        let left = MOST_PINS.saturating_sub(found.len());
        let (entries, is_cut) = match entries(root, &folder, left) {
            Ok(found) => found,
            Err(error) => {
                gap = Some(format!("`{}`: {error}", folder.display()));
                continue;
            }
        };
        if is_cut {
            gap = Some(format!("there are more than {MOST_PINS}"));
        }
        for entry in entries {
            let path = folder.join(&entry.name);
            found.insert(path.to_string_lossy().into_owned());
            if entry.is_folder && depth < DEEPEST {
                folders.push((path, depth.saturating_add(1)));
            }
        }
    }
    Part::with_gap(found.into_iter().collect(), gap)
}

pub(super) fn table_names(root: &Opened) -> Part<TableName> {
    let root = match root {
        Ok(root) => root,
        Err(error) => return unopened(error),
    };
    let mut files: Vec<PathBuf> = TABLE_FILES.iter().map(PathBuf::from).collect();
    let (mut found, mut gap) = (Vec::new(), None);
    match entries(root, Path::new(TABLE_FOLDER), MOST_NAMES) {
        Ok((entries, _)) => {
            files.extend(entries.iter().map(|entry| Path::new(TABLE_FOLDER).join(&entry.name)));
        }
        Err(error) => gap = Some(format!("`{TABLE_FOLDER}`: {error}")),
    }
    for file in files {
        match content(root, &file, LARGEST) {
            Ok(Some(bytes)) => {
                let text = String::from_utf8_lossy(&bytes);
                found.extend(text.lines().filter_map(|line| table_name(line, &file)));
            }
            Ok(None) => {}
            Err(error) => gap = Some(format!("`{}`: {error}", file.display())),
        }
    }
    Part::with_gap(found, gap)
}

/// Parses `NUMBER NAME`.
fn table_name(line: &str, file: &Path) -> Option<TableName> {
    let mut words = line.split('#').next()?.split_whitespace();
    let number = words.next()?;
    let table = match number.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => number.parse().ok()?,
    };
    Some(TableName { file: file.display().to_string(), table, name: words.next()?.to_string() })
}

/// Returns the content of a regular file; `None` if there is no such file.
pub(super) fn content(root: &Root, path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    match root.file(path) {
        Ok(Some(file)) => file.read(most).map(Some),
        Ok(None) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_routing_tables_are_parsed() {
        let file = Path::new("/etc/iproute2/rt_tables");
        let name = |line| table_name(line, file).map(|found| (found.table, found.name));
        assert_eq!(name("77 kube-router"), Some((77, "kube-router".to_string())));
        assert_eq!(name("0x4d\tkube-router # own"), Some((77, "kube-router".to_string())));
        assert_eq!((name("# 77 kube-router"), name("main"), name("")), (None, None, None));
    }

    #[test]
    fn hostile_names_and_links_are_listed_only() {
        let folder = tempfile::tempdir().unwrap();
        let confs = folder.path().join("etc/cni/net.d");
        std::fs::create_dir_all(&confs).unwrap();
        std::fs::write(confs.join("10-\u{1b}[2J.conflist"), "{}").unwrap();
        std::os::unix::fs::symlink("/etc/shadow", confs.join("20-link.conf")).unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("run")).unwrap();
        let files = read(&Root::open(folder.path()));
        assert_eq!(files.gap(), None);
        assert!(files.items.contains(&"/etc/cni/net.d/20-link.conf".to_string()), "{files:?}");
        // The link to `/` is the folder itself.
        assert!(files.items.contains(&"/run/etc".to_string()), "{files:?}");
        assert!(!files.items.contains(&"/run/usr".to_string()), "{files:?}");
    }

    #[test]
    fn missing_root_is_reported() {
        let root = Root::open(Path::new("/nonexistent"));
        assert!(read(&root).gap().is_some());
        assert!(bpf_pins(&root).gap().is_some());
        assert!(table_names(&root).gap().is_some());
    }
}

//! Where certificates lie: files and folders that are named, or the place where a distribution keeps them.

use std::path::{Path, PathBuf};

use crate::cli::failure::Failure;

/// Where distributions keep the certificates of a control plane: kubeadm (`cmd/kubeadm/app/constants/constants.go`,
/// `KubernetesDir`, v1.36.3), K3s and RKE2 (`server/tls` below their data folder), kOps (the API server's `/srv/kubernetes`).
const PLACES: [&str; 4] = [
    "/etc/kubernetes/pki",
    "/var/lib/rancher/k3s/server/tls",
    "/var/lib/rancher/rke2/server/tls",
    "/srv/kubernetes",
];
/// What files of certificates end with; keys are never opened.
const ENDINGS: [&str; 3] = ["crt", "pem", "cert"];
/// Folders below each other: kubeadm has one (`etcd`), kOps one for each component.
const DEPTH: usize = 3;

/// Returns the files that are to be looked at: those that are named, those of folders that are named, or those of the
/// first place of a distribution that is there.
pub(super) fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    if named.is_empty() {
        below(place()?, DEPTH, &mut found)?;
    }
    for path in named {
        if path.is_dir() {
            below(path, DEPTH, &mut found)?;
        } else {
            found.push(path.clone());
        }
    }
    Ok(found)
}

fn place() -> Result<&'static Path, Failure> {
    PLACES.iter().map(Path::new).find(|place| place.is_dir()).ok_or_else(|| {
        let text = format!("none of the usual folders is here: {}", PLACES.join(", "));
        Failure::usage(text).hint("run it on a control-plane host, or name a file or a folder")
    })
}

fn below(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| Failure::refused(format!("`{}`: {error}", folder.display()));
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        entries.push(entry.map_err(unreadable)?.path());
    }
    entries.sort();
    for path in entries {
        if path.is_dir() {
            if let Some(depth) = depth.checked_sub(1) {
                below(&path, depth, found)?;
            }
        } else if ENDINGS.iter().any(|ending| path.extension().is_some_and(|found| found == *ending)) {
            found.push(path);
        }
    }
    Ok(())
}

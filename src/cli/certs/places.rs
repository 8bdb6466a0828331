//! Where certificates lie: files and folders that are named, or the place where a distribution keeps them.

use std::path::{Path, PathBuf};

use crate::session::Failure;

/// Where distributions keep the certificates of a control plane: kubeadm (`cmd/kubeadm/app/constants/constants.go`,
/// `KubernetesDir`, v1.36.3), K3s and RKE2 (`server/tls` below their data folder), kOps (the API server's `/srv/kubernetes`).
const PLACES: [&str; 4] = [
    "/etc/kubernetes/pki",
    "/var/lib/rancher/k3s/server/tls",
    "/var/lib/rancher/rke2/server/tls",
    "/srv/kubernetes",
];
/// What an API server serves with, and who signs it, within such a place: certificate, key, authority, its key. kubeadm;
/// K3s and RKE2; kOps today and before 1.22 (`nodeup/pkg/model/kube_apiserver.go`).
const LAYOUTS: [[&str; 4]; 4] = [
    ["apiserver.crt", "apiserver.key", "ca.crt", "ca.key"],
    ["serving-kube-apiserver.crt", "serving-kube-apiserver.key", "server-ca.crt", "server-ca.key"],
    ["kube-apiserver/server.crt", "kube-apiserver/server.key", "ca.crt", "kube-controller-manager/ca.key"],
    ["server.crt", "server.key", "ca.crt", "ca.key"],
];
/// What files of certificates end with; keys are never opened.
const ENDINGS: [&str; 3] = ["crt", "pem", "cert"];
/// Folders below each other: kubeadm has one (`etcd`), kOps one for each component.
const DEPTH: usize = 3;

/// The files of an API server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Serving {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) authority: PathBuf,
    pub(super) authority_key: PathBuf,
}

impl Serving {
    /// Returns those of a folder, or of the first place of a distribution on this host.
    pub(super) fn find(folder: Option<&Path>) -> Option<Self> {
        let places = folder.map_or_else(|| PLACES.iter().map(Path::new).collect(), |folder| vec![folder]);
        let all =
            places.into_iter().flat_map(|place| LAYOUTS.map(|files| files.map(|file| place.join(file))));
        all.map(|[certificate, key, authority, authority_key]| Self {
            certificate,
            key,
            authority,
            authority_key,
        })
        .find(|files| files.certificate.is_file())
    }
}

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

/// Says where was looked for what is not there.
pub(super) fn nowhere() -> Failure {
    let text = format!("none of the usual folders is here: {}", PLACES.join(", "));
    Failure::usage(text).hint("run it on a control-plane host, or name files or a folder")
}

fn place() -> Result<&'static Path, Failure> {
    PLACES.iter().map(Path::new).find(|place| place.is_dir()).ok_or_else(nowhere)
}

fn below(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| Failure::refused(format!("`{}`: {error}", folder.display()));
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        entries.push(entry.map_err(unreadable)?.path());
    }
    entries.sort();
    // What nobody may ever write into, as a FIFO, says nothing.
    entries.retain(|path| path.metadata().map_or(true, |about| about.is_file() || about.is_dir()));
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

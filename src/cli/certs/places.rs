//! Finds certificate files in the paths that the user gives, or in the certificate folder of a distribution.

use std::path::{Path, PathBuf};

use crate::cli::file::at;
use crate::session::Failure;

/// Certificate folders of distributions on a control-plane host: kubeadm (`cmd/kubeadm/app/constants/constants.go`,
/// `KubernetesDir`, v1.36.3), K3s and RKE2 (`server/tls` in their data folder), kOps (the API server's `/srv/kubernetes`).
const PLACES: [&str; 4] = [
    "/etc/kubernetes/pki",
    "/var/lib/rancher/k3s/server/tls",
    "/var/lib/rancher/rke2/server/tls",
    "/srv/kubernetes",
];
/// Files in the certificate folder of a distribution: the API server's serving certificate and key, and the CA's certificate and
/// key. There is one row for kubeadm, one for K3s and RKE2, one for kOps since 1.22, and one for kOps before 1.22
/// (`nodeup/pkg/model/kube_apiserver.go`).
const LAYOUTS: [[&str; 4]; 4] = [
    ["apiserver.crt", "apiserver.key", "ca.crt", "ca.key"],
    ["serving-kube-apiserver.crt", "serving-kube-apiserver.key", "server-ca.crt", "server-ca.key"],
    ["kube-apiserver/server.crt", "kube-apiserver/server.key", "ca.crt", "kube-controller-manager/ca.key"],
    ["server.crt", "server.key", "ca.crt", "ca.key"],
];
/// Extensions of certificate files. In a folder, files with other extensions, for example `key`, are not opened.
const ENDINGS: [&str; 3] = ["crt", "pem", "cert"];
/// Maximum depth of the search in subfolders. kubeadm has one subfolder (`etcd`), and kOps has one for each component.
const DEPTH: usize = 3;

/// The files of an API server's certificate and its CA, with their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Serving {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) authority: PathBuf,
    pub(super) authority_key: PathBuf,
}

impl Serving {
    /// Finds the files in the given folder. Without a folder, finds them in the first folder of a distribution that contains an
    /// API server's certificate.
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

/// Returns the files to check: the given files, and the certificate files in the given folders. If no paths are given, returns
/// the certificate files in the first folder of a distribution that exists on this host.
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

/// Returns a failure that lists the known certificate folders.
pub(super) fn nowhere() -> Failure {
    let what = if PLACES.iter().any(|place| Path::new(place).is_dir()) {
        "the known certificate folders have no certificate of an API server"
    } else {
        "none of the known certificate folders exists"
    };
    let text = format!("{what}: {}", PLACES.join(", "));
    Failure::usage(text).hint("run this command on a control-plane host, or give files or a folder")
}

fn place() -> Result<&'static Path, Failure> {
    PLACES.iter().map(Path::new).find(|place| place.is_dir()).ok_or_else(nowhere)
}

fn below(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(at(folder))? {
        entries.push(entry.map_err(at(folder))?.path());
    }
    entries.sort();
    // Only regular files and folders are read, because a read from a FIFO could block forever.
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

//! Reads the leases of the plug-in `host-local` and the cached results of network plug-ins.
//!
//! `host-local` has a file for each address, with the id of the sandbox in its first line (`plugins/ipam/host-local/backend/disk`).
//! The runtime keeps a JSON file for each sandbox and network (`libcni/api.go`).

use std::io;
use std::net::IpAddr;
use std::path::Path;

use serde_json::Value;

use super::files::{MOST_NAMES, Opened, content, entries, unopened};
use super::model::{CachedResult, Lease, Part};
use crate::host::untrusted_root::Root;

/// Folders of the leases: of `host-local`, and of kindnet. Each contains a folder for each network.
const LEASES: [&str; 2] = ["/var/lib/cni/networks", "/run/cni-ipam-state"];
const RESULTS: [&str; 2] = ["/var/lib/cni/results", "/var/lib/cni/cache/results"];
/// Limits for the number of networks, and for the sizes of a lease and a result.
const MOST_NETWORKS: usize = 200;
const LARGEST_LEASE: u64 = 4 << 10;
const LARGEST_RESULT: u64 = 256 << 10;
/// Limit for the number of results.
const MOST_RESULTS: usize = 10_000;

pub(super) fn leases(root: &Opened) -> Part<Lease> {
    let root = match root {
        Ok(root) => root,
        Err(error) => return unopened(error),
    };
    let (mut found, mut gaps) = (Vec::new(), Vec::new());
    for folder in LEASES {
        if let Err(error) = leases_in(root, folder, &mut found, &mut gaps) {
            gaps.push(format!("`{folder}`: {error}"));
        }
    }
    Part::with_gap(found, (!gaps.is_empty()).then(|| gaps.join("; ")))
}

fn leases_in(root: &Root, folder: &str, found: &mut Vec<Lease>, gaps: &mut Vec<String>) -> io::Result<()> {
    let (networks, is_cut) = entries(root, Path::new(folder), MOST_NETWORKS)?;
    if is_cut {
        gaps.push(format!("`{folder}` contains more than {MOST_NETWORKS} networks"));
    }
    for network in networks {
        let path = Path::new(folder).join(&network.name);
        let (files, is_cut) = entries(root, &path, MOST_NAMES)?;
        if is_cut {
            gaps.push(format!("`{}` contains more than {MOST_NAMES} leases", path.display()));
        }
        for file in files {
            let Some(address) = file.name.to_str().and_then(|name| name.parse::<IpAddr>().ok()) else {
                continue;
            };
            let path = path.join(&file.name);
            match content(root, &path, LARGEST_LEASE) {
                Ok(Some(text)) => found.push(Lease {
                    file: path.display().to_string(),
                    network: network.name.to_string_lossy().into_owned(),
                    address,
                    container: first_line(&text),
                }),
                Ok(None) => {}
                Err(error) => gaps.push(format!("`{}`: {error}", path.display())),
            }
        }
    }
    Ok(())
}

fn first_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).lines().next().unwrap_or_default().trim().to_string()
}

pub(super) fn results(root: &Opened) -> Part<CachedResult> {
    let root = match root {
        Ok(root) => root,
        Err(error) => return unopened(error),
    };
    let (mut found, mut gaps) = (Vec::new(), Vec::new());
    for folder in RESULTS {
        match entries(root, Path::new(folder), MOST_RESULTS) {
            Ok((files, is_cut)) => {
                if is_cut {
                    gaps.push(format!("`{folder}` contains more than {MOST_RESULTS} files"));
                }
                for file in files.iter().filter(|file| !file.is_folder) {
                    let path = Path::new(folder).join(&file.name);
                    let result = content(root, &path, LARGEST_RESULT);
                    match result.map(|text| text.and_then(|text| result_of(&path, &text))) {
                        Ok(Some(result)) => found.push(result),
                        Ok(None) => gaps.push(format!("`{}` contains no result", path.display())),
                        Err(error) => gaps.push(format!("`{}`: {error}", path.display())),
                    }
                }
            }
            Err(error) => gaps.push(format!("`{folder}`: {error}")),
        }
    }
    gaps.truncate(10);
    Part::with_gap(found, (!gaps.is_empty()).then(|| gaps.join("; ")))
}

/// Parses a file of `cniCacheV1`.
fn result_of(path: &Path, text: &[u8]) -> Option<CachedResult> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let field = |name: &str| value.get(name)?.as_str().map(ToString::to_string);
    let ips = value.pointer("/result/ips").and_then(Value::as_array).into_iter().flatten();
    let address = |ip: &Value| ip.get("address")?.as_str()?.split('/').next()?.parse().ok();
    Some(CachedResult {
        file: path.display().to_string(),
        network: field("networkName")?,
        container: field("containerId")?,
        addresses: ips.filter_map(address).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_and_results_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("var/lib/cni/networks/cbr0/10.244.1.5", "abc\r\neth0");
        write("var/lib/cni/networks/cbr0/fd00::5", "abc\r\neth0");
        write("var/lib/cni/networks/cbr0/last_reserved_ip.0", "10.244.1.5");
        write("var/lib/cni/networks/cbr0/lock", "");
        write(
            "var/lib/cni/results/cbr0-abc-eth0",
            r#"{"kind": "cniCacheV1", "containerId": "abc", "networkName": "cbr0", "ifName": "eth0",
                "result": {"ips": [{"address": "10.244.1.5/24"}]}}"#,
        );
        let root = Root::open(folder.path());
        let leases = leases(&root);
        let told: Vec<_> =
            leases.items.iter().map(|lease| (lease.address.to_string(), lease.container.as_str())).collect();
        assert_eq!(told, [("10.244.1.5".to_string(), "abc"), ("fd00::5".to_string(), "abc")]);
        assert_eq!(leases.gap(), None);
        let found = results(&root);
        assert_eq!(found.items[0].addresses, ["10.244.1.5".parse::<IpAddr>().unwrap()]);
        write("var/lib/cni/results/other", "no result");
        assert!(results(&root).gap().is_some());
    }
}

//! Reads the configuration of this machine: files that may contain cluster addresses, and the environment and `resolv.conf` of
//! each process. Changes nothing. Never follows links out of the root.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::statfs;

use super::process::pids;
use super::untrusted_root::Root;

/// Files and folders to read, with subfolders, as paths from the root. They belong to the kubelet, CNI (the default of the
/// specification), static Pods (kubeadm, RKE2), systemd units and drop-ins, resolvers, container runtimes, K3s and RKE2.
const PLACES: [&str; 30] = [
    "etc/cni/net.d",
    "etc/kubernetes/manifests",
    "var/lib/kubelet/config.yaml",
    "var/lib/kubelet/instance-config.yaml",
    "var/lib/kubelet/kubeadm-flags.env",
    "var/lib/kubelet/kubeconfig",
    "etc/default/kubelet",
    "etc/sysconfig/kubelet",
    "etc/systemd",
    "usr/lib/systemd/system/kubelet.service.d",
    "lib/systemd/system/kubelet.service.d",
    "etc/environment",
    "etc/profile.d",
    "etc/hosts",
    "etc/resolv.conf",
    "run/systemd/resolve/resolv.conf",
    "etc/dnsmasq.conf",
    "etc/dnsmasq.d",
    "etc/NetworkManager/conf.d",
    "etc/NetworkManager/dnsmasq.d",
    "etc/containerd",
    "etc/crio",
    "etc/docker",
    "etc/default/containerd",
    "etc/default/docker",
    "etc/rancher",
    "var/lib/rancher/k3s/agent/etc",
    "var/lib/rancher/rke2/agent/etc",
    "var/lib/rancher/rke2/agent/pod-manifests",
    "var/lib/rancher/k3s/server/manifests",
];
/// The folder of kubeconfigs. Only files directly in this folder are read; `pki` is not read.
const KUBERNETES: &str = "etc/kubernetes";
/// Path of the resolver configuration, below the root folder of a process.
const RESOLVER: &str = "etc/resolv.conf";
/// Maximum size of a configuration file, in bytes.
const LARGEST: u64 = 4 << 20;
/// Maximum size of a process's environment, in bytes. The kernel limits the environment and arguments together to 6 MiB
/// (`bprm_stack_limits`, `fs/exec.c`, Linux 6.1).
const ENVIRONMENT: u64 = 6 << 20;
/// File system type of `/proc`: `PROC_SUPER_MAGIC` (`uapi/linux/magic.h`, Linux 6.1).
const OF_PROC: i64 = 0x9fa0;
/// Maximum depth of nested folders.
const DEEPEST: usize = 16;

/// An item of this machine's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// A configuration file.
    File {
        /// Path from the root, with a leading slash.
        path: &'a str,
        /// Content of the file.
        content: &'a [u8],
    },
    /// The `resolv.conf` of a process, if it is not the machine's own `resolv.conf`. Reported once for all processes with the
    /// same file.
    Resolver {
        /// Process to which the item belongs.
        process: &'a Running,
        /// Content of the file.
        content: &'a [u8],
    },
    /// An environment variable with which a process was started.
    Variable {
        /// Process to which the item belongs.
        process: &'a Running,
        /// Name of the variable.
        name: &'a str,
        /// Value of the variable.
        value: &'a [u8],
    },
}

/// A running process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Process id.
    pub pid: u32,
    /// Name of the process (`/proc/PID/comm`).
    pub name: String,
}

/// Result of the search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looked {
    /// Number of files that were read.
    pub files: usize,
    /// Number of processes whose environment was read.
    pub processes: usize,
    /// Paths that could not be read, with the reason.
    pub unreadable: Vec<(String, String)>,
    /// Device and inode of every file that was read.
    known: BTreeSet<(u64, u64)>,
}

/// Reads the configuration below `root`, and the processes in its `/proc`. If `root` has no `/proc`, reads the processes of this
/// machine. Blocks the thread.
pub fn look(root: &Path, seen: &mut dyn FnMut(Item<'_>)) -> Looked {
    let mut looked = Looked::default();
    match Root::open(root) {
        Ok(opened) => looked.files(&opened, seen),
        Err(error) => looked.cannot(root, &error),
    }
    let own = root.join("proc");
    looked.processes(if is_of_the_kernel(&own) { &own } else { Path::new("/proc") }, seen);
    looked
}

impl Looked {
    fn cannot(&mut self, path: &Path, error: &io::Error) {
        // A missing file, or a process that has ended (ESRCH), is not an error.
        if error.kind() != io::ErrorKind::NotFound
            && error.raw_os_error() != Some(rustix::io::Errno::SRCH.raw_os_error())
        {
            self.unreadable.push((path.display().to_string(), error.to_string()));
        }
    }

    fn files(&mut self, root: &Root, seen: &mut dyn FnMut(Item<'_>)) {
        for place in PLACES {
            self.below(root, Path::new(place), 0, seen);
        }
        let is_text = |path: &Path| {
            path.extension()
                .is_some_and(|extension| ["conf", "env", "yaml", "yml"].iter().any(|own| extension == *own))
        };
        let names = root.names(Path::new(KUBERNETES), true).ok().flatten().unwrap_or_default();
        for path in names.iter().map(|name| Path::new(KUBERNETES).join(name)).filter(|path| is_text(path)) {
            self.file(root, &path, seen);
        }
    }

    /// Reads a file, or a folder with its subfolders. A link to a folder is followed only at the top level. Deeper links to
    /// folders are skipped, because they may form a loop.
    fn below(&mut self, root: &Root, path: &Path, depth: usize, seen: &mut dyn FnMut(Item<'_>)) {
        match root.names(path, depth == 0) {
            Ok(Some(names)) if depth < DEEPEST => {
                for name in names {
                    self.below(root, &path.join(name), depth.saturating_add(1), seen);
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => self.file(root, path, seen),
            Err(error) => self.cannot(&Path::new("/").join(path), &error),
        }
    }

    fn file(&mut self, root: &Root, path: &Path, seen: &mut dyn FnMut(Item<'_>)) {
        match self.read_once(root, path) {
            Ok(Some(content)) => {
                self.files = self.files.saturating_add(1);
                seen(Item::File { path: &format!("/{}", path.display()), content: &content });
            }
            Ok(None) => {}
            Err(error) => self.cannot(&Path::new("/").join(path), &error),
        }
    }

    /// Reads a file once. Returns `None` if the file was read before, or is not a regular file.
    fn read_once(&mut self, root: &Root, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let opened = root.file(path)?.filter(|opened| self.known.insert(opened.identity));
        opened.map(|opened| opened.read(LARGEST)).transpose()
    }

    fn processes(&mut self, proc: &Path, seen: &mut dyn FnMut(Item<'_>)) {
        let own = std::process::id();
        let pids = match pids(proc) {
            Ok(pids) => pids,
            Err(error) => return self.cannot(proc, &error),
        };
        for pid in pids.into_iter().filter(|pid| *pid != own) {
            let folder = proc.join(pid.to_string());
            let name = fs::read_to_string(folder.join("comm")).unwrap_or_default().trim().to_string();
            let process = Running { pid, name };
            self.environment(&folder.join("environ"), &process, seen);
            let root = folder.join("root");
            let content = Root::open(&root).and_then(|root| self.read_once(&root, Path::new(RESOLVER)));
            match content {
                Ok(Some(content)) => seen(Item::Resolver { process: &process, content: &content }),
                Ok(None) => {}
                Err(error) => self.cannot(&root.join(RESOLVER), &error),
            }
        }
    }

    fn environment(&mut self, path: &Path, process: &Running, seen: &mut dyn FnMut(Item<'_>)) {
        let mut content = Vec::new();
        if let Err(error) = File::open(path).and_then(|file| file.take(ENVIRONMENT).read_to_end(&mut content))
        {
            return self.cannot(path, &error);
        }
        self.processes = self.processes.saturating_add(1);
        for variable in content.split(|byte| *byte == 0) {
            let mut parts = variable.splitn(2, |byte| *byte == b'=');
            if let (Some(name), Some(value)) = (parts.next(), parts.next()) {
                let name = String::from_utf8_lossy(name);
                seen(Item::Variable { process, name: &name, value });
            }
        }
    }
}

/// Returns whether a folder is the `/proc` of a kernel. Any other folder may contain FIFOs, and links that lead out of the root.
fn is_of_the_kernel(proc: &Path) -> bool {
    statfs(proc).is_ok_and(|about| about.f_type == OF_PROC) && proc.join("1").exists()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    #[test]
    fn files_are_read_once_and_links_stay_in_the_root() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("etc/cni/net.d/deep/calico-kubeconfig", "server: x");
        put("etc/kubernetes/admin.conf", "a");
        put("etc/kubernetes/pki/ca.key", "never");
        put("run/real.conf", "resolver");
        std::os::unix::fs::symlink("/run/real.conf", root.path().join("etc/resolv.conf")).unwrap();
        std::os::unix::fs::symlink("resolv.conf", root.path().join("etc/environment")).unwrap();
        // Links that lead out of the root, directly or through their folder, and a FIFO without a writer.
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("config.yaml"), "outside").unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("etc/profile.d")).unwrap();
        fs::create_dir_all(root.path().join("var/lib")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("var/lib/kubelet")).unwrap();
        std::os::unix::fs::symlink("../../../../../../etc/passwd", root.path().join("etc/hosts")).unwrap();
        let fifo = root.path().join("etc/dnsmasq.conf");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        // A folder `/proc` that is not from the kernel.
        fs::create_dir_all(root.path().join("proc/1")).unwrap();
        fs::create_dir_all(outside.path().join("etc")).unwrap();
        fs::write(outside.path().join("etc/resolv.conf"), "nameserver outside").unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("proc/1/root")).unwrap();
        let environment = root.path().join("proc/1/environ");
        rustix::fs::mknodat(CWD, &environment, FileType::Fifo, Mode::RUSR, 0).unwrap();
        // Sockets are never opened, and errors are reported.
        let _socket = UnixListener::bind(root.path().join("etc/crio")).unwrap();
        let (mut files, mut resolvers) = (Vec::new(), Vec::new());
        let looked = look(root.path(), &mut |item| {
            let text = |content: &[u8]| String::from_utf8_lossy(content).into_owned();
            match item {
                Item::File { path, content } => files.push((path.to_string(), text(content))),
                Item::Resolver { content, .. } => resolvers.push(text(content)),
                Item::Variable { .. } => {}
            }
        });
        let of = |path: &str, text: &str| (path.to_string(), text.to_string());
        assert_eq!(
            files,
            [
                of("/etc/cni/net.d/deep/calico-kubeconfig", "server: x"),
                of("/etc/environment", "resolver"),
                of("/etc/kubernetes/admin.conf", "a"),
            ]
        );
        assert_eq!(looked.files, 3);
        let own = |told: &&(String, String)| told.0.starts_with("/etc");
        assert_eq!(looked.unreadable.iter().find(own), None);
        assert!(looked.processes > 0, "those of this machine, where the root has none");
        assert!(!resolvers.iter().any(|content| content.contains("outside")), "{resolvers:?}");
    }
}

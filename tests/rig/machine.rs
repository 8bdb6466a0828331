//! A host of its own for each real node: root file system, processes and host name are private, and the network is that of a node of
//! the rig's network. What runs in it does not see that it is no machine, and leaves nothing behind.
//!
//! * **Processes**: a PID namespace. Its first process, `pause`, keeps everything alive; when it ends, the kernel kills all others,
//!   also containers. It ends with the process of the test, however that ends.
//! * **Files**: an overlay over the machine's root in which all changes stay in memory. So programs of Debian are there, kubelet and
//!   containerd use their usual folders, and the machine gets no file. Only the folders that [`Machine::start`] gets are shared.
//! * **Kernel settings**: a kubelet writes six that belong to the whole machine. It gets private copies of these.
//! * **Cgroups**: folders with the ids of the run, in every hierarchy. [`Machine`] removes them on drop, and the next run those of runs
//!   that were killed.

use std::fs::{create_dir, create_dir_all, read_dir, read_to_string, remove_dir, write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::namespace::Namespace;
use super::process::{Process, wait_until};
use super::programs::pause;

/// Where the cgroups are.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The prefix of the cgroups; the id of the process that created them follows.
const PREFIX: &str = "netsurgeon-";

/// How long the kernel may take to create namespaces, or to end all processes in one.
const DEADLINE: Duration = Duration::from_secs(30);

/// How often a condition is checked.
const POLL: Duration = Duration::from_millis(20);

/// Builds the root file system below `$0/host`, and becomes `pause`: `$1` is the host name, `$2` the program, the rest are the folders
/// to share.
const SETUP: &str = r#"
folder=$0 name=$1 program=$2
shift 2
mount -t tmpfs -o mode=755 node "$folder/host"
cd "$folder/host"
mkdir upper work root settings
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work node root
mount -t proc proc root/proc
mount --rbind /dev root/dev
mount -t sysfs sysfs root/sys
mount --rbind /sys/fs/cgroup root/sys/fs/cgroup
mount -t tmpfs -o mode=755 run root/run
mount -t tmpfs tmp root/tmp
mkdir -p root/var/lib/containerd root/etc/cni/net.d root/opt/cni/bin root/etc/kubernetes/manifests
mount -t tmpfs containerd root/var/lib/containerd
for path in "$@"; do
    mkdir -p "root$path"
    mount --bind "$path" "root$path"
done
mount --bind "$folder/log" root/var/log
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    file=settings/$(echo $setting | tr / .)
    cat /proc/sys/$setting >$file
    mount --bind $file root/proc/sys/$setting
done
cd root
mkdir run/old
pivot_root . run/old
umount --lazy run/old
rmdir run/old
mount --make-rshared /
hostname "$name"
echo "$name" >/etc/hostname
tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id
touch "$folder/is-ready"
exec "$program"
"#;

/// A host. On drop everything in it ends.
pub struct Machine {
    name: String,
    namespace: Namespace,
    /// The first process of its PID namespace, as the rig sees it.
    init: Pid,
    cgroup: String,
    folder: PathBuf,
    /// The parent of `init`.
    keeper: Process,
}

impl Machine {
    /// Starts a host in the network of a namespace. Its logs go to `folder`; `shared` are the folders that it has in common with the
    /// machine.
    pub async fn start(name: &str, namespace: &Namespace, folder: &Path, shared: &[PathBuf]) -> Self {
        static SWEEP: Once = Once::new();
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        SWEEP.call_once(|| remove_leftovers(std::process::id()));
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let cgroup = format!("{PREFIX}{}-{number}-{name}", std::process::id());
        create_cgroups(&cgroup);
        for name in ["host", "log"] {
            create_dir_all(folder.join(name)).expect("a folder");
        }
        let mut arguments: Vec<String> =
            ["--mount", "--uts", "--pid", "--fork", "--kill-child", "--propagation", "private"]
                .map(str::to_owned)
                .into();
        arguments.extend(["--", "sh", "-euc", SETUP].map(str::to_owned));
        arguments.extend([folder.display().to_string(), name.to_owned(), pause().display().to_string()]);
        arguments.extend(
            [folder]
                .into_iter()
                .chain(shared.iter().map(PathBuf::as_path))
                .map(|path| path.display().to_string()),
        );
        let log = folder.join("host.log");
        let mut keeper = Process::start_in(namespace, name, Path::new("unshare"), &arguments, &log);
        let is_ready = folder.join("is-ready");
        let ready = keeper.ready("the host is ready", DEADLINE, async || {
            if is_ready.is_file() { Ok(()) } else { Err("its file system is incomplete".to_owned()) }
        });
        ready.await.unwrap_or_else(|message| panic!("{message}"));
        let init = child_of(keeper.id()).expect("`unshare` has a child");
        Self {
            name: name.to_owned(),
            namespace: namespace.clone(),
            init,
            cgroup,
            folder: folder.to_owned(),
            keeper,
        }
    }

    /// Returns the host name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the network namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns the folder of its logs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the name of its cgroup, in every hierarchy.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// Returns a path of one of its files, valid while it runs.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.init.as_raw_nonzero()))
    }

    /// Returns a command that runs on the host.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.namespace.command("nsenter");
        command.args(self.entry()).arg(program);
        command
    }

    /// Runs a program on the host to its end, and returns its standard output; panics when it fails.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self
            .command(program)
            .args(arguments)
            .output()
            .unwrap_or_else(|error| panic!("`nsenter`: {error}"));
        let error = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "on {}, {status}: {program} {}\n{error}", self.name, arguments.join(" "));
        String::from_utf8_lossy(&stdout).into_owned()
    }

    /// Starts a program on the host; its output goes to `NAME.log` in [`Machine::folder`].
    pub fn start_process(&self, name: &str, program: &Path, arguments: &[String]) -> HostProcess {
        let log = self.folder.join(format!("{name}.log"));
        let mut words = self.entry();
        words.extend(["setpriv", "--pdeathsig", "KILL", "--"].map(str::to_owned));
        words.push(program.display().to_string());
        words.extend(arguments.iter().cloned());
        let name = format!("{name} of {}", self.name);
        HostProcess::start(&self.namespace, &name, &words, &log)
    }

    /// Returns the network namespace of a Pod by its UID, while the Pod runs.
    pub fn namespace_of_pod(&self, uid: &str) -> Option<Namespace> {
        let name = format!("pod{uid}");
        let of_pod = hierarchies().into_iter().find_map(|root| find(&root.join(&self.cgroup), &name))?;
        let process = first_process(&of_pod)?;
        Some(Namespace::of_process(process, &name))
    }

    /// Ends everything on the host at once, as a power cut does.
    pub fn kill(&mut self) {
        if self.keeper.exited().is_some() {
            return;
        }
        let _ = kill_process(self.init, Signal::KILL);
        // The kernel reports the end of the first process only after that of all others.
        let end = Instant::now() + DEADLINE;
        while self.keeper.exited().is_none() && Instant::now() < end {
            std::thread::sleep(POLL);
        }
    }

    fn entry(&self) -> Vec<String> {
        let target = self.init.as_raw_nonzero().to_string();
        ["--target", &target, "--mount", "--uts", "--pid", "--"].map(str::to_owned).into()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
        let end = Instant::now() + DEADLINE;
        while !remove_cgroups(&self.cgroup) {
            if Instant::now() >= end {
                eprintln!("the cgroups `{}` cannot be removed", self.cgroup);
                return;
            }
            std::thread::sleep(POLL);
        }
    }
}

/// A program on a host. Killed on drop.
///
/// The rig's child is an `nsenter`, whose own child is the program: a process can only start others in a PID namespace, not enter it.
pub struct HostProcess {
    process: Process,
    program: Option<Pid>,
}

impl HostProcess {
    fn start(namespace: &Namespace, name: &str, words: &[String], log: &Path) -> Self {
        let mut process = Process::start_in(namespace, name, Path::new("nsenter"), words, log);
        let end = Instant::now() + DEADLINE;
        let mut program = None;
        while program.is_none() && process.exited().is_none() && Instant::now() < end {
            program = child_of(process.id());
            std::thread::yield_now();
        }
        Self { process, program }
    }

    /// Returns the process id of the program, as the rig sees it.
    pub fn id(&self) -> i32 {
        self.program.expect("the program was started").as_raw_nonzero().get()
    }

    /// Polls a condition until it holds; see [`Process::ready`].
    pub async fn ready(
        &mut self,
        what: &str,
        deadline: Duration,
        probe: impl AsyncFnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        self.process.ready(what, deadline, probe).await
    }

    /// Returns the end of the log, under a heading.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Ends the program with SIGTERM, and waits for it.
    pub async fn terminate(mut self) {
        self.signal(Signal::TERM);
        let process = &mut self.process;
        wait_until("the program has ended", DEADLINE, async || match process.exited() {
            Some(_) => Ok(()),
            None => Err(process.log_tail()),
        })
        .await;
    }

    /// Kills the program (SIGKILL), and waits for it.
    pub fn kill(mut self) {
        self.end();
    }

    fn signal(&mut self, signal: Signal) {
        if let (Some(program), None) = (self.program, self.process.exited()) {
            // It may have ended meanwhile.
            let _ = kill_process(program, signal);
        }
    }

    fn end(&mut self) {
        let end = Instant::now() + DEADLINE;
        while self.process.exited().is_none() && Instant::now() < end {
            self.signal(Signal::KILL);
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the first child of a process.
fn child_of(process: u32) -> Option<Pid> {
    let children = read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok().and_then(Pid::from_raw)
}

/// The folders of the hierarchies of cgroups: one of version 2, or several of version 1.
fn hierarchies() -> Vec<PathBuf> {
    let root = PathBuf::from(CGROUPS);
    if root.join("cgroup.controllers").exists() {
        return vec![root];
    }
    folders(&root)
}

/// The folders in a folder, without links.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn create_cgroups(name: &str) {
    for root in hierarchies() {
        let cgroup = root.join(name);
        create_dir(&cgroup).unwrap_or_else(|error| panic!("{}: {error} (this needs root)", cgroup.display()));
        // In version 1, no process can run in one of `cpuset` before it has these.
        for setting in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(value) = read_to_string(root.join(setting)) {
                write(cgroup.join(setting), value)
                    .unwrap_or_else(|error| panic!("{setting} of {name}: {error}"));
            }
        }
    }
}

/// Removes a cgroup and those below it; returns whether none is left.
fn remove_cgroups(name: &str) -> bool {
    hierarchies().iter().map(|root| root.join(name)).all(|cgroup| {
        remove_tree(&cgroup);
        !cgroup.exists()
    })
}

fn remove_tree(cgroup: &Path) {
    for child in folders(cgroup) {
        remove_tree(&child);
    }
    let _ = remove_dir(cgroup);
}

fn find(cgroup: &Path, name: &str) -> Option<PathBuf> {
    if cgroup.file_name().is_some_and(|own| own == name) {
        return Some(cgroup.to_owned());
    }
    folders(cgroup).iter().find_map(|child| find(child, name))
}

fn first_process(cgroup: &Path) -> Option<u32> {
    let processes = read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let own = processes.lines().next().and_then(|line| line.parse().ok());
    own.or_else(|| folders(cgroup).iter().find_map(|child| first_process(child)))
}

/// Removes the cgroups of runs that were killed. A process creates its first ones after this, so those with its own id belong to an
/// earlier process with the same id.
pub fn remove_leftovers(own: u32) {
    for path in hierarchies().iter().flat_map(|root| folders(root)) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let process = rest.split('-').next().unwrap_or_default();
        if process == own.to_string() || !Path::new("/proc").join(process).exists() {
            remove_tree(&path);
        }
    }
}

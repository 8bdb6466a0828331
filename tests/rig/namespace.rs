//! Network namespaces: a process in one of them sees its interfaces, its loopback, its rules, and nothing of the machine's.
//!
//! A namespace lives as long as a process holds a handle of it. `ip netns add` gives it a name, which is removed as soon as the
//! handle is open: when the process that created it ends, however it ends, the kernel removes namespace, interfaces and rules. To
//! inspect one while a test runs, enter that of a process in it: `nsenter --target PID --net`.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::thread::JoinHandle;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::watch;

/// Where `ip netns` keeps its names.
const NAMES: &str = "/run/netns";

/// The prefix of the names; the id of the process that created them follows.
const PREFIX: &str = "netsurgeon-";

/// A handle of a network namespace.
#[derive(Debug, Clone)]
pub struct Namespace {
    handle: Arc<File>,
    purpose: String,
}

impl Namespace {
    /// Creates an empty namespace whose loopback is up. `purpose` names it in messages.
    pub fn create(purpose: &str) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        static SWEEP: Once = Once::new();
        SWEEP.call_once(|| remove_leftovers(std::process::id()));
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}-{purpose}", std::process::id());
        netns(&["add", &name]);
        let handle = File::open(Path::new(NAMES).join(&name));
        netns(&["delete", &name]);
        let handle = handle.unwrap_or_else(|error| panic!("the new namespace `{name}`: {error}"));
        let namespace = Self { handle: Arc::new(handle), purpose: purpose.to_owned() };
        // Addresses are usable at once; otherwise a program that binds one starts too early.
        namespace.sysctl("ipv6/conf/default/accept_dad", "0");
        namespace.ip(&["link set lo up"]);
        namespace
    }

    /// Returns the namespace of the calling thread.
    pub fn current() -> Self {
        let handle = File::open("/proc/thread-self/ns/net").expect("a thread has a network namespace");
        Self { handle: Arc::new(handle), purpose: "current".to_owned() }
    }

    /// Returns the namespace of a process. `purpose` names it in messages.
    pub fn of_process(process: u32, purpose: &str) -> Self {
        let handle = File::open(format!("/proc/{process}/ns/net"));
        let handle = handle.unwrap_or_else(|error| panic!("the namespace of `{purpose}`: {error}"));
        Self { handle: Arc::new(handle), purpose: purpose.to_owned() }
    }

    /// Moves the calling thread into the namespace, and with it every thread and child that it starts later.
    pub fn enter(&self) {
        move_into_link_name_space(self.handle.as_fd(), Some(LinkNameSpaceType::Network))
            .unwrap_or_else(|error| panic!("the namespace `{}` cannot be entered: {error}", self.purpose));
    }

    /// Whether the two are handles of one namespace.
    pub fn is(&self, other: &Self) -> bool {
        let inode = |file: &File| file.metadata().expect("an open file has metadata").ino();
        inode(&self.handle) == inode(&other.handle)
    }

    /// Returns a path of the namespace, valid while this handle is open.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.handle.as_raw_fd())
    }

    /// Returns a command that runs inside the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg("--").arg(program);
        command
    }

    /// Runs a program inside the namespace to its end, and returns its standard output; panics when it fails.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output();
        self.succeeded(&format!("{program} {}", arguments.join(" ")), output)
    }

    /// Runs lines of `ip`, as in `link set eth0 up`.
    pub fn ip(&self, lines: &[impl AsRef<str>]) {
        let text: String = lines.iter().flat_map(|line| [line.as_ref(), "\n"]).collect();
        let mut command = self.command("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("`nsenter`: {error}"));
        let written = child.stdin.take().expect("it is piped").write_all(text.as_bytes());
        self.succeeded(&format!("ip -batch -\n{text}"), written.and_then(|()| child.wait_with_output()));
    }

    /// Sets a value under `/proc/sys/net`, as in `("ipv4/ip_forward", "1")`.
    pub fn sysctl(&self, name: &str, value: &str) {
        let path = format!("/proc/sys/net/{name}");
        let content = value.to_owned();
        self.within(move || std::fs::write(&path, content).unwrap_or_else(|error| panic!("{path}: {error}")));
    }

    /// Returns the connections to this address that the namespace tracks, as `conntrack -L` shows them: one a line, both
    /// directions, with the addresses before and after translation.
    pub fn conntrack(&self, destination: &str) -> Vec<String> {
        let text = self.run("conntrack", &["-L", "--orig-dst", destination]);
        text.lines().map(str::to_owned).collect()
    }

    /// Calls a function inside the namespace, on a separate thread. Files and sockets that it opens stay in the namespace, also
    /// when another thread uses them.
    pub fn within<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> T {
        let namespace = self.clone();
        let thread = std::thread::spawn(move || {
            namespace.enter();
            call()
        });
        thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    }

    /// Runs a future inside the namespace, on a thread with its own runtime, until it ends or is stopped: its argument becomes
    /// `true` then.
    pub fn work<F: Future>(
        &self,
        name: &str,
        work: impl FnOnce(watch::Receiver<bool>) -> F + Send + 'static,
    ) -> Worker {
        let (stop, stopped) = watch::channel(false);
        let namespace = self.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            namespace.enter();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be built").block_on(work(stopped));
        });
        Worker { stop, thread: Some(thread.expect("a thread can be started")) }
    }

    fn succeeded(&self, what: &str, output: std::io::Result<Output>) -> String {
        let output = output.unwrap_or_else(|error| panic!("`{what}`: {error}"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "in `{}`, {}: {what}\n{error}", self.purpose, output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// A future on a separate thread. Stopped on drop.
pub struct Worker {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Signals the future to stop, and waits until it has ended.
    pub fn stop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take()
            && let Err(payload) = thread.join()
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(payload);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Removes the names of runs that were killed between the creation and the removal of a name. A process creates its first
/// namespace after this, so a name with its own id belongs to an earlier process with the same id.
pub fn remove_leftovers(own: u32) {
    let Ok(names) = std::fs::read_dir(NAMES) else { return };
    for name in names.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok()) {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let process = rest.split('-').next().unwrap_or_default();
        let is_gone = !Path::new("/proc").join(process).exists();
        if is_gone || process == own.to_string() {
            // Another run may remove it at the same time.
            let _ = Command::new("ip").args(["netns", "delete", &name]).output();
        }
    }
}

fn netns(arguments: &[&str]) {
    let output = Command::new("ip").arg("netns").args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("`ip` (of the package iproute2): {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip netns {}: {error}(this needs root)", arguments.join(" "));
}

//! Child processes that cannot outlive the test, and waiting for their output.
//!
//! A child is started through `setpriv --pdeathsig KILL` (util-linux): when this process ends, however it ends, the kernel kills
//! the child. The signal is tied to the *thread* that started the child, and test threads end before the process does. So one
//! thread that lives as long as the process starts them all, in the network namespace of the requesting thread. A process that
//! ends before a child is tied to it would leave the child behind: so the child checks its parent once more before it becomes the
//! program.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::net::TcpStream;

use super::namespace::Namespace;

/// How often a condition is checked. Short compared with the seconds that a server takes to start, long compared with the cost of
/// one check.
const POLL: Duration = Duration::from_millis(50);

/// How many lines of a log a failure shows.
const TAIL_LINES: usize = 40;

/// How long a process may take to end after SIGTERM before it is killed.
const TERMINATION: Duration = Duration::from_secs(30);

/// How often a server is started again because another process took the port that the kernel had offered.
pub const PORT_ATTEMPTS: usize = 5;

type Order = (Namespace, Command, Sender<std::io::Result<Child>>);

/// The thread that starts all children; see the head of this file.
static STARTER: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
    let (orders, inbox) = channel::<Order>();
    std::thread::spawn(move || {
        for (namespace, mut command, answer) in inbox {
            // Entering needs permissions that a run without its own namespaces need not have.
            if !namespace.is(&Namespace::current()) {
                namespace.enter();
            }
            let _ = answer.send(command.spawn());
        }
    });
    Mutex::new(orders)
});

/// A running program whose output goes to a log file. Killed on drop.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program in the calling thread's network namespace; its standard output and error are appended
    /// to `log`.
    pub fn start(name: &str, program: &Path, arguments: &[String], log: &Path) -> Self {
        Self::start_in(&Namespace::current(), name, program, arguments, log)
    }

    /// Starts a program in a network namespace.
    pub fn start_in(
        namespace: &Namespace,
        name: &str,
        program: &Path,
        arguments: &[String],
        log: &Path,
    ) -> Self {
        let output = File::options().create(true).append(true).open(log).expect("the log can be opened");
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--", "sh", "-c", "[ $PPID = \"$0\" ] && exec \"$@\""])
            .arg(std::process::id().to_string())
            .arg(program)
            .args(arguments)
            // Components written in Go live shortly here, and memory is not scarce: less of their time goes to garbage collection.
            .env("GOGC", "400")
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("the log's handle can be cloned"))
            .stderr(output);
        let (answer, outcome) = channel();
        let order = (namespace.clone(), command, answer);
        STARTER.lock().expect("the starter's lock").send(order).expect("the starter runs");
        let child = outcome
            .recv()
            .expect("the starter answers")
            .unwrap_or_else(|error| panic!("`{name}` cannot be started through `setpriv`: {error}"));
        Self { name: name.to_owned(), child, log: log.to_owned() }
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns how the process ended, `None` while it runs.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the child can be waited for")
    }

    /// Returns the end of the log, under a heading.
    pub fn log_tail(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default();
        format!("--- end of {} ({}) ---\n{}", self.log.display(), self.name, tail.join("\n"))
    }

    /// Whether the log says that the port was taken. Programs in Go write it in lower case, others as the C library.
    pub fn port_was_taken(&self) -> bool {
        let says = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).contains("ddress already in use");
        std::fs::read(&self.log).is_ok_and(says)
    }

    /// Starts a server on a free port of loopback: `start` gets the port. Tries again if another process takes the port. Returns when the
    /// server accepts connections, with what `start` returned beside the process.
    pub async fn listening<T>(deadline: Duration, mut start: impl FnMut(u16) -> (Self, T)) -> (Self, u16, T) {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let port = free_port();
            let (mut process, more) = start(port);
            let what = format!("{} listens", process.name);
            let probe = async || {
                let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
                connected.map(drop).map_err(|error| error.to_string())
            };
            match process.ready(&what, deadline, probe).await {
                Ok(()) => return (process, port, more),
                Err(_) if process.port_was_taken() && attempts < PORT_ATTEMPTS => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Polls a condition until it holds. Fails when the deadline passes or the process ends, with the last observed state and the
    /// end of the log.
    pub async fn ready(
        &mut self,
        what: &str,
        deadline: Duration,
        mut probe: impl AsyncFnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        let end = Instant::now() + deadline;
        loop {
            if let Some(status) = self.exited() {
                return Err(format!("{} ended ({status}) before {what}\n{}", self.name, self.log_tail()));
            }
            match probe().await {
                Ok(()) => return Ok(()),
                Err(seen) if Instant::now() >= end => {
                    return Err(format!(
                        "not within {deadline:?}: {what}; last: {seen}\n{}",
                        self.log_tail()
                    ));
                }
                Err(_) => tokio::time::sleep(POLL).await,
            }
        }
    }

    /// Ends the process with SIGTERM and waits for it; kills it if it takes too long.
    pub fn terminate(&mut self) {
        if self.exited().is_none() {
            signal(&self.child, Signal::TERM);
        }
        self.resume();
        let end = Instant::now() + TERMINATION;
        while self.exited().is_none() {
            if Instant::now() >= end {
                return self.kill();
            }
            std::thread::sleep(POLL);
        }
    }

    /// Stops the process (SIGSTOP): its connections stay open, and it sends nothing. Returns when all of its threads have
    /// stopped.
    pub fn pause(&mut self) {
        if self.exited().is_none() {
            freeze(&self.child);
        }
    }

    /// Lets a paused process continue (SIGCONT).
    pub fn resume(&mut self) {
        if self.exited().is_none() {
            thaw(&self.child);
        }
    }

    /// Kills the process (SIGKILL), as a power failure does, and waits for it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail());
        }
    }
}

/// Stops a child of this process (SIGSTOP) that was not waited for: its connections stay open, and it sends nothing. Returns when
/// all of its threads have stopped, or it has ended.
pub fn freeze(child: &Child) {
    signal(child, Signal::STOP);
    let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid(child)), options).unwrap_or_else(|error| panic!("{}: {error}", child.id()));
}

/// Lets such a child continue (SIGCONT).
pub fn thaw(child: &Child) {
    signal(child, Signal::CONT);
}

fn signal(child: &Child, signal: Signal) {
    kill_process(pid(child), signal).unwrap_or_else(|error| panic!("{}: {signal:?}: {error}", child.id()));
}

fn pid(child: &Child) -> Pid {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process id")
}

/// Polls a condition until it holds, and returns its result. Panics when the deadline passes, with the last observed state. For a
/// condition on a process of the rig, [`Process::ready`] shows its log too.
pub async fn wait_until<T>(
    what: &str,
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let end = Instant::now() + deadline;
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(seen) if Instant::now() >= end => panic!("not within {deadline:?}: {what}; last: {seen}"),
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// Returns a port of 127.0.0.1 that was free a moment ago. The caller must expect that another process was faster, and try again
/// with another one: see [`Process::port_was_taken`].
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// Runs a program to its end and returns its standard output; panics with both outputs when it fails.
pub fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .unwrap_or_else(|error| panic!("`{}`: {error}", program.display()));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "`{} {}` failed ({}):\n{text}{}",
        program.display(),
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

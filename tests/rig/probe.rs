//! A client that opens a new connection every few milliseconds, keeps one open for long, and records everything.
//!
//! Attempts overlap: one without an answer does not delay the next, so an outage shows from its first to its last moment.
//!
//! Source ports are used in turn, and not again for minutes: a connection that was started before there were rules for its
//! address leaves an entry in the kernel's connection tracking, which for two minutes sends packets from the same port to the
//! same wrong destination. The ports of each target start at another number: two addresses of one Service route to the same
//! servers, where connections from one port would be the same connection.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::echo::{AGAIN, ONCE};
use super::namespace::{Namespace, Worker};
use super::process::wait_until;
use super::report::{FLICKERS, Failure, Kind, Record, Report, Target};

/// The start of an error when no process listens there.
const REFUSED: &str = "Connection refused";
/// How often a target is tried.
const INTERVAL: Duration = Duration::from_millis(5);

/// How often a long-lived connection sends a byte.
const EXCHANGES: Duration = Duration::from_millis(50);

/// How long an attempt may take. The kernel repeats a connection's first packet after a second, and again after two.
const PATIENCE: Duration = Duration::from_secs(5);

/// The source ports of the attempts. The kernel uses ports outside of it for other connections.
const PORTS: RangeInclusive<u16> = 10_000..=60_000;

/// How far apart the ports of different targets are.
const APART: u16 = 12_500;

/// How many attempts at one target may be in progress. No more are started.
const UNDER_WAY: usize = 200;

/// More bytes than the kernel's counters need.
const COUNTERS: usize = 1 << 16;

/// A running probe. Stopped on drop.
pub struct Probe {
    worker: Worker,
    orders: mpsc::UnboundedSender<Order>,
    log: Log,
    /// The counters of the namespace, and one of them at the start of the probe.
    counters: File,
    repeated_before: u64,
}

enum Order {
    Add(Target),
    Remove(Target),
}

/// The content of an answer: the source address at the server, and the server's name.
pub type Answer = (IpAddr, String);

impl Probe {
    /// Starts to probe the targets from inside a namespace.
    pub fn start(namespace: &Namespace, targets: &[Target]) -> Self {
        let counters = namespace.within(|| File::open("/proc/thread-self/net/netstat"));
        let counters = counters.expect("the kernel's counters");
        let repeated_before = repeated_syns(&counters);
        let log = Log { namespace: namespace.path(), start: Instant::now(), report: Arc::default() };
        let (orders, inbox) = mpsc::unbounded_channel();
        let theirs = log.clone();
        let worker = namespace.work("probe", async |stopped| run(theirs, inbox, stopped).await);
        let probe = Self { worker, orders, log, counters, repeated_before };
        for target in targets {
            probe.add(*target);
        }
        probe
    }

    /// Probes one more target.
    pub fn add(&self, target: Target) {
        self.log.with(|report| {
            report.targets.entry(target).or_default();
        });
        let _ = self.orders.send(Order::Add(target));
    }

    /// Stops probing a target. Its results stay in the report.
    pub fn remove(&self, target: Target) {
        let _ = self.orders.send(Order::Remove(target));
    }

    /// Returns how long the probe has run: the clock of [`Failure::at`].
    pub fn elapsed(&self) -> Duration {
        self.log.start.elapsed()
    }

    /// Returns the results up to now.
    pub fn report(&self) -> Report {
        let mut report = self.log.with(|report| report.clone());
        report.duration = self.elapsed();
        report.repeated_syns = repeated_syns(&self.counters) - self.repeated_before;
        report
    }

    /// Waits until an attempt succeeds that started after this call.
    pub async fn wait_for_success(&self, target: Target, deadline: Duration) {
        let now = self.elapsed();
        self.wait(&format!("{target} answers"), target, deadline, |record| {
            record.last_success.is_some_and(|at| at > now)
        })
        .await;
    }

    /// Waits until an attempt fails that started after this call.
    pub async fn wait_for_failure(&self, target: Target, deadline: Duration) {
        let now = self.elapsed();
        self.wait(&format!("{target} fails"), target, deadline, |record| {
            record.failures.iter().any(|failure| failure.at > now)
        })
        .await;
    }

    /// Waits until each of these servers has answered.
    pub async fn wait_for_servers(&self, target: Target, servers: &[&str], deadline: Duration) {
        let what = format!("{target} is answered by {servers:?}");
        self.wait(&what, target, deadline, |record| {
            servers.iter().all(|server| record.servers.contains_key(*server))
        })
        .await;
    }

    /// Waits until there have been so many more attempts.
    pub async fn wait_for_attempts(&self, target: Target, more: u64, deadline: Duration) {
        let wanted = self.report().of(target).attempts + more;
        let what = format!("{more} more attempts at {target}");
        self.wait(&what, target, deadline, |record| record.attempts >= wanted).await;
    }

    /// Waits until there have been so many more exchanges on long-lived connections.
    pub async fn wait_for_exchanges(&self, target: Target, more: u64, deadline: Duration) {
        let wanted = self.report().of(target).exchanges + more;
        let what = format!("{more} more exchanges with {target}");
        self.wait(&what, target, deadline, |record| record.exchanges >= wanted).await;
    }

    /// Starts no more attempts, waits for the outcome of those in progress, and returns the results.
    pub fn stop(mut self) -> Report {
        self.worker.stop();
        self.report()
    }

    async fn wait(&self, what: &str, target: Target, deadline: Duration, holds: impl Fn(&Record) -> bool) {
        wait_until(what, deadline, async || {
            let report = self.report();
            if holds(report.of(target)) { Ok(()) } else { Err(report.to_string()) }
        })
        .await;
    }
}

/// Makes one attempt from inside a namespace; returns the source address at the server and the server's name.
pub fn ask_once(namespace: &Namespace, target: Target) -> Result<Answer, String> {
    let log = Log { namespace: namespace.path(), start: Instant::now(), report: Arc::default() };
    namespace.within(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be built").block_on(in_time(attempt(target, &log)))
    })
}

/// The port that was used last, by namespace and target.
static LAST_PORTS: Mutex<BTreeMap<(String, Target), u16>> = Mutex::new(BTreeMap::new());

/// The shared results.
#[derive(Clone)]
struct Log {
    namespace: String,
    start: Instant,
    report: Arc<Mutex<Report>>,
}

impl Log {
    fn with<T>(&self, change: impl FnOnce(&mut Report) -> T) -> T {
        change(&mut self.report.lock().expect("the report's lock"))
    }

    /// Returns the next source port, for a socket of any address.
    fn next_source(&self, target: Target) -> SocketAddr {
        let mut ports = LAST_PORTS.lock().expect("the ports' lock");
        let others = ports.keys().filter(|(namespace, _)| *namespace == self.namespace).count();
        let first = PORTS.start() + u16::try_from(others % 4).expect("few") * APART;
        let last = ports.entry((self.namespace.clone(), target)).or_insert(first);
        *last = if PORTS.contains(&(*last + 1)) { *last + 1 } else { *PORTS.start() };
        match target {
            Target::Tcp(SocketAddr::V4(_)) | Target::Udp(SocketAddr::V4(_)) => ([0; 4], *last).into(),
            Target::Tcp(SocketAddr::V6(_)) | Target::Udp(SocketAddr::V6(_)) => ([0_u16; 8], *last).into(),
        }
    }

    /// Records the outcome of an attempt or an exchange that started then.
    fn note(&self, target: Target, kind: Kind, started: Instant, outcome: Result<Answer, String>) {
        let at = started.duration_since(self.start);
        self.with(|report| {
            let record = report.targets.entry(target).or_default();
            record.attempts += u64::from(kind == Kind::New);
            match outcome {
                Ok((source, server)) => {
                    record.exchanges += u64::from(kind == Kind::LongLived);
                    *record.sources.entry(source).or_default() += 1;
                    *record.servers.entry(server).or_default() += 1;
                    if kind == Kind::New {
                        record.last_success = record.last_success.max(Some(at));
                        record.slowest = record.slowest.max(started.elapsed());
                    }
                }
                Err(reason) => record.failures.push(Failure { target, kind, at, reason }),
            }
        });
    }
}

/// Probes until it is stopped. Probing of a target ends when its half of a channel is dropped.
async fn run(log: Log, mut orders: mpsc::UnboundedReceiver<Order>, mut stopped: watch::Receiver<bool>) {
    let mut active = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Add(target)) => {
                    let (keep, gone) = watch::channel(());
                    active.insert(target, keep);
                    tasks.spawn(try_often(target, log.clone(), gone.clone()));
                    tasks.spawn(hold(target, log.clone(), gone));
                }
                Some(Order::Remove(target)) => drop(active.remove(&target)),
                None => break,
            },
            _ = stopped.changed() => break,
        }
    }
    active.clear();
    while tasks.join_next().await.is_some() {}
}

/// Makes attempt after attempt.
async fn try_often(target: Target, log: Log, mut gone: watch::Receiver<()>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut attempts = JoinSet::new();
    loop {
        tokio::select! {
            _ = gone.changed() => break,
            _ = attempts.join_next(), if !attempts.is_empty() => {}
            _ = ticks.tick(), if attempts.len() < UNDER_WAY => {
                let log = log.clone();
                attempts.spawn(async move { try_once(target, &log).await });
            }
        }
    }
    while attempts.join_next().await.is_some() {}
}

/// Makes an attempt, and another one at once if the first is refused.
async fn try_once(target: Target, log: &Log) {
    let started = Instant::now();
    let outcome = in_time(attempt(target, log)).await;
    let is_refused = outcome.as_ref().is_err_and(|reason| reason.starts_with(REFUSED));
    if !is_refused {
        return log.note(target, Kind::New, started, outcome);
    }
    let again = in_time(attempt(target, log)).await;
    let may_flicker = again.is_ok() && log.with(|report| report.flickers() < FLICKERS);
    if !may_flicker {
        return log.note(target, Kind::New, started, outcome);
    }
    let reason = outcome.unwrap_err();
    let flicker = Failure { target, kind: Kind::New, at: started.duration_since(log.start), reason };
    log.with(|report| report.targets.entry(target).or_default().flickers.push(flicker));
    log.note(target, Kind::New, started, again);
}

/// Opens a connection as soon as that works, and uses it until it fails; then again.
async fn hold(target: Target, log: Log, mut gone: watch::Receiver<()>) {
    let Target::Tcp(address) = target else { return };
    let talk = async {
        let mut ticks = interval(EXCHANGES);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // The other attempts record that no connection can be opened.
            let Ok(Ok(stream)) = timeout(PATIENCE, TcpStream::connect(address)).await else { continue };
            log.with(|report| report.targets.entry(target).or_default().long_lived += 1);
            let mut stream = BufReader::new(stream);
            loop {
                let started = Instant::now();
                let outcome = in_time(exchange(&mut stream)).await;
                let failed = outcome.is_err();
                log.note(target, Kind::LongLived, started, outcome);
                if failed {
                    break;
                }
                ticks.tick().await;
            }
        }
    };
    tokio::select! {
        _ = gone.changed() => {}
        () = talk => {}
    }
}

async fn exchange(stream: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    stream.write_all(&[AGAIN]).await?;
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    Ok(line)
}

async fn attempt(target: Target, log: &Log) -> std::io::Result<String> {
    let mut line = Vec::new();
    match target {
        Target::Tcp(address) => {
            let mut stream = connect(target, address, log).await?;
            stream.write_all(&[ONCE]).await?;
            stream.read_to_end(&mut line).await?;
        }
        Target::Udp(address) => {
            let socket = loop {
                match UdpSocket::bind(log.next_source(target)).await {
                    Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                    outcome => break outcome?,
                }
            };
            socket.connect(address).await?;
            socket.send(&[ONCE]).await?;
            line.resize(256, 0);
            let length = socket.recv(&mut line).await?;
            line.truncate(length);
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Connects from the next port that no socket uses.
async fn connect(target: Target, address: SocketAddr, log: &Log) -> std::io::Result<TcpStream> {
    loop {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Connections to several targets may share a port.
        socket.set_reuseaddr(true)?;
        match socket.bind(log.next_source(target)) {
            Ok(()) => return socket.connect(address).await,
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
}

async fn in_time(answer: impl Future<Output = std::io::Result<String>>) -> Result<Answer, String> {
    match timeout(PATIENCE, answer).await {
        Ok(Ok(line)) => parse(&line).ok_or_else(|| format!("no answer but {line:?}")),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("nothing within {PATIENCE:?}")),
    }
}

fn parse(line: &str) -> Option<Answer> {
    let (source, server) = line.strip_suffix('\n')?.split_once(' ')?;
    Some((source.parse().ok()?, server.to_owned()))
}

/// Returns how often the kernel has repeated a connection's first packet, by the counters of a namespace.
fn repeated_syns(counters: &File) -> u64 {
    let mut bytes = vec![0; COUNTERS];
    let length = counters.read_at(&mut bytes, 0).expect("the kernel's counters");
    let text = String::from_utf8_lossy(&bytes[..length]);
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, value) = pairs.find(|(name, _)| *name == "TCPSynRetrans").expect("a kernel's counter");
    value.parse().expect("a number")
}

//! The results of a probe.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Formatter, Result};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How many connections may be refused and succeed when tried again at once. In kube-proxy's nftables mode each change of a
/// Service or of its endpoints can cost one ("What kube-proxy loses" in docs/renumber.md). A gap that an operation causes lasts
/// until kube-proxy applies the next change, so that the second attempt fails too.
pub const FLICKERS: usize = 1;

/// How many failures of one target are printed.
const SHOWN: usize = 10;

/// What to probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// New connections, and a long-lived one.
    Tcp(SocketAddr),
    /// Datagrams, each from its own port.
    Udp(SocketAddr),
}

impl Target {
    /// Names a TCP port of an address.
    pub fn tcp(address: &str, port: u16) -> Self {
        Self::Tcp(SocketAddr::new(address.parse().expect("an address"), port))
    }

    /// Names a UDP port of an address.
    pub fn udp(address: &str, port: u16) -> Self {
        Self::Udp(SocketAddr::new(address.parse().expect("an address"), port))
    }
}

impl Display for Target {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Self::Tcp(address) => write!(formatter, "tcp {address}"),
            Self::Udp(address) => write!(formatter, "udp {address}"),
        }
    }
}

/// The kind of attempt that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A new connection or a datagram.
    New,
    /// An exchange on the long-lived connection, which ends with it.
    LongLived,
}

/// One failure.
#[derive(Debug, Clone)]
pub struct Failure {
    pub target: Target,
    pub kind: Kind,
    /// When the attempt started, since the start of the probe.
    pub at: Duration,
    pub reason: String,
}

impl Display for Failure {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{:.3} s {} {:?}: {}", self.at.as_secs_f64(), self.target, self.kind, self.reason)
    }
}

/// The results for one target.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// New connections, or datagrams, that succeeded or failed.
    pub attempts: u64,
    pub failures: Vec<Failure>,
    /// Refusals that succeeded when tried again at once: [`FLICKERS`] at most in a report, more are failures.
    pub flickers: Vec<Failure>,
    /// Exchanges on long-lived connections that succeeded.
    pub exchanges: u64,
    /// How many long-lived connections there were.
    pub long_lived: u64,
    /// How often the server observed each source address.
    pub sources: BTreeMap<IpAddr, u64>,
    /// How often each server answered.
    pub servers: BTreeMap<String, u64>,
    /// The start of the youngest attempt that succeeded.
    pub last_success: Option<Duration>,
    /// The longest time of a success.
    pub slowest: Duration,
}

/// All results of a probe.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub targets: BTreeMap<Target, Record>,
    /// How long the probe has run.
    pub duration: Duration,
    /// How often the client's kernel repeated the first packet of a connection. Such an attempt may still succeed, a second late.
    pub repeated_syns: u64,
}

impl Report {
    /// Returns the results for a target.
    pub fn of(&self, target: Target) -> &Record {
        self.targets.get(&target).unwrap_or_else(|| panic!("{target} was not probed"))
    }

    /// Returns all failures, by target and time.
    pub fn failures(&self) -> Vec<&Failure> {
        self.targets.values().flat_map(|record| &record.failures).collect()
    }

    /// Returns how many refusals succeeded when tried again.
    pub fn flickers(&self) -> usize {
        self.targets.values().map(|record| record.flickers.len()).sum()
    }

    /// Returns how many attempts there were in all.
    pub fn attempts(&self) -> u64 {
        self.targets.values().map(|record| record.attempts).sum()
    }

    /// Returns every source address that a server observed.
    pub fn sources(&self) -> BTreeSet<IpAddr> {
        self.targets.values().flat_map(|record| record.sources.keys().copied()).collect()
    }

    /// Returns the names of the servers that answered.
    pub fn servers(&self) -> BTreeSet<&str> {
        self.targets.values().flat_map(|record| record.servers.keys().map(String::as_str)).collect()
    }
}

impl Display for Report {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        writeln!(
            formatter,
            "{} attempts in {:.1} s, {} failures, {} repeated SYNs",
            self.attempts(),
            self.duration.as_secs_f64(),
            self.failures().len(),
            self.repeated_syns
        )?;
        for (target, record) in &self.targets {
            writeln!(
                formatter,
                "  {target}: {} attempts, {} failures, slowest {:.0} ms; long-lived: {} exchanges on {}",
                record.attempts,
                record.failures.len(),
                record.slowest.as_secs_f64() * 1000.0,
                record.exchanges,
                record.long_lived
            )?;
            writeln!(formatter, "    from {:?} by {:?}", record.sources, record.servers)?;
            for failure in record.failures.iter().take(SHOWN) {
                writeln!(formatter, "    {failure}")?;
            }
            for flicker in &record.flickers {
                writeln!(formatter, "    {flicker}, and succeeded when tried again at once")?;
            }
            if record.failures.len() > SHOWN {
                writeln!(formatter, "    and {} more", record.failures.len() - SHOWN)?;
            }
        }
        Ok(())
    }
}

//! Questions over TCP. Each attempt opens a connection of its own, from a source port of its own.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpSocket, TcpStream};

use super::answerer::{send, take};
use super::fault::{repeated, within};
use super::{Answers, Fault, Identity, Seen, Way};

/// The time for a transfer. A path that loses packets needs several retransmissions.
const TRANSFER: Duration = Duration::from_secs(8);
/// The number of failed connections to a Service after which further ones say nothing new.
const MOST_FAILURES: u16 = 3;
/// The time after which one failed connection is enough: a reply must not be later than the collector waits.
const ENOUGH: Duration = Duration::from_secs(8);
/// The longest line of an answer, in bytes.
const LONGEST_LINE: u64 = 512;

/// An open connection to an agent, after its first line.
pub(super) struct Greeted {
    pub(super) stream: BufReader<TcpStream>,
    line: AgentLine,
}

/// The line of an agent.
struct AgentLine {
    by: String,
    source: IpAddr,
    numbers: Vec<u16>,
}

/// Opens a connection.
async fn open(identity: &Identity, to: SocketAddr) -> Result<TcpStream, Fault> {
    let connected = async {
        let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        if let Some(address) = identity.address {
            socket.bind((address, 0).into())?;
        }
        let stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    connected.await.map_err(|error: std::io::Error| Fault::of(&error))
}

/// Opens a connection and sends a request.
async fn request(identity: &Identity, to: SocketAddr, verb: &str) -> Result<BufReader<TcpStream>, Fault> {
    let mut stream = open(identity, to).await?;
    let line = format!("NSG1 {} {verb}\n", identity.token_text());
    stream.write_all(line.as_bytes()).await.map_err(|error| Fault::of(&error))?;
    Ok(BufReader::new(stream))
}

/// Reads the line of the agent.
async fn line_of(stream: &mut BufReader<TcpStream>) -> Result<AgentLine, Fault> {
    let mut line = String::new();
    let read = stream.take(LONGEST_LINE).read_line(&mut line).await;
    read.map_err(|error| Fault::of(&error))?;
    if line.is_empty() {
        return Err(Fault::Broken { reason: "it was closed without an answer".to_string() });
    }
    parse(&line).ok_or_else(|| Fault::Stranger { answer: line.chars().take(60).collect() })
}

fn parse(line: &str) -> Option<AgentLine> {
    let mut words = line.strip_suffix('\n')?.split(' ');
    let (magic, source, by) = (words.next()?, words.next()?.parse().ok()?, words.next()?.to_string());
    let numbers = words.filter_map(|word| word.parse().ok()).collect();
    (magic == "NSG1").then_some(AgentLine { by, source, numbers })
}

/// Sends a request and reads the line of the agent, without a time limit. The connection stays open.
pub(super) async fn greet(identity: &Identity, to: SocketAddr, verb: &str) -> Result<Greeted, Fault> {
    let mut stream = request(identity, to, verb).await?;
    let line = line_of(&mut stream).await?;
    Ok(Greeted { stream, line })
}

/// Asks an agent who it is.
pub(super) async fn who(identity: &Identity, to: SocketAddr, tries: u8) -> Seen {
    let attempt = || async {
        let started = Instant::now();
        let Greeted { line, .. } = greet(identity, to, "who").await?;
        Ok((line, micros(started)))
    };
    match repeated(tries, attempt).await {
        Ok(((line, micros), tries)) => Seen::Answer { by: line.by, source: line.source, tries, micros },
        Err(fault) => Seen::Failed(fault),
    }
}

/// Asks the agents behind an address who they are.
pub(super) async fn spread(identity: &Identity, to: SocketAddr, count: u16) -> Seen {
    let (mut answers, mut failed, mut first) = (BTreeMap::<String, Answers>::new(), 0_u16, None);
    let started = Instant::now();
    for _ in 0..count {
        if failed >= MOST_FAILURES || failed > 0 && started.elapsed() > ENOUGH {
            break;
        }
        // Loss has a probe of its own.
        match repeated(2, || greet(identity, to, "who")).await {
            Ok((Greeted { line, .. }, _)) => {
                let of_agent = answers.entry(line.by).or_default();
                of_agent.count = of_agent.count.saturating_add(1);
                of_agent.sources.insert(line.source);
            }
            Err(fault) => {
                failed = failed.saturating_add(1);
                first.get_or_insert(fault);
            }
        }
    }
    Seen::Spread { answers, failed, first }
}

/// Reads from the own server how many datagrams of a series arrived.
pub(super) async fn received(identity: &Identity, own: SocketAddr, key: u64) -> Seen {
    let verb = format!("received {key}");
    match repeated(2, || greet(identity, own, &verb)).await {
        Ok((Greeted { line, .. }, _)) => {
            let number = |place: usize| line.numbers.get(place).copied().unwrap_or_default();
            Seen::Received { datagrams: number(0), duplicates: number(1) }
        }
        Err(fault) => Seen::Failed(fault),
    }
}

/// Transfers bytes.
pub(super) async fn transfer(identity: &Identity, to: SocketAddr, bytes: u32, way: Way) -> Seen {
    let started = Instant::now();
    let attempt = async {
        let broken = |error: std::io::Error| Fault::of(&error);
        match way {
            Way::Upload => {
                let mut stream = request(identity, to, &format!("take {bytes}")).await?;
                send(&mut stream, bytes).await.map_err(broken)?;
                line_of(&mut stream).await.map(drop)
            }
            Way::Download => {
                let mut stream = request(identity, to, &format!("send {bytes}")).await?;
                line_of(&mut stream).await?;
                take(&mut stream, bytes).await.map_err(broken)
            }
        }
    };
    match within(TRANSFER, attempt).await {
        Ok(()) => Seen::Moved { micros: micros(started) },
        Err(fault) => Seen::Failed(fault),
    }
}

/// Opens a connection, and closes it. The server can be any program.
pub(super) async fn connect(identity: &Identity, to: SocketAddr) -> Seen {
    let attempt = || async {
        let started = Instant::now();
        open(identity, to).await?;
        Ok(micros(started))
    };
    match repeated(2, attempt).await {
        Ok((micros, _)) => Seen::Connected { micros },
        Err(fault) => Seen::Failed(fault),
    }
}

/// Returns the time since a start, in microseconds.
pub(super) fn micros(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}

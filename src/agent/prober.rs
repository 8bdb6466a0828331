//! Reads questions, and writes what it saw.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use super::ask::{Ask, Question, Transport};
use super::open_connections::Connections;
use super::tcp::micros;
use super::{Facts, Fault, Identity, Reply, Seen, full_size, tcp, udp};
use crate::nameserver::{Answer, RecordKind, Server};

/// The number of questions that are worked on at the same time.
const AT_ONCE: usize = 24;
/// The number of series of datagrams at the same time. More of them could overflow the queue of a receiver.
const SERIES_AT_ONCE: usize = 4;
/// The number of queries for a name. Each one may reach another Pod behind the Service of the name server.
const QUERIES: u8 = 6;
/// The time after which a resolver gives up a query (resolv.conf(5), `timeout`). It contains two retransmissions of a lost TCP segment
/// (RFC 6298, section 2), so an answer that is only slow on a busy node is no failure.
const DNS_LIMIT: Duration = Duration::from_secs(5);
/// The time for the own server to start: the container of an agent is ready as soon as its process runs.
const STARTUP: Duration = Duration::from_secs(20);
/// The pause between two attempts to reach the own server.
const PAUSE: Duration = Duration::from_millis(20);
/// The port of name servers.
const DNS: u16 = 53;

/// What the questions of one connection share.
#[derive(Clone)]
struct Prober {
    identity: Identity,
    /// The own server, for the number of received datagrams.
    own: SocketAddr,
    connections: Connections,
    series: Arc<Semaphore>,
}

/// Reads questions as JSON lines until the input ends, and writes a reply for each as a JSON line, in any order. `port` is that of the
/// server of this agent; the first question waits until it accepts connections.
pub async fn probe(
    identity: Identity,
    port: u16,
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let own = SocketAddr::new(identity.address.unwrap_or(Ipv4Addr::LOCALHOST.into()), port);
    let mut input = BufReader::new(input);
    if input.fill_buf().await?.is_empty() {
        return Ok(());
    }
    started(own).await?;
    let prober = Prober {
        identity,
        own,
        connections: Connections::default(),
        series: Arc::new(Semaphore::new(SERIES_AT_ONCE)),
    };
    let (send, mut replies) = mpsc::channel::<Reply>(AT_ONCE);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut lines = input.lines();
    loop {
        tokio::select! {
            Some(reply) = replies.recv() => {
                let mut line = serde_json::to_vec(&reply)?;
                line.push(b'\n');
                output.write_all(&line).await?;
                output.flush().await?;
            }
            line = lines.next_line() => {
                let Some(line) = line? else { return Ok(()) };
                let question: Question = serde_json::from_str(&line)?;
                let (prober, send, places) = (prober.clone(), send.clone(), places.clone());
                tokio::spawn(async move {
                    let Ok(_place) = places.acquire().await else { return };
                    let seen = prober.seen(question.ask).await;
                    let _ = send.send(Reply { id: question.id, seen }).await;
                });
            }
        }
    }
}

/// Waits until the own server accepts connections.
async fn started(own: SocketAddr) -> io::Result<()> {
    let connected = async {
        while TcpStream::connect(own).await.is_err() {
            sleep(PAUSE).await;
        }
    };
    let late = |_| io::Error::other(format!("the agent does not listen at {own}"));
    timeout(STARTUP, connected).await.map_err(late)
}

impl Prober {
    async fn seen(&self, ask: Ask) -> Seen {
        let identity = &self.identity;
        match ask {
            Ask::Who { to, transport: Transport::Tcp, tries } => tcp::who(identity, to, tries).await,
            Ask::Who { to, transport: Transport::Udp, tries } => udp::who(identity, to, tries).await,
            Ask::Spread { to, count } => tcp::spread(identity, to, count).await,
            Ask::Echoes { to, count, key } => {
                let place = self.series.acquire().await;
                udp::echoes(identity, to, (count, key), place).await
            }
            Ask::Received { key } => tcp::received(identity, self.own, key).await,
            Ask::FullSize { to } => full_size::full_size(identity, to).await,
            Ask::Transfer { to, bytes, way } => tcp::transfer(identity, to, bytes, way).await,
            Ask::Connect { to } => tcp::connect(identity, to).await,
            Ask::Resolve { name, server, transport } => resolve(&name, server, transport).await,
            Ask::Stand { to, key } => self.connections.of(identity, to, key).await,
            Ask::Facts => Seen::Facts(Box::new(Facts::read())),
        }
    }
}

async fn resolve(name: &str, server: Option<IpAddr>, transport: Transport) -> Seen {
    let Some(server) = server.or_else(|| Facts::read().name_servers.first().copied()) else {
        return Seen::Failed(Fault::Impossible {
            reason: "`/etc/resolv.conf` has no name server".to_string(),
        });
    };
    let at = Server::new((server, DNS).into(), None);
    let (mut addresses, mut empty) = (BTreeSet::new(), (0_u8, 0_u8));
    let (mut failed, mut longest, mut truncated) = (false, 0, 0_u8);
    for query in 0..QUERIES {
        let kind = if query % 2 == 0 { RecordKind::A } else { RecordKind::Aaaa };
        let started = Instant::now();
        match asked(&at, name, kind, transport).await {
            Ok((answer, is_truncated)) => {
                longest = longest.max(micros(started));
                truncated = truncated.saturating_add(is_truncated.into());
                let found = answer.of(kind);
                let of_kind = if kind == RecordKind::A { &mut empty.0 } else { &mut empty.1 };
                *of_kind = of_kind.saturating_add(found.is_empty().into());
                addresses.extend(found.into_iter().filter_map(|text| text.parse::<IpAddr>().ok()));
            }
            // Loss has a probe of its own.
            Err(_) if !failed => failed = true,
            Err(reason) => {
                let reason = format!("2 of {} queries failed: {reason}", query.saturating_add(1));
                return Seen::Failed(Fault::Broken { reason });
            }
        }
    }
    Seen::Addresses { addresses, server, empty, truncated, micros: longest }
}

/// Sends a query. If the answer over UDP is truncated, asks again over TCP, as every resolver does (RFC 7766, section 5), and says so.
async fn asked(
    at: &Server,
    name: &str,
    kind: RecordKind,
    transport: Transport,
) -> Result<(Answer, bool), String> {
    let late = |_| format!("`{}` did not answer within {} s", at.at(), DNS_LIMIT.as_secs());
    if transport == Transport::Udp {
        let answer = at.resolve_over_udp(name, kind, DNS_LIMIT).await;
        if let Some(answer) = answer.map_err(|error| error.to_string())? {
            return Ok((answer, false));
        }
    }
    let again = if transport == Transport::Udp { "the answer was truncated, and over TCP: " } else { "" };
    let answer = timeout(DNS_LIMIT, at.resolve(name, kind)).await.map_err(late);
    let answer = answer.and_then(|answer| answer.map_err(|error| error.to_string()));
    answer.map(|answer| (answer, transport == Transport::Udp)).map_err(|reason| format!("{again}{reason}"))
}

//! Questions over UDP. Each attempt has a socket of its own, so also a source port of its own.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use rand::Rng as _;
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use super::datagram::{Head, answer_of};
use super::fault::repeated;
use super::tcp::micros;
use super::{Fault, Identity, Seen};

/// The pause between two datagrams of a series.
const PAUSE: Duration = Duration::from_millis(2);
/// The time for the first answer after the last datagram of a series.
const FIRST: Duration = Duration::from_secs(2);
/// The time for all other answers: the container of an agent has a small share of the processor, and answers late on a busy node.
const LATE: Duration = Duration::from_secs(3);
/// The largest answer, in bytes.
const LARGEST: usize = 2048;

/// Opens a socket for one address, on a new source port. The kernel reports errors only for such a socket.
pub(super) async fn socket_for(identity: &Identity, to: SocketAddr) -> Result<UdpSocket, Fault> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let open = async {
        let socket = UdpSocket::bind((identity.address.unwrap_or(any), 0)).await?;
        socket.connect(to).await?;
        Ok::<_, std::io::Error>(socket)
    };
    open.await.map_err(|error| Fault::of(&error))
}

/// Asks an agent who it is.
pub(super) async fn who(identity: &Identity, to: SocketAddr, tries: u8) -> Seen {
    let attempt = || async {
        let started = Instant::now();
        let answer = ask(identity, to).await?;
        Ok((answer, micros(started)))
    };
    match repeated(tries, attempt).await {
        Ok((((by, source), micros), tries)) => Seen::Answer { by, source, tries, micros },
        Err(fault) => Seen::Failed(fault),
    }
}

async fn ask(identity: &Identity, to: SocketAddr) -> Result<(String, IpAddr), Fault> {
    let socket = socket_for(identity, to).await?;
    let head = Head { token: identity.token, key: 0, number: rand::rng().random() };
    let broken = |error: std::io::Error| Fault::of(&error);
    socket.send(&head.request(0)).await.map_err(broken)?;
    let mut buffer = [0; LARGEST];
    loop {
        let length = socket.recv(&mut buffer).await.map_err(broken)?;
        if let Some((found, rest)) = Head::parse(buffer.get(..length).unwrap_or_default())
            && found == head
            && let Some(answer) = answer_of(rest)
        {
            return Ok(answer);
        }
    }
}

/// The answers to a series of datagrams.
#[derive(Default)]
struct Answers {
    numbers: BTreeSet<u32>,
    duplicates: u16,
    by: BTreeSet<String>,
}

impl Answers {
    fn record(&mut self, head: Head, datagram: &[u8]) {
        let Some((found, rest)) = Head::parse(datagram) else { return };
        let is_ours = found.token == head.token && found.key == head.key;
        let Some((by, _)) = answer_of(rest).filter(|_| is_ours) else { return };
        if !self.numbers.insert(found.number) {
            self.duplicates = self.duplicates.saturating_add(1);
        }
        self.by.insert(by);
    }
}

/// Sends numbered datagrams and counts the answers. The kernel's errors for one datagram do not end the series. `place` is dropped when
/// all are sent, so that other series do not wait for late answers.
pub(super) async fn echoes(
    identity: &Identity,
    to: SocketAddr,
    (count, key): (u16, u64),
    place: impl Send,
) -> Seen {
    let socket = match socket_for(identity, to).await {
        Ok(socket) => socket,
        Err(fault) => return Seen::Failed(fault),
    };
    let (mut answers, mut buffer) = (Answers::default(), [0; LARGEST]);
    let head = |number: u16| Head { token: identity.token, key, number: number.into() };
    for number in 0..count {
        let _ = socket.send(&head(number).request(0)).await;
        sleep(PAUSE).await;
        while let Ok(length) = socket.try_recv(&mut buffer) {
            answers.record(head(number), buffer.get(..length).unwrap_or_default());
        }
    }
    drop(place);
    let sent = Instant::now();
    // Answers can still arrive twice, but that is no reason to wait.
    while answers.numbers.len() < usize::from(count) && sent.elapsed() < LATE {
        let limit = if answers.numbers.is_empty() { FIRST } else { LATE };
        match timeout(limit.saturating_sub(sent.elapsed()), socket.recv(&mut buffer)).await {
            Ok(Ok(length)) => answers.record(head(0), buffer.get(..length).unwrap_or_default()),
            Ok(Err(_)) => {}
            Err(_) => break,
        }
    }
    let answered = u16::try_from(answers.numbers.len()).unwrap_or(u16::MAX);
    let Answers { duplicates, by, .. } = answers;
    Seen::Echoes { sent: count, answered, duplicates, by }
}

/// Sends one datagram of a size on a socket, and waits for its answer; `Ok(false)` if there is none. The error is that of the
/// operating system, for example that the datagram is too large.
pub(super) async fn try_size(
    socket: &UdpSocket,
    identity: &Identity,
    length: usize,
    limit: Duration,
) -> std::io::Result<bool> {
    let head = Head { token: identity.token, key: 0, number: rand::rng().random() };
    socket.send(&head.request(length)).await?;
    let mut buffer = [0; LARGEST];
    let answer = async {
        loop {
            let length = socket.recv(&mut buffer).await?;
            if Head::parse(buffer.get(..length).unwrap_or_default()).is_some_and(|(found, _)| found == head) {
                return Ok(true);
            }
        }
    };
    timeout(limit, answer).await.unwrap_or(Ok(false))
}

//! Opens a TCP connection, to check whether an address is reachable from this machine.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

/// Number of source ports to try. A port may still be in use by a connection that has just ended.
const TRIES: usize = 4;

/// Opens a TCP connection and closes it again. Returns how long the connection took, or why it failed.
///
/// Each attempt uses a different source port in the range `from` if this process is allowed to bind it. This avoids stale
/// conntrack entries. If the node does not have rules for the address yet, an attempt leaves a conntrack entry. For two minutes,
/// this entry drops packets from the same source port.
pub async fn dial(
    address: SocketAddr,
    limit: Duration,
    from: RangeInclusive<u16>,
) -> Result<Duration, String> {
    let started = Instant::now();
    match timeout(limit, open(address, from)).await {
        Ok(Ok(_)) => Ok(started.elapsed()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

async fn open(address: SocketAddr, from: RangeInclusive<u16>) -> io::Result<TcpStream> {
    let is_taken =
        |error: &io::Error| matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable);
    for _ in 0..TRIES {
        match bound(address, rand::random_range(from.clone())) {
            Err(error) if is_taken(&error) => {}
            // Only root can bind ports below 1024.
            Err(_) => break,
            Ok(socket) => match socket.connect(address).await {
                Err(error) if is_taken(&error) => {}
                outcome => return outcome,
            },
        }
    }
    TcpStream::connect(address).await
}

fn bound(to: SocketAddr, port: u16) -> io::Result<TcpSocket> {
    let (socket, any) = match to.ip() {
        IpAddr::V4(_) => (TcpSocket::new_v4()?, IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        IpAddr::V6(_) => (TcpSocket::new_v6()?, IpAddr::from(Ipv6Addr::UNSPECIFIED)),
    };
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(any, port))?;
    Ok(socket)
}

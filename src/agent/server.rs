//! The server of an agent, over TCP and UDP on one port, for both address families.
//!
//! A TCP client sends one line, `NSG1 TOKEN VERB [NUMBER]`, and gets one line, `NSG1 SOURCE NAME`:
//!
//! | verb | what follows |
//! |---|---|
//! | `who` | nothing |
//! | `send N` | the server sends N bytes |
//! | `take N` | the client sends N bytes before the server answers |
//! | `stand` | the server returns every byte that it gets |
//! | `received KEY` | the answer ends with two numbers: how many datagrams of a series arrived, and how many of them again |

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;

use super::Identity;
use super::answerer::Answerer;
use super::datagram::{Head, SHORTEST};
use super::series_counts::SeriesCounts;

/// The number of TCP connections at the same time.
const MOST_CONNECTIONS: usize = 4096;
/// The size of the kernel's queue for datagrams, in bytes.
const BUFFER: usize = 8 << 20;
/// The largest datagram, in bytes.
const LARGEST: usize = 64 << 10;

/// A server whose sockets are open.
pub struct Listening {
    tcp: TcpListener,
    udp: UdpSocket,
    identity: Identity,
}

impl Listening {
    /// Opens the sockets at the address of the agent, or at all addresses of this network namespace. Without IPv6, these are its IPv4 addresses.
    pub async fn open(identity: Identity, port: u16) -> io::Result<Self> {
        let all = SocketAddr::new(identity.address.unwrap_or(Ipv6Addr::UNSPECIFIED.into()), port);
        let four = (Ipv4Addr::UNSPECIFIED, port);
        let tcp = match TcpListener::bind(all).await {
            Err(error) if is_without_ipv6(&error) => TcpListener::bind(four).await?,
            bound => bound?,
        };
        let udp = match UdpSocket::bind(all).await {
            Err(error) if is_without_ipv6(&error) => UdpSocket::bind(four).await?,
            bound => bound?,
        };
        // A series of every other node may arrive at the same moment. Without the permission, the limit of the node remains
        // (`net.core.rmem_max`).
        let _ = set_socket_recv_buffer_size_force(&udp, BUFFER)
            .or_else(|_| set_socket_recv_buffer_size(&udp, BUFFER));
        Ok(Self { tcp, udp, identity })
    }
}

/// Whether the kernel, or this network namespace, has no IPv6.
fn is_without_ipv6(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

/// Serves until the process ends.
pub async fn serve(listening: Listening) -> io::Result<()> {
    let Listening { tcp, udp, identity } = listening;
    let received = Arc::new(Mutex::new(SeriesCounts::default()));
    let answerer = Arc::new(Answerer { identity: identity.clone(), received: received.clone() });
    tokio::try_join!(serve_tcp(tcp, answerer), serve_udp(udp, identity, received)).map(drop)
}

async fn serve_tcp(listener: TcpListener, answerer: Arc<Answerer>) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return Ok(()) };
        // A client that gives up before it is accepted is no reason to end.
        let Ok((stream, source)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let answerer = answerer.clone();
        tokio::spawn(async move {
            let _ = answerer.answer(stream, source.ip().to_canonical()).await;
            drop(place);
        });
    }
}

async fn serve_udp(
    socket: UdpSocket,
    identity: Identity,
    received: Arc<Mutex<SeriesCounts>>,
) -> io::Result<()> {
    let mut buffer = vec![0; LARGEST];
    loop {
        // Errors are those of earlier answers, for example that a client has closed its port.
        let Ok((length, source)) = socket.recv_from(&mut buffer).await else { continue };
        let datagram = buffer.get(..length).unwrap_or_default();
        let Some((head, _)) = Head::parse(datagram) else { continue };
        if head.token != identity.token || length < SHORTEST {
            continue;
        }
        received.lock().unwrap_or_else(PoisonError::into_inner).record(head.key, head.number);
        let seen = (source.ip().to_canonical(), source.port());
        let _ = socket.send_to(&head.answer(&identity.name, seen), source).await;
    }
}

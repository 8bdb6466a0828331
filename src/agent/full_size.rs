//! Whether packets of the full size of the link arrive, and if not, which size does.
//!
//! The datagrams must not be fragmented, and their size does not depend on what the kernel has learned about the path
//! (`IP_PMTUDISC_PROBE`, ip(7)), so each test is independent of earlier ones. The answers are small: a narrow return path belongs to
//! the test in the other direction. TCP is no replacement, because it adapts its segments to most faults of this kind.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu, ipv6_mtu, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use tokio::net::UdpSocket;

use super::link_mtu::link_mtu;
use super::udp::{socket_for, try_size};
use super::{Fault, Identity, Seen};

/// The time for an answer.
const LIMIT: Duration = Duration::from_millis(300);
/// The time for an answer that decides: an agent on a busy node answers late.
const LAST_LIMIT: Duration = Duration::from_secs(2);
/// The number of datagrams of the full size. The kernel reports the answer of a router only for a later datagram.
const TRIES: usize = 4;
/// Sizes of packets to try after a failure, in bytes: those of common links and tunnels, down to the smallest one of IPv6.
const STEPS: [u16; 17] =
    [8951, 8941, 8900, 1500, 1492, 1480, 1460, 1450, 1440, 1430, 1420, 1410, 1400, 1370, 1340, 1300, 1280];
/// The size of the headers of IPv4 and UDP, and of IPv6 and UDP, in bytes.
const HEADERS: [u16; 2] = [28, 48];

/// Sends packets of the full size of the link.
pub(super) async fn full_size(identity: &Identity, to: SocketAddr) -> Seen {
    match measured(identity, to).await {
        Ok(seen) => seen,
        Err(fault) => Seen::Failed(fault),
    }
}

async fn measured(identity: &Identity, to: SocketAddr) -> Result<Seen, Fault> {
    let socket = probing(identity, to).await?;
    let size = link_mtu(to.ip()).ok_or_else(|| Fault::Impossible {
        reason: "the kernel names no route and no link for the address".to_string(),
    })?;
    let mut named = None;
    for _ in 0..TRIES {
        match try_size(&socket, identity, payload(size, to), LIMIT).await {
            Ok(true) => return Ok(Seen::FullSize { size }),
            Ok(false) => {}
            Err(error) if is_too_large(&error) => named = path_mtu(&socket, to).or(named),
            Err(error) => return Err(Fault::of(&error)),
        }
    }
    let passes = smaller_that_passes(identity, to, size).await?;
    if matches!(try_size(&socket, identity, payload(size, to), LAST_LIMIT).await, Ok(true)) {
        return Ok(Seen::FullSize { size });
    }
    let named = named.filter(|named| *named < size).map(u32::from);
    Ok(Seen::TooLarge { size, passes, named })
}

/// Returns the largest known size that arrives; `None` if only the smallest datagram does. If that does not either, the size is not
/// the reason.
async fn smaller_that_passes(identity: &Identity, to: SocketAddr, size: u16) -> Result<Option<u16>, Fault> {
    for step in STEPS.into_iter().filter(|step| *step < size) {
        let socket = probing(identity, to).await?;
        if matches!(try_size(&socket, identity, payload(step, to), LIMIT).await, Ok(true)) {
            return Ok(Some(step));
        }
    }
    match try_size(&probing(identity, to).await?, identity, 0, LAST_LIMIT).await {
        Ok(true) => Ok(None),
        Ok(false) => Err(Fault::silence(LAST_LIMIT)),
        Err(error) => Err(Fault::of(&error)),
    }
}

/// Returns a socket whose packets are not fragmented.
async fn probing(identity: &Identity, to: SocketAddr) -> Result<UdpSocket, Fault> {
    let socket = socket_for(identity, to).await?;
    let set = match to.ip() {
        IpAddr::V4(_) => set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE),
        IpAddr::V6(_) => set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE),
    };
    set.map_err(|error| Fault::of(&error.into()))?;
    Ok(socket)
}

/// Returns what the kernel knows about the path, in bytes.
fn path_mtu(socket: &UdpSocket, to: SocketAddr) -> Option<u16> {
    let known = if to.is_ipv4() { ip_mtu(socket) } else { ipv6_mtu(socket) };
    u16::try_from(known.ok()?).ok()
}

fn payload(size: u16, to: SocketAddr) -> usize {
    let [four, six] = HEADERS;
    size.saturating_sub(if to.is_ipv4() { four } else { six }).into()
}

fn is_too_large(error: &std::io::Error) -> bool {
    error.raw_os_error().map(Errno::from_raw_os_error) == Some(Errno::MSGSIZE)
}

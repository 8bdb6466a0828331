//! Receives the kernel's events for new connections. The events include short connections that end before the conntrack table is
//! read.
//!
//! A netlink socket in the group of new connections (`NF_NETLINK_CONNTRACK_NEW`,
//! `include/uapi/linux/netfilter/nfnetlink_compat.h`) receives an event for each accepted connection. Listening needs
//! CAP_NET_ADMIN, covers the network namespace of this process, and changes nothing on the host. A message consists of a
//! `nlmsghdr`, a `nfgenmsg` and attributes (`nfnetlink.h`, `nfnetlink_conntrack.h`, Linux 6.12).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::conntrack::{Begun, is_probe};
use super::netlink::{self, GENERIC, HEADER, attribute, native};
use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::sockopt::{
    Timeout, set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_timeout,
};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// Netlink group of new connections, as a bit mask.
const NEW: u32 = 1;
/// Size of the kernel's queue in bytes. It is enough for about ten thousand connections that start at the same time.
const BUFFER: usize = 8 << 20;
/// Size of the receive buffer in bytes. One receive can return several messages.
const MESSAGES: usize = 64 << 10;
/// Timeout for the event of a test connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Result of waiting for events.
#[derive(Debug)]
pub enum Heard {
    /// Clients opened these connections.
    Begun(Vec<Begun>),
    /// No event arrived in time.
    Silence,
    /// The kernel's queue overflowed, and some events were lost.
    Lost,
}

/// A socket that receives the kernel's events for new connections.
pub struct Beginnings(OwnedFd);

impl Beginnings {
    /// Starts to listen, and checks that events arrive. For this check, it sends a datagram to each address in `here`. These must
    /// be addresses of this host, for example the loopback address of each family.
    ///
    /// Fails without CAP_NET_ADMIN. Also fails if no event arrives. There are three possible causes: the kernel does not support
    /// events (`CONFIG_NF_CT_NETLINK`), events are switched off (`net.netfilter.nf_conntrack_events`), or the kernel tracks no
    /// connections of the family in this network namespace.
    pub fn listen(here: &[IpAddr]) -> io::Result<Self> {
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(NETFILTER))?;
        // The limit for users (`net.core.rmem_max`) is enough only for a few hundred connections, so netsurgeon requests a larger
        // size.
        set_socket_recv_buffer_size_force(&socket, BUFFER)
            .or_else(|_| set_socket_recv_buffer_size(&socket, BUFFER))?;
        bind(&socket, &SocketAddrNetlink::new(0, NEW))?;
        let ears = Self(socket);
        here.iter().try_for_each(|address| ears.try_out(*address))?;
        Ok(ears)
    }

    fn try_out(&self, here: IpAddr) -> io::Result<()> {
        let (from, to) = (UdpSocket::bind((here, 0))?, UdpSocket::bind((here, 0))?);
        let port = to.local_addr()?.port();
        from.send_to(&[0], (here, port))?;
        let start = Instant::now();
        while let Some(left) = PATIENCE.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
            if let Heard::Begun(found) = self.next(left)?
                && found.iter().any(|one| one.to == here && one.port == Some(port))
            {
                return Ok(());
            }
        }
        Err(io::Error::other(format!(
            "the kernel reports no event for a connection to {here}: `net.netfilter.nf_conntrack_events` is 0, or the kernel tracks no connections in this network namespace"
        )))
    }

    /// Waits for the next events, for at most the time `within`. Blocks the thread.
    pub fn next(&self, within: Duration) -> io::Result<Heard> {
        // `rustix` rejects a timeout of zero, because the kernel would then wait without a time limit.
        set_socket_timeout(&self.0, Timeout::Recv, Some(within.max(Duration::from_millis(1))))?;
        let mut buffer = vec![0; MESSAGES];
        match recv(&self.0, &mut buffer, RecvFlags::empty()) {
            Ok((length, _)) => Ok(Heard::Begun(messages(buffer.get(..length).unwrap_or_default()))),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Heard::Silence),
            Err(Errno::NOBUFS) => Ok(Heard::Lost),
            Err(error) => Err(error.into()),
        }
    }
}

/// Message type for a new connection: `IPCTNL_MSG_CT_NEW` of `NFNL_SUBSYS_CTNETLINK`.
const CONNTRACK_NEW: u16 = 1 << 8;
/// Attribute types: `CTA_TUPLE_ORIG`, which contains `CTA_TUPLE_IP` and `CTA_TUPLE_PROTO`.
const ORIGINAL: u16 = 1;
const ADDRESSES: u16 = 1;
const PROTOCOL: u16 = 2;
/// Attribute types in `CTA_TUPLE_IP`: source and destination address, for IPv4 and IPv6 (`CTA_IP_V4_SRC`, ...).
const SOURCE: [u16; 2] = [1, 3];
const DESTINATION: [u16; 2] = [2, 4];
/// Attribute types in `CTA_TUPLE_PROTO`: protocol number, source port and destination port (`CTA_PROTO_NUM`,
/// `CTA_PROTO_SRC_PORT`, `CTA_PROTO_DST_PORT`).
const NUMBER: u16 = 1;
const FROM: u16 = 2;
const PORT: u16 = 3;

fn messages(bytes: &[u8]) -> Vec<Begun> {
    netlink::messages(bytes)
        .filter(|message| message.get(4..6).map(native) == Some(CONNTRACK_NEW))
        .filter_map(|message| message.get(HEADER.saturating_add(GENERIC)..).and_then(connection))
        .collect()
}

fn connection(attributes: &[u8]) -> Option<Begun> {
    let tuple = attribute(attributes, ORIGINAL)?;
    let (addresses, protocol) = (attribute(tuple, ADDRESSES)?, attribute(tuple, PROTOCOL)?);
    let address = |kinds: [u16; 2]| kinds.iter().find_map(|kind| ip(attribute(addresses, *kind)?));
    let port = |kind| Some(u16::from_be_bytes(attribute(protocol, kind)?.try_into().ok()?));
    let name = match attribute(protocol, NUMBER)?.first()? {
        6 => "tcp".to_string(),
        17 => "udp".to_string(),
        132 => "sctp".to_string(),
        number => number.to_string(),
    };
    if is_probe(&name, port(FROM)) {
        return None;
    }
    Some(Begun { client: address(SOURCE)?, to: address(DESTINATION)?, protocol: name, port: port(PORT) })
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let of_four = |bytes: [u8; 4]| Ipv4Addr::from(bytes).into();
    let of_sixteen = |bytes: [u8; 16]| Ipv6Addr::from(bytes).into();
    bytes.try_into().map(of_four).or_else(|_| bytes.try_into().map(of_sixteen)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::netlink::encode;

    fn message(client: IpAddr, to: IpAddr, protocol: u8, port: u16) -> Vec<u8> {
        message_from(client, 40_000, to, protocol, port)
    }

    fn message_from(client: IpAddr, from: u16, to: IpAddr, protocol: u8, port: u16) -> Vec<u8> {
        let octets = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let [source, destination] = if to.is_ipv4() { [1, 2] } else { [3, 4] };
        let addresses = [encode(source, &octets(client)), encode(destination, &octets(to))].concat();
        let ports = [
            encode(NUMBER, &[protocol]),
            encode(FROM, &from.to_be_bytes()),
            encode(PORT, &port.to_be_bytes()),
        ];
        let tuple = [encode(1 | 0x8000, &addresses), encode(2 | 0x8000, &ports.concat())].concat();
        let content = [vec![2, 0, 0, 0], encode(ORIGINAL | 0x8000, &tuple), encode(3, &[0; 4])].concat();
        let mut header = u32::try_from(HEADER + content.len()).unwrap().to_ne_bytes().to_vec();
        header.extend_from_slice(&CONNTRACK_NEW.to_ne_bytes());
        header.resize(HEADER, 0);
        [header, content].concat()
    }

    #[test]
    fn client_and_destination_are_parsed() {
        let [client, to]: [IpAddr; 2] = ["10.244.1.5", "10.96.0.10"].map(|text| text.parse().unwrap());
        let [client6, to6]: [IpAddr; 2] = ["fd00::5", "fd00:96::a"].map(|text| text.parse().unwrap());
        let bytes = [message(client, to, 6, 443), message(client6, to6, 17, 53)].concat();
        let of = |client, to, protocol: &str, port| Begun {
            client,
            to,
            protocol: protocol.into(),
            port: Some(port),
        };
        assert_eq!(messages(&bytes), [of(client, to, "tcp", 443), of(client6, to6, "udp", 53)]);
        assert_eq!(messages(bytes.get(..70).unwrap()), []);
        assert_eq!(messages(&message_from(client, 300, to, 6, 443)), [], "an own probe");
        assert_eq!(messages(&message_from(client, 300, to, 17, 443)).len(), 1);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = messages(&bytes);
            let mut long = message("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), 6, 1);
            long.truncate(HEADER + GENERIC);
            long.extend_from_slice(&bytes);
            long[..4].copy_from_slice(&u32::try_from(HEADER + GENERIC + bytes.len()).unwrap().to_ne_bytes());
            let _ = messages(&long);
        }
    }
}

//! The size of packets that this network namespace sends to an address.
//!
//! The kernel is asked for the route itself (`RTM_F_FIB_MATCH`), not for what it learned about the path: a limit that a router has
//! reported would hide the fault in later rounds. `/proc/net/route` is no source: its column `MTU` is `advmss` plus 40.

use std::net::IpAddr;

use crate::host::netlink::{Family, Netlink, attribute, encode, native32};

/// `RTM_GETROUTE` (include/uapi/linux/rtnetlink.h, Linux 6.12).
const GET_ROUTE: u16 = 26;
/// `RTM_F_FIB_MATCH`.
const FIB_MATCH: u32 = 0x2000;
/// The attributes `RTA_DST`, `RTA_OIF` and `RTA_METRICS`, and `RTAX_MTU` in the last one.
const DESTINATION: u16 = 1;
const LINK: u16 = 4;
const METRICS: u16 = 8;
const MTU: u16 = 2;
/// `AF_INET` and `AF_INET6`.
const FAMILIES: [u8; 2] = [2, 10];
/// The size of `rtmsg`, in bytes.
const HEADER: usize = 12;

/// Returns the smaller one of the MTUs of the route, if it has one, and of its link, in bytes.
pub(super) fn link_mtu(to: IpAddr) -> Option<u16> {
    let answer = Netlink::open(Family::Route).ok()?.one(GET_ROUTE, &request(to)).ok()??;
    let (of_route, link) = route(&answer.body)?;
    let of_link = mtu_of_link(link)?;
    let mtu = of_route.map_or(of_link, |of_route| of_route.min(of_link));
    // The loopback link has 65,536.
    Some(u16::try_from(mtu).unwrap_or(u16::MAX))
}

/// Returns the request for the route to an address: `rtmsg` and the address.
fn request(to: IpAddr) -> Vec<u8> {
    let [four, six] = FAMILIES;
    let (family, length, address) = match to {
        IpAddr::V4(to) => (four, 32, to.octets().to_vec()),
        IpAddr::V6(to) => (six, 128, to.octets().to_vec()),
    };
    let mut bytes = vec![family, length, 0, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&FIB_MATCH.to_ne_bytes());
    bytes.extend_from_slice(&encode(DESTINATION, &address));
    bytes
}

/// Returns the MTU of a route, if it has one, and the index of its link.
fn route(body: &[u8]) -> Option<(Option<u32>, u32)> {
    let attributes = body.get(HEADER..)?;
    let of_route = attribute(attributes, METRICS).and_then(|metrics| native32(attribute(metrics, MTU)?));
    Some((of_route.filter(|mtu| *mtu > 0), native32(attribute(attributes, LINK)?)?))
}

fn mtu_of_link(index: u32) -> Option<u32> {
    let links = std::fs::read_dir("/sys/class/net").ok()?;
    let number =
        |path: &std::path::Path| -> Option<u32> { std::fs::read_to_string(path).ok()?.trim().parse().ok() };
    let paths = links.filter_map(|link| Some(link.ok()?.path()));
    let mut own = paths.into_iter().filter(|path| number(&path.join("ifindex")) == Some(index));
    number(&own.next()?.join("mtu"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_of_a_route_is_read() {
        let metrics = encode(MTU, &1450_u32.to_ne_bytes());
        let body = [vec![0; HEADER], encode(LINK, &3_u32.to_ne_bytes()), encode(METRICS, &metrics)].concat();
        assert_eq!(route(&body), Some((Some(1450), 3)));
        let body = [vec![0; HEADER], encode(LINK, &3_u32.to_ne_bytes())].concat();
        assert_eq!((route(&body), route(&[])), (Some((None, 3)), None));
    }
}

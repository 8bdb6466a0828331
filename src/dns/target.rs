//! Addresses that no name can point to, and that netsurgeon never probes.
//!
//! Each user who is allowed to create an Ingress or a Service can give any target in an annotation. With an address of this
//! list, clients would connect to themselves, or netsurgeon would send a request to a service of its own machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Metadata services of clouds that are not link-local addresses: Amazon EC2 with IPv6, Alibaba Cloud, Oracle Cloud, Azure.
const METADATA: [IpAddr; 4] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
];

/// Returns why an address cannot be a target, for example `a loopback address`; `None` for a usable address (RFC 6890).
pub fn refusal(at: IpAddr) -> Option<&'static str> {
    // An IPv4 address in IPv6 notation (RFC 4291, section 2.5.5) is the same address.
    let at = at.to_canonical();
    if METADATA.contains(&at) {
        return Some("the address of a metadata service");
    }
    let is_link_local = match at {
        IpAddr::V4(at) => at.is_link_local(),
        IpAddr::V6(at) => at.is_unicast_link_local(),
    };
    match at {
        _ if at.is_loopback() => Some("a loopback address"),
        _ if is_link_local => Some("a link-local address"),
        _ if at.is_multicast() => Some("a multicast address"),
        IpAddr::V4(at) if at.octets().first() == Some(&0) => Some("an unspecified address"),
        IpAddr::V4(at) if at.is_broadcast() => Some("a broadcast address"),
        _ if at.is_unspecified() => Some("an unspecified address"),
        _ => None,
    }
}

/// Returns why the address in a text cannot be a target. Returns `None` for a usable address and for a host name.
pub fn refused(text: &str) -> Option<&'static str> {
    text.parse().ok().and_then(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_no_public_server_are_refused() {
        for (at, reason) in [
            ("127.77.1.1", "loopback"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("169.254.169.254", "link-local"),
            ("fe80::1", "link-local"),
            ("224.0.0.1", "multicast"),
            ("ff02::1", "multicast"),
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("::", "unspecified"),
            ("255.255.255.255", "broadcast"),
            ("fd00:ec2::254", "metadata"),
            ("100.100.100.200", "metadata"),
        ] {
            assert!(refused(at).is_some_and(|found| found.contains(reason)), "{at}");
        }
        for at in ["10.0.0.1", "192.0.2.1", "2001:db8::1", "fd00::1", "lb.example.net", ""] {
            assert_eq!(refused(at), None, "{at}");
        }
    }
}

//! Reads the routes in the main routing table of this host, in the network namespace of this process (`fib_route_seq_show`,
//! `net/ipv4/fib_trie.c`, and `rt6_info_route`, `net/ipv6/route.c`, Linux 6.12).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A route of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Address of the destination network.
    pub network: IpAddr,
    /// Prefix length of the network, in bits.
    pub prefix_len: u8,
    /// Name of the network device.
    pub device: String,
}

/// Returns all routes except default routes and routes of the loopback device. Fails if the kernel's list of IPv4 routes cannot
/// be read.
pub fn routes() -> std::io::Result<Vec<Route>> {
    let of_v4 = std::fs::read_to_string("/proc/net/route")?;
    // The file does not exist if the kernel has no IPv6.
    let of_v6 = std::fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    let found = of_v4.lines().filter_map(v4).chain(of_v6.lines().filter_map(v6));
    Ok(found.filter(|route| route.prefix_len > 0 && route.device != "lo").collect())
}

/// Parses an IPv4 route: `DEVICE DESTINATION GATEWAY FLAGS REFERENCES USE METRIC MASK ...`. Addresses are numbers in the byte
/// order of the machine.
fn v4(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |place: usize| u32::from_str_radix(words.get(place)?, 16).ok();
    let network = Ipv4Addr::from(number(1)?.to_ne_bytes());
    let prefix_len = u8::try_from(number(7)?.count_ones()).ok()?;
    Some(Route { network: network.into(), prefix_len, device: (*words.first()?).to_string() })
}

/// Parses an IPv6 route: `DESTINATION LENGTH SOURCE LENGTH NEXT METRIC REFERENCES USE FLAGS DEVICE`.
fn v6(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let network = Ipv6Addr::from(u128::from_str_radix(words.first()?, 16).ok()?);
    let prefix_len = u8::from_str_radix(words.get(1)?, 16).ok()?;
    Some(Route { network: network.into(), prefix_len, device: (*words.last()?).to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lines_are_parsed() {
        let number = u32::from_ne_bytes([10, 200, 0, 0]);
        let mask = u32::from_ne_bytes([255, 255, 0, 0]);
        let line = format!("tun0\t{number:08X}\t00000000\t0001\t0\t0\t0\t{mask:08X}\t0\t0\t0");
        let network = "10.200.0.0".parse().unwrap();
        assert_eq!(v4(&line), Some(Route { network, prefix_len: 16, device: "tun0".into() }));
        assert_eq!(v4("Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT"), None);
        let line = "fd000200000000000000000000000000 70 00000000000000000000000000000000 00 \
                    00000000000000000000000000000000 00000400 00000001 00000000 00000001     eth0";
        let network = "fd00:200::".parse().unwrap();
        assert_eq!(v6(line), Some(Route { network, prefix_len: 112, device: "eth0".into() }));
    }
}

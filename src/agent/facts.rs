//! Counters and settings of a network namespace, as the kernel's files show them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// The largest file that is read, in bytes.
const LARGEST: usize = 1 << 20;

/// Counters and settings of a network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Name servers of `/etc/resolv.conf`, in their order.
    pub name_servers: Vec<IpAddr>,
    /// Search domains of `/etc/resolv.conf`.
    pub search: Vec<String>,
    /// Packets that links dropped or that had errors, by link. Links of Pods (one end of a veth pair) are left out.
    pub link_errors: BTreeMap<String, u64>,
    /// Failures of connection tracking by name: `insert_failed`, `drop` and `early_drop` of `/proc/net/stat/nf_conntrack`, the
    /// sum of all processors.
    pub conntrack: BTreeMap<String, u64>,
    /// The number of tracked connections, and its limit.
    pub conntrack_usage: Option<(u64, u64)>,
}

impl Facts {
    /// Reads the files. A file that cannot be read leaves its part empty.
    pub(super) fn read() -> Self {
        let (name_servers, search) = resolver(&file("/etc/resolv.conf"));
        let number = |name: &str| file(&format!("/proc/sys/net/netfilter/{name}")).trim().parse().ok();
        Self {
            name_servers,
            search,
            link_errors: link_errors(&file("/proc/net/dev")),
            conntrack: conntrack(&file("/proc/net/stat/nf_conntrack")),
            conntrack_usage: number("nf_conntrack_count").zip(number("nf_conntrack_max")),
        }
    }

    /// Returns the domain of the cluster, from the search domain that starts with `svc.`
    /// (`generateSearchesForDNSClusterFirst`, pkg/kubelet/network/dns/dns.go, v1.37.2).
    pub fn cluster_domain(&self) -> Option<&str> {
        self.search.iter().find_map(|domain| domain.strip_prefix("svc."))
    }
}

fn file(path: &str) -> String {
    let mut text = std::fs::read_to_string(path).unwrap_or_default();
    text.truncate(text.floor_char_boundary(LARGEST));
    text
}

fn resolver(text: &str) -> (Vec<IpAddr>, Vec<String>) {
    let (mut servers, mut search) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => servers.extend(words.next().and_then(|word| word.parse::<IpAddr>().ok())),
            Some("search") => search = words.map(|word| word.trim_end_matches('.').to_string()).collect(),
            _ => {}
        }
    }
    (servers, search)
}

/// The counters of `/proc/net/dev` after the name: received bytes, packets, errors, drops, and the same for sent ones at 8 places
/// later (`dev_seq_printf_stats`, net/core/net-procfs.c, Linux 6.12).
fn link_errors(text: &str) -> BTreeMap<String, u64> {
    let is_of_pod = |name: &str| {
        ["veth", "cali", "lxc", "vethwepl", "eni", "pod"].iter().any(|start| name.starts_with(start))
    };
    let links = text.lines().skip(2).filter_map(|line| line.trim().split_once(':'));
    let counted = links.filter(|(name, _)| *name != "lo" && !is_of_pod(name)).map(|(name, counters)| {
        let counters: Vec<u64> = counters.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let errors = [2, 10, 11].iter().filter_map(|place| counters.get(*place));
        (name.to_string(), errors.fold(0, |sum: u64, next| sum.saturating_add(*next)))
    });
    counted.collect()
}

fn conntrack(text: &str) -> BTreeMap<String, u64> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let mut sums = BTreeMap::new();
    for line in lines {
        for (name, word) in names.iter().zip(line.split_whitespace()) {
            if ["insert_failed", "drop", "early_drop"].contains(name) {
                let sum: &mut u64 = sums.entry((*name).to_string()).or_default();
                *sum = sum.saturating_add(u64::from_str_radix(word, 16).unwrap_or_default());
            }
        }
    }
    sums
}

/// Returns the size of packets that this network namespace sends to an address, in bytes: the MTU of the route, if it has one, or of
/// its link.
pub(super) fn link_mtu(to: IpAddr) -> Option<u16> {
    let (device, of_route) = match to {
        IpAddr::V4(to) => route_v4(&file("/proc/net/route"), to)?,
        IpAddr::V6(to) => (route_v6(&file("/proc/net/ipv6_route"), to)?, 0),
    };
    if of_route > 0 {
        return u16::try_from(of_route).ok();
    }
    let mtu: u64 = file(&format!("/sys/class/net/{device}/mtu")).trim().parse().ok()?;
    // The loopback link has 65,536.
    Some(u16::try_from(mtu).unwrap_or(u16::MAX))
}

/// Returns the device and the MTU of the most specific IPv4 route: `DEVICE DESTINATION GATEWAY FLAGS REFERENCES USE METRIC MASK MTU`,
/// with addresses in the byte order of the machine (`fib_route_seq_show`, net/ipv4/fib_trie.c, Linux 6.12).
fn route_v4(text: &str, to: Ipv4Addr) -> Option<(String, u64)> {
    let matching = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |place: usize| u32::from_str_radix(words.get(place)?, 16).ok();
        let (network, mask) = (number(1)?, number(7)?);
        let to = u32::from_ne_bytes(to.octets());
        (to & mask == network).then_some(())?;
        let mtu = words.get(8)?.parse().ok()?;
        Some((mask.count_ones(), (*words.first()?).to_string(), mtu))
    });
    matching.max_by_key(|(length, _, _)| *length).map(|(_, device, mtu)| (device, mtu))
}

/// Returns the device of the most specific IPv6 route: `DESTINATION LENGTH SOURCE LENGTH NEXT METRIC REFERENCES USE FLAGS DEVICE`.
fn route_v6(text: &str, to: Ipv6Addr) -> Option<String> {
    let matching = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let network = u128::from_str_radix(words.first()?, 16).ok()?;
        let length = u32::from_str_radix(words.get(1)?, 16).ok()?;
        let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length)).unwrap_or_default();
        let device = *words.last()?;
        (device != "lo" && u128::from(to) & mask == network & mask).then(|| (length, device.to_string()))
    });
    matching.max_by_key(|(length, _)| *length).map(|(_, device)| device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolver_names_servers_and_the_cluster_domain() {
        let (name_servers, search) = resolver(
            "search shop.svc.example.local svc.example.local example.local\nnameserver 10.96.0.10\noptions ndots:5\n",
        );
        let facts = Facts { name_servers, search, ..Facts::default() };
        assert_eq!(facts.name_servers, ["10.96.0.10".parse::<IpAddr>().unwrap()]);
        assert_eq!(facts.cluster_domain(), Some("example.local"));
    }

    #[test]
    fn counters_of_all_processors_are_summed() {
        let text = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop\n\
                    0000002a  0 0 0 0 0 0 0 0 0000000a 00000001 00000000\n\
                    0000002a  0 0 0 0 0 0 0 0 00000001 00000000 00000002\n";
        let found = conntrack(text);
        assert_eq!((found["insert_failed"], found["drop"], found["early_drop"]), (11, 1, 2));
    }

    #[test]
    fn links_of_pods_are_left_out() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
                    lo: 1 1 5 5 0 0 0 0 1 1 5 5 0 0 0 0\n  \
                    eth0: 9 9 1 2 0 0 0 0 9 9 3 4 0 0 0 0\n\
                    vethab: 9 9 1 2 0 0 0 0 9 9 3 4 0 0 0 0\n";
        assert_eq!(link_errors(text), BTreeMap::from([("eth0".to_string(), 8)]));
    }

    #[test]
    fn the_most_specific_route_counts() {
        let hex =
            |text: &str| format!("{:08X}", u32::from_ne_bytes(text.parse::<Ipv4Addr>().unwrap().octets()));
        let row = |device: &str, network: &str, mask: &str, mtu: u32| {
            format!("{device}\t{}\t00000000\t0001\t0\t0\t0\t{}\t{mtu}\t0\t0\n", hex(network), hex(mask))
        };
        let text = row("eth0", "0.0.0.0", "0.0.0.0", 0) + &row("tun0", "10.0.0.0", "255.0.0.0", 1450);
        assert_eq!(route_v4(&text, "10.1.2.3".parse().unwrap()), Some(("tun0".to_string(), 1450)));
        assert_eq!(route_v4(&text, "192.0.2.1".parse().unwrap()), Some(("eth0".to_string(), 0)));
    }
}

//! Counters and settings of a network namespace, as the kernel's files show them.

use std::collections::BTreeMap;
use std::net::IpAddr;

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
}

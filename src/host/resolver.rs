//! Reads the name servers of this machine.

use std::io;
use std::net::IpAddr;

const FILE: &str = "/etc/resolv.conf";

/// Returns the name servers in `/etc/resolv.conf`, in the order in which they are used.
pub fn nameservers() -> io::Result<Vec<IpAddr>> {
    Ok(in_text(&std::fs::read_to_string(FILE)?))
}

/// Parses the lines `nameserver ADDRESS` (resolv.conf(5)). Drops an IPv6 zone after `%`.
fn in_text(text: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let is_one = words.next() == Some("nameserver");
        words.next().filter(|_| is_one)?.split('%').next()?.parse().ok()
    };
    text.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_read_line_by_line() {
        let text = "# nameserver 192.0.2.9\nsearch example.com\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver\n";
        let expected: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "fe80::1".parse().unwrap()];
        assert_eq!(in_text(text), expected);
    }
}

//! Reads the connections that the kernel of this host tracks. They show the clients of an address, even if no rule exists for the
//! address.
//!
//! The source is `/proc/net/nf_conntrack` (`ct_seq_show`, `net/netfilter/nf_conntrack_standalone.c`, Linux 6.12). If the file
//! cannot be read, netsurgeon reads the output of `conntrack -L -o extended`, which has the same format. Each connection has one
//! line, with the original direction first, then the reply direction:
//!
//! ```text
//! ipv4 2 tcp 6 86390 ESTABLISHED src=10.244.1.5 dst=10.96.0.10 sport=40000 dport=53 src=10.244.0.2 dst=10.244.1.5 ...
//! ```
//!
//! A table may have millions of lines. They are read one by one, in the network namespace of this process.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::IpAddr;
use std::process::{Command, Stdio};

const TABLE: &str = "/proc/net/nf_conntrack";

/// Source ports of netsurgeon's own TCP probes, if it runs as root. Connections from these ports are ignored here and in
/// [`super::conntrack_events`], because a probe does not count as use of an address. The ports are below the kernel's range for
/// clients and below the ports of NFS clients (665 to 1023), so no client gets them by chance.
pub const PROBE_PORTS: std::ops::RangeInclusive<u16> = 256..=511;

/// Returns whether a connection is a probe of netsurgeon, by its protocol and source port.
pub(super) fn is_probe(protocol: &str, from: Option<u16>) -> bool {
    protocol == "tcp" && from.is_some_and(|port| PROBE_PORTS.contains(&port))
}

/// A connection from a client.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Begun {
    /// Address of the client that opened the connection.
    pub client: IpAddr,
    /// Destination address, before address translation.
    pub to: IpAddr,
    /// Protocol: `tcp`, `udp`, `sctp`, or a number.
    pub protocol: String,
    /// The destination port, if the protocol has ports.
    pub port: Option<u16>,
}

/// A tracked connection to a selected address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// The connection.
    pub connection: Begun,
    /// Whether the connection may still be in use. False for a TCP connection that has ended or was never established; the kernel
    /// keeps ended connections for two minutes. Always true for UDP, which has no state. The kernel deletes a UDP entry
    /// 30 to 120 s after the last packet.
    pub is_open: bool,
}

/// The tracked connections cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the tracked connections of this host: {table}; {program}")]
pub struct Unreadable {
    /// Error when reading the kernel's table.
    table: String,
    /// Error when running the program `conntrack`.
    program: String,
}

/// Returns the number of tracked connections in this network namespace, and the limit (`nf_conntrack_count`, `nf_conntrack_max`
/// in `net.netfilter`, Linux 6.12). `None` if the kernel does not report them, for example because the module is not loaded.
pub fn taken() -> Option<(u64, u64)> {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/netfilter/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    read("nf_conntrack_count").zip(read("nf_conntrack_max"))
}

/// Function that selects destination addresses.
pub type Wanted<'w> = dyn Fn(IpAddr) -> bool + 'w;

/// Returns the connections of this network namespace to the addresses that `wanted` selects. Blocks the thread.
pub fn flows_to(wanted: &Wanted<'_>) -> Result<Vec<Flow>, Unreadable> {
    let table = match File::open(TABLE).and_then(|file| select(file, wanted)) {
        Ok(flows) => return Ok(flows),
        Err(error) => format!("`{TABLE}`: {error}"),
    };
    let of_program = |family| list(family, wanted);
    match ["ipv4", "ipv6"].into_iter().map(of_program).collect::<io::Result<Vec<_>>>() {
        Ok(flows) => Ok(flows.concat()),
        Err(error) => Err(Unreadable { table, program: format!("`conntrack -L`: {error}") }),
    }
}

fn list(family: &str, wanted: &Wanted<'_>) -> io::Result<Vec<Flow>> {
    let mut command = Command::new("conntrack");
    command.args(["-L", "-o", "extended", "-f", family]).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let flows = child.stdout.take().map_or_else(|| Ok(Vec::new()), |lines| select(lines, wanted));
    let status = child.wait()?;
    if status.success() { flows } else { Err(io::Error::other(status.to_string())) }
}

fn select(lines: impl Read, wanted: &Wanted<'_>) -> io::Result<Vec<Flow>> {
    let mut flows = Vec::new();
    for line in BufReader::new(lines).lines() {
        flows.extend(parse(&line?).filter(|flow| wanted(flow.connection.to)));
    }
    Ok(flows)
}

/// Parses a line. Returns `None` for netsurgeon's own probes, and if the line does not describe a connection between two
/// addresses.
fn parse(line: &str) -> Option<Flow> {
    let mut words = line.split_ascii_whitespace();
    let protocol = words.by_ref().nth(2)?.to_string();
    let (mut state, mut sources, mut to, mut port, mut from) = ("", Vec::new(), None, None, None);
    // The protocol number and the remaining seconds come before these fields.
    for word in words.skip(1) {
        match word.split_once('=') {
            Some(("src", address)) => sources.push(address.parse().ok()?),
            Some(("dst", address)) if to.is_none() => to = Some(address.parse().ok()?),
            Some(("sport", number)) if sources.len() < 2 => from = number.parse().ok(),
            Some(("dport", number)) if sources.len() < 2 => port = number.parse().ok(),
            None if sources.is_empty()
                && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_') =>
            {
                state = word;
            }
            _ => {}
        }
    }
    let is_open = !matches!(state, "TIME_WAIT" | "CLOSE" | "LAST_ACK" | "SYN_SENT" | "SYN_SENT2");
    if is_probe(&protocol, from) {
        return None;
    }
    Some(Flow { connection: Begun { client: *sources.first()?, to: to?, protocol, port }, is_open })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINES: &str = "\
ipv4     2 tcp      6 86390 ESTABLISHED src=10.244.1.5 dst=10.96.0.10 sport=40000 dport=53 src=10.244.0.2 dst=10.244.1.5 sport=5353 dport=40000 [ASSURED] mark=0 zone=0 use=2
ipv4     2 tcp      6 100 TIME_WAIT src=10.244.1.5 dst=10.96.0.10 sport=40001 dport=53 src=10.244.0.2 dst=10.244.1.5 sport=5353 dport=40001 [ASSURED] mark=0 use=1
ipv4     2 udp      17 20 src=10.244.1.6 dst=10.96.0.10 sport=999 dport=53 [UNREPLIED] src=10.244.0.3 dst=10.244.1.6 sport=5353 dport=999 mark=0 use=1
ipv6     10 tcp      6 5 SYN_SENT src=fd00:0244:0000:0000:0000:0000:0000:0005 dst=fd00:0096:0000:0000:0000:0000:0000:000a sport=1 dport=80 [UNREPLIED] src=fd00:0096:0000:0000:0000:0000:0000:000a dst=fd00:0244:0000:0000:0000:0000:0000:0005 sport=80 dport=1 mark=0 use=1
ipv4     2 icmp     1 29 src=10.244.1.5 dst=10.96.0.10 type=8 code=0 id=1 src=10.96.0.10 dst=10.244.1.5 type=0 code=0 id=1 mark=0 use=1
ipv4     2 tcp      6 86390 ESTABLISHED src=10.244.1.5 dst=10.200.0.10 sport=40000 dport=53 src=10.244.0.2 dst=10.244.1.5 sport=5353 dport=40000 [ASSURED] mark=0 use=2

nonsense
";

    #[test]
    fn clients_of_an_address_are_reported() {
        let asked: [IpAddr; 2] = ["10.96.0.10", "fd00:96::a"].map(|address| address.parse().unwrap());
        let flows = select(LINES.as_bytes(), &|address| asked.contains(&address)).unwrap();
        let told: Vec<_> = flows
            .iter()
            .map(|Flow { connection, is_open }| {
                (connection.protocol.as_str(), connection.client.to_string(), connection.port, *is_open)
            })
            .collect();
        let of = |protocol, client: &str, port, is_open| (protocol, client.to_string(), port, is_open);
        assert_eq!(
            told,
            [
                of("tcp", "10.244.1.5", Some(53), true),
                of("tcp", "10.244.1.5", Some(53), false),
                of("udp", "10.244.1.6", Some(53), true),
                of("tcp", "fd00:244::5", Some(80), false),
                of("icmp", "10.244.1.5", None, true),
            ]
        );
    }

    #[test]
    fn own_probes_are_ignored() {
        let line = |protocol: &str, from: u16| {
            format!(
                "ipv4 2 {protocol} 6 100 TIME_WAIT src=10.0.0.1 dst=10.96.0.10 sport={from} dport=53 src=10.96.0.10 dst=10.0.0.1 sport=53 dport={from}"
            )
        };
        assert_eq!(parse(&line("tcp", 300)), None);
        for (protocol, port) in [("tcp", 255), ("tcp", 512), ("tcp", 40_000), ("udp", 300)] {
            assert!(parse(&line(protocol, port)).is_some(), "{protocol} {port}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(line in "\\PC{0,200}", words in "((src|dst|dport|A)=?[0-9a-f.:]{0,12} ){0,12}") {
            let _ = (parse(&line), parse(&format!("ipv4 2 tcp 6 1 {words}")));
        }
    }
}

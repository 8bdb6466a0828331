//! The evidence of one node: a document that lists the observed connections to old addresses. You can copy the document to
//! another host.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::serde::rfc3339;

use crate::host::conntrack::{Begun, Flow};
use crate::ip::ServiceCidr;

/// Version of the document's format.
pub const VERSION: u8 = 1;

/// Maximum number of clients in one document. With this limit, a document fits into a ConfigMap, even with IPv6 addresses and a
/// different port for each client. A ConfigMap has at most 1 MiB (`MaxSecretSize`, `pkg/apis/core/types.go`, v1.36.3).
const MOST: usize = 3_000;

/// The evidence of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Version of the format: [`VERSION`].
    pub version: u8,
    /// The Node's name.
    pub node: String,
    /// The old ranges. The node observed the connections to addresses in these ranges.
    pub old: Vec<ServiceCidr>,
    /// When the observation started.
    #[serde(with = "rfc3339")]
    pub began: OffsetDateTime,
    /// When the observation ended.
    #[serde(with = "rfc3339")]
    pub ended: OffsetDateTime,
    /// Whether the document has every connection that started during the observation, not only the connections that were open
    /// when the observation started or ended.
    pub complete: bool,
    /// The ports of old addresses that clients used.
    pub used: Vec<Used>,
    /// Number of clients that the document omits. The document lists the clients that used an old address most recently.
    #[serde(default)]
    pub left_out: u64,
}

impl Evidence {
    /// Returns the duration of the observation, in seconds.
    pub fn seconds(&self) -> i64 {
        seconds(self.began, self.ended)
    }
}

/// The documents of a cluster's nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gathered {
    /// Version of the format: [`VERSION`].
    pub version: u8,
    /// One document for each node, sorted by node name.
    pub documents: Vec<Evidence>,
    /// The Nodes without a document.
    pub missing: Vec<String>,
}

/// A port of an old address, and the clients that used the port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// The old address.
    pub address: IpAddr,
    /// The protocol: `tcp`, `udp`, ...
    pub protocol: String,
    /// The port, if the protocol has ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The clients that used the port, sorted by address.
    pub clients: Vec<Client>,
}

/// A client of an old address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// The client's address.
    pub address: IpAddr,
    /// Number of connections that were open at the end of the observation.
    pub open: u64,
    /// Number of connections that started during the observation.
    pub begun: u64,
    /// When the client's last connection started. If a connection is open at the end of the observation, this time is the end of
    /// the observation.
    #[serde(with = "rfc3339")]
    pub last: OffsetDateTime,
}

/// An address, a protocol (`tcp`, `udp`, ...), and the port number if the protocol has port numbers.
type Port = (IpAddr, String, Option<u16>);

/// The clients observed so far.
#[derive(Debug, Default)]
pub struct Seen {
    clients: BTreeMap<(Port, IpAddr), Client>,
    left_out: u64,
}

impl Seen {
    /// Records that a connection started.
    pub fn begun(&mut self, one: Begun, at: OffsetDateTime) {
        let client = self.client((one.to, one.protocol, one.port), one.client, at);
        client.begun = client.begun.saturating_add(1);
        if self.clients.len() > MOST.saturating_mul(2) {
            self.leave_out();
        }
    }

    /// Records the connections that are open now. All other connections count as closed.
    pub fn open(&mut self, flows: &[Flow], at: OffsetDateTime) {
        self.clients.values_mut().for_each(|client| client.open = 0);
        for one in flows.iter().filter(|flow| flow.is_open).map(|flow| &flow.connection) {
            let client = self.client((one.to, one.protocol.clone(), one.port), one.client, at);
            client.open = client.open.saturating_add(1);
        }
    }

    fn client(&mut self, port: Port, address: IpAddr, at: OffsetDateTime) -> &mut Client {
        let new = Client { address, open: 0, begun: 0, last: at };
        let client = self.clients.entry((port, address)).or_insert(new);
        client.last = client.last.max(at);
        client
    }

    /// Keeps the `MOST` clients that used an address most recently. Drops the other clients.
    fn leave_out(&mut self) {
        let Some(more) = self.clients.len().checked_sub(MOST).filter(|more| *more > 0) else { return };
        let mut all: Vec<_> = std::mem::take(&mut self.clients).into_iter().collect();
        all.sort_by_key(|(_, client)| std::cmp::Reverse((client.open > 0, client.last)));
        all.truncate(MOST);
        self.clients = all.into_iter().collect();
        self.left_out = self.left_out.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
    }

    /// Returns the ports that were used so far, and the number of clients that are not listed.
    pub fn used(&mut self) -> (Vec<Used>, u64) {
        self.leave_out();
        let mut used: Vec<Used> = Vec::new();
        for (((address, protocol, port), _), client) in &self.clients {
            match used.last_mut() {
                Some(last) if (last.address, &last.protocol, last.port) == (*address, protocol, *port) => {
                    last.clients.push(client.clone());
                }
                _ => used.push(Used {
                    address: *address,
                    protocol: protocol.clone(),
                    port: *port,
                    clients: vec![client.clone()],
                }),
            }
        }
        (used, self.left_out)
    }
}

/// Reads documents from a text: one [`Gathered`], or single documents with other lines between them, as in Pod logs. Skips an
/// incomplete document, for example at the end of a truncated log.
///
/// Fails if a document has another structure or version, or if the text contains no document.
pub fn documents(text: &str) -> Result<Vec<Evidence>, String> {
    let found = match serde_json::from_str::<Gathered>(text) {
        Ok(gathered) => gathered.documents,
        Err(_) => single(text)?,
    };
    match found.iter().find(|document| document.version != VERSION) {
        Some(other) => Err(format!("a document has the unsupported version {}", other.version)),
        None if found.is_empty() => Err("the text contains no document with evidence".to_string()),
        None => Ok(found),
    }
}

fn single(text: &str) -> Result<Vec<Evidence>, String> {
    let (mut found, mut open): (Vec<Evidence>, Option<String>) = (Vec::new(), None);
    for line in text.lines().map(str::trim_end) {
        let begins = line.starts_with('{');
        match &mut open {
            _ if begins => open = Some(line.to_string()),
            Some(open) => open.push_str(line),
            None => {}
        }
        if line == "}" || (begins && line.ends_with('}')) {
            let Some(whole) = open.take() else { continue };
            found.push(serde_json::from_str(&whole).map_err(|error| error.to_string())?);
        }
    }
    Ok(found)
}

/// Formats a time in RFC 3339 format, without fractions of a second.
pub fn moment(time: OffsetDateTime) -> String {
    time.replace_nanosecond(0).unwrap_or(time).format(&Rfc3339).unwrap_or_default()
}

pub(super) fn seconds(from: OffsetDateTime, to: OffsetDateTime) -> i64 {
    to.unix_timestamp().saturating_sub(from.unix_timestamp())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_790_000_000 + seconds).unwrap()
    }

    pub(crate) fn document(node: &str, began: i64, ended: i64) -> Evidence {
        let (old, node) = (vec!["10.96.0.0/16".parse().unwrap()], node.into());
        let (began, ended) = (at(began), at(ended));
        Evidence { version: VERSION, node, old, began, ended, complete: true, used: vec![], left_out: 0 }
    }

    pub(crate) fn connection() -> Begun {
        Begun {
            client: "10.244.0.7".parse().unwrap(),
            to: "10.96.0.10".parse().unwrap(),
            protocol: "tcp".into(),
            port: Some(443),
        }
    }

    /// Returns `count` clients with the longest possible addresses. Each client connects one second after the previous one.
    fn seen(count: u16) -> Seen {
        let mut seen = Seen::default();
        for number in 0..count {
            let address = |group: u16| {
                IpAddr::from([0xfd00, 0x1000, group, 0x1000, 0x1000, 0x1000, 0x1000, 0x1000 + number])
            };
            let one = Begun {
                client: address(0x1000),
                to: address(0x2000),
                protocol: "dccp".into(),
                port: Some(60_000),
            };
            seen.begun(one, at(number.into()));
        }
        seen
    }

    #[test]
    fn documents_are_read_from_logs_with_other_lines() {
        let [one, two] =
            [document("a", -700, -10), Evidence { used: seen(2).used().0, ..document("b", -700, -10) }];
        let pretty = serde_json::to_string_pretty(&two).unwrap();
        let text = format!(
            "  \"cut\": 1\n}}\n{}\n`a` for 600 s\r\n{pretty}\n{{\n  \"version\": 1,",
            serde_json::to_string(&one).unwrap()
        );
        assert_eq!(documents(&text).unwrap(), [one.clone(), two.clone()]);
        let gathered = Gathered { version: VERSION, documents: vec![one, two], missing: vec![] };
        assert_eq!(documents(&serde_json::to_string_pretty(&gathered).unwrap()).unwrap(), gathered.documents);
        assert!(documents("nothing\n").unwrap_err().contains("no document"));
        assert!(documents("{\"version\": 1}").unwrap_err().contains("missing field"));
        assert!(
            documents(&pretty.replace("\"version\": 1", "\"version\": 2")).unwrap_err().contains("version 2")
        );
    }

    #[test]
    fn most_recent_clients_are_kept_at_the_limit() {
        let (used, left_out) = seen(20_000).used();
        assert_eq!((used.len(), left_out), (MOST, 17_000));
        let last = used.iter().map(|used| used.clients[0].last).min();
        assert_eq!(last, Some(at(17_000)));
        let whole = serde_json::to_string(&Evidence { used, left_out, ..document("a", -700, -10) }).unwrap();
        assert!(whole.len() < 1 << 20, "{}", whole.len());
    }

    #[test]
    fn connection_is_open_only_while_the_kernel_lists_it() {
        let mut seen = seen(1);
        let flow = Flow { connection: connection(), is_open: true };
        seen.open(&[flow.clone(), flow], at(5));
        let open = |seen: &mut Seen| seen.used().0[0].clients[0].clone();
        assert_eq!((open(&mut seen).open, open(&mut seen).last), (2, at(5)));
        seen.open(&[], at(9));
        assert_eq!((open(&mut seen).open, open(&mut seen).last), (0, at(5)));
    }
}

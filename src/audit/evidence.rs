//! What a node has seen of who uses old addresses, as a document that is carried to where it is needed; and whether the
//! documents of all nodes together are evidence that nobody does.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::serde::rfc3339;

use crate::host::begun::Begun;
use crate::host::conntrack::Flow;
use crate::ip::ServiceCidr;

/// The version of the document.
pub const VERSION: u8 = 1;

/// A document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// [`VERSION`].
    pub version: u8,
    /// The Node's name.
    pub node: String,
    /// The ranges that were asked for.
    pub old: Vec<ServiceCidr>,
    /// When it began to look.
    #[serde(with = "rfc3339")]
    pub began: OffsetDateTime,
    /// When it ended.
    #[serde(with = "rfc3339")]
    pub ended: OffsetDateTime,
    /// Whether every connection that began meanwhile was told, not only those that were there at the beginning or the end.
    pub complete: bool,
    /// What was used.
    pub used: Vec<Used>,
}

impl Evidence {
    /// For how long it was looked, in seconds.
    pub fn seconds(&self) -> i64 {
        seconds(self.began, self.ended)
    }
}

/// A port of an old address that was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// The address.
    pub address: IpAddr,
    /// `tcp`, `udp`, ...
    pub protocol: String,
    /// The port, where the protocol has ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Who used it, in the order of their addresses.
    pub clients: Vec<Client>,
}

/// Who used it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Its own address.
    pub address: IpAddr,
    /// Connections that were open in the end.
    pub open: u64,
    /// Connections that began while it was looked.
    pub begun: u64,
    /// When it last began one, or in the end if one was open.
    #[serde(with = "rfc3339")]
    pub last: OffsetDateTime,
}

/// What is seen, as it is seen.
#[derive(Debug, Default)]
pub struct Seen(BTreeMap<(IpAddr, String, Option<u16>), BTreeMap<IpAddr, Client>>);

impl Seen {
    /// A connection began.
    pub fn begun(&mut self, one: Begun, at: OffsetDateTime) {
        let client = self.client((one.to, one.protocol, one.port), one.client, at);
        client.begun = client.begun.saturating_add(1);
    }

    /// A connection is there in the end.
    pub fn open(&mut self, one: &Flow, at: OffsetDateTime) {
        if one.is_open {
            let client = self.client((one.to, one.protocol.clone(), one.port), one.client, at);
            client.open = client.open.saturating_add(1);
        }
    }

    fn client(
        &mut self,
        port: (IpAddr, String, Option<u16>),
        address: IpAddr,
        at: OffsetDateTime,
    ) -> &mut Client {
        let clients = self.0.entry(port).or_default();
        let client = clients.entry(address).or_insert(Client { address, open: 0, begun: 0, last: at });
        client.last = client.last.max(at);
        client
    }

    /// Returns what was seen.
    pub fn used(self) -> Vec<Used> {
        let used = |((address, protocol, port), clients): (_, BTreeMap<_, Client>)| Used {
            address,
            protocol,
            port,
            clients: clients.into_values().collect(),
        };
        self.0.into_iter().map(used).collect()
    }
}

/// Reads documents out of a text that may have other lines between them, as the logs of Pods do; one that is not whole, as where
/// a log was cut, is left out.
///
/// Fails when a document is of another shape or version, and when there is none.
pub fn documents(text: &str) -> Result<Vec<Evidence>, String> {
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
    match found.iter().find(|document| document.version != VERSION) {
        Some(other) => Err(format!("a document has the version {}", other.version)),
        None if found.is_empty() => Err("there is no document in it".to_string()),
        None => Ok(found),
    }
}

/// What evidence is asked for.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The ranges that are to be given up.
    pub old: Vec<ServiceCidr>,
    /// The Nodes that there are.
    pub nodes: Vec<String>,
    /// Now.
    pub now: OffsetDateTime,
    /// How old a document may be.
    pub age: Duration,
    /// For how long nobody may have used an old address.
    pub quiet: Duration,
}

/// Why documents are no evidence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lacking {
    /// A Node has none.
    #[error("there is no evidence of {count} of {of} Nodes; the first is `{first}`")]
    Node {
        /// How many.
        count: usize,
        /// Of how many.
        of: usize,
        /// The first one.
        first: String,
    },
    /// One is too old, or of the future.
    #[error("the evidence of `{node}` ended {seconds} s ago, and may be {allowed} s old")]
    Old {
        /// The Node.
        node: String,
        /// How old it is.
        seconds: i64,
        /// How old it may be.
        allowed: u64,
    },
    /// One is about other ranges.
    #[error("the evidence of `{node}` says nothing of {range}")]
    Range {
        /// The Node.
        node: String,
        /// The range that is missing.
        range: ServiceCidr,
    },
    /// One has not heard of every connection, or not for long enough.
    #[error("on `{node}` every connection was heard of for {seconds} s, and {asked} s are asked for")]
    Short {
        /// The Node.
        node: String,
        /// For how long; 0 if some were lost.
        seconds: i64,
        /// How long is asked for.
        asked: u64,
    },
    /// An old address is used.
    #[error("on `{node}` {client} used the old address {address} {protocol}{port}, last at {last}", last = told(*last), port = port.map(|port| format!(" port {port}")).unwrap_or_default())]
    Used {
        /// The Node.
        node: String,
        /// Who.
        client: IpAddr,
        /// Which address.
        address: IpAddr,
        /// `tcp`, `udp`, ...
        protocol: String,
        /// The port.
        port: Option<u16>,
        /// When.
        last: OffsetDateTime,
    },
}

/// Judges the documents: every Node must have one, new enough, about all ranges, that heard of every connection for as long as
/// nobody may have used an old address; and nobody has.
pub fn judge(documents: &[Evidence], asked: &Asked) -> Result<(), Lacking> {
    let newest = |node: &String| {
        documents.iter().filter(|document| document.node == *node).max_by_key(|document| document.ended)
    };
    let missing: Vec<&String> = asked.nodes.iter().filter(|node| newest(node).is_none()).collect();
    if let Some(first) = missing.first() {
        let (count, of) = (missing.len(), asked.nodes.len());
        return Err(Lacking::Node { count, of, first: (*first).clone() });
    }
    // What is used comes first: it is what somebody must see to, whatever else is missing.
    for document in documents {
        is_quiet(document, asked)?;
    }
    asked.nodes.iter().filter_map(newest).try_for_each(|document| is_enough(document, asked))
}

fn is_quiet(document: &Evidence, asked: &Asked) -> Result<(), Lacking> {
    let is_lately = |last| seconds(last, asked.now) <= asked.quiet.as_secs().cast_signed();
    for used in document.used.iter().filter(|used| asked.old.iter().any(|range| range.contains(used.address)))
    {
        if let Some(client) = used.clients.iter().find(|client| client.open > 0 || is_lately(client.last)) {
            return Err(Lacking::Used {
                node: document.node.clone(),
                client: client.address,
                address: used.address,
                protocol: used.protocol.clone(),
                port: used.port,
                last: client.last,
            });
        }
    }
    Ok(())
}

fn is_enough(document: &Evidence, asked: &Asked) -> Result<(), Lacking> {
    let node = document.node.clone();
    if let Some(range) = asked.old.iter().find(|range| !document.old.contains(range)) {
        return Err(Lacking::Range { node, range: *range });
    }
    let (age, allowed) = (seconds(document.ended, asked.now), asked.age.as_secs());
    // A clock that is ahead makes evidence look newer than it is.
    if age.unsigned_abs() > allowed {
        return Err(Lacking::Old { node, seconds: age, allowed });
    }
    let watched = if document.complete { document.seconds() } else { 0 };
    if watched < asked.quiet.as_secs().cast_signed() {
        return Err(Lacking::Short { node, seconds: watched, asked: asked.quiet.as_secs() });
    }
    Ok(())
}

/// A time for people, to the second.
fn told(time: OffsetDateTime) -> String {
    time.replace_nanosecond(0).unwrap_or(time).format(&Rfc3339).unwrap_or_default()
}

fn seconds(from: OffsetDateTime, to: OffsetDateTime) -> i64 {
    to.unix_timestamp().saturating_sub(from.unix_timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_790_000_000;

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(NOW + seconds).unwrap()
    }

    fn document(node: &str, began: i64, ended: i64) -> Evidence {
        let old = vec!["10.96.0.0/16".parse().unwrap()];
        Evidence {
            version: VERSION,
            node: node.into(),
            old,
            began: at(began),
            ended: at(ended),
            complete: true,
            used: vec![],
        }
    }

    fn asked(nodes: &[&str]) -> Asked {
        let seconds = Duration::from_secs;
        let nodes = nodes.iter().map(ToString::to_string).collect();
        let old = vec!["10.96.0.0/16".parse().unwrap()];
        Asked { old, nodes, now: at(0), age: seconds(60), quiet: seconds(600) }
    }

    fn used(last: i64, open: bool) -> Vec<Used> {
        let begun = Begun {
            client: "10.244.0.7".parse().unwrap(),
            to: "10.96.0.10".parse().unwrap(),
            protocol: "tcp".into(),
            port: Some(443),
        };
        let mut seen = Seen::default();
        seen.begun(begun.clone(), at(last));
        if open {
            let flow = Flow {
                protocol: begun.protocol,
                client: begun.client,
                to: begun.to,
                port: begun.port,
                server: None,
                is_open: true,
            };
            seen.open(&flow, at(last));
        }
        seen.used()
    }

    #[test]
    fn every_node_must_have_looked_long_enough_and_lately() {
        let fine = [document("a", -700, -10), document("b", -620, -20), document("b", -5_000, -4_000)];
        assert_eq!(judge(&fine, &asked(&["a", "b"])), Ok(()));
        let reason =
            |documents: &[Evidence], nodes: &[&str]| judge(documents, &asked(nodes)).unwrap_err().to_string();
        assert_eq!(
            reason(&fine, &["a", "b", "c", "d"]),
            "there is no evidence of 2 of 4 Nodes; the first is `c`"
        );
        assert!(reason(&[document("a", -900, -100)], &["a"]).contains("ended 100 s ago"));
        assert!(reason(&[document("a", 0, 700)], &["a"]).contains("ended -700 s ago"));
        assert!(reason(&[document("a", -500, -10)], &["a"]).contains("for 490 s, and 600 s"));
        let lost = Evidence { complete: false, ..document("a", -900, -1) };
        assert!(reason(&[lost], &["a"]).contains("for 0 s"));
        let other = Evidence { old: vec!["10.97.0.0/16".parse().unwrap()], ..document("a", -900, -1) };
        assert!(reason(&[other], &["a"]).contains("nothing of 10.96.0.0/16"));
    }

    #[test]
    fn documents_are_found_among_the_lines_of_logs() {
        let [one, two] =
            [document("a", -700, -10), Evidence { used: used(-5, true), ..document("b", -9, -1) }];
        let pretty = serde_json::to_string_pretty(&two).unwrap();
        let text = format!(
            "  \"cut\": 1\n}}\n{}\n`a` for 600 s\r\n{pretty}\n{{\n  \"version\": 1,",
            serde_json::to_string(&one).unwrap()
        );
        assert_eq!(documents(&text).unwrap(), [one, two]);
        assert!(documents("nothing\n").unwrap_err().contains("no document"));
        assert!(documents("{\"version\": 1}").unwrap_err().contains("missing field"));
        assert!(
            documents(&pretty.replace("\"version\": 1", "\"version\": 2")).unwrap_err().contains("version 2")
        );
    }

    #[test]
    fn whoever_used_an_old_address_lately_is_named() {
        let with = |last, open| Evidence { used: used(last, open), ..document("a", -700, -10) };
        let reason = judge(&[with(-300, false)], &asked(&["a"])).unwrap_err().to_string();
        assert!(
            reason
                .starts_with("on `a` 10.244.0.7 used the old address 10.96.0.10 tcp port 443, last at 2026-"),
            "{reason}"
        );
        assert_eq!(judge(&[with(-650, false)], &asked(&["a"])), Ok(()), "long ago");
        assert!(judge(&[with(-650, true)], &asked(&["a"])).is_err(), "begun long ago, and still open");
        let earlier = Evidence { used: used(-300, false), ..document("a", -400, -200) };
        assert!(
            judge(&[document("a", -700, -10), earlier], &asked(&["a"])).is_err(),
            "every document counts"
        );
    }
}

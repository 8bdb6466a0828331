//! Checks whether the evidence of the nodes shows that clients have stopped using old addresses.

use std::net::IpAddr;
use std::time::Duration;

use time::OffsetDateTime;

use super::evidence::{Client, Evidence, moment, seconds};
use crate::ip::ServiceCidr;

/// Requirements for the evidence.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The ranges that will be retired.
    pub old: Vec<ServiceCidr>,
    /// The Nodes of the cluster.
    pub nodes: Vec<String>,
    /// The current time.
    pub now: OffsetDateTime,
    /// Maximum age of a document.
    pub age: Duration,
    /// The quiet time before the end of a node's newest document. If a client used an old address in this time, the check fails.
    pub quiet: Duration,
}

/// Why the evidence is not sufficient.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lacking {
    /// A Node has no document.
    #[error("no evidence from {count} of {of} Nodes; the first is `{first}`")]
    Node {
        /// Number of Nodes without a document.
        count: usize,
        /// Number of all Nodes.
        of: usize,
        /// The first Node without a document.
        first: String,
    },
    /// A document is too old, or its time is in the future.
    #[error("the evidence of `{node}` ended {}; the maximum age is {allowed} s", when(*seconds))]
    Old {
        /// The Node.
        node: String,
        /// Age of the document, in seconds.
        seconds: i64,
        /// Maximum age, in seconds.
        allowed: u64,
    },
    /// A document does not cover a range.
    #[error("the evidence of `{node}` does not cover the range {range}")]
    Range {
        /// The Node.
        node: String,
        /// The range that the document does not cover.
        range: ServiceCidr,
    },
    /// A node missed connections, or did not observe for long enough.
    #[error("`{node}` observed every connection for {seconds} s; at least {asked} s are required")]
    Short {
        /// The Node.
        node: String,
        /// How long the node observed every connection; 0 if the node missed some connections.
        seconds: i64,
        /// Required time, in seconds.
        asked: u64,
    },
    /// A client used an old address in the quiet time.
    #[error("client {client} of `{node}` used the old address {address} {protocol}{port}, last at {last}", last = moment(*last), port = port.map(|port| format!(" port {port}")).unwrap_or_default())]
    Used {
        /// The Node.
        node: String,
        /// The address of the client.
        client: IpAddr,
        /// The old address.
        address: IpAddr,
        /// The protocol: `tcp`, `udp`, ...
        protocol: String,
        /// The port, if the protocol has ports.
        port: Option<u16>,
        /// When the address was used last.
        last: OffsetDateTime,
    },
}

/// Checks the documents. Every Node needs a recent document. The document must cover all ranges, and contain every connection of
/// the whole quiet time. Fails if a client used an old address in the quiet time. Documents of deleted Nodes are ignored, because
/// the Pods of these Nodes are deleted, too.
pub fn judge(documents: &[Evidence], asked: &Asked) -> Result<(), Lacking> {
    let newest = |node: &String| {
        documents.iter().filter(|document| document.node == *node).max_by_key(|document| document.ended)
    };
    let missing: Vec<&String> = asked.nodes.iter().filter(|node| newest(node).is_none()).collect();
    if let Some(first) = missing.first() {
        let (count, of) = (missing.len(), asked.nodes.len());
        return Err(Lacking::Node { count, of, first: (*first).clone() });
    }
    // Reports clients of old addresses before insufficient documents, because an operator must act on these clients in any case.
    for document in documents.iter().filter(|document| asked.nodes.contains(&document.node)) {
        if let Some(newest) = newest(&document.node) {
            is_quiet(document, newest, asked)?;
        }
    }
    asked.nodes.iter().filter_map(newest).try_for_each(|document| is_enough(document, asked))
}

/// Fails if a client used an old address in the quiet time before the end of the node's newest document. All these times come
/// from the node's clock. The evidence does not cover later times.
fn is_quiet(document: &Evidence, newest: &Evidence, asked: &Asked) -> Result<(), Lacking> {
    let is_newest = newest.ended == document.ended;
    let is_lately = |last| seconds(last, newest.ended) <= asked.quiet.as_secs().cast_signed();
    let is_user = |client: &&Client| (is_newest && client.open > 0) || is_lately(client.last);
    for used in document.used.iter().filter(|used| asked.old.iter().any(|range| range.contains(used.address)))
    {
        if let Some(client) = used.clients.iter().find(is_user) {
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
    if let Some(range) = asked.old.iter().find(|range| !covers(document, range)) {
        return Err(Lacking::Range { node, range: *range });
    }
    let (age, allowed) = (seconds(document.ended, asked.now), asked.age.as_secs());
    // If the clock of a node is ahead, its evidence looks newer than it is.
    if age.unsigned_abs() > allowed {
        return Err(Lacking::Old { node, seconds: age, allowed });
    }
    let watched = if document.complete { document.seconds() } else { 0 };
    if watched < asked.quiet.as_secs().cast_signed() {
        return Err(Lacking::Short { node, seconds: watched, asked: asked.quiet.as_secs() });
    }
    Ok(())
}

/// Returns whether a document has all connections to addresses of a range.
fn covers(document: &Evidence, range: &ServiceCidr) -> bool {
    document.old.iter().any(|observed| observed.covers(range))
}

/// Returns the age of a document as text.
fn when(seconds: i64) -> String {
    match seconds {
        0.. => format!("{seconds} s ago"),
        _ => format!(
            "{} s in the future, because the clock of the node is ahead of the clock of this host",
            seconds.unsigned_abs()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::evidence::tests::{at, connection, document};
    use crate::audit::evidence::{Seen, Used};
    use crate::host::conntrack::Flow;

    fn asked(nodes: &[&str]) -> Asked {
        let seconds = Duration::from_secs;
        let nodes = nodes.iter().map(ToString::to_string).collect();
        let old = vec!["10.96.0.0/16".parse().unwrap()];
        Asked { old, nodes, now: at(0), age: seconds(60), quiet: seconds(600) }
    }

    fn used(last: i64, open: bool) -> Vec<Used> {
        let mut seen = Seen::default();
        seen.begun(connection(), at(last));
        if open {
            seen.open(&[Flow { connection: connection(), is_open: true }], at(last));
        }
        seen.used().0
    }

    #[test]
    fn every_node_needs_recent_and_long_enough_evidence() {
        let fine = [document("a", -700, -10), document("b", -620, -20), document("b", -5_000, -4_000)];
        assert_eq!(judge(&fine, &asked(&["a", "b"])), Ok(()));
        let reason =
            |documents: &[Evidence], nodes: &[&str]| judge(documents, &asked(nodes)).unwrap_err().to_string();
        assert_eq!(reason(&fine, &["a", "b", "c", "d"]), "no evidence from 2 of 4 Nodes; the first is `c`");
        assert!(reason(&[document("a", -900, -100)], &["a"]).contains("ended 100 s ago"));
        assert!(reason(&[document("a", 0, 700)], &["a"]).contains("ended 700 s in the future"));
        assert!(reason(&[document("a", -500, -10)], &["a"]).contains("for 490 s; at least 600 s"));
        let lost = Evidence { complete: false, ..document("a", -900, -1) };
        assert!(reason(&[lost], &["a"]).contains("for 0 s"));
        let other = Evidence { old: vec!["10.97.0.0/16".parse().unwrap()], ..document("a", -900, -1) };
        assert!(reason(&[other], &["a"]).contains("not cover the range 10.96.0.0/16"));
        let part = Asked { old: vec!["10.96.128.0/17".parse().unwrap()], ..asked(&["a"]) };
        assert_eq!(judge(&[document("a", -700, -10)], &part), Ok(()), "a part of the observed range");
    }

    #[test]
    fn recent_client_of_an_old_address_is_named() {
        let with = |last, open| Evidence { used: used(last, open), ..document("a", -700, -10) };
        let reason = judge(&[with(-300, false)], &asked(&["a"])).unwrap_err().to_string();
        assert!(
            reason.starts_with(
                "client 10.244.0.7 of `a` used the old address 10.96.0.10 tcp port 443, last at 2026-"
            ),
            "{reason}"
        );
        assert_eq!(judge(&[with(-650, false)], &asked(&["a"])), Ok(()), "long ago");
        let seen_last = Evidence { used: used(-640, false), ..document("a", -700, -50) };
        assert!(judge(&[seen_last], &asked(&["a"])).is_err(), "long ago, but not long before the last check");
        assert!(judge(&[with(-650, true)], &asked(&["a"])).is_err(), "started long ago, and still open");
        let earlier = Evidence { used: used(-300, false), ..document("a", -400, -200) };
        assert!(
            judge(&[document("a", -700, -10), earlier], &asked(&["a"])).is_err(),
            "every document counts"
        );
        let closed = Evidence { used: used(-650, true), ..document("a", -700, -650) };
        assert_eq!(
            judge(&[document("a", -700, -10), closed], &asked(&["a"])),
            Ok(()),
            "open then, closed since"
        );
        let gone = Evidence { used: used(-300, true), ..document("gone", -700, -10) };
        assert_eq!(judge(&[document("a", -700, -10), gone], &asked(&["a"])), Ok(()), "a deleted Node");
    }
}

//! What an agent saw: the replies to the questions in [`super::Ask`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Facts, Fault};

/// The reply to one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Number of the question.
    pub id: u32,
    /// The reply.
    #[serde(flatten)]
    pub seen: Seen,
}

/// The answers of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// Their number.
    pub count: u16,
    /// The source addresses that the agent saw.
    pub sources: BTreeSet<IpAddr>,
}

/// What the agent saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "seen", rename_all = "kebab-case")]
pub enum Seen {
    /// An agent answered.
    Answer {
        /// Its name.
        by: String,
        /// The source address that it saw.
        source: IpAddr,
        /// The number of tries until it answered.
        tries: u8,
        /// The time of the last try, in microseconds.
        micros: u64,
    },
    /// The answers to many connections.
    Spread {
        /// The answers by agent.
        answers: BTreeMap<String, Answers>,
        /// The number of connections without an answer.
        failed: u16,
        /// The first fault.
        first: Option<Fault>,
    },
    /// The answers to numbered datagrams.
    Echoes {
        /// The number of datagrams.
        sent: u16,
        /// The number of datagrams with at least one answer.
        answered: u16,
        /// The number of further answers to the same datagram.
        duplicates: u16,
        /// The agents that answered.
        by: BTreeSet<String>,
    },
    /// What the server of the agent received.
    Received {
        /// The number of different datagrams.
        datagrams: u16,
        /// The number of datagrams that arrived more than once.
        duplicates: u16,
    },
    /// A packet of the full size of the link arrived.
    FullSize {
        /// The size of the packet with its IP header, in bytes.
        size: u16,
    },
    /// A packet of the full size of the link did not arrive.
    TooLarge {
        /// The size of the packet with its IP header, in bytes.
        size: u16,
        /// The largest size that arrived, in bytes; `None` if none did.
        passes: Option<u16>,
        /// The size that a router or this host named, in bytes; `None` if the packets disappeared silently.
        named: Option<u32>,
    },
    /// A transfer is complete.
    Moved {
        /// The time, in microseconds.
        micros: u64,
    },
    /// A connection was opened.
    Connected {
        /// The time, in microseconds.
        micros: u64,
    },
    /// The addresses of a name.
    Addresses {
        /// The addresses; empty if the name does not exist.
        addresses: BTreeSet<IpAddr>,
        /// The server that answered.
        server: IpAddr,
        /// The number of answers without an address: to queries for A, and for AAAA.
        #[serde(default)]
        empty: (u8, u8),
        /// The number of answers over UDP that were truncated, so that the query was sent again over TCP.
        #[serde(default)]
        truncated: u8,
        /// The time, in microseconds.
        micros: u64,
    },
    /// How a standing connection is.
    Standing {
        /// Whether the connection is still open.
        is_open: bool,
        /// The longest time without an answer, in milliseconds.
        longest_gap: u64,
        /// Why the connection ended.
        fault: Option<Fault>,
    },
    /// Counters and settings.
    Facts(Box<Facts>),
    /// The attempt failed.
    Failed(Fault),
}

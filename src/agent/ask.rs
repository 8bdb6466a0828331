//! The questions to an agent.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// A question with a number, which the reply repeats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Number of the question, unique within a connection to an agent.
    pub id: u32,
    /// The question.
    #[serde(flatten)]
    pub ask: Ask,
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// The direction of a transfer, as its client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The client sends.
    Upload,
    /// The client receives.
    Download,
}

/// A question to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Ask {
    /// Ask the agent at an address who it is, and which source address it sees. Each try uses another source port.
    Who {
        /// The address.
        to: SocketAddr,
        /// The transport.
        transport: Transport,
        /// The number of tries until an answer arrives.
        tries: u8,
    },
    /// Ask `Who` over TCP so many times, and count the answers by agent.
    Spread {
        /// The address, usually of a Service.
        to: SocketAddr,
        /// The number of connections.
        count: u16,
    },
    /// Send numbered datagrams, and count the answers.
    Echoes {
        /// The address.
        to: SocketAddr,
        /// The number of datagrams.
        count: u16,
        /// The key under which the receiver counts them.
        key: u64,
    },
    /// Read how many datagrams with a key the server of this agent received.
    Received {
        /// The key.
        key: u64,
    },
    /// Send a datagram of the largest size of the link that must not be fragmented; if it does not arrive, find the largest size
    /// that does.
    FullSize {
        /// The address.
        to: SocketAddr,
    },
    /// Transfer bytes over TCP.
    Transfer {
        /// The address.
        to: SocketAddr,
        /// The number of bytes.
        bytes: u32,
        /// The direction.
        way: Way,
    },
    /// Open a TCP connection, and close it.
    Connect {
        /// The address.
        to: SocketAddr,
    },
    /// Resolve a name.
    Resolve {
        /// The name, absolute.
        name: String,
        /// The server; the first one of `/etc/resolv.conf` if `None`.
        server: Option<IpAddr>,
        /// The transport.
        transport: Transport,
    },
    /// Report how a connection is that stays open until the agent ends. It is opened at the first question; the agent sends a byte each
    /// 100 ms.
    Stand {
        /// The address.
        to: SocketAddr,
        /// The key of the connection.
        key: u64,
    },
    /// Report counters and settings of the network namespace.
    Facts,
}

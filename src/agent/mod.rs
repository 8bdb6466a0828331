//! The agent: what runs in the Pods of `netsurgeon network test`, on the host network and on the Pod network of each node.
//!
//! ```text
//! server    answers over TCP and UDP: who it is, and which source address it saw
//! prober    reads questions (ask) as JSON lines from stdin, and writes what it saw (seen) as JSON lines to stdout
//! ```
//!
//! `kubectl exec` starts the prober inside the Pod of the server. This path does not use the Pod network, because the kubelet
//! forwards it, so answers arrive even if the network is broken. The server answers only requests that contain the token of its
//! test, and no answer over UDP is longer than its request. The agent resolves no names before it listens: without working DNS,
//! one lookup takes 20 s.

use std::net::IpAddr;

mod answerer;
mod ask;
mod datagram;
mod facts;
mod fault;
mod full_size;
mod link_mtu;
mod open_connections;
mod prober;
mod seen;
mod series_counts;
mod server;
mod tcp;
mod udp;

pub use ask::{Ask, Question, Transport, Way};
pub use datagram::TOKEN_LENGTH;
pub use facts::Facts;
pub use fault::Fault;
pub use prober::probe;
pub use seen::{Answers, Reply, Seen};
pub use server::{Listening, serve};

/// What identifies an agent and protects it.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Name of the agent in its answers, usually the name of its Pod.
    pub name: String,
    /// The token that every request must contain.
    pub token: [u8; TOKEN_LENGTH],
    /// The address at which the agent listens and from which it asks; `None` for all addresses of its network namespace.
    pub address: Option<IpAddr>,
}

impl Identity {
    /// Returns an identity. The token is text of 32 hexadecimal digits; `None` if it is not.
    pub fn new(name: &str, token: &str, address: Option<IpAddr>) -> Option<Self> {
        let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(token.as_bytes()).ok()?;
        Some(Self { name: name.to_string(), token: bytes.try_into().ok()?, address })
    }

    fn token_text(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.token)
    }
}

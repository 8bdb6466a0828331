//! Errors of requests to a name server.

use std::net::SocketAddr;

/// Why there is no usable answer of a name server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameserverError {
    /// The server cannot be reached.
    #[error("the name server {at} cannot be reached: {reason}")]
    Unreachable {
        /// Its address.
        at: SocketAddr,
        /// The operating system's message.
        reason: String,
    },
    /// The server accepts the connection and does not answer.
    #[error("the name server {at} did not answer within {seconds} s")]
    Late {
        /// Its address.
        at: SocketAddr,
        /// The timeout.
        seconds: u64,
    },
    /// The answer is malformed.
    #[error("the answer of the name server {at} cannot be parsed: {reason}")]
    Garbled {
        /// Its address.
        at: SocketAddr,
        /// The problem.
        reason: String,
    },
    /// The answer has no valid signature with the key.
    #[error("the answer of the name server {at} is not signed with the key `{key}`: {reason}")]
    Unsigned {
        /// Its address.
        at: SocketAddr,
        /// The key's name.
        key: String,
        /// The problem.
        reason: String,
    },
    /// The server refuses.
    #[error("the name server {at} answered {code} to {what}")]
    Refused {
        /// Its address.
        at: SocketAddr,
        /// The request.
        what: String,
        /// The response code, and for a rejected signature the error of TSIG (RFC 8945, section 3).
        code: String,
    },
    /// Not a domain name.
    #[error("`{name}` is not a domain name: {reason}")]
    Name {
        /// The given text.
        name: String,
        /// The problem.
        reason: String,
    },
    /// Not a key.
    #[error("this is not a TSIG key: {reason}")]
    Key {
        /// The problem.
        reason: String,
    },
}

impl NameserverError {
    /// Returns what to do about it, if known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } | Self::Late { .. } => {
                Some("check firewalls for TCP port 53: name servers must answer over TCP, too (RFC 7766)")
            }
            Self::Refused { code, .. } => match code.as_str() {
                "NOTAUTH BADKEY" => {
                    Some("the server has no key of this name: check `key` in its configuration")
                }
                "NOTAUTH BADSIG" => {
                    Some("the server has a key of this name with another secret or algorithm")
                }
                "NOTAUTH BADTIME" => Some("synchronise both clocks: a signature is valid for five minutes"),
                "REFUSED" => Some(
                    "allow it on the server for this key, or from this address (`allow-transfer`, `update-policy` in BIND)",
                ),
                "NOTAUTH" => Some("the server does not serve this zone: give its server with `--server`"),
                "SERVFAIL" => {
                    Some("the server cannot resolve it: check its log, and its forwarders or primary server")
                }
                "NOTIMP" => Some("the server does not accept such updates: change the zone at its source"),
                _ => None,
            },
            Self::Key { .. } => Some(
                "give a file in the format of `tsig-keygen NAME`: key \"NAME\" { algorithm hmac-sha256; secret \"...\"; };",
            ),
            Self::Garbled { .. } | Self::Unsigned { .. } | Self::Name { .. } => None,
        }
    }
}

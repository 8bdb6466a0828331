//! What goes wrong between us and a name server.

use std::net::SocketAddr;

/// Why a name server gave no answer that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameserverError {
    /// Nobody answers there.
    #[error("the name server {at} cannot be reached: {reason}")]
    Unreachable {
        /// Where.
        at: SocketAddr,
        /// What the operating system says.
        reason: String,
    },
    /// Somebody is there, and silent.
    #[error("the name server {at} did not answer within {seconds} s")]
    Late {
        /// Where.
        at: SocketAddr,
        /// How long it had.
        seconds: u64,
    },
    /// What came is no answer.
    #[error("what the name server {at} answered cannot be read: {reason}")]
    Garbled {
        /// Where.
        at: SocketAddr,
        /// What is wrong with it.
        reason: String,
    },
    /// The answer is not signed with our key, or not by it.
    #[error("the answer of the name server {at} is not signed with the key `{key}`: {reason}")]
    Unsigned {
        /// Where.
        at: SocketAddr,
        /// The key's name.
        key: String,
        /// What is wrong with the signature.
        reason: String,
    },
    /// It says no.
    #[error("the name server {at} answers {code} to {what}")]
    Refused {
        /// Where.
        at: SocketAddr,
        /// To what.
        what: String,
        /// The response code, and for a signature that it does not take the error of TSIG (RFC 8945, section 3).
        code: String,
    },
    /// No name of the DNS.
    #[error("`{name}` is no domain name: {reason}")]
    Name {
        /// What was given.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No key.
    #[error("this is no TSIG key: {reason}")]
    Key {
        /// What is wrong with it.
        reason: String,
    },
}

impl NameserverError {
    /// Returns what to do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } | Self::Late { .. } => {
                Some("name servers must answer over TCP, too (RFC 7766): look at firewalls for port 53")
            }
            Self::Refused { code, .. } => match code.as_str() {
                "NOTAUTH BADKEY" => {
                    Some("the server has no key of this name: see `key` in its configuration")
                }
                "NOTAUTH BADSIG" => {
                    Some("the server has a key of this name with another secret or algorithm")
                }
                "NOTAUTH BADTIME" => Some("set both clocks: a signature holds for five minutes"),
                "REFUSED" => Some(
                    "have the server allow it to this key, or from this address (`allow-transfer`, `update-policy` in BIND)",
                ),
                "NOTAUTH" => Some("the server does not serve this zone: give the one that does, `--server`"),
                "SERVFAIL" => Some(
                    "the server cannot find out: look at its log, and at whom it asks or gets the zone from",
                ),
                "NOTIMP" => {
                    Some("the server takes no updates of this kind: change the zone where it is kept")
                }
                _ => None,
            },
            Self::Key { .. } => Some(
                "give a file as `tsig-keygen NAME` writes it: key \"NAME\" { algorithm hmac-sha256; secret \"...\"; };",
            ),
            Self::Garbled { .. } | Self::Unsigned { .. } | Self::Name { .. } => None,
        }
    }
}

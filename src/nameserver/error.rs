//! Errors of requests to a name server.

use std::net::SocketAddr;

use super::RecordKind;

/// Why a request to a name server failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameserverError {
    /// The name server cannot be reached.
    #[error("the name server {at} cannot be reached: {reason}")]
    Unreachable {
        /// Address of the name server.
        at: SocketAddr,
        /// Message of the operating system.
        reason: String,
    },
    /// The name server did not answer in time.
    #[error("the name server {at} did not answer within {seconds} s")]
    Late {
        /// Address of the name server.
        at: SocketAddr,
        /// The timeout, in seconds.
        seconds: u64,
    },
    /// The answer cannot be parsed.
    #[error("cannot parse the answer from the name server {at}: {reason}")]
    Garbled {
        /// Address of the name server.
        at: SocketAddr,
        /// The reason.
        reason: String,
    },
    /// The answer has no valid signature with the key.
    #[error("the answer from the name server {at} is not signed with the key `{key}`: {reason}")]
    Unsigned {
        /// Address of the name server.
        at: SocketAddr,
        /// Name of the key.
        key: String,
        /// The reason.
        reason: String,
    },
    /// The name server refused the request.
    #[error("the name server {at} answered {code} to {what}")]
    Refused {
        /// Address of the name server.
        at: SocketAddr,
        /// The request.
        what: String,
        /// The response code. If the server rejected the signature, the code includes the TSIG error (RFC 8945, section 3).
        code: String,
    },
    /// The name of the name server has no address.
    #[error("no address found for the name server `{name}`")]
    NoAddress {
        /// Name of the name server.
        name: String,
    },
    /// The text is not a domain name.
    #[error("`{name}` is not a domain name: {reason}")]
    Name {
        /// The given text.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The data is not valid for the type of its record.
    #[error("`{data}` is not valid data for a record of type {kind}: {reason}")]
    Data {
        /// Type of the record.
        kind: RecordKind,
        /// The given data.
        data: String,
        /// The reason.
        reason: String,
    },
    /// The text is not a TSIG key.
    #[error("this is not a TSIG key: {reason}")]
    Key {
        /// The reason.
        reason: String,
    },
}

impl NameserverError {
    /// Returns whether a prerequisite of an update does not hold, because a record set differs from the expected set (RFC 2136,
    /// section 3.2). Nothing was changed.
    pub fn is_conflict(&self) -> bool {
        let codes = ["NXRRSET", "YXRRSET", "NXDOMAIN", "YXDOMAIN"];
        matches!(self, Self::Refused { code, .. } if codes.contains(&code.as_str()))
    }

    /// Returns whether the name server may have executed the failed request, because the answer is missing or cannot be trusted.
    pub fn is_in_doubt(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Late { .. } | Self::Garbled { .. } | Self::Unsigned { .. }
        )
    }

    /// Returns whether the name server rejected the signature of the request (RFC 8945, section 5.2).
    pub fn is_of_key(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code.starts_with("NOTAUTH BAD"))
    }

    /// Returns one sentence that explains how to fix the error, if possible.
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
                "NOTAUTH BADTIME" => Some(
                    "synchronise the clocks of this machine and of the name server: a signature is valid for five minutes",
                ),
                "REFUSED" => Some(
                    "allow the request on the server for this key, or from this address (`allow-transfer`, `update-policy` in BIND)",
                ),
                "NOTAUTH" => Some(
                    "the server does not serve this zone: give the name server that accepts updates for the zone with `--server` (a cutover needs a new plan)",
                ),
                "SERVFAIL" => Some(
                    "the server failed to process the request: check its log, and its forwarders or primary server",
                ),
                "NOTIMP" => Some(
                    "the server does not support such requests; instead of an update, change the zone where it is maintained",
                ),
                _ => None,
            },
            Self::Key { .. } => Some(
                "give a file in the format of `tsig-keygen NAME`: key \"NAME\" { algorithm hmac-sha256; secret \"...\"; };",
            ),
            Self::NoAddress { .. } => {
                Some("repair the address record of the name server, or remove its NS record")
            }
            Self::Garbled { .. } | Self::Unsigned { .. } | Self::Name { .. } | Self::Data { .. } => None,
        }
    }
}

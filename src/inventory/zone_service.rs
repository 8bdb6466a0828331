//! The DNS provider that hosts a zone, as a plan contains it.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::nameserver::Key;
use crate::session::Failure;

/// The DNS provider that hosts a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "provider", rename_all = "kebab-case")]
pub enum ZoneService {
    /// Name servers that accept dynamic updates (RFC 2136).
    #[serde(rename = "rfc2136")]
    Rfc2136 {
        /// The name server that accepts updates of the zone.
        server: SocketAddr,
        /// The TSIG key that signs updates; `None` if updates are not signed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<KeyFile>,
    },
    /// Amazon Route 53.
    #[serde(rename = "route53")]
    Route53 {
        /// Id of the hosted zone.
        id: String,
        /// Whether the zone is private, so that only clients in its networks (VPCs) can resolve its names.
        private: bool,
    },
    /// The ExternalDNS of the cluster. netsurgeon changes the annotations of objects, and ExternalDNS changes the records.
    #[serde(rename = "external-dns")]
    ExternalDns {
        /// A name server of the zone.
        server: SocketAddr,
        /// Maximum time until ExternalDNS writes a change, in seconds.
        delay: u64,
    },
}

impl ZoneService {
    /// Returns the TSIG key that signs updates.
    pub fn key(&self) -> Option<&KeyFile> {
        match self {
            Self::Rfc2136 { key, .. } => key.as_ref(),
            Self::Route53 { .. } | Self::ExternalDns { .. } => None,
        }
    }

    /// Returns whether a share of the clients can be set with weights. Otherwise the share depends on the addresses in an answer.
    pub fn has_weights(&self) -> bool {
        matches!(self, Self::Route53 { .. })
    }
}

/// Formats the provider, for example as `192.0.2.53:53 (key `mover`)` or as `Route 53, hosted zone Z123 (private)`.
impl fmt::Display for ZoneService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rfc2136 { server, key: Some(key) } => write!(f, "{server} (key `{}`)", key.name),
            Self::Rfc2136 { server, key: None } => write!(f, "{server} (unsigned)"),
            Self::Route53 { id, private } => {
                write!(f, "Route 53, hosted zone {id}{}", if *private { " (private)" } else { "" })
            }
            Self::ExternalDns { server, .. } => write!(f, "{server}, which ExternalDNS updates"),
        }
    }
}

/// Location of the TSIG key. A plan never contains the key itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyFile {
    /// Name of the key.
    pub name: String,
    /// Path of the key file on the machine that created the plan. On another machine, the user gives the path on that machine.
    pub file: PathBuf,
}

/// Reads a TSIG key from a file.
pub fn read_key(path: &Path) -> Result<Key, Failure> {
    let doing = || format!("cannot use the key in `{}`", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| Failure::from(error).context(doing()))?;
    let text = zeroize::Zeroizing::new(text);
    Key::parse(&text).map_err(|error| {
        let hint = error.hint().unwrap_or_default();
        Failure::refused(error.to_string()).context(doing()).hint(hint)
    })
}

//! Reads the records of a zone from name servers, checks whether the servers accept updates, and replaces record sets
//! ([`Server::replace`]). The checks never change a zone, because their updates are either empty, or have prerequisites that no
//! zone can meet.

mod error;
mod key;
mod message;
mod presentation;
mod server;
mod set;
mod signature;

use std::fmt;

pub use error::NameserverError;
pub use key::Key;
pub use message::answers;
pub use presentation::{quoted, quoted_text, strings, text};
pub use server::{Server, Update};
pub use set::{
    Alias, RecordSet, SetChange, Weight, are_same, described, described_with_ttls, have_same_data, is_answer,
};

/// The port of name servers (RFC 1035, section 4.2).
pub const PORT: u16 = 53;

/// Number of concurrent queries. Each query needs a connection, and BIND accepts 150 connections by default (`tcp-clients`).
pub const AT_ONCE: usize = 8;

/// The type of a DNS record (RFC 1035, section 3.2.2; RFC 3596).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// IPv4 address.
    A,
    /// IPv6 address.
    Aaaa,
    /// Alias for another name.
    Cname,
    /// Name server of a zone.
    Ns,
    /// Start of authority of a zone.
    Soa,
    /// Free text.
    Txt,
    /// Any other type, by its number.
    Other(u16),
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::A => f.write_str("A"),
            Self::Aaaa => f.write_str("AAAA"),
            Self::Cname => f.write_str("CNAME"),
            Self::Ns => f.write_str("NS"),
            Self::Soa => f.write_str("SOA"),
            Self::Txt => f.write_str("TXT"),
            Self::Other(number) => write!(f, "TYPE{number}"),
        }
    }
}

impl RecordKind {
    /// Returns whether a signed zone has records of this type beside the data of its users (RFC 4034, RFC 5155, RFC 7344). The
    /// server creates them, and keeps them up to date. Only these types can exist beside a CNAME (RFC 4035, section 2.5).
    pub fn is_of_dnssec(self) -> bool {
        // RRSIG, NSEC, DNSKEY, NSEC3, NSEC3PARAM, CDS, CDNSKEY.
        matches!(self, Self::Other(46 | 47 | 48 | 50 | 51 | 59 | 60))
    }
}

/// A DNS record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// Name of the record, in lower case and without the trailing dot; empty for the root.
    pub name: String,
    /// The name with the case of its letters on the server, if it contains letters in upper case.
    pub spelling: Option<String>,
    /// Type of the record.
    pub kind: RecordKind,
    /// TTL in seconds.
    pub ttl: u32,
    /// Data of the record, in the format of a zone file (RFC 1035, section 5.1). Domain names have no trailing dot, and keep the
    /// case of their letters. Each string of a text has quotes.
    pub data: String,
}

impl Record {
    /// Returns a record. `name` can contain letters in upper case.
    pub fn new(name: &str, kind: RecordKind, ttl: u32, data: impl Into<String>) -> Self {
        let lower = canonical(name);
        let spelling = (lower != name).then(|| name.to_string());
        Self { name: lower, spelling, kind, ttl, data: data.into() }
    }

    /// Returns the approximate size of the record in memory, in bytes.
    fn size(&self) -> usize {
        let spelling = self.spelling.as_ref().map_or(0, String::len);
        size_of::<Self>()
            .saturating_add(self.name.len())
            .saturating_add(spelling)
            .saturating_add(self.data.len())
    }
}

/// The answer of a name server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether the server is authoritative for the zone (AA, RFC 1035, section 4.1.1).
    pub is_authoritative: bool,
    /// Whether the name exists, with records of any type.
    pub exists: bool,
    /// The records, including a chain of CNAMEs.
    pub records: Vec<Record>,
}

impl Answer {
    /// Returns the data of the records of one type, sorted.
    pub fn of(&self, kind: RecordKind) -> Vec<&str> {
        let mut found: Vec<&str> = self.records_of(kind).map(|record| record.data.as_str()).collect();
        found.sort_unstable();
        found
    }

    /// Returns the records of one type.
    pub fn records_of(&self, kind: RecordKind) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| record.kind == kind)
    }
}

/// The start of authority of a zone (RFC 1035, section 3.3.13).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Soa {
    /// Name of the primary server, which accepts updates.
    pub primary: String,
    /// Serial number of the zone. Every change increases it.
    pub serial: u32,
    /// TTL of negative answers, in seconds (RFC 2308, section 4).
    pub negative_ttl: u32,
}

impl Soa {
    /// Parses an SOA record; `None` for other records.
    pub fn of(record: &Record) -> Option<Self> {
        if record.kind != RecordKind::Soa {
            return None;
        }
        let parts: Vec<&str> = record.data.split_whitespace().collect();
        let [primary, _, serial, _, _, _, minimum] = parts.as_slice() else { return None };
        let minimum: u32 = minimum.parse().ok()?;
        Some(Self {
            primary: canonical(primary),
            serial: serial.parse().ok()?,
            negative_ttl: minimum.min(record.ttl),
        })
    }
}

/// Returns whether a text is a valid domain name (RFC 1035, section 2.3.4: at most 63 bytes in a label and 255 bytes in total).
pub fn is_name(text: &str) -> bool {
    presentation::name_of(text).is_ok()
}

/// Returns the name in the format of [`Record::name`].
pub fn canonical(name: &str) -> String {
    let bare = name.trim_end_matches('.');
    let escapes = bare.bytes().rev().take_while(|byte| *byte == b'\\').count();
    // An escaped dot belongs to the last label.
    let end = bare.len().saturating_add(escapes & 1);
    name.get(..end).unwrap_or(bare).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soa_names_the_server_for_updates() {
        let data = "ns1.example.com admin.example.com 7 3600 600 86400 60".to_string();
        let mut record = Record::new("example.com", RecordKind::Soa, 30, data);
        let soa = Soa::of(&record).unwrap();
        assert_eq!((soa.primary.as_str(), soa.serial, soa.negative_ttl), ("ns1.example.com", 7, 30));
        record.kind = RecordKind::Ns;
        assert_eq!(Soa::of(&record), None);
        assert_eq!(canonical("WWW.Example.com."), "www.example.com");
        assert_eq!((canonical("a\\.."), canonical("a\\\\.")), ("a\\.".to_string(), "a\\\\".to_string()));
        assert!(is_name("*.example.com") && !is_name("a..example.com") && !is_name(&"a".repeat(64)));
    }
}

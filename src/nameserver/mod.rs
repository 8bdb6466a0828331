//! Name servers: what they say of a zone, and whether they would change it for us. Nothing here changes a zone: an update is only
//! ever asked for under prerequisites that no zone can meet.

mod error;
mod key;
mod message;
mod server;

use std::fmt;

pub use error::NameserverError;
pub use key::Key;
pub use message::answers;
pub use server::Server;

/// Which records are asked for (RFC 1035, section 3.2.2; RFC 3596).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Another name for this one.
    Cname,
    /// The name servers of a zone.
    Ns,
    /// The start of a zone.
    Soa,
    /// Text.
    Txt,
    /// Any other, by its number.
    Other(u16),
}

impl fmt::Display for Kind {
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

/// A record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// Its name: lower case, without the dot at its end; empty for the root.
    pub name: String,
    /// Which it is.
    pub kind: Kind,
    /// How long it may be kept, in seconds.
    pub ttl: u32,
    /// What it says, as in a zone file. Names are as `name` is, texts without quotes and their parts joined.
    pub data: String,
}

impl Record {
    /// Returns how many bytes of memory it takes, about.
    fn size(&self) -> usize {
        size_of::<Self>().saturating_add(self.name.len()).saturating_add(self.data.len())
    }
}

/// What a name server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether it speaks for the zone (AA, RFC 1035, section 4.1.1).
    pub is_authoritative: bool,
    /// Whether there is such a name, with records of whatever kind.
    pub exists: bool,
    /// The records, a chain of CNAMEs included.
    pub records: Vec<Record>,
}

impl Answer {
    /// Returns what the records of one kind say, in order.
    pub fn of(&self, kind: Kind) -> Vec<&str> {
        let mut found: Vec<&str> = self.records_of(kind).map(|record| record.data.as_str()).collect();
        found.sort_unstable();
        found
    }

    /// Returns the records of one kind.
    pub fn records_of(&self, kind: Kind) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| record.kind == kind)
    }
}

/// The start of a zone (RFC 1035, section 3.3.13).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Soa {
    /// The server that updates go to.
    pub primary: String,
    /// Counts the changes of the zone.
    pub serial: u32,
    /// How long it may be kept that there is no such name, in seconds (RFC 2308, section 4).
    pub negative_ttl: u32,
}

impl Soa {
    /// Reads one out of a record; `None` for other records.
    pub fn of(record: &Record) -> Option<Self> {
        if record.kind != Kind::Soa {
            return None;
        }
        let parts: Vec<&str> = record.data.split_whitespace().collect();
        let [primary, _, serial, _, _, _, minimum] = parts.as_slice() else { return None };
        let minimum: u32 = minimum.parse().ok()?;
        Some(Self {
            primary: (*primary).to_string(),
            serial: serial.parse().ok()?,
            negative_ttl: minimum.min(record.ttl),
        })
    }
}

/// Whether a text is a domain name, so that it can be asked for (RFC 1035, section 2.3.4: labels of 63, 255 in all).
pub fn is_name(text: &str) -> bool {
    message::name_of(text).is_ok()
}

/// Returns a name as [`Record::name`] has it.
pub fn canonical(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soa_tells_who_takes_updates() {
        let data = "ns1.example.com admin.example.com 7 3600 600 86400 60".to_string();
        let mut record = Record { name: "example.com".into(), kind: Kind::Soa, ttl: 30, data };
        let soa = Soa::of(&record).unwrap();
        assert_eq!((soa.primary.as_str(), soa.serial, soa.negative_ttl), ("ns1.example.com", 7, 30));
        record.kind = Kind::Ns;
        assert_eq!(Soa::of(&record), None);
        assert_eq!(canonical("WWW.Example.com."), "www.example.com");
        assert!(is_name("*.example.com") && !is_name("a..example.com") && !is_name(&"a".repeat(64)));
    }
}

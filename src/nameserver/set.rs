//! Record sets: all records of one type at a name. DNS changes, caches and compares them as a whole (RFC 2181, section 5).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Kind, Record};

/// All records of one type at a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecordSet {
    /// Name of the records, as in [`Record::name`].
    pub name: String,
    /// Type of the records.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// TTL in seconds.
    pub ttl: u32,
    /// Data of each record, as in [`Record::data`], sorted.
    pub data: Vec<String>,
}

impl RecordSet {
    /// Groups records into sets, ordered by name and type. The TTL of a set is the shortest TTL of its records: a cache counts a
    /// TTL down (RFC 2181, section 5.2).
    pub fn group<'r>(records: impl IntoIterator<Item = &'r Record>) -> Vec<Self> {
        let mut sets: BTreeMap<(&str, Kind), Self> = BTreeMap::new();
        for Record { name, kind, ttl, data } in records {
            let empty = || Self { name: name.clone(), kind: *kind, ttl: *ttl, data: Vec::new() };
            let set = sets.entry((name, *kind)).or_insert_with(empty);
            set.ttl = set.ttl.min(*ttl);
            set.data.push(data.clone());
        }
        let sorted = |mut set: Self| {
            set.data.sort();
            set
        };
        sets.into_values().map(sorted).collect()
    }

    /// Returns whether two sets have the same records, whatever their TTLs.
    pub fn has_data_of(&self, other: &Self) -> bool {
        (&self.name, self.kind, &self.data) == (&other.name, other.kind, &other.data)
    }

    /// Returns the set with another TTL.
    #[must_use]
    pub fn with_ttl(&self, ttl: u32) -> Self {
        Self { ttl, ..self.clone() }
    }

    /// Returns the set with a TTL of at most `most`.
    #[must_use]
    pub fn lowered(&self, most: u32) -> Self {
        self.with_ttl(self.ttl.min(most))
    }
}

/// Formats the set without its name: `A 192.0.2.10, 192.0.2.11`.
impl fmt::Display for RecordSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.data.join(", "))
    }
}

/// Returns whether two lists of sets have the same records, whatever their TTLs.
pub fn have_same_data(one: &[RecordSet], other: &[RecordSet]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.has_data_of(other))
}

/// Describes record sets: `A 192.0.2.10 and AAAA 2001:db8::10`.
pub fn described(sets: &[RecordSet]) -> String {
    if sets.is_empty() {
        return "no record".to_string();
    }
    sets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// The change of the record set of one type at a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetChange {
    /// The present set; `None` if there must be none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<RecordSet>,
    /// The set afterwards; `None` to delete the present set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<RecordSet>,
}

impl SetChange {
    /// Returns the changes from some sets to others. Sets that stay the same are not included.
    pub fn between(from: &[RecordSet], to: &[RecordSet]) -> Vec<Self> {
        let key = |set: &RecordSet| (set.name.clone(), set.kind);
        let mut both: BTreeMap<(String, Kind), Self> = BTreeMap::new();
        for set in from {
            both.insert(key(set), Self { from: Some(set.clone()), to: None });
        }
        for set in to {
            both.entry(key(set)).or_insert(Self { from: None, to: None }).to = Some(set.clone());
        }
        both.into_values().filter(|change| change.from != change.to).collect()
    }

    /// Returns the change that reverts this change.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self { from: self.to.clone(), to: self.from.clone() }
    }

    /// Returns the name and the type of the set; `None` for a change from nothing to nothing.
    pub fn of(&self) -> Option<(&str, Kind)> {
        let set = self.from.as_ref().or(self.to.as_ref())?;
        Some((&set.name, set.kind))
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "A" => Self::A,
            "AAAA" => Self::Aaaa,
            "CNAME" => Self::Cname,
            "NS" => Self::Ns,
            "SOA" => Self::Soa,
            "TXT" => Self::Txt,
            // RFC 3597, section 5.
            other => match other.strip_prefix("TYPE").and_then(|number| number.parse().ok()) {
                Some(number) => Self::Other(number),
                None => return Err(format!("`{other}` is not a record type")),
            },
        })
    }
}

impl Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, kind: Kind, ttl: u32, data: &str) -> Record {
        Record { name: name.into(), kind, ttl, data: data.into() }
    }

    #[test]
    fn records_are_grouped_into_sets() {
        let records = [
            record("www", Kind::A, 60, "192.0.2.2"),
            record("www", Kind::Aaaa, 60, "2001:db8::1"),
            record("www", Kind::A, 30, "192.0.2.1"),
        ];
        let sets = RecordSet::group(&records);
        assert_eq!(
            sets.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["A 192.0.2.1, 192.0.2.2", "AAAA 2001:db8::1"]
        );
        assert_eq!(sets[0].ttl, 30);
    }

    #[test]
    fn only_sets_that_differ_are_changed() {
        let set =
            |kind, ttl, data: &str| RecordSet { name: "www".into(), kind, ttl, data: vec![data.into()] };
        let (old, new) = (set(Kind::A, 60, "192.0.2.1"), set(Kind::A, 60, "192.0.2.2"));
        let both = set(Kind::Aaaa, 60, "2001:db8::1");
        let changes = SetChange::between(&[old.clone(), both.clone()], &[new.clone(), both.clone()]);
        assert_eq!(changes, [SetChange { from: Some(old.clone()), to: Some(new.clone()) }]);
        assert_eq!(changes[0].reversed(), SetChange { from: Some(new), to: Some(old.clone()) });
        let deleted = SetChange::between(std::slice::from_ref(&old), &[]);
        assert_eq!(deleted, [SetChange { from: Some(old.clone()), to: None }]);
        assert_eq!(SetChange::between(std::slice::from_ref(&old), &[old.with_ttl(30)]).len(), 1);
    }

    #[test]
    fn set_is_read_back_from_json() {
        for kind in [Kind::A, Kind::Aaaa, Kind::Cname, Kind::Ns, Kind::Soa, Kind::Txt, Kind::Other(33)] {
            let set = RecordSet { name: "www".into(), kind, ttl: 60, data: vec!["x".into()] };
            let json = serde_json::to_string(&set).unwrap();
            assert_eq!(serde_json::from_str::<RecordSet>(&json).unwrap(), set, "{json}");
        }
        assert!("MX".parse::<Kind>().is_err());
    }
}

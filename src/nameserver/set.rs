//! Record sets. A record set has all records of one type at a name. DNS servers change and cache a record set as a whole (RFC
//! 2181, section 5). A DNS service with weights has several sets of one type at a name, and returns one of them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Record, RecordKind, canonical};

/// All records of one type at a name. Two sets are equal if a name server treats them as equal: the case of letters in names has
/// no meaning (RFC 4343).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordSet {
    /// Name of the records, in the format of [`Record::name`].
    pub name: String,
    /// The name with the case of its letters on the server ([`Record::spelling`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spelling: Option<String>,
    /// Type of the records.
    #[serde(rename = "type")]
    pub kind: RecordKind,
    /// TTL in seconds.
    pub ttl: u32,
    /// Data of each record, in the format of [`Record::data`], sorted.
    pub data: Vec<String>,
    /// The weight of the set, if the service has several sets of this type and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
    /// Set if this record set is an alias. The service then returns the addresses of another name, which is the only entry in
    /// `data`. An alias has no TTL of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<Alias>,
}

/// The weight of a record set (Route 53: weighted routing).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Weight {
    /// The identifier of the set: unique among the sets of one type and name.
    pub id: String,
    /// The service returns this set for a share of all queries: `weight` divided by the sum of all weights.
    pub weight: u8,
}

/// An alias for another name (Route 53: alias records).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Alias {
    /// Id of the hosted zone that contains the other name.
    pub zone: String,
    /// Whether the service returns the set only while the other name is healthy.
    pub checks_health: bool,
}

impl RecordSet {
    /// Returns a record set without a weight. `data` must be sorted.
    pub fn new(name: impl Into<String>, kind: RecordKind, ttl: u32, data: Vec<String>) -> Self {
        Self { name: name.into(), spelling: None, kind, ttl, data, weight: None, alias: None }
    }

    /// Groups records into sets, ordered by name and type. The TTL of a set is the shortest TTL of its records, because a cache
    /// counts TTLs down (RFC 2181, section 5.2).
    pub fn group<'r>(records: impl IntoIterator<Item = &'r Record>) -> Vec<Self> {
        let mut sets: BTreeMap<(&str, RecordKind), Self> = BTreeMap::new();
        for Record { name, spelling, kind, ttl, data } in records {
            let empty = || Self { spelling: spelling.clone(), ..Self::new(name, *kind, *ttl, Vec::new()) };
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

    /// Returns whether two sets are equal. TTLs are not compared.
    pub fn has_data_of(&self, other: &Self) -> bool {
        self.with_ttl(0) == other.with_ttl(0)
    }

    /// Returns the data in one format for comparisons, sorted. A service can store addresses and names in other formats.
    pub fn plain_data(&self) -> Vec<String> {
        let plain = |data: &String| match self.kind {
            RecordKind::A | RecordKind::Aaaa => {
                data.parse::<IpAddr>().map_or_else(|_| data.clone(), |at| at.to_string())
            }
            RecordKind::Cname => canonical(data),
            _ => data.clone(),
        };
        let mut data: Vec<String> = self.data.iter().map(plain).collect();
        data.sort();
        data
    }

    /// Returns the set with another TTL.
    #[must_use]
    pub fn with_ttl(&self, ttl: u32) -> Self {
        Self { ttl, ..self.clone() }
    }

    /// Returns the set with a TTL of at most `most`. Returns an alias unchanged, because it has the TTL of the other name.
    #[must_use]
    pub fn lowered(&self, most: u32) -> Self {
        if self.alias.is_some() { self.clone() } else { self.with_ttl(self.ttl.min(most)) }
    }

    /// Returns whether the service can return the set: its weight is not 0.
    pub fn is_returned(&self) -> bool {
        self.weight.as_ref().is_none_or(|weight| weight.weight > 0)
    }

    /// Returns the approximate size of the set in memory, in bytes.
    pub fn size(&self) -> usize {
        let texts = self.data.iter().chain([&self.name]).chain(&self.spelling);
        let texts = texts.map(|text| size_of::<String>().saturating_add(text.len()));
        size_of::<Self>().saturating_add(texts.fold(0, usize::saturating_add))
    }

    /// Returns the parts that are compared.
    fn compared(&self) -> (&str, RecordKind, u32, Vec<String>, Option<&Weight>, Option<&Alias>) {
        (&self.name, self.kind, self.ttl, self.plain_data(), self.weight.as_ref(), self.alias.as_ref())
    }

    /// Returns the id that distinguishes the set from other sets with the same type and name.
    fn id(&self) -> Option<&str> {
        self.weight.as_ref().map(|weight| weight.id.as_str())
    }
}

impl PartialEq for RecordSet {
    fn eq(&self, other: &Self) -> bool {
        self.compared() == other.compared()
    }
}

impl Eq for RecordSet {}

impl PartialOrd for RecordSet {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RecordSet {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compared().cmp(&other.compared())
    }
}

/// Formats the set without its name: `A 192.0.2.10, 192.0.2.11`, or `A alias of lb.example.net (weight 90)`.
impl fmt::Display for RecordSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alias = if self.alias.is_some() { "alias of " } else { "" };
        write!(f, "{} {alias}{}", self.kind, self.data.join(", "))?;
        match &self.weight {
            Some(Weight { weight, .. }) => write!(f, " (weight {weight})"),
            None => Ok(()),
        }
    }
}

/// Returns whether an answer contains these sets. If several sets have weights, an answer contains one of them. For an alias, an
/// answer contains some addresses of the other name; in `sets`, these addresses must be the data of the alias.
pub fn is_answer(answer: &[RecordSet], sets: &[RecordSet]) -> bool {
    let kinds: BTreeSet<RecordKind> = answer.iter().chain(sets).map(|set| set.kind).collect();
    kinds.into_iter().all(|kind| {
        let mut possible = sets.iter().filter(|set| set.kind == kind && set.is_returned()).peekable();
        match answer.iter().find(|set| set.kind == kind) {
            // Sometimes the other name of one alias has no address of this type, but the other name of another alias has such an
            // address.
            None => {
                possible.peek().is_none() || possible.any(|set| set.alias.is_some() && set.data.is_empty())
            }
            Some(found) => possible.any(|set| match set.alias {
                Some(_) => found.data.iter().any(|data| set.data.contains(data)),
                None => found.plain_data() == set.plain_data(),
            }),
        }
    })
}

/// Returns whether two lists have the same sets, in any order.
pub fn are_same<'s>(
    one: impl IntoIterator<Item = &'s RecordSet>,
    other: impl IntoIterator<Item = &'s RecordSet>,
) -> bool {
    one.into_iter().collect::<BTreeSet<_>>() == other.into_iter().collect()
}

/// Returns whether two lists of sets are equal. TTLs are not compared.
pub fn have_same_data(one: &[RecordSet], other: &[RecordSet]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.has_data_of(other))
}

/// Describes record sets: `A 192.0.2.10 and AAAA 2001:db8::10`.
pub fn described(sets: &[RecordSet]) -> String {
    listed(sets.iter().map(ToString::to_string))
}

/// Describes record sets with their TTLs: `A 192.0.2.10 (TTL 60 s)`.
pub fn described_with_ttls(sets: &[RecordSet]) -> String {
    listed(sets.iter().map(|set| format!("{set} (TTL {} s)", set.ttl)))
}

fn listed(sets: impl Iterator<Item = String>) -> String {
    let sets: Vec<String> = sets.collect();
    if sets.is_empty() { "no record".to_string() } else { sets.join(" and ") }
}

/// A change to the record set of one type at a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetChange {
    /// The expected present set; `None` if no set is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<RecordSet>,
    /// The new set; `None` to delete the present set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<RecordSet>,
}

impl SetChange {
    /// Returns the changes from one list of sets to another. Omits names and types without a change. If one of several sets with
    /// weights changes, includes all sets with the same name and type, even unchanged sets.
    pub fn between(from: &[RecordSet], to: &[RecordSet]) -> Vec<Self> {
        let key = |set: &RecordSet| (set.name.clone(), set.kind, set.id().map(str::to_string));
        let mut both: BTreeMap<(String, RecordKind, Option<String>), Self> = BTreeMap::new();
        for set in from {
            both.insert(key(set), Self { from: Some(set.clone()), to: None });
        }
        for set in to {
            both.entry(key(set)).or_insert(Self { from: None, to: None }).to = Some(set.clone());
        }
        let changed: BTreeSet<(String, RecordKind)> = both
            .iter()
            .filter(|(_, change)| change.is_change())
            .map(|((name, kind, _), _)| (name.clone(), *kind))
            .collect();
        both.retain(|(name, kind, _), _| changed.contains(&(name.clone(), *kind)));
        both.into_values().collect()
    }

    /// Returns whether the set changes.
    pub fn is_change(&self) -> bool {
        self.from != self.to
    }

    /// Returns the change that reverts this change.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self { from: self.to.clone(), to: self.from.clone() }
    }

    /// Returns the name and the type of the set; `None` if both `from` and `to` are `None`.
    pub fn of(&self) -> Option<(&str, RecordKind)> {
        let set = self.from.as_ref().or(self.to.as_ref())?;
        Some((&set.name, set.kind))
    }
}

impl FromStr for RecordKind {
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

impl Serialize for RecordKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RecordKind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, kind: RecordKind, ttl: u32, data: &str) -> Record {
        Record::new(name, kind, ttl, data)
    }

    #[test]
    fn records_are_grouped_into_sets() {
        let records = [
            record("www", RecordKind::A, 60, "192.0.2.2"),
            record("www", RecordKind::Aaaa, 60, "2001:db8::1"),
            record("www", RecordKind::A, 30, "192.0.2.1"),
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
        let set = |kind, ttl, data: &str| RecordSet::new("www", kind, ttl, vec![data.into()]);
        let (old, new) = (set(RecordKind::A, 60, "192.0.2.1"), set(RecordKind::A, 60, "192.0.2.2"));
        let both = set(RecordKind::Aaaa, 60, "2001:db8::1");
        let changes = SetChange::between(&[old.clone(), both.clone()], &[new.clone(), both.clone()]);
        assert_eq!(changes, [SetChange { from: Some(old.clone()), to: Some(new.clone()) }]);
        assert_eq!(changes[0].reversed(), SetChange { from: Some(new), to: Some(old.clone()) });
        let deleted = SetChange::between(std::slice::from_ref(&old), &[]);
        assert_eq!(deleted, [SetChange { from: Some(old.clone()), to: None }]);
        assert_eq!(SetChange::between(std::slice::from_ref(&old), &[old.with_ttl(30)]).len(), 1);
    }

    #[test]
    fn answer_has_one_of_the_weighted_sets() {
        let set = |data: &[&str]| {
            RecordSet::new("www", RecordKind::A, 60, data.iter().map(ToString::to_string).collect())
        };
        let weighted = |id: &str, weight, data: &str| RecordSet {
            weight: Some(Weight { id: id.into(), weight }),
            ..set(&[data])
        };
        let both = [weighted("old", 90, "192.0.2.1"), weighted("new", 10, "192.0.2.2")];
        assert!(is_answer(&[set(&["192.0.2.1"])], &both) && is_answer(&[set(&["192.0.2.2"])], &both));
        assert!(!is_answer(&[set(&["192.0.2.3"])], &both) && !is_answer(&[], &both));
        assert!(!is_answer(&[set(&["192.0.2.1"])], &[weighted("old", 0, "192.0.2.1")]));
        assert!(!is_answer(&[set(&["192.0.2.1"])], &[set(&["192.0.2.1", "192.0.2.2"])]));
        let of = |kind, data: &str| [RecordSet::new("www", kind, 60, vec![data.into()])];
        assert!(is_answer(&of(RecordKind::Aaaa, "2001:db8::1"), &of(RecordKind::Aaaa, "2001:DB8:0::1")));
        assert!(is_answer(
            &of(RecordKind::Cname, "lb.example.net"),
            &of(RecordKind::Cname, "LB.example.net.")
        ));
        let alias = Alias { zone: "Z1".into(), checks_health: false };
        let alias = [RecordSet { alias: Some(alias), ..set(&["192.0.2.1", "192.0.2.2"]) }];
        assert!(is_answer(&[set(&["192.0.2.2"])], &alias) && !is_answer(&[], &alias));
        let empty = RecordSet { data: Vec::new(), ..alias[0].clone() };
        assert!(is_answer(&[], std::slice::from_ref(&empty)));
        // Only one of these two weighted aliases has an address of this type.
        let mixed = [empty, alias[0].clone()];
        assert!(is_answer(&[], &mixed) && is_answer(&[set(&["192.0.2.1"])], &mixed));
        assert!(!is_answer(&[set(&["192.0.2.3"])], &mixed));
        assert_eq!(SetChange::between(&[set(&["192.0.2.1"])], &both).len(), 3);
        // An unchanged set is included if another set with the same name and type changes.
        let later = [both[0].clone(), weighted("new", 20, "192.0.2.2")];
        let changes = SetChange::between(&both, &later);
        assert_eq!(changes.iter().map(SetChange::is_change).collect::<Vec<_>>(), [true, false]);
        assert_eq!(both[0].to_string(), "A 192.0.2.1 (weight 90)");
    }

    #[test]
    fn case_of_names_is_kept_and_not_compared() {
        let upper = [record("WWW.Example.com", RecordKind::Cname, 60, "LB.Example.net")];
        let lower = [record("www.example.com", RecordKind::Cname, 60, "lb.example.net")];
        let [upper, lower] = [upper, lower].map(|records| RecordSet::group(&records).remove(0));
        assert_eq!(upper, lower);
        assert!(SetChange::between(std::slice::from_ref(&upper), &[lower]).is_empty());
        let json = serde_json::to_string(&upper).unwrap();
        let read: RecordSet = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (read.name.as_str(), read.spelling.as_deref()),
            ("www.example.com", Some("WWW.Example.com"))
        );
        assert_eq!(read.data, ["LB.Example.net"]);
        let text = |data: &str| RecordSet::new("www", RecordKind::Txt, 60, vec![data.into()]);
        assert_ne!(text("\"A\""), text("\"a\""));
    }

    #[test]
    fn set_is_read_back_from_json() {
        for kind in [
            RecordKind::A,
            RecordKind::Aaaa,
            RecordKind::Cname,
            RecordKind::Ns,
            RecordKind::Soa,
            RecordKind::Txt,
            RecordKind::Other(33),
        ] {
            let set = RecordSet::new("www", kind, 60, vec!["x".into()]);
            let json = serde_json::to_string(&set).unwrap();
            assert_eq!(serde_json::from_str::<RecordSet>(&json).unwrap(), set, "{json}");
        }
        assert!("MX".parse::<RecordKind>().is_err());
    }
}

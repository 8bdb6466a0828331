//! Splits the clients of a name between its old and its new targets. DNS without weights can only list addresses of both: a
//! client picks one of them. So the reachable shares are the fractions of small numbers.

use std::collections::BTreeSet;

use crate::nameserver::{Kind, RecordSet};

/// Returns the record sets in which at most `percent` of the addresses are new: the largest reachable share. All sets are new at
/// 100 %.
///
/// Only addresses of one type can be mixed. A name whose old or new target is another name (CNAME) keeps its old sets until 100
/// %, and so does a type that only one side has.
pub(super) fn mix(old: &[RecordSet], new: &[RecordSet], percent: u8) -> Vec<RecordSet> {
    if percent >= 100 {
        return new.to_vec();
    }
    let mixed = |set: &RecordSet| {
        let is_address = matches!(set.kind, Kind::A | Kind::Aaaa);
        let new = new.iter().find(|new| new.kind == set.kind).filter(|_| is_address);
        new.map_or_else(|| set.clone(), |new| mix_addresses(set, new, percent))
    };
    old.iter().map(mixed).collect()
}

/// Mixes two sets of addresses. Of the combinations with the largest share that does not exceed `percent`, takes the one with
/// most addresses, so that no target gets more clients than necessary.
fn mix_addresses(old: &RecordSet, new: &RecordSet, percent: u8) -> RecordSet {
    let leaving: Vec<&String> = old.data.iter().filter(|data| !new.data.contains(data)).collect();
    let coming: Vec<&String> = new.data.iter().filter(|data| !old.data.contains(data)).collect();
    let mut best = Mixed { new: 0, old: leaving.len() };
    for new in 1..=coming.len() {
        for old in 1..=leaving.len() {
            let mixed = Mixed { new, old };
            if mixed.is_at_most(percent) && mixed.is_better_than(best) {
                best = mixed;
            }
        }
    }
    let both = old.data.iter().filter(|data| new.data.contains(data));
    let data: BTreeSet<&String> =
        coming.into_iter().take(best.new).chain(leaving.into_iter().take(best.old)).chain(both).collect();
    RecordSet { data: data.into_iter().cloned().collect(), ..old.clone() }
}

/// Numbers of new and old addresses in a set.
#[derive(Clone, Copy)]
struct Mixed {
    new: usize,
    old: usize,
}

impl Mixed {
    fn all(self) -> usize {
        self.new.saturating_add(self.old)
    }

    fn is_at_most(self, percent: u8) -> bool {
        self.new.saturating_mul(100) <= self.all().saturating_mul(percent.into())
    }

    /// Compares the fractions of new addresses, then the numbers of addresses.
    fn is_better_than(self, other: Self) -> bool {
        let (this, that) = (self.new.saturating_mul(other.all()), other.new.saturating_mul(self.all()));
        this > that || (this == that && self.all() > other.all())
    }
}

/// Returns the share of clients that a record set sends to new addresses, in percent, rounded down. `new` are the record sets at
/// 100 %.
pub(super) fn share(set: &RecordSet, new: &[RecordSet]) -> u8 {
    let is_new = |data: &&String| new.iter().any(|new| new.kind == set.kind && new.data.contains(*data));
    let count = set.data.iter().filter(is_new).count().saturating_mul(100);
    count.checked_div(set.data.len()).and_then(|percent| u8::try_from(percent).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(kind: Kind, data: &[&str]) -> RecordSet {
        RecordSet { name: "www".into(), kind, ttl: 60, data: data.iter().map(ToString::to_string).collect() }
    }

    fn mixed(old: &[&str], new: &[&str], percent: u8) -> (Vec<String>, u8) {
        let (old, new) = ([set(Kind::A, old)], [set(Kind::A, new)]);
        let mixed = mix(&old, &new, percent);
        (mixed[0].data.clone(), share(&mixed[0], &new))
    }

    #[test]
    fn share_is_the_largest_reachable_one() {
        assert_eq!(mixed(&["o1"], &["n1"], 10), (vec!["o1".into()], 0));
        assert_eq!(mixed(&["o1"], &["n1"], 50), (vec!["n1".into(), "o1".into()], 50));
        assert_eq!(mixed(&["o1"], &["n1"], 99), (vec!["n1".into(), "o1".into()], 50));
        assert_eq!(mixed(&["o1"], &["n1"], 100), (vec!["n1".into()], 100));
        let three = ["o1", "o2", "o3"];
        assert_eq!(mixed(&three, &["n1"], 25).1, 25);
        assert_eq!(mixed(&three, &["n1"], 24).1, 0);
        assert_eq!(mixed(&three, &["n1"], 40).1, 33);
        assert_eq!(mixed(&three, &["n1", "n2", "n3"], 50).0.len(), 6, "all addresses are used");
        assert_eq!(mixed(&three, &["n1", "n2", "n3"], 0).0, three);
    }

    #[test]
    fn address_of_both_sides_stays() {
        assert_eq!(mixed(&["o1", "x"], &["n1", "x"], 50).0, ["n1", "o1", "x"]);
        assert_eq!(mixed(&["x"], &["x"], 50).0, ["x"]);
    }

    #[test]
    fn only_addresses_of_one_type_are_mixed() {
        let (a, aaaa) = (set(Kind::A, &["o1"]), set(Kind::Aaaa, &["o::1"]));
        let name = set(Kind::Cname, &["mirror.example.net"]);
        assert_eq!(mix(std::slice::from_ref(&a), std::slice::from_ref(&name), 50), std::slice::from_ref(&a));
        assert_eq!(
            mix(std::slice::from_ref(&name), std::slice::from_ref(&a), 50),
            std::slice::from_ref(&name)
        );
        assert_eq!(mix(std::slice::from_ref(&name), std::slice::from_ref(&a), 100), std::slice::from_ref(&a));
        let new = [set(Kind::A, &["n1"])];
        let both = mix(&[a, aaaa.clone()], &new, 50);
        assert_eq!(both, [set(Kind::A, &["n1", "o1"]), aaaa], "the mirror has no IPv6 address");
    }
}

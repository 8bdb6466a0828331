//! Splits the clients of a name between its old and its new targets.
//!
//! A provider with weights has record sets for each side, and returns a new set for the requested share of the queries. DNS
//! without weights can only list addresses of both sides, and a client picks one of them. Therefore, a share can only be a
//! fraction with small numbers, such as 1/3.

use std::collections::BTreeSet;

use crate::inventory::ZoneService;
use crate::nameserver::{RecordKind, RecordSet, Weight};

/// How a provider splits clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    /// By the weights of two sets.
    Weights,
    /// By the addresses in one set.
    Addresses,
}

impl Split {
    /// Returns how a provider splits clients.
    pub(super) fn of(service: &ZoneService) -> Self {
        if service.has_weights() { Self::Weights } else { Self::Addresses }
    }
}

/// The largest weight.
const MOST_WEIGHT: usize = 255;

/// Returns the record sets that send the largest possible share of clients to the new targets, at most `percent`. At 100 %,
/// all sets are new.
///
/// Only two sets of the same type can be split. If only one side has a set of a type, this set changes at 100 %. Without weights,
/// a CNAME also changes at 100 %.
pub(super) fn mix(old: &[RecordSet], new: &[RecordSet], percent: u8, split: Split) -> Vec<RecordSet> {
    if percent >= 100 {
        return new.to_vec();
    }
    let mixed = |set: &RecordSet| {
        let is_address = matches!(set.kind, RecordKind::A | RecordKind::Aaaa);
        let other = new.iter().find(|new| new.kind == set.kind && new.data != set.data);
        match (other, split) {
            (Some(new), Split::Weights) => weigh(set, new, percent),
            (Some(new), Split::Addresses) if is_address => vec![mix_addresses(set, new, percent)],
            _ => vec![set.clone()],
        }
    };
    old.iter().flat_map(mixed).collect()
}

/// Splits two sets into weighted sets. A weighted set has only one record (`Weight` of `ResourceRecordSet` in the Route 53 API),
/// so each side has one set for each of its records.
fn weigh(old: &RecordSet, new: &RecordSet, percent: u8) -> Vec<RecordSet> {
    let count = |set: &RecordSet| set.data.len().max(1);
    // All sets of one side together get the share of this side.
    let (of_new, of_old) = weights(
        usize::from(percent).saturating_mul(count(old)),
        usize::from(100_u8.saturating_sub(percent)).saturating_mul(count(new)),
    );
    // Both sides get the same TTL, so that caches keep the records of both sides for the same time. An alias has a fixed TTL.
    let ttl = [old, new].into_iter().find(|set| set.alias.is_some()).map_or(old.ttl, |set| set.ttl);
    let weighted = |set: &RecordSet, side: &str, weight: u8| {
        let one = |(number, data): (usize, &String)| RecordSet {
            weight: Some(Weight { id: format!("netsurgeon-{side}-{number}"), weight }),
            data: vec![data.clone()],
            ttl,
            ..set.clone()
        };
        (1..).zip(&set.data).map(one).collect::<Vec<_>>()
    };
    [weighted(new, "mirror", of_new), weighted(old, "old", of_old)].concat()
}

/// Returns weights for the new and the old sets in the ratio of two numbers. If the exact ratio is not possible, the new sets get
/// a smaller share. But each weight is at least 1, so a very small share of the new sets becomes larger.
fn weights(new: usize, old: usize) -> (u8, u8) {
    // The ratio 10 : 90 is not reduced to 1 : 9, because 10 and 90 are also the percentages.
    let common = if new.max(old) > MOST_WEIGHT { common_divisor(new, old) } else { 1 };
    let (new, old) = (new.checked_div(common).unwrap_or(new), old.checked_div(common).unwrap_or(old));
    let largest = new.max(old).max(MOST_WEIGHT);
    let scaled = |number: usize| number.saturating_mul(MOST_WEIGHT).checked_div(largest).unwrap_or_default();
    // If the old weight is the smaller weight, it is rounded up. The larger weight needs no rounding.
    let up = usize::from(old < new && largest > MOST_WEIGHT);
    let weight = |number: usize| u8::try_from(number.max(1)).unwrap_or(u8::MAX);
    (weight(scaled(new)), weight(scaled(old).saturating_add(up)))
}

fn common_divisor(one: usize, other: usize) -> usize {
    match one.checked_rem(other) {
        Some(rest) => common_divisor(other, rest),
        None => one.max(1),
    }
}

/// Mixes two sets of addresses. The new addresses get the largest share that does not exceed `percent`. If several combinations
/// have this share, takes the combination with the most addresses, so that no target gets more clients than necessary.
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

    /// Returns whether this mix has a larger fraction of new addresses than the other mix or, if the fractions are equal, more
    /// addresses.
    fn is_better_than(self, other: Self) -> bool {
        let (this, that) = (self.new.saturating_mul(other.all()), other.new.saturating_mul(self.all()));
        this > that || (this == that && self.all() > other.all())
    }
}

/// Returns the share of clients that the record sets of one type send to new targets, in percent, rounded down. `new` are the
/// record sets at 100 %.
pub(super) fn share<'s>(sets: impl Iterator<Item = &'s RecordSet>, new: &[RecordSet]) -> u8 {
    let (mut at_new, mut all) = (0_usize, 0_usize);
    for set in sets {
        let is_new = |data: &&String| new.iter().any(|new| new.kind == set.kind && new.data.contains(*data));
        let weight = set.weight.as_ref().map_or(1, |weight| weight.weight.into());
        let count = set.data.iter().filter(is_new).count().saturating_mul(100);
        let percent = count.checked_div(set.data.len()).unwrap_or_default();
        at_new = at_new.saturating_add(percent.saturating_mul(weight));
        all = all.saturating_add(weight);
    }
    at_new.checked_div(all).and_then(|percent| u8::try_from(percent).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(kind: RecordKind, data: &[&str]) -> RecordSet {
        RecordSet::new("www", kind, 60, data.iter().map(ToString::to_string).collect())
    }

    fn mixed(old: &[&str], new: &[&str], percent: u8) -> (Vec<String>, u8) {
        let (old, new) = ([set(RecordKind::A, old)], [set(RecordKind::A, new)]);
        let mixed = mix(&old, &new, percent, Split::Addresses);
        (mixed[0].data.clone(), share(mixed.iter(), &new))
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
        let (a, aaaa) = ([set(RecordKind::A, &["o1"])], set(RecordKind::Aaaa, &["o::1"]));
        let name = [set(RecordKind::Cname, &["mirror.example.net"])];
        let mix = |old: &[RecordSet], new: &[RecordSet], percent| mix(old, new, percent, Split::Addresses);
        assert_eq!(mix(&a, &name, 50), a);
        assert_eq!(mix(&name, &a, 50), name);
        assert_eq!(mix(&name, &a, 100), a);
        let new = [set(RecordKind::A, &["n1"])];
        let both = mix(&[a[0].clone(), aaaa.clone()], &new, 50);
        assert_eq!(both, [set(RecordKind::A, &["n1", "o1"]), aaaa], "the mirror has no IPv6 address");
    }

    #[test]
    fn weights_reach_every_share() {
        let (old, new) = ([set(RecordKind::Cname, &["old"])], [set(RecordKind::Cname, &["new"])]);
        for percent in [1, 10, 50, 99] {
            let mixed = mix(&old, &new, percent, Split::Weights);
            let weights: Vec<u8> =
                mixed.iter().filter_map(|set| set.weight.as_ref()).map(|set| set.weight).collect();
            assert_eq!(weights, [percent, 100 - percent]);
            assert_eq!(share(mixed.iter(), &new), percent);
        }
        // Each weighted set has one record. There are three old addresses and two new addresses.
        let (old3, new2) = ([set(RecordKind::A, &["o1", "o2", "o3"])], [set(RecordKind::A, &["n1", "n2"])]);
        for (percent, weights) in
            [(10, [30, 30, 180, 180, 180]), (1, [3, 3, 198, 198, 198]), (50, [150, 150, 100, 100, 100])]
        {
            let mixed = mix(&old3, &new2, percent, Split::Weights);
            let found: Vec<u8> = mixed.iter().map(|set| set.weight.as_ref().unwrap().weight).collect();
            assert_eq!(found, weights);
            assert_eq!(share(mixed.iter(), &new2), percent);
        }
        // Weights cannot express the ratios 1 : 297 and 297 : 1, because the largest weight is 255.
        assert_eq!((weights(1, 297), weights(297, 1), weights(3, 297)), ((1, 255), (255, 1), (1, 99)));
        assert_eq!((weights(31, 300), weights(300, 31)), ((26, 255), (255, 27)));
        assert_eq!((weights(28, 290), weights(290, 28)), ((14, 145), (145, 14)));
        assert_eq!(mix(&old, &new, 100, Split::Weights), new);
        assert_eq!(
            mix(&old, &[set(RecordKind::A, &["n1"])], 50, Split::Weights),
            old,
            "types cannot be mixed"
        );
        assert_eq!(mix(&old, &old, 50, Split::Weights), old);
    }
}

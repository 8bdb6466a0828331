//! Computes a new address for every old address.
//!
//! The rules, in this order:
//!
//! 1. An old address with a pin gets the pinned address.
//! 2. `default/kubernetes` gets the first address of the new range.
//! 3. Every other address keeps its offset if this offset is free in the new range; for example, `.10` stays `.10`.
//! 4. The remaining addresses are packed. Addresses of the old static band get addresses of the new static band. All other
//!    addresses get addresses above the new band. If one of these parts is full, free addresses of the other part are used.
//!
//! The result depends only on the input, so the same survey gives the same plan.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::net::IpAddr;

use super::ServiceCidr;

/// An old address that gets a new address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The address to replace.
    pub old: IpAddr,
    /// The range that contains the old address. The offset of the old address counts from the start of this range. `None` if no
    /// range contains the address; the address is then packed.
    pub old_range: Option<ServiceCidr>,
    /// Precedence among addresses with the same offset.
    pub rank: Rank,
    /// The new address that the operator requests.
    pub pin: Option<IpAddr>,
}

/// Precedence among addresses with the same offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// `default/kubernetes`: must get the first address of the new range.
    First,
    /// kube-dns: takes precedence over ordinary addresses with the same offset.
    Preferred,
    /// All other addresses.
    Ordinary,
}

/// Reason why no mapping is possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemapError {
    /// The range has too few free addresses.
    #[error("range `{range}` has too few addresses: {free} free, {needed} needed")]
    TooSmall {
        /// The new range.
        range: ServiceCidr,
        /// Number of addresses that are needed.
        needed: usize,
        /// Number of free addresses.
        free: u128,
    },
    /// A pinned address is outside the range, or is not usable for a Service.
    #[error("pinned address `{address}` for `{old}` is not a usable address of `{range}`")]
    PinOutside {
        /// The old address.
        old: IpAddr,
        /// The pinned address.
        address: IpAddr,
        /// The new range.
        range: ServiceCidr,
    },
    /// An address is requested twice, or is already in use.
    #[error("address `{address}`, requested for `{old}`, is already in use")]
    Taken {
        /// The old address.
        old: IpAddr,
        /// The requested address.
        address: IpAddr,
    },
}

/// Returns the new address for each element of `wanted`, in the same order.
///
/// Allocates only the first `capacity` usable addresses of the range. The caller passes the number of all usable addresses, or
/// the number of bits in the range's bitmap. `taken` contains the addresses of the new range that are already in use.
pub fn remap(
    new_range: &ServiceCidr,
    capacity: u128,
    taken: &HashSet<IpAddr, impl BuildHasher>,
    wanted: &[Wanted],
) -> Result<Vec<IpAddr>, RemapError> {
    let mut assignment = Assignment::new(*new_range, capacity, taken, wanted.len())?;
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&index| wanted.get(index).map(|w| (w.rank, w.old)));
    let in_order = || order.iter().filter_map(|&index| wanted.get(index).map(|w| (index, w)));
    for (index, wish) in in_order().filter(|(_, w)| w.pin.is_some()) {
        assignment.pin(index, wish)?;
    }
    for (index, wish) in in_order().filter(|(_, w)| w.pin.is_none() && w.rank == Rank::First) {
        assignment.first(index, wish)?;
    }
    for (index, wish) in in_order() {
        assignment.keep_offset(index, wish);
    }
    for (index, wish) in in_order() {
        assignment.pack(index, wish)?;
    }
    Ok(assignment.result.into_iter().flatten().collect())
}

struct Assignment {
    range: ServiceCidr,
    capacity: u128,
    used: HashSet<IpAddr>,
    result: Vec<Option<IpAddr>>,
    /// Next offsets to try when packing: one in the static band, one above it.
    static_cursor: u128,
    dynamic_cursor: u128,
}

impl Assignment {
    fn new(
        range: ServiceCidr,
        capacity: u128,
        taken: &HashSet<IpAddr, impl BuildHasher>,
        needed: usize,
    ) -> Result<Self, RemapError> {
        let capacity = capacity.min(range.capacity());
        let usable = |address: &IpAddr| range.offset(*address).is_some_and(|o| o >= 1 && o <= capacity);
        let used: HashSet<IpAddr> = taken.iter().copied().filter(usable).collect();
        let free = capacity.saturating_sub(used.len() as u128);
        if needed as u128 > free {
            return Err(RemapError::TooSmall { range, needed, free });
        }
        let dynamic_cursor = range.static_band().saturating_add(1);
        Ok(Self { range, capacity, used, result: vec![None; needed], static_cursor: 1, dynamic_cursor })
    }

    fn is_open(&self, index: usize) -> bool {
        self.result.get(index).is_some_and(Option::is_none)
    }

    fn is_usable(&self, address: IpAddr) -> bool {
        self.range.offset(address).is_some_and(|offset| offset >= 1 && offset <= self.capacity)
    }

    fn assign(&mut self, index: usize, address: IpAddr) -> bool {
        if !self.is_usable(address) || !self.used.insert(address) {
            return false;
        }
        if let Some(place) = self.result.get_mut(index) {
            *place = Some(address);
        }
        true
    }

    fn pin(&mut self, index: usize, wish: &Wanted) -> Result<(), RemapError> {
        let Some(address) = wish.pin else { return Ok(()) };
        if !self.is_usable(address) {
            return Err(RemapError::PinOutside { old: wish.old, address, range: self.range });
        }
        if self.assign(index, address) { Ok(()) } else { Err(RemapError::Taken { old: wish.old, address }) }
    }

    fn first(&mut self, index: usize, wish: &Wanted) -> Result<(), RemapError> {
        let Some(address) = self.range.first() else {
            return Err(RemapError::TooSmall { range: self.range, needed: 1, free: 0 });
        };
        if self.assign(index, address) { Ok(()) } else { Err(RemapError::Taken { old: wish.old, address }) }
    }

    fn keep_offset(&mut self, index: usize, wish: &Wanted) {
        if !self.is_open(index) {
            return;
        }
        let offset = wish.old_range.and_then(|range| range.offset(wish.old));
        if let Some(same) = offset.and_then(|offset| self.range.nth(offset)) {
            self.assign(index, same);
        }
    }

    fn pack(&mut self, index: usize, wish: &Wanted) -> Result<(), RemapError> {
        if !self.is_open(index) {
            return Ok(());
        }
        let was_static = wish
            .old_range
            .is_some_and(|range| range.offset(wish.old).is_some_and(|offset| offset <= range.static_band()));
        let band = self.range.static_band();
        let address = if was_static {
            self.next_static(band).or_else(|| self.next_dynamic())
        } else {
            self.next_dynamic().or_else(|| self.next_static(band))
        };
        match address {
            Some(address) if self.assign(index, address) => Ok(()),
            _ => Err(RemapError::TooSmall { range: self.range, needed: self.result.len(), free: 0 }),
        }
    }

    fn next_static(&mut self, band: u128) -> Option<IpAddr> {
        next_free(&self.range, &self.used, &mut self.static_cursor, band.min(self.capacity))
    }

    fn next_dynamic(&mut self) -> Option<IpAddr> {
        next_free(&self.range, &self.used, &mut self.dynamic_cursor, self.capacity)
    }
}

fn next_free(range: &ServiceCidr, used: &HashSet<IpAddr>, cursor: &mut u128, last: u128) -> Option<IpAddr> {
    while *cursor <= last {
        let address = range.nth(*cursor)?;
        *cursor = cursor.saturating_add(1);
        if !used.contains(&address) {
            return Some(address);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wanted(old: &str, range: &str, rank: Rank) -> Wanted {
        Wanted { old: old.parse().unwrap(), old_range: Some(range.parse().unwrap()), rank, pin: None }
    }

    fn run(to: &str, taken: &[&str], wishes: &[Wanted]) -> Result<Vec<String>, RemapError> {
        let taken: HashSet<IpAddr> = taken.iter().map(|t| t.parse().unwrap()).collect();
        Ok({
            let to: ServiceCidr = to.parse().unwrap();
            remap(&to, to.capacity(), &taken, wishes)
        }?
        .iter()
        .map(ToString::to_string)
        .collect())
    }

    #[test]
    fn offsets_are_kept_if_free_in_the_new_range() {
        let wishes = [
            wanted("10.96.0.1", "10.96.0.0/16", Rank::First),
            wanted("10.96.0.10", "10.96.0.0/16", Rank::Preferred),
            wanted("10.96.7.9", "10.96.0.0/16", Rank::Ordinary),
        ];
        assert_eq!(run("10.200.0.0/16", &[], &wishes).unwrap(), ["10.200.0.1", "10.200.0.10", "10.200.7.9"]);
    }

    #[test]
    fn other_addresses_are_packed_above_the_static_band() {
        let wishes = [
            wanted("10.96.0.1", "10.96.0.0/16", Rank::First),
            wanted("10.96.7.9", "10.96.0.0/16", Rank::Ordinary),
            wanted("10.96.0.200", "10.96.0.0/16", Rank::Ordinary),
            wanted("10.96.9.9", "10.96.0.0/16", Rank::Ordinary),
        ];
        // The new /25 has a static band of 16 addresses, so packing starts at .17. The old /16 has a static band of 256
        // addresses, which contains .200.
        assert_eq!(
            run("10.200.0.0/25", &["10.200.0.17"], &wishes).unwrap(),
            ["10.200.0.1", "10.200.0.18", "10.200.0.2", "10.200.0.19"]
        );
    }

    #[test]
    fn first_address_goes_to_the_first_rank() {
        let wishes = [
            wanted("10.97.0.1", "10.97.0.0/16", Rank::Ordinary),
            wanted("10.96.0.1", "10.96.0.0/16", Rank::First),
        ];
        let got = run("10.200.0.0/24", &[], &wishes).unwrap();
        assert_eq!(got[1], "10.200.0.1");
        assert_ne!(got[0], "10.200.0.1");
        assert!(matches!(run("10.200.0.0/24", &["10.200.0.1"], &wishes), Err(RemapError::Taken { .. })));
    }

    #[test]
    fn pins_win_and_bad_pins_are_refused() {
        let mut wish = wanted("10.96.0.7", "10.96.0.0/16", Rank::Ordinary);
        wish.pin = Some("10.200.0.99".parse().unwrap());
        assert_eq!(run("10.200.0.0/24", &[], &[wish.clone()]).unwrap(), ["10.200.0.99"]);
        assert!(matches!(
            run("10.200.0.0/24", &["10.200.0.99"], &[wish.clone()]),
            Err(RemapError::Taken { .. })
        ));
        wish.pin = Some("10.200.0.255".parse().unwrap());
        assert!(matches!(run("10.200.0.0/24", &[], &[wish]), Err(RemapError::PinOutside { .. })));
    }

    #[test]
    fn too_small_range_reports_free_and_needed_addresses() {
        let wishes: Vec<_> =
            (1..=8).map(|n| wanted(&format!("10.96.0.{n}"), "10.96.0.0/16", Rank::Ordinary)).collect();
        let error = run("10.200.0.0/29", &[], &wishes).unwrap_err();
        assert_eq!(error.to_string(), "range `10.200.0.0/29` has too few addresses: 6 free, 8 needed");
    }

    proptest! {
        #[test]
        fn every_mapping_is_injective_and_usable(
            offsets in proptest::collection::btree_set(1_u32..60_000, 1..200),
            prefix in 16_u8..26,
            taken in proptest::collection::btree_set(1_u32..200, 0..20),
        ) {
            let old: ServiceCidr = "10.96.0.0/16".parse().unwrap();
            let new: ServiceCidr = format!("10.200.0.0/{prefix}").parse().unwrap();
            let taken: HashSet<IpAddr> =
                taken.into_iter().filter_map(|o| new.nth(u128::from(o))).filter(|a| new.is_usable(*a)).collect();
            let wishes: Vec<Wanted> = offsets.iter().map(|o| Wanted {
                old: old.nth(u128::from(*o)).unwrap(), old_range: Some(old), rank: Rank::Ordinary, pin: None,
            }).collect();
            match remap(&new, new.capacity(), &taken, &wishes) {
                Ok(result) => {
                    let unique: HashSet<_> = result.iter().copied().collect();
                    prop_assert_eq!(unique.len(), wishes.len());
                    prop_assert!(result.iter().all(|a| new.is_usable(*a) && !taken.contains(a)));
                    for (wish, got) in wishes.iter().zip(&result) {
                        let same = old.offset(wish.old).and_then(|o| new.nth(o));
                        if let Some(same) = same.filter(|a| new.is_usable(*a) && !taken.contains(a)) {
                            // An address keeps its offset if this is possible.
                            prop_assert_eq!(same, *got);
                        }
                    }
                }
                Err(RemapError::TooSmall { needed, free, .. }) => prop_assert!(needed as u128 > free),
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }
}

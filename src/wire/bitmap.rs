//! The bitmap of a RangeAllocation.
//!
//! `data` is a big integer in big-endian order with no leading zero byte (Go's `big.Int.Bytes`). Bit *i* represents item *i* of
//! the range. For addresses, this is the network address plus 1 plus *i*. For node ports, it is the first port plus *i*
//! (`pkg/registry/core/service/allocator/bitmap.go` and `ipallocator/bitmap.go`, v1.36.3).

use bitvec::prelude::{BitVec, Lsb0};

use super::WireError;

/// The allocated items of a range, as bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitmap {
    bits: BitVec<u8, Lsb0>,
}

impl Bitmap {
    /// Returns a bitmap for this many items, with none allocated.
    pub fn empty(capacity: u64) -> Self {
        Self { bits: BitVec::repeat(false, usize::try_from(capacity).unwrap_or(usize::MAX)) }
    }

    /// Reads the stored bitmap.
    ///
    /// Fails with [`WireError::BitmapTooLong`] if a bit is set beyond the capacity. The caller must limit the capacity so that
    /// the bitmap fits into memory.
    pub fn from_bytes(data: &[u8], capacity: u64) -> Result<Self, WireError> {
        let mut bits: BitVec<u8, Lsb0> = BitVec::from_vec(data.iter().rev().copied().collect());
        let used = bits.last_one().map_or(0, |last| (last as u64).saturating_add(1));
        if used > capacity {
            return Err(WireError::BitmapTooLong { bits: used, capacity });
        }
        bits.resize(usize::try_from(capacity).unwrap_or(usize::MAX), false);
        Ok(Self { bits })
    }

    /// Returns the bitmap as it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        let used = self.bits.last_one().map_or(0, |last| last.saturating_add(1));
        let mut bits = self.bits.clone();
        bits.truncate(used);
        bits.set_uninitialized(false);
        let mut bytes = bits.into_vec();
        bytes.reverse();
        bytes
    }

    /// Returns the number of items.
    pub fn capacity(&self) -> u64 {
        self.bits.len() as u64
    }

    /// Returns the number of allocated items.
    pub fn used(&self) -> u64 {
        self.bits.count_ones() as u64
    }

    /// Returns whether the item is allocated; `false` if the index is beyond the capacity.
    pub fn is_set(&self, index: u64) -> bool {
        usize::try_from(index)
            .ok()
            .and_then(|index| self.bits.get(index).as_deref().copied())
            .unwrap_or(false)
    }

    /// Marks an item as allocated or free. Returns whether the item exists.
    pub fn set(&mut self, index: u64, allocated: bool) -> bool {
        let place = usize::try_from(index).ok().and_then(|index| self.bits.get_mut(index));
        match place {
            Some(mut bit) => {
                *bit = allocated;
                true
            }
            None => false,
        }
    }

    /// Iterates over the indexes of the allocated items, in ascending order.
    pub fn iter_set(&self) -> impl Iterator<Item = u64> + '_ {
        self.bits.iter_ones().map(|index| index as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ip::{Items, ServiceCidr};

    #[test]
    fn first_address_is_the_lowest_bit() {
        // In base64 this is `AQ==`, the value that an API server stores when only default/kubernetes exists.
        let bitmap = Bitmap::from_bytes(&[1], 254).unwrap();
        assert_eq!(bitmap.iter_set().collect::<Vec<_>>(), [0]);
        assert_eq!(bitmap.to_bytes(), [1]);
        assert_eq!(Bitmap::empty(10).to_bytes(), Vec::<u8>::new());
    }

    #[test]
    fn bit_beyond_the_range_is_reported() {
        assert_eq!(Bitmap::from_bytes(&[1, 0], 8), Err(WireError::BitmapTooLong { bits: 9, capacity: 8 }));
        assert!(Bitmap::from_bytes(&[0, 0, 0x80], 8).is_ok());
    }

    fn round_trip(range: &ServiceCidr, picks: &[u128]) {
        let items = Items::Addresses(*range);
        let capacity = items.capacity();
        let mut bitmap = Bitmap::empty(capacity);
        let mut wanted: Vec<u64> = Vec::new();
        for pick in picks {
            if capacity > 0 {
                let bit = u64::try_from(pick % u128::from(capacity)).unwrap();
                assert_eq!(items.bit(items.item(bit).unwrap()), Some(bit));
                assert!(bitmap.set(bit, true));
                wanted.push(bit);
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        let bytes = bitmap.to_bytes();
        assert_ne!(bytes.first(), Some(&0), "no leading zero byte");
        let back = Bitmap::from_bytes(&bytes, capacity).unwrap();
        assert_eq!(back, bitmap);
        assert_eq!(back.iter_set().collect::<Vec<_>>(), wanted);
        assert_eq!(back.used(), wanted.len() as u64);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn round_trip_for_every_prefix_length(picks in proptest::collection::vec(any::<u128>(), 0..50)) {
            // The API server accepts IPv4 ranges with a prefix length of at least 12 (20 host bits), and IPv6 ranges with a
            // prefix length of at least 64.
            for prefix in 8_u8..=32 {
                round_trip(&format!("10.0.0.0/{prefix}").parse().unwrap(), &picks);
            }
            for prefix in 64_u8..=128 {
                round_trip(&format!("fd00::/{prefix}").parse().unwrap(), &picks);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(data in proptest::collection::vec(any::<u8>(), 0..100), capacity in 0_u64..900) {
            if let Ok(bitmap) = Bitmap::from_bytes(&data, capacity) {
                let minimal: Vec<u8> = data.iter().copied().skip_while(|byte| *byte == 0).collect();
                prop_assert_eq!(bitmap.to_bytes(), minimal);
            }
        }
    }
}

//! The bitmap of a RangeAllocation against a set of numbers. Input: capacity (3 bytes), number of bytes of the stored bitmap (1),
//! those bytes, then changes of 3 bytes each.

#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use netsurgeon::wire::bitmap::Bitmap;

fuzz_target!(|data: &[u8]| {
    let Some(([low, middle, high, length], rest)) = data.split_first_chunk::<4>() else { return };
    // An API server's largest bitmap has 2^20 bits; 2^17 test the same, eight times as fast.
    let capacity = u64::from(u32::from_le_bytes([*low, *middle, *high & 0x01, 0]));
    let (stored, changes) = rest.split_at(usize::from(*length).min(rest.len()));
    let Ok(mut bitmap) = Bitmap::from_bytes(stored, capacity) else { return };
    let mut model: BTreeSet<u64> = BTreeSet::new();
    for (index, byte) in stored.iter().rev().enumerate() {
        model.extend((0..8).filter(|bit| byte >> bit & 1 == 1).map(|bit| index as u64 * 8 + bit));
    }
    for change in changes.chunks_exact(3) {
        let bit = u64::from(u32::from_le_bytes([change[0], change[1], change[2] & 0x01, 0]));
        let is_set = change[2] & 0x80 != 0;
        assert_eq!(bitmap.set(bit, is_set), bit < capacity);
        if is_set && bit < capacity {
            model.insert(bit);
        } else {
            model.remove(&bit);
        }
        assert_eq!(bitmap.is_set(bit), model.contains(&bit));
    }
    assert_eq!(bitmap.capacity(), capacity);
    assert_eq!(bitmap.used(), model.len() as u64);
    assert!(bitmap.iter_set().eq(model.iter().copied()));
    let bytes = bitmap.to_bytes();
    assert_ne!(bytes.first(), Some(&0), "no leading zero byte");
    assert_eq!(Bitmap::from_bytes(&bytes, capacity), Ok(bitmap));
});

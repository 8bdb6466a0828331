//! Stored values of every encoding, read in every way: no panic, and a value that is read as a kind has that kind in its type.

#![no_main]

use libfuzzer_sys::fuzz_target;
use netsurgeon::wire::objects::{self, StoredKind};
use netsurgeon::wire::{Envelope, StoredAddress, StoredService, tree};

fuzz_target!(|data: &[u8]| {
    let Some(input) = netsurgeon_fuzz::input(data) else { return };
    let value = input.value.as_slice();
    let envelope = Envelope::of(value);
    let shown = tree::of(value);
    if input.is_real {
        assert!(matches!(envelope, Ok(Envelope::Protobuf { .. } | Envelope::Json(_))) == shown.is_ok());
    }
    if let Ok(shown) = shown {
        std::hint::black_box(shown.to_string());
    }
    check::<objects::ConfigMap>(value);
    check::<objects::IpAddressObject>(value);
    check::<objects::Namespace>(value);
    check::<objects::Node>(value);
    check::<objects::Pod>(value);
    check::<objects::RangeAllocation>(value);
    check::<objects::Service>(value);
    check::<objects::ServiceCidrObject>(value);
    if let Ok(service) = StoredService::decode(value) {
        std::hint::black_box(service.spec.addresses());
    }
    std::hint::black_box(StoredAddress::decode(value).is_ok());
});

fn check<K: StoredKind>(value: &[u8]) {
    if objects::decode::<K>(value).is_ok() {
        assert_eq!(objects::type_of(value).expect("it was decoded").kind, K::NAME);
    }
}

//! Bits of the RangeAllocation without an owner, and owners without a bit, after an operation between ranges that share addresses.
//!
//! Such an operation leaves addresses in the range of the API servers, and under dual write, no component repairs the bits. An
//! address that no Service lists keeps its bit until its IPAddress is deleted, so that no client gets it in between.

use std::collections::HashSet;
use std::net::IpAddr;

use super::index::Index;
use super::intention::Renumbering;
use crate::ip::Item;
use crate::operation::{KeyChange, KeyEdit, Swap};
use crate::survey::{Era, Layout, Survey};
use crate::wire::edit::{Condition, FieldChange};
use crate::wire::objects::ALLOCATOR;
use crate::wire::{Field, FieldEdit, Value};

/// Returns the change that frees the bits of the operation's addresses without an owner and, under dual write, sets the missing bits
/// of all Services and of the allocator's IPAddress objects. In a rollback (`back`), the change only frees the bits of addresses that
/// the operation has taken, because all other bits must be as before. The change is empty if the RangeAllocation cannot be read.
pub(super) fn aligned(work: &Renumbering, survey: &Survey, back: bool) -> Swap {
    let found = work.bitmap.as_ref().and_then(|change| {
        let found = survey.bitmaps.iter().find(|bitmap| bitmap.name == change.name)?;
        let (items, bits) = found.read()?;
        Some((found, items, bits.ok()?))
    });
    let Some((found, items, bits)) = found else { return Swap::default() };
    let bit = |address: IpAddr| items.bit(Item::Address(address));
    let free: Vec<u64> =
        ownerless(work, survey, back).filter_map(bit).filter(|bit| bits.is_set(*bit)).collect();
    let missing: Vec<u64> = match work.era {
        Era::DualWrite if !back => owned(survey).filter_map(bit).filter(|bit| !bits.is_set(*bit)).collect(),
        // In the bitmap era, an API server repairs them.
        _ => Vec::new(),
    };
    let capacity = items.capacity();
    let changes = [FieldChange::Free { capacity, bits: free }, FieldChange::Mark { capacity, bits: missing }];
    let edits = changes.map(|change| FieldEdit { field: Field::data(), change }).to_vec();
    let require = vec![Condition::Holds(Field::range(), Value::Text(found.range.clone()))];
    let change = KeyChange::Edit { require, edits, fill: Vec::new() };
    let key = Layout::new(&work.prefix).range(&found.name);
    Swap { edits: vec![KeyEdit { key, change }], checks: Vec::new() }
}

/// Returns the addresses of the operation that no Service has, as an address or as an external IP, and for which there is no
/// IPAddress.
fn ownerless<'a>(work: &'a Renumbering, survey: &'a Survey, back: bool) -> impl Iterator<Item = IpAddr> + 'a {
    let index = Index::of(survey);
    let of_moves = work.moves.iter().flat_map(move |moved| {
        let temporary = moved.shadow.iter().flat_map(|shadow| shadow.temporary);
        let old = Some(moved.old_address).filter(|_| !back);
        old.into_iter().chain([moved.new_address]).chain(temporary)
    });
    let external = survey.services.iter().flat_map(|service| &service.spec.external_ips);
    let external: HashSet<IpAddr> = external.filter_map(|text| text.parse().ok()).collect();
    of_moves.filter(move |address| {
        !index.is_listed(*address) && index.object(*address).is_none() && !external.contains(address)
    })
}

/// Returns the addresses of all Services and of the allocator's IPAddress objects.
fn owned(survey: &Survey) -> impl Iterator<Item = IpAddr> + '_ {
    let services = survey.services.iter().flat_map(|service| service.addresses.iter().copied());
    let objects = survey.addresses.iter().filter(|object| object.managed_by == ALLOCATOR);
    services.chain(objects.filter_map(|object| object.address))
}
